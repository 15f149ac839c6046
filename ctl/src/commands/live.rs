//! Names that only the store knows: keys, members, leases, users, roles,
//! endpoints. For `kvorum ctl` alone; the stock tool asks nobody.
//!
//! Somebody waits with a finger on the key: what has not come in half a second
//! is left out, and nothing is ever said about a failure or asked for.

use std::{
    borrow::Cow,
    time::{Duration, Instant},
};

use client::{
    Client,
    wire::etcdserverpb::{Member, RangeRequest},
};
use cobra::{Flag, Kind, complete::Candidates, path_words};

use crate::{
    call::{Call, Parsed},
    commands::browse::level::{Level, PAGE},
};

/// For everything that is asked.
const PATIENCE: Duration = Duration::from_millis(500);
/// More candidates help nobody.
const MOST: usize = 500;

/// What is said about the beginning of longer keys.
pub const BRANCH: &str = "keys";

/// What kind of names can stand in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Keys, a level of them.
    Keys,
    /// Names and ids of members.
    Members,
    /// Ids of leases.
    Leases,
    /// Users.
    Users,
    /// Roles.
    Roles,
    /// Where members serve clients; several with commas between them.
    Endpoints,
}

/// What can follow a command as its next word.
pub fn of_word(parsed: &Parsed) -> Option<Names> {
    // Behind `--` stands a command of the user's own.
    if parsed.before_dash.is_some() {
        return None;
    }
    let places: &[Names] = match &path_words(&parsed.path[1..])[..] {
        "get" | "del" | "watch" => &[Names::Keys, Names::Keys],
        "put" | "browse" => &[Names::Keys],
        "move-leader" | "member remove" | "member update" | "member promote" | "member replace" | "alarm disarm" => {
            &[Names::Members]
        }
        "lease revoke" | "lease timetolive" | "lease keep-alive" => &[Names::Leases],
        "user get" | "user delete" | "user passwd" => &[Names::Users],
        "user grant-role" | "user revoke-role" => &[Names::Users, Names::Roles],
        "role get" | "role delete" => &[Names::Roles],
        "role revoke-permission" => &[Names::Roles, Names::Keys, Names::Keys],
        "role grant-permission" => match parsed.args.len() {
            // The second word is what is allowed.
            1 => &[],
            0 => &[Names::Roles],
            _ => &[Names::Keys; 4],
        },
        _ => &[],
    };
    places.get(parsed.args.len()).copied()
}

/// What the value of a flag can be.
pub fn of_flag(flag: &Flag) -> Option<Names> {
    match flag.name {
        "endpoints" => Some(Names::Endpoints),
        "lease" => Some(Names::Leases),
        "prefix" if flag.kind == Kind::Text => Some(Names::Keys),
        "user" => Some(Names::Users),
        _ => None,
    }
}

/// The names that begin like this.
pub fn candidates(parsed: Parsed, names: Names, unfinished: &str) -> Candidates {
    let call = Call::new(parsed);
    let Some(client) = quiet_client(&call) else { return Vec::new() };
    let separator = match call.path.last() {
        Some(command) if command.name == "browse" => call.text("separator"),
        _ => "/",
    };
    let begin = Instant::now();
    let left = || PATIENCE.saturating_sub(begin.elapsed());
    call.block_on(async {
        if names == Names::Keys && !separator.is_empty() {
            return keys(&client, unfinished, separator, left).await;
        }
        tokio::time::timeout(left(), of_kind(&client, names, unfinished)).await.ok().flatten().unwrap_or_default()
    })
}

/// The client, if it can be had without a question to the person or to the
/// name service.
fn quiet_client(call: &Call) -> Option<Client> {
    call.prepare().ok()?;
    let asks_password = !call.text("user").is_empty()
        && call.text("password").is_empty()
        && call.text("auth-jwt-token").is_empty()
        && !call.text("user").contains(':');
    if asks_password || !call.text("discovery-srv").is_empty() {
        return None;
    }
    // It signs in with the first request, within the same time.
    call.client().ok()
}

async fn keys(client: &Client, unfinished: &str, separator: &str, left: impl Fn() -> Duration) -> Candidates {
    let mut level = Level::new(unfinished.as_bytes(), separator.as_bytes());
    let mut found = Candidates::new();
    // Any member may answer: a cluster without a leader has names too.
    while let Some(request) = level.request(PAGE, 0).filter(|_| found.len() < MOST) {
        let request = RangeRequest { serializable: true, ..request };
        let Ok(Ok(page)) = tokio::time::timeout(left(), client.range(request)).await else { break };
        for row in level.take(page.kvs.iter().map(|kv| &kv.key[..]), page.more) {
            let about = if row.branch { BRANCH } else { "key" };
            found.extend(typable(&row.key).map(|key| (key, Cow::Borrowed(about))));
        }
    }
    found
}

/// A name that can be typed on a line.
fn typable(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    (!text.chars().any(char::is_control)).then(|| text.to_owned())
}

async fn of_kind(client: &Client, names: Names, unfinished: &str) -> Option<Candidates> {
    let plain = |names: Vec<String>| names.into_iter().map(|name| (name, Cow::Borrowed(""))).collect();
    let all: Candidates = match names {
        Names::Keys => Vec::new(),
        Names::Leases => {
            let leases = client.leases().await.ok()?;
            plain(leases.leases.iter().map(|lease| format!("{:016x}", lease.id)).collect())
        }
        Names::Users => plain(client.user_list().await.ok()?.users),
        Names::Roles => plain(client.role_list().await.ok()?.roles),
        Names::Members => {
            let both = |member: Member| {
                let id = format!("{:x}", member.id);
                let name = (member.name.clone(), Cow::Owned(id.clone()));
                [name, (id, Cow::Owned(member.name))].into_iter().filter(|(word, _)| !word.is_empty())
            };
            members(client).await?.into_iter().flat_map(both).collect()
        }
        Names::Endpoints => return Some(endpoints(members(client).await?, unfinished)),
    };
    let fits = |(name, _): &(String, _)| name.starts_with(unfinished) && typable(name.as_bytes()).is_some();
    Some(all.into_iter().filter(fits).take(MOST).collect())
}

async fn members(client: &Client) -> Option<Vec<Member>> {
    Some(client.member_list_with(false).await.ok()?.members)
}

/// Those that are not in the list yet, behind what is.
fn endpoints(members: Vec<Member>, unfinished: &str) -> Candidates {
    let (before, last) = unfinished.rsplit_once(',').map_or(("", unfinished), |(before, last)| (before, last));
    let taken: Vec<&str> = before.split(',').collect();
    let comma = if before.is_empty() { "" } else { "," };
    let mut found = Candidates::new();
    for member in members {
        for url in &member.client_urls {
            // Endpoints may be written with the scheme or without it.
            let short = url.split_once("://").map_or(&url[..], |(_, address)| address);
            let written = if last.is_empty() || url.starts_with(last) { url } else { short };
            let listed = taken.contains(&&url[..]) || taken.contains(&short);
            if written.starts_with(last) && !listed && typable(written.as_bytes()).is_some() {
                found.push((format!("{before}{comma}{written}"), Cow::Owned(member.name.clone())));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Option<Names> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let parsed = cobra::parse_lenient(crate::commands::root("kvorum ctl"), &words).expect("a command");
        of_word(&parsed)
    }

    #[test]
    fn each_place_has_its_names() {
        let cases = [
            ("get", Some(Names::Keys)),
            ("get a b", None),
            ("put", Some(Names::Keys)),
            ("put a", None),
            ("watch k -- echo", None),
            ("member remove", Some(Names::Members)),
            ("member replace", Some(Names::Members)),
            ("member replace m1", None),
            ("alarm disarm", Some(Names::Members)),
            ("lease revoke", Some(Names::Leases)),
            ("lease grant", None),
            ("user grant-role ann", Some(Names::Roles)),
            ("role grant-permission r", None),
            ("role grant-permission r read", Some(Names::Keys)),
            ("compaction", None),
        ];
        for (line, names) in cases {
            assert_eq!(asked(line), names, "{line}");
        }
        for command in crate::commands::root("kvorum ctl").all_subs() {
            for flag in command.flags.iter().filter(|flag| of_flag(flag).is_some()) {
                assert_ne!(flag.kind, Kind::Bool, "{} --{}", command.name, flag.name);
            }
        }
    }

    #[test]
    fn endpoints_are_added_to_the_list() {
        let member = |name: &str, port: u16| Member {
            name: name.to_owned(),
            client_urls: vec![format!("http://h:{port}")],
            ..Default::default()
        };
        let ask = |unfinished: &str| {
            let found = endpoints(vec![member("a", 1), member("b", 2)], unfinished);
            found.into_iter().map(|(name, about)| format!("{name} {about}")).collect::<Vec<_>>().join("; ")
        };
        assert_eq!(ask(""), "http://h:1 a; http://h:2 b");
        assert_eq!(ask("h:"), "h:1 a; h:2 b");
        assert_eq!(ask("h:1,"), "h:1,http://h:2 b");
        assert_eq!(ask("x,http://h:2,h"), "x,http://h:2,http://h:1 a");
        assert_eq!(ask("z"), "");
    }
}
