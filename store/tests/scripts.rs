//! Golden scripts: the readable specification of the store. Each block of `tests/scripts/*.txt` is
//! commands, `---`, and what they print. Run with `REWRITE_SCRIPTS=1` to write the output anew;
//! read the diff and commit only what you understand.
//!
//! ```text
//! put KEY VALUE [lease=N] [prev] [ignore_value] [ignore_lease]
//! del KEY [END] [prev]                              get KEY [END] [rev=N limit=N order=asc|desc
//! txn [ ver(KEY) = N , val(KEY..END) != V ] { op ; op } { op }      target=T keys count min_mod=N …]
//! grant ID TTL   revoke ID   checkpoint ID SECONDS  expire TERM ID@INDEX …
//! compact N      sweep       write (memory to files)  reload (through an image)
//! alarm activate|deactivate|get MEMBER KIND         member add|learner|promote|update|remove ID [URL]
//! publish ID NAME URL   clock MS   term N   state   hash N   entry HEX
//! step KEYS BYTES   (what one call may look at and ask for)
//! as nobody|member|USER [REVISION]   (who asks for what follows; without a revision the present one)
//! auth enable|disable|login USER|user-add USER [nopass]|user-delete USER|password USER
//!      |grant USER ROLE|revoke USER ROLE
//!      |role-add ROLE|role-delete ROLE|give ROLE KIND KEY [END]|give ROLE|take ROLE KEY [END]     users
//! ```
//! In keys and values `\0` is a zero byte and `''` is empty.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use store::auth::{Asker, AuthCommand, Permission};
use store::command::{
    self, AlarmAction, Compare, DeleteRangeRequest, Operand, PutRequest, RangeRequest, RequestOp, TxnRequest,
};
use store::{
    Applied, Asked, Conf, Config, Handle, Item, LeaseChange, Member, MemberChange, MemberChangeKind, Origin, Outcome,
    Position, Reply, Step, Store,
};
use testkit::golden;

struct Script {
    store: Store,
    files: BTreeMap<Handle, Bytes>,
    clock: u64,
    term: u64,
    /// None: nobody. A revision of 0 is the present one.
    asker: Option<(String, u64)>,
    step: Step,
}

type Words<'w> = std::iter::Peekable<std::slice::Iter<'w, String>>;

fn bytes(word: &str) -> &'static [u8] {
    let word = if word == "''" { String::new() } else { word.replace("\\0", "\0").replace("\\xff", "\u{1}") };
    let bytes = word.into_bytes().into_iter().map(|b| if b == 1 { 0xff } else { b }).collect::<Vec<u8>>();
    bytes.leak()
}

fn show(bytes: &[u8]) -> String {
    if bytes.is_empty() { "''".into() } else { bytes.escape_ascii().to_string().replace("\\x00", "\\0") }
}

fn split(line: &str) -> Vec<String> {
    let spaced: String =
        line.chars().flat_map(|c| if "[]{};,".contains(c) { vec![' ', c, ' '] } else { vec![c] }).collect();
    spaced.split_whitespace().map(str::to_owned).collect()
}

/// `name=value` words up to the end of the operation.
fn options(words: &mut Words<'_>) -> Vec<(String, i64)> {
    let mut options = Vec::new();
    while let Some(word) = words.next_if(|word| !["}", ";", "]"].contains(&word.as_str())) {
        let (name, value) = word.split_once('=').unwrap_or((word, "1"));
        let value = match value {
            "asc" | "version" => 1,
            "desc" | "create" => 2,
            "mod" => 3,
            "value" => 4,
            "key" | "none" => 0,
            number => number.parse().unwrap_or_else(|_| panic!("{word}")),
        };
        options.push((name.to_owned(), value));
    }
    options
}

fn is_option(word: &str) -> bool {
    word.contains('=') || ["prev", "keys", "count", "}", ";", "ignore_value", "ignore_lease"].contains(&word)
}

fn key_and_end(words: &mut Words<'_>) -> (&'static [u8], &'static [u8]) {
    let key = bytes(words.next().expect("a key"));
    let end = words.next_if(|word| !is_option(word)).map_or(&b""[..], |word| bytes(word));
    (key, end)
}

fn parse_put(words: &mut Words<'_>) -> PutRequest<'static> {
    let (key, value) = key_and_end(words);
    let mut put = PutRequest { key, value, ..Default::default() };
    for (name, value) in options(words) {
        match name.as_str() {
            "lease" => put.lease = value,
            "prev" => put.prev_kv = true,
            "ignore_value" => put.ignore_value = true,
            "ignore_lease" => put.ignore_lease = true,
            other => panic!("{other}"),
        }
    }
    put
}

fn parse_delete(words: &mut Words<'_>) -> DeleteRangeRequest<'static> {
    let (key, range_end) = key_and_end(words);
    DeleteRangeRequest { key, range_end, prev_kv: !options(words).is_empty() }
}

fn parse_range(words: &mut Words<'_>) -> RangeRequest<'static> {
    let (key, range_end) = key_and_end(words);
    let mut range = RangeRequest { key, range_end, ..Default::default() };
    for (name, value) in options(words) {
        match name.as_str() {
            "rev" => range.revision = value,
            "limit" => range.limit = value,
            "order" => range.sort_order = value as i32,
            "target" => range.sort_target = value as i32,
            "keys" => range.keys_only = true,
            "count" => range.count_only = true,
            "min_mod" => range.min_mod = value,
            "max_mod" => range.max_mod = value,
            "min_create" => range.min_create = value,
            "max_create" => range.max_create = value,
            other => panic!("{other}"),
        }
    }
    range
}

fn parse_op(words: &mut Words<'_>) -> RequestOp<'static> {
    match words.next().expect("an operation").as_str() {
        "put" => RequestOp::Put(parse_put(words)),
        "del" => RequestOp::DeleteRange(parse_delete(words)),
        "get" => RequestOp::Range(parse_range(words)),
        "txn" => RequestOp::Txn(parse_txn(words)),
        "nothing" => RequestOp::None,
        other => panic!("{other}"),
    }
}

fn parse_branch(words: &mut Words<'_>) -> Vec<RequestOp<'static>> {
    let mut ops = Vec::new();
    if words.next_if(|word| *word == "{").is_none() {
        return ops;
    }
    while words.next_if(|word| *word == "}").is_none() {
        if words.next_if(|word| *word == ";").is_none() {
            ops.push(parse_op(words));
        }
    }
    ops
}

fn parse_txn(words: &mut Words<'_>) -> TxnRequest<'static> {
    let mut txn = TxnRequest::default();
    assert_eq!(words.next().map(String::as_str), Some("["));
    while words.next_if(|word| *word == "]").is_none() {
        if words.next_if(|word| *word == ",").is_none() {
            txn.compare.push(parse_compare(words));
        }
    }
    txn.success = parse_branch(words);
    txn.failure = parse_branch(words);
    txn
}

fn parse_compare(words: &mut Words<'_>) -> Compare<'static> {
    let (target, rest) = words.next().expect("a compare").split_once('(').expect("target(key)");
    let range = rest.trim_end_matches(')');
    let (key, end) = range.split_once("..").unwrap_or((range, "''"));
    let result = match words.next().expect("an operator").as_str() {
        "=" => 0,
        ">" => 1,
        "<" => 2,
        "!=" => 3,
        _ => 9,
    };
    let word = words.next().expect("an operand");
    let number = || word.parse::<i64>().expect("a number");
    let (target, operand) = match target {
        "ver" => (0, Operand::Version(number())),
        "create" => (1, Operand::Create(number())),
        "mod" => (2, Operand::Mod(number())),
        "val" => (3, Operand::Value(bytes(word))),
        "lease" => (4, Operand::Lease(number())),
        other => panic!("{other}"),
    };
    Compare { result, target, key: bytes(key), range_end: bytes(end), operand }
}

fn encoded(encode: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

fn number(word: &str) -> i64 {
    word.parse().unwrap_or_else(|_| panic!("a number instead of {word}"))
}

impl Script {
    fn new() -> Script {
        let store = Store::new(Config { segment_bytes: 4096 + 1024 });
        Script { store, files: BTreeMap::new(), clock: 0, term: 1, asker: None, step: Step::default() }
    }

    fn run(&mut self, line: &str, out: &mut String) {
        let words = split(line);
        let mut rest = words.iter().peekable();
        let name = rest.next().expect("a command").as_str();
        let args: Vec<&str> = rest.clone().map(String::as_str).collect();
        match name {
            "put" => {
                let put = parse_put(&mut rest);
                self.entry(&command::encode_put(&encoded(|o| put.encode(o))).unwrap(), out);
            }
            "del" => {
                let delete = parse_delete(&mut rest);
                self.entry(&command::encode_delete_range(&encoded(|o| delete.encode(o))).unwrap(), out);
            }
            "txn" => {
                let txn = parse_txn(&mut rest);
                self.entry(&command::encode_txn(&encoded(|o| txn.encode(o))).unwrap(), out);
            }
            "get" => self.get(&parse_range(&mut rest), out),
            "compact" => self.entry(&command::encode_compaction(number(args[0]), false), out),
            "grant" => self.entry(&command::encode_lease_grant(number(args[0]), number(args[1]), 2), out),
            "revoke" => self.entry(&command::encode_lease_revoke(number(args[0])), out),
            "checkpoint" => self.entry(&command::encode_lease_checkpoint(&[(number(args[0]), number(args[1]))]), out),
            "expire" => {
                let lease = |word: &&str| {
                    let (id, granted) = word.split_once('@').expect("ID@INDEX");
                    (number(id), number(granted) as u64)
                };
                let leases: Vec<(i64, u64)> = args[1..].iter().map(lease).collect();
                self.entry(&command::encode_expire(number(args[0]) as u64, &leases), out);
            }
            "alarm" => {
                let action = match args[0] {
                    "activate" => AlarmAction::Activate,
                    "deactivate" => AlarmAction::Deactivate,
                    _ => AlarmAction::Get,
                };
                let body = command::encode_alarm(action, number(args[1]) as u64, number(args[2]) as i32);
                self.entry(&body, out);
            }
            "as" => {
                let revision = args.get(1).map_or(0, |revision| number(revision) as u64);
                self.asker = (args[0] != "nobody").then(|| (args[0].to_owned(), revision));
            }
            "auth" => self.entry(&auth_command(&args).body(), out),
            "users" => self.users(out),
            "member" => self.member(&args, out),
            "publish" => {
                let body = command::encode_member_attr(number(args[0]) as u64, args[1], &[args[2].to_owned()]);
                self.entry(&body, out);
            }
            "entry" => self.raw(args[0], out),
            "clock" => self.clock = number(args[0]) as u64,
            "term" => self.term = number(args[0]) as u64,
            "sweep" => self.sweep(out),
            "step" => {
                self.step = Step { keys: number(args[0]) as usize, bytes: number(args[1]) as u64 };
            }
            "write" => self.write(),
            "reload" => self.reload(),
            "state" => self.state(out),
            "hash" => {
                let hash = self.store.hash_kv(number(args[0]), |handle| self.record(handle));
                writeln!(out, "{hash}").unwrap();
            }
            other => panic!("unknown command {other}"),
        }
    }

    fn record(&self, handle: Handle) -> Bytes {
        self.store.in_memory(handle).unwrap_or_else(|| self.files[&handle].clone())
    }

    fn next(&self) -> Position {
        Position { index: self.store.applied().index + 1, term: self.term }
    }

    fn entry(&mut self, body: &command::Checked, out: &mut String) {
        let present = self.store.auth().revision();
        let asker = match &self.asker {
            None => Asker::Nobody,
            Some((name, _)) if name == "member" => Asker::Member,
            Some((name, 0)) => Asker::User { name, revision: present },
            Some((name, revision)) => Asker::User { name, revision: *revision },
        };
        let body = command::signed(body, asker);
        let data = command::seal(&body, Origin::default(), Some(self.clock));
        let mut fetched: Option<Vec<Bytes>> = None;
        loop {
            let mut step = self.step;
            match self.store.apply_in_steps(self.next(), &data, fetched.as_deref(), Asked::Whole, &mut step) {
                Ok(Outcome::Park(handles)) => {
                    let lens: Vec<String> = handles.iter().map(|handle| handle.len.to_string()).collect();
                    let records = if lens.len() == 1 { "a record" } else { "records" };
                    writeln!(out, "parked for {records} of {} bytes", lens.join(", ")).unwrap();
                    fetched = Some(handles.iter().map(|handle| self.files[handle].clone()).collect());
                }
                Ok(Outcome::Pause) => {
                    writeln!(out, "goes on in the next step").unwrap();
                    fetched = None;
                }
                Ok(Outcome::Done(applied)) => return self.applied(applied, out),
                Err(halt) => return writeln!(out, "halt: {halt}").unwrap(),
            }
        }
    }

    fn raw(&mut self, hex: &str, out: &mut String) {
        let byte = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
        let data: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        match self.store.apply(self.next(), &Bytes::from(data), None) {
            Ok(Outcome::Done(applied)) => self.applied(applied, out),
            other => writeln!(out, "{other:?}").unwrap(),
        }
    }

    fn applied(&self, applied: Applied, out: &mut String) {
        match applied.result {
            Ok(reply) => {
                write!(out, "revision {}: ", applied.revision).unwrap();
                self.reply(&reply, 0, out);
            }
            Err(error) => writeln!(out, "revision {}: error {error:?}", applied.revision).unwrap(),
        }
        for event in applied.events.iter().flat_map(|revision| &revision.events) {
            let kind = if event.tombstone { "delete" } else { "put" };
            let created = if event.create == event.revision.main { " created" } else { "" };
            let before = if event.prev.is_some() { " over a version" } else { "" };
            let rev = event.revision;
            writeln!(out, "  event {}.{} {kind} {}{created}{before}", rev.main, rev.sub, show(&event.key)).unwrap();
        }
        for change in applied.leases {
            match change {
                LeaseChange::Granted { id, ttl, granted, deadline } => {
                    writeln!(out, "  lease {id} granted by {granted} for {ttl} s until {deadline}").unwrap();
                }
                LeaseChange::Checkpointed { id, deadline } => writeln!(out, "  lease {id} until {deadline}").unwrap(),
                LeaseChange::Ended { id } => writeln!(out, "  lease {id} ended").unwrap(),
            }
        }
        if let Some(change) = applied.auth {
            writeln!(out, "  tokens: {change:?}").unwrap();
        }
    }

    fn users(&self, out: &mut String) {
        let auth = self.store.auth();
        writeln!(out, "{} revision {}", if auth.enabled() { "enabled" } else { "disabled" }, auth.revision()).unwrap();
        for user in auth.users() {
            let kind = if user.no_password { " without password" } else { "" };
            writeln!(out, "user {:?}{kind} [{}]", user.name, user.roles.join(" ")).unwrap();
        }
        for role in auth.roles() {
            write!(out, "role {:?}", role.name).unwrap();
            for held in auth.shown(&role.name).unwrap() {
                write!(out, " {}:{}..{}", held.kind, show(&held.key), show(&held.range_end)).unwrap();
            }
            out.push('\n');
        }
    }

    fn reply(&self, reply: &Reply, indent: usize, out: &mut String) {
        match reply {
            Reply::Put { prev: None } => out.push_str("put\n"),
            Reply::Put { prev: Some(prev) } => writeln!(out, "put over {}", self.item(prev, false)).unwrap(),
            Reply::Delete { deleted, prevs } => {
                writeln!(out, "deleted {deleted}").unwrap();
                for prev in prevs {
                    writeln!(out, "{:indent$}  was {}", "", self.item(prev, false)).unwrap();
                }
            }
            Reply::Range(range) => {
                self.range(&range.query, range.items.clone(), range.count, range.more, indent, out);
            }
            Reply::Txn { succeeded, responses } => {
                writeln!(out, "{}", if *succeeded { "success" } else { "failure" }).unwrap();
                for response in responses {
                    write!(out, "{:indent$}  [{}] ", "", response.revision).unwrap();
                    self.reply(&response.reply, indent + 2, out);
                }
            }
            Reply::Compact => out.push_str("compacted\n"),
            Reply::LeaseGrant { id, ttl } => writeln!(out, "lease {id} for {ttl} s").unwrap(),
            Reply::LeaseRevoke => out.push_str("revoked\n"),
            Reply::Alarm { alarms } => {
                let alarms: Vec<String> = alarms.iter().map(|a| format!("{}:{}", a.member, a.alarm)).collect();
                writeln!(out, "alarms [{}]", alarms.join(" ")).unwrap();
            }
            Reply::LoggedIn { index, auth_revision } => {
                writeln!(out, "logged in by {index} at users' revision {auth_revision}").unwrap();
            }
            Reply::Empty => out.push_str("done\n"),
        }
    }

    fn item(&self, item: &Item, keys_only: bool) -> String {
        let record = store::record::open(&self.record(item.at.handle)).unwrap();
        let value = store::record::key_value(&record.body).unwrap().value;
        let value = if keys_only { String::new() } else { format!("={}", show(value)) };
        let lease = if item.lease == 0 { String::new() } else { format!(" lease {}", item.lease) };
        let Item { create, modified, version, .. } = item;
        format!("{}{value} create {create} mod {modified} version {version}{lease}", show(&item.key))
    }

    fn get(&self, range: &RangeRequest<'_>, out: &mut String) {
        let walk = command::check_range(range).and_then(|()| self.store.walk(range.query()));
        match walk {
            Err(error) => writeln!(out, "error {error:?}").unwrap(),
            Ok(mut walk) => {
                let slice = self.store.advance(&mut walk, usize::MAX);
                let finished = slice.finished.unwrap();
                self.range(walk.query(), slice.items, finished.count, finished.more, 0, out);
            }
        }
    }

    fn range(
        &self,
        query: &store::Query,
        mut items: Vec<Item>,
        count: i64,
        mut more: bool,
        indent: usize,
        out: &mut String,
    ) {
        if query.needs_sort() {
            (items, more) = store::order::finish(query, items, |item| {
                let body = store::record::open(&self.record(item.at.handle)).unwrap().body;
                body.slice_ref(store::record::key_value(&body).unwrap().value)
            });
        }
        writeln!(out, "count {count}{}", if more { ", more" } else { "" }).unwrap();
        for item in items {
            writeln!(out, "{:indent$}  {}", "", self.item(&item, query.keys_only)).unwrap();
        }
    }

    fn member(&mut self, args: &[&str], out: &mut String) {
        let id = number(args[1]) as u64;
        let mut conf = self.store.conf().clone();
        let kind = match args[0] {
            "add" => MemberChangeKind::AddVoter,
            "learner" => MemberChangeKind::AddLearner,
            "promote" => MemberChangeKind::Promote,
            "update" => MemberChangeKind::Update,
            _ => MemberChangeKind::Remove,
        };
        let peer_urls = args[2..].iter().map(|url| (*url).to_owned()).collect();
        let member = Member { id, peer_urls, ..Default::default() };
        let change = MemberChange::decode(&MemberChange { origin: None, kind, member }.encode()).unwrap();
        if self.store.check_conf(&change).is_ok() {
            change_conf(&mut conf, kind, id);
        }
        let applied = self.store.apply_conf(self.next(), &change, &conf);
        self.applied(applied, out);
        writeln!(out, "  voters {:?} learners {:?}", self.store.conf().voters, self.store.conf().learners).unwrap();
    }

    fn sweep(&mut self, out: &mut String) {
        let before = self.store.versions();
        while !self.store.sweep(1) {}
        let (left, level) = (self.store.versions(), self.store.swept());
        writeln!(out, "{} versions gone, {left} left, swept to {level}", before - left).unwrap();
    }

    fn write(&mut self) {
        for extent in self.store.unwritten(usize::MAX) {
            let mut offset = extent.offset;
            for part in &extent.parts {
                let handle = Handle { segment: extent.segment, offset, len: part.len() as u32 };
                self.files.insert(handle, part.clone());
                offset += handle.len;
            }
            self.store.written(extent.segment, offset, extent.seals);
        }
    }

    fn reload(&mut self) {
        self.write();
        let (head, mut cursor) = self.store.image();
        let mut rows = Vec::new();
        while !self.store.image_rows(&mut cursor, 1, &mut rows) {}
        self.store = Store::load(self.store.config(), head, [Ok::<_, store::Damage>(rows)]).unwrap();
    }

    fn state(&self, out: &mut String) {
        let store = &self.store;
        let (revision, compacted, index) = (store.revision(), store.compacted(), store.applied().index);
        writeln!(out, "revision {revision} compacted {compacted} applied {index}").unwrap();
        writeln!(out, "keys {} versions {} live bytes {}", store.keys(), store.versions(), store.live_bytes()).unwrap();
        for (id, lease) in store.leases() {
            let keys: Vec<String> = lease.keys.iter().map(|key| show(key)).collect();
            writeln!(out, "lease {id}: {} s until {} keys [{}]", lease.ttl, lease.deadline, keys.join(" ")).unwrap();
        }
        for member in store.members() {
            let Member { id, name, peer_urls, client_urls } = member;
            writeln!(out, "member {id} {name:?} peer {peer_urls:?} client {client_urls:?}").unwrap();
        }
    }
}

fn auth_command<'a>(args: &[&'a str]) -> AuthCommand<'a> {
    let word = |at: usize| args.get(at).copied().map_or("", |word| if word == "''" { "" } else { word });
    let key = |at: usize| bytes(word(at));
    let hashed = "aGFzaA==";
    match args[0] {
        "enable" => AuthCommand::Enable,
        "disable" => AuthCommand::Disable,
        "login" => AuthCommand::Authenticate { name: word(1), simple_token: "secret" },
        "user-add" => AuthCommand::UserAdd { name: word(1), hashed, no_password: word(2) == "nopass" },
        "user-delete" => AuthCommand::UserDelete { name: word(1) },
        "password" => AuthCommand::UserChangePassword { name: word(1), hashed },
        "grant" => AuthCommand::UserGrantRole { user: word(1), role: word(2) },
        "revoke" => AuthCommand::UserRevokeRole { user: word(1), role: word(2) },
        "role-add" => AuthCommand::RoleAdd { name: word(1) },
        "role-delete" => AuthCommand::RoleDelete { role: word(1) },
        "give" => AuthCommand::RoleGrantPermission {
            role: word(1),
            permission: args.get(2).map(|kind| Permission {
                kind: number(kind) as i32,
                key: Bytes::from_static(key(3)),
                range_end: Bytes::from_static(key(4)),
            }),
        },
        "take" => AuthCommand::RoleRevokePermission { role: word(1), key: key(2), range_end: key(3) },
        other => panic!("auth {other}"),
    }
}

fn change_conf(conf: &mut Conf, kind: MemberChangeKind, id: u64) {
    if kind != MemberChangeKind::Update {
        conf.voters.retain(|voter| *voter != id);
        conf.learners.retain(|learner| *learner != id);
    }
    match kind {
        MemberChangeKind::AddVoter | MemberChangeKind::Promote => conf.voters.push(id),
        MemberChangeKind::AddLearner => conf.learners.push(id),
        MemberChangeKind::Update | MemberChangeKind::Remove => {}
    }
    conf.voters.sort_unstable();
}

fn play(text: &str) -> String {
    let mut script = Script::new();
    golden::lines(text, |line| {
        let mut out = String::new();
        script.run(line, &mut out);
        out
    })
}

#[test]
fn scripts() {
    golden::folder(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts"), play);
}
