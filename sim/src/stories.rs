//! Harm to disks, carried out: some members fall behind, one goes down, its disk is not what it
//! was. A minority at most is harmed until all is whole again.

use crate::badday::{End, Harm, Spot, Story};
use crate::cluster::{Event, Member, Sim};
use crate::differs::Differing;
use crate::disk::{Image, Rotten};
use crate::oracle::Harmed;
use crate::plan::{MS, SECOND, Who};
use crate::run::Phase;
use crate::trace::Time;
use bytes::Bytes;
use disk::checkpoint::{Manifest, SegmentFile};
use std::io::ErrorKind;

/// A disk that was harmed, or is about to be.
#[derive(Debug)]
pub(crate) struct Hurt {
    /// None: bytes changed under a running member.
    story: Option<Story>,
    /// The disk as it was when the story began.
    older: Image,
    /// The disk as it was when it was harmed, for an operator who puts it back.
    right: Option<Image>,
    rotten: Vec<Rotten>,
    /// When a record was spoilt that no checkpoint named yet.
    fresh: Option<Time>,
    struck: bool,
    /// The product refused to start from it.
    pub refused: bool,
    /// Applied up to here it is whole again.
    target: u64,
    /// Its state is another than that of the others.
    pub differs: Option<Differing>,
}

/// When the disk lies about the log before the power goes.
const LIES: Time = 200 * MS;

impl Sim {
    /// Disks that are not what they were.
    pub(crate) fn is_hurt(&self, who: usize) -> bool {
        self.hurts.contains_key(&who)
    }

    /// Bytes of its files that were changed.
    pub(crate) fn rotten_of(&self, who: usize) -> Vec<Rotten> {
        self.hurts.get(&who).map(|hurt| hurt.rotten.clone()).unwrap_or_default()
    }

    /// It runs without a state.
    pub(crate) fn lacks_state(&self, who: usize) -> bool {
        self.members[who].up.as_ref().is_some_and(|life| life.barred) && self.oracle.lacks_state(who)
    }

    /// Other bytes were written over the end of its log.
    pub(crate) fn lost_its_tail(&self, who: usize) -> bool {
        let story = self.hurts.get(&who).and_then(|hurt| hurt.story);
        story.is_some_and(|story| matches!(story.harm, Harm::TailGone { .. }))
    }

    /// A source of pieces may be damaged.
    pub(crate) fn any_hurt(&self) -> bool {
        !self.hurts.is_empty()
    }

    /// True while a disk is harmed without a trace: those who can tell must be there.
    pub(crate) fn is_quiet(&self) -> bool {
        self.hurts.values().any(|h| h.story.is_some_and(|s| s.harm.is_silent()))
    }

    fn is_calm(&self) -> bool {
        let n = self.members.len();
        // Where members come and go, a slot may stand empty.
        let counts = |m: &&Member| !(self.has_operator() && m.gone);
        let members = self.members.iter().filter(counts);
        members.into_iter().all(|m| m.up.is_some() && m.disk.is_well(self.now) && !m.clock.frozen(self.now))
            && self.hurts.is_empty()
            && self.operator_rests()
            && !(0..n).any(|who| self.is_joining(who))
            && !(0..n).any(|a| (0..n).any(|b| self.net.is_cut(a, b)))
    }

    fn named(&self, who: Who) -> Option<usize> {
        let who = match who {
            Who::Nth(at) => Who::Nth(at % self.members.len()),
            leader => leader,
        };
        self.who(who)
    }

    pub(crate) fn begin_story(&mut self, nth: usize, story: Story) -> bool {
        let may = |who: &usize| match story.harm {
            Harm::StateGone | Harm::StateFolder => self.may_lose_state(*who),
            _ => self.may_hurt(*who),
        };
        let Some(who) = self.named(story.who).filter(may) else { return false };
        let differs = matches!(story.harm, Harm::Differs { .. });
        if (story.harm.is_silent() && !self.is_calm()) || (differs && self.started_over(who)) {
            return false;
        }
        let older = match story.harm {
            Harm::OlderFounding { elections } | Harm::ForeignLog { elections } => {
                self.disk_of_another_founding(who, elections)
            }
            _ => self.members[who].disk.durable_image(self.now),
        };
        self.hurts.insert(
            who,
            Hurt {
                story: Some(story),
                older,
                right: None,
                rotten: Vec::new(),
                fresh: None,
                struck: false,
                refused: false,
                target: 0,
                differs: None,
            },
        );
        if story.behind > 0 {
            for late in self.behind(who) {
                for other in (0..self.members.len()).filter(|&o| o != late) {
                    self.net.cut(late, other);
                    self.net.cut(other, late);
                    self.break_pair(late, other);
                }
            }
        }
        let strike = self.now + story.behind.max(2 * LIES);
        if story.harm == Harm::LostWrites {
            self.at(strike - LIES, Event::Lie { who });
        }
        self.at(strike, Event::Strike { nth, who });
        true
    }

    pub(crate) fn lie(&mut self, who: usize) {
        if self.is_hurt(who) && self.phase == Phase::Safety {
            self.members[who].disk.trouble(|t| t.loses_log = true);
        }
    }

    /// The member goes down; those behind come back.
    pub(crate) fn strike_story(&mut self, nth: usize, who: usize) {
        let Some(story) = self.hurts.get(&who).filter(|h| !h.struck).and_then(|h| h.story) else { return };
        if story.behind > 0 {
            self.heal();
        }
        if self.phase != Phase::Safety || self.members[who].up.is_none() {
            self.members[who].disk.trouble(|t| t.loses_log = false);
            self.hurts.remove(&who);
            return;
        }
        self.tell(Some(who), "harm", nth as u64, 0, || format!("{story:?}"));
        if story.all {
            self.strike_others(who, story);
        }
        match story.end {
            End::Clean => {
                self.begin_stop(who, story.down);
                let life = self.members[who].life;
                self.at(self.now + 5 * SECOND, Event::Crash { who, life, power: false, down: story.down });
            }
            end => self.crash(who, end == End::Power, Some(story.down)),
        }
    }

    /// The others die too. Who can tell what was lost comes back before the harmed one if only it
    /// can tell, else after it.
    fn strike_others(&mut self, who: usize, story: Story) {
        let behind = self.behind(who);
        for other in self.standing() {
            if other == who {
                continue;
            }
            let down = match (story.harm.is_silent(), behind.contains(&other)) {
                (true, _) => 1 + story.down / 4,
                (false, true) => 1 + story.down / 2,
                (false, false) => story.down + 3 * SECOND,
            };
            self.crash(other, story.end == End::Power, Some(down));
        }
    }

    /// Called before the power goes: what the disk pretended to have.
    pub(crate) fn remember_pretended(&mut self, who: usize) {
        let image = self.members[who].disk.image();
        if let Some(hurt) = self.hurts.get_mut(&who) {
            hurt.right = Some(image);
        }
    }

    /// Called when a process is dead: its disk is harmed now.
    pub(crate) fn harm(&mut self, who: usize) {
        let Some(hurt) = self.hurts.get_mut(&who).filter(|h| !h.struck) else { return };
        let Some(story) = hurt.story else { return };
        hurt.struck = true;
        let disk = self.members[who].disk.clone();
        disk.trouble(|t| t.loses_log = false);
        hurt.right.get_or_insert_with(|| disk.durable_image(self.now));
        let draw = self.rng.draw();
        let done = match story.harm {
            Harm::Emptied => {
                disk.empty();
                true
            }
            Harm::Older | Harm::OlderFounding { .. } => {
                disk.restore(&hurt.older);
                true
            }
            Harm::OlderLog => disk.older_log(&hurt.older),
            Harm::LogGone => disk.lose_newest_log(),
            Harm::LogAndTip => {
                let lost = disk.lose_newest_log();
                if lost {
                    disk.lose_file("log/tip");
                }
                lost
            }
            Harm::TailGone { zeros, tip, draw } => {
                if tip {
                    disk.lose_file("log/tip");
                }
                disk.lose_tail(zeros, draw)
            }
            Harm::ForeignLog { .. } => {
                disk.restore(&hurt.older);
                disk.lose_checkpoints();
                true
            }
            Harm::StateGone => disk.lose_checkpoints(),
            Harm::StateFolder => disk.lose_folder("state"),
            Harm::LogHole(spot, draw) => {
                hurt.rotten.extend(disk.rot_log(spot, draw));
                !hurt.rotten.is_empty()
            }
            Harm::TailRot(spot) => {
                hurt.rotten.extend(disk.rot_tail(spot, draw));
                !hurt.rotten.is_empty()
            }
            Harm::Rot(spot, draw) => {
                hurt.rotten.extend(disk.rot_anywhere(spot, draw));
                !hurt.rotten.is_empty()
            }
            Harm::BadSector(draw) => {
                hurt.rotten.extend(disk.lose_sector(draw));
                !hurt.rotten.is_empty()
            }
            Harm::LostWrites => true,
            Harm::Misdirected => disk.misdirect(&hurt.older),
            Harm::Differs { leads } => {
                hurt.differs = Some(Differing::new(leads));
                disk.differ()
            }
        };
        hurt.target = self.oracle.last_durable();
        let (rotten, right) = (hurt.rotten.clone(), hurt.right.clone());
        if !done {
            self.hurts.remove(&who);
            return;
        }
        let foreign = matches!(story.harm, Harm::OlderFounding { .. } | Harm::ForeignLog { .. });
        let names_founding = self.members[who].disk.has(disk::history::PATH);
        let unknowable = match foreign {
            true => names_founding && self.could_join(who),
            false => story.all && story.harm.is_silent() && self.nobody_could_know(who),
        };
        if unknowable {
            self.tell(Some(who), "spared", 0, 0, || format!("{:?}: nobody could know what is lost", story.harm));
            self.members[who].disk.restore(&right.expect("remembered before the harm"));
            self.hurts.remove(&who);
            return;
        }
        let of_state = |rotten: &Rotten| rotten.path.starts_with("state/");
        let harmed = match story.harm {
            Harm::Differs { .. } => Harmed::Differs,
            Harm::StateGone | Harm::StateFolder => Harmed::State,
            // What is of no founding yet is heard: it has nothing that could be of another one.
            Harm::OlderFounding { .. } | Harm::ForeignLog { .. } if !names_founding => Harmed::Yes,
            Harm::OlderFounding { .. } | Harm::ForeignLog { .. } => Harmed::Foreign,
            _ if !rotten.is_empty() && rotten.iter().all(of_state) => Harmed::State,
            _ => Harmed::Yes,
        };
        self.oracle.on_harmed(who, harmed);
        self.marks.hit("a disk was harmed");
        self.fill(who, story.down);
        *self.fault_counts.entry(story.harm.name()).or_default() += 1;
        self.tell(Some(who), "harmed", 0, 0, || {
            let place: Vec<String> = rotten.iter().map(|r| format!("{} at {}", r.path, r.offset)).collect();
            format!("{:?} {}", story.harm, place.join(", "))
        });
    }

    /// In some seeds there is no room on a harmed disk when its member comes back after `down`, and
    /// for a while.
    fn fill(&mut self, who: usize, down: Time) {
        let percent = self.plan.full_at_start;
        if percent == 0 || !self.room_rng.percent(percent) {
            return;
        }
        let disk = self.members[who].disk.clone();
        match self.room_rng.below(4) {
            0 => disk.trouble(|t| t.no_room = Some((ErrorKind::QuotaExceeded, false))),
            1 => disk.trouble(|t| t.no_room = Some((ErrorKind::StorageFull, true))),
            _ => disk.set_full(true),
        }
        *self.fault_counts.entry("harmed disk full at a start").or_default() += 1;
        let lasts = self.room_rng.between(200, 8_000) * MS;
        self.at(self.now + down + lasts, Event::Room { who });
    }

    pub(crate) fn has_room(&mut self, who: usize) {
        let disk = &self.members[who].disk;
        disk.set_full(false);
        disk.trouble(|t| t.no_room = None);
    }

    /// Bytes change under a running member.
    pub(crate) fn rot_awake(&mut self, who: usize, spot: Spot, draw: u64) -> bool {
        if !self.may_hurt(who) {
            return false;
        }
        let rotten = self.members[who].disk.rot_anywhere(spot, draw);
        self.note_rot(who, rotten)
    }

    /// True when something was spoilt.
    pub(crate) fn note_rot(&mut self, who: usize, rotten: Option<Rotten>) -> bool {
        let Some(rotten) = rotten else { return false };
        let (path, offset) = (rotten.path.clone(), rotten.offset);
        self.tell(Some(who), "rot", offset as u64, 0, || format!("{path} at {offset}"));
        let hurt = Hurt {
            story: None,
            older: Image::new(),
            right: None,
            rotten: vec![rotten],
            fresh: None,
            struck: true,
            refused: false,
            target: self.oracle.last_durable(),
            differs: None,
        };
        self.hurts.insert(who, hurt);
        self.oracle.on_harmed(who, Harmed::Yes);
        self.marks.hit("a disk was harmed");
        true
    }

    /// Records were just written: one of them is spoilt, if the plan says so.
    pub(crate) fn spoil_record(&mut self, who: usize, segment: u32, offset: usize, len: usize) {
        if !std::mem::take(&mut self.members[who].spoil_record) || !self.may_hurt(who) {
            return;
        }
        let at = offset + self.rng.below(len as u64) as usize;
        let rotten = self.members[who].disk.rot_bit(&disk::records::path(segment), at);
        if self.note_rot(who, rotten)
            && let Some(hurt) = self.hurts.get_mut(&who)
        {
            hurt.fresh = Some(self.now);
        }
    }

    /// A checkpoint that began at `began` is durable: what it names for the first time is right. A
    /// segment without a record that is needed is not named, and may be damaged.
    pub(crate) fn checkpoint_done(&mut self, who: usize, began: Time, manifest: &Bytes) {
        let disk = self.members[who].disk.clone();
        let Some(hurt) = self.hurts.get(&who).filter(|h| h.fresh.is_some_and(|at| at < began)) else { return };
        let named = Manifest::decode("manifest", manifest).expect("just written").segments;
        let names = |rotten: &&Rotten| {
            let of = |file: &SegmentFile| disk::records::path(file.segment) == rotten.path;
            named.iter().any(|file| of(file) && rotten.offset < file.len as usize)
        };
        if let Some(rotten) = hurt.rotten.iter().filter(names).find(|r| disk.is_rotten(r)) {
            let text = format!("m{} checkpoints a damaged record: {} at {}", who + 1, rotten.path, rotten.offset);
            self.fail("D-6", text);
        }
    }

    /// The product refused to start from a harmed disk: that is seen, and an operator comes.
    pub(crate) fn refused_start(&mut self, who: usize, why: &str) {
        let hurt = self.hurts.get_mut(&who).expect("a harmed disk");
        hurt.refused = true;
        self.marks.hit("a harmed disk was refused");
        self.tell(Some(who), "refused", 0, 0, || why.to_string());
        let wait = if self.phase == Phase::Safety { 2 * SECOND + self.rng.below(4 * SECOND) } else { 100 * MS };
        self.at(self.now + wait, Event::Mend { who });
    }

    /// The operator puts the right bytes back.
    pub(crate) fn mend(&mut self, who: usize) {
        let Some(hurt) = self.hurts.get_mut(&who) else { return };
        if self.members[who].up.is_some() || self.members[who].starting.is_some() {
            return;
        }
        let disk = self.members[who].disk.clone();
        match &hurt.right {
            Some(image)
                if hurt.story.is_some_and(|s| {
                    !matches!(s.harm, Harm::TailRot(_) | Harm::Rot(..) | Harm::LogHole(..) | Harm::BadSector(_))
                }) =>
            {
                disk.restore(image)
            }
            _ => hurt.rotten.iter().for_each(|rotten| disk.unrot(rotten)),
        }
        self.is_foreign_no_more(who);
        self.marks.hit("a harmed disk was put back");
        self.tell(Some(who), "mended", 0, 0, || "the right bytes are back".to_string());
        self.start(who);
    }

    /// Stories that are over: the member serves, has what it had, and nothing rotten is left.
    pub(crate) fn end_stories(&mut self) {
        let over = |sim: &Sim, who: usize, hurt: &Hurt| {
            let member = &sim.members[who];
            let serves =
                member.up.as_ref().is_some_and(|l| l.status.applied >= hurt.target && !l.status.doubt && !l.barred);
            hurt.struck
                && serves
                && !sim.oracle.differs(who)
                && !sim.is_foreign(who)
                && !hurt.rotten.iter().any(|r| member.disk.is_rotten(r))
        };
        let done: Vec<usize> = self.hurts.iter().filter(|(who, h)| over(self, **who, h)).map(|(who, _)| *who).collect();
        for who in done {
            if self.hurts.remove(&who).is_some_and(|hurt| hurt.differs.is_some()) {
                self.marks.hit("a state that differed is equal again");
            }
            self.oracle.on_harmed(who, Harmed::No);
            self.marks.hit("a harmed disk is whole again");
            self.tell(Some(who), "whole", 0, 0, || "it has what it had".to_string());
        }
    }

    /// Stories that have not struck yet never will.
    pub(crate) fn no_more_stories(&mut self) {
        let waiting: Vec<usize> = self.hurts.iter().filter(|(_, h)| !h.struck).map(|(who, _)| *who).collect();
        for who in waiting {
            self.members[who].disk.trouble(|t| t.loses_log = false);
            self.hurts.remove(&who);
        }
    }

    /// What is read from its files may be damaged, or not be read at all.
    pub(crate) fn reads_may_fail(&self, who: usize) -> bool {
        self.is_hurt(who) || self.members[who].disk.troubled().reads_fail > 0
    }

    /// A read met damage: fine where the disk was harmed, as long as it says so.
    pub(crate) fn met_damage(&mut self, who: usize, text: String) {
        // A wrong value is served; damage that is named is not.
        let named = !text.contains("index and record differ");
        if named && self.reads_may_fail(who) {
            self.marks.hit("damage was met and named");
            return;
        }
        self.fail("D-5", text);
    }
}
