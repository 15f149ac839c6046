//! Whether clients get anything from this member: how long what they wait for has not moved.
//!
//! Heartbeats only show that the core thread lives. A member whose disk or whose apply hangs would
//! answer them for ever. So the oldest save, the oldest committed and unapplied entry, and the
//! oldest unanswered read or keep-alive are watched, and the oldest piece of a snapshot, or step of
//! a checkpoint, that a follower waits for.
//!
//! - A member that saves or applies nothing for an election timeout is *unable*, and so is one that
//!   reads no piece of a snapshot, or writes no checkpoint, for five. It tells the others. It is no
//!   successor of a leader, and it does not campaign while another member may.
//! - A leader with something older than an election timeout hands over to an able voter. A second
//!   timeout later it steps down. If no able voter is there, it goes on leading: an election would
//!   bring nothing better.
//!
//! Ages count ticks that this member lived through. A pause of its own process makes nothing older.

use crate::frame::Frame;
use crate::ground::{Bar, Ground};
use crate::io::Level;

/// An unable member stands for election when no leader was heard for so many election timeouts:
/// no able member is left then.
const LAST_RESORT: u64 = 3;
/// What a peer said of itself counts for so many election timeouts. It repeats it after each.
const BELIEVED: u64 = 3;

/// How long the oldest of each kind has waited, in ticks. 0: none waits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ages {
    /// On its way to the disk.
    pub(crate) save: u64,
    /// Committed and not applied.
    pub(crate) apply: u64,
    /// Reads and keep-alives, own ones and those of other members.
    pub(crate) read: u64,
    /// Pieces of a snapshot for a follower.
    pub(crate) piece: u64,
    /// Steps of a checkpoint that a follower waits for.
    pub(crate) checkpoint: u64,
}

/// A piece of a snapshot may wait behind a long step of a checkpoint, and that step is long: they
/// have so many times the patience.
const PIECE: u64 = 5;

impl Ages {
    /// The first kind that has waited too long, in words, and for how many times `limit`.
    fn overdue(&self, limit: u64) -> Option<(&'static str, u64)> {
        let kinds = [
            (self.save, 1, "the log's disk has not answered"),
            (self.apply, 1, "committed entries have not been applied"),
            (self.read, 1, "a read or a keep-alive has not been answered"),
            (self.piece, PIECE, "a piece of a snapshot for a follower has not been read"),
            (self.checkpoint, PIECE, "a checkpoint that a follower waits for has not been written"),
        ];
        kinds.into_iter().find(|(age, times, _)| *age >= limit * times).map(|(_, times, words)| (words, times))
    }
}

#[derive(Default)]
pub(crate) struct Watchdog {
    /// Saves or apply hang.
    hangs: bool,
    /// What the other members were last told, and when.
    unable: bool,
    told: u64,
    /// The tick at which this member began to lead.
    leads_since: u64,
    /// The last tick in which it had applied nothing of its term: a leader answers reads from then
    /// on.
    serves_since: u64,
    /// As leader, something is overdue.
    overdue: Option<Overdue>,
}

struct Overdue {
    /// Commands wait, whether or not there is a successor: the log takes nothing.
    saves: bool,
    /// The tick at which a successor was first there.
    since: Option<u64>,
    handed_over: bool,
}

impl Watchdog {
    /// `unfit`: this member must not lead for another reason.
    pub(crate) fn tick(&mut self, g: &mut Ground, ages: Ages, unfit: bool) {
        // Two leaders that cannot read for a follower would hand over to each other for ever.
        let slow = ages.piece.max(ages.checkpoint) >= PIECE * g.config.election_ticks();
        self.watch_ability(g, ages.save.max(ages.apply), unfit || slow);
        self.watch_leader(g, ages);
    }

    /// Commands wait for the next leader.
    pub(crate) fn holds_commands(&self) -> bool {
        self.overdue.as_ref().is_some_and(|overdue| overdue.saves || overdue.handed_over)
    }

    pub(crate) fn leader_changed(&mut self, g: &Ground) {
        self.overdue = None;
        (self.leads_since, self.serves_since) = (g.now, g.now);
    }

    /// What a peer said of itself.
    pub(crate) fn on_able(&mut self, g: &mut Ground, peer: u64, able: bool) {
        let until = g.now + BELIEVED * g.config.election_ticks();
        g.set_unable(peer, (!able).then_some(until));
    }

    fn watch_ability(&mut self, g: &mut Ground, age: u64, unfit: bool) {
        let timeout = g.config.election_ticks();
        // Able again when it is well below the limit, so that a slow member does not change its
        // word all the time.
        self.hangs = age >= if self.hangs { timeout / 2 } else { timeout };
        let unable = self.hangs || unfit;
        if unable != self.unable || (unable && g.now - self.told >= timeout) {
            (self.unable, self.told) = (unable, g.now);
            for to in g.peers() {
                g.send(to, Frame::Able { able: !unable });
            }
        }
        g.bar(Bar::Unable, unable && g.consensus.leader_silence() < LAST_RESORT * timeout);
    }

    fn watch_leader(&mut self, g: &mut Ground, ages: Ages) {
        let timeout = g.config.election_ticks();
        // What waited under another leader is not this one's fault.
        let led = g.now - self.leads_since;
        if g.store.applied().term < g.consensus.term() {
            self.serves_since = g.now;
        }
        let ages = Ages { read: ages.read.min(g.now - self.serves_since), ..ages };
        let found = ages.overdue(timeout).filter(|_| g.is_leader() && led >= timeout);
        let Some((words, times)) = found else {
            self.overdue = None;
            return;
        };
        let successor = g.successor().filter(|able| g.has_all_committed(*able));
        let overdue = self.overdue.get_or_insert_with(|| {
            let ms = times * g.config.election_ms;
            let then = match successor {
                Some(_) => "giving up leadership",
                None => "no other member is able to lead now",
            };
            g.note(Level::Error, format!("{words} for {ms} ms: {then}"));
            Overdue { saves: false, since: None, handed_over: false }
        });
        overdue.saves = ages.save >= timeout;
        let Some(successor) = successor else {
            overdue.handed_over = false;
            return;
        };
        let since = *overdue.since.get_or_insert(g.now);
        if !overdue.handed_over {
            overdue.handed_over = g.consensus.transfer(successor).is_ok();
        }
        if g.now - since >= timeout {
            g.consensus.step_down();
        }
    }
}
