//! `elect`.

use client::{
    Client,
    concurrency::{Election, Session},
    wire::etcdserverpb::{RangeRequest, RangeResponse},
};
use cobra::Flag;

use super::{get::Got, headings::CONCURRENCY, lock::Stop};
use crate::{
    call::{Call, Command},
    exit::{ERROR, Failure, Outcome},
    print::{Format, Printer},
    raw,
};

/// Seconds after which the leadership of one that is gone ends.
const TTL: i64 = 60;

/// The row of the table.
pub const ELECT: Command = Command {
    name: "elect",
    usage: "elect <election-name> [proposal]",
    group: CONCURRENCY,
    raw: true,
    short: "Stands for election, or watches one",
    flags: &[Flag::switch("listen", "only watch who leads").short('l')],
    run: Some(run),
    ..Command::NONE
};

fn run(call: &Call) -> Outcome {
    let listen = call.switch("listen");
    let (name, proposal) = match call.args.as_slice() {
        [name] => (name, None),
        [name, proposal] => (name, Some(proposal)),
        _ => {
            return Err(Failure::bad_args("elect takes one election name argument and an optional proposal argument"));
        }
    };
    let proposal = match (listen, proposal) {
        (true, Some(_)) => return Err(Failure::bad_args("proposal given but -l is set")),
        (false, None) => return Err(Failure::bad_args("no proposal argument but -l not set")),
        (_, proposal) => proposal,
    };
    let client = call.connect()?.with_request_timeout(None);
    let form = call.printer()?;
    call.block_on(async {
        match proposal {
            Some(proposal) => campaign(&client, name, proposal, form).await,
            None => observe(&client, name, form).await,
        }
    })
}

async fn observe(client: &Client, name: &str, form: Printer) -> Outcome {
    let mut stop = Stop::new()?;
    let mut observer = client.election_observe(raw::bytes(name));
    loop {
        let kv = tokio::select! {
            kv = observer.next() => kv?,
            () = stop.wait() => return Ok(()),
        };
        // The header that stood over it; lines for people have none.
        let header = match form.format {
            Format::Simple => None,
            _ => {
                let then = RangeRequest { revision: kv.mod_revision, ..client::key(kv.key.clone()).into() };
                client.range(then).await.ok().and_then(|response| response.header)
            }
        };
        let response = RangeResponse { header, kvs: vec![kv], ..Default::default() };
        form.print(&Got { response: &response, value_only: false })?;
    }
}

async fn campaign(client: &Client, name: &str, proposal: &str, form: Printer) -> Outcome {
    let mut stop = Stop::new()?;
    let session = Session::new(client, TTL).await?;
    let election = Election::new(&session, raw::bytes(name));
    let leadership = tokio::select! {
        leadership = election.campaign(raw::bytes(proposal)) => leadership?,
        () = stop.wait() => {
            session.close().await?;
            return Err(Failure::new(ERROR, "context canceled"));
        }
    };
    let response = client.range(client::key(leadership.key().clone())).await?;
    form.print(&Got { response: &response, value_only: false })?;
    tokio::select! {
        () = stop.wait() => {
            leadership.resign().await?;
            Ok(session.close().await?)
        }
        () = session.lost() => Err(Failure::new(ERROR, "elect: session expired")),
    }
}
