//! Forwards between members: those under way to a leader, and the numbers that a leader has seen.
//!
//! A forward is said once. It is under way until its entry is applied here or the leader refuses
//! it. Bytes under way are bounded; the rest waits in the gate, in order. A slow answer is no
//! reason to say anything again. When the connection breaks, or nothing moves for long (a full
//! queue drops frames), the follower asks by number what the leader has not seen, and only those
//! bodies are said again. Questions and forwards go through one lane in order, so a number that
//! is missing when its question is read was lost.

use crate::config::TICK_MS;
use crate::frame::SeqRange;
use std::collections::{BTreeMap, BTreeSet};

/// Without progress for so long, the numbers are asked; then after twice as long, and so on. Ticks.
const SILENCE: u64 = 2_000 / TICK_MS;
/// Longest time between two questions. Ticks.
const SILENCE_MOST: u64 = 30_000 / TICK_MS;
/// A leader that hands over is asked again after this. Ticks.
const UNWILLING: u64 = 500 / TICK_MS;
/// Refusals within this are of one crowd: the window shrinks once. Ticks.
const CROWD: u64 = 200 / TICK_MS;
/// The window does not shrink below this. Bytes.
const WINDOW_LEAST: u64 = 64 << 10;
/// What a forward takes beside its body: bounds their count too. Bytes.
const OVERHEAD: u64 = 64;
/// Numbers remembered per forwarding member: more than fit into the largest window.
const SEEN: usize = 1 << 16;

/// Lives of one member in one term whose numbers are remembered.
const LIVES: usize = 256;

/// The forwards of this member that are under way to one leader in one term.
#[derive(Default)]
pub(crate) struct Flight {
    to: u64,
    term: u64,
    /// By number: bytes. Also those whose askers went away: they may still be on the wire.
    under_way: BTreeMap<u64, u64>,
    bytes: u64,
    /// Most bytes under way. Halved when the leader has too much, and grown back by what arrives.
    window: u64,
    shrunk_at: u64,
    /// Tick of the next question, and how long after it the one behind it comes.
    ask_at: u64,
    wait: u64,
    token: u64,
    /// Questions with smaller tokens were asked before bodies were said again.
    valid_from: u64,
    said: u64,
    said_again: u64,
}

impl Flight {
    /// Forwards go to this leader from now on. Those to another one are left to the fence.
    pub(crate) fn head_for(&mut self, to: u64, term: u64, window: u64) {
        if (self.to, self.term) != (to, term) {
            (self.to, self.term, self.window) = (to, term, window);
            self.clear();
        }
    }

    /// Nothing is under way any more.
    pub(crate) fn clear(&mut self) {
        self.under_way.clear();
        self.bytes = 0;
    }

    /// Whether a body of so many bytes may be sent now. The first one may always.
    pub(crate) fn has_room(&self, body: usize) -> bool {
        self.under_way.is_empty() || self.bytes + body as u64 + OVERHEAD <= self.window
    }

    pub(crate) fn sent(&mut self, seq: u64, body: usize, now: u64) {
        if self.under_way.is_empty() {
            self.moved(now);
        }
        let bytes = body as u64 + OVERHEAD;
        self.under_way.insert(seq, bytes);
        self.bytes += bytes;
        self.said += 1;
    }

    fn moved(&mut self, now: u64) {
        self.wait = SILENCE;
        self.ask_at = now + SILENCE;
    }

    /// Its entry was applied, or the leader refused it, or it was lost and nobody wants it.
    /// `most`: the largest window.
    pub(crate) fn landed(&mut self, seq: u64, now: u64, most: u64) {
        let oldest = self.under_way.first_key_value().is_some_and(|(first, _)| *first == seq);
        let Some(bytes) = self.under_way.remove(&seq) else { return };
        self.bytes -= bytes;
        self.window = most.min(self.window + bytes / 8);
        if oldest {
            // Forwards land in order: one that was dropped stays the oldest while later ones land.
            self.moved(now);
        }
    }

    /// The leader has too much: less is sent at once.
    pub(crate) fn crowded(&mut self, now: u64) {
        if self.shrunk_at == 0 || now - self.shrunk_at >= CROWD {
            self.shrunk_at = now;
            self.window = (self.window / 2).max(WINDOW_LEAST);
        }
    }

    /// The leader took none of these for now.
    pub(crate) fn unwilling(&mut self, seqs: &[u64], now: u64) {
        if seqs.iter().any(|seq| self.under_way.contains_key(seq)) {
            self.ask_at = now + UNWILLING;
        }
    }

    /// What was queued on the connection is gone.
    pub(crate) fn lost(&mut self, peer: u64, now: u64) {
        if peer == self.to {
            self.ask_at = now;
        }
    }

    /// The question that is due, if the leader is still the one they are under way to.
    pub(crate) fn question(&mut self, leader: u64, term: u64, now: u64) -> Option<(u64, Vec<SeqRange>)> {
        if self.under_way.is_empty() || (leader, term) != (self.to, self.term) || now < self.ask_at {
            return None;
        }
        self.ask_at = now + self.wait;
        self.wait = (2 * self.wait).min(SILENCE_MOST);
        self.token += 1;
        Some((self.token, ranges(self.under_way.keys().copied())))
    }

    /// Which of the missing ones are still under way. None of an answer that is out of date, and
    /// none once `leader` or `term` is another: a forward is said in the term that it was first
    /// said in.
    pub(crate) fn missing(&self, leader: u64, term: u64, token: u64, missing: &[SeqRange]) -> Vec<u64> {
        if (leader, term) != (self.to, self.term) || token < self.valid_from || token > self.token {
            return Vec::new();
        }
        missing.iter().flat_map(|range| self.under_way.range(range.first..=range.last)).map(|(seq, _)| *seq).collect()
    }

    /// So many bodies were said again.
    pub(crate) fn sent_again(&mut self, bodies: u64) {
        self.valid_from = self.token + 1;
        self.said_again += bodies;
    }

    pub(crate) fn figures(&self) -> Figures {
        Figures { bytes: self.bytes, said: self.said, said_again: self.said_again }
    }
}

/// What became of the forwards of this life.
pub(crate) struct Figures {
    /// Under way.
    pub(crate) bytes: u64,
    /// Bodies said, and those of them that were said again.
    pub(crate) said: u64,
    pub(crate) said_again: u64,
}

/// Ascending numbers as runs.
fn ranges(seqs: impl Iterator<Item = u64>) -> Vec<SeqRange> {
    let mut ranges: Vec<SeqRange> = Vec::new();
    for seq in seqs {
        match ranges.last_mut() {
            Some(range) if range.last + 1 == seq => range.last = seq,
            _ => ranges.push(SeqRange { first: seq, last: seq }),
        }
    }
    ranges
}

/// One life of a member's process: it draws a boot at each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Life {
    pub(crate) member: u64,
    pub(crate) boot: u64,
}

/// Leader: the numbers seen in its term. Kept per life of a member: a frame of an earlier life may
/// come late, and must not make the numbers of the present one new again.
#[derive(Default)]
pub(crate) struct Seen {
    term: u64,
    lives: BTreeMap<Life, Numbers>,
    uses: u64,
}

#[derive(Default)]
struct Numbers {
    /// The later, the higher.
    used: u64,
    floor: u64,
    numbers: BTreeSet<u64>,
    /// Those of them that were refused for good.
    refused: BTreeSet<u64>,
}

impl Seen {
    /// True once per number.
    pub(crate) fn first(&mut self, life: Life, term: u64, seq: u64) -> bool {
        self.life(life, term).first(seq)
    }

    fn life(&mut self, life: Life, term: u64) -> &mut Numbers {
        if self.term != term {
            *self = Seen { term, ..Seen::default() };
        }
        if !self.lives.contains_key(&life) {
            self.forget_earlier_life(life.member);
        }
        self.uses += 1;
        let numbers = self.lives.entry(life).or_default();
        numbers.used = self.uses;
        numbers
    }

    /// A member that has started very often in one term must be heard all the same. What its lives
    /// of long ago have said does not come any more.
    fn forget_earlier_life(&mut self, member: u64) {
        let of_member = Life { member, boot: 0 }..=Life { member, boot: u64::MAX };
        let lives = self.lives.range(of_member);
        if lives.clone().count() >= LIVES
            && let Some((earliest, _)) = lives.min_by_key(|(_, numbers)| numbers.used)
        {
            let earliest = *earliest;
            self.lives.remove(&earliest);
        }
    }

    /// The number was not used after all.
    pub(crate) fn forget(&mut self, life: Life, seq: u64) {
        if let Some(numbers) = self.lives.get_mut(&life) {
            numbers.numbers.remove(&seq);
        }
    }

    /// The number was refused: it stays used.
    pub(crate) fn refuse(&mut self, life: Life, seq: u64) {
        if let Some(numbers) = self.lives.get_mut(&life) {
            numbers.refused.insert(seq);
        }
    }

    /// Which of these were not seen, and which were refused.
    pub(crate) fn sort(&mut self, life: Life, term: u64, asked: &[SeqRange]) -> (Vec<SeqRange>, Vec<u64>) {
        let numbers = self.life(life, term);
        let missing = asked.iter().flat_map(|range| numbers.missing(*range)).collect();
        let refused = asked.iter().flat_map(|range| numbers.refused.range(range.first..=range.last)).copied();
        (missing, refused.collect())
    }
}

impl Numbers {
    fn first(&mut self, seq: u64) -> bool {
        if seq <= self.floor || !self.numbers.insert(seq) {
            return false;
        }
        if self.numbers.len() > SEEN {
            self.floor = self.numbers.pop_first().expect("not empty");
            self.refused.remove(&self.floor);
        }
        true
    }

    /// The gaps. Takes no longer than there are numbers, however long the range is.
    fn missing(&self, range: SeqRange) -> Vec<SeqRange> {
        let mut gaps = Vec::new();
        let mut next = range.first.max(self.floor + 1);
        if next > range.last {
            return gaps;
        }
        for seq in self.numbers.range(next..=range.last) {
            if *seq > next {
                gaps.push(SeqRange { first: next, last: seq - 1 });
            }
            next = seq + 1;
        }
        if next <= range.last {
            gaps.push(SeqRange { first: next, last: range.last });
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 1 << 20;

    fn range(first: u64, last: u64) -> SeqRange {
        SeqRange { first, last }
    }

    fn life(boot: u64) -> Life {
        Life { member: 3, boot }
    }

    fn flight(bodies: u64) -> Flight {
        let mut flight = Flight::default();
        flight.head_for(2, 5, WINDOW);
        (1..=bodies).for_each(|seq| flight.sent(seq, 100, 0));
        flight
    }

    #[test]
    fn a_number_is_new_once_per_term_and_life() {
        let mut seen = Seen::default();
        assert!(seen.first(life(1), 5, 10));
        assert!(!seen.first(life(1), 5, 10));
        assert!(seen.first(life(1), 5, 9), "a later copy of an earlier loss is still new");
        assert!(seen.first(life(1), 6, 10), "another term");
        assert!(seen.first(life(2), 6, 10), "another life");
        assert!(!seen.first(life(1), 6, 10), "a late frame of the earlier life");
        assert!(!seen.first(life(2), 6, 10), "the earlier life's frame made nothing new");
    }

    #[test]
    fn the_latest_lives_of_a_member_are_remembered() {
        let mut seen = Seen::default();
        for boot in 1..=2 * LIVES as u64 {
            assert!(seen.first(life(1_000), 5, boot), "this life goes on");
            assert!(seen.first(life(boot), 5, 10));
        }
        assert_eq!(seen.lives.len(), LIVES);
        assert!(!seen.first(life(2 * LIVES as u64), 5, 10) && !seen.first(life(1_000), 5, 1));
    }

    #[test]
    fn numbers_below_the_memory_count_as_seen() {
        let mut seen = Seen::default();
        for seq in 1..=(SEEN as u64 + 10) {
            assert!(seen.first(life(1), 1, seq));
        }
        assert!(!seen.first(life(1), 1, 3));
        assert_eq!(seen.sort(life(1), 1, &[range(1, SEEN as u64 + 12)]).0, [range(SEEN as u64 + 11, SEEN as u64 + 12)]);
    }

    #[test]
    fn what_was_not_seen_and_what_was_refused_is_told_by_number() {
        let mut seen = Seen::default();
        for seq in [3, 4, 7] {
            assert!(seen.first(life(1), 1, seq));
        }
        seen.refuse(life(1), 4);
        let (missing, refused) = seen.sort(life(1), 1, &[range(1, 5), range(7, u64::MAX - 1)]);
        assert_eq!(missing, [range(1, 2), range(5, 5), range(8, u64::MAX - 1)]);
        assert_eq!(refused, [4]);
        assert_eq!(seen.sort(life(1), 2, &[range(3, 4)]), (vec![range(3, 4)], vec![]), "another term");
    }

    #[test]
    fn the_window_bounds_what_is_under_way_and_shrinks_when_refused() {
        let mut flight = Flight::default();
        flight.head_for(2, 5, WINDOW);
        assert!(flight.has_room(2 << 20), "the first one always fits");
        flight.sent(1, 2 << 20, 0);
        assert!(!flight.has_room(1));
        flight.crowded(1);
        flight.crowded(2);
        assert_eq!(flight.window, WINDOW / 2, "refusals of one crowd count once");
        flight.landed(1, 3, WINDOW);
        assert_eq!((flight.window, flight.figures().bytes), (WINDOW * 3 / 4 + OVERHEAD / 8, 0));
        for at in 1..20 {
            flight.crowded(100 * at);
        }
        assert_eq!(flight.window, WINDOW_LEAST);
    }

    #[test]
    fn numbers_are_asked_after_silence_and_ever_more_rarely() {
        let mut flight = flight(3);
        let asked: Vec<u64> = (1..=2_000).filter(|now| flight.question(2, 5, *now).is_some()).collect();
        assert_eq!(asked, [200, 400, 800, 1600]);
        flight.landed(3, 2_000, WINDOW);
        assert_eq!(flight.question(2, 5, 2_100), None, "back-off goes on");
        flight.landed(1, 2_100, WINDOW);
        assert_eq!(flight.question(2, 5, 2_299), None, "the oldest landed");
        assert_eq!(flight.question(2, 5, 2_300).expect("silence").1, [range(2, 2)]);
        assert_eq!(flight.question(3, 6, 9_000), None, "another leader");
    }

    #[test]
    fn a_broken_connection_is_asked_about_at_once() {
        let mut flight = flight(3);
        flight.lost(9, 5);
        assert_eq!(flight.question(2, 5, 5), None, "not the leader's");
        flight.lost(2, 5);
        assert_eq!(flight.question(2, 5, 5).expect("at once").1, [range(1, 3)]);
    }

    #[test]
    fn bodies_are_said_again_once_for_all_questions_asked_before() {
        let mut flight = flight(3);
        flight.lost(2, 5);
        let (first, _) = flight.question(2, 5, 5).expect("asked");
        flight.lost(2, 6);
        let (second, _) = flight.question(2, 5, 6).expect("asked");
        assert_eq!(flight.missing(2, 5, first, &[range(2, 90)]), [2, 3]);
        assert!(flight.missing(0, 5, first, &[range(2, 90)]).is_empty(), "the leader is gone");
        assert!(flight.missing(2, 6, first, &[range(2, 90)]).is_empty(), "in a later term they are sent anew");
        flight.sent_again(2);
        assert!(flight.missing(2, 5, second, &[range(2, 90)]).is_empty(), "asked before the bodies left again");
        flight.lost(2, 7);
        let (third, _) = flight.question(2, 5, 7).expect("asked");
        assert_eq!(flight.missing(2, 5, third, &[range(3, 3)]), [3]);
        assert!(flight.missing(2, 5, third + 1, &[range(3, 3)]).is_empty(), "never asked");
    }
}
