//! Clients at work: one operation each at a time, with a deadline, against any member; and the
//! way from a member's answer to what the oracle is asked.

use crate::client::{Ask, Draw, Known};
use crate::cluster::{Event, Member, Sim};
use crate::model::{Kv, Reply};
use crate::ops::{Blob, Command, Op, Range};
use crate::oracle::Read;
use crate::plan::{MS, SECOND};
use crate::planted::Planted;
use crate::time_left::Span;
use crate::trace::Time;
use crate::users::{Question, Said};
use crate::watcher;
use bytes::Bytes;
use node::{Answer, AuthAnswer, Found, Input, RangeStart, Refusal, Request, StreamId, Waiter};
use std::collections::BTreeSet;
use std::sync::Arc;
use store::command::Checked;
use store::{Error, Item, KeyRange, Located, Query, SortOrder, SortTarget};

/// Who waits for an answer.
#[derive(Clone, Debug)]
pub(crate) enum Reader {
    Client {
        client: usize,
        tag: u64,
    },
    History {
        stream: StreamId,
    },
    /// Nobody: one of very many.
    Flood,
    /// The member's own edge.
    Publish,
    /// The operator.
    Operator,
    /// The vigil, during the faults.
    Vigil {
        probe: crate::vigil::Probe,
    },
    /// The simulator itself, after the faults.
    Epilogue {
        tag: u64,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Client {
    pub op: Option<Pending>,
}

/// One operation under way.
#[derive(Debug)]
pub(crate) struct Pending {
    pub tag: u64,
    pub ask: Ask,
    pub who: usize,
    /// Who it says it is.
    pub asker: node::Who,
    pub sent: Time,
    /// What had been answered to anybody when it was sent.
    pub floor: u64,
    /// The newest revision of the serialisable reads that its member had answered when it was sent.
    pub serial: i64,
    /// What its member had applied when it was sent.
    pub applied: u64,
    /// Its client waits no longer than this.
    until: Time,
    walk: Option<Walking>,
    pub pulling: Option<crate::backups::Pulling>,
}

impl Pending {
    fn span(&self, answered: Time) -> Span {
        Span { sent: self.sent, answered }
    }
}

/// A range that is pulled in slices.
#[derive(Debug)]
struct Walking {
    id: u64,
    start: RangeStart,
    revision: i64,
    /// No revision below this may be shown.
    floor: u64,
    found: Found,
}

pub(crate) fn is_nested(command: &Command) -> bool {
    matches!(command, Command::Txn(t) if t.success.iter().chain(&t.failure).any(|op| matches!(op, Op::Txn(_))))
}

fn query(range: &Range) -> Query {
    let order = [SortOrder::None, SortOrder::Ascend, SortOrder::Descend][range.order as usize];
    let targets = [SortTarget::Key, SortTarget::Version, SortTarget::Create, SortTarget::Mod, SortTarget::Value];
    Query {
        range: KeyRange::new(&range.key, &range.end),
        revision: range.revision,
        limit: range.limit,
        order,
        target: targets[range.target as usize],
        keys_only: range.keys_only,
        count_only: range.count_only,
        min_mod: range.min_mod,
        max_mod: range.max_mod,
        min_create: range.min_create,
        max_create: range.max_create,
    }
}

/// Bytes that the items of a sorted range may take; some clients grant little.
fn sort_room(tag: u64) -> u64 {
    if tag.is_multiple_of(8) { 700 } else { u64::MAX }
}

impl Sim {
    pub(crate) fn client(&mut self, client: usize) {
        if self.phase != crate::run::Phase::Safety || self.clients[client].op.is_some() {
            return;
        }
        let pause = self.plan.workload.think;
        let who = self.work_rng.below(self.members.len() as u64) as usize;
        if self.members[who].up.is_none() || self.is_joining(who) {
            let at = self.now + 10 * MS + self.work_rng.delay(pause / 2);
            return self.at(at, Event::Client { client });
        }
        let tag = self.next_tag;
        self.next_tag += 1;
        let mark = self.oracle.model.last();
        let alarm = self.oracle.model.alarms().first().map(|(member, _)| *member);
        let forges = self.forges();
        let known = Known { revision: mark.revision, compacted: mark.compacted, alarm, forges };
        let (name, ask) = {
            let users = &self.oracle.model.users;
            Draw { rng: &mut self.work_rng, work: &self.plan.workload, known, users, tag }.ask()
        };
        self.operations += 1;
        self.tell(Some(who), "ask", tag, fold_name(name), || format!("c{client} #{tag} {ask:?}"));
        // Whom somebody asks for its name may not watch everything.
        let asks_first = self.plan.asked && matches!(ask, Ask::Watch(_));
        if !asks_first && self.ask_stream(who, &ask) {
            return self.next_op(client);
        }
        self.send_ask(client, who, tag, ask);
    }

    fn send_ask(&mut self, client: usize, who: usize, tag: u64, ask: Ask) {
        let waiter = self.waiter(who, Reader::Client { client, tag });
        let request = self.request(&ask, tag);
        let asker = self.who_asks(&ask);
        let floor = self.oracle.floor;
        // Some have no patience at all.
        let patience = match self.work_rng.below(25) {
            0 => *self.work_rng.pick(&[1, 30, MS, 30 * MS]),
            _ => self.plan.workload.deadline,
        };
        let until = self.now + patience;
        if let Ask::KeepAlive { lease } = &ask {
            self.tried_to_renew(*lease);
            self.times_left.renewal_sent(tag, *lease, until);
        }
        let (serial, applied) = (self.oracle.serial(who), self.oracle.applied(who));
        let sent = self.now;
        let shown = self.plant_in_asker(&asker);
        let op = Pending { tag, ask, who, asker, sent, floor, serial, applied, until, walk: None, pulling: None };
        self.clients[client].op = Some(op);
        self.give(who, Input::Request { waiter, who: shown, request });
        self.at(until, Event::Deadline { client, tag });
        if self.is(Planted::RenewalWithoutLeader)
            && let Some(Pending { ask: Ask::KeepAlive { lease }, .. }) = &self.clients[client].op
            && self.oracle.model.lease_lives(*lease, self.oracle.last())
        {
            let ttl = self.oracle.model.lease(*lease).last().map_or(0, |l| l.ttl);
            let revision = self.oracle.model.last().revision;
            self.answered(who, waiter, revision, Answer::KeepAlive { ttl });
        }
    }

    /// A new name for an answer that `reader` waits for.
    pub(crate) fn waiter(&mut self, who: usize, reader: Reader) -> Waiter {
        let waiter = self.next_waiter;
        self.next_waiter += 1;
        self.members[who].up.as_mut().expect("up").waiters.insert(waiter, reader);
        waiter
    }

    pub(crate) fn request(&mut self, ask: &Ask, tag: u64) -> Request {
        let sloppy = self.is(Planted::ReadWithoutRound);
        match ask {
            Ask::Command(Command::Compact { revision, physical: true }) => {
                Request::Compact { revision: *revision, physical: true }
            }
            Ask::Command(command) => Request::Propose { body: checked(command.encode(tag)), cost: self.cost(command) },
            Ask::Range { range, stream } => Request::Range {
                query: query(range),
                linearizable: !range.serializable && !sloppy,
                stream: *stream,
                keep: sort_room(tag),
            },
            Ask::ReadTxn { txn, linearizable } => Request::ReadTxn {
                body: checked(Command::Txn(txn.clone()).encode(tag)),
                linearizable: *linearizable && !sloppy,
            },
            Ask::KeepAlive { lease } => Request::KeepAlive { lease: *lease },
            Ask::TimeToLive { lease, keys } => Request::TimeToLive { lease: *lease, keys: *keys },
            Ask::Leases => Request::Leases,
            Ask::HashKv { revision } => Request::HashKv { revision: *revision },
            Ask::Barrier => Request::Barrier,
            Ask::Members { linearizable } => Request::Members { linearizable: *linearizable },
            Ask::MoveLeader { nth } => {
                Request::MoveLeader { target: self.members[*nth as usize % self.members.len()].id }
            }
            Ask::Backup => Request::Backup,
            Ask::Status => Request::Status,
            Ask::Alarms { kind } => Request::Alarms { kind: *kind },
            Ask::Digest => Request::Hash,
            Ask::Users(question) => Request::Auth { query: question.query() },
            Ask::Watch(create) => Request::Watch { range: KeyRange::new(&create.key, &create.range_end) },
            Ask::CancelWatch { .. } | Ask::WatchProgress => unreachable!("watches go over streams"),
        }
    }

    fn next_op(&mut self, client: usize) {
        self.clients[client].op = None;
        let at = self.now + 1 + self.work_rng.delay(self.plan.workload.think);
        self.at(at, Event::Client { client });
    }

    pub(crate) fn deadline(&mut self, client: usize, tag: u64) {
        let Some(op) = self.clients[client].op.as_ref().filter(|op| op.tag == tag) else { return };
        let who = op.who;
        if let Some(life) = self.members[who].up.as_ref() {
            let mine = life
                .waiters
                .iter()
                .find(|(_, r)| matches!(r, Reader::Client { client: c, tag: t } if (*c, *t) == (client, tag)));
            if let Some((&waiter, _)) = mine {
                self.give(who, Input::Cancel { waiter, timed_out: true });
            }
        }
        self.at(self.now + SECOND, Event::GiveUp { client, tag });
    }

    /// Even the refusal did not come.
    pub(crate) fn give_up(&mut self, client: usize, tag: u64) {
        let Some(op) = self.clients[client].op.as_ref().filter(|op| op.tag == tag) else { return };
        let who = op.who;
        // The member had all the time to say something, unless it stood still.
        let heard = self.members[who]
            .up
            .as_ref()
            .is_some_and(|l| l.waiters.values().any(|r| matches!(r, Reader::Client { tag: t, .. } if *t == tag)));
        let froze = self.members[who].clock.frozen_until + SECOND > self.now;
        // A hash that is being computed is not called off; it answers when its scan is done.
        let hashing = matches!(op.ask, Ask::HashKv { .. });
        if heard && !froze && !hashing {
            let text =
                format!("m{} never answered operation {tag} ({:?}), not even after its cancellation", who + 1, op.ask);
            return self.fail("R-11", text);
        }
        self.marks.hit("outcome unknown");
        self.next_op(client);
    }

    /// What the edge says when its client has gone.
    fn lose_interest(&mut self, who: usize, next: &Request) {
        match *next {
            Request::WalkNext { walk } => self.tell_member(who, Request::WalkEnd { walk }),
            Request::BackupNext { backup, .. } => self.tell_member(who, Request::BackupEnd { backup }),
            _ => {}
        }
    }

    /// The member that would have answered is dead.
    pub(crate) fn orphan(&mut self, reader: Reader) {
        match reader {
            Reader::Client { client, tag } if self.clients[client].op.as_ref().is_some_and(|op| op.tag == tag) => {
                self.marks.hit("outcome unknown");
                self.next_op(client);
            }
            Reader::Operator => self.operator_orphaned(),
            _ => {}
        }
    }

    pub(crate) fn answered(&mut self, who: usize, waiter: Waiter, revision: i64, answer: Answer) {
        let Some(life) = self.members[who].up.as_mut() else { return };
        life.published = life.published.max(revision);
        let barred = life.was_barred && life.barred;
        let Some(reader) = life.waiters.remove(&waiter) else { return };
        if barred && crate::differs::shows_state(&answer) {
            return self.fail("H-3", format!("m{} says that it answers nothing, and answers {answer:?}", who + 1));
        }
        match reader {
            Reader::Flood => {}
            Reader::Publish => self.publish_answered(who, &answer),
            Reader::Operator => self.operator_answered(answer),
            Reader::Vigil { probe } => self.vigil_answered(probe, answer),
            Reader::History { stream } => self.history_answered(who, stream, answer),
            Reader::Epilogue { tag } => self.epilogue_answered(who, tag, revision, answer),
            Reader::Client { client, tag } => {
                let Some(op) = self.clients[client].op.take() else { return };
                if op.tag != tag {
                    self.clients[client].op = Some(op);
                    return;
                }
                self.client_answered(client, who, op, revision, answer);
            }
        }
    }

    fn client_answered(&mut self, client: usize, who: usize, mut op: Pending, revision: i64, answer: Answer) {
        let answer = self.plant_in_answer(&op, answer);
        match &answer {
            Answer::Refused(Refusal::User(error)) if self.was_kept_out(who, &op, error) => {
                return self.next_op(client);
            }
            Answer::Applied { result: Err(error), .. } if matches!(op.ask, Ask::ReadTxn { .. }) => {
                let error = *error;
                if self.was_kept_out(who, &op, &error) {
                    return self.next_op(client);
                }
            }
            Answer::Refused(_) => {}
            _ => self.was_let_in(who, &op),
        }
        let next = match (&op.ask, answer) {
            (Ask::Range { .. }, Answer::Range(RangeStart { walk: Some(id), .. })) if op.walk.is_some() => {
                return self.fail("KV-1", format!("walk {id} begins twice"));
            }
            (Ask::Range { range, .. }, Answer::Range(start)) => {
                let range = range.clone();
                let revision = self.range_begins(who, &range, op.serial, revision);
                match start.walk {
                    // Some clients lose interest.
                    Some(walk) if self.work_rng.percent(5) => {
                        self.tell_member(who, Request::WalkEnd { walk });
                        None
                    }
                    Some(id) => {
                        self.marks.hit("walk in slices");
                        let found = Found::none(&start.query);
                        op.walk = Some(Walking { id, start, revision, floor: op.floor, found });
                        Some((Request::WalkNext { walk: id }, op))
                    }
                    None => {
                        self.range_done(who, &range, op.floor, revision, start);
                        None
                    }
                }
            }
            (Ask::Range { range, stream }, Answer::Slice(slice)) => {
                let (range, stream) = (range.clone(), *stream);
                let walk = op.walk.as_mut().expect("a slice follows a start");
                walk.found.extend(slice.found);
                match slice.finished {
                    None => Some((Request::WalkNext { walk: walk.id }, op)),
                    Some((count, more)) => {
                        let walk = op.walk.take().expect("there");
                        self.walk_done(who, &range, stream, walk, count, more);
                        None
                    }
                }
            }
            (Ask::Backup, Answer::Backup { backup, export }) => {
                let goes_on = self.backup_begins(who, &mut op, backup, export);
                goes_on.then_some((Request::BackupNext { backup, first: true }, op))
            }
            (Ask::Backup, Answer::BackupRecords { records, end }) => {
                self.backup_goes_on(who, &mut op, records, end).map(|request| (request, op))
            }
            (Ask::Backup, Answer::BackupFailed { reason }) => {
                self.backup_failed(who, reason);
                None
            }
            (_, Answer::Refused(refusal)) => {
                self.refused(who, &op, revision, refusal);
                None
            }
            (_, answer) => {
                self.check(who, &op, revision, answer);
                None
            }
        };
        match next {
            // Its cancellation met an answer that was on its way: it asks for no more.
            Some((request, op)) if self.now >= op.until => {
                self.lose_interest(who, &request);
                self.next_op(client);
            }
            Some((request, op)) => {
                let waiter = self.waiter(who, Reader::Client { client, tag: op.tag });
                let asker = op.asker.clone();
                self.clients[client].op = Some(op);
                self.give(who, Input::Request { waiter, who: asker, request });
            }
            None => self.next_op(client),
        }
    }

    fn walk_done(&mut self, who: usize, range: &Range, stream: bool, walk: Walking, count: i64, more: bool) {
        let mut start = walk.start;
        if !stream {
            let kvs = walk.found.len() as u64;
            if (start.count, start.more, start.kvs) != (count, more, kvs) {
                let text = format!(
                    "measured {} {} {} and served {count} {more} {kvs}: {range:?}",
                    start.count, start.more, start.kvs
                );
                return self.fail("KV-1", text);
            }
        }
        let measured = start.bytes;
        (start.found, start.count, start.more) = (walk.found, count, more);
        let found = start.found.clone();
        self.range_done(who, range, walk.floor, walk.revision, start);
        if !stream
            && !self.oracle.failed()
            && let Ok(kvs) = self.found_kvs(who, &found, range.keys_only, range.target == 4)
        {
            let served: u64 = kvs.iter().map(encoded_len).sum();
            if served != measured {
                self.fail("KV-1", format!("measured {measured} bytes and served {served}: {range:?}"));
            }
        }
    }

    /// What a range shows is fixed: the revision that it is held against.
    fn range_begins(&mut self, who: usize, range: &Range, floor: i64, revision: i64) -> i64 {
        if !range.serializable {
            return revision;
        }
        let revision = self.plant_in_serial(revision);
        self.oracle.on_serial_begins(self.now, who, floor, revision);
        revision
    }

    fn range_done(&mut self, who: usize, range: &Range, floor: u64, revision: i64, start: RangeStart) {
        let got = self.range_reply(who, start);
        let got = match got {
            Ok(reply) => Ok(reply),
            Err(text) => return self.met_damage(who, text),
        };
        self.judge_range(who, range, floor, revision, got);
    }

    fn judge_range(&mut self, who: usize, range: &Range, floor: u64, revision: i64, got: Result<Reply, Error>) {
        match got {
            Err(Error::Compacted) => self.marks.hit("compacted read refused"),
            Err(Error::FutureRev) => self.marks.hit("future read refused"),
            _ => {}
        }
        let read = Read::Range(range.clone());
        if range.serializable {
            self.oracle.on_serializable(self.now, who, revision, &read, &got);
        } else {
            if self.leader() != Some(who) {
                self.marks.hit("linearizable read on a follower");
            }
            self.oracle.on_read(self.now, floor, revision, &read, &got);
        }
    }

    fn plant_in_serial(&mut self, revision: i64) -> i64 {
        if self.is(Planted::StaleSerial) && self.rng.percent(10) { (revision - 3).max(1) } else { revision }
    }

    fn refused(&mut self, who: usize, op: &Pending, revision: i64, refusal: Refusal) {
        let definite =
            matches!(refusal, Refusal::User(_) | Refusal::TooManyRequests | Refusal::NotLeader | Refusal::NoLeader);
        match refusal {
            Refusal::User(Error::NoSpace) => self.marks.hit("NOSPACE refused a write"),
            Refusal::TooManyRequests => self.marks.hit("too many requests"),
            Refusal::Timeout | Refusal::TimeoutLeaderFail | Refusal::TimeoutConnectionLost => {
                self.marks.hit("outcome unknown")
            }
            _ => {}
        }
        match (&op.ask, refusal) {
            // A member that gave up its damaged state has nothing to answer with.
            (Ask::Range { .. } | Ask::ReadTxn { .. }, Refusal::User(Error::Corrupt)) if self.is_hurt(who) => {
                self.marks.hit("a member without a state was asked");
            }
            // The first answer of a streamed or sliced range stood; compaction overtook it.
            (Ask::Range { .. }, Refusal::User(Error::Compacted)) if op.walk.is_some() => {}
            (Ask::Range { range, .. }, Refusal::User(error)) => {
                let range = range.clone();
                let revision = self.range_begins(who, &range, op.serial, revision);
                self.judge_range(who, &range, op.floor, revision, Err(error));
            }
            (Ask::Users(question), Refusal::User(error @ (Error::UserNotFound | Error::RoleNotFound))) => {
                let question = question.clone();
                self.judge_users(who, op, &question, Some(Said::Refused(error)));
            }
            (Ask::ReadTxn { txn, linearizable }, Refusal::User(error)) => {
                let read = Read::Txn(txn.clone());
                if *linearizable {
                    self.oracle.on_read(self.now, op.floor, revision, &read, &Err(error));
                } else {
                    self.oracle.on_serial_begins(self.now, who, op.serial, revision);
                    self.oracle.on_serializable(self.now, who, revision, &read, &Err(error));
                }
            }
            (Ask::Range { .. }, Refusal::SortNeeds(bytes)) => {
                self.marks.hit("a sorted range was too large");
                if bytes <= sort_room(op.tag) {
                    self.fail("KV-1", format!("a sorted range that needs {bytes} bytes was refused: {:?}", op.ask));
                }
            }
            (Ask::Command(_), why) if definite => self.oracle.on_never(self.now, op.tag, format!("{why:?}")),
            _ => {}
        }
    }

    fn check(&mut self, who: usize, op: &Pending, revision: i64, answer: Answer) {
        match (&op.ask, answer) {
            (Ask::Command(command), Answer::Applied { revision, result }) => {
                self.check_applied(who, op, command, revision, result)
            }
            (Ask::ReadTxn { txn, linearizable }, Answer::Applied { revision, result }) => {
                let got = match self.convert_result(who, result) {
                    Ok(got) => got,
                    Err(text) => return self.met_damage(who, text),
                };
                let read = Read::Txn(txn.clone());
                if *linearizable {
                    self.oracle.on_read(self.now, op.floor, revision, &read, &got);
                } else {
                    self.oracle.on_serial_begins(self.now, who, op.serial, revision);
                    self.oracle.on_serializable(self.now, who, revision, &read, &got);
                }
            }
            (Ask::KeepAlive { lease }, Answer::KeepAlive { ttl }) => {
                if ttl > 0 && self.leader() != Some(who) {
                    self.marks.hit("renewal answered by a follower");
                }
                if self.members[who].up.as_ref().is_some_and(|l| l.frozen_once) {
                    self.marks.hit("keep-alive after a pause");
                }
                if ttl > 0 {
                    self.oracle.on_renewed(self.now, op.floor, *lease, op.sent, ttl);
                    let granted = self.oracle.lives_since(*lease, op.floor);
                    self.times_left.renewed(op.tag, *lease, granted, op.span(self.now), ttl);
                } else {
                    self.oracle.on_not_renewed(self.now, op.floor, *lease);
                }
            }
            (Ask::TimeToLive { lease, keys: asked }, Answer::TimeToLive { ttl, granted, keys }) => {
                self.check_time_to_live(op, *lease, ttl, granted);
                let keys: Vec<Blob> = keys.iter().map(|key| key.to_vec()).collect();
                if ttl >= 0 && *asked && !self.oracle.model.were_attached(*lease, op.applied, &keys) {
                    self.fail("L-7", format!("lease {lease} is said to have keys {keys:?}"));
                }
            }
            (Ask::HashKv { .. }, Answer::HashKv { hash, compacted, hash_revision }) => {
                self.oracle.on_hash_kv(self.now, who, hash_revision, compacted, hash);
            }
            (Ask::Barrier, Answer::Barrier) => {
                self.oracle.on_read(self.now, op.floor, revision, &Read::Nothing, &Ok(Reply::Other))
            }
            (Ask::Users(question), Answer::Auth(answer)) => {
                let said = Said::of(question, answer);
                self.judge_users(who, op, question, said);
            }
            (Ask::Members { .. }, Answer::Members { members }) => {
                let ids: Vec<u64> = members.iter().map(|(m, _)| m.id).collect();
                if !self.oracle.was_list(op.applied, self.oracle.applied(who), &ids) {
                    self.fail("M-6", format!("m{} lists members {ids:?}", who + 1));
                }
            }
            (Ask::Watch(_), Answer::Barrier) => drop(self.ask_stream(who, &op.ask)),
            (Ask::MoveLeader { .. }, Answer::Moved) => self.marks.hit("leader moved on request"),
            (Ask::Leases, Answer::Leases { ids }) => self.check_leases(who, op, &ids),
            (Ask::Status, Answer::Status(status)) => self.check_status(who, op, &status),
            (Ask::Alarms { kind }, Answer::Alarms { alarms }) => self.check_alarms(who, op, *kind, &alarms),
            (Ask::Digest, Answer::Hash { hash }) => self.check_digest(who, op, hash),
            (ask, answer) => self.fail("KV-1", format!("{ask:?} was answered with {answer:?}")),
        }
    }

    /// Leases are listed in slices, so a lease that came or went meanwhile may be there or not.
    fn check_leases(&mut self, who: usize, op: &Pending, ids: &[i64]) {
        let (from, upto) = (op.applied, self.oracle.applied(who));
        let (must, may) = self.oracle.model.leases_between(from, upto);
        let listed: BTreeSet<i64> = ids.iter().copied().collect();
        if listed.len() != ids.len() || !listed.is_subset(&may) || !must.is_subset(&listed) {
            let text = format!("m{} lists leases {ids:?}, right are {must:?}, and perhaps some of {may:?}", who + 1);
            self.fail("L-7", text);
        }
    }

    fn check_status(&mut self, who: usize, op: &Pending, status: &node::Status) {
        let mark = self.oracle.model.mark(status.applied);
        let right = mark.is_some_and(|mark| (mark.revision, mark.compacted) == (status.revision, status.compacted));
        // It gave up a damaged state, and has nothing until the leader gives it another.
        let own = store::AlarmMember { member: self.members[who].id, alarm: crate::oracle::CORRUPT };
        if self.is_hurt(who) && status.alarms.contains(&own) && !right {
            return self.marks.hit("a member without a state was asked");
        }
        if status.member != self.members[who].id || status.applied < op.applied || !right {
            self.fail("KV-2", format!("m{} says {status:?}, which had applied {}: {mark:?}", who + 1, op.applied));
        }
    }

    /// Those of the model; and its own, which a member adds while its disk is full or its state is
    /// wrong.
    fn check_alarms(&mut self, who: usize, op: &Pending, kind: i32, alarms: &[store::AlarmMember]) {
        if self.is_hurt(who) && self.members[who].up.as_ref().is_some_and(|life| life.barred) {
            // It says CORRUPT for itself, and knows of no other alarm.
            return self.marks.hit("a member without a state was asked");
        }
        let known = self.oracle.model.alarms().clone();
        let own = |alarm: &(u64, i64)| alarm.0 == self.members[who].id && !known.contains(alarm);
        let mut listed: BTreeSet<(u64, i64)> = alarms.iter().map(|a| (a.member, i64::from(a.alarm))).collect();
        listed.retain(|alarm| !own(alarm));
        let of_kind = |alarm: &(u64, i64)| kind == 0 || alarm.1 == i64::from(kind);
        let others = known.iter().filter(|alarm| !of_kind(alarm));
        if !listed.iter().all(of_kind)
            || !self.oracle.model.may_list(op.applied, &listed.iter().chain(others).copied().collect())
        {
            self.fail("KV-1", format!("m{} lists alarms {alarms:?} of kind {kind}, right are {known:?}", who + 1));
        }
    }

    fn check_digest(&mut self, who: usize, op: &Pending, hash: u32) {
        if self.oracle.differs(who) {
            return;
        }
        let (from, upto) = (op.applied, self.oracle.applied(who));
        let folded = |digest: u128| (0..4).fold(0u32, |hash, part| hash ^ (digest >> (32 * part)) as u32);
        // Of some indexes nobody has told the digest.
        if let Some(digests) = self.oracle.digests(from, upto)
            && !digests.iter().any(|digest| folded(*digest) == hash)
        {
            self.fail("H-1", format!("m{} says hash {hash} at an index from {from} to {upto}", who + 1));
        }
    }

    fn check_time_to_live(&mut self, op: &Pending, lease: i64, ttl: i64, granted: i64) {
        if ttl < 0 && self.oracle.may_have_lapsed(lease, self.now) {
            return;
        }
        if ttl < 0 {
            return self.oracle.on_not_renewed(self.now, op.floor, lease);
        }
        let known = self.oracle.model.lease(lease).iter().any(|l| l.ended_at > op.floor && l.ttl == granted);
        if !known || ttl > granted {
            return self.fail("L-7", format!("lease {lease} is said to have {ttl} of {granted} s"));
        }
        // A member that stood still meanwhile may not know yet what time it is.
        let stood_still = |m: &Member| m.clock.frozen_until.max(m.slow.0) > op.sent;
        let steady = (!self.members.iter().any(stood_still)).then_some(self.last_leader_change);
        let life = self.oracle.lives_since(lease, op.floor);
        if let Some(wrong) = self.times_left.told(lease, life, op.span(self.now), ttl, steady) {
            self.fail("L-8", wrong);
        }
    }

    fn check_applied(
        &mut self,
        who: usize,
        op: &Pending,
        command: &Command,
        revision: i64,
        result: Result<store::Reply, Error>,
    ) {
        self.check_asker(op);
        if let (Command::Users(change), Ok(store::Reply::LoggedIn { index, .. })) = (command, &result)
            && let Some((_, simple)) = change.logs_in()
        {
            self.logged_in(simple, *index);
        }
        let got = match self.convert_result(who, result) {
            Ok(got) => got,
            Err(text) => return self.met_damage(who, text),
        };
        let got = self.plant_in_reply(got);
        let revision = if self.is(Planted::RevisionOffByOne) && got.is_err() { revision + 1 } else { revision };
        if let Command::Compact { physical: true, revision: at } = command {
            // Its body is made by the member, so it has no number: what it promises is checked.
            if got.is_ok() && self.oracle.model.last().compacted < *at {
                self.fail("KV-1", format!("compaction to {at} was acknowledged but is not in the log"));
            }
            return;
        }
        self.oracle.on_applied_answer(self.now, op.tag, op.floor, command, revision, &got);
        if let (Command::Grant { id, .. }, Ok(Reply::Grant { ttl, .. })) = (command, &got) {
            self.oracle.on_granted(self.now, op.tag, *id, op.sent, *ttl);
        }
    }

    fn judge_users(&mut self, who: usize, op: &Pending, question: &Question, said: Option<Said>) {
        let upto = self.oracle.applied(who);
        if !said.as_ref().is_some_and(|said| self.oracle.model.users.was(op.applied, upto, question, said)) {
            self.fail("U-1", format!("m{}: {question:?} is answered with {said:?}", who + 1));
        }
    }

    fn plant_in_answer(&mut self, op: &Pending, answer: Answer) -> Answer {
        match answer {
            Answer::Refused(Refusal::Timeout | Refusal::TimeoutLeaderFail | Refusal::TimeoutConnectionLost)
                if self.is(Planted::TimeoutIsRefusal) && matches!(op.ask, Ask::Command(_)) =>
            {
                Answer::Refused(Refusal::TooManyRequests)
            }
            Answer::TimeToLive { ttl, granted, keys } if ttl >= 0 && self.is(Planted::TimeLeftWhole) => {
                Answer::TimeToLive { ttl: granted.max(ttl), granted, keys }
            }
            Answer::Auth(AuthAnswer::Users { mut users }) if self.is(Planted::UsersShort) => {
                users.pop();
                Answer::Auth(AuthAnswer::Users { users })
            }
            Answer::Members { mut members } if self.is(Planted::ListShort) => {
                members.pop();
                Answer::Members { members }
            }
            Answer::TimeToLive { ttl, granted, keys } if self.is(Planted::TimeLeftNone) => {
                Answer::TimeToLive { ttl: ttl.min(0), granted, keys }
            }
            answer => answer,
        }
    }

    /// As a member takes it that was told who asks.
    fn plant_in_asker(&mut self, asker: &node::Who) -> node::Who {
        match asker {
            node::Who::Certified { user } if self.is(Planted::TakenForAnother) && **user == *"u1" => {
                node::Who::Certified { user: crate::users::ROOT.into() }
            }
            node::Who::Nobody if self.is(Planted::NobodyIsMember) && self.plan.asked => node::Who::Member,
            asker => asker.clone(),
        }
    }

    fn plant_in_reply(&mut self, got: Result<Reply, Error>) -> Result<Reply, Error> {
        match got {
            Ok(Reply::Put { prev: Some(_) }) if self.is(Planted::PrevForgotten) => Ok(Reply::Put { prev: None }),
            Ok(Reply::Txn { succeeded, mut responses }) if self.is(Planted::LongAnswerShort) => {
                for (_, reply) in &mut responses {
                    if let Reply::Range { kvs, .. } = reply
                        && kvs.len() > 20
                    {
                        kvs.pop();
                    }
                }
                Ok(Reply::Txn { succeeded, responses })
            }
            got => got,
        }
    }

    // From items to key-value pairs.

    /// The record behind a handle, from memory or from the member's files.
    pub(crate) fn record(&mut self, who: usize, at: &Located) -> Result<Kv, String> {
        if let Some(bytes) = &at.bytes {
            return watcher::open(bytes);
        }
        self.marks.hit("value read from a file");
        let files = Arc::clone(&self.members[who].files);
        match disk::records::read(files.as_ref(), at.handle) {
            Ok(bytes) => watcher::open(&bytes),
            Err(fault) => {
                let text = format!("m{}: {fault}", who + 1);
                self.give(who, Input::Unreadable { fault });
                Err(text)
            }
        }
    }

    fn kv(&mut self, who: usize, item: &Item, keys_only: bool, keeps_lease: bool) -> Result<Kv, String> {
        let indexed = Kv {
            key: item.key.to_vec(),
            value: Vec::new(),
            create: item.create,
            modified: item.modified,
            version: item.version,
            lease: item.lease,
        };
        if keys_only {
            return Ok(Kv { lease: if keeps_lease { item.lease } else { 0 }, ..indexed });
        }
        let kv = self.record(who, &item.at)?;
        let same = Kv { value: Vec::new(), ..kv.clone() } == indexed;
        if same { Ok(kv) } else { Err(format!("index and record differ: {indexed:?} and {kv:?}")) }
    }

    fn kvs(&mut self, who: usize, items: &[Item]) -> Result<Vec<Kv>, String> {
        items.iter().map(|item| self.kv(who, item, false, false)).collect()
    }

    fn range_reply(&mut self, who: usize, start: RangeStart) -> Result<Reply, String> {
        let RangeStart { query, found, count, more, .. } = start;
        self.finish_range(who, query, found, count, more)
    }

    fn found_kvs(&mut self, who: usize, found: &Found, keys_only: bool, keeps_lease: bool) -> Result<Vec<Kv>, String> {
        match found {
            Found::Items(items) => items.iter().map(|item| self.kv(who, item, keys_only, keeps_lease)).collect(),
            Found::Records(records) => records.iter().map(|at| self.record(who, at)).collect(),
        }
    }

    /// What the edge does: sort and cut, then fetch.
    fn finish_range(
        &mut self,
        who: usize,
        query: Query,
        found: Found,
        count: i64,
        more: bool,
    ) -> Result<Reply, String> {
        let (found, more) = match found {
            Found::Items(items) if query.needs_sort() => {
                let mut values = std::collections::BTreeMap::new();
                if query.target == SortTarget::Value {
                    for item in &items {
                        values.insert(item.key.clone(), Bytes::from(self.record(who, &item.at)?.value));
                    }
                }
                let value = |item: &Item| values.get(&item.key).cloned().unwrap_or_default();
                let (items, more) = store::order::finish(&query, items, value);
                (Found::Items(items), more)
            }
            found => (found, more),
        };
        let kvs = self.found_kvs(who, &found, query.keys_only, query.target == SortTarget::Value)?;
        Ok(Reply::Range { kvs, count, more })
    }

    pub(crate) fn convert_result(
        &mut self,
        who: usize,
        result: Result<store::Reply, Error>,
    ) -> Result<Result<Reply, Error>, String> {
        match result {
            Ok(reply) => self.convert(who, reply).map(Ok),
            Err(error) => Ok(Err(error)),
        }
    }

    fn convert(&mut self, who: usize, reply: store::Reply) -> Result<Reply, String> {
        Ok(match reply {
            store::Reply::Put { prev } => Reply::Put {
                prev: match prev {
                    Some(item) => Some(self.kv(who, &item, false, false)?),
                    None => None,
                },
            },
            store::Reply::Delete { deleted, prevs } => Reply::Delete { deleted, prevs: self.kvs(who, &prevs)? },
            store::Reply::Range(r) => self.finish_range(who, r.query, Found::Items(r.items), r.count, r.more)?,
            store::Reply::Txn { succeeded, responses } => {
                let mut all = Vec::with_capacity(responses.len());
                for response in responses {
                    all.push((response.revision, self.convert(who, response.reply)?));
                }
                Reply::Txn { succeeded, responses: all }
            }
            store::Reply::Compact => Reply::Compact,
            store::Reply::LeaseGrant { id, ttl } => Reply::Grant { id, ttl },
            store::Reply::LeaseRevoke => Reply::Revoke,
            store::Reply::Alarm { .. } | store::Reply::LoggedIn { .. } | store::Reply::Empty => Reply::Other,
        })
    }
}

fn encoded_len(kv: &Kv) -> u64 {
    let kv = store::record::KeyValueRef {
        key: &kv.key,
        create: kv.create,
        modified: kv.modified,
        version: kv.version,
        value: &kv.value,
        lease: kv.lease,
    };
    kv.encoded_len() as u64
}

fn fold_name(name: &str) -> u64 {
    crate::trace::fold(name.as_bytes())
}

/// The simulator writes whole commands.
fn checked(body: Vec<u8>) -> Checked {
    Checked::read(Bytes::from(body)).expect("a whole command")
}
