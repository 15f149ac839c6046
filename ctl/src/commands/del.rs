//! `del`.

use std::time::Duration;

use client::wire::etcdserverpb::{DeleteRangeRequest, DeleteRangeResponse};
use cobra::{Flag, quote};

use super::{get, headings::KEYS};
use crate::{
    call::{Call, Command},
    exit::{Failure, Outcome},
    print::{Answer, Out, fields, json, protobuf, simple},
};

/// How long a range can be taken back that was typed without `--range`.
const REGRET: Duration = Duration::from_secs(2);

/// The row of the table. Its flags are those of a delete within a transaction
/// too.
pub const DEL: Command = Command {
    name: "del",
    usage: "del [options] <key> [range_end]",
    group: KEYS,
    raw: true,
    short: "Removes a key or a range of keys [key, range_end)",
    flags: &[
        Flag::switch("from-key", "the key and all keys after it"),
        Flag::switch("prefix", "all keys that begin like this"),
        Flag::switch("prev-kv", "show what was deleted"),
        Flag::switch("range", "delete up to range_end, without the pause before it"),
    ],
    run: Some(run),
    ..Command::NONE
};

fn run(call: &Call) -> Outcome {
    let request = request(call)?;
    let client = call.connect()?;
    let response = call.timed(client.delete(request))?;
    call.print(&response)
}

/// The request that the words of a delete ask for. A range without `--range`
/// waits a little for second thoughts.
pub(super) fn request(call: &Call) -> Outcome<DeleteRangeRequest> {
    let Some(key) = call.arg(0).filter(|_| call.args.len() <= 2) else {
        return Err(Failure::bad_args("del command needs one argument as key and an optional argument as range_end"));
    };
    if call.switch("prefix") && call.switch("from-key") {
        return Err(Failure::bad_args("`--prefix` and `--from-key` cannot be set at the same time, choose one"));
    }
    let range = get::key_range(call, key)?;
    if let Some(end) = call.arg(1).filter(|_| !call.switch("range")) {
        complain!(
            "Warning: Keys between {} and {} will be deleted. Please interrupt the command within next 2 seconds to \
             cancel. You can provide `--range` flag to avoid the delay.",
            quote(key),
            quote(end)
        );
        std::thread::sleep(REGRET);
    }
    Ok(DeleteRangeRequest { prev_kv: call.switch("prev-kv"), ..range.into() })
}

impl Answer for DeleteRangeResponse {
    fn simple(&self, out: &mut Out) -> Outcome {
        out.line(self.deleted.to_string());
        for kv in &self.prev_kvs {
            simple::key_value(out, kv, false);
        }
        Ok(())
    }

    fn fields(&self, out: &mut Out) -> Outcome {
        fields::header(out, self.header.as_ref());
        fields::field(out, "Deleted", self.deleted);
        for kv in &self.prev_kvs {
            fields::key_value(out, "Prev", kv);
        }
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        Ok(json(self))
    }

    fn protobuf(&self) -> Outcome<Vec<u8>> {
        Ok(protobuf::bytes(self))
    }
}

/// The answer as JSON.
pub(super) fn json(response: &DeleteRangeResponse) -> String {
    json::Object::new()
        .header(response.header.as_ref())
        .some_number("deleted", response.deleted)
        .some_array("prev_kvs", response.prev_kvs.iter().map(json::key_value).collect())
        .finish()
}
