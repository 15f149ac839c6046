//! `auth`.

use client::{Error, KeyRange, wire::etcdserverpb::AuthStatusResponse};

use crate::{
    call::{Call, Command},
    commands::headings::AUTH,
    connect::no_text,
    exit::{Failure, Outcome},
    print::{Answer, Out, json, protobuf},
    raw,
};

/// The row of the table.
pub const AUTH_COMMAND: Command = Command {
    name: "auth",
    group: AUTH,
    short: "Switches users and roles on and off. See `auth --help`",
    long: "Switches users and roles on and off",
    subs: &[&[
        Command {
            name: "disable",
            usage: "disable",
            short: "Lets everybody do everything",
            run: Some(disable),
            ..Command::NONE
        },
        Command {
            name: "enable",
            usage: "enable",
            short: "Asks everybody for a user",
            run: Some(enable),
            ..Command::NONE
        },
        Command {
            name: "status",
            usage: "status",
            short: "Shows whether users are asked for",
            run: Some(status),
            ..Command::NONE
        },
    ]],
    ..Command::NONE
};

fn no_args(call: &Call, name: &str) -> Outcome {
    let [] = call.exactly(&format!("auth {name} command does not accept any arguments"))?;
    Ok(())
}

fn enable(call: &Call) -> Outcome {
    no_args(call, "enable")?;
    let client = call.connect()?;
    call.timed(async {
        loop {
            match client.auth_enable().await {
                Ok(_) => return Ok(()),
                // The user root is there and may not do anything yet.
                Err(error) if error.says("etcdserver: root user does not have root role") => {
                    match client.role_add("root").await {
                        Err(error) if !error.says("etcdserver: role name already exists") => return Err(error),
                        _ => client.user_grant_role("root", "root").await?,
                    };
                }
                Err(error) => return Err(error),
            }
        }
    })?;
    crate::say("Authentication Enabled\n")
}

fn disable(call: &Call) -> Outcome {
    no_args(call, "disable")?;
    let client = call.connect()?;
    call.timed(client.auth_disable())?;
    crate::say("Authentication Disabled\n")
}

fn status(call: &Call) -> Outcome {
    no_args(call, "status")?;
    let client = call.connect()?;
    let response = call.timed(client.auth_status())?;
    call.print(&response)
}

impl Answer for AuthStatusResponse {
    fn simple(&self, out: &mut Out) -> Outcome {
        out.line(format!("Authentication Status: {}", self.enabled));
        out.line(format!("AuthRevision: {}", self.auth_revision));
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        Ok(json::Object::new()
            .header(self.header.as_ref())
            .some_switch("enabled", self.enabled)
            .some_number("authRevision", self.auth_revision)
            .finish())
    }

    fn protobuf(&self) -> Outcome<Vec<u8>> {
        Ok(protobuf::bytes(self))
    }
}

/// What the words and the flags `--prefix` and `--from-key` say together.
///
/// # Errors
/// If they contradict each other.
pub fn range(call: &Call, key: &str, end: Option<&str>) -> Outcome<KeyRange> {
    let (prefix, from_key) = (call.switch("prefix"), call.switch("from-key"));
    if prefix && from_key {
        return Err(Failure::bad_args("--from-key and --prefix flags are mutually exclusive"));
    }
    for (given, name) in [(prefix, "prefix"), (from_key, "from-key")] {
        if given && end.is_some() {
            return Err(Failure::bad_args(format!("unexpected endkey argument with --{name} flag")));
        }
    }
    let key = raw::bytes(key);
    Ok(match (prefix, from_key, end) {
        (true, ..) => client::prefix(key),
        (_, true, _) => client::from_key(key),
        (.., end) => KeyRange { key: key.into(), range_end: raw::bytes(end.unwrap_or_default()).into() },
    })
}

/// That a word is text, where the protocol has text.
///
/// # Errors
/// Go's words.
pub fn text(word: &str) -> Outcome {
    if raw::is_text(word) { Ok(()) } else { Err(no_text()) }
}

/// Whether a request was refused for want of a permission.
pub fn denied(error: &Error) -> bool {
    error.says("etcdserver: permission denied")
}
