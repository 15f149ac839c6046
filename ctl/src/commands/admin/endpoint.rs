//! `endpoint`: questions that each member answers for itself.

use client::wire::etcdserverpb::HashKvResponse;
use cobra::Flag;

use super::{
    each::{ALL_MEMBERS, asked, json_list, reason, single},
    health, status,
};
use crate::{
    call::{Call, Command},
    commands::headings::CLUSTER,
    exit::Outcome,
    print::{Answer, Out, fields, json, quote, table},
};

/// The row of the table.
pub const ENDPOINT: Command = Command {
    name: "endpoint",
    group: CLUSTER,
    short: "Asks single members how they are. See `endpoint --help`",
    long: "Asks single members how they are",
    shared: &[ALL_MEMBERS],
    subs: &[&[
        Command {
            name: "hashkv",
            usage: "hashkv",
            short: "Shows the hash of the keys of each endpoint",
            flags: &[Flag::int("rev", "0", "hash what there was at this revision (0: now)")],
            run: Some(hashkv),
            ..Command::NONE
        },
        Command {
            name: "health",
            usage: "health",
            short: "Shows whether a write can be agreed on at each endpoint",
            run: Some(health::run),
            ..Command::NONE
        },
        Command {
            name: "status",
            usage: "status",
            short: "Shows what each endpoint says of itself",
            long: "Shows what each endpoint says of itself.
In the form \"simple\" a line has: endpoint, ID, version, storage version, db size, in use,
percentage not in use, quota, is leader, is learner, raft term, raft index, raft applied index,
errors, downgrade target version, downgrade enabled.",
            run: Some(status::run),
            ..Command::NONE
        },
    ]],
    ..Command::NONE
};

fn hashkv(call: &Call) -> Outcome {
    let endpoints = asked(call)?;
    if endpoints.is_empty() {
        return call.print(&Hashes(Vec::new()));
    }
    let client = call.connect()?;
    let (mut answers, mut failed) = (Vec::new(), None);
    for endpoint in endpoints {
        let one = single(&client, &endpoint);
        let revision = call.int("rev");
        match call.timed(async { one?.hash_kv(revision).await }) {
            Ok(response) => answers.push(Hash { endpoint, response }),
            Err(failure) => {
                complain!("Failed to get the hash of endpoint {endpoint} ({})", reason(&failure));
                failed = Some(failure);
            }
        }
    }
    call.print(&Hashes(answers))?;
    failed.map_or(Ok(()), Err)
}

struct Hash {
    endpoint: String,
    response: HashKvResponse,
}

struct Hashes(Vec<Hash>);

impl Hash {
    fn row(&self) -> Vec<String> {
        vec![self.endpoint.clone(), self.response.hash.to_string(), self.response.hash_revision.to_string()]
    }

    fn json(&self) -> String {
        let response = json::Object::new()
            .header(self.response.header.as_ref())
            .some_number("hash", self.response.hash)
            .some_number("compact_revision", self.response.compact_revision)
            .some_number("hash_revision", self.response.hash_revision)
            .finish();
        json::Object::new().text("Endpoint", &self.endpoint).raw("HashKV", &response).finish()
    }
}

impl Answer for Hashes {
    fn simple(&self, out: &mut Out) -> Outcome {
        self.0.iter().for_each(|hash| out.line(hash.row().join(", ")));
        Ok(())
    }

    fn fields(&self, out: &mut Out) -> Outcome {
        for Hash { endpoint, response } in &self.0 {
            fields::header(out, response.header.as_ref());
            fields::field(out, "Endpoint", quote(endpoint.as_bytes()));
            fields::field(out, "Hash", response.hash);
            fields::field(out, "HashRevision", response.hash_revision);
            out.line("");
        }
        Ok(())
    }

    fn table(&self, out: &mut Out) -> Outcome {
        let rows: Vec<_> = self.0.iter().map(Hash::row).collect();
        table::draw(out, &["endpoint", "hash", "hash revision"], &rows);
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        Ok(json_list(self.0.iter().map(Hash::json).collect()))
    }
}
