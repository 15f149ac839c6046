//! Jobs of a member on the simulated disk: one lane after another, call by call, with the
//! faults that the plan or a planted bug puts into them.

use super::*;
use consensus::Entry;
use disk::scrub::Finding;
use node::work::{self, FULL_AGAIN_MS, Ran, Whose};
use node::{LogJob, ReadJob, ReclaimJob, ReclaimResult};

impl Sim {
    /// A job failed: false if nothing explains it.
    fn may_fail(&mut self, who: usize, fault: &disk::Fault, saves: bool, installs: bool) -> bool {
        let text = fault.to_string();
        // What a failed write left half done is not damage.
        let disk = &self.members[who].disk;
        let full = disk.is_full() || disk.troubled().no_room.is_some_and(|(_, inside)| inside);
        let life = self.members[who].up.as_mut().expect("up");
        // What cannot wait for space may end the member.
        life.faulted |= full;
        let faulted = life.faulted;
        if saves && fault.is_full() {
            // Nothing of it was flushed, so it can wait for room.
            self.fail("V-7", format!("m{} ends for want of room in a save: {text}", who + 1));
            return false;
        }
        let known = self.is_hurt(who) || (installs && self.any_hurt());
        if !faulted && fault.is_damage() && !known {
            self.fail("D-5", format!("m{}: {text}", who + 1));
            return false;
        }
        self.tell(Some(who), "disk", 2, 0, || text);
        true
    }

    pub(super) fn submit(&mut self, who: usize, job: JobId, work: Job) {
        match &work {
            Job::Log(LogJob::Save { hard, entries, .. }) => {
                if self.oracle.on_save(self.now, who, *hard, entries) {
                    self.marks.hit("entry overwritten on a follower");
                }
                let (first, n) = (entries.first().map_or(0, |e| e.index), entries.len());
                let hard = *hard;
                self.tell(Some(who), "save", first, n as u64, || {
                    format!("{n} from {first}, term {} vote {} commit {}", hard.term, hard.vote, hard.commit)
                });
            }
            other => {
                let kind = job_name(other);
                self.tell(Some(who), "job", job, kind.len() as u64, || format!("{job}: {}", job_text(other)));
            }
        }
        self.see_job(who, job_name(&work), &work);
        let lane = lane_number(&work);
        let life = self.members[who].up.as_mut().expect("up");
        match &work {
            Job::Background(BackgroundJob::CheckpointBegin { .. }) => {
                life.checkpointing = true;
                life.checkpoint_began = self.now;
            }
            Job::Background(BackgroundJob::InstallFinish { .. }) => life.installing = Installing::Swaps,
            Job::Background(BackgroundJob::InstallBegin { .. }) => {
                (life.installing, life.replaced) = (Installing::Pulls, true)
            }
            Job::Read(ReadJob::ReadRecords { handles }) if handles.len() > 1 => {
                self.marks.hit("apply waited for several values");
            }
            Job::Read(ReadJob::ReadRecords { .. }) => self.marks.hit("apply waited for a value"),
            Job::Background(BackgroundJob::ReadHistory { .. }) => {
                self.marks.hit("watch fed from history");
                if !life.rewriting.is_empty() {
                    self.marks.hit("watch fed from history while segments are rewritten");
                }
            }
            Job::Background(BackgroundJob::ReadChunk { .. }) if !life.rewriting.is_empty() => {
                self.marks.hit("snapshot read while segments are rewritten");
            }
            Job::Background(BackgroundJob::Reclaim(ReclaimJob::Read { run, .. })) => {
                life.rewriting = run.iter().map(|(segment, _)| *segment).collect();
            }
            _ => {}
        }
        self.members[who].up.as_mut().expect("up").lanes[lane].waiting.push(job, work);
        self.run_lane(who, lane);
    }

    /// Starts the next job of a lane, if it is free.
    pub(super) fn run_lane(&mut self, who: usize, lane: usize) {
        let identity = self.identity(who);
        let number = self.members[who].life;
        let Some(life) = self.members[who].up.as_mut() else { return };
        if life.lanes[lane].busy {
            return;
        }
        let held = life.lanes[lane].held.take();
        let told = held.is_some();
        let Some((job, mut work)) = held.or_else(|| life.lanes[lane].waiting.pop()) else { return };
        life.lanes[lane].busy = true;
        let durable = match &work {
            Job::Log(LogJob::Save { hard, entries, .. }) => {
                life.saving = true;
                Some(Durable { hard: *hard, entries: entries.iter().map(Entry::position).collect() })
            }
            _ => None,
        };
        let restart = match &work {
            Job::Log(LogJob::RestartLog { at, .. }) => Some(at.index),
            _ => None,
        };
        let installs = matches!(&work, Job::Background(work) if is_install(work));
        let records = match &work {
            Job::Background(BackgroundJob::WriteRecords { segment, offset, parts, .. }) => {
                Some((*segment, *offset as usize, parts.iter().map(|p| p.len()).sum::<usize>()))
            }
            _ => None,
        };
        let writes = self.own_write(who, &work);
        let blessed = self.plant_in_job(who, &mut work);
        let armed = self.members[who].armed.remove(&lane);
        let fault = match armed {
            Some(Armed::Fail(fault)) => Some(fault),
            _ => None,
        };
        let m = &mut self.members[who];
        let life = m.up.as_mut().expect("up");
        let files = Arc::clone(&m.files);
        let whose = Whose { id: identity, config: store::Config { segment_bytes: self.plan.segment_bytes } };
        m.disk.begin_late(self.now, self.now.max(m.hung[lane]), fault);
        let result = guarded(|| work::run(&mut life.log, &*files, whose, work));
        let report: Report = m.disk.end();
        let result = match result {
            Ok(result) => result,
            Err(panic) => return self.fail("panic", format!("m{} in a job: {panic}", who + 1)),
        };
        self.plant_after_job(who, blessed);
        self.check_own_write(who, writes);
        let result = match result {
            Ran::Done(result) => self.plant_in_result(durable.is_some(), result),
            Ran::Full { fault, .. } if durable.is_some() && self.is(Planted::FullIsFinal) => {
                JobResult::Failed { fault }
            }
            Ran::Full { job: work, fault } => {
                self.members[who].up.as_mut().expect("up").lanes[lane].held = Some((job, work));
                self.at(report.end + FULL_AGAIN_MS * MS, Event::LaneAgain { who, life: number, lane });
                if !told {
                    self.marks.hit("a full disk was waited for");
                    self.give(who, Input::Stalled { job, fault });
                }
                return;
            }
        };
        if let Some((segment, offset, len)) = records.filter(|r| r.2 > 0) {
            if self.is(Planted::RecordsSpoilt) && self.rng.percent(20) {
                self.members[who].disk.rot_bit(&disk::records::path(segment), offset + len / 2);
            }
            self.spoil_record(who, segment, offset, len);
        }
        if report.failed {
            self.members[who].up.as_mut().expect("up").faulted = true;
            self.tell(Some(who), "disk", 1, 0, || "a call failed".to_string());
        }
        if let JobResult::Scrubbed { step: Ok(step), .. } = &result
            && let Some(finding) = step.found.iter().find(|finding| is_damage(finding))
            && !self.is_hurt(who)
            && self.members[who].up.as_ref().is_some_and(|life| !life.faulted)
        {
            return self.fail("D-5", format!("m{} finds damage where there is none: {finding:?}", who + 1));
        }
        if let JobResult::Failed { fault } = &result
            && !self.may_fail(who, fault, durable.is_some(), installs)
        {
            return;
        }
        if installs && self.phase == crate::run::Phase::Safety && self.rng.percent(15) && self.may_break(number) {
            // Installs are rare, so that few of the planned faults meet one.
            let at = report.calls.first().map_or(self.now, |_| *self.rng.pick(&report.calls)) + self.rng.below(2);
            let (power, down) = (self.rng.percent(60), 20 * MS + self.rng.below(SECOND));
            *self.fault_counts.entry("crash in an install").or_default() += 1;
            self.at(at, Event::Crash { who, life: number, power, down });
        }
        if let Some(Armed::Crash { call, power, down }) = armed {
            let at = report.calls.get(call as usize - 1).copied().unwrap_or(report.end);
            // On the boundary: that call is done, the next one is not.
            self.at(at, Event::Crash { who, life: number, power, down });
        }
        if let (Some(index), JobResult::LogRestarted) = (restart, &result) {
            self.oracle.on_restart_log(who, index);
        }
        let empty = |durable: &Durable| durable.entries.is_empty();
        let early = self.is(Planted::SavedBeforeSync) && durable.is_some()
            || self.is(Planted::VoteBeforeSync) && durable.as_ref().is_some_and(empty);
        let failed = matches!(result, JobResult::Failed { .. });
        if early && !failed {
            self.at(report.end, Event::Durable { who, life: number, durable: durable.expect("a save") });
            self.at(self.now + 1, Event::JobDone { who, life: number, lane, job, result, durable: None });
        } else {
            let durable = durable.filter(|_| !failed);
            self.at(report.end, Event::JobDone { who, life: number, lane, job, result, durable });
        }
    }

    pub(super) fn job_done(
        &mut self,
        who: usize,
        lane: usize,
        job: JobId,
        result: JobResult,
        durable: Option<Durable>,
    ) {
        let failed = u64::from(matches!(result, JobResult::Failed { .. }));
        self.tell(Some(who), "done", job, failed, || format!("job {job} {result:?}"));
        if let Some(durable) = durable {
            self.oracle.on_durable(who, durable.hard, &durable.entries);
        }
        let life = self.members[who].up.as_mut().expect("up");
        match &result {
            JobResult::Saved { .. } => {
                life.saving = false;
                if let Some(Planted::DiskRolledBack | Planted::OlderLogFile) = self.planted {
                    let m = &mut self.members[who];
                    if m.old_image.as_ref().is_none_or(|(at, _)| self.now > at + 8 * SECOND) {
                        m.old_image = Some((self.now, m.disk.image()));
                    }
                }
            }
            JobResult::InstallBegun { received, .. } if received.iter().any(|bytes| *bytes > 0) => {
                self.marks.hit("a snapshot went on with what had come");
            }
            JobResult::CheckpointDone { manifest, .. } => {
                life.checkpointing = false;
                let began = life.checkpoint_began;
                self.marks.hit("checkpoint written");
                self.checkpoint_done(who, began, manifest);
            }
            JobResult::RecordsMended => self.marks.hit("damaged records came again from another member"),
            JobResult::LogCut => self.marks.hit("log cut"),
            JobResult::Reclaim(ReclaimResult::Finished) => {
                let run = std::mem::take(&mut life.rewriting);
                self.marks.hit("segments rewritten");
                if self.is(Planted::OldFilesGone) {
                    let disk = self.members[who].disk.clone();
                    disk.begin(self.now, None);
                    for segment in run {
                        drop(disk.files().remove(&disk::records::path(segment)));
                    }
                    disk.end();
                }
            }
            JobResult::Reclaim(ReclaimResult::GivenUp) => life.rewriting.clear(),
            JobResult::Installed { .. } => {
                self.marks.hit("snapshot installed");
                let revision = life.status.revision;
                if life.streams.values().any(|s| s.waits_beyond(revision)) {
                    self.marks.hit("install while a watch waits for the future");
                }
            }
            _ => {}
        }
        if let JobResult::Installed { .. } | JobResult::KeptSpoiled { .. } = &result {
            self.pulls_anew(who);
        }
        self.members[who].up.as_mut().expect("up").lanes[lane].busy = false;
        let cut = matches!(result, JobResult::LogCut);
        self.give(who, Input::Done { job, result });
        self.run_lane(who, lane);
        if cut {
            self.plant_behind_cut(who);
        }
    }

    /// No install is broken off for ever, and none where a harmed disk needs those who know.
    fn may_break(&self, life: u64) -> bool {
        !self.is_quiet() && life < 40
    }

    /// True: [`Sim::plant_after_job`] has something to do.
    pub(super) fn plant_in_job(&mut self, who: usize, work: &mut Job) -> bool {
        self.plant_in_cut(who, matches!(work, Job::Log(LogJob::CutLog { .. })));
        let bug = self.planted;
        match work {
            Job::Log(LogJob::Save { hard, entries, .. }) => {
                if bug == Some(Planted::VoteForgotten) {
                    hard.vote = 0;
                }
                if bug == Some(Planted::TermForgotten) && hard.term > 1 {
                    hard.term -= 1;
                    hard.vote = 0;
                }
                if let [.., a, b] = &mut entries[..]
                    && bug == Some(Planted::BatchSwapped)
                    && a.kind == b.kind
                {
                    std::mem::swap(&mut a.data, &mut b.data);
                }
                if bug == Some(Planted::TailForgotten) && entries.len() > 1 {
                    entries.pop();
                }
                if bug == Some(Planted::ApplySkew) && who == 0 {
                    // Only what recovery reads back is skewed.
                    for entry in entries {
                        entry.data = skewed(&entry.data);
                    }
                }
            }
            Job::Background(BackgroundJob::WriteRecords { parts, .. }) if bug == Some(Planted::RecordSwapped) => {
                parts.iter_mut().for_each(|part| *part = swapped(part));
            }
            Job::Background(BackgroundJob::Reclaim(ReclaimJob::Write { parts, .. })) => {
                if bug == Some(Planted::RewriteSwaps) {
                    parts.iter_mut().for_each(|part| *part = swapped(part));
                }
                if bug == Some(Planted::RewriteLoses) {
                    parts.pop();
                }
            }
            Job::Background(BackgroundJob::Mend { parts, .. }) if bug == Some(Planted::MendedTooFar) => {
                parts.extend(parts.last().cloned());
            }
            Job::Background(BackgroundJob::Mend { parts, .. }) if bug == Some(Planted::MendedByAnother) => {
                parts.iter_mut().for_each(|part| *part = of_another_revision(part));
            }
            Job::Log(LogJob::Prove { commit }) if bug == Some(Planted::ProvenTooFar) => *commit = u64::MAX,
            Job::Log(LogJob::CutLog { below }) if bug == Some(Planted::LogCutEarly) => {
                *below = self.members[who].up.as_ref().map_or(*below, |l| l.status.applied);
            }
            _ => {}
        }
        self.plant_before_job(who, work)
    }
}

pub(super) fn skewed(data: &Bytes) -> Bytes {
    let mut bytes = data.to_vec();
    if let Some(at) = bytes.windows(4).position(|w| w == b"same") {
        bytes[at] = b'S';
    }
    Bytes::from(bytes)
}

/// What a look finds on a harmed disk alone. A crash may leave a segment without its seek table,
/// and fillers without their names.
fn is_damage(finding: &Finding) -> bool {
    match finding {
        Finding::Seal { .. } | Finding::Beyond { .. } | Finding::Checksum { mended: true, .. } => false,
        Finding::Stretch(_) | Finding::Checksum { .. } | Finding::Checkpoint(_) | Finding::Log(_) => true,
        Finding::Unreadable(_) => false,
    }
}

/// The same record, but of the next sub-revision.
fn of_another_revision(part: &Bytes) -> Bytes {
    let Ok(record) = store::record::open(part) else { return part.clone() };
    let Ok(kv) = store::record::key_value(&record.body) else { return part.clone() };
    store::record::encode(store::Rev { sub: record.rev.sub + 1, ..record.rev }, record.tombstone, &kv)
}

/// A record with one letter of its value changed, and the checksum of that.
fn swapped(part: &Bytes) -> Bytes {
    let Ok(record) = store::record::open(part) else { return part.clone() };
    let Ok(mut kv) = store::record::key_value(&record.body) else { return part.clone() };
    if kv.value != b"same" {
        return part.clone();
    }
    kv.value = b"Same";
    store::record::encode(record.rev, record.tombstone, &kv)
}

fn is_install(job: &BackgroundJob) -> bool {
    matches!(
        job,
        BackgroundJob::InstallBegin { .. } | BackgroundJob::InstallChunk { .. } | BackgroundJob::InstallFinish { .. }
    )
}

/// What the trace says of a job.
fn job_text(job: &Job) -> String {
    let kind = job_name(job);
    let Job::Background(job) = job else { return format!("{job:?}") };
    match job {
        BackgroundJob::WriteRecords { segment, offset, parts, seals } => {
            let bytes: usize = parts.iter().map(|p| p.len()).sum();
            format!("{kind} {segment}+{offset} {bytes} bytes seals {seals}")
        }
        BackgroundJob::CheckpointRows { index, rows } => format!("{kind} {index} {} bytes", rows.len()),
        BackgroundJob::CheckpointFinish { index, .. } => format!("{kind} {index}"),
        BackgroundJob::Reclaim(ReclaimJob::Write { output, offset, .. }) => format!("{kind} {output}+{offset}"),
        BackgroundJob::HashKv { .. } | BackgroundJob::Scrub { .. } | BackgroundJob::Mend { .. } => kind.to_string(),
        job if is_install(job) => kind.to_string(),
        job => format!("{job:?}"),
    }
}

pub(super) fn job_name(job: &Job) -> &'static str {
    match job {
        Job::Log(job) => log_name(job),
        Job::Read(ReadJob::ReadRecords { .. }) => "read record",
        Job::Background(job) => background_name(job),
    }
}

fn log_name(job: &LogJob) -> &'static str {
    match job {
        LogJob::Save { .. } => "save",
        LogJob::Prove { .. } => "prove",
        LogJob::LeaveFile { .. } => "leave file",
        LogJob::KeepDoubt { .. } => "keep doubt",
        LogJob::CutLog { .. } => "cut log",
        LogJob::RestartLog { .. } => "restart log",
        LogJob::ReadLog { .. } => "read log",
        LogJob::ReleaseSpares { .. } => "release spares",
        LogJob::KeepReserve => "keep reserve",
    }
}

fn background_name(job: &BackgroundJob) -> &'static str {
    match job {
        BackgroundJob::InstallDrop { .. } => "drop install",
        BackgroundJob::Scrub { .. } => "scrub",
        BackgroundJob::ReadRecords { .. } => "read records",
        BackgroundJob::Mend { .. } => "mend records",
        BackgroundJob::Mended { .. } => "mended segment",
        BackgroundJob::MarkCorrupt => "mark corrupt",
        BackgroundJob::Remember(_) => "remember",
        BackgroundJob::WriteRecords { .. } => "write records",
        BackgroundJob::ReadHistory { .. } => "read history",
        BackgroundJob::ReadBackup { .. } => "read backup",
        BackgroundJob::CheckpointBegin { .. } => "begin checkpoint",
        BackgroundJob::CheckpointRows { .. } => "checkpoint rows",
        BackgroundJob::CheckpointFinish { .. } => "finish checkpoint",
        BackgroundJob::HashKv { .. } => "hash",
        BackgroundJob::Reclaim(ReclaimJob::Read { .. }) => "read for reclaim",
        BackgroundJob::Reclaim(ReclaimJob::Write { .. }) => "rewrite records",
        BackgroundJob::Reclaim(ReclaimJob::Finish { .. }) => "finish reclaim",
        BackgroundJob::Reclaim(ReclaimJob::GiveUp { .. }) => "give up reclaim",
        BackgroundJob::ReadChunk { .. } => "read chunk",
        BackgroundJob::InstallBegin { .. } => "begin install",
        BackgroundJob::InstallChunk { .. } => "install chunk",
        BackgroundJob::InstallFinish { .. } => "finish install",
    }
}
