//! What to try next: one line below an error, for people. Under the name of the
//! stock tool, and where nobody looks at a terminal, there is none.

use std::io::IsTerminal;

use cobra::{Flag, Misread};

use crate::{
    call::{Command, Run},
    connect, env,
    exit::Failure,
};

/// How a hint comes about.
enum Says {
    /// As it stands.
    This(&'static str),
    /// With the program's name for each `{}`.
    Program(&'static str),
}

use Says::{Program, This};

/// What is found in an error or its cause, in small letters, and the hint. The
/// first row that fits counts: causes stand before what they cause.
const TABLE: &[(&[&str], Says)] = &[
    // No way to the server.
    (
        &["connection refused"],
        This(
            "nobody listens there: is the server running, and do --endpoints name the addresses where it serves clients?",
        ),
    ),
    (
        &["failed to lookup address", "name or service not known", "nodename nor servname"],
        This("this machine does not know the host's name: check the spelling in --endpoints, and the name service"),
    ),
    (
        &["no route to host", "network is unreachable"],
        This("there is no way to that host from here: check the address in --endpoints, routes and firewalls"),
    ),
    (
        &["invalidcontenttype", "corrupt message"],
        This(
            "the server seems to speak without TLS: write http:// in --endpoints and leave out --cacert, --cert, --key",
        ),
    ),
    (
        &["unknownissuer", "unknown authority", "self-signed", "caused as end entity", "causedasendentity"],
        This("--cacert must name the certificate of the authority that has signed the server's"),
    ),
    (
        &["notvalidforname", "not valid for name"],
        This("the server's certificate is for other names: write one of them in --endpoints"),
    ),
    (
        &["certificate expired", "notvalidyet", "not valid yet", "certificate: expired"],
        This("a certificate is out of its time: renew it, or correct the clock of this machine"),
    ),
    (
        &["certificaterequired", "certificate required", "badcertificate", "bad certificate", "unknownca"],
        This("the server wants a certificate of yours that its own authority has signed: --cert and --key"),
    ),
    (
        &["keyfile and certfile must both be present"],
        This("a certificate and its key go together: give both --cert and --key"),
    ),
    (&["no such file or directory", "permission denied (os"], This("check the path, and whether you may read it")),
    (
        &["certificate", ".pem"],
        This("check the files after --cacert, --cert and --key: they must be PEM, readable, and belong together"),
    ),
    (
        &["unexpected end of file", "connection reset", "broken pipe", "connection closed", "frame with invalid size"],
        This("if the server speaks TLS, write https:// in --endpoints and give --cacert"),
    ),
    (
        &["handshakefailure", "handshake failure"],
        This(
            "the server and this tool have no version, cipher or curve of TLS in common: look at what the server allows",
        ),
    ),
    (
        &["no connection in time", "no connection within"],
        This("the host does not answer: check the address in --endpoints and firewalls; --dial-timeout waits longer"),
    ),
    // The cluster cannot do anything.
    (
        &["unhealthy cluster"],
        Program("a quorum of members that were started is needed: `{} doctor` says which is missing"),
    ),
    (
        &["not enough started members"],
        Program(
            "a member that was added has to start before the next change: `{} member list` shows which is unstarted",
        ),
    ),
    (
        &["etcdserver: no leader", "election: no leader", "leader changed", "previous leader failure"],
        Program("an election is under way, or there is no quorum: try again; if it stays so, `{} doctor`"),
    ),
    (
        &["database space exceeded", "nospace"],
        Program("delete keys, `{} compaction <revision>`, on etcd `{} defrag`, then `{} alarm disarm`"),
    ),
    (&["corrupt cluster", "alarm:corrupt"], Program("the members' data differ: `{} doctor` says which one is alone")),
    (&["too many requests"], This("the server has more to do than it can: send less at a time, and try again")),
    // Users.
    (
        &["permission denied"],
        Program(
            "`{} user get <name>` shows the roles of a user, `{} role get <name>` what a role may do; root may change that",
        ),
    ),
    (&["user name is empty"], This("the cluster asks for a user: --user=<name>, the password is asked for")),
    (
        &["authentication failed, invalid user id or password"],
        Program("name or password is wrong; root can set a new one: `{} user passwd <name>`"),
    ),
    (
        &["invalid auth token", "revision of auth store is old"],
        This("the token is no longer taken: get a new one, or sign in with --user"),
    ),
    (
        &["root user does not exist", "root user does not have root role"],
        Program("before users are asked for: `{} user add root`, then `{} user grant-role root root`"),
    ),
    (&["authentication is not enabled"], Program("nobody is asked for a user; `{} auth enable` changes that")),
    (&["user name not found"], Program("`{} user list` shows who there is")),
    (&["role name not found"], Program("`{} role list` shows which there are")),
    // Revisions, keys, leases.
    (
        &["required revision has been compacted"],
        Program("that revision is forgotten: read without --rev, or from the revision that `{} get x -w json` shows"),
    ),
    (&["required revision is a future revision"], Program("`{} get x -w json` shows the newest revision")),
    (
        &["requested lease not found", "already expired"],
        Program(
            "it has expired or was revoked: `{} lease list` shows those that live, `{} lease grant <ttl>` makes one",
        ),
    ),
    (&["lease already exists"], Program("leave out the id, or look at what is there: `{} lease list`")),
    (&["too large lease ttl"], This("a lease lasts for 9,000,000,000 seconds at most")),
    (
        &["too many operations in txn request"],
        This(
            "do it in several transactions, or start the servers with a larger --max-txn-ops (128 unless told otherwise)",
        ),
    ),
    (&["key is not provided"], This("a key has at least one byte; for all keys: get \"\" --prefix")),
    (&["duplicate key given in txn request"], This("one transaction puts a key only once")),
    (
        &["request is too large", "trying to send message larger than max"],
        This(
            "make the value smaller; the bounds are --max-request-bytes of the servers (1.5 MiB) and of this tool (2 MiB)",
        ),
    ),
    (
        &["received message larger than max"],
        This("ask for less at a time (--limit, --keys-only), with --stream, or raise --max-recv-bytes"),
    ),
    // Members.
    (
        &["member id already exist", "peer urls already exist"],
        Program("`{} member list` shows who has this address; take that one out first, or use another address"),
    ),
    (&["member not found", "bad member id arg"], Program("`{} member list` shows the ids")),
    (
        &["in sync with leader"],
        Program("the learner has not caught up: `{} endpoint status --cluster` shows how far it is; try again later"),
    ),
    (&["too many learner members"], Program("promote or remove the one there is: `{} member list`")),
    (
        &["not supported for learner"],
        Program("a learner answers hardly anything: name a voter in --endpoints (`{} member list`)"),
    ),
    (&["not leader", "no leader endpoint"], Program("name the leader in --endpoints: `{} endpoint status --cluster`")),
    (&["cluster id mismatch"], This("the endpoints belong to different clusters")),
    // The words.
    (&["unsupported output format"], This("-w takes one of fields, json, protobuf, simple, table, yaml")),
    (&["not supported as output format"], This("this answer has no such form: -w json has all of it")),
    (&["= unimplemented"], This("the server does not have this: it may be older, or not one of the store's")),
    (&["no such host", "no available endpoints"], This("name the addresses of the members in --endpoints")),
    // Whatever took its time.
    (
        &["context deadline exceeded", "request timed out", "no answer"],
        Program("the answer did not come in time: `{} doctor` looks for the reason, --command-timeout waits longer"),
    ),
];

/// Whether there are to be hints: never under the name of the stock tool; else
/// as `--hints` or its variable say; else if somebody looks at a terminal.
pub fn wanted(root: &Command, words: &[String]) -> bool {
    if root.name == crate::STOCK {
        return false;
    }
    let said = |word: &String| match word.strip_prefix("--hints")? {
        "" => Some(true),
        value => cobra::go::parse_bool(value.strip_prefix('=')?).ok(),
    };
    let typed = words.iter().take_while(|word| *word != "--").filter_map(said).last();
    let variable = || cobra::go::parse_bool(&std::env::var(env::variable(&connect::HINTS)).ok()?).ok();
    typed.or_else(variable).unwrap_or_else(|| std::io::stderr().is_terminal())
}

/// The hint for the way in which a command ended.
pub fn of_failure(program: &str, failure: &Failure) -> Option<String> {
    match failure {
        Failure::Silent(_) => None,
        Failure::Told { reason, .. } => of_failure(program, reason),
        Failure::Text { text, cause, .. } => of(program, text, cause.as_deref()),
        Failure::Usage(text) => of(program, text, None),
    }
}

/// The hint for words that are none of a command's.
pub fn of_misread(misread: &Misread<Run>) -> Option<String> {
    let text = misread.text.lines().next().unwrap_or_default();
    if let Some(word) = text.strip_prefix("unknown command \"") {
        return of_unknown_command(&misread.path, word.split('"').next()?);
    }
    match text.strip_prefix("unknown flag: --") {
        Some(flag) => of_unknown_flag(&misread.path, flag),
        None => None,
    }
}

/// The hint for an error of a program: its text, and what is behind it if the
/// text does not say so. Of several lines only the first counts.
pub fn of(program: &str, text: &str, cause: Option<&str>) -> Option<String> {
    let text = text.lines().next().unwrap_or_default().to_lowercase();
    let cause = cause.unwrap_or_default().to_lowercase();
    let fits = |pattern: &&str| text.contains(*pattern) || cause.contains(*pattern);
    let (_, says) = TABLE.iter().find(|(patterns, _)| patterns.iter().any(fits))?;
    Some(match says {
        This(text) => (*text).to_owned(),
        Program(text) => text.replace("{}", program),
    })
}

/// Words of other tools, and what they are here.
const ELSEWHERE: &[(&[&str], &str)] = &[
    (&["ls", "list", "keys", "tree", "scan", "dir"], "get \"\" --prefix --keys-only"),
    (&["set", "mk", "write", "update", "create", "insert"], "put"),
    (&["rm", "delete", "remove", "rmdir", "unset"], "del"),
    (&["read", "cat", "show"], "get"),
    (&["status", "info"], "endpoint status"),
    (&["health", "ping", "cluster-health"], "endpoint health"),
    (&["members", "nodes", "peers"], "member list"),
    (&["leases"], "lease list"),
    (&["users"], "user list"),
    (&["roles"], "role list"),
    (&["alarms"], "alarm list"),
    (&["backup", "dump", "save"], "snapshot save"),
    (&["subscribe", "listen", "follow", "tail"], "watch"),
    (&["login", "auth-enable"], "--user=<name> <command>"),
    (&["compact"], "compaction"),
    (&["mirror"], "make-mirror"),
];

/// The hint for a word that is no command of the last of these: the nearest
/// one.
pub fn of_unknown_command(path: &[&'static Command], word: &str) -> Option<String> {
    let (program, parent) = (path.first()?.name, path.last()?);
    let words = cobra::path_words(path);
    let word = word.to_lowercase();
    if path.len() == 1
        && let Some((_, here)) = ELSEWHERE.iter().find(|(there, _)| there.contains(&word.as_str()))
    {
        return Some(format!("here that is `{program} {here}`"));
    }
    let near = nearest(&word, parent.all_subs().map(|c| c.name));
    Some(match near {
        Some(name) => format!("the nearest command is `{words} {name}`"),
        None => format!("`{words} --help` shows the commands"),
    })
}

/// The hint for a flag that a command does not have: the nearest one.
pub fn of_unknown_flag(path: &[&'static Command], flag: &str) -> Option<String> {
    let known: Vec<&'static Flag> = cobra::known(path);
    let name = nearest(flag, known.iter().map(|f| f.name))?;
    Some(format!("the nearest flag is --{name}"))
}

/// The name that differs least, if it does not differ in more than a letter of
/// four. Letters in another order count as one.
fn nearest<'n>(word: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let sorted = |word: &str| {
        let mut letters: Vec<char> = word.chars().collect();
        letters.sort_unstable();
        letters
    };
    let letters = sorted(word);
    let far = |name: &str| if sorted(name) == letters { 1 } else { cobra::distance(word, name) };
    let near = names.map(|name| (far(name), name)).min()?;
    let most = (letters.len().max(near.1.chars().count()) / 4).max(1);
    (near.0 <= most).then_some(near.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASES: &str = include_str!("hints.txt");

    /// `text | cause` and below it the hint, as they would be seen.
    #[test]
    fn errors_lead_to_hints() {
        testkit::golden::file(concat!(env!("CARGO_MANIFEST_DIR"), "/src/hints.txt"), |cases| {
            testkit::golden::lines(cases, |error| {
                let (text, cause) = error.split_once(" | ").map_or((error, None), |(t, c)| (t, Some(c)));
                of("kvorum ctl", text, cause).unwrap_or_else(|| "(none)".to_owned())
            })
        });
    }

    #[test]
    fn every_row_has_a_case() {
        for (patterns, says) in TABLE {
            let (This(text) | Program(text)) = says;
            let hint = text.replace("{}", "kvorum ctl");
            assert!(CASES.lines().any(|line| line.trim_start() == hint), "nothing leads to {patterns:?}");
        }
    }

    #[test]
    fn the_stock_tool_gives_no_hints() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<String>>();
        let ours = crate::commands::root("kvorum ctl");
        for (line, hints) in
            [("get x --hints", true), ("--hints=false get x --hints=1", true), ("--hints=0 get", false)]
        {
            assert_eq!(wanted(ours, &words(line)), hints, "{line}");
            assert!(!wanted(crate::commands::root(crate::STOCK), &words(line)), "{line}");
        }
    }

    #[test]
    fn what_is_near_is_named() {
        let root = crate::commands::root("kvorum ctl");
        let member = root.sub("member").expect("a command");
        let cases = [
            (&[root][..], "gte", "the nearest command is `kvorum ctl get`"),
            (&[root], "ls", "here that is `kvorum ctl get \"\" --prefix --keys-only`"),
            (&[root], "xyzzyx", "`kvorum ctl --help` shows the commands"),
            (&[root, member], "lst", "the nearest command is `kvorum ctl member list`"),
            (&[root, member], "delete", "`kvorum ctl member --help` shows the commands"),
        ];
        for (path, word, hint) in cases {
            assert_eq!(of_unknown_command(path, word).as_deref(), Some(hint), "{word}");
        }
        let get = root.sub("get").expect("a command");
        assert_eq!(of_unknown_flag(&[root, get], "prefx").as_deref(), Some("the nearest flag is --prefix"));
        assert_eq!(of_unknown_flag(&[root, get], "endpoint").as_deref(), Some("the nearest flag is --endpoints"));
        assert_eq!(of_unknown_flag(&[root, get], "zzzzzz"), None);
    }
}
