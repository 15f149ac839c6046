//! Two histories, planted: members that vote twice in a term, and a majority that comes back with
//! older disks. Both are more harm than any store survives. Whoever can see it must say so,
//! so the checks that would see it first look away, and nothing else is judged.

use super::*;
use crate::disk::Image;
use crate::oracle::Harmed;

/// In the wire form of a message (`consensus/src/message.rs`): a kind, and where it says no.
const VOTE_RESPONSE: u8 = 4;
const REJECTS_AT: usize = 2;
/// When the older copies of the disks are taken.
const COPIED_AT: Time = 4 * SECOND;
/// The whole member's log begins so many entries behind the end of the others', at least.
const BEHIND: u64 = 60;
/// So long it may take until a member says it.
const PATIENCE: Time = 30 * SECOND;

/// The story of a majority with older disks.
#[derive(Debug, Default)]
pub(super) enum Parted {
    #[default]
    No,
    /// Copies of all disks, the last entry of any of them, and the term.
    Copied { images: Vec<Image>, last: u64, term: u64 },
    /// All but this member have their older disks; they do not see it until one of them leads.
    Alone { whole: usize },
    /// They see each other again.
    Met,
}

impl Sim {
    /// A voter that has given its vote says yes to the next one who asks, if its log allows that.
    pub(super) fn plant_second_vote(&mut self, who: usize, from: usize, message: consensus::Message) -> Frame {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let given = self.oracle.ballot(from);
        let twice = bytes[1] == VOTE_RESPONSE
            && given.term == message.term()
            && ![0, self.members[from].id, self.members[who].id].contains(&given.vote)
            && self.log_end(who) >= self.log_end(from);
        if !twice {
            return Frame::Raft(message);
        }
        bytes[REJECTS_AT] = 0;
        self.oracle.expects_two_histories("both lead term", self.now + PATIENCE);
        Frame::Raft(consensus::Message::decode(bytes.into()).expect("an answer to a candidate"))
    }

    /// Term and index of the last entry in a log.
    fn log_end(&self, who: usize) -> (u64, u64) {
        let last = self.members[who].up.as_ref().map(|life| life.log.last()).unwrap_or_default();
        (last.term, last.index)
    }

    /// No other fault strikes while two histories are written.
    pub(crate) fn are_parted(&self) -> bool {
        matches!(self.plants.parted, Parted::Alone { .. } | Parted::Met)
    }

    /// Called now and then.
    pub(crate) fn plant_older_majority(&mut self) {
        if !self.is(Planted::MajorityRolledBack) || self.members.len() < 3 {
            return;
        }
        let all_up = self.members.iter().all(|m| m.up.is_some());
        let now_term = self.members.iter().filter_map(|m| m.up.as_ref()).map(|life| life.status.term).max();
        match &self.plants.parted {
            Parted::No if self.now >= COPIED_AT && all_up && self.leader().is_some() => {
                let images = self.members.iter().map(|m| m.disk.durable_image(self.now)).collect();
                let last = (0..self.members.len()).map(|who| self.oracle.flushed(who).0).max().unwrap_or(0);
                self.plants.parted = Parted::Copied { images, last, term: now_term.unwrap_or(0) };
            }
            // Else the next leader would be a second one of a term that was led already.
            Parted::Copied { term, .. } if now_term != Some(*term) => self.plants.parted = Parted::No,
            Parted::Copied { last, .. } => {
                let (last, n) = (*last + BEHIND, self.members.len());
                let begins = |who: &usize| self.members[*who].up.as_ref().map_or(0, |life| life.log.boundary().index);
                let whole = (0..n).filter(|who| !self.is_hurt(*who)).find(|who| begins(who) > last);
                if let Some(whole) = whole.filter(|_| all_up && self.phase == crate::run::Phase::Safety) {
                    self.roll_back_all_but(whole);
                }
            }
            Parted::Alone { whole } => {
                let whole = *whole;
                if self.leader().is_some_and(|leader| leader != whole && self.oracle.is_harmed(leader)) {
                    self.heal();
                    self.plants.parted = Parted::Met;
                }
            }
            _ => {}
        }
    }

    fn roll_back_all_but(&mut self, whole: usize) {
        let Parted::Copied { images, .. } = std::mem::take(&mut self.plants.parted) else { return };
        self.oracle.expects_two_histories("and what leader", self.now + PATIENCE);
        self.tell(Some(whole), "planted", 0, 0, || "all others get older disks".to_string());
        for (other, image) in images.iter().enumerate().filter(|(other, _)| *other != whole) {
            self.net.cut(whole, other);
            self.net.cut(other, whole);
            self.break_pair(whole, other);
            self.crash(other, false, Some(100 * MS));
            self.members[other].disk.restore(image);
            self.hurts.remove(&other);
            self.oracle.on_harmed(other, Harmed::Yes);
        }
        // A member that runs remembers terms of entries that its log no longer has.
        self.crash(whole, false, Some(100 * MS));
        self.plants.parted = Parted::Alone { whole };
    }
}
