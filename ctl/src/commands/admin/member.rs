//! `member`.

use client::wire::etcdserverpb::{
    Member, MemberAddResponse, MemberListResponse, MemberPromoteResponse, MemberRemoveResponse, MemberUpdateResponse,
    ResponseHeader,
};
use cobra::Flag;
use prost::Message;

use super::{
    doctor::gather,
    each::reason,
    joining::{check_urls, peer_urls, settings},
    replace,
    roster::{Roster, json_of_member},
    whom::Whom,
};
use crate::{
    call::{Call, Command},
    commands::headings::CLUSTER,
    exit::{BAD_FEATURE, ERROR, Failure, Outcome},
    print::{
        Answer, Out, fields, json,
        look::Paint,
        protobuf, quote,
        table::{self, Cell},
    },
};

/// The row of the stock tool's table.
pub const MEMBER: Command = Command {
    name: "member",
    group: CLUSTER,
    short: "Shows and changes who is in the cluster. See `member --help`",
    long: "Shows and changes who is in the cluster",
    subs: &[&[ADD, LIST, PROMOTE, REMOVE, UPDATE]],
    ..Command::NONE
};

/// The row of ours: a member may be named, and there is more to see.
pub const OURS: Command = Command {
    subs: &[&[
        ADD,
        Command {
            short: "Shows the members of the cluster, and who may fail",
            long: "Shows the members of the cluster: id, name, role, whether it serves, how far it is behind the
leader, where the others and clients reach it; and how many may fail now.
Every member is asked for that. With --status=false nobody is, and the output is that of etcdctl.",
            flags: &[CONSISTENCY, STATUS],
            run: Some(list_ours),
            ..LIST
        },
        Command { usage: "promote <memberID or name>", ..PROMOTE },
        Command { usage: "remove <memberID or name>", ..REMOVE },
        replace::REPLACE,
        Command { usage: "update <memberID or name> [options]", ..UPDATE },
    ]],
    ..MEMBER
};

const ADD: Command = Command {
    name: "add",
    usage: "add <memberName> [options]",
    short: "Makes room for a member in the cluster",
    flags: &[
        Flag::switch("learner", "the new member receives everything and does not vote"),
        Flag::text("peer-urls", "", "where other members will reach the new one, separated by commas"),
    ],
    raw: true,
    run: Some(add),
    ..Command::NONE
};

const CONSISTENCY: Flag = Flag::text("consistency", "l", "Linearizable(l) or Serializable(s)").choices(&["l", "s"]);
const STATUS: Flag = Flag::switch_on("status", "ask every member how it is");

const LIST: Command = Command {
    name: "list",
    usage: "list",
    short: "Shows the members of the cluster",
    long: "Shows the members of the cluster.
In the form \"simple\" a line has: ID, Status, Name, Peer Addrs, Client Addrs, Is Learner.",
    flags: &[CONSISTENCY],
    run: Some(list),
    ..Command::NONE
};

const PROMOTE: Command = Command {
    name: "promote",
    usage: "promote <memberID>",
    short: "Lets a learner vote",
    run: Some(promote),
    ..Command::NONE
};

const REMOVE: Command = Command {
    name: "remove",
    usage: "remove <memberID>",
    short: "Takes a member out of the cluster",
    run: Some(remove),
    ..Command::NONE
};

const UPDATE: Command = Command {
    name: "update",
    usage: "update <memberID> [options]",
    short: "Changes where other members reach one",
    flags: &[Flag::text("peer-urls", "", "where other members will reach it, separated by commas")],
    raw: true,
    run: Some(update),
    ..Command::NONE
};

fn add(call: &Call) -> Outcome {
    let name = match &call.args[..] {
        [] => return Err(Failure::bad_args("member name not provided")),
        [name] => name,
        _ => return Err(Failure::bad_args("too many arguments")),
    };
    let urls = peer_urls(call)?;
    let client = call.connect()?;
    check_urls(&urls)?;
    let response = call.timed(client.member_add(urls, call.switch("learner")))?;
    let changed = |out: &mut Out| {
        let member = response.member.clone().unwrap_or_default();
        let what = if call.switch("learner") { "added as learner to cluster" } else { "added to cluster" };
        out.line(done(member.id, what, response.header.as_ref()));
        settings(name, &member, &response.members).iter().for_each(|line| out.line(line));
    };
    call.print(&Changed { simple: &changed, json: &|hex| json_of_add(&response, hex), message: &response })
}

fn remove(call: &Call) -> Outcome {
    let whom = whom(call)?;
    let client = call.connect()?;
    let id = whom.id(call, &client)?;
    let response: MemberRemoveResponse = call.timed(client.member_remove(id))?;
    let header = response.header;
    print(call, done(id, "removed from cluster", header.as_ref()), header.as_ref(), &response.members, &response)
}

fn update(call: &Call) -> Outcome {
    let whom = whom(call)?;
    let urls = peer_urls(call)?;
    let client = call.connect()?;
    check_urls(&urls)?;
    let id = whom.id(call, &client)?;
    let response: MemberUpdateResponse = call.timed(client.member_update(id, urls))?;
    let header = response.header;
    print(call, done(id, "updated in cluster", header.as_ref()), header.as_ref(), &response.members, &response)
}

fn promote(call: &Call) -> Outcome {
    let whom = whom(call)?;
    let client = call.connect()?;
    let id = whom.id(call, &client)?;
    let response: MemberPromoteResponse = call.timed(client.member_promote(id))?;
    let header = response.header;
    print(call, done(id, "promoted in cluster", header.as_ref()), header.as_ref(), &response.members, &response)
}

fn linearizable(call: &Call) -> Outcome<bool> {
    match call.text("consistency") {
        "l" => Ok(true),
        "s" => Ok(false),
        // It is the default that the stock tool complains of.
        _ => Err(Failure::new(BAD_FEATURE, "unknown consistency flag \"l\"")),
    }
}

fn list(call: &Call) -> Outcome {
    let linearizable = linearizable(call)?;
    let client = call.connect()?;
    let response = call.timed(client.member_list_with(linearizable))?;
    call.print(&response)
}

fn list_ours(call: &Call) -> Outcome {
    if !call.switch("status") {
        return list(call);
    }
    let linearizable = linearizable(call)?;
    let client = call.connect()?;
    let (listed, alone) = match call.timed(client.member_list_with(linearizable)) {
        Ok(listed) => (listed, None),
        // Without a quorum each member still knows what it was told last.
        Err(failure) if linearizable => match call.timed(client.member_list_with(false)) {
            Ok(listed) => (listed, Some(failure)),
            Err(_) => return Err(failure),
        },
        Err(failure) => return Err(failure),
    };
    let facts = call.block_on(gather::standing(call, &client, listed.members.clone()));
    call.print(&Roster { listed, facts })?;
    match alone {
        None => Ok(()),
        Some(failure) => {
            complain!("Error: the cluster does not answer ({}): this is what one member knows", reason(&failure));
            Err(Failure::told(ERROR, failure))
        }
    }
}

fn whom(call: &Call) -> Outcome<Whom> {
    let Some(text) = call.arg(0).filter(|_| call.args.len() == 1) else {
        return Err(Failure::bad_args("member ID is not provided"));
    };
    let misread = |reason| Failure::bad_args(format!("bad member ID arg ({reason}), expecting ID in Hex"));
    Whom::read(call, text, misread)
}

fn done(id: u64, what: &str, header: Option<&ResponseHeader>) -> String {
    format!("Member {id:16x} {what} {:16x}", header.map_or(0, |h| h.cluster_id))
}

fn print(
    call: &Call,
    line: String,
    header: Option<&ResponseHeader>,
    members: &[Member],
    message: &impl Message,
) -> Outcome {
    let simple = |out: &mut Out| out.line(&line);
    let json = |hex| json_of(header, None, members, hex);
    call.print(&Changed { simple: &simple, json: &json, message })
}

/// The answer to a change.
struct Changed<'a, M> {
    simple: &'a dyn Fn(&mut Out),
    json: &'a dyn Fn(bool) -> String,
    message: &'a M,
}

impl<M: Message> Answer for Changed<'_, M> {
    fn simple(&self, out: &mut Out) -> Outcome {
        (self.simple)(out);
        Ok(())
    }

    fn json(&self, hex: bool) -> Outcome<String> {
        Ok((self.json)(hex))
    }

    fn protobuf(&self) -> Outcome<Vec<u8>> {
        Ok(protobuf::bytes(self.message))
    }
}

fn json_of_add(response: &MemberAddResponse, hex: bool) -> String {
    json_of(response.header.as_ref(), response.member.as_ref(), &response.members, hex)
}

fn json_of(header: Option<&ResponseHeader>, member: Option<&Member>, members: &[Member], hex: bool) -> String {
    json::Object::new()
        .header_hex(header, hex)
        .some_raw("member", member.map(|m| json_of_member(m, hex).finish()))
        .some_array("members", members.iter().map(|m| json_of_member(m, hex).finish()).collect())
        .finish()
}

fn row(member: &Member) -> Vec<String> {
    let status = if member.name.is_empty() { "unstarted" } else { "started" };
    vec![
        format!("{:x}", member.id),
        status.to_owned(),
        member.name.clone(),
        member.peer_urls.join(","),
        member.client_urls.join(","),
        member.is_learner.to_string(),
    ]
}

impl Answer for MemberListResponse {
    fn simple(&self, out: &mut Out) -> Outcome {
        self.members.iter().for_each(|member| out.line(row(member).join(", ")));
        Ok(())
    }

    fn fields(&self, out: &mut Out) -> Outcome {
        fields::header(out, self.header.as_ref());
        for member in &self.members {
            fields::id(out, "ID", member.id);
            fields::field(out, "Name", quote(member.name.as_bytes()));
            member.peer_urls.iter().for_each(|url| fields::field(out, "PeerURL", quote(url.as_bytes())));
            member.client_urls.iter().for_each(|url| fields::field(out, "ClientURL", quote(url.as_bytes())));
            fields::field(out, "IsLearner", member.is_learner);
            out.line("");
        }
        Ok(())
    }

    fn table(&self, out: &mut Out) -> Outcome {
        let headers = ["ID", "Status", "Name", "Peer Addrs", "Client Addrs", "Is Learner"];
        let cells = |member: &Member| {
            let mut cells: Vec<Cell> = row(member).into_iter().map(Cell::from).collect();
            cells[1].paint = member.name.is_empty().then_some(Paint::Warn);
            cells[5].paint = member.is_learner.then_some(Paint::Note);
            cells
        };
        table::draw_cells(out, &headers, &self.members.iter().map(cells).collect::<Vec<_>>());
        Ok(())
    }

    fn json(&self, hex: bool) -> Outcome<String> {
        Ok(json_of(self.header.as_ref(), None, &self.members, hex))
    }

    fn protobuf(&self) -> Outcome<Vec<u8>> {
        Ok(protobuf::bytes(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learner() -> Member {
        Member {
            id: 0x3e6a_2744,
            peer_urls: vec!["http://127.0.0.1:7001".to_owned(), "http://127.0.0.1:7002".to_owned()],
            is_learner: true,
            ..Member::default()
        }
    }

    #[test]
    fn a_member_that_has_not_started_has_no_name_yet() {
        assert_eq!(
            row(&learner()).join(", "),
            "3e6a2744, unstarted, , http://127.0.0.1:7001,http://127.0.0.1:7002, , true"
        );
        assert_eq!(
            json_of_member(&learner(), true).finish(),
            r#"{"ID":"3e6a2744","peerURLs":["http://127.0.0.1:7001","http://127.0.0.1:7002"],"isLearner":true}"#
        );
    }
}
