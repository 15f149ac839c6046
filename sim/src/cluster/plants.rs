//! What planted bugs do to a running member: to its ticks, its jobs, its frames and its files.

use super::*;
use crate::badday::{End, Harm, Story};
use std::collections::BTreeSet;

/// In the wire form of a message (`consensus/src/message.rs`).
const SNAPSHOT: u8 = 9;
/// Pieces that take longer do not count, where that is planted.
const HASTE: Time = 50 * MS;
/// So long a sender that is dead keeps others out, where that is planted.
const SHUT: Time = 60 * SECOND;

/// What planted bugs remember.
#[derive(Debug, Default)]
pub(crate) struct Plants {
    /// Lanes that are dead: from and to.
    pub(super) dead_lanes: BTreeSet<(usize, usize)>,
    /// Connections that broke since the last piece came over them: receiver and sender.
    broken: BTreeSet<(usize, usize)>,
    /// Receiver: the piece that it asked for last, and when it did first.
    asked: BTreeMap<usize, (u64, Time)>,
    /// Receiver: whose snapshot it heard of, and when.
    offered: BTreeMap<usize, (usize, Time)>,
    pub(super) parted: super::histories::Parted,
    /// The member that starts found no room.
    roomless: bool,
}

impl Plants {
    pub(super) fn broke(&mut self, a: usize, b: usize) {
        self.broken.extend([(a, b), (b, a)]);
    }
}

/// What a planted bug needs of a plan.
pub(super) fn shape(plan: &mut Plan, bug: Option<Planted>) {
    if let Some(Planted::MajorityRolledBack | Planted::CutUntold) = bug {
        // Logs are cut often.
        plan.checkpoint_bytes = plan.checkpoint_bytes.min(4 << 10);
        plan.log_segment_bytes = 16 << 10;
    }
}

/// What a disk does wrong all the time.
pub(super) fn lies(bug: Option<Planted>) -> Lies {
    let is = |planted| bug == Some(planted);
    Lies {
        ignores_sync: is(Planted::FlushLies),
        ignores_sync_dir: is(Planted::DirFlushLies),
        keeps_spares: is(Planted::SpareTwice),
        keeps_corrupt: is(Planted::CorruptKept),
        keeps_handles: is(Planted::HandleKept),
        ..Lies::default()
    }
}

/// What it does wrong while a member starts.
pub(super) fn lies_at_start(bug: Option<Planted>) -> Lies {
    Lies {
        ignores_root: bug == Some(Planted::RootUnflushed),
        ignores_state: bug == Some(Planted::ManifestUnflushed),
        ..lies(bug)
    }
}

impl Sim {
    fn hangs_and_leads(&self, who: usize) -> bool {
        let member = &self.members[who];
        let leads = member.up.as_ref().is_some_and(|life| life.status.is_leader);
        leads && member.hung.iter().any(|until| *until > self.now)
    }

    /// Nobody is able in the eyes of a leader.
    pub(super) fn plant_in_tick(&mut self, who: usize) {
        let leads = self.members[who].up.as_ref().is_some_and(|life| life.status.is_leader);
        if !self.is(Planted::LeaderStays) || !leads || !self.rng.percent(10) {
            return;
        }
        for from in (0..self.members.len()).filter(|from| *from != who) {
            let from = self.members[from].id;
            self.give(who, Input::Frame { from, frame: Frame::Able { able: false } });
        }
    }

    /// What stands beside the log is not there at a start.
    pub(super) fn plant_in_marks(&self, who: usize) {
        // The voters have a copy outside of the log.
        let voters: &[&str] = &[disk::voters::PATH, "voters"];
        let lost = match self.planted {
            Some(Planted::FoundingForgotten) => &[disk::history::PATH],
            Some(Planted::VotersForgotten) if self.electorate() != [who] => voters,
            Some(Planted::LoneForgotten) if self.electorate() == [who] => voters,
            _ => return,
        };
        lost.iter().for_each(|path| self.members[who].disk.lose_file(path));
    }

    /// Behind what a start writes.
    pub(super) fn plant_in_start(&mut self, who: usize) {
        let spoils = self.is(Planted::StartSpoils) && !self.is_hurt(who);
        if let Some((name, len)) = self.first_named(who).filter(|_| spoils) {
            self.members[who].disk.rot_bit(&format!("state/{name}"), len as usize - 1);
        }
    }

    /// What a member says of itself.
    pub(super) fn plant_in_status(&mut self, who: usize, status: &mut Status) {
        if self.is(Planted::DoubtForEver) {
            let before = &self.members[who].up.as_ref().expect("up").status;
            status.doubt |= before.doubt;
        }
    }

    /// A job of the log begins.
    pub(super) fn plant_in_cut(&mut self, who: usize, cuts: bool) {
        if self.is(Planted::CutUntold) {
            let lies = Lies { keeps_reached: cuts, ..lies(self.planted) };
            self.members[who].disk.set_lies(lies);
        }
    }

    /// A log was cut, and nothing on the disk says that its beginning is committed: the state is
    /// lost before another write can say so.
    pub(super) fn plant_behind_cut(&mut self, who: usize) {
        let Some(life) = self.members[who].up.as_ref().filter(|_| self.is(Planted::CutUntold)) else { return };
        if life.log.boundary().index <= life.log.hard().commit {
            return;
        }
        let (down, who_is) = (SECOND, crate::plan::Who::Nth(who));
        let story = Story { harm: Harm::StateGone, who: who_is, behind: 0, end: End::Kill, all: false, down };
        if self.begin_story(0, story) {
            self.strike_story(0, who);
        }
    }

    /// A start that finds no room is to go on as if it had what it could not write.
    pub(super) fn plant_room(&mut self, who: usize) {
        self.plants.roomless = self.is(Planted::DoubtWithoutRoom) && !self.members[who].disk.has_room();
        if self.plants.roomless {
            self.has_room(who);
        }
    }

    /// What a start found is about to be forgotten.
    pub(super) fn forgets_its_loss(&self, who: usize) -> bool {
        let forgets = match self.planted {
            Some(Planted::LossForgotten) => true,
            Some(Planted::EndBelieved) => self.lost_its_tail(who),
            Some(Planted::DoubtWithoutRoom) => self.plants.roomless,
            _ => false,
        };
        forgets && self.is_hurt(who)
    }

    /// Before a job of the background. True: what is rotten must be put back behind it.
    pub(super) fn plant_before_job(&mut self, who: usize, work: &Job) -> bool {
        let disk = self.members[who].disk.clone();
        match work {
            Job::Background(BackgroundJob::WriteRecords { .. }) if self.is(Planted::DamageBlessed) => {
                let spoils = self.rng.percent(5);
                self.members[who].spoil_record |= spoils && self.may_hurt(who);
            }
            Job::Background(BackgroundJob::CheckpointFinish { .. }) if self.is(Planted::DamageBlessed) => {
                self.rotten_of(who).iter().for_each(|rotten| disk.unrot(rotten));
                return true;
            }
            Job::Background(BackgroundJob::InstallBegin { .. }) if self.is(Planted::InstallFromStart) => {
                let paths: Vec<String> =
                    disk.paths().into_iter().filter(|path| path.starts_with("incoming/")).collect();
                if !paths.iter().any(|path| path == "incoming/ready") {
                    paths.iter().for_each(|path| disk.lose_file(path));
                }
            }
            Job::Background(BackgroundJob::InstallFinish { .. }) if self.is(Planted::StateBelowLog) => {
                let life = self.members[who].up.as_mut().expect("up");
                if life.barred {
                    let below = life.status.applied;
                    disk.begin(self.now, None);
                    let _ = life.log.cut_below(below);
                    disk.end();
                }
            }
            _ => {}
        }
        false
    }

    /// Behind it.
    pub(super) fn plant_after_job(&mut self, who: usize, blessed: bool) {
        let disk = self.members[who].disk.clone();
        let rotten = if blessed { self.rotten_of(who) } else { Vec::new() };
        rotten.iter().for_each(|rotten| disk.rot_again(rotten));
    }

    /// What became of a job, as a member that makes a mistake tells it.
    pub(super) fn plant_in_result(&self, saves: bool, result: JobResult) -> JobResult {
        match (self.planted, result) {
            (Some(Planted::FailedSaveIsSaved), JobResult::Failed { .. }) if saves => JobResult::Saved { short: false },
            (Some(Planted::InstallDenied), JobResult::Installed { .. }) => {
                let fault = disk::Fault::Refused { file: "incoming".into(), what: "the old state stands".into() };
                JobResult::Failed { fault }
            }
            (_, result) => result,
        }
    }

    /// A frame leaves.
    pub(super) fn plant_in_send(&mut self, who: usize, frame: &Frame) {
        if let Frame::ChunkRequest { token, .. } = frame
            && self.plants.asked.get(&who).is_none_or(|(asked, _)| asked != token)
        {
            self.plants.asked.insert(who, (*token, self.now));
        }
    }

    /// What a member that makes a mistake hears. None: nothing.
    pub(super) fn plant_in_frame(&mut self, who: usize, from: usize, frame: Frame) -> Option<Frame> {
        Some(match (self.planted, frame) {
            (Some(Planted::DigestsUnheard), Frame::Digest { .. }) => return None,
            (Some(Planted::RecordsLeftOut), Frame::Records { boot, token, ok: true, compacted, mut records, .. }) => {
                records.pop();
                Frame::Records { boot, token, ok: true, end: true, compacted, records }
            }
            (Some(Planted::PiecesHurried), Frame::Chunk { token, .. })
                if self.plants.asked.get(&who).is_some_and(|(asked, at)| *asked == token && self.now > at + HASTE) =>
            {
                return None;
            }
            (Some(Planted::InstallFromStart), Frame::Chunk { boot, token, ok: true, .. })
                if self.plants.broken.remove(&(who, from)) =>
            {
                Frame::Chunk { boot, token, ok: false, end: false, bytes: Bytes::new() }
            }
            (Some(Planted::OfferShutOut), Frame::Raft(message)) if kind(&message) == SNAPSHOT => {
                let offered = self.plants.offered.get(&who);
                if offered.is_some_and(|(by, at)| *by != from && self.now < at + SHUT) {
                    return None;
                }
                self.plants.offered.insert(who, (from, self.now));
                Frame::Raft(message)
            }
            (
                Some(Planted::LeaderStays),
                Frame::Forward { .. }
                | Frame::ForwardQuestion { .. }
                | Frame::ReadIndex { .. }
                | Frame::KeepAlive { .. },
            ) if self.hangs_and_leads(who) => return None,
            (Some(Planted::VotesTwice), Frame::Raft(message)) => self.plant_second_vote(who, from, message),
            (Some(Planted::StandingsUnheard), Frame::Standing { question: false, .. }) => return None,
            (Some(Planted::PeersForget), Frame::Standing { boot, question, standing }) => {
                let standing =
                    consensus::Standing { acknowledged: None, wrote: None, commit: Position::default(), ..standing };
                Frame::Standing { boot, question, standing }
            }
            (_, frame) => frame,
        })
    }

    /// What a member puts out. None: nobody gets it.
    pub(super) fn plant_in_output(&mut self, who: usize, output: Output) -> Option<Output> {
        match (self.planted, output) {
            (Some(Planted::AnswerLost), Output::Answer { waiter, .. }) if waiter % 200 == 7 => None,
            (Some(Planted::SentToSelf), Output::Send { frame: frame @ Frame::Digest { .. }, .. }) => {
                Some(Output::Send { to: self.members[who].id, frame })
            }
            (_, output) => Some(output),
        }
    }

    /// A member without a state stopped cleanly.
    pub(super) fn plant_at_stop(&mut self, who: usize, status: &Status) {
        let (identity, founders) = (self.identity(who), self.founders());
        let config = store::Config { segment_bytes: self.plan.segment_bytes };
        let at = store::Position { index: status.applied, term: status.term };
        let head = store::Store::genesis(config, founders, at).image_head();
        let disk = self.members[who].disk.clone();
        disk.begin(self.now, None);
        let written = guarded(|| disk::checkpoint::genesis(&*disk.files(), identity, at.index, &head));
        disk.end();
        self.tell(Some(who), "planted", at.index, 0, || format!("an empty state: {}", written.is_ok()));
    }
}

fn kind(message: &consensus::Message) -> u8 {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes[1]
}
