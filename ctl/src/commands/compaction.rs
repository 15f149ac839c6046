//! `compaction`.

use client::wire::{
    Rpc,
    etcdserverpb::{CompactionRequest, CompactionResponse},
};
use cobra::Flag;

use super::headings::KEYS;
use crate::{
    call::{Call, Command},
    exit::{ERROR, Failure, Outcome},
};

/// The row of the table.
pub const COMPACTION: Command = Command {
    name: "compaction",
    usage: "compaction [options] <revision>",
    group: KEYS,
    short: "Forgets what was superseded before a revision",
    flags: &[Flag::switch("physical", "wait until the old revisions are removed for good")],
    run: Some(run),
    ..Command::NONE
};

fn run(call: &Call) -> Outcome {
    let [revision] = call.exactly("compaction command needs 1 argument")?;
    let revision = cobra::go::parse_decimal(revision).map_err(|reason| Failure::new(ERROR, reason))?;
    let request = CompactionRequest { revision, physical: call.switch("physical") };
    let client = call.connect()?;
    let _: CompactionResponse = call.timed(client.call(Rpc::Compact, &request))?;
    crate::say(&format!("compacted revision {revision}\n"))
}
