//! What etcd keeps in a bbolt file: which bucket holds what, and how it is written down.

use crate::call::{Call, Failure};
use bolt::{Db, Error, Source};
use bytes::Bytes;
use prost::Message;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};
use store::import::{AuthTables, Import, Imported, Tables};
use store::{AlarmMember, Rev};

/// A file that is only read. Others that only read may do so too; an etcd that has it open may not.
#[derive(Debug)]
pub struct DbFile {
    file: fs::File,
    /// Without the digest behind it.
    len: u64,
}

impl Source for DbFile {
    fn size(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

/// As the stock tool words what the system refuses.
pub fn go_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// Opens and locks `path` for reading.
pub fn open(call: &Call, path: &str) -> Result<Db<DbFile>, Failure> {
    let named = |what: &str, error: io::Error| Failure::new(format!("{what} {path}: {}", go_text(&error)));
    let meta = fs::metadata(path).map_err(|error| named("stat", error))?;
    if !meta.is_file() {
        return Err(Failure::new("invalid database"));
    }
    let file = fs::File::open(path).map_err(|error| named("open", error))?;
    lock(call, &file, FlockOperation::NonBlockingLockShared)?;
    let len = if bolt::digest_follows(meta.len()) { meta.len() - 32 } else { meta.len() };
    database(file, len)
}

/// Opens a file that the caller has locked.
pub fn open_held(path: &Path) -> Result<Db<DbFile>, Failure> {
    let file = fs::File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (len, file) = file.map_err(|error| Failure::new(format!("open {}: {}", path.display(), go_text(&error))))?;
    database(file, len)
}

/// Waits for a lock on `file` as long as `--timeout` says.
pub fn lock(call: &Call, file: &fs::File, operation: FlockOperation) -> Result<(), Failure> {
    let since = Instant::now();
    let timeout = call.duration("timeout");
    // One that is less than none has run out; none at all is for ever.
    let ends = !timeout.is_zero() || call.text("timeout").starts_with('-');
    loop {
        match rustix::fs::flock(file, operation) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) => {}
            // Not every file system locks: then nobody can, and there is nothing to wait for.
            Err(Errno::NOLCK | Errno::NOTSUP | Errno::NOSYS) => return Ok(()),
            Err(error) => return Err(Failure::new(go_text(&error.into()))),
        }
        if ends && since.elapsed() >= timeout {
            return Err(Failure::new("timeout"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub fn database(file: fs::File, len: u64) -> Result<Db<DbFile>, Failure> {
    Db::open(DbFile { file, len }).map_err(|error| match error {
        Error::NoMeta { .. } => Failure::new("invalid database"),
        other => Failure::new(other.to_string()),
    })
}

pub fn damaged(error: Error) -> Failure {
    Failure::new(format!("the file is damaged: {error}"))
}

fn value<S: Source>(db: &Db<S>, bucket: &[u8], key: &[u8]) -> Result<Option<Bytes>, Failure> {
    let bucket = db.bucket(bucket).map_err(damaged)?;
    bucket.map_or(Ok(None), |bucket| bucket.get(key)).map_err(damaged)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// "3.7.0" as the file says it; files older than 3.6 do not ("").
pub fn storage_version<S: Source>(db: &Db<S>) -> Result<String, Failure> {
    Ok(value(db, b"meta", b"storageVersion")?.map_or_else(String::new, |version| text(&version)))
}

/// As [`storage_version`], and 3.5 by the signs that it leaves.
pub fn detected_version<S: Source>(db: &Db<S>) -> Result<String, Failure> {
    let said = storage_version(db)?;
    let has = |key: &[u8]| Ok(value(db, b"meta", key)?.is_some());
    Ok(if said.is_empty() && has(b"term")? && has(b"confState")? { "3.5.0".to_string() } else { said })
}

/// The main revision that the last compaction went to, or must still go to; -1 if there was none.
fn compacted<S: Source>(db: &Db<S>) -> Result<i64, Failure> {
    let mut last = -1;
    for key in [&b"finishedCompactRev"[..], b"scheduledCompactRev"] {
        if let Some(value) = value(db, b"meta", key)? {
            let (rev, _) = revision(&value).ok_or_else(|| bad("meta", key, "no revision"))?;
            last = last.max(rev.main);
        }
    }
    Ok(last)
}

/// The last log entry whose effect is in the file.
pub fn consistent_index<S: Source>(db: &Db<S>) -> Result<u64, Failure> {
    let value = value(db, b"meta", b"consistent_index")?;
    Ok(value.and_then(|value| value[..].try_into().ok()).map_or(0, u64::from_be_bytes))
}

fn bad(bucket: &str, key: &[u8], what: &str) -> Failure {
    Failure::new(format!("the file is damaged: bucket {bucket}, key {}: {what}", key.escape_ascii()))
}

/// A key of the bucket `key`: the revision, and whether it is a delete.
pub fn revision(key: &[u8]) -> Option<(Rev, bool)> {
    let tombstone = match key.len() {
        17 => false,
        18 if key[17] == b't' => true,
        _ => return None,
    };
    let number = |bytes: &[u8]| Some(i64::from_be_bytes(bytes.try_into().ok()?));
    let rev = Rev { main: number(&key[..8])?, sub: number(&key[9..17])? };
    (key[8] == b'_' && rev.main >= 0 && rev.sub >= 0).then_some((rev, tombstone))
}

#[derive(Clone, PartialEq, Message)]
struct Lease {
    #[prost(int64, tag = "1")]
    id: i64,
    #[prost(int64, tag = "2")]
    ttl: i64,
    #[prost(int64, tag = "3")]
    remaining: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Alarm {
    #[prost(uint64, tag = "1")]
    member: u64,
    #[prost(int32, tag = "2")]
    alarm: i32,
}

/// Everything of a file but its keys; whose state it becomes is left to the caller.
pub fn tables<S: Source>(db: &Db<S>) -> Result<Tables, Failure> {
    let mut tables = Tables { compacted: compacted(db)?, ..Tables::default() };
    for (key, value) in pairs(db, "lease")? {
        let lease = Lease::decode(value).map_err(|error| bad("lease", &key, &error.to_string()))?;
        // etcd raises a shorter one to its minimum when it loads it.
        let ttl = lease.ttl.max(1);
        tables.leases.push((lease.id, ttl, lease.remaining.clamp(0, ttl)));
    }
    for (key, _) in pairs(db, "alarm")? {
        let alarm = Alarm::decode(key.clone()).map_err(|error| bad("alarm", &key, &error.to_string()))?;
        tables.alarms.push(AlarmMember { member: alarm.member, alarm: alarm.alarm });
    }
    tables.auth = auth(db)?;
    Ok(tables)
}

fn pairs<S: Source>(db: &Db<S>, name: &str) -> Result<Vec<(Bytes, Bytes)>, Failure> {
    let Some(bucket) = db.bucket(name.as_bytes()).map_err(damaged)? else { return Ok(Vec::new()) };
    bucket.pairs().collect::<Result<_, _>>().map_err(damaged)
}

/// What a file says about who may do what.
pub fn auth<S: Source>(db: &Db<S>) -> Result<AuthTables, Failure> {
    let mut auth = AuthTables {
        enabled: value(db, b"auth", b"authEnabled")?.is_some_and(|value| value.first() == Some(&1)),
        ..AuthTables::default()
    };
    if let Some(revision) = value(db, b"auth", b"authRevision")? {
        let revision: Result<[u8; 8], _> = (&revision[..]).try_into();
        auth.revision = u64::from_be_bytes(revision.map_err(|_| bad("auth", b"authRevision", "no number"))?);
    }
    for (key, row) in pairs(db, "authUsers")? {
        auth.user(&key, &row).map_err(|damage| bad("authUsers", &key, &damage.to_string()))?;
    }
    for (key, row) in pairs(db, "authRoles")? {
        auth.role(&key, &row).map_err(|damage| bad("authRoles", &key, &damage.to_string()))?;
    }
    Ok(auth)
}

/// Visits the rows of the bucket `key` in revision order: revision, delete, `KeyValue` bytes.
pub fn rows<S: Source>(
    db: &Db<S>,
    mut visit: impl FnMut(Rev, bool, Bytes) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Some(bucket) = db.bucket(b"key").map_err(damaged)? else { return Ok(()) };
    for pair in bucket.pairs() {
        let (key, value) = pair.map_err(damaged)?;
        let (rev, tombstone) = revision(&key).ok_or_else(|| bad("key", &key, "no revision"))?;
        visit(rev, tombstone, value)?;
    }
    Ok(())
}

/// Rows that are held in memory before they must be written.
const HELD: u64 = 4 << 20;

/// What came over with the rows.
pub struct Content {
    pub imported: Imported,
    /// Rows whose bytes were written anew, because they were not in canonical form.
    pub rewritten: u64,
}

/// Builds the state of a file, of the rows up to a revision. `write` takes the records that wait in
/// the import; `seen` hears of the bytes of every row; `end` may add to what the file holds.
pub fn import<S: Source>(
    db: &Db<S>,
    upto: i64,
    mut tables: Tables,
    mut write: impl FnMut(&mut Import) -> Result<(), Failure>,
    mut seen: impl FnMut(u64),
    end: impl FnOnce(&mut Import, &mut Tables) -> Result<(), Failure>,
) -> Result<Content, Failure> {
    let mut import = Import::new(store::Config::default());
    let mut rewritten = 0;
    rows(db, |rev, tombstone, body| {
        if rev.main > upto {
            return Ok(());
        }
        let canonical = import.row(rev, tombstone, &body).map_err(|damage| bad_row(rev, &damage.what))?;
        rewritten += u64::from(!canonical);
        seen(body.len() as u64 + 35);
        if import.unwritten_bytes() >= HELD {
            write(&mut import)?;
        }
        Ok(())
    })?;
    end(&mut import, &mut tables)?;
    write(&mut import)?;
    let imported = import.finish(tables).map_err(|damage| Failure::new(format!("the file is damaged: {damage}")))?;
    Ok(Content { imported, rewritten })
}

fn bad_row(rev: Rev, what: &str) -> Failure {
    let at = format!("revision {}.{}: ", rev.main, rev.sub);
    let what = what.strip_prefix(&at).unwrap_or(what);
    Failure::new(format!("the file is damaged: bucket key, {at}{what}"))
}

/// Forgets the records: for callers that want the index alone.
pub fn forget(import: &mut Import) -> Result<(), Failure> {
    for extent in import.unwritten(usize::MAX) {
        import.written(extent.segment, extent.end(), extent.seals);
    }
    Ok(())
}

/// Where an etcd keeps its file below its data directory.
pub fn backend(data_dir: &str) -> std::path::PathBuf {
    Path::new(data_dir).join("member").join("snap").join("db")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_revisions() {
        let key = |tail: &[u8]| [&258i64.to_be_bytes()[..], b"_", &1i64.to_be_bytes(), tail].concat();
        assert_eq!(revision(&key(b"")), Some((Rev { main: 258, sub: 1 }, false)));
        assert_eq!(revision(&key(b"t")), Some((Rev { main: 258, sub: 1 }, true)));
        for bad in [key(b"x"), key(b"tt"), key(b"")[1..].to_vec(), Vec::new(), [0xff; 17].to_vec()] {
            assert_eq!(revision(&bad), None);
        }
    }

    #[test]
    fn errors_read_as_the_stock_tools() {
        let error = fs::File::open("/nowhere/at/all").unwrap_err();
        assert_eq!(go_text(&error), "no such file or directory");
    }
}
