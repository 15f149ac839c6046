//! The simulated disk of one member.
//!
//! A job runs at once against the *view* (what a process sees: the page cache), but each of its
//! calls gets a virtual time. The journal keeps every change with the bytes it replaced, so that
//! a crash at time *t* takes back what would have happened later. Beside the view stands what is
//! *durable*: file bytes as of their last flush, names as of the last flush of their directory.
//!
//! - A killed process loses the calls after *t*; the page cache survives.
//! - A power loss keeps of each unflushed write all, nothing, or some of its 512-byte sectors,
//!   and of each unflushed creation, renaming and removal all or nothing.
//! - A flush that fails keeps its pages for the next one, or *loses* them: they stay visible and
//!   no later flush writes them (the trap of the fsync study).

mod calls;
mod harm;
mod process;

pub use harm::{Image, Rotten, Trouble};

use crate::rng::Rng;
use crate::trace::Time;
use disk::{File, Files, How};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

const SECTOR: usize = 512;

type FileId = u64;

#[derive(Clone, Debug)]
enum Change {
    Write { offset: usize, bytes: Vec<u8>, lost: bool },
    SetLen(usize),
}

/// A change of names: `sets` are (path, file or gone).
#[derive(Clone, Debug)]
struct Renaming {
    dir: String,
    sets: Vec<(String, Option<FileId>)>,
}

#[derive(Debug, Default)]
struct Data {
    view: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
    /// Offset and length of the last write that was flushed and is not all zeros.
    last_write: Option<(usize, usize)>,
    handles: u32,
    /// Numbers of the pages that cannot be read until they are written.
    unreadable: BTreeSet<usize>,
}

#[derive(Debug)]
enum Act {
    Change { file: FileId, change: Change },
    Flush { file: FileId, fails: Option<FlushFailure> },
    Names(Renaming),
    FlushNames { dir: String },
    MakeDir,
}

#[derive(Debug)]
enum Undo {
    Nothing,
    /// Bytes at `offset` and the length before.
    Bytes {
        file: FileId,
        offset: usize,
        old: Vec<u8>,
        len: usize,
    },
    Names(Vec<(String, Option<FileId>)>),
    Dir(String),
}

#[derive(Debug)]
struct Entry {
    time: Time,
    act: Act,
    undo: Undo,
}

/// What happens to the pages of a failed flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushFailure {
    PagesKept,
    PagesLost,
}

/// Decided before the job runs: its `call`-th changing call (from 1) fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallFault {
    pub call: u32,
    pub flush: FlushFailure,
    /// Fails only if that call is a flush; otherwise the next flush does.
    pub only_flush: bool,
}

/// A disk that lies: for planted bugs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lies {
    pub ignores_sync: bool,
    pub ignores_sync_dir: bool,
    /// Of the directory of all files alone.
    pub ignores_root: bool,
    /// Of the directory of checkpoints alone.
    pub ignores_state: bool,
    /// A spare file of the log that gets the name of a log file keeps its own name too.
    pub keeps_spares: bool,
    /// The mark of a wrong state cannot be removed.
    pub keeps_corrupt: bool,
    /// `log/reached` stays what it was.
    pub keeps_reached: bool,
    /// Open files are kept by name, whatever the name stands for meanwhile.
    pub keeps_handles: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Mean of a flush, microseconds.
    pub flush: Time,
    /// Multiplies everything, in percent.
    pub percent: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerLoss {
    /// Nothing unflushed survives.
    Nothing,
    /// All of it does.
    Everything,
    /// Each change is dropped, kept or torn.
    Some,
}

/// What a job did to the disk.
#[derive(Clone, Debug)]
pub struct Report {
    pub end: Time,
    /// When each changing call was done.
    pub calls: Vec<Time>,
    pub failed: bool,
}

#[derive(Debug)]
struct Inner {
    rng: Rng,
    files: BTreeMap<FileId, Data>,
    next_file: FileId,
    names: BTreeMap<String, FileId>,
    durable_names: BTreeMap<String, FileId>,
    pending_names: Vec<Renaming>,
    dirs: BTreeSet<String>,
    /// Changes whose time has not come.
    journal: Vec<Entry>,
    speed: Speed,
    /// When the last call is done that began while the disk was slow.
    slow_until: Time,
    stalled_until: Time,
    full: bool,
    trouble: harm::Trouble,
    lies: Lies,
    // The job that runs now.
    clock: Time,
    calls: Vec<Time>,
    fault: Option<CallFault>,
    failed: bool,
}

/// Clones share the disk.
#[derive(Clone)]
pub struct Disk(Arc<Mutex<Inner>>);

struct Handle {
    disk: Disk,
    file: FileId,
    writable: bool,
}

fn dir_of(path: &str) -> String {
    path.rsplit_once('/').map_or(String::new(), |(dir, _)| dir.to_string())
}

fn gone(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{path}: no such file"))
}

/// Bytes of a page: the least that a drive reads.
const PAGE: usize = 4096;

fn broken() -> io::Error {
    io::Error::other("input/output error (simulated)")
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Change::Write { offset, bytes, .. } => put(to, *offset, bytes),
            Change::SetLen(len) => to.resize(*len, 0),
        }
    }
}

fn put(to: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if to.len() < end {
        to.resize(end, 0);
    }
    to[offset..end].copy_from_slice(bytes);
}

impl Inner {
    /// Lets time pass for one call and says when it is done.
    fn spend(&mut self, mean: Time) -> Time {
        let cost = self.rng.delay(mean) * self.speed.percent / 100;
        self.clock = self.clock.max(self.stalled_until) + cost.max(1);
        if self.speed.percent > 100 {
            self.slow_until = self.slow_until.max(self.clock);
        }
        self.clock
    }

    /// One changing call: Err when this is the one that was chosen to fail.
    fn call(&mut self, mean: Time, flush: bool) -> Result<Time, FlushFailure> {
        let time = self.spend(mean);
        self.calls.push(time);
        let number = self.calls.len() as u32;
        match self.fault {
            Some(f) if number >= f.call && (!f.only_flush || flush) => {
                self.fault = None;
                self.failed = true;
                Err(f.flush)
            }
            _ => Ok(time),
        }
    }

    fn note(&mut self, time: Time, act: Act, undo: Undo) {
        self.journal.push(Entry { time, act, undo });
    }

    fn change(&mut self, file: FileId, change: Change, time: Time) {
        let data = self.files.get_mut(&file).expect("an open file exists");
        let len = data.view.len();
        let (offset, old) = match &change {
            Change::Write { offset, bytes, .. } => {
                let end = (offset + bytes.len()).min(len);
                let pages = offset / PAGE..(offset + bytes.len()).div_ceil(PAGE);
                data.unreadable.retain(|page| !pages.contains(page));
                (*offset, if *offset < end { data.view[*offset..end].to_vec() } else { Vec::new() })
            }
            Change::SetLen(to) if *to < len => (*to, data.view[*to..].to_vec()),
            Change::SetLen(_) => (len, Vec::new()),
        };
        change.apply(&mut data.view);
        self.note(time, Act::Change { file, change }, Undo::Bytes { file, offset, old, len });
    }

    fn set_names(&mut self, dir: String, sets: Vec<(String, Option<FileId>)>, time: Time) {
        let old = sets.iter().map(|(path, _)| (path.clone(), self.names.get(path).copied())).collect();
        assign(&mut self.names, &sets);
        self.note(time, Act::Names(Renaming { dir, sets }), Undo::Names(old));
    }

    /// Everything up to `now` has happened: it can no longer be taken back.
    fn settle(&mut self, now: Time) {
        if self.journal.iter().all(|e| e.time > now) {
            return;
        }
        let mut due: Vec<Entry> = Vec::new();
        let mut later = Vec::new();
        for entry in std::mem::take(&mut self.journal) {
            if entry.time <= now { due.push(entry) } else { later.push(entry) }
        }
        self.journal = later;
        due.sort_by_key(|e| e.time);
        for entry in due {
            self.happen(entry.act);
        }
        self.forget_nameless();
    }

    fn happen(&mut self, act: Act) {
        match act {
            Act::Change { file, change } => {
                if let Some(data) = self.files.get_mut(&file) {
                    data.pending.push(change);
                }
            }
            Act::Flush { file, fails } => {
                let Some(data) = self.files.get_mut(&file) else { return };
                match fails {
                    None if self.lies.ignores_sync => {}
                    None if self.trouble.loses_log && harm::is_log(&self.names, file) => {}
                    None => {
                        data.last_write = harm::last_write(&data.pending).or(data.last_write);
                        flush(data)
                    }
                    Some(FlushFailure::PagesKept) => {}
                    Some(FlushFailure::PagesLost) => {
                        for change in &mut data.pending {
                            if let Change::Write { lost, .. } = change {
                                *lost = true;
                            }
                        }
                    }
                }
            }
            Act::Names(renaming) => self.pending_names.push(renaming),
            Act::FlushNames { dir } => {
                if self.lies.ignores_sync_dir {
                    return;
                }
                let (due, rest): (Vec<_>, Vec<_>) =
                    std::mem::take(&mut self.pending_names).into_iter().partition(|r| r.dir == dir);
                self.pending_names = rest;
                for renaming in due {
                    assign(&mut self.durable_names, &renaming.sets);
                }
            }
            Act::MakeDir => {}
        }
    }

    fn forget_nameless(&mut self) {
        if self.files.len() < 48 {
            return;
        }
        let mut named: BTreeSet<FileId> = self.names.values().chain(self.durable_names.values()).copied().collect();
        let journal = self.journal.iter().flat_map(|e| match (&e.act, &e.undo) {
            (Act::Names(r), Undo::Names(old)) => r.sets.iter().chain(old).filter_map(|s| s.1).collect(),
            _ => Vec::new(),
        });
        let pending = self.pending_names.iter().flat_map(|r| r.sets.iter().filter_map(|s| s.1));
        named.extend(journal.collect::<Vec<_>>());
        named.extend(pending.collect::<Vec<_>>());
        self.files.retain(|id, data| data.handles > 0 || named.contains(id));
    }

    /// Takes back, newest first, what the process would have done after `now`.
    fn kill(&mut self, now: Time) {
        self.settle(now);
        for entry in std::mem::take(&mut self.journal).into_iter().rev() {
            match entry.undo {
                Undo::Nothing => {}
                Undo::Bytes { file, offset, old, len } => {
                    let data = self.files.get_mut(&file).expect("still there");
                    if !old.is_empty() {
                        put(&mut data.view, offset, &old);
                    }
                    data.view.resize(len, 0);
                }
                Undo::Names(old) => assign(&mut self.names, &old),
                Undo::Dir(dir) => {
                    self.dirs.remove(&dir);
                }
            }
        }
    }

    fn power_loss(&mut self, now: Time, how: PowerLoss) {
        self.kill(now);
        let Inner { rng, files, durable_names, pending_names, .. } = self;
        let survives = |rng: &mut Rng| match how {
            PowerLoss::Nothing => false,
            PowerLoss::Everything => true,
            PowerLoss::Some => rng.percent(50),
        };
        for renaming in std::mem::take(pending_names) {
            if survives(rng) {
                assign(durable_names, &renaming.sets);
            }
        }
        for data in files.values_mut() {
            for change in std::mem::take(&mut data.pending) {
                match change {
                    Change::Write { lost: true, .. } => {}
                    Change::Write { offset, bytes, .. } if how == PowerLoss::Some => {
                        tear(rng, &mut data.durable, offset, &bytes)
                    }
                    change => {
                        if survives(rng) {
                            change.apply(&mut data.durable);
                        }
                    }
                }
            }
            data.view = data.durable.clone();
        }
        self.names = self.durable_names.clone();
        let named: BTreeSet<FileId> = self.names.values().copied().collect();
        self.files.retain(|id, _| named.contains(id));
    }
}

fn assign(names: &mut BTreeMap<String, FileId>, sets: &[(String, Option<FileId>)]) {
    for (path, file) in sets {
        match file {
            Some(file) => names.insert(path.clone(), *file),
            None => names.remove(path),
        };
    }
}

fn flush(data: &mut Data) {
    let mut lost = Vec::new();
    for change in std::mem::take(&mut data.pending) {
        match change {
            Change::Write { lost: true, .. } => lost.push(change),
            change => change.apply(&mut data.durable),
        }
    }
    data.pending = lost;
}

/// Writes some sectors of a write: none, all, a beginning, or any subset.
fn tear(rng: &mut Rng, to: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let mode = rng.below(4);
    let cut = rng.below(bytes.len().max(1) as u64) as usize;
    let mut at = 0;
    while at < bytes.len() {
        let sector_end = ((offset + at) / SECTOR + 1) * SECTOR - offset;
        let end = sector_end.min(bytes.len());
        let keep = match mode {
            0 => false,
            1 => true,
            2 => at < cut,
            _ => rng.percent(50),
        };
        if keep {
            put(to, offset + at, &bytes[at..end]);
        }
        at = end;
    }
}

impl Disk {
    pub fn new(rng: Rng, speed: Speed) -> Disk {
        Disk(Arc::new(Mutex::new(Inner {
            rng,
            files: BTreeMap::new(),
            next_file: 1,
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending_names: Vec::new(),
            dirs: BTreeSet::from([String::new()]),
            journal: Vec::new(),
            speed,
            slow_until: 0,
            stalled_until: 0,
            full: false,
            trouble: harm::Trouble::default(),
            lies: Lies::default(),
            clock: 0,
            calls: Vec::new(),
            fault: None,
            failed: false,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic of the code under test must not hide behind a poisoned lock.
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// For what is no member's process: an operator's tool, or the oracle.
    pub fn files(&self) -> Arc<dyn Files> {
        Arc::new(self.clone())
    }

    /// The calls that follow belong to a job that starts at `now`.
    pub fn begin(&self, now: Time, fault: Option<CallFault>) {
        self.begin_late(now, now, fault);
    }

    /// As [`Disk::begin`], for a job whose lane stands still until `start`.
    pub fn begin_late(&self, now: Time, start: Time, fault: Option<CallFault>) {
        let mut inner = self.lock();
        inner.settle(now);
        inner.clock = start;
        inner.calls.clear();
        inner.fault = fault;
        inner.failed = false;
    }

    pub fn end(&self) -> Report {
        let mut inner = self.lock();
        inner.fault = None;
        Report { end: inner.clock, calls: std::mem::take(&mut inner.calls), failed: inner.failed }
    }

    /// The process dies at `now`; the machine lives.
    pub fn kill(&self, now: Time) {
        self.lock().kill(now);
    }

    pub fn power_loss(&self, now: Time, how: PowerLoss) {
        self.lock().power_loss(now, how);
    }

    pub fn set_percent(&self, percent: u64) {
        self.lock().speed.percent = percent;
    }

    /// Writes and flushes that start before `until` wait for it.
    pub fn stall(&self, until: Time) {
        self.lock().stalled_until = until;
    }

    pub fn set_full(&self, full: bool) {
        self.lock().full = full;
    }

    pub fn is_full(&self) -> bool {
        self.lock().full
    }

    /// Files may grow.
    pub fn has_room(&self) -> bool {
        let inner = self.lock();
        !inner.full && inner.trouble.no_room.is_none()
    }

    pub fn set_lies(&self, lies: Lies) {
        self.lock().lies = lies;
    }

    /// What it does wrong now.
    pub fn lies(&self) -> Lies {
        self.lock().lies
    }

    /// All bytes of a file as a process sees them.
    pub fn peek(&self, path: &str) -> Option<Vec<u8>> {
        let inner = self.lock();
        inner.names.get(path).map(|id| inner.files[id].view.clone())
    }

    /// There is a file of this path.
    pub fn has(&self, path: &str) -> bool {
        self.lock().names.contains_key(path)
    }

    /// Looks at what a file holds for its readers, if there is one.
    pub fn look<T>(&self, path: &str, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let inner = self.lock();
        inner.names.get(path).map(|id| look(&inner.files[id].view))
    }

    /// Paths of all files, ascending.
    pub fn paths(&self) -> Vec<String> {
        self.lock().names.keys().cloned().collect()
    }

    /// Replaces bytes behind everybody's back, durably: rot.
    pub fn rot(&self, path: &str, offset: usize, bytes: &[u8]) {
        let mut inner = self.lock();
        let Some(id) = inner.names.get(path).copied() else { return };
        let data = inner.files.get_mut(&id).expect("named files exist");
        put(&mut data.view, offset, bytes);
        put(&mut data.durable, offset, bytes);
    }

    /// Removes a file behind everybody's back, durably.
    pub fn lose_file(&self, path: &str) {
        let mut inner = self.lock();
        inner.names.remove(path);
        inner.durable_names.remove(path);
    }

    /// A copy of everything durable and visible, to be put back later (a disk restored from an old
    /// image).
    pub fn image(&self) -> BTreeMap<String, Vec<u8>> {
        let inner = self.lock();
        inner.names.iter().map(|(path, id)| (path.clone(), inner.files[id].view.clone())).collect()
    }

    /// The disk holds `image` and nothing else, durably.
    pub fn restore(&self, image: &BTreeMap<String, Vec<u8>>) {
        let mut inner = self.lock();
        inner.journal.clear();
        inner.pending_names.clear();
        inner.files.clear();
        inner.names.clear();
        for (path, bytes) in image {
            inner.dirs.insert(dir_of(path));
            let id = inner.next_file;
            inner.next_file += 1;
            inner.files.insert(id, Data { view: bytes.clone(), durable: bytes.clone(), ..Data::default() });
            inner.names.insert(path.clone(), id);
        }
        inner.durable_names = inner.names.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Disk {
        Disk::new(Rng::new(1, "disk"), Speed { flush: 1000, percent: 100 })
    }

    fn write(disk: &Disk, at: Time, path: &str, bytes: &[u8], sync: bool) -> Report {
        disk.begin(at, None);
        let file = disk.open(path, How::Create).expect("create");
        file.write_at(0, &[bytes]).expect("write");
        if sync {
            file.sync().expect("sync");
            disk.sync_dir("").expect("sync_dir");
        }
        disk.end()
    }

    #[test]
    fn what_is_flushed_survives_and_what_is_not_may_not() {
        let d = disk();
        let end = write(&d, 0, "a", b"old", true).end;
        let end = write(&d, end, "a", b"newer", false).end;
        write(&d, end, "b", b"b", false);
        d.power_loss(1 << 40, PowerLoss::Nothing);
        assert_eq!(d.peek("a").as_deref(), Some(&b"old"[..]));
        assert_eq!(d.peek("b"), None);
    }

    #[test]
    fn a_killed_process_loses_the_calls_after_its_death_alone() {
        let d = disk();
        let end = write(&d, 0, "a", b"old", true).end;
        let report = write(&d, end, "a", b"newer", true);
        // Emptied and written, not flushed.
        d.kill(report.calls[1]);
        assert_eq!(d.peek("a").as_deref(), Some(&b"newer"[..]));
        d.power_loss(report.calls[1], PowerLoss::Nothing);
        assert_eq!(d.peek("a").as_deref(), Some(&b"old"[..]));
        let report = write(&d, 1 << 30, "a", b"again", true);
        d.kill(report.calls[0] - 1);
        assert_eq!(d.peek("a").as_deref(), Some(&b"old"[..]));
    }

    #[test]
    fn a_failed_flush_that_lost_its_pages_is_not_healed_by_the_next() {
        let d = disk();
        let end = write(&d, 0, "a", b"old", true).end;
        d.begin(end, Some(CallFault { call: 2, flush: FlushFailure::PagesLost, only_flush: true }));
        let file = d.open("a", How::Write).expect("open");
        file.write_at(0, &[b"new"]).expect("write");
        assert!(file.sync().is_err());
        file.sync().expect("the second flush says yes");
        d.end();
        d.kill(1 << 40);
        assert_eq!(d.peek("a").as_deref(), Some(&b"new"[..]), "the page cache still shows it");
        d.power_loss(1 << 40, PowerLoss::Everything);
        assert_eq!(d.peek("a").as_deref(), Some(&b"old"[..]));
    }

    #[test]
    fn torn_writes_tear_between_sectors() {
        let mut torn = 0;
        for seed in 0..50 {
            let d = Disk::new(Rng::new(seed, "disk"), Speed { flush: 1000, percent: 100 });
            let end = write(&d, 0, "a", &[1; 2048], true).end;
            d.begin(end, None);
            d.open("a", How::Write).expect("open").write_at(0, &[&[2; 2048]]).expect("write");
            d.end();
            d.power_loss(1 << 40, PowerLoss::Some);
            let bytes = d.peek("a").expect("there");
            for sector in bytes.chunks(SECTOR) {
                assert!(sector.iter().all(|b| *b == sector[0]));
            }
            torn += usize::from(bytes[0] != bytes[2047] || bytes[0] != bytes[1024]);
        }
        assert!(torn > 5, "{torn}");
    }

    #[test]
    fn a_rename_without_a_directory_flush_may_vanish() {
        let d = disk();
        let end = write(&d, 0, "a", b"one", true).end;
        d.begin(end, None);
        d.rename("a", "b").expect("rename");
        let end = d.end().end;
        d.power_loss(end, PowerLoss::Nothing);
        assert_eq!((d.peek("a").is_some(), d.peek("b").is_some()), (true, false));
    }
}
