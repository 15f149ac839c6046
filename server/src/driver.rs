//! The core thread: the loop that feeds the member and carries out what it says.
//!
//! Takes everything that is queued, steps it, ends the turn, carries the outputs out in their
//! order, and hands the answers of the turn to each connection runtime in one piece.

use crate::core::{Answered, CoreEnd, Delivery};
use crate::intake::{Batch, ToCore};
use crate::log;
use crate::membership::Membership;
use crate::metrics::Turns;
use crate::peers::Peers;
use crate::posts::Post;
use crate::services::slow;
use crate::transport::Edge;
use crate::workers::Workers;
use node::{Answer, Input, Job, LogJob, Node, Output, Request, StreamId, ToStream, Waiter};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use store::Member;
use tokio::sync::oneshot;

const TICK: Duration = Duration::from_millis(node::TICK_MS);
/// After a pause the member lives through at most this many ticks at once: it must not
/// believe that it waited for answers which nobody could send meanwhile. The rest it is told
/// as time away, which its leases count.
const MOST_TICKS: u64 = 6;

/// How the core thread ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The clean stop is complete.
    Stopped,
    /// The member was removed from the cluster.
    Removed,
    /// The member must not go on.
    Fatal(String),
    /// The process must begin anew.
    Restart(String),
}

struct OpenStream {
    runtime: usize,
    post: Post,
}

pub(crate) struct Driver {
    node: Node,
    end: CoreEnd,
    peers: Peers,
    workers: Workers,
    membership: Membership,
    edge: Edge,
    turns: Turns,
    /// Names of the members, for the log.
    names: BTreeMap<u64, String>,
    waiters: BTreeMap<Waiter, (usize, oneshot::Sender<Answered>)>,
    streams: BTreeMap<StreamId, OpenStream>,
    /// Of this turn, one list per connection runtime.
    deliveries: Vec<Vec<Delivery>>,
    ended: Option<End>,
}

impl Driver {
    pub(crate) fn new(node: Node, end: CoreEnd, peers: Peers, workers: Workers, edge: Edge) -> Driver {
        let deliveries = end.runtimes.iter().map(|_| Vec::new()).collect();
        Driver {
            node,
            end,
            peers,
            workers,
            membership: Membership::default(),
            edge,
            turns: Turns::default(),
            names: BTreeMap::new(),
            waiters: BTreeMap::new(),
            streams: BTreeMap::new(),
            deliveries,
            ended: None,
        }
    }

    /// Runs until the member stopped. `first`: what recovery said.
    pub(crate) fn run(mut self, first: Vec<Output>) -> End {
        let mut out = first;
        let mut batch = Batch::default();
        let mut next_tick = Instant::now() + TICK;
        self.turn(&mut out);
        while self.ended.is_none() {
            let until = next_tick + self.patience();
            self.end.take(self.node.idle().then_some(until), &mut batch);
            for item in batch.urgent.drain(..).chain(batch.normal.drain(..)) {
                if let Some(input) = accept(item, &mut self.waiters, &mut self.streams) {
                    self.node.step(input, &mut out);
                }
            }
            self.end.shared.turns.fetch_add(1, Ordering::Relaxed);
            let due = due_ticks(Instant::now(), &mut next_tick);
            self.heartbeats_late(due);
            let lived = due.min(MOST_TICKS);
            for _ in 0..lived {
                self.node.step(Input::Tick, &mut out);
            }
            if due > lived {
                self.node.step(Input::Away { ticks: due - lived }, &mut out);
            }
            self.turn(&mut out);
        }
        self.end.shared.intake.close();
        let end = self.ended.take().unwrap_or(End::Stopped);
        if matches!(end, End::Stopped | End::Removed | End::Restart(_)) {
            self.workers.finish();
        }
        end
    }

    /// While nobody waits for anything, ticks come a few at a time: an idle member is woken
    /// twenty times a second rather than a hundred.
    fn patience(&self) -> Duration {
        match self.waiters.is_empty() {
            true => TICK * (self.node.ticks_together() - 1),
            false => Duration::ZERO,
        }
    }

    /// A leader sends heartbeats in its turns: without a turn there are none.
    fn heartbeats_late(&self, due: u64) {
        let shared = &self.end.shared;
        let leads = shared.leader.load(Ordering::Acquire) == shared.member && self.names.len() > 1;
        if due > 1 && leads {
            let without = TICK * u32::try_from(due).unwrap_or(u32::MAX);
            self.turns.late(self.edge.metrics(), without, shared.settings.heartbeat);
        }
    }

    /// Metrics of a turn, and a line if applying its entries was slow.
    fn count(&mut self, begun: Instant) {
        let (tally, took) = (self.node.tally(), begun.elapsed());
        let metrics = self.edge.metrics();
        if !tally.deeds.is_empty() {
            slow::applied(tally, took, self.end.shared.settings.warn_apply_after, &metrics.slow_apply);
        }
        self.turns.ended(metrics, tally, took, self.node.sweeps(), self.node.compacted());
    }

    fn turn(&mut self, out: &mut Vec<Output>) {
        let begun = Instant::now();
        self.node.flush(out);
        self.count(begun);
        for output in out.drain(..) {
            self.carry_out(output);
            // Nothing behind a fatal output may be acknowledged.
            if let Some(End::Fatal(_) | End::Restart(_) | End::Removed) = self.ended {
                return;
            }
        }
        let (asks_users, auth_revision) = self.node.auth();
        self.end.shared.asks_users.store(asks_users, Ordering::Release);
        self.end.shared.auth_revision.store(auth_revision, Ordering::Release);
        self.end.shared.founding.store(self.node.founding(), Ordering::Release);
        self.peers.wake();
        for (runtime, deliveries) in self.deliveries.iter_mut().enumerate() {
            if !deliveries.is_empty() {
                let _ = self.end.runtimes[runtime].send(std::mem::take(deliveries));
            }
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Job { job, work } => {
                if let Job::Log(LogJob::Save { .. }) = work {
                    // Appends stand before the save: followers write while we do.
                    self.peers.wake();
                }
                self.workers.submit(job, work);
            }
            Output::Send { to, frame } => self.peers.send(to, &frame),
            Output::Answer { waiter, revision, term, answer } => self.answer(waiter, revision, term, answer),
            Output::Watch { stream, message } => self.post(stream, message),
            Output::Leader { term, leader, role } => self.leader(term, leader, role),
            Output::Note { level, text } => tell(level, &text),
            Output::Members { members, removed } => self.members(members, &removed),
            Output::Snapshot { peer, news } => self.turns.snapshot(self.edge.metrics(), peer, news),
            Output::Removed => self.ended = Some(End::Removed),
            Output::Stopped => self.ended = Some(End::Stopped),
            Output::Fatal { reason } => self.ended = Some(End::Fatal(reason)),
            Output::Restart { reason } => self.ended = Some(End::Restart(reason)),
        }
    }

    fn answer(&mut self, waiter: Waiter, revision: i64, term: u64, answer: Answer) {
        let shared = &self.end.shared;
        shared.revision.fetch_max(revision, Ordering::AcqRel);
        // An asker that was cancelled is no longer listed.
        if let Some((runtime, sender)) = self.waiters.remove(&waiter) {
            self.deliveries[runtime].push(Delivery::Answer(sender, Answered { revision, term, answer }));
        }
    }

    fn post(&mut self, stream: StreamId, message: ToStream) {
        let Some(open) = self.streams.get(&stream) else { return };
        if !open.post.charge(&message) {
            log::warn("dropped a watch stream that does not take its events", &[("stream", log::json!(stream))]);
            self.streams.remove(&stream);
            self.end.shared.intake.watch(stream, node::WatchOp::Close);
            return;
        }
        self.deliveries[open.runtime].push(Delivery::Stream(open.post.clone(), message));
    }

    fn members(&mut self, members: Vec<(Member, bool)>, removed: &BTreeSet<u64>) {
        let shared = &self.end.shared;
        let learner = members.iter().any(|(member, learner)| member.id == shared.member && *learner);
        shared.learner.store(learner, Ordering::Release);
        self.names = members.iter().map(|(member, _)| (member.id, member.name.clone())).collect();
        self.peers.follow(&members, removed);
        self.membership.tell(shared.cluster, shared.member, members);
    }

    fn leader(&self, term: u64, leader: u64, role: consensus::Role) {
        let shared = &self.end.shared;
        let before = shared.leader.swap(leader, Ordering::AcqRel);
        shared.term.store(term, Ordering::Release);
        let member = format!("{:x}", shared.member);
        if role == consensus::Role::Leader && leader != before {
            log::named("raft", log::Level::Info, &format!("{member} became leader at term {term}"), &[]);
        }
        let text = match (before, leader) {
            (before, leader) if before == leader => return,
            (0, leader) => format!("raft.node: {member} elected leader {leader:x} at term {term}"),
            (before, 0) => format!("raft.node: {member} lost leader {before:x} at term {term}"),
            (before, leader) => {
                format!("raft.node: {member} changed leader from {before:x} to {leader:x} at term {term}")
            }
        };
        let names = [("local-member-name", shared.member), ("leader-name", leader), ("leader-before-name", before)];
        let named = |(key, id): (&'static str, u64)| Some((key, log::json!(self.names.get(&id)?)));
        let fields: Vec<(&str, log::Value)> = names.into_iter().filter_map(named).collect();
        log::named("raft", log::Level::Info, &text, &fields);
    }
}

/// What the member is told about one queued thing; None: it is for the driver alone.
/// One line of the log.
pub(crate) fn tell(level: node::Level, text: &str) {
    let level = match level {
        node::Level::Info => log::Level::Info,
        node::Level::Warn => log::Level::Warn,
        node::Level::Error => log::Level::Error,
    };
    log::named("node", level, text, &[]);
}

fn accept(
    item: ToCore,
    waiters: &mut BTreeMap<Waiter, (usize, oneshot::Sender<Answered>)>,
    streams: &mut BTreeMap<StreamId, OpenStream>,
) -> Option<Input> {
    Some(match item {
        ToCore::Ask { waiter, runtime, who, request, answer, .. } => {
            // The end of a walk has no answer, so nobody would ever take its waiter out.
            if !matches!(request, Request::WalkEnd { .. } | Request::BackupEnd { .. }) {
                waiters.insert(waiter, (runtime, answer));
            }
            Input::Request { waiter, who, request }
        }
        ToCore::Cancel { waiter, timed_out } => {
            if !timed_out {
                waiters.remove(&waiter);
            }
            Input::Cancel { waiter, timed_out }
        }
        ToCore::Open { stream, runtime, post } => {
            streams.insert(stream, OpenStream { runtime, post });
            return None;
        }
        ToCore::Watch { stream, op } => {
            if let node::WatchOp::Close = op {
                streams.remove(&stream);
            }
            Input::Watch { stream, op }
        }
        ToCore::Frame { from, frame, .. } => Input::Frame { from, frame },
        ToCore::Met { peer, founding } => Input::Met { peer, founding },
        ToCore::Lost { peer } => Input::Lost { peer },
        ToCore::Gone { peer } => Input::Gone { peer },
        ToCore::Removed { by } => Input::Removed { by },
        ToCore::Done { job, result } => Input::Done { job, result },
        ToCore::Unreadable { fault } => Input::Unreadable { fault },
        ToCore::Stalled { job, fault } => Input::Stalled { job, fault },
        ToCore::Stop => Input::Stop,
    })
}

/// How many ticks went by until `now`; `next` moves to the tick after them, with nothing lost in
/// between.
fn due_ticks(now: Instant, next: &mut Instant) -> u64 {
    let Some(late) = now.checked_duration_since(*next) else { return 0 };
    let due = u64::try_from(late.as_nanos() / TICK.as_nanos()).expect("a pause of less than 500 years") + 1;
    *next += Duration::from_nanos(due * TICK.as_nanos() as u64);
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_lost_between_ticks() {
        let start = Instant::now();
        let mut next = start + TICK;
        assert_eq!(due_ticks(start, &mut next), 0);
        assert_eq!(due_ticks(start + TICK, &mut next), 1);
        assert_eq!(due_ticks(start + 4 * TICK, &mut next), 3);
        let later = start + Duration::from_secs(10);
        assert_eq!(due_ticks(later, &mut next), 996);
        assert_eq!(due_ticks(later, &mut next), 0);
    }

    #[test]
    fn parts_of_ticks_add_up() {
        let start = Instant::now();
        let mut next = start + TICK;
        let ticks: u64 = (1..=100).map(|turn| due_ticks(start + turn * Duration::from_millis(77), &mut next)).sum();
        assert_eq!(ticks, 770);
    }
}
