//! `txn`.

use std::io::BufRead;

use client::wire::etcdserverpb::{
    Compare, RequestOp, ResponseOp, TxnRequest, TxnResponse,
    compare::{CompareResult, CompareTarget, TargetUnion},
    request_op::Request,
    response_op::Response,
};
use cobra::{Flag, quote};

use super::{del, get, headings::KEYS, put, words};
use crate::{
    call::{Call, Command},
    exit::{Failure, INVALID_INPUT, Outcome},
    print::{Answer, Out, fields, json, protobuf},
    raw,
};

/// The row of the table.
pub const TXN: Command = Command {
    name: "txn",
    usage: "txn [options]",
    group: KEYS,
    short: "Compares, then does one of two lists of requests, all at once",
    long: r#"Reads a transaction from standard input and carries it out as one step.

It has three parts, each ended by an empty line:
1) comparisons,
2) requests for the case that all of them hold,
3) requests for the case that one does not.

A comparison is target("key") op "value"; the targets are ver, c (create), m
(mod), val and lease, the operators =, !=, < and >. A request is a get, put or
del with its flags.

$ etcdctl txn -i
compares:
mod("key1") > "0"

success requests (get, put, del):
put key1 "overwritten"

failure requests (get, put, del):
put key1 "created"
put key2 "with some more words"
"#,
    flags: &[Flag::switch("interactive", "say what is expected next").short('i')],
    run: Some(run),
    ..Command::NONE
};

/// What a line of a transaction can be.
static REQUESTS: Command = Command { subs: &[&[get::GET, put::PUT, del::DEL]], ..Command::NONE };

fn run(call: &Call) -> Outcome {
    let [] = call.exactly("txn command does not accept argument")?;
    let client = call.connect()?;
    let request = read(&mut std::io::stdin().lock(), call.switch("interactive"))?;
    let response = call.timed(client.txn(request))?;
    call.print(&response)
}

fn read(input: &mut impl BufRead, interactive: bool) -> Outcome<TxnRequest> {
    let prompt = |text: &str| if interactive { crate::say(&format!("{text}\n")) } else { Ok(()) };
    prompt("compares:")?;
    let compare = part(input, compare)?;
    prompt("success requests (get, put, del):")?;
    let success = part(input, request)?;
    prompt("failure requests (get, put, del):")?;
    let failure = part(input, request)?;
    Ok(TxnRequest { compare, success, failure })
}

/// Lines up to an empty one.
fn part<T>(input: &mut impl BufRead, mut take: impl FnMut(&str) -> Outcome<T>) -> Outcome<Vec<T>> {
    let mut taken = Vec::new();
    loop {
        let mut bytes = Vec::new();
        input.read_until(b'\n', &mut bytes).map_err(|e| Failure::new(INVALID_INPUT, e.to_string()))?;
        let line = raw::text(&bytes);
        if !line.ends_with('\n') {
            return Err(Failure::new(INVALID_INPUT, "EOF"));
        }
        match line.trim() {
            "" => return Ok(taken),
            line => taken.push(take(line)?),
        }
    }
}

fn compare(line: &str) -> Outcome<Compare> {
    let malformed = |more: &str| Failure::new(INVALID_INPUT, format!("malformed comparison: {line}{more}"));
    let (target, rest) = line.split_once('(').ok_or_else(|| malformed(""))?;
    let (key, op, value) = operands(rest)
        .map_err(|(key, op)| malformed(&format!("; got {target}({}) {op} {}", quote(&key), quote(""))))?;
    let number = || {
        cobra::go::parse_decimal(&value)
            .map_err(|_| Failure::new(INVALID_INPUT, format!("invalid txn compare request: {line}")))
    };
    let (target, operand) = match target {
        "ver" | "version" => (CompareTarget::Version, TargetUnion::Version(number()?)),
        "c" | "create" => (CompareTarget::Create, TargetUnion::CreateRevision(number()?)),
        "m" | "mod" => (CompareTarget::Mod, TargetUnion::ModRevision(number()?)),
        "val" | "value" => (CompareTarget::Value, TargetUnion::Value(raw::bytes(&value).into())),
        "lease" => {
            let id = put::lease_id(&value).map_err(|reason| malformed(&format!(" (bad lease ID: {reason})")))?;
            (CompareTarget::Lease, TargetUnion::Lease(id))
        }
        other => return Err(malformed(&format!(" (unknown target {other})"))),
    };
    let result = match op.as_str() {
        "=" => CompareResult::Equal,
        "!=" => CompareResult::NotEqual,
        "<" => CompareResult::Less,
        ">" => CompareResult::Greater,
        other => return Err(malformed(&format!(" (unknown operator {other})"))),
    };
    Ok(Compare {
        result: result.into(),
        target: target.into(),
        key: raw::bytes(&key).into(),
        range_end: Default::default(),
        target_union: Some(operand),
    })
}

/// `"key") op "value"`; on failure, what of it could be read.
fn operands(text: &str) -> Result<(String, String, String), (String, String)> {
    let nothing = || (String::new(), String::new());
    let (key, rest) = words::unquote(text).ok_or_else(nothing)?;
    let seen = |op: &str| (key.clone(), op.to_owned());
    let rest = rest.strip_prefix(") ").ok_or_else(|| seen(""))?.trim_start();
    let (op, rest) = rest.split_once(char::is_whitespace).ok_or_else(|| seen(rest))?;
    let (value, _) = words::unquote(rest.trim_start()).ok_or_else(|| seen(op))?;
    Ok((key.clone(), op.to_owned(), value))
}

fn request(line: &str) -> Outcome<RequestOp> {
    let words = words::split(line);
    if words.len() < 2 {
        return Err(Failure::new(INVALID_INPUT, format!("invalid txn compare request: {line}")));
    }
    let invalid = || Failure::new(INVALID_INPUT, format!("invalid txn request: {line}"));
    let parsed = cobra::parse(&REQUESTS, &words).map_err(|misread| {
        if misread.usage {
            complain!("{}", cobra::help::usage(&misread.path));
        }
        invalid()
    })?;
    if parsed.values.changed(cobra::HELP.name) {
        return Err(invalid());
    }
    let call = Call::new(parsed);
    let request = match call.path.last().map(|c| c.name) {
        Some("put") => Request::RequestPut(put::request(&call, || Err(put::missing()))?),
        Some("get") => Request::RequestRange(get::request(&call)?),
        Some("del") => Request::RequestDeleteRange(del::request(&call)?),
        _ => return Err(invalid()),
    };
    Ok(RequestOp { request: Some(request) })
}

impl Answer for TxnResponse {
    fn simple(&self, out: &mut Out) -> Outcome {
        out.line(if self.succeeded { "SUCCESS" } else { "FAILURE" });
        for response in &self.responses {
            out.line("");
            match &response.response {
                Some(Response::ResponseRange(response)) => {
                    get::Got { response, value_only: false }.simple(out)?;
                }
                Some(Response::ResponsePut(response)) => response.simple(out)?,
                Some(Response::ResponseDeleteRange(response)) => response.simple(out)?,
                Some(Response::ResponseTxn(response)) => response.simple(out)?,
                None => {}
            }
        }
        Ok(())
    }

    fn fields(&self, out: &mut Out) -> Outcome {
        fields::header(out, self.header.as_ref());
        fields::field(out, "Succeeded", self.succeeded);
        for response in &self.responses {
            match &response.response {
                Some(Response::ResponseRange(response)) => {
                    get::Got { response, value_only: false }.fields(out)?;
                }
                Some(Response::ResponsePut(response)) => response.fields(out)?,
                Some(Response::ResponseDeleteRange(response)) => response.fields(out)?,
                Some(Response::ResponseTxn(response)) => response.fields(out)?,
                None => {}
            }
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

fn json(response: &TxnResponse) -> String {
    json::Object::new()
        .header(response.header.as_ref())
        .some_switch("succeeded", response.succeeded)
        .some_array("responses", response.responses.iter().map(json_op).collect())
        .finish()
}

fn json_op(op: &ResponseOp) -> String {
    let (name, inner) = match &op.response {
        Some(Response::ResponseRange(response)) => ("response_range", get::json(response)),
        Some(Response::ResponsePut(response)) => ("response_put", put::json(response)),
        Some(Response::ResponseDeleteRange(response)) => ("response_delete_range", del::json(response)),
        Some(Response::ResponseTxn(response)) => ("response_txn", json(response)),
        None => return json::Object::new().raw("Response", "null").finish(),
    };
    let inner = json::Object::new().raw(name, &inner).finish();
    json::Object::new().raw("Response", &inner).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_are_read_or_refused() {
        let text = |line: &str| match compare(line) {
            Ok(c) => format!("{:?} {:?} {:?}", c.result(), c.target(), c.target_union.unwrap()),
            Err(Failure::Text { text, .. }) => text,
            Err(other) => panic!("{other:?}"),
        };
        let cases = [
            (r#"value("k") = "v""#, r#"Equal Value Value(b"v")"#),
            (r#"c("k") > "0""#, "Greater Create CreateRevision(0)"),
            (r#"m("k")   <    "7""#, "Less Mod ModRevision(7)"),
            (r#"ver("k") != "1""#, "NotEqual Version Version(1)"),
            (r#"lease("k") = "1f""#, "Equal Lease Lease(31)"),
            ("foo", "malformed comparison: foo"),
            (r#"value(k) = "v""#, r#"malformed comparison: value(k) = "v"; got value("")  """#),
            (r#"value("k") = v"#, r#"malformed comparison: value("k") = v; got value("k") = """#),
            (r#"value("k")="v""#, r#"malformed comparison: value("k")="v"; got value("k")  """#),
            (r#"v("k") = "v""#, r#"malformed comparison: v("k") = "v" (unknown target v)"#),
            (r#"mod("k") > "x""#, r#"invalid txn compare request: mod("k") > "x""#),
        ];
        for (line, expected) in cases {
            assert_eq!(text(line), expected, "{line}");
        }
    }
}
