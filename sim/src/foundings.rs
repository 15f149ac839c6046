//! M-7: a member of another founding of the same cluster is not heard. Its disk comes of another
//! run of the same members, with the same flags; when it has stopped, an operator puts the right
//! disk back.

use crate::cluster::Sim;
use crate::disk::Image;
use crate::oracle::Harmed;
use crate::plan::{Fault, MS, SECOND};
use crate::planted::Planted;
use crate::rng::Rng;
use crate::sights::Sights;
use crate::trace::Mode;
use node::Input;
use node::foundings::differ;

/// The other cluster is founded, and left alone at its end, for so long.
const QUIET: u64 = 2 * SECOND;

impl Sim {
    /// What a leader would name the founding.
    pub(crate) fn founding_of(&self, boot: u64) -> u64 {
        Rng::new(self.plan.seed, &format!("founding {boot}")).draw().max(1)
    }

    /// The disk of this member after another founding. Each restart of all members is an election
    /// more: as many decide which of the two histories would lead.
    pub(crate) fn disk_of_another_founding(&self, who: usize, elections: u64) -> Image {
        let gap = (3 * self.plan.election_ms + 500) * MS;
        let mut plan = self.plan.clone();
        plan.seed = !plan.seed;
        (plan.sights, plan.always) = (Sights::none(), Vec::new());
        (plan.leases, plan.bandwidth, plan.quota, plan.killed_then_power) = (0, 0, -1, 0);
        let all = |n| (QUIET + n * gap, Fault::CrashAll { power: false, down: 20 * MS });
        plan.faults = (0..elections).map(all).collect();
        let ends = 2 * QUIET + elections * gap;
        plan.until = 2 * ends;
        let mut other = Sim::new(plan, None, Mode::Hash);
        while other.now < ends && other.step() {}
        other.members[who].disk.durable_image(other.now)
    }

    /// Its disk is of another founding.
    pub(crate) fn is_foreign(&self, who: usize) -> bool {
        self.oracle.is_foreign(who)
    }

    /// The first frame of a connection arrives: both sides have said which founding they are of, as
    /// in the hello of `server/src/peers`. Nobody is woken for it: it stands before the frames.
    pub(crate) fn connect(&mut self, from: usize, to: usize) {
        if self.is(Planted::FoundingUnheard) || self.are_acquainted(from, to) {
            return;
        }
        let says = |who: usize| self.members[who].up.as_ref().map(|life| life.node.founding());
        let (Some(a), Some(b)) = (says(from), says(to)) else { return };
        self.connected.insert((from.min(to), from.max(to)), self.net.epoch(from, to));
        for (who, other, founding) in [(to, from, a), (from, to, b)] {
            let peer = self.members[other].id;
            let life = self.members[who].up.as_mut().expect("it says something");
            life.inbox.push_back(Input::Met { peer, founding: Some(founding) });
        }
    }

    /// A member that has learned which founding it is of closes the connections to those of another
    /// one.
    pub(crate) fn remember_founding(&mut self, who: usize) {
        let Some(life) = self.members[who].up.as_mut() else { return };
        let ours = life.node.founding();
        if std::mem::replace(&mut life.founding, ours) == ours {
            return;
        }
        for peer in 0..self.members.len() {
            let theirs = self.members[peer].up.as_ref().map_or(0, |life| life.founding);
            if differ(ours, theirs) && self.are_acquainted(who, peer) {
                self.break_pair(who, peer);
            }
        }
    }

    /// With a member of another founding, those that know no name could be a majority: nothing
    /// would show them that there is another one.
    pub(crate) fn could_join(&self, foreign: usize) -> bool {
        let voters = self.electorate();
        let names = |who: usize| self.members[who].disk.has(disk::history::PATH);
        let nameless = voters.iter().filter(|who| **who != foreign && !names(**who)).count();
        (nameless + 1) * 2 > voters.len()
    }

    fn are_acquainted(&self, a: usize, b: usize) -> bool {
        self.connected.get(&(a.min(b), a.max(b))) == Some(&self.net.epoch(a, b))
    }

    /// A member that knew which founding it is of before this turn says something to one of another
    /// founding.
    pub(crate) fn judge_foundings(&mut self, who: usize, peer: usize) {
        let ours = self.members[who].up.as_ref().map_or(0, |life| life.founding);
        let theirs = self.members[peer].up.as_ref().map_or(0, |life| life.founding);
        if differ(ours, theirs) && self.are_acquainted(who, peer) {
            let text = format!("m{} of founding {ours:x} speaks to m{} of founding {theirs:x}", who + 1, peer + 1);
            self.fail("M-7", text);
        }
    }

    /// A member stops because its disk is of another founding. True: it is so.
    pub(crate) fn foreign_stops(&mut self, who: usize, reason: &str) -> bool {
        let foreign = self.is_foreign(who) && reason.contains("a majority, are of founding");
        if foreign {
            self.marks.hit("a member of another founding stopped");
        }
        foreign
    }

    /// The right disk is back.
    pub(crate) fn is_foreign_no_more(&mut self, who: usize) {
        if self.is_foreign(who) {
            self.oracle.on_harmed(who, Harmed::Yes);
        }
    }
}
