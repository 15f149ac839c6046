//! Members tell each other their standing: after a start, and as long as one of them has a doubt.
//!
//! A member that may have lost what it promised (a torn end of its log, an older or an emptied
//! disk) votes as if it still had it; consensus decides when that is over. What it needs to know
//! comes from the other voters: how far their logs go, their terms, and how far they remember this
//! member. Each start asks once, because an older copy of a disk does not know that it is one.

use crate::config::TICK_MS;
use crate::frame::Frame;
use crate::ground::Ground;
use crate::io::*;
use crate::jobs::Task;
use consensus::{Doubt, Standing};

/// Questions in doubt. Ticks.
const IN_DOUBT: u64 = 200 / TICK_MS;
/// First question to a voter that was not heard in this life, and the longest pause before the
/// next. Ticks.
const FIRST: u64 = 100 / TICK_MS;
const LONGEST: u64 = 5_000 / TICK_MS;

/// A member that lost something says so when it has known no leader for so long. Ticks.
const NOBODY_LEADS: u64 = 5_000 / TICK_MS;

#[derive(Default)]
pub(crate) struct Doubts {
    /// When the voters are asked next, and the pause after it. Ticks.
    due: u64,
    pause: u64,
    /// A doubt is remembered on disk, or about to be.
    kept: bool,
    /// The doubt is over: it is forgotten on disk when this save is durable.
    clears: Option<u64>,
    /// It was told that nobody leads while this member has lost something.
    told: bool,
}

impl Doubts {
    /// `kept`: recovery found a doubt.
    pub(crate) fn new(kept: bool) -> Doubts {
        Doubts { due: 1, pause: FIRST, kept, clears: None, told: false }
    }

    pub(crate) fn tick(&mut self, g: &mut Ground) {
        self.tell_loss(g);
        if g.now < self.due {
            return;
        }
        let asked = match g.consensus.doubt() {
            // Everybody again: what they have changes.
            Some(_) => g.voters(),
            None => g.consensus.unheard(),
        };
        self.due = match (asked.is_empty(), g.consensus.doubt().is_some()) {
            (true, _) => g.now + LONGEST,
            (false, true) => g.now + IN_DOUBT,
            (false, false) => {
                self.pause = (self.pause * 2).min(LONGEST);
                g.now + self.pause
            }
        };
        for to in asked {
            let (boot, standing) = (g.config.boot, g.consensus.standing(to));
            g.send(to, Frame::Standing { boot, question: true, standing });
        }
    }

    /// What is surely lost is told while nobody leads: this member may be why.
    fn tell_loss(&mut self, g: &mut Ground) {
        let lost = g.consensus.doubt().filter(|doubt| doubt.sure);
        let (Some(lost), false) = (lost, self.told || g.leader != 0 || g.now < NOBODY_LEADS) else { return };
        self.told = true;
        let upto = lost.promise.map_or("up to an entry that nobody has told yet".to_string(), |at| {
            format!("up to entry {} of term {}", at.index, at.term)
        });
        let text = format!(
            "nobody leads, and this member has lost what it had acknowledged, {upto}: it waits for a member that has \
             all of it; its damaged files are in the folder aside"
        );
        g.note(Level::Error, text);
    }

    /// The disk of this member is believed, because not all voters can be asked.
    pub(crate) fn believed(&mut self, g: &mut Ground) {
        let away: Vec<String> = g.consensus.unheard().iter().map(|member| format!("{member:x}")).collect();
        let text = format!(
            "nobody has led for long, and {} cannot be asked: the last write of this member never finished, as its \
             sectors show, so it is taken as one that nobody was told of",
            away.join(", ")
        );
        g.note(Level::Warn, text);
    }

    /// `boot`: the life of the member that asked.
    pub(crate) fn on_standing(&mut self, g: &mut Ground, from: u64, boot: u64, question: bool, standing: Standing) {
        if g.store.member(from).is_none() || (!question && boot != g.config.boot) {
            return;
        }
        g.consensus.hear(from, standing, !question);
        if question {
            // After it was heard: a leader has forgotten what the asker lost.
            let standing = g.consensus.standing(from);
            g.send(from, Frame::Standing { boot, question: false, standing });
        }
    }

    /// The connection to a peer broke, or it was not there: it may be up again, in another life.
    pub(crate) fn lost(&mut self, g: &Ground) {
        self.pause = FIRST;
        self.due = self.due.min(g.now + LONGEST / 5);
    }

    /// Consensus began to doubt, learned more, or is done with it: the disk remembers it first of
    /// all. What ended it, a vote or entries, must be there before, also what is not handed out
    /// yet.
    pub(crate) fn changed(&mut self, g: &mut Ground) {
        let doubt = g.consensus.doubt();
        match doubt {
            Some(Doubt { promise: Some(at), .. }) => g.note(
                Level::Warn,
                format!(
                    "this member may have lost entries up to {} of term {}: it votes for nobody who has less until \
                     they are here again, or the other members show that they were never committed",
                    at.index, at.term
                ),
            ),
            Some(_) => g.note(
                Level::Warn,
                "this member may have lost entries or a vote, and nobody has told how far: it does not vote until \
                 the other members have"
                    .to_string(),
            ),
            None => g.note(Level::Info, "nothing that this member promised is missing any more".to_string()),
        }
        self.due = self.due.min(g.now + IN_DOUBT);
        self.clears = None;
        match g.consensus.unsaved() {
            _ if doubt.is_some() => self.keep(g, doubt),
            Some(number) if self.kept => self.clears = Some(number),
            None if self.kept => self.keep(g, None),
            _ => {}
        }
    }

    /// The save with this number is durable, and all before it.
    pub(crate) fn saved(&mut self, g: &mut Ground, number: u64) {
        if self.clears.take_if(|awaited| number >= *awaited).is_some() {
            self.keep(g, None);
        }
    }

    fn keep(&mut self, g: &mut Ground, doubt: Option<Doubt>) {
        self.kept = doubt.is_some();
        let hard = g.consensus.hard();
        g.start(Task::KeepDoubt, LogJob::KeepDoubt { doubt, hard });
    }
}
