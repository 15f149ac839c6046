//! `role`.

use client::wire::{
    authpb::{Permission, permission::Type},
    etcdserverpb::{AuthRoleGetResponse, AuthRoleListResponse},
};
use cobra::Flag;

use super::{answer::Said, auth};
use crate::{
    call::{Call, Command},
    commands::headings::AUTH,
    exit::{Failure, Outcome},
    print::{Answer, Out, fields, json, protobuf, quote},
    raw,
};

/// The row of the table.
pub const ROLE: Command = Command {
    name: "role",
    group: AUTH,
    short: "Shows and changes roles. See `role --help`",
    long: "Shows and changes roles",
    subs: &[&[
        Command {
            name: "add",
            usage: "add <role name>",
            short: "Makes a role, which allows nothing yet",
            run: Some(add),
            ..Command::NONE
        },
        Command {
            name: "delete",
            usage: "delete <role name>",
            short: "Removes a role, from its users too",
            run: Some(delete),
            ..Command::NONE
        },
        Command {
            name: "get",
            usage: "get <role name>",
            short: "Shows what a role allows",
            run: Some(get),
            ..Command::NONE
        },
        Command { name: "list", usage: "list", short: "Shows the roles", run: Some(list), ..Command::NONE },
        Command {
            name: "grant-permission",
            usage: "grant-permission [options] <role name> <permission type> <key> [endkey]",
            short: "Lets a role read or write keys",
            flags: &[
                Flag::switch("from-key", "the key and all keys after it"),
                Flag::switch("prefix", "all keys that begin like this"),
            ],
            raw: true,
            run: Some(grant),
            ..Command::NONE
        },
        Command {
            name: "revoke-permission",
            usage: "revoke-permission <role name> <key> [endkey]",
            short: "Takes a permission from a role",
            flags: &[
                Flag::switch("from-key", "the key and all keys after it"),
                Flag::switch("prefix", "all keys that begin like this"),
            ],
            raw: true,
            run: Some(revoke),
            ..Command::NONE
        },
    ]],
    ..Command::NONE
};

fn add(call: &Call) -> Outcome {
    let [name] = call.exactly("role add command requires role name as its argument")?;
    let client = call.connect()?;
    let response = call.timed(client.role_add(name))?;
    call.print(&Said::new(format!("Role {name} created"), response.header.as_ref(), &response))
}

fn delete(call: &Call) -> Outcome {
    let [name] = call.exactly("role delete command requires role name as its argument")?;
    let client = call.connect()?;
    let response = call.timed(client.role_delete(name))?;
    call.print(&Said::new(format!("Role {name} deleted"), response.header.as_ref(), &response))
}

fn get(call: &Call) -> Outcome {
    let [name] = call.exactly("role get command requires role name as its argument")?;
    let client = call.connect()?;
    let response = call.timed(client.role_get(name))?;
    call.print(&Got { name, response: &response })
}

fn list(call: &Call) -> Outcome {
    let [] = call.exactly("role list command requires no arguments")?;
    let client = call.connect()?;
    let response = call.timed(client.role_list())?;
    call.print(&response)
}

fn grant(call: &Call) -> Outcome {
    let [name, allowed, key, rest @ ..] = &call.args[..] else {
        return Err(Failure::bad_args(
            "role grant command requires role name, permission type, and key [endkey] as its argument",
        ));
    };
    let Some(allowed) = Type::from_str_name(&allowed.to_uppercase()) else {
        return Err(Failure::bad_args(format!("invalid permission type: {allowed}")));
    };
    let range = auth::range(call, key, rest.first().map(String::as_str))?;
    let client = call.connect()?;
    auth::text(name)?;
    let response = call.timed(client.role_grant_permission(name, allowed, range))?;
    call.print(&Said::new(format!("Role {name} updated"), response.header.as_ref(), &response))
}

fn revoke(call: &Call) -> Outcome {
    let [name, key, rest @ ..] = &call.args[..] else {
        return Err(Failure::bad_args(
            "role revoke-permission command requires role name and key [endkey] as its argument",
        ));
    };
    let range = auth::range(call, key, rest.first().map(String::as_str))?;
    let end = range.range_end.clone();
    let client = call.connect()?;
    auth::text(name)?;
    let response = call.timed(client.role_revoke_permission(name, range))?;
    let mut out = Out::default();
    out.bytes.extend_from_slice(b"Permission of ");
    match &end[..] {
        b"" => out.bytes.extend_from_slice(&raw::bytes(&format!("key {key}"))),
        end => {
            out.bytes.extend_from_slice(b"range ");
            bounds(&mut out, &raw::bytes(key), end);
        }
    }
    out.bytes.extend_from_slice(format!(" is revoked from role {name}").as_bytes());
    let line = out.bytes;
    call.print(&Said::new(line, response.header.as_ref(), &response))
}

fn bounds(out: &mut Out, key: &[u8], end: &[u8]) {
    out.bytes.push(b'[');
    out.bytes.extend_from_slice(key);
    out.bytes.extend_from_slice(b", ");
    match end {
        b"\0" => out.bytes.extend_from_slice(b"<open ended>"),
        end => {
            out.bytes.extend_from_slice(end);
            out.bytes.push(b')');
        }
    }
}

/// The answer to a `role get`; `user get --detail` has one for each role.
pub struct Got<'a> {
    /// Of the role.
    pub name: &'a str,
    /// What it allows.
    pub response: &'a AuthRoleGetResponse,
}

impl Got<'_> {
    fn allowed(&self, out: &mut Out, heading: &str, kinds: [Type; 2]) {
        out.line(heading);
        for perm in &self.response.perm {
            if kinds.contains(&perm.perm_type()) {
                keys(out, perm);
            }
        }
    }
}

fn keys(out: &mut Out, Permission { key, range_end, .. }: &Permission) {
    out.bytes.push(b'\t');
    if range_end.is_empty() {
        return out.line(key);
    }
    bounds(out, key, range_end);
    let whole = client::prefix(key.clone());
    if whole.range_end == *range_end && !key.is_empty() && &range_end[..] != b"\0" {
        out.bytes.extend_from_slice(b" (prefix ");
        out.bytes.extend_from_slice(key);
        out.bytes.push(b')');
    }
    out.line("");
}

impl Answer for Got<'_> {
    fn simple(&self, out: &mut Out) -> Outcome {
        out.line(format!("Role {}", self.name));
        self.allowed(out, "KV Read:", [Type::Read, Type::Readwrite]);
        self.allowed(out, "KV Write:", [Type::Write, Type::Readwrite]);
        Ok(())
    }

    fn fields(&self, out: &mut Out) -> Outcome {
        fields::header(out, self.response.header.as_ref());
        for perm in &self.response.perm {
            fields::field(out, "PermType", format!(" {}", perm.perm_type().as_str_name()));
            fields::bytes(out, "Key", &perm.key);
            fields::bytes(out, "RangeEnd", &perm.range_end);
        }
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        let perm = |p: &Permission| {
            json::Object::new()
                .some_number("permType", p.perm_type)
                .some_bytes("key", &p.key)
                .some_bytes("range_end", &p.range_end)
                .finish()
        };
        Ok(json::Object::new()
            .header(self.response.header.as_ref())
            .some_array("perm", self.response.perm.iter().map(perm).collect())
            .finish())
    }

    fn protobuf(&self) -> Outcome<Vec<u8>> {
        Ok(protobuf::bytes(self.response))
    }
}

impl Answer for AuthRoleListResponse {
    fn simple(&self, out: &mut Out) -> Outcome {
        self.roles.iter().for_each(|role| out.line(role));
        Ok(())
    }

    fn fields(&self, out: &mut Out) -> Outcome {
        fields::header(out, self.header.as_ref());
        let names: Vec<String> = self.roles.iter().map(|r| quote(r.as_bytes())).collect();
        fields::field(out, "Roles", names.join(" "));
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        Ok(json::Object::new().header(self.header.as_ref()).some_texts("roles", &self.roles).finish())
    }

    fn protobuf(&self) -> Outcome<Vec<u8>> {
        Ok(protobuf::bytes(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_show_what_they_are() {
        let cases: [(&[u8], &[u8], &[u8]); 6] = [
            (b"foo", b"", b"\tfoo\n"),
            (b"bar", b"baz", b"\t[bar, baz)\n"),
            (b"pre", b"prf", b"\t[pre, prf) (prefix pre)\n"),
            (b"k", b"\0", b"\t[k, <open ended>\n"),
            (b"\0", b"\0", b"\t[\0, <open ended>\n"),
            (b"", b"\0", b"\t[, <open ended>\n"),
        ];
        for (key, end, line) in cases {
            let perm = Permission { key: key.to_vec().into(), range_end: end.to_vec().into(), ..Default::default() };
            let mut out = Out::default();
            keys(&mut out, &perm);
            assert_eq!(out.bytes, line);
        }
    }
}
