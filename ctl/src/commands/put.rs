//! `put`.

use std::io::Read;

use client::wire::etcdserverpb::{PutRequest, PutResponse};
use cobra::Flag;

use super::headings::KEYS;
use crate::{
    call::{Call, Command},
    exit::{Failure, Outcome},
    print::{Answer, Out, fields, json, protobuf, simple},
    raw,
};

/// The row of the table.
pub const PUT: Command = Command {
    name: "put",
    usage: "put [options] <key> <value> (<value> can also be given from stdin)",
    group: KEYS,
    raw: true,
    short: "Stores a value under a key",
    long: "
Stores a value under a key.

A value that begins with '-' would be read as a flag. Put '--' before it:

$ put <key> -- <value>
$ put -- <key> <value>

Without <value>, and without '--ignore-value', the value is everything that
comes on standard input:

$ cat file | put <key>",
    flags: FLAGS,
    run: Some(run),
    ..Command::NONE
};

/// Also the flags of a put within a transaction.
pub(super) const FLAGS: &[Flag] = &[
    Flag::switch("ignore-lease", "keep the lease that the key has"),
    Flag::switch("ignore-value", "keep the value that the key has"),
    Flag::text("lease", "0", "id of the lease to attach the key to (hexadecimal)"),
    Flag::switch("prev-kv", "show what the key was before"),
];

fn run(call: &Call) -> Outcome {
    let request = request(call, stdin)?;
    let client = call.connect()?;
    let response = call.timed(client.put_with(request))?;
    call.print(&response)
}

/// The request that the words of a put ask for; a value that is not among them
/// comes from `input`.
pub(super) fn request(call: &Call, input: impl FnOnce() -> Outcome<Vec<u8>>) -> Outcome<PutRequest> {
    let key = call.arg(0).ok_or_else(missing)?;
    let ignore_value = call.switch("ignore-value");
    if ignore_value && call.args.len() > 1 {
        return Err(Failure::bad_args("put command needs only 1 argument when 'ignore-value' is set"));
    }
    let value = match call.arg(1) {
        _ if ignore_value => Vec::new(),
        Some(value) => raw::bytes(value),
        None => input()?,
    };
    let lease = lease_id(call.text("lease"))
        .map_err(|reason| Failure::bad_args(format!("bad lease ID ({reason}), expecting ID in Hex")))?;
    Ok(PutRequest {
        key: raw::bytes(key).into(),
        value: value.into(),
        lease,
        prev_kv: call.switch("prev-kv"),
        ignore_value,
        ignore_lease: call.switch("ignore-lease"),
    })
}

/// A lease's id in hexadecimal digits.
///
/// # Errors
/// Go's words for what is wrong with it.
pub(super) fn lease_id(text: &str) -> Result<i64, String> {
    i64::from_str_radix(text, 16).map_err(|error| {
        let reason = match error.kind() {
            std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("strconv.ParseInt: parsing {}: {reason}", cobra::quote(text))
    })
}

/// The failure of a put without a value.
pub(super) fn missing() -> Failure {
    Failure::bad_args("put command needs 1 argument and input from stdin or 2 arguments")
}

fn stdin() -> Outcome<Vec<u8>> {
    let mut value = Vec::new();
    match std::io::stdin().lock().read_to_end(&mut value) {
        Ok(1..) => Ok(value),
        // Nothing there is not an empty value: it is a word forgotten.
        Ok(0) | Err(_) => Err(missing()),
    }
}

impl Answer for PutResponse {
    fn simple(&self, out: &mut Out) -> Outcome {
        out.line("OK");
        if let Some(kv) = &self.prev_kv {
            simple::key_value(out, kv, false);
        }
        Ok(())
    }

    fn fields(&self, out: &mut Out) -> Outcome {
        fields::header(out, self.header.as_ref());
        if let Some(kv) = &self.prev_kv {
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
pub(super) fn json(response: &PutResponse) -> String {
    json::Object::new()
        .header(response.header.as_ref())
        .some_raw("prev_kv", response.prev_kv.as_ref().map(json::key_value))
        .finish()
}
