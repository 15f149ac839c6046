//! Carries a job out: blocking calls against `Files`, on whatever thread the driver chose.

use crate::io::{BackgroundJob, Job, JobResult, LogJob, ReadJob, ReclaimJob, ReclaimResult, Remembered};
use disk::transfer::Taken;
use disk::{
    Fault, Files, Identity, Log, Reserve, checkpoint, contradicted, corrupt, fetch, history, mend, reclaim, records,
    staging, startover, transfer, voters,
};
use store::SegmentUse;

/// Bytes of records that one slice of a HashKV scan reads.
const HASH_SLICE: u64 = 4 << 20;

/// What became of a job.
pub enum Ran<J> {
    /// It was carried out, or it failed for good.
    Done(JobResult),
    /// The disk is full and the job was not done; nothing half done stands in the way of doing it
    /// again. The lane waits with it: [`FULL_AGAIN_MS`] later it is tried once more, and the member
    /// is told once (`Input::Stalled`).
    Full {
        /// To be tried again as it is.
        job: J,
        /// The call that found no room.
        fault: Fault,
    },
}

impl<J> Ran<J> {
    fn of<K>(self, wrap: impl FnOnce(J) -> K) -> Ran<K> {
        match self {
            Ran::Done(result) => Ran::Done(result),
            Ran::Full { job, fault } => Ran::Full { job: wrap(job), fault },
        }
    }
}

/// How long a lane waits for space before it tries again. Milliseconds.
pub const FULL_AGAIN_MS: u64 = 250;

/// Whose files they are, and how the state is laid out in them.
#[derive(Clone, Copy, Debug)]
pub struct Whose {
    /// Cluster and member.
    pub id: Identity,
    /// With which settings a state is read.
    pub config: store::Config,
}

/// Carries out a job of any lane, for a driver that has all lanes in one place.
pub fn run(log: &mut Log, files: &dyn Files, whose: Whose, job: Job) -> Ran<Job> {
    match job {
        Job::Log(job) => run_log(log, job).of(Job::Log),
        Job::Read(job) => run_read(files, job).of(Job::Read),
        Job::Background(job) => run_background(files, whose, job).of(Job::Background),
    }
}

/// Carries out a job of the log. On a full disk the spare files of the log are given up first. Then
/// its part of the reserve goes too. A save takes that room at once, as another lane waits for room
/// as well.
pub fn run_log(log: &mut Log, job: LogJob) -> Ran<LogJob> {
    let mut result = log_or_fault(log, &job);
    let full = |result: &Result<JobResult, Fault>| result.as_ref().is_err_and(Fault::is_full);
    if full(&result) && log.release_spares().unwrap_or(false) {
        result = log_or_fault(log, &job);
    }
    if full(&result) && log.release_reserve(Reserve::Log).unwrap_or(false) && matches!(job, LogJob::Save { .. }) {
        result = log_or_fault(log, &job).map(|_| JobResult::Saved { short: true });
    }
    // A write or flush that failed has stopped the log: then no second attempt can help.
    ran(job, result, log.usable())
}

fn log_or_fault(log: &mut Log, job: &LogJob) -> Result<JobResult, Fault> {
    Ok(match job {
        LogJob::Save { number: _, hard, entries } => {
            log.save(*hard, entries)?;
            JobResult::Saved { short: false }
        }
        LogJob::KeepDoubt { doubt, hard } => {
            log.keep_doubt(*doubt, *hard)?;
            JobResult::DoubtKept
        }
        LogJob::LeaveFile { path } => {
            log.leave_file(path)?;
            JobResult::FileLeft
        }
        LogJob::Prove { commit } => {
            log.prove(*commit)?;
            JobResult::Proven
        }
        LogJob::CutLog { below } => {
            log.cut_below(*below)?;
            JobResult::LogCut
        }
        LogJob::RestartLog { hard, at } => {
            log.restart_at(*hard, *at)?;
            JobResult::LogRestarted
        }
        LogJob::ReadLog { ticket, from, max_bytes } => {
            JobResult::Log { ticket: *ticket, entries: log.read(*from, *max_bytes)? }
        }
        LogJob::ReleaseSpares { reserve } => {
            log.release_spares()?;
            if *reserve {
                log.release_reserve(Reserve::State)?;
            }
            JobResult::SparesReleased
        }
        // What else a call says of it, the next batch says too.
        LogJob::KeepReserve => JobResult::Reserved { stands: log.keep_reserve().unwrap_or(true) },
    })
}

/// Carries out a small read.
pub fn run_read(files: &dyn Files, job: ReadJob) -> Ran<ReadJob> {
    let result = match &job {
        ReadJob::ReadRecords { handles } => fetch::read_all(files, handles).map(JobResult::Values),
    };
    ran(job, result, true)
}

/// Carries out a job of the background.
pub fn run_background(files: &dyn Files, whose: Whose, mut job: BackgroundJob) -> Ran<BackgroundJob> {
    let result = background_or_fault(files, whose, &mut job);
    let again = can_repeat(&job);
    ran(job, result, again)
}

/// A slice of a hash ends its scan when it fails. An install that is being put in place is resumed
/// by a restart instead. What rewrites segments gives its room back and comes again later. So does
/// what receives a snapshot: waiting, it would keep the room that is missing.
fn can_repeat(job: &BackgroundJob) -> bool {
    !matches!(
        job,
        BackgroundJob::HashKv { .. }
            | BackgroundJob::Reclaim(_)
            | BackgroundJob::InstallBegin { .. }
            | BackgroundJob::InstallChunk { .. }
            | BackgroundJob::InstallFinish { .. }
    )
}

fn background_or_fault(files: &dyn Files, whose: Whose, job: &mut BackgroundJob) -> Result<JobResult, Fault> {
    let id = whose.id;
    Ok(match job {
        BackgroundJob::WriteRecords { segment, offset, parts, seals } => {
            let upto = records::write(files, id, *segment, *offset, parts)?;
            let sealed = if *seals { records::seal(files, *segment, upto) } else { Ok(()) };
            // A segment can do without a seek table. Another member gives what is damaged.
            let damage = match sealed {
                Err(fault) if fault.is_damage() => Some(fault),
                other => other.map(|()| None)?,
            };
            JobResult::Written { segment: *segment, upto, sealed: *seals, damage }
        }
        BackgroundJob::HashKv { scan } => {
            let sliced = scan.slice(files, HASH_SLICE);
            let scan = std::mem::take(scan);
            match sliced {
                Ok(done) => JobResult::HashKv { scan, done },
                Err(fault) if fault.is_refused() => JobResult::HashKvUnread { scan, fault },
                Err(fault) => return Err(fault),
            }
        }
        BackgroundJob::Scrub { scan, bytes } => {
            let step = scan.step(files, id, *bytes);
            JobResult::Scrubbed { scan: std::mem::take(scan), step }
        }
        BackgroundJob::ReadBackup { segments, place, until, max_bytes } => {
            backup(files, segments, *place, *until, *max_bytes)?
        }
        BackgroundJob::ReadHistory { segments, from, until, max_bytes } => {
            records::check_there(files, segments)?;
            let (records, next) = records::history(files, segments, *from, *until, *max_bytes)?;
            JobResult::History { records, next }
        }
        BackgroundJob::CheckpointBegin { index } => {
            checkpoint::begin(files, id, *index)?;
            JobResult::CheckpointBegun
        }
        BackgroundJob::CheckpointRows { index, rows } => {
            checkpoint::rows(files, *index, rows)?;
            JobResult::RowsWritten
        }
        BackgroundJob::CheckpointFinish { index, head, held } => {
            let finished = checkpoint::finish(files, id, *index, head)?;
            if finished.fresh {
                checkpoint::clean(files, id, held)?;
            }
            let disk_bytes = checkpoint::disk_bytes(files)?;
            let checkpoint::Finished { manifest, cut, fresh } = finished;
            JobResult::CheckpointDone { fresh, manifest, cut, disk_bytes }
        }
        BackgroundJob::Reclaim(job) => JobResult::Reclaim(reclaim_step(files, id, job)?),
        BackgroundJob::ReadRecords { segments, after, before, max_bytes } => {
            let (records, end) = records::between(files, segments, *after, *before, *max_bytes)?;
            JobResult::Records { records, end }
        }
        BackgroundJob::Mend { segment, at, parts } => {
            mend::write(files, id, *segment, *at, parts)?;
            JobResult::RecordsMended
        }
        BackgroundJob::Mended { segment, sealed, fillers } => {
            sealed.map_or(Ok(()), |end| mend::seal_anew(files, *segment, end))?;
            let manifest = if *fillers { mend::name_anew(files, id, *segment)? } else { None };
            JobResult::SegmentMended { manifest }
        }
        BackgroundJob::ReadChunk { file, offset, len } => {
            let (bytes, end) = transfer::read_chunk(files, file, *offset, *len)?;
            JobResult::Chunk { bytes, end }
        }
        BackgroundJob::InstallBegin { manifest } => {
            let wanted = transfer::begin(files, id, manifest)?;
            JobResult::InstallBegun { files: wanted, received: staging::received(files)? }
        }
        BackgroundJob::InstallDrop { applied } => {
            staging::drop_overtaken(files, *applied)?;
            JobResult::InstallDropped
        }
        BackgroundJob::InstallChunk { file, offset, bytes, kept } => {
            let taken = transfer::write_chunk(files, file, *offset, bytes)?;
            chunk_written(taken, *kept)?
        }
        BackgroundJob::MarkCorrupt => {
            corrupt::mark(files, id)?;
            JobResult::CorruptMarked
        }
        BackgroundJob::Remember(what) => remember(files, id, what)?,
        BackgroundJob::InstallFinish { differed } => install(files, whose, *differed)?,
    })
}

fn backup(
    files: &dyn Files,
    segments: &[SegmentUse],
    mut place: records::Place,
    until: i64,
    max_bytes: u64,
) -> Result<JobResult, Fault> {
    records::check_there(files, segments)?;
    let mut records = Vec::new();
    let end = records::scan_on(files, segments, &mut place, until, max_bytes, |record| records.push(record.clone()))?;
    Ok(JobResult::Backup { records, place, end })
}

/// What spoiled a piece that was kept from before is no fault of the sender.
fn chunk_written(taken: Taken, kept: bool) -> Result<JobResult, Fault> {
    match taken {
        Taken::Piece | Taken::Whole => Ok(JobResult::ChunkWritten),
        Taken::Spoiled(fault) if kept => Ok(JobResult::KeptSpoiled { fault }),
        Taken::Spoiled(fault) => Err(fault),
    }
}

fn remember(files: &dyn Files, id: Identity, what: &Remembered) -> Result<JobResult, Fault> {
    match what {
        Remembered::Contradicted(seen) => contradicted::mark(files, id, seen)?,
        Remembered::Founding(founding) => history::mark(files, id, *founding)?,
        Remembered::Voters(ids) => voters::mark(files, id, ids)?,
    }
    Ok(JobResult::Remembered)
}

fn install(files: &dyn Files, whose: Whose, differed: Option<u64>) -> Result<JobResult, Fault> {
    let installed = transfer::install(files, whose.id, whose.config)?;
    if let Some(at) = differed {
        startover::count(files, whose.id, startover::Why::Differs, at)?;
    }
    Ok(JobResult::Installed { store: Box::new(installed.store) })
}

fn reclaim_step(files: &dyn Files, id: Identity, job: &ReclaimJob) -> Result<ReclaimResult, Fault> {
    Ok(match job {
        ReclaimJob::Read { run, place, most, max_bytes } => {
            ReclaimResult::Read(reclaim::read(files, id, run, *place, *most, *max_bytes)?)
        }
        ReclaimJob::Write { output, offset, parts } => {
            reclaim::write(files, id, *output, *offset, parts)?;
            ReclaimResult::Written
        }
        ReclaimJob::Finish { output, end } => {
            reclaim::finish(files, *output, *end)?;
            ReclaimResult::Finished
        }
        ReclaimJob::GiveUp { output } => {
            reclaim::give_up(files, *output)?;
            ReclaimResult::GivenUp
        }
    })
}

/// `again`: on a full disk the job may be done once more.
fn ran<J>(job: J, result: Result<JobResult, Fault>, again: bool) -> Ran<J> {
    match result {
        Ok(result) => Ran::Done(result),
        Err(fault) if again && fault.is_full() => Ran::Full { job, fault },
        Err(fault) => Ran::Done(JobResult::Failed { fault }),
    }
}
