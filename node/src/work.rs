//! Carries a job out: blocking calls against `Files`, on whatever thread the driver chose.

use crate::io::{Job, JobResult};
use crate::jobs::is_refused;
use consensus::Doubt;
use disk::transfer::Taken;
use disk::{Fault, Files, Identity, Log, checkpoint, corrupt, mend, records, staging, transfer};
use std::sync::Arc;
use store::hash::HashKv;

/// Bytes of records that one slice of a HashKV scan reads.
const HASH_SLICE: u64 = 4 << 20;

/// A HashKV on its way through the files.
#[derive(Debug)]
pub struct HashScan {
    hash: HashKv,
    place: records::Place,
    until: i64,
    /// The segments that the state had.
    segments: Vec<u32>,
}

impl HashScan {
    /// `hash` holds the keep-set of `revision`.
    pub fn new(revision: i64, hash: HashKv, segments: Vec<u32>) -> HashScan {
        HashScan { hash, place: records::Place::default(), until: revision.saturating_add(1), segments }
    }

    /// Reads about `bytes` more; true when the scan is done.
    fn slice(&mut self, files: &dyn Files, bytes: u64) -> Result<bool, Fault> {
        records::check_there(files, &self.segments)?;
        let hash = &mut self.hash;
        records::scan_on(files, &mut self.place, self.until, bytes, |record| {
            hash.feed(record.rev, record.tombstone, &record.body);
        })
    }

    pub fn hash(&self) -> u32 {
        self.hash.finish()
    }
}

/// Which thread a job belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// The log: one at a time, in order.
    Log,
    /// Small reads that somebody waits for.
    Reader,
    /// Everything else: one at a time, in the order of [`crate::queue`].
    Background,
}

pub fn lane(job: &Job) -> Lane {
    match job {
        Job::Save { .. }
        | Job::Prove { .. }
        | Job::KeepDoubt { .. }
        | Job::CutLog { .. }
        | Job::RestartLog { .. }
        | Job::ReadLog { .. }
        | Job::ReleaseSpares => Lane::Log,
        Job::ReadRecord { .. } => Lane::Reader,
        _ => Lane::Background,
    }
}

/// What became of a job.
pub enum Ran {
    Done(JobResult),
    /// The disk is full and the job was not done; nothing half done stands in the way of doing it
    /// again. The lane waits with it: [`FULL_AGAIN_MS`] later it is tried once more, and the member
    /// is told once (`Input::Stalled`).
    Full {
        job: Job,
        fault: Fault,
    },
}

/// How long a lane waits for space before it tries again. Milliseconds.
pub const FULL_AGAIN_MS: u64 = 250;

/// Carries out a job of [`Lane::Log`]. On a full disk the spare files of the log are given up first.
pub fn run_log(log: &mut Log, job: Job) -> Ran {
    let mut result = log_or_fault(log, &job);
    let full = |result: &Result<JobResult, Fault>| result.as_ref().is_err_and(Fault::is_full);
    if full(&result) && log.release_spares().unwrap_or(false) {
        result = log_or_fault(log, &job);
    }
    match result {
        // A write or flush that failed has stopped the log: then no second attempt can help.
        Err(fault) if fault.is_full() && log.usable() => Ran::Full { job, fault },
        result => Ran::Done(failed(result)),
    }
}

fn log_or_fault(log: &mut Log, job: &Job) -> Result<JobResult, Fault> {
    Ok(match job {
        Job::Save { number: _, hard, entries } => {
            log.save(*hard, entries)?;
            JobResult::Saved
        }
        Job::KeepDoubt { doubt } => {
            // As long as a vote may be forgotten, nothing less is remembered than "everything".
            let promise = |doubt: &Doubt| doubt.promise.filter(|_| !doubt.vote).map(|at| (at.index, at.term));
            log.keep_doubt(doubt.as_ref().map(promise))?;
            JobResult::DoubtKept
        }
        Job::Prove { commit } => {
            log.prove(*commit)?;
            JobResult::Proven
        }
        Job::CutLog { below } => {
            log.cut_below(*below)?;
            JobResult::LogCut
        }
        Job::RestartLog { hard, index, term } => {
            log.restart_at(*hard, *index, *term)?;
            JobResult::LogRestarted
        }
        Job::ReadLog { ticket, from, max_bytes } => {
            JobResult::Log { ticket: *ticket, entries: log.read(*from, *max_bytes)? }
        }
        Job::ReleaseSpares => {
            log.release_spares()?;
            JobResult::SparesReleased
        }
        other => panic!("{other:?} is no work for the log"),
    })
}

/// Carries out a job of any other lane.
pub fn run(files: &Arc<dyn Files>, id: Identity, config: store::Config, job: Job) -> Ran {
    let files: &dyn Files = &**files;
    let job = match job {
        Job::HashKv { mut scan } => {
            let sliced = scan.slice(files, HASH_SLICE);
            return Ran::Done(match sliced {
                Ok(done) => JobResult::HashKv { scan, done },
                Err(fault) if is_refused(&fault) => JobResult::HashKvUnread { scan, fault },
                Err(fault) => JobResult::Failed { fault },
            });
        }
        Job::Scrub { mut scan, bytes } => {
            let step = scan.step(files, id, bytes);
            return Ran::Done(JobResult::Scrubbed { scan, step });
        }
        other => other,
    };
    match run_or_fault(files, id, config, &job) {
        Err(fault) if fault.is_full() && can_repeat(&job) => Ran::Full { job, fault },
        result => Ran::Done(failed(result)),
    }
}

/// An install that is being put in place is resumed by a restart instead.
fn can_repeat(job: &Job) -> bool {
    !matches!(job, Job::InstallFinish)
}

fn run_or_fault(files: &dyn Files, id: Identity, config: store::Config, job: &Job) -> Result<JobResult, Fault> {
    Ok(match job {
        Job::WriteRecords { segment, offset, parts, seals } => {
            let upto = records::write(files, id, *segment, *offset, parts)?;
            let sealed = if *seals { records::seal(files, *segment, upto) } else { Ok(()) };
            // A segment can do without a seek table. What is damaged comes again from another member.
            let damage = match sealed {
                Err(fault) if fault.is_damage() => Some(fault),
                other => other.map(|()| None)?,
            };
            JobResult::Written { segment: *segment, upto, sealed: *seals, damage }
        }
        Job::ReadRecord { handle } => JobResult::Record(records::read(files, *handle)?),
        Job::ReadBackup { segments, place, until, max_bytes } => {
            records::check_there(files, segments)?;
            let (mut place, mut records) = (*place, Vec::new());
            let end = records::scan_on(files, &mut place, *until, *max_bytes, |record| records.push(record.clone()))?;
            JobResult::Backup { records, place, end }
        }
        Job::ReadHistory { segments, from, until, max_bytes } => {
            records::check_there(files, segments)?;
            let (records, next) = records::history(files, *from, *until, *max_bytes)?;
            JobResult::History { records, next }
        }
        Job::CheckpointBegin { index } => {
            checkpoint::begin(files, id, *index)?;
            JobResult::CheckpointBegun
        }
        Job::CheckpointRows { index, rows } => {
            checkpoint::rows(files, *index, rows)?;
            JobResult::RowsWritten
        }
        Job::CheckpointFinish { index, head, held } => {
            let finished = checkpoint::finish(files, id, *index, head)?;
            checkpoint::clean(files, id, held)?;
            JobResult::CheckpointDone { manifest: finished.manifest, cut: finished.cut }
        }
        Job::ReadRecords { segments, after, before, max_bytes } => {
            let (records, end) = records::between(files, segments, *after, *before, *max_bytes)?;
            JobResult::Records { records, end }
        }
        Job::Mend { segment, at, parts } => {
            mend::write(files, id, *segment, *at, parts)?;
            JobResult::RecordsMended
        }
        Job::Mended { segment, sealed, fillers } => {
            sealed.map_or(Ok(()), |end| mend::seal_anew(files, *segment, end))?;
            let manifest = if *fillers { mend::name_anew(files, id, *segment)? } else { None };
            JobResult::SegmentMended { manifest }
        }
        Job::ReadChunk { file, offset, len } => {
            let (bytes, end) = transfer::read_chunk(files, file, *offset, *len)?;
            JobResult::Chunk { bytes, end }
        }
        Job::InstallBegin { manifest } => {
            let wanted = transfer::begin(files, id, manifest)?;
            JobResult::InstallBegun { files: wanted, received: staging::received(files)? }
        }
        Job::InstallDrop { applied } => {
            staging::drop_overtaken(files, *applied)?;
            JobResult::InstallDropped
        }
        Job::InstallChunk { file, offset, bytes, kept } => match transfer::write_chunk(files, file, *offset, bytes)? {
            Taken::Piece | Taken::Whole => JobResult::ChunkWritten,
            Taken::Spoiled(fault) if *kept => JobResult::KeptSpoiled { fault },
            Taken::Spoiled(fault) => return Err(fault),
        },
        Job::MarkCorrupt => {
            corrupt::mark(files, id)?;
            JobResult::CorruptMarked
        }
        Job::InstallFinish => {
            let installed = transfer::install(files, id, config).map_err(half_installed)?;
            JobResult::Installed { store: Box::new(installed.store) }
        }
        other => panic!("{other:?} is work for the log"),
    })
}

/// A member whose files are of neither state must end, as it does when the disk fails.
fn half_installed(fault: Fault) -> Fault {
    match fault {
        Fault::Stopped { file, reason } => Fault::io(&file, 0, std::io::Error::other(reason)),
        other => other,
    }
}

fn failed(result: Result<JobResult, Fault>) -> JobResult {
    result.unwrap_or_else(|fault| JobResult::Failed { fault })
}
