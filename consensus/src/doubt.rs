//! A member that may have promised more than it still has.
//!
//! A torn or damaged end of the log, an older copy of the disk, an emptied disk: the member may
//! have acknowledged entries, or given a vote, that its log no longer shows. Somebody may have
//! counted on them. Until it has them again, or knows that nobody counted, it behaves as if it
//! still had them: it votes only for a candidate that is at least as far as the promise, and does
//! not campaign. Following and acknowledging what it really has goes on.
//!
//! Members tell each other their [`Standing`]. It ends a doubt in one of three ways: a leader's log
//! reaches the promise here; the members together show that the promise was never committed; every
//! other voter has said its term, so that no forgotten vote can be given twice. It also begins one:
//! a peer remembers more acknowledged entries than this member has. Who the other voters are stands
//! in the log, and may be lost with it: then only a leader's log ends the doubt.

use crate::consensus::Consensus;
use crate::types::{Leadership, Matched};
use crate::{Doubt, HardState, Message, Position, Role, Standing};
use raft::eraftpb::MessageType;
use std::collections::BTreeMap;

/// A write that never finished is believed when nobody has led for so many election timeouts.
const BELIEVED: u64 = 5;

/// What members have said and acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// Since this life began, of the others.
    standings: BTreeMap<u64, Standing>,
    /// The farthest place that each member said to be committed.
    committed: BTreeMap<u64, Position>,
    /// The newest term in which a leader was known, and that leader.
    leader: Leadership,
    /// The farthest place that each follower acknowledged while this member led.
    acknowledged: BTreeMap<u64, Position>,
    /// What each peer last remembered of this member: acknowledged, and written.
    remembered: BTreeMap<u64, (Option<Position>, Option<Position>)>,
    /// Ticks since a leader was known.
    leaderless: u64,
    /// Who votes is not known: the entries that say it are lost, and not here again.
    voters_lost: bool,
}

impl Heard {
    /// Whoever got the vote of the newest term may have led it, and then has every entry of it.
    pub(crate) fn after_restart(hard: HardState, voters_lost: bool) -> Heard {
        let leader = Leadership { term: hard.term, leader: hard.vote };
        Heard { leader, voters_lost, ..Heard::default() }
    }
}

/// The lowest place beyond which nothing can have been committed, as far as the standings tell of
/// which this member's log ends at `mine`, with the doubt `lost`, and `others` are those of all
/// other voters. None: they do not tell.
///
/// Of the members that may have lost something at most a minority really had it: more damaged disks
/// than that is beyond what any acknowledgement promises, so the rest are writes that a crash cut
/// short. Whoever is sure of its loss had it, however many there are. All others must have
/// answered: one that has not may lead, and count what was acknowledged before the loss.
fn committed_at_most(mine: Position, lost: Doubt, others: &[Standing]) -> Option<Position> {
    let voters = others.len() + 1;
    let (quorum, minority) = (voters / 2 + 1, (voters - 1) / 2);
    let seen: Vec<(Position, Option<Doubt>)> =
        others.iter().map(|other| (other.last, other.doubt)).chain([(mine, Some(lost))]).collect();
    let too_few_beyond = |place: &Position| {
        let reaches = |doubt: &Doubt| doubt.promise.is_none_or(|promise| promise > *place);
        let (mut have, mut lost, mut may_have_lost) = (0, 0, 0);
        for (last, doubt) in &seen {
            match doubt {
                _ if last > place => have += 1,
                Some(doubt) if doubt.sure => lost += usize::from(reaches(doubt)),
                Some(_) => may_have_lost += 1,
                None => {}
            }
        }
        have + lost + may_have_lost.min(minority.saturating_sub(lost)) < quorum
    };
    let promises = seen.iter().filter_map(|(_, doubt)| doubt.filter(|doubt| doubt.sure)?.promise);
    let mut places: Vec<Position> =
        seen.iter().map(|(last, _)| *last).chain(promises).filter(|place| *place >= mine).collect();
    places.sort_unstable();
    places.into_iter().find(too_few_beyond)
}

impl Consensus {
    /// What may be lost, as far as it is known; None: nothing.
    pub fn doubt(&self) -> Option<Doubt> {
        self.doubt
    }

    /// Entries or a vote may be lost. What was known before stays: the farther promise holds.
    pub fn begin_doubt(&mut self, new: Doubt) {
        let merged = self.doubt.map_or(new, |old| old.and(new));
        self.out.doubt_changed |= self.doubt != Some(merged);
        self.doubt = Some(merged);
        if self.role() != Role::Follower {
            self.follow_nobody();
        }
        self.look_at_doubt();
    }

    /// What this member says of itself to `peer`.
    pub fn standing(&self, peer: u64) -> Standing {
        let leads = self.role() == Role::Leader;
        Standing {
            term: self.raw.raft.term,
            // A follower may have acknowledged what its leader has not flushed.
            last: if leads { self.last_position() } else { self.durable_position() },
            leads,
            // Why it may have lost something is its own matter.
            doubt: self.doubt.map(|doubt| Doubt { torn: false, ..doubt }),
            commit: self.committed_position(),
            acknowledged: self.heard.acknowledged.get(&peer).copied(),
            wrote: Some(self.last_position())
                .filter(|last| self.heard.leader == Leadership { term: last.term, leader: peer }),
        }
    }

    /// Whoever leads is remembered beyond its leadership: it has every entry of its term.
    pub(crate) fn remember_leader(&mut self) {
        let raft = &self.raw.raft;
        if raft.leader_id != 0 {
            self.heard.leader = Leadership { term: raft.term, leader: raft.leader_id };
        }
        self.histories.remember_leader(raft.term, raft.leader_id);
    }

    /// `peer` says what it has. `fresh`: it answers a question of this life.
    pub fn hear(&mut self, peer: u64, standing: Standing, fresh: bool) {
        let committed = self.heard.committed.entry(peer).or_default();
        *committed = standing.commit.max(*committed);
        if standing.doubt.is_some() {
            self.follower_lost(peer, standing.last.index);
        }
        let memory = (standing.acknowledged, standing.wrote);
        // What was said before has begun its doubt, and what became of that is known.
        let news = self.heard.remembered.insert(peer, memory) != Some(memory);
        let beyond = |place: &Position| news && *place > self.durable_position() && *place > self.last_position();
        let (acknowledged, wrote) = (standing.acknowledged.filter(beyond), standing.wrote.filter(beyond));
        if let Some(promise) = acknowledged {
            self.raise_lost_data(self.config.id);
            self.begin_doubt(Doubt { promise: Some(promise), vote: true, sure: false, torn: false });
        }
        if let Some(promise) = wrote {
            // A leader sends before its own flush, so this may be no loss: its votes are believed.
            // If its last write never finished, this is what it held.
            let torn = self.doubt.is_some_and(|doubt| doubt.torn);
            self.begin_doubt(Doubt { promise: Some(promise), vote: false, sure: false, torn });
        }
        if fresh {
            self.heard.standings.insert(peer, standing);
            self.ponder();
        }
    }

    /// The other voters that have not answered in this life, ascending.
    pub fn unheard(&self) -> Vec<u64> {
        let unheard = |id: &u64| !self.heard.standings.contains_key(id);
        self.other_voters().into_iter().filter(unheard).collect()
    }

    /// One more tick. A member whose last write never finished, as its disk shows, waits for the
    /// other voters to say the same. If some of them stay away, and nobody can lead without this
    /// one, its disk is believed.
    pub(crate) fn wait_for_leader(&mut self) {
        self.heard.leaderless = if self.leader() == 0 { self.heard.leaderless + 1 } else { 0 };
        let Some(doubt) = self.doubt.filter(|doubt| doubt.torn && !doubt.sure) else { return };
        if self.voters_lost() {
            return;
        }
        let (others, away) = (self.other_voters().len(), self.unheard().len());
        let enough = others - away + 1 > others.div_ceil(2);
        let patience = BELIEVED * u64::from(self.config.election_ticks);
        if away == 0 || !enough || self.heard.leaderless < patience {
            return;
        }
        self.doubt = Some(Doubt { promise: Some(self.durable_position()), vote: false, ..doubt });
        (self.out.tear_believed, self.out.doubt_changed) = (true, true);
        self.look_at_doubt();
    }

    fn other_voters(&self) -> Vec<u64> {
        let mut voters = self.conf().voters;
        voters.retain(|id| *id != self.config.id);
        voters
    }

    /// Who votes is not known here: the entries that say it are lost. It is known again once all
    /// that was promised is applied.
    pub fn voters_lost(&self) -> bool {
        let missing = |doubt: Doubt| doubt.promise.is_none_or(|promise| self.applied < promise.index);
        self.heard.voters_lost && self.doubt.is_some_and(missing)
    }

    /// What the standings that were heard say about the doubt.
    fn ponder(&mut self) {
        let Some(mut doubt) = self.doubt else { return };
        let term = self.raw.raft.term;
        let heard: Vec<Standing> =
            self.other_voters().iter().filter_map(|id| self.heard.standings.get(id).copied()).collect();
        let leader = heard.iter().find(|other| other.leads && other.term >= term);
        if let (None, Some(leader)) = (doubt.promise, leader) {
            // It has just forgotten what was acknowledged here before: nobody counts on more.
            doubt.promise = Some(leader.last);
        }
        let mut highest = None;
        // Counted among voters of an earlier time, what all of today have may look as if too few
        // had it.
        if !self.voters_lost() && self.unheard().is_empty() {
            if let Some(bound) = committed_at_most(self.durable_position(), doubt, &heard) {
                doubt.promise = Some(doubt.promise.map_or(bound, |promise| promise.min(bound)));
            }
            highest = heard.iter().map(|other| other.term).max();
        }
        self.out.doubt_changed |= self.doubt != Some(doubt);
        self.doubt = Some(doubt);
        if let Some(highest) = highest {
            self.votes_known(highest);
        }
        self.look_at_doubt();
    }

    /// Remembers how far each follower acknowledged, beyond this leadership.
    pub(crate) fn remember_acknowledged(&mut self, matched: &[Matched]) {
        for &Matched { peer, index } in matched {
            if let Ok(term) = self.raw.raft.raft_log.term(index)
                && term > 0
            {
                self.heard.acknowledged.insert(peer, Position { index, term });
            }
        }
    }

    fn committed_position(&self) -> Position {
        let log = &self.raw.raft.raft_log;
        Position { index: log.committed, term: log.term(log.committed).unwrap_or(0) }
    }

    /// The farthest place that anybody said to be committed.
    fn known_committed(&self) -> Position {
        self.heard.committed.values().copied().max().unwrap_or_default()
    }

    /// What `peer` said is about another history: it is as if it had said nothing, and it is not
    /// followed. A doubt that it began stays.
    pub fn forget(&mut self, peer: u64) {
        self.heard.committed.remove(&peer);
        self.heard.standings.remove(&peer);
        self.heard.remembered.remove(&peer);
        if peer != 0 && self.leader() == peer && self.role() != Role::Leader {
            self.follow_nobody();
        }
    }

    pub(crate) fn has_all_that_is_known_committed(&self) -> bool {
        self.last_position() >= self.known_committed()
    }

    /// The last entry, durable or not.
    fn last_position(&self) -> Position {
        let log = &self.raw.raft.raft_log;
        Position { index: log.last_index(), term: log.last_term() }
    }

    /// Every other voter has said its term, and `highest` is the highest: whoever got a vote that
    /// is forgotten here had told that term before. In it, and below it, no other vote is given.
    fn votes_known(&mut self, highest: u64) {
        let Some(doubt) = &mut self.doubt else { return };
        if !doubt.vote {
            return;
        }
        doubt.vote = false;
        self.out.doubt_changed = true;
        let id = self.config.id;
        self.call(|raw| {
            let raft = &mut raw.raft;
            if highest > raft.term {
                raft.become_follower(highest, 0);
            }
            if raft.vote == 0 {
                // Its own: it does not campaign in this term, and nobody else gets it.
                raft.vote = id;
            }
        });
    }

    /// Leader: `peer` says that its log ends at `last`, whatever it acknowledged before.
    fn follower_lost(&mut self, peer: u64, last: u64) {
        if self.role() != Role::Leader {
            return;
        }
        self.call(|raw| {
            let Some(progress) = raw.raft.mut_prs().get_mut(peer) else { return };
            if progress.matched > last {
                progress.matched = last;
                // What was sent to the life before counts no more, a snapshot neither.
                progress.pending_snapshot = 0;
                progress.become_probe();
                progress.next_idx = last + 1;
            }
        });
        self.heard.acknowledged.remove(&peer);
    }

    /// The last entry on the local disk.
    pub fn durable_position(&self) -> Position {
        let unsaved = self.first_unsaved().map_or(u64::MAX, |first| first - 1);
        let log = &self.raw.raft.raft_log;
        let index = log.persisted.min(unsaved);
        Position { index, term: log.term(index).unwrap_or(0) }
    }

    /// The promise is kept again once the durable log is at least as far.
    pub(crate) fn look_at_doubt(&mut self) {
        self.heard.voters_lost = self.voters_lost();
        let Some(doubt) = self.doubt else { return };
        let kept = doubt.promise.is_some_and(|promise| self.durable_position() >= promise);
        if kept && !doubt.vote {
            self.doubt = None;
            self.out.doubt_changed = true;
        }
    }

    /// May this request for a vote be heard? One that may not is dropped, as the network could.
    pub(crate) fn may_vote(&self, message: &Message) -> bool {
        let m = &message.0;
        let asks = matches!(m.get_msg_type(), MessageType::MsgRequestVote | MessageType::MsgRequestPreVote);
        if !asks {
            return true;
        }
        let candidate = Position { index: m.index, term: m.log_term };
        // Who lacks what somebody knows to be committed can win only among members that have lost
        // it.
        candidate >= self.known_committed()
            && !self.histories.contradicted()
            && self.doubt.is_none_or(|doubt| !doubt.vote && doubt.promise.is_some_and(|promise| candidate >= promise))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(index: u64) -> Position {
        Position { index, term: 2 }
    }

    /// `lost`: it has a doubt of its own.
    fn has(last: u64, lost: bool) -> Standing {
        let doubt = lost.then_some(Doubt { promise: None, vote: false, sure: false, torn: false });
        Standing {
            term: 2,
            last: at(last),
            leads: false,
            doubt,
            commit: Position::default(),
            acknowledged: None,
            wrote: None,
        }
    }

    #[test]
    fn what_too_few_can_have_was_never_committed() {
        // This member has 9 entries and lost some.
        let table: [(&[Standing], u64); 10] = [
            // Both others are whole and have no more.
            (&[has(9, false), has(9, false)], 9),
            (&[has(9, false), has(3, false)], 9),
            // One has more: with what was lost here it may be a quorum.
            (&[has(12, false), has(9, false)], 12),
            (&[has(10, true), has(9, false)], 10),
            // Power was cut for all while an entry was written: nobody has it.
            (&[has(9, true), has(9, true)], 9),
            // Five members: two that lost it and one that has it may be a quorum.
            (&[has(10, false), has(9, true), has(9, false), has(9, false)], 10),
            (&[has(10, false), has(9, false), has(9, false), has(9, false)], 9),
            (&[has(12, false), has(10, false), has(9, false), has(9, false)], 10),
            // Two members: a commit needs both, and this one's disk is no minority.
            (&[has(9, false)], 9),
            (&[has(12, false)], 9),
        ];
        for (others, place) in table {
            assert_eq!(committed_at_most(at(9), LOST, others), Some(at(place)), "{others:?}");
        }
    }

    const LOST: Doubt = Doubt { promise: None, vote: false, sure: false, torn: false };

    /// It ends at `last` and surely had everything up to `promise`.
    fn damaged(last: u64, promise: Option<u64>) -> Standing {
        let doubt = Some(Doubt { promise: promise.map(at), vote: false, sure: true, torn: false });
        Standing { doubt, ..has(last, true) }
    }

    #[test]
    fn what_a_quorum_surely_had_is_never_given_up() {
        let mine = |promise: Option<u64>| Doubt { promise: promise.map(at), vote: false, sure: true, torn: false };
        let table: [(Option<u64>, &[Standing], Option<u64>); 9] = [
            // The others are whole and have no more: only this member had it.
            (Some(20), &[has(9, false), has(9, false)], Some(9)),
            (Some(20), &[has(15, false), has(9, false)], Some(15)),
            // Two of three had it, and neither has it now: nobody who lacks it may lead.
            (Some(20), &[damaged(4, Some(20)), has(9, false)], Some(20)),
            (Some(20), &[damaged(4, Some(12)), has(9, false)], Some(12)),
            (Some(20), &[damaged(4, None), has(9, false)], Some(20)),
            (None, &[damaged(4, None), has(9, false)], None),
            // A torn end beside a sure loss may be real: the loss is no minority that uses it up
            // twice.
            (Some(20), &[has(9, true), has(9, false)], Some(9)),
            (Some(20), &[has(12, false), damaged(4, Some(11)), has(9, false), has(9, false)], Some(11)),
            (None, &[has(9, false), has(9, false)], Some(9)),
        ];
        for (promise, others, place) in table {
            assert_eq!(committed_at_most(at(9), mine(promise), others), place.map(at), "{promise:?} {others:?}");
        }
    }

    #[test]
    fn more_entries_of_an_earlier_term_are_not_farther() {
        let older = Standing { last: Position { index: 30, term: 1 }, ..has(0, false) };
        assert_eq!(committed_at_most(at(9), LOST, &[older, older]), Some(at(9)));
    }
}
