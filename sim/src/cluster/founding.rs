//! What a process does that finds no member in its directory: it asks the other initial members,
//! and `disk::inquiry` says what follows, as in `server/src/bootstrap.rs`.

use super::*;
use disk::identity::{self, Found};
use disk::inquiry::{Decision, Running, Stage, decide};
use std::collections::BTreeMap;

/// Between two rounds of questions. The server begins with as much.
const ASK_AGAIN: Time = 20 * MS;
/// A request's time is over then.
const PUBLISH_PATIENCE: Time = 7 * SECOND;

impl Sim {
    pub(super) fn founders(&self) -> Vec<store::Member> {
        let founder = |id| store::Member {
            id,
            name: format!("m{id}"),
            peer_urls: vec![format!("http://m{id}:2380")],
            client_urls: vec![],
        };
        (1..=self.plan.members as u64).map(founder).collect()
    }

    /// The flags of a member that joined name no founders, as in `server/src/bootstrap.rs`.
    pub(super) fn founders_in_flags(&self, id: u64) -> Vec<store::Member> {
        if id <= self.plan.members as u64 { self.founders() } else { Vec::new() }
    }

    /// What every founder begins with, written to the member's disk.
    pub(super) fn genesis(&mut self, who: usize) -> Result<Result<(), disk::Fault>, String> {
        let founders = self.founders();
        let (config, identity) = (self.config(who), self.identity(who));
        let files = Arc::clone(&self.members[who].files);
        guarded(|| node::genesis(&files, identity, &config, founders))
    }

    /// True: the directory holds a member, maybe one that was just founded. Else it is refused, or
    /// asks again later.
    pub(super) fn begins(&mut self, who: usize) -> bool {
        let files = Arc::clone(&self.members[who].files);
        match identity::find(&*files) {
            Ok(Found::Ready(_)) => true,
            Ok(Found::Empty | Found::Founding(_)) if self.is_joining(who) => self.begins_to_join(who),
            Ok(Found::Empty | Found::Founding(_)) => self.asks_to_found(who),
            Err(why) if self.members[who].disk.troubled().reads_fail > 0 => {
                // Whoever starts processes tries again.
                self.tell(Some(who), "unread", 0, 0, || why.to_string());
                self.at(self.now + SECOND / 2, Event::Start { who });
                false
            }
            Err(why) if self.is_hurt(who) => {
                self.refused_start(who, &why.to_string());
                false
            }
            Err(why) => {
                self.fail("recover", format!("m{} does not start: {why}", who + 1));
                false
            }
        }
    }

    /// As a founder writes what it begins with.
    fn begins_to_join(&mut self, who: usize) -> bool {
        let disk = &self.members[who].disk;
        let trouble = disk.troubled();
        let may_fail = disk.is_full() || trouble.no_room.is_some() || trouble.reads_fail > 0;
        match guarded(|| self.joined(who)) {
            Ok(Ok(())) => return true,
            // The process ends; the next one begins anew.
            Ok(Err(_)) if may_fail => self.at(self.now + SECOND / 2, Event::Start { who }),
            Ok(Err(fault)) => self.fail("recover", format!("m{} cannot join: {fault}", who + 1)),
            Err(panic) => self.fail("panic", panic),
        }
        false
    }

    fn asks_to_found(&mut self, who: usize) -> bool {
        let others: Vec<usize> = (0..self.plan.members).filter(|other| *other != who).collect();
        let answers: BTreeMap<u64, Option<Stage>> =
            others.into_iter().map(|other| (self.members[other].id, self.stage_of(other, who))).collect();
        let decision = decide(&answers);
        self.members[who].founding = decision == Decision::Wait;
        self.tell(Some(who), "founding", answers.len() as u64, 0, || format!("{decision:?} of {answers:?}"));
        match decision {
            Decision::Wait => {
                self.at(self.now + ASK_AGAIN, Event::Start { who });
                false
            }
            Decision::Refuse { member, .. } if self.is_hurt(who) => {
                self.refused_start(who, &format!("m{member} knows this member"));
                false
            }
            Decision::Apart { .. } => {
                // Until the member of the other founding has stopped.
                self.at(self.now + SECOND, Event::Start { who });
                false
            }
            Decision::Refuse { member, running } => {
                self.fail("recover", format!("m{} never founded, and m{member} knows it: {running:?}", who + 1));
                false
            }
            Decision::Found { late } => self.founded(who, late),
        }
    }

    /// What a member says of itself to `asker`.
    fn stage_of(&mut self, who: usize, asker: usize) -> Option<Stage> {
        let asker = self.members[asker].id;
        let member = &self.members[who];
        if member.starting.is_some() {
            return Some(Stage::Recovering);
        }
        let Some(life) = &member.up else { return member.founding.then_some(Stage::Founding) };
        let (status, late, founding) = (life.status.clone(), life.late, life.node.founding());
        let followers = &status.followers;
        Some(Stage::Running(Running {
            term: status.term,
            commit: status.committed,
            last: status.last,
            late,
            published: self.has_published(who, asker),
            acknowledged: followers.iter().find(|follower| follower.member == asker).map_or(0, |it| it.matched),
            founding,
        }))
    }

    /// Member `who` has applied the client URLs of `asker`.
    fn has_published(&mut self, who: usize, asker: u64) -> bool {
        let life = self.members[who].up.as_mut().expect("up");
        let mut out = Vec::new();
        life.node.step(
            Input::Request { waiter: PROBE, who: node::Who::Member, request: Request::Members { linearizable: false } },
            &mut out,
        );
        out.into_iter().any(|output| match output {
            Output::Answer { answer: Answer::Members { members }, .. } => {
                members.iter().any(|(member, _)| member.id == asker && !member.client_urls.is_empty())
            }
            _ => false,
        })
    }

    fn founded(&mut self, who: usize, late: bool) -> bool {
        let id = self.identity(who);
        let files = Arc::clone(&self.members[who].files);
        let ready = |ready| identity::write(&*files, id, ready).map_err(|error| error.to_string());
        let made = ready(false).and_then(|()| match self.genesis(who) {
            Ok(made) => made.map_err(|fault| fault.to_string()),
            Err(panic) => {
                self.fail("panic", panic.clone());
                Err(panic)
            }
        });
        let marked = made.and_then(|()| match late {
            true => disk::late::mark(&*files, id).map_err(|fault| fault.to_string()),
            false => Ok(()),
        });
        if late {
            self.marks.hit("a late founder began");
        }
        let disk = &self.members[who].disk;
        let may_fail = disk.is_full() || disk.troubled().no_room.is_some() || self.is_hurt(who);
        match marked.and_then(|()| ready(true)) {
            Ok(()) => return true,
            // The process ends; the next one finds a founding that was interrupted.
            Err(_) if may_fail => self.at(self.now + SECOND / 2, Event::Start { who }),
            Err(fault) => self.fail("recover", format!("genesis: {fault}")),
        }
        false
    }

    /// A member that serves tells the others its client URLs, until that is applied:
    /// `server/src/publish.rs`.
    pub(super) fn publish(&mut self, who: usize) {
        let Some(life) = self.members[who].up.as_mut().filter(|life| !life.published_urls) else { return };
        if let Some(waiter) = life.publishing.take() {
            life.waiters.remove(&waiter);
            self.give(who, Input::Cancel { waiter, timed_out: false });
        }
        let waiter = self.waiter(who, Reader::Publish);
        let (id, life) = (self.members[who].id, self.members[who].life);
        let urls = [format!("http://m{id}:2379")];
        let body = store::command::encode_member_attr(id, &format!("m{id}"), &urls);
        self.members[who].up.as_mut().expect("up").publishing = Some(waiter);
        self.give(who, Input::Request { waiter, who: self.staff(), request: Request::Propose { body, cost: 0 } });
        self.at(self.now + PUBLISH_PATIENCE, Event::Publish { who, life });
    }

    pub(crate) fn publish_answered(&mut self, who: usize, answer: &Answer) {
        let number = self.members[who].life;
        let Some(life) = self.members[who].up.as_mut() else { return };
        life.publishing = None;
        life.published_urls |= matches!(answer, Answer::Applied { result: Ok(_), .. });
        if !life.published_urls {
            self.at(self.now + 100 * MS, Event::Publish { who, life: number });
        }
    }
}
