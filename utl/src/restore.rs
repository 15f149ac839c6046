//! `snapshot restore`: a data directory of kvorum from a snapshot of etcd or of kvorum.
//!
//! The `identity` file is written in the last step: a restore that was interrupted leaves a
//! directory that a member refuses, or, with peers, one in which nothing else is missing. One that
//! fails removes what it made.

use crate::call::{Call, Failure};
use crate::directory::New;
use crate::etcd::{self, Content, DbFile, go_text};
use crate::initial_cluster::founding;
use crate::kvorum::log_options;
use crate::print::{count, log, size};
use crate::progress::bar;
use crate::{status, wal};
use bolt::Db;
use consensus::HardState;
use disk::founding::Founding;
use disk::{Fault, Files, Identity, Log, LogOptions, checkpoint, identity, records, restored};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::import::{Import, Imported, Tables};
use store::{Position, Store};

const PLACE: &str = "snapshot/restore.rs";
const DIGEST: u64 = 32;

/// What is restored, to where, as whom.
struct Plan<'a> {
    call: &'a Call,
    file: &'a str,
    data_dir: PathBuf,
    /// Where the log goes if not into the data directory.
    wal_dir: Option<PathBuf>,
    founding: Founding,
    bump: u64,
}

pub fn run(call: &Call) -> Result<(), Failure> {
    let [file] = call.args() else {
        return Err(Failure::bad_arguments("snapshot restore requires exactly one argument"));
    };
    let bump = call.uint("bump-revision");
    if (bump > 0) != call.switch("mark-compacted") {
        return Err(Failure::bad_arguments("--mark-compacted required if --revision-bump > 0"));
    }
    let name = call.text("name");
    let founding = founding(
        name,
        call.text("initial-cluster"),
        call.text("initial-cluster-token"),
        call.text("initial-advertise-peer-urls"),
    )?;
    let data_dir = match call.text("data-dir") {
        "" => PathBuf::from(format!("{name}.etcd")),
        dir => PathBuf::from(dir),
    };
    if fs::symlink_metadata(&data_dir).is_ok() && !is_empty_dir(&data_dir) {
        return Err(Failure::new(format!("data-dir {:?} not empty or could not be read", data_dir.display())));
    }
    let wal_dir = Some(call.text("wal-dir")).filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let wal_dir = wal_dir.filter(|dir| *dir != data_dir.join("member").join("wal"));
    if let Some(dir) = wal_dir.as_ref().filter(|dir| fs::symlink_metadata(dir).is_ok()) {
        return Err(Failure::new(format!("wal-dir {:?} exists", dir.display())));
    }
    Plan { call, file, data_dir, wal_dir, founding, bump }.carry_out()
}

fn is_empty_dir(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none())
}

impl Plan<'_> {
    fn carry_out(self) -> Result<(), Failure> {
        self.log("info", "restoring snapshot", &self.fields());
        let db = self.open()?;
        self.warn_of_missing_entries(&db)?;
        if self.call.switch("drop-auth") {
            let auth = etcd::auth(&db)?;
            let fields = [("users", json!(auth.users.len())), ("roles", json!(auth.roles.len()))];
            self.log("warn", "users and roles are not restored", &fields);
        }
        let cleaner = Cleaner::new(&self.data_dir, self.wal_dir.as_deref());
        let content = self.write(&db)?;
        cleaner.keep();
        self.log("info", "restored snapshot", &self.fields());
        self.say_done(&content);
        Ok(())
    }

    /// A line of the log; people get a summary instead, and warnings.
    fn log(&self, level: &str, message: &str, fields: &[(&str, Value)]) {
        if !self.call.people || level != "info" {
            log(level, PLACE, message, fields);
        }
    }

    fn fields(&self) -> [(&'static str, Value); 5] {
        let wal = self.wal_dir.clone().unwrap_or_else(|| self.data_dir.join("log"));
        [
            ("path", json!(self.file)),
            ("wal-dir", json!(wal)),
            ("data-dir", json!(self.data_dir)),
            ("snap-dir", json!(self.data_dir.join("state"))),
            ("initial-memory-map-size", json!(self.call.uint("initial-memory-map-size"))),
        ]
    }

    /// The file, its digest compared; without one, its pages checked.
    fn open(&self) -> Result<Db<DbFile>, Failure> {
        let named = |error: io::Error| Failure::new(format!("open {}: {}", self.file, go_text(&error)));
        let file = fs::File::open(self.file).map_err(named)?;
        let meta = file.metadata().map_err(named)?;
        if meta.is_dir() {
            return Err(Failure::new(format!("read {}: is a directory", self.file)));
        }
        let len = meta.len();
        if len < DIGEST {
            return Err(Failure::new(format!("seek {}: invalid argument", self.file)));
        }
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK) {
            return Err(Failure::new(format!(
                "{} is in use by a running etcd and changes while it is read: stop it, or take a snapshot \
                 (etcdctl snapshot save)",
                self.file
            )));
        }
        let skip = self.call.switch("skip-hash-check");
        if !bolt::digest_follows(len) && !skip {
            return Err(Failure::new("snapshot missing hash but --skip-hash-check=false"));
        }
        if !skip {
            self.compare_digest(&file, len - DIGEST)?;
        }
        drop(file);
        let db = etcd::open(self.call, self.file)?;
        if skip {
            status::check(&db)?;
        }
        Ok(db)
    }

    /// A file taken out of a data directory may lag behind the write-ahead log beside it.
    fn warn_of_missing_entries(&self, db: &Db<DbFile>) -> Result<(), Failure> {
        let path = Path::new(self.file);
        let wal = path.ancestors().nth(2).map(|member| member.join("wal"));
        let Some(Ok(last)) = wal.filter(|_| path.ends_with("snap/db")).map(|wal| wal::last_entry(&wal)) else {
            return Ok(());
        };
        let held = etcd::consistent_index(db)?;
        if last > held {
            let fields = [("missing-entries", json!(last - held))];
            let text = "the write-ahead log holds entries that the file does not have, and they are not \
                        restored: start that etcd once and stop it cleanly, or take a snapshot";
            self.log("warn", text, &fields);
        }
        Ok(())
    }

    fn compare_digest(&self, file: &fs::File, len: u64) -> Result<(), Failure> {
        let bar = bar(self.call.people, "checking", len);
        let read = |at, into: &mut [u8]| {
            file.read_exact_at(into, at)
                .map_err(|error| Failure::new(format!("read {}: {}", self.file, go_text(&error))))
        };
        let mut sum = Sha256::new();
        let mut buffer = vec![0; 1 << 20];
        let mut at = 0;
        while at < len {
            let some = usize::try_from(len - at).map_or(buffer.len(), |left| left.min(buffer.len()));
            read(at, &mut buffer[..some])?;
            sum.update(&buffer[..some]);
            at += some as u64;
            bar.set_position(at);
        }
        bar.finish_and_clear();
        let mut expected = [0; DIGEST as usize];
        read(len, &mut expected)?;
        let found: [u8; DIGEST as usize] = sum.finalize().into();
        if expected != found {
            let list = |bytes: &[u8]| bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(" ");
            return Err(Failure::new(format!("expected sha256 [{}], got [{}]", list(&expected), list(&found))));
        }
        Ok(())
    }

    fn write(&self, db: &Db<DbFile>) -> Result<Content, Failure> {
        let Founding { identity: id, members } = &self.founding;
        let files: Arc<dyn Files> = Arc::new(self.make_directory()?);
        let at = Position { index: members.len() as u64, term: 1 };
        let mut content = self.import(&*files, db, at)?;
        for member in members {
            let fields = [
                ("cluster-id", json!(format!("{:x}", id.cluster))),
                ("local-member-id", json!("0")),
                ("added-peer-id", json!(format!("{:x}", member.id))),
                ("added-peer-peer-urls", json!(member.peer_urls)),
                ("added-peer-is-learner", json!(false)),
            ];
            self.log("info", "added member", &fields);
        }
        let store = &mut content.imported.store;
        complete(&files, *id, log_options(*id), at, store).map_err(named(&self.data_dir))?;
        let io = |error: io::Error| Failure::new(format!("{}: {}", self.data_dir.display(), go_text(&error)));
        restored::mark(&*files, *id).map_err(named(&self.data_dir))?;
        identity::write(&*files, *id, true).map_err(io)?;
        Ok(content)
    }

    fn make_directory(&self) -> Result<New, Failure> {
        let io = |error: io::Error| Failure::new(format!("{}: {}", self.data_dir.display(), go_text(&error)));
        let new = New::open(&self.data_dir).map_err(io)?;
        if let Some(dir) = &self.wal_dir {
            let io = |error: io::Error| Failure::new(format!("{}: {}", dir.display(), go_text(&error)));
            New::open(dir).map_err(io)?;
            let whole = dir.canonicalize().map_err(io)?;
            std::os::unix::fs::symlink(&whole, self.data_dir.join("log")).map_err(io)?;
            let fields = [("wal-dir", json!(whole))];
            self.log("warn", "the log lies outside of the data directory, which points to it", &fields);
        }
        Ok(new)
    }

    /// Keys, leases and alarms; records are written as they come.
    fn import(&self, files: &dyn Files, db: &Db<DbFile>, at: Position) -> Result<Content, Failure> {
        let mut tables = etcd::tables(db)?;
        let upto = self.upto(tables.compacted)?;
        tables.applied = at;
        tables.members = self.founding.members.clone();
        if self.call.switch("drop-auth") {
            tables.auth = store::import::AuthTables::default();
        }
        let id = self.founding.identity;
        let bar = bar(self.call.people, "restoring", db.bytes());
        let write = |import: &mut Import| write_records(files, id, import).map_err(named(&self.data_dir));
        let mut content = etcd::import(
            db,
            upto,
            tables,
            write,
            |bytes| bar.inc(bytes),
            |import, tables| self.end(import, tables, upto),
        )?;
        bar.finish_and_clear();
        let store = &mut content.imported.store;
        store.begin_founding(restored_founding(store.digest(), id.cluster));
        for id in &content.imported.orphans {
            let fields = [("lease", json!(format!("{id:016x}")))];
            self.log("warn", "a lease that keys name is not in the snapshot; its keys are kept without end", &fields);
        }
        if content.rewritten > 0 {
            let fields = [("rows", json!(content.rewritten))];
            self.log("warn", "rows were not in canonical form; hashes will differ from etcd's", &fields);
        }
        Ok(content)
    }

    /// All rows are there.
    fn end(&self, import: &mut Import, tables: &mut Tables, upto: i64) -> Result<(), Failure> {
        if upto < i64::MAX && import.last() < upto && tables.compacted < upto {
            return Err(Failure::new("mvcc: required revision is a future revision"));
        }
        if self.bump > 0 {
            tables.compacted = self.bump_revision(import)?;
        }
        Ok(())
    }

    /// The last revision that is restored.
    fn upto(&self, compacted: i64) -> Result<i64, Failure> {
        match self.call.int("at") {
            0 => Ok(i64::MAX),
            at if at < compacted.max(1) => Err(Failure::new("mvcc: required revision has been compacted")),
            at => Ok(at),
        }
    }

    fn bump_revision(&self, import: &mut Import) -> Result<i64, Failure> {
        let latest = import.last();
        let too_far = || Failure::new(format!("--bump-revision {}: no revision is that high", self.bump));
        let amount = i64::try_from(self.bump).map_err(|_| too_far())?;
        let new = latest.checked_add(amount).filter(|new| *new < i64::MAX).ok_or_else(too_far)?;
        let fields =
            [("latest-revision", json!(latest)), ("bump-amount", json!(amount)), ("new-latest-revision", json!(new))];
        self.log("info", "bumping latest revision", &fields);
        let row = import.row(store::Rev { main: new, sub: 0 }, false, b"");
        row.map_err(|damage| Failure::new(damage.to_string()))?;
        self.log("info", "marking revision compacted", &[("revision", json!(new))]);
        Ok(new)
    }

    fn say_done(&self, content: &Content) {
        if !self.call.people {
            return;
        }
        let Imported { store, .. } = &content.imported;
        let Founding { identity: id, members } = &self.founding;
        let call = self.call;
        println!(
            "Restored {}: revision {}, {} keys, {} leases, {} of records.",
            self.file,
            count(store.revision().cast_unsigned()),
            count(store.keys()),
            count(store.leases().count() as u64),
            size(store.segments().map(|segment| u64::from(segment.end)).sum())
        );
        println!(
            "{} is member {} ({:x}) of {} in cluster {:x}. Start it with",
            self.data_dir.display(),
            call.text("name"),
            id.member,
            members.len(),
            id.cluster
        );
        println!(
            "  kvorum server --name {} --data-dir {} --initial-cluster {} --initial-cluster-token {} \
             --initial-advertise-peer-urls {}",
            call.text("name"),
            self.data_dir.display(),
            call.text("initial-cluster"),
            call.text("initial-cluster-token"),
            call.text("initial-advertise-peer-urls")
        );
        if members.len() > 1 {
            println!("Restore the same file for the other {} members, each with its own --name.", members.len() - 1);
        }
    }
}

/// A restored cluster is founded anew, and may have the id of the one before. So it has a name of
/// its own: the same for all members that are restored from one file, in one way.
fn restored_founding(state: u128, cluster: u64) -> u64 {
    let mut sum = Sha256::new();
    sum.update(b"kvorum: restored");
    sum.update(state.to_le_bytes());
    sum.update(cluster.to_le_bytes());
    let [a, b, c, d, e, f, g, h, ..]: [u8; DIGEST as usize] = sum.finalize().into();
    // 0 is no name.
    u64::from_le_bytes([a, b, c, d, e, f, g, h]).max(1)
}

fn named(dir: &Path) -> impl Fn(Fault) -> Failure + use<'_> {
    move |fault| Failure::new(format!("{}/{fault}", dir.display()))
}

fn write_records(files: &dyn Files, id: Identity, import: &mut Import) -> Result<(), Fault> {
    for extent in import.unwritten(usize::MAX) {
        let upto = records::write(files, id, extent.segment, extent.offset, &extent.parts)?;
        if extent.seals {
            records::seal(files, extent.segment, upto)?;
        }
        import.written(extent.segment, upto, extent.seals);
    }
    Ok(())
}

/// All but the identity. The checkpoint is the last: with peers its manifest is enough for a member
/// to know whose directory it is.
fn complete(
    files: &Arc<dyn Files>,
    id: Identity,
    options: LogOptions,
    at: Position,
    store: &mut Store,
) -> Result<(), Fault> {
    write_log(files, id, options, at)?;
    write_checkpoint(&**files, id, at, store)?;
    read_back(&**files, id, store)
}

fn write_checkpoint(files: &dyn Files, id: Identity, at: Position, store: &mut Store) -> Result<(), Fault> {
    let (head, mut cursor) = store.image();
    checkpoint::begin(files, id, at.index)?;
    loop {
        let mut rows = Vec::new();
        let done = store.image_rows(&mut cursor, 10_000, &mut rows);
        checkpoint::rows(files, at.index, &rows)?;
        if done {
            break;
        }
    }
    store.end_image(cursor);
    checkpoint::finish(files, id, at.index, &head)?;
    Ok(())
}

/// As every founder's: nothing in it, and the members' entries behind it.
fn write_log(files: &Arc<dyn Files>, id: Identity, options: LogOptions, at: Position) -> Result<(), Fault> {
    let mut log = Log::create(Arc::clone(files), id, options, consensus::Position { index: at.index, term: at.term })?;
    log.save(HardState { term: at.term, vote: 0, commit: at.index }, &[])?;
    log.close(at.index)
}

/// What a start would find must be what was restored.
fn read_back(files: &dyn Files, id: Identity, store: &Store) -> Result<(), Fault> {
    let loaded = checkpoint::load_newest(files, id, store.config(), 0)?;
    let loaded =
        loaded.ok_or_else(|| Fault::damaged("state", 0, "the checkpoint that was just written is not there"))?;
    checkpoint::verify(files, &loaded.manifest)?;
    let found = &loaded.store;
    let same = (found.revision(), found.compacted(), found.keys(), found.digest())
        == (store.revision(), store.compacted(), store.keys(), store.digest());
    assert!(same, "what was just written is what was meant");
    Ok(())
}

/// Removes what a failed restore made.
struct Cleaner<'a> {
    data_dir: &'a Path,
    /// It was there before, empty.
    was_there: bool,
    wal_dir: Option<&'a Path>,
    armed: bool,
}

impl<'a> Cleaner<'a> {
    fn new(data_dir: &'a Path, wal_dir: Option<&'a Path>) -> Cleaner<'a> {
        Cleaner { data_dir, was_there: data_dir.exists(), wal_dir, armed: true }
    }

    fn keep(mut self) {
        self.armed = false;
    }
}

impl Drop for Cleaner<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        // The failure itself is what the caller reports; what cannot be removed stays.
        if let Some(dir) = self.wal_dir {
            let _ = fs::remove_dir_all(dir);
        }
        if !self.was_there {
            let _ = fs::remove_dir_all(self.data_dir);
            return;
        }
        for entry in fs::read_dir(self.data_dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let _ = if is_dir { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::files::{KEPT, MemFiles};

    /// A crash at any call leaves no directory that a member with peers takes for its own, or a
    /// whole one.
    #[test]
    fn what_says_whose_it_is_has_everything() {
        let (disk, id, at) = (MemFiles::new(), Identity { cluster: 7, member: 1 }, Position { index: 3, term: 1 });
        let members = (1..=3).map(|id| store::Member { id, ..store::Member::default() }).collect();
        let mut store = Store::genesis(store::Config::default(), members, at);
        let options = LogOptions { segment_bytes: 64 << 10, boot: None, salt: 7 };
        complete(&disk.shared(), id, options, at, &mut store).expect("written");
        let mut whole = 0;
        for calls in 0..=disk.calls() {
            for kept in KEPT {
                let left = disk.crash(calls, kept).shared();
                if identity::from_other_files(&*left).is_none() {
                    continue;
                }
                let state = consensus::Position { index: at.index, term: at.term };
                let log = Log::recover(left.clone(), id, options, Some(state), disk::OnDoubt::Peers);
                let (_, content) = log.unwrap_or_else(|fault| panic!("call {calls}, {kept:?}: {fault}"));
                assert_eq!((content.last, content.tail), (state, disk::Tail::Whole), "call {calls}, {kept:?}");
                read_back(&*left, id, &store).expect("what was written");
                whole += 1;
            }
        }
        assert!(whole > 0);
    }

    #[test]
    fn members_of_one_file_are_of_one_founding() {
        let name = restored_founding(7, 0xc1);
        assert_eq!(restored_founding(7, 0xc1), name);
        assert_ne!(name, 0);
        assert_ne!(restored_founding(8, 0xc1), name, "another file");
        assert_ne!(restored_founding(7, 0xc2), name, "another cluster");
    }
}
