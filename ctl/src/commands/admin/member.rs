//! `member`.

use client::wire::etcdserverpb::{
    Member, MemberAddResponse, MemberListResponse, MemberPromoteResponse, MemberRemoveResponse, MemberUpdateResponse,
    ResponseHeader,
};
use cobra::Flag;
use prost::Message;

use super::{auth, gofmt};
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

/// The row of the table.
pub const MEMBER: Command = Command {
    name: "member",
    group: CLUSTER,
    short: "Shows and changes who is in the cluster. See `member --help`",
    long: "Shows and changes who is in the cluster",
    subs: &[&[
        Command {
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
        },
        Command {
            name: "list",
            usage: "list",
            short: "Shows the members of the cluster",
            long: "Shows the members of the cluster.
In the form \"simple\" a line has: ID, Status, Name, Peer Addrs, Client Addrs, Is Learner.",
            flags: &[Flag::text("consistency", "l", "Linearizable(l) or Serializable(s)").choices(&["l", "s"])],
            run: Some(list),
            ..Command::NONE
        },
        Command {
            name: "promote",
            usage: "promote <memberID>",
            short: "Lets a learner vote",
            run: Some(promote),
            ..Command::NONE
        },
        Command {
            name: "remove",
            usage: "remove <memberID>",
            short: "Takes a member out of the cluster",
            run: Some(remove),
            ..Command::NONE
        },
        Command {
            name: "update",
            usage: "update <memberID> [options]",
            short: "Changes where other members reach one",
            flags: &[Flag::text("peer-urls", "", "where other members will reach it, separated by commas")],
            raw: true,
            run: Some(update),
            ..Command::NONE
        },
    ]],
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
        settings(out, name, &member, &response.members);
    };
    call.print(&Changed { simple: &changed, json: &|hex| json_of_add(&response, hex), message: &response })
}

/// What the new member's process is to be started with.
fn settings(out: &mut Out, name: &str, member: &Member, members: &[Member]) {
    let mut founders = Vec::new();
    for other in members {
        let name = if other.id == member.id { name } else { &other.name };
        founders.extend(other.peer_urls.iter().map(|url| format!("{name}={url}")));
    }
    out.line("");
    out.line(format!("ETCD_NAME={}", cobra::quote(name)));
    out.line(format!("ETCD_INITIAL_CLUSTER={}", cobra::quote(&founders.join(","))));
    out.line(format!("ETCD_INITIAL_ADVERTISE_PEER_URLS=\"{}\"", member.peer_urls.join(",")));
    out.line("ETCD_INITIAL_CLUSTER_STATE=\"existing\"");
}

fn remove(call: &Call) -> Outcome {
    let id = id(call, call.args.len() == 1)?;
    let client = call.connect()?;
    let response: MemberRemoveResponse = call.timed(client.member_remove(id))?;
    let header = response.header;
    print(call, done(id, "removed from cluster", header.as_ref()), header.as_ref(), &response.members, &response)
}

fn update(call: &Call) -> Outcome {
    let id = id(call, call.args.len() == 1)?;
    let urls = peer_urls(call)?;
    let client = call.connect()?;
    check_urls(&urls)?;
    let response: MemberUpdateResponse = call.timed(client.member_update(id, urls))?;
    let header = response.header;
    print(call, done(id, "updated in cluster", header.as_ref()), header.as_ref(), &response.members, &response)
}

fn promote(call: &Call) -> Outcome {
    let id = id(call, call.args.len() == 1)?;
    let client = call.connect()?;
    let response: MemberPromoteResponse = call.timed(client.member_promote(id))?;
    let header = response.header;
    print(call, done(id, "promoted in cluster", header.as_ref()), header.as_ref(), &response.members, &response)
}

fn list(call: &Call) -> Outcome {
    let linearizable = match call.text("consistency") {
        "l" => true,
        "s" => false,
        // It is the default that the stock tool complains of.
        _ => return Err(Failure::new(BAD_FEATURE, "unknown consistency flag \"l\"")),
    };
    let client = call.connect()?;
    let response = call.timed(client.member_list_with(linearizable))?;
    call.print(&response)
}

fn id(call: &Call, fits: bool) -> Outcome<u64> {
    let Some(text) = call.arg(0).filter(|_| fits) else {
        return Err(Failure::bad_args("member ID is not provided"));
    };
    gofmt::hexadecimal(text)
        .map_err(|reason| Failure::bad_args(format!("bad member ID arg ({reason}), expecting ID in Hex")))
}

fn peer_urls(call: &Call) -> Outcome<Vec<String>> {
    match call.text("peer-urls") {
        "" => Err(Failure::bad_args("member peer urls not provided")),
        urls => Ok(urls.split(',').map(str::to_owned).collect()),
    }
}

/// What the stock client refuses before it asks a server.
fn check_urls(urls: &[String]) -> Outcome {
    let wrong = |text: String| Err(Failure::new(ERROR, text));
    for url in urls {
        let url = url.trim();
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        match scheme {
            "http" | "https" => {
                let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
                if !has_port(authority) {
                    return wrong(format!("URL address does not have the form \"host:port\": {url}"));
                }
                if !path.is_empty() {
                    return wrong(format!("URL must not contain a path: {url}"));
                }
            }
            "unix" | "unixs" => {}
            _ => return wrong(format!("URL scheme must be http, https, unix, or unixs: {url}")),
        }
    }
    urls.iter().try_for_each(|url| auth::text(url))
}

fn has_port(authority: &str) -> bool {
    match authority.rsplit_once(':') {
        Some((host, _)) => host.starts_with('[') && host.ends_with(']') || !host.contains(':'),
        None => false,
    }
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
        .some_raw("member", member.map(|m| json_of_member(m, hex)))
        .some_array("members", members.iter().map(|m| json_of_member(m, hex)).collect())
        .finish()
}

fn json_of_member(member: &Member, hex: bool) -> String {
    json::Object::new()
        .some_id("ID", member.id, hex)
        .some_text("name", &member.name)
        .some_texts("peerURLs", &member.peer_urls)
        .some_texts("clientURLs", &member.client_urls)
        .some_switch("isLearner", member.is_learner)
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
            json_of_member(&learner(), true),
            r#"{"ID":"3e6a2744","peerURLs":["http://127.0.0.1:7001","http://127.0.0.1:7002"],"isLearner":true}"#
        );
    }

    #[test]
    fn the_settings_name_everybody_in_the_order_of_the_members() {
        let other = Member { id: 1, name: "m0".to_owned(), peer_urls: vec!["http://a:1".to_owned()], ..learner() };
        let mut out = Out::default();
        settings(&mut out, "nm", &learner(), &[other, learner()]);
        let text = String::from_utf8(out.bytes).unwrap();
        assert_eq!(
            text,
            "
ETCD_NAME=\"nm\"
ETCD_INITIAL_CLUSTER=\"m0=http://a:1,nm=http://127.0.0.1:7001,nm=http://127.0.0.1:7002\"
ETCD_INITIAL_ADVERTISE_PEER_URLS=\"http://127.0.0.1:7001,http://127.0.0.1:7002\"
ETCD_INITIAL_CLUSTER_STATE=\"existing\"
"
        );
    }

    #[test]
    fn urls_that_are_none_are_refused_before_a_server_is_asked() {
        let check = |url: &str| match check_urls(&[url.to_owned()]) {
            Ok(()) => String::new(),
            Err(Failure::Text { text, .. }) => text,
            Err(other) => panic!("{other:?}"),
        };
        for good in ["http://127.0.0.1:1", "https://[::1]:1", "unix://x", " http://a:1 "] {
            assert_eq!(check(good), "", "{good}");
        }
        assert_eq!(check("bogus"), "URL scheme must be http, https, unix, or unixs: bogus");
        assert_eq!(check(""), "URL scheme must be http, https, unix, or unixs: ");
        assert_eq!(check("http://a"), "URL address does not have the form \"host:port\": http://a");
        assert_eq!(check("http://a:1/b"), "URL must not contain a path: http://a:1/b");
    }
}
