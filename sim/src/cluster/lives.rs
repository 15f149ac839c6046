//! The lives of a member: it starts from what its disk has, serves, and dies.

use super::*;
use crate::badday::Spot;

impl Sim {
    /// Planted: what a member finds when it comes back.
    fn plant_at_start(&mut self, who: usize) {
        let disk = self.members[who].disk.clone();
        match self.planted {
            Some(Planted::EmptiedFounds) => {
                disk.empty();
                disk.begin(self.now, None);
                let _ = self.genesis(who);
                disk.end();
            }
            Some(Planted::NewestLogGone) => drop(disk.lose_newest_log()),
            Some(Planted::PageMisplaced) => {
                let draw = self.rng.draw();
                disk.misplace_page(draw);
            }
            Some(Planted::TailSpoilt) => drop(disk.rot_tail(Spot::Page, 0)),
            Some(Planted::Misdirected) => drop(disk.misdirect(&Default::default())),
            _ => {}
        }
    }

    fn config_of_life_before(&mut self, who: usize) -> node::Config {
        self.members[who].life -= 1;
        let config = self.config(who);
        self.members[who].life += 1;
        config
    }

    pub(crate) fn start(&mut self, who: usize) {
        let m = &mut self.members[who];
        if m.gone || m.up.is_some() || m.starting.is_some() {
            return;
        }
        m.life += 1;
        let (life, disk) = (m.life, m.disk.clone());
        let rolls_back = self.is(Planted::DiskRolledBack) || self.is(Planted::OlderLogFile);
        if rolls_back
            && life > 1
            && let Some((_, image)) = self.members[who].old_image.take()
        {
            match self.is(Planted::OlderLogFile) {
                true => drop(disk.older_log(&image)),
                false => disk.restore(&image),
            }
        }
        if life > 1 && !self.is_hurt(who) {
            self.plant_at_start(who);
        }
        self.plant_in_marks(who);
        let config = self.config_of_life_before(who);
        self.members[who].files = disk.process();
        let files = Arc::clone(&self.members[who].files);
        disk.begin(self.now, None);
        let founds = !disk.has("identity");
        if !self.begins(who) {
            disk.end();
            return;
        }
        let late = disk::late::marked(&*files, self.identity(who)).unwrap_or(true);
        let config = node::Config { late_founder: late, ..config };
        let mut out = Vec::new();
        self.plant_room(who);
        disk.set_lies(plants::lies_at_start(self.planted));
        let writes = self.all_kept(who);
        let recovered = guarded(|| {
            self.goes_on_alone(who, &config, &mut out)?;
            Node::recover(config.clone(), &files, &mut out)
        });
        self.plant_in_start(who);
        self.check_own_write(who, writes);
        disk.set_lies(plants::lies(self.planted));
        let recovered = match recovered {
            Ok(Ok(both)) if self.forgets_its_loss(who) && disk.has("log/doubt") => {
                drop(both);
                disk.lose_file("log/doubt");
                out.clear();
                guarded(|| Node::recover(config, &files, &mut out))
            }
            other => other,
        };
        let report = disk.end();
        let (node, log) = match recovered {
            Ok(Ok(both)) => both,
            Ok(Err(fault)) if fault.is_full() => {
                // Nothing to do but wait for space.
                let life = self.members[who].life;
                self.tell(Some(who), "full", life, 0, || fault.to_string());
                return self.at(self.now + SECOND / 2, Event::Start { who });
            }
            Ok(Err(fault @ disk::Fault::Doubtful { .. })) => return self.operators_word(who, &fault),
            Ok(Err(fault)) if report.failed => {
                // A read failed; whoever starts processes tries again.
                let life = self.members[who].life;
                self.tell(Some(who), "unread", life, 0, || fault.to_string());
                return self.at(self.now + SECOND / 2, Event::Start { who });
            }
            Ok(Err(fault)) if self.is_hurt(who) => return self.refused_start(who, &fault.to_string()),
            Ok(Err(fault)) => return self.fail("recover", format!("m{} does not start: {fault}", who + 1)),
            Err(panic) => return self.fail("panic", format!("m{} in recovery: {panic}", who + 1)),
        };
        let life_box = Life {
            node,
            log,
            lanes: Default::default(),
            inbox: VecDeque::new(),
            turn_set: false,
            waiters: BTreeMap::new(),
            streams: BTreeMap::new(),
            published: 0,
            faulted: false,
            saving: false,
            checkpointing: false,
            checkpoint_began: 0,
            installing: Installing::No,
            replaced: false,
            rewriting: Vec::new(),
            status: Status::default(),
            frozen_once: false,
            barred: false,
            was_barred: false,
            late,
            publishing: None,
            published_urls: false,
            founding: 0,
            voters: Vec::new(),
            removed: BTreeSet::new(),
        };
        self.tell(Some(who), "start", life, report.end, || format!("life {life}, {} disk calls", report.calls.len()));
        self.members[who].starting = Some(Box::new(life_box));
        if founds {
            self.kill_founder(who, life, &report);
        }
        if life > 1
            && !report.calls.is_empty()
            && self.phase == crate::run::Phase::Safety
            && self.rng.percent(12)
            && !self.is_quiet()
        {
            let (at, power) = (*self.rng.pick(&report.calls), self.rng.percent(60));
            let down = 10 * MS + self.rng.below(SECOND);
            self.at(at, Event::Crash { who, life, power, down });
        }
        self.power_behind_a_kill(who, life, &report);
        self.at(report.end, Event::Up { who, life });
        // Outputs of recovery are carried out when it serves.
        self.starting_outputs(who, out);
    }

    /// What a killed process left in the page cache alone is gone when the power goes soon.
    fn power_behind_a_kill(&mut self, who: usize, life: u64, report: &Report) {
        let quiet = self.is_quiet() || self.phase != crate::run::Phase::Safety;
        if !std::mem::take(&mut self.members[who].then_power) || quiet {
            return;
        }
        let at = match self.twice_rng.percent(50) && !report.calls.is_empty() {
            true => *self.twice_rng.pick(&report.calls),
            false => report.end + self.twice_rng.below(300 * MS),
        };
        let down = 10 * MS + self.twice_rng.below(SECOND);
        self.marks.hit("the power went behind a kill");
        self.at(at, Event::Crash { who, life, power: true, down });
    }

    /// In some seeds founders are killed while they found: everything after that relies on those
    /// files.
    fn kill_founder(&mut self, who: usize, life: u64, report: &Report) {
        if self.plan.killed_then_power == 0 || report.calls.is_empty() || !self.twice_rng.percent(50) {
            return;
        }
        let (at, down) = (*self.twice_rng.pick(&report.calls), 10 * MS + self.twice_rng.below(300 * MS));
        self.at(at, Event::Crash { who, life, power: false, down });
    }

    /// A lone member cannot tell a torn write from a lost one. Its operator can: this disk loses
    /// nothing that was flushed. If it did, the durability oracle sees it.
    fn operators_word(&mut self, who: usize, fault: &disk::Fault) {
        let (id, config) = (self.identity(who), self.config(who));
        let disk = self.members[who].disk.clone();
        disk.begin(self.now, None);
        let options = disk::LogOptions {
            segment_bytes: config.log_segment_bytes,
            boot: config.kernel_boot,
            salt: config.log_salt,
        };
        let cut = guarded(|| node::offline::cut_tail(&disk.files(), id, options));
        let report = disk.end();
        self.tell(Some(who), "operator", report.end, 0, || format!("{fault}: cut"));
        match cut {
            Ok(Ok(_)) => self.at(report.end, Event::Start { who }),
            Ok(Err(fault)) => self.fail("recover", format!("m{}: the tail cannot be cut: {fault}", who + 1)),
            Err(panic) => self.fail("panic", format!("m{} in cutting the tail: {panic}", who + 1)),
        }
    }

    pub(super) fn starting_outputs(&mut self, who: usize, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Note { text, .. } => {
                    if text.contains("never acknowledged") {
                        self.marks.hit("torn tail cut");
                    }
                    for (said, mark) in
                        [("damaged: cut there", "a damaged log was cut"), ("starts over", "a member started over")]
                    {
                        if text.contains(said) {
                            self.marks.hit(mark);
                        }
                    }
                    self.tell(Some(who), "note", fold(text.as_bytes()), 0, || text.clone());
                    let life = self.members[who].starting.as_mut().expect("starting");
                    life.barred = crate::differs::is_barred(&text).unwrap_or(life.barred);
                }
                Output::Job { job, work } => {
                    let lane = lane_number(&work);
                    let life = self.members[who].starting.as_mut().expect("starting");
                    life.lanes[lane].waiting.push(job, work);
                }
                Output::Members { members, removed } => {
                    let life = self.members[who].starting.as_mut().expect("starting");
                    life.listed(&members, removed);
                }
                other => panic!("recovery cannot say {other:?}"),
            }
        }
    }

    pub(super) fn come_up(&mut self, who: usize) {
        let Some(life) = self.members[who].starting.take() else { return };
        let number = self.members[who].life;
        self.members[who].up = Some(life);
        self.went_on_alone(who);
        let life = self.members[who].up.as_mut().expect("just put");
        let (first, hard) = (life.log.boundary().index + 1, life.log.hard());
        // This read is the oracle's: it does not fail.
        let disk = self.members[who].disk.clone();
        let trouble = disk.troubled();
        disk.trouble(|t| t.reads_fail = 0);
        let life = self.members[who].up.as_mut().expect("just put");
        let entries = guarded(|| life.log.read(first, u64::MAX));
        disk.trouble(|t| *t = trouble);
        let entries = match entries {
            Ok(Ok(entries)) => entries,
            Ok(Err(fault)) => return self.fail("recover", format!("m{} cannot read its log: {fault}", who + 1)),
            Err(panic) => return self.fail("panic", panic),
        };
        let applied = self.probe(who).applied;
        self.oracle.on_recovered(self.now, who, hard, &entries, applied);
        let revision = self.probe(who).revision;
        let life = self.members[who].up.as_mut().expect("up");
        life.published = revision;
        self.tell(Some(who), "up", applied, hard.term, || {
            format!(
                "applied {applied} term {} vote {} log {}..={}",
                hard.term,
                hard.vote,
                first,
                first + entries.len() as u64 - 1
            )
        });
        for lane in 0..3 {
            self.run_lane(who, lane);
        }
        self.observe(who);
        if self.members[who].up.as_ref().is_some_and(|life| !life.barred) {
            // It was killed between the state and its word of it.
            self.has_joined(who);
        }
        self.members[who].clock.begin(self.now);
        self.publish(who);
        self.stop_without_state(who);
        self.at(self.now, Event::Tick { who, life: number, due: self.now });
        self.wake(who);
    }

    /// In some seeds a member is stopped cleanly soon after it began without a state.
    fn stop_without_state(&mut self, who: usize) {
        let quiet = self.is_quiet() || self.phase != crate::run::Phase::Safety;
        if self.plan.stops_empty == 0 || !self.lacks_state(who) || quiet {
            return;
        }
        if self.pull_rng.percent(self.plan.stops_empty) {
            let down = 10 * MS + self.pull_rng.below(SECOND);
            *self.fault_counts.entry("clean stop without a state").or_default() += 1;
            self.begin_stop(who, down);
        }
    }

    pub(super) fn probe(&mut self, who: usize) -> Status {
        let life = self.members[who].up.as_mut().expect("up");
        let mut out = Vec::new();
        life.node.step(Input::Request { waiter: PROBE, who: node::Who::Member, request: Request::Status }, &mut out);
        for output in out {
            if let Output::Answer { answer: Answer::Status(status), .. } = output {
                return *status;
            }
        }
        // A member that stopped says nothing more.
        self.members[who].up.as_ref().expect("up").status.clone()
    }

    /// Holds what the member says of itself against the log.
    pub(super) fn observe(&mut self, who: usize) {
        let mut status = self.probe(who);
        self.plant_in_status(who, &mut status);
        self.check_forged(who, &status);
        let fresh = self.oracle.on_status(self.now, who, &status);
        for done in &fresh {
            if !done.expired.is_empty() {
                self.marks.hit("lease expired");
                if self.now < self.last_leader_change + 2 * SECOND && self.now > 5 * SECOND {
                    self.marks.hit("lease expired right after a leader change");
                }
            }
            if done.fenced > 0 {
                self.marks.hit("fenced expiry refused");
            }
            if let Some(envelope) = &done.envelope
                && crate::clients::is_nested(&envelope.command)
            {
                self.marks.hit("transaction nested");
            }
        }
        self.members[who].up.as_mut().expect("up").status = status;
    }

    /// A member dials another one whose process is gone: the machine answers that nobody listens.
    pub(super) fn sees_gone(&mut self, who: usize, peer: usize) {
        let gone = self.members[peer].up.is_none() && self.members[peer].starting.is_none();
        if gone && !self.net.is_cut(who, peer) && !self.net.is_cut(peer, who) {
            let peer = self.members[peer].id;
            self.tell(Some(who), "gone", peer, 0, || format!("m{peer} refuses connections"));
            self.give(who, Input::Gone { peer });
        }
    }

    /// Ends the process. `down`: when it starts again.
    pub(crate) fn crash(&mut self, who: usize, power: bool, down: Option<Time>) {
        let now = self.now;
        let Some(life) = self.members[who].up.take().or_else(|| self.members[who].starting.take()) else { return };
        let was_starting = life.status.member == 0;
        self.tell(Some(who), if power { "power" } else { "kill" }, 0, 0, || "the process is dead".to_string());
        if was_starting {
            self.marks.hit("crash during recovery");
        }
        if life.saving {
            self.marks.hit("crash between log flush and apply");
        }
        if life.checkpointing {
            self.marks.hit("crash while a checkpoint is written");
        }
        if !life.rewriting.is_empty() {
            self.marks.hit("crash while segments are rewritten");
        }
        if life.installing != Installing::No {
            self.marks.hit("snapshot interrupted by a crash");
        }
        let Life { waiters, streams, node, log, .. } = *life;
        // Handles close before the disk decides what survives.
        drop(node);
        drop(log);
        let m = &mut self.members[who];
        m.files = m.disk.process();
        m.life += 1;
        m.armed.clear();
        m.stopping = None;
        m.busy_until = 0;
        m.hung = [0; 3];
        m.spoil_record = false;
        let lies = m.disk.troubled().loses_log;
        if self.planted == Some(Planted::LostWrites) {
            m.disk.trouble(|t| t.loses_log = who == 0);
        }
        if power {
            let how = match self.rng.below(10) {
                0..=2 => PowerLoss::Nothing,
                3 => PowerLoss::Everything,
                _ => PowerLoss::Some,
            };
            // What a disk that lied did not write is not there.
            let how = if lies { PowerLoss::Nothing } else { how };
            let disk = m.disk.clone();
            if lies {
                disk.kill(now);
                self.remember_pretended(who);
            }
            disk.power_loss(now, how);
            self.pulls_anew(who);
            self.members[who].power_losses += 1;
        } else {
            m.disk.kill(now);
        }
        let twice = self.plan.killed_then_power;
        self.members[who].then_power = !power && twice > 0 && self.twice_rng.percent(twice);
        self.harm(who);
        self.net.died(now, who);
        for peer in 0..self.members.len() {
            if peer != who && self.members[peer].up.is_some() {
                let life = self.members[peer].life;
                let at = now + self.rng.below(5 * MS);
                self.at(at, Event::Lost { who: peer, life, peer: who });
                if !power {
                    let at = at + self.gone_rng.between(1, 60) * MS;
                    self.at(at, Event::Gone { who: peer, life, peer: who });
                }
            }
        }
        for (_, reader) in waiters {
            self.orphan(reader);
        }
        for (_, stream) in streams {
            self.orphan_stream(stream);
        }
        if let Some(down) = down {
            self.at(now + down.max(1), Event::Start { who });
        }
    }
}
