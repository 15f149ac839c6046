//! `get`.

use client::wire::{
    etcdserverpb::{
        RangeRequest, RangeResponse,
        range_request::{SortOrder, SortTarget},
    },
    mvccpb::KeyValue,
};

use super::{Command, KEYS};
use crate::{
    call::Call,
    exit::{BAD_FEATURE, Failure, Outcome},
    flags::Flag,
    print::{Answer, Format, Out, fields, json, protobuf, simple},
};

/// The row of the table.
pub const GET: Command = Command {
    name: "get",
    usage: "get [options] <key> [range_end]",
    group: KEYS,
    short: "Shows a key or a range of keys",
    flags: FLAGS,
    run: Some(run),
    ..Command::NONE
};

/// Also the flags of a get within a transaction.
pub(super) const FLAGS: &[Flag] = &[
    Flag::text("consistency", "l", "Linearizable(l) or Serializable(s)"),
    Flag::switch("count-only", "only count the keys"),
    Flag::switch("from-key", "the key and all keys after it"),
    Flag::switch("keys-only", "keys without values"),
    Flag::int("limit", "0", "at most so many keys (0: all)"),
    Flag::int("max-create-rev", "0", "only keys created at or before this revision"),
    Flag::int("max-mod-rev", "0", "only keys changed at or before this revision"),
    Flag::int("min-create-rev", "0", "only keys created at or after this revision"),
    Flag::int("min-mod-rev", "0", "only keys changed at or after this revision"),
    Flag::text("order", "", "ASCEND or DESCEND (ASCEND by default)"),
    Flag::switch("prefix", "all keys that begin like this"),
    Flag::switch("print-value-only", "only values (in the form \"simple\")"),
    Flag::int("rev", "0", "as it was at this revision (0: now)"),
    Flag::text("sort-by", "", "CREATE, KEY, MODIFY, VALUE or VERSION"),
    Flag::switch("stream", "take the answer in pieces, as they come"),
];

fn run(call: &Call) -> Outcome {
    let request = request(call)?;
    let client = call.connect()?;
    let printer = call.printer()?;
    if call.switch("count-only") && printer.format != Format::Fields {
        return Err(Failure::bad_args("--count-only is only for `--write-out=fields`"));
    }
    let response = call.timed(client.range(request))?;
    printer.print(&Got { response: &response, value_only: call.switch("print-value-only") })
}

/// The request that the words of a get ask for.
pub(super) fn request(call: &Call) -> Outcome<RangeRequest> {
    let _ = (call, SortOrder::Ascend, SortTarget::Key, BAD_FEATURE);
    let key = call.arg(0).ok_or_else(|| {
        Failure::bad_args("get command needs one argument as key and an optional argument as range_end")
    })?;
    Ok(RangeRequest { key: key.as_bytes().to_vec().into(), ..Default::default() })
}

/// The answer to a get.
pub(super) struct Got<'a> {
    pub response: &'a RangeResponse,
    pub value_only: bool,
}

impl Got<'_> {
    fn kvs(&self) -> &[KeyValue] {
        &self.response.kvs
    }
}

impl Answer for Got<'_> {
    fn simple(&self, out: &mut Out) -> Outcome {
        for kv in self.kvs() {
            simple::key_value(out, kv, self.value_only);
        }
        Ok(())
    }

    fn fields(&self, out: &mut Out) -> Outcome {
        fields::header(out, self.response.header.as_ref());
        for kv in self.kvs() {
            fields::key_value(out, "", kv);
        }
        fields::field(out, "More", self.response.more);
        fields::field(out, "Count", self.response.count);
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        Ok(json::Object::new()
            .header(self.response.header.as_ref())
            .some_array("kvs", self.kvs().iter().map(json::key_value).collect())
            .some_switch("more", self.response.more)
            .some_number("count", self.response.count)
            .finish())
    }

    fn protobuf(&self) -> Outcome<Vec<u8>> {
        Ok(protobuf::bytes(self.response))
    }
}
