//! `lease` and its sub-commands.

use std::time::Duration;

use client::wire::etcdserverpb::{
    LeaseGrantResponse, LeaseKeepAliveResponse, LeaseLeasesResponse, LeaseRevokeResponse, LeaseTimeToLiveResponse,
    ResponseHeader,
};
use cobra::Flag;

use super::{headings::KEYS, put};
use crate::{
    call::{Call, Command},
    exit::{BAD_CONNECTION, ERROR, Failure, Outcome},
    print::{
        Answer, Format, Out, fields, json,
        look::{Paint, seconds},
        protobuf,
        table::{self, Cell},
        unsupported,
    },
};

/// The row of the table.
pub const LEASE: Command = Command {
    name: "lease",
    usage: "lease",
    group: KEYS,
    short: "Leases; see the sub-commands in `lease --help`",
    subs: &[SUBS],
    ..Command::NONE
};

const SUBS: &[Command] = &[
    Command {
        name: "grant",
        usage: "grant <ttl>",
        short: "Grants a lease of so many seconds",
        run: Some(grant),
        ..Command::NONE
    },
    Command {
        name: "keep-alive",
        usage: "keep-alive [options] <leaseID>",
        short: "Renews a lease again and again",
        flags: &[Flag::switch("once", "renew it one time only")],
        run: Some(keep_alive),
        ..Command::NONE
    },
    Command { name: "list", usage: "list", short: "Shows all leases", run: Some(list), ..Command::NONE },
    Command {
        name: "revoke",
        usage: "revoke <leaseID>",
        short: "Ends a lease and deletes its keys",
        run: Some(revoke),
        ..Command::NONE
    },
    Command {
        name: "timetolive",
        usage: "timetolive <leaseID> [options]",
        short: "Shows what is left of a lease",
        flags: &[Flag::switch("keys", "show the keys of the lease too")],
        run: Some(time_to_live),
        ..Command::NONE
    },
];

fn id(call: &Call, missing: &str) -> Outcome<i64> {
    let [id] = call.exactly(missing)?;
    put::lease_id(id).map_err(|reason| Failure::bad_args(format!("bad lease ID arg ({reason}), expecting ID in Hex")))
}

fn grant(call: &Call) -> Outcome {
    let [ttl] = call.exactly("lease grant command needs TTL argument")?;
    let ttl = cobra::go::parse_decimal(ttl).map_err(|reason| Failure::bad_args(format!("bad TTL ({reason})")))?;
    let client = call.connect()?;
    let response = call.timed(client.lease_grant(ttl, 0)).map_err(|error| wrap("failed to grant lease", error))?;
    call.print(&response)
}

fn revoke(call: &Call) -> Outcome {
    let id = id(call, "lease revoke command needs 1 argument")?;
    let client = call.connect()?;
    let response = call.timed(client.lease_revoke(id)).map_err(|error| wrap("failed to revoke lease", error))?;
    call.print(&Revoked { id, response })
}

fn wrap(what: &str, failure: Failure) -> Failure {
    match failure {
        Failure::Text { code, text, cause } => Failure::Text { code, text: format!("{what} ({text})"), cause },
        other => other,
    }
}

fn list(call: &Call) -> Outcome {
    let client = call.connect()?;
    let response = call.timed(client.leases())?;
    call.print(&response)
}

fn time_to_live(call: &Call) -> Outcome {
    let id = id(call, "lease timetolive command needs lease ID as argument")?;
    let keys = call.switch("keys");
    let client = call.connect()?;
    let response = call.timed(client.lease_time_to_live(id, keys)).map_err(|f| f.with_code(BAD_CONNECTION))?;
    call.print(&Left { response, keys })
}

fn keep_alive(call: &Call) -> Outcome {
    let id = id(call, "lease keep-alive command needs lease ID as argument")?;
    // A lease is kept for as long as it lives: no single renewal's time is
    // limited, the answer that the lease is gone ends it.
    let client = call.connect()?.with_request_timeout(None);
    let form = call.printer()?;
    let mut keeper = client.keep_alive(id);
    if call.switch("once") {
        call.timed(keeper.renew()).map_err(|f| f.with_code(BAD_CONNECTION))?;
        return form.print(keeper.last());
    }
    call.block_on(async {
        loop {
            match keeper.renew().await {
                Ok(ttl) => {
                    form.print(keeper.last())?;
                    let seconds = u64::try_from(ttl).unwrap_or(0);
                    tokio::time::sleep(Duration::from_secs(seconds) / 3).await;
                }
                Err(client::Error::LeaseGone { .. }) if form.format == Format::Simple => {
                    return crate::say(&format!("lease {id:016x} expired or revoked.\n"));
                }
                Err(client::Error::LeaseGone { .. }) => return Ok(()),
                Err(error) => return Err(Failure::from(error).with_code(ERROR)),
            }
        }
    })
}

/// The stock tool's types hide their message behind their header.
fn header_bytes(header: Option<&ResponseHeader>) -> Vec<u8> {
    header.map(protobuf::bytes).unwrap_or_default()
}

impl Answer for LeaseGrantResponse {
    fn simple(&self, out: &mut Out) -> Outcome {
        out.line(format!("lease {:016x} granted with TTL({}s)", self.id, self.ttl));
        Ok(())
    }

    fn table(&self, out: &mut Out) -> Outcome {
        ours_only(out)?;
        table::draw(out, &["ID", "TTL"], &[vec![format!("{:016x}", self.id), seconds(self.ttl)]]);
        Ok(())
    }

    fn fields(&self, out: &mut Out) -> Outcome {
        fields::header(out, self.header.as_ref());
        fields::lease(out, "ID", self.id);
        fields::field(out, "TTL", self.ttl);
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        Ok(json::Object::new()
            .flat_header(self.header.as_ref())
            .number("ID", self.id)
            .number("TTL", self.ttl)
            .text("Error", &self.error)
            .finish())
    }

    fn protobuf(&self) -> Outcome<Vec<u8>> {
        Ok(header_bytes(self.header.as_ref()))
    }
}

impl Answer for LeaseKeepAliveResponse {
    fn simple(&self, out: &mut Out) -> Outcome {
        out.line(format!("lease {:016x} keepalived with TTL({})", self.id, self.ttl));
        Ok(())
    }

    fn fields(&self, out: &mut Out) -> Outcome {
        fields::header(out, self.header.as_ref());
        fields::lease(out, "ID", self.id);
        fields::field(out, "TTL", self.ttl);
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        Ok(json::Object::new().flat_header(self.header.as_ref()).number("ID", self.id).number("TTL", self.ttl).finish())
    }

    fn protobuf(&self) -> Outcome<Vec<u8>> {
        Ok(header_bytes(self.header.as_ref()))
    }
}

impl Answer for LeaseLeasesResponse {
    fn simple(&self, out: &mut Out) -> Outcome {
        out.line(format!("found {} leases", self.leases.len()));
        for lease in &self.leases {
            out.line(format!("{:016x}", lease.id));
        }
        Ok(())
    }

    fn table(&self, out: &mut Out) -> Outcome {
        ours_only(out)?;
        let rows: Vec<Vec<String>> = self.leases.iter().map(|lease| vec![format!("{:016x}", lease.id)]).collect();
        table::draw(out, &["ID"], &rows);
        Ok(())
    }

    fn fields(&self, out: &mut Out) -> Outcome {
        fields::header(out, self.header.as_ref());
        for lease in &self.leases {
            fields::lease(out, "ID", lease.id);
        }
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        let leases: Vec<String> =
            self.leases.iter().map(|lease| json::Object::new().number("id", lease.id).finish()).collect();
        Ok(json::Object::new().flat_header(self.header.as_ref()).raw("leases", &json::array(&leases)).finish())
    }

    fn protobuf(&self) -> Outcome<Vec<u8>> {
        Ok(header_bytes(self.header.as_ref()))
    }
}

struct Revoked {
    id: i64,
    response: LeaseRevokeResponse,
}

impl Answer for Revoked {
    fn simple(&self, out: &mut Out) -> Outcome {
        out.line(format!("lease {:016x} revoked", self.id));
        Ok(())
    }

    fn fields(&self, out: &mut Out) -> Outcome {
        fields::header(out, self.response.header.as_ref());
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        Ok(json::Object::new().header(self.response.header.as_ref()).finish())
    }
}

/// The stock tool has no tables of leases.
fn ours_only(out: &Out) -> Outcome {
    if out.look.ours { Ok(()) } else { Err(unsupported("table")) }
}

/// When the lease had its whole time for the last time.
fn renewed(lease: &LeaseTimeToLiveResponse) -> String {
    format!("{} ago", seconds(lease.granted_ttl.saturating_sub(lease.ttl)))
}

/// What is left of a lease.
struct Left {
    response: LeaseTimeToLiveResponse,
    /// Whether its keys were asked for.
    keys: bool,
}

impl Answer for Left {
    fn simple(&self, out: &mut Out) -> Outcome {
        let LeaseTimeToLiveResponse { id, ttl, granted_ttl, keys, .. } = &self.response;
        if *granted_ttl == 0 && *ttl == -1 {
            out.line(format!("lease {id:016x} already expired"));
            return Ok(());
        }
        let mut line = format!("lease {id:016x} granted with TTL({granted_ttl}s), remaining({ttl}s)").into_bytes();
        if self.keys {
            line.extend_from_slice(b", attached keys([");
            line.extend_from_slice(&keys.join(&b' '));
            line.extend_from_slice(b"])");
        }
        if out.look.is_seen() {
            line.extend_from_slice(
                format!("; ends in {}, renewed {}", seconds(*ttl), renewed(&self.response)).as_bytes(),
            );
        }
        out.line(line);
        Ok(())
    }

    fn table(&self, out: &mut Out) -> Outcome {
        ours_only(out)?;
        let LeaseTimeToLiveResponse { id, ttl, granted_ttl, keys, .. } = &self.response;
        let gone = *ttl == -1;
        let left = if gone { "expired".to_owned() } else { seconds(*ttl) };
        let renewed = if gone { String::new() } else { renewed(&self.response) };
        let soon = !gone && *ttl * 5 < *granted_ttl;
        let paint = if gone { Paint::Bad } else { Paint::Warn };
        let mut row: Vec<Cell> = vec![
            format!("{id:016x}").into(),
            Cell::painted(left, paint, gone || soon),
            seconds(*granted_ttl).into(),
            renewed.into(),
        ];
        let mut headers = vec!["ID", "left", "granted", "renewed"];
        if self.keys {
            headers.push("keys");
            row.push(String::from_utf8_lossy(&keys.join(&b' ')).into_owned().into());
        }
        table::draw_cells(out, &headers, &[row]);
        Ok(())
    }

    fn fields(&self, out: &mut Out) -> Outcome {
        fields::header(out, self.response.header.as_ref());
        fields::lease(out, "ID", self.response.id);
        fields::field(out, "TTL", self.response.ttl);
        fields::field(out, "GrantedTTL", self.response.granted_ttl);
        for key in &self.response.keys {
            fields::bytes(out, "Key", key);
        }
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        let keys: Vec<String> = self.response.keys.iter().map(|key| json::bytes(key)).collect();
        let keys = if keys.is_empty() { "null".to_owned() } else { json::array(&keys) };
        Ok(json::Object::new()
            .flat_header(self.response.header.as_ref())
            .number("id", self.response.id)
            .number("ttl", self.response.ttl)
            .number("granted-ttl", self.response.granted_ttl)
            .raw("keys", &keys)
            .finish())
    }

    fn protobuf(&self) -> Outcome<Vec<u8>> {
        Ok(header_bytes(self.response.header.as_ref()))
    }
}
