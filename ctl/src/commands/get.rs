//! `get`.

use client::{
    Client, KeyRange,
    wire::{
        etcdserverpb::{
            RangeRequest, RangeResponse,
            range_request::{SortOrder, SortTarget},
        },
        mvccpb::KeyValue,
    },
};
use cobra::Flag;

use super::headings::KEYS;
use crate::{
    call::{Call, Command},
    exit::{BAD_FEATURE, Failure, Outcome},
    print::{Answer, Format, Out, Printer, fields, json, protobuf, simple},
    raw,
};

/// The row of the table.
pub const GET: Command = Command {
    name: "get",
    usage: "get [options] <key> [range_end]",
    group: KEYS,
    raw: true,
    short: "Shows a key or a range of keys",
    flags: FLAGS,
    run: Some(run),
    ..Command::NONE
};

/// Also the flags of a get within a transaction.
pub(super) const FLAGS: &[Flag] = &[
    Flag::text("consistency", "l", "Linearizable(l) or Serializable(s)").choices(&["l", "s"]),
    Flag::switch("count-only", "only count the keys"),
    Flag::switch("from-key", "the key and all keys after it"),
    Flag::switch("keys-only", "keys without values"),
    Flag::int("limit", "0", "at most so many keys (0: all)"),
    Flag::int("max-create-rev", "0", "only keys created at or before this revision"),
    Flag::int("max-mod-rev", "0", "only keys changed at or before this revision"),
    Flag::int("min-create-rev", "0", "only keys created at or after this revision"),
    Flag::int("min-mod-rev", "0", "only keys changed at or after this revision"),
    Flag::text("order", "", "ASCEND or DESCEND (ASCEND by default)").choices(&["ASCEND", "DESCEND"]),
    Flag::switch("prefix", "all keys that begin like this"),
    Flag::switch("print-value-only", "only values (in the form \"simple\")"),
    Flag::int("rev", "0", "as it was at this revision (0: now)"),
    Flag::text("sort-by", "", "CREATE, KEY, MODIFY, VALUE or VERSION")
        .choices(&["CREATE", "KEY", "MODIFY", "VALUE", "VERSION"]),
    Flag::switch("stream", "take the answer in pieces, as they come"),
];

fn run(call: &Call) -> Outcome {
    let request = request(call)?;
    let client = call.connect()?;
    let form = call.printer()?;
    let value_only = call.switch("print-value-only");
    if call.switch("stream") && form.format == Format::Simple && !call.switch("count-only") {
        return call.timed_outcome(stream(&client, request, form, value_only));
    }
    let response =
        if call.switch("stream") { call.timed(collect(&client, request))? } else { call.timed(client.range(request))? };
    if call.switch("count-only") && form.format != Format::Fields {
        return Err(Failure::bad_args("--count-only is only for `--write-out=fields`"));
    }
    if value_only && form.format != Format::Simple {
        return Err(Failure::bad_args("print-value-only is only for `--write-out=simple`"));
    }
    form.print(&Got { response: &response, value_only })
}

/// Prints each piece as it comes: a large range never is in memory as a whole.
async fn stream(client: &Client, request: RangeRequest, form: Printer, value_only: bool) -> Outcome {
    let mut pieces = client.range_stream(request).await?;
    while let Some(response) = pieces.next().await? {
        form.print(&Got { response: &response, value_only })?;
    }
    Ok(())
}

async fn collect(client: &Client, request: RangeRequest) -> client::Result<RangeResponse> {
    let mut pieces = client.range_stream(request).await?;
    let mut whole = RangeResponse::default();
    while let Some(piece) = pieces.next().await? {
        let mut kvs = std::mem::take(&mut whole.kvs);
        kvs.extend(piece.kvs);
        // Header, count and "more" are those of the last piece.
        whole = RangeResponse { kvs, ..piece };
    }
    Ok(whole)
}

/// The request that the words of a get ask for.
pub(super) fn request(call: &Call) -> Outcome<RangeRequest> {
    let Some(key) = call.arg(0) else {
        return Err(Failure::bad_args("get command needs one argument as key and an optional argument as range_end"));
    };
    if call.switch("prefix") && call.switch("from-key") {
        return Err(Failure::bad_args("`--prefix` and `--from-key` cannot be set at the same time, choose one"));
    }
    if call.switch("keys-only") && call.switch("count-only") {
        return Err(Failure::bad_args("`--keys-only` and `--count-only` cannot be set at the same time, choose one"));
    }
    let serializable = match call.text("consistency") {
        "l" => false,
        "s" => true,
        other => return Err(Failure::new(BAD_FEATURE, format!("unknown consistency flag {}", cobra::quote(other)))),
    };
    let range = key_range(call, key)?;
    let (sort_target, sort_order) = sorting(call.text("sort-by"), call.text("order"))?;
    Ok(RangeRequest {
        limit: call.int("limit"),
        revision: call.int("rev"),
        sort_order: sort_order.into(),
        sort_target: sort_target.into(),
        serializable,
        keys_only: call.switch("keys-only"),
        count_only: call.switch("count-only"),
        min_mod_revision: call.int("min-mod-rev"),
        max_mod_revision: call.int("max-mod-rev"),
        min_create_revision: call.int("min-create-rev"),
        max_create_revision: call.int("max-create-rev"),
        ..range.into()
    })
}

/// The keys that the arguments and `--prefix` or `--from-key` name.
pub(super) fn key_range(call: &Call, key: &str) -> Outcome<KeyRange> {
    let open = call.switch("prefix") || call.switch("from-key");
    let key = raw::bytes(key);
    match call.arg(1) {
        Some(_) if open => Err(Failure::bad_args(
            "too many arguments, only accept one argument when `--prefix` or `--from-key` is set",
        )),
        Some(end) => Ok(KeyRange { key: key.into(), range_end: raw::bytes(end).into() }),
        None if call.switch("prefix") => Ok(client::prefix(key)),
        None if open => Ok(client::from_key(key)),
        None => Ok(client::key(key)),
    }
}

fn sorting(target: &str, order: &str) -> Outcome<(SortTarget, SortOrder)> {
    let bad = |what: &str, word: &str| Failure::new(BAD_FEATURE, format!("bad sort {what} {word}"));
    let sort_order = match order.to_uppercase().as_str() {
        "" => SortOrder::None,
        "ASCEND" => SortOrder::Ascend,
        "DESCEND" => SortOrder::Descend,
        _ => return Err(bad("order", order)),
    };
    let sort_target = match target.to_uppercase().as_str() {
        "CREATE" => SortTarget::Create,
        "" | "KEY" => SortTarget::Key,
        "MODIFY" => SortTarget::Mod,
        "VALUE" => SortTarget::Value,
        "VERSION" => SortTarget::Version,
        _ => return Err(bad("target", target)),
    };
    // Keys come in this order anyway; a stream refuses to be told so.
    let natural = sort_target == SortTarget::Key && sort_order == SortOrder::Ascend;
    Ok((sort_target, if natural { SortOrder::None } else { sort_order }))
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
        Ok(json(self.response))
    }

    fn protobuf(&self) -> Outcome<Vec<u8>> {
        Ok(protobuf::bytes(self.response))
    }
}

/// The answer as JSON.
pub(super) fn json(response: &RangeResponse) -> String {
    json::Object::new()
        .header(response.header.as_ref())
        .some_array("kvs", response.kvs.iter().map(json::key_value).collect())
        .some_switch("more", response.more)
        .some_number("count", response.count)
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::wire::etcdserverpb::ResponseHeader;

    fn rendered(format: Format, hex: bool) -> String {
        let header = ResponseHeader { cluster_id: 18_446_744_073_709_551_615, member_id: 2, revision: 3, raft_term: 4 };
        let kv = KeyValue {
            key: (&b"k\xff"[..]).into(),
            value: "<v>".into(),
            create_revision: 1,
            mod_revision: 3,
            version: 2,
            lease: 255,
        };
        let response = RangeResponse { header: Some(header), kvs: vec![kv], more: true, count: 9 };
        let printer = Printer { format, hex, look: Default::default() };
        let bytes = printer.render(&Got { response: &response, value_only: false }).expect("a form");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[test]
    fn each_form_of_an_answer() {
        assert_eq!(rendered(Format::Simple, false), "k\u{fffd}\n<v>\n");
        assert_eq!(rendered(Format::Simple, true), "\\x6b\\xff\n\\x3c\\x76\\x3e\n");
        let json = r#"{"header":{"cluster_id":18446744073709551615,"member_id":2,"revision":3,"raft_term":4},"kvs":[{"key":"a/8=","create_revision":1,"mod_revision":3,"version":2,"value":"PHY+","lease":255}],"more":true,"count":9}"#;
        assert_eq!(rendered(Format::Json, false), format!("{json}\n"));
        let fields = r#""ClusterID" : ffffffffffffffff
"MemberID" : 2
"Revision" : 3
"RaftTerm" : 4
"Key" : "k\xff"
"CreateRevision" : 1
"ModRevision" : 3
"Version" : 2
"Value" : "<v>"
"Lease" : 00000000000000ff
"More" : true
"Count" : 9
"#;
        assert_eq!(rendered(Format::Fields, true), fields);
    }

    #[test]
    fn a_form_that_is_not_there_is_refused() {
        let response = RangeResponse::default();
        let printer = Printer { format: Format::Table, hex: false, look: Default::default() };
        let failure = printer.render(&Got { response: &response, value_only: false });
        assert_eq!(failure, Err(Failure::new(BAD_FEATURE, "table not supported as output format")));
    }
}
