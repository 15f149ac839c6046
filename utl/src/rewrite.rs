//! A bbolt file written anew, page by page, beside the old one, and put in its place.

use crate::call::{Call, Failure};
use crate::etcd::{self, go_text};
use bolt::{Db, Planner, Source, Writer};
use bytes::Bytes;
use rustix::fs::FlockOperation;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// What becomes of one key of the bucket `meta`.
pub struct Change<'a> {
    pub key: &'a [u8],
    /// `None`: it is removed.
    pub value: Option<&'a [u8]>,
}

/// Bytes of a file before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub before: u64,
    pub after: u64,
}

/// Holds the file for itself alone as long as it lives.
pub struct Exclusive {
    _file: fs::File,
}

/// Keeps any etcd out, or waits for one to end as long as `--timeout` says.
pub fn exclusive(call: &Call, path: &Path) -> Result<Exclusive, Failure> {
    let named =
        |what: &str, error: std::io::Error| Failure::new(format!("{what} {}: {}", path.display(), go_text(&error)));
    fs::metadata(path).map_err(|error| named("stat", error))?;
    let file = fs::OpenOptions::new().read(true).write(true).open(path).map_err(|error| named("open", error))?;
    etcd::lock(call, &file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(Exclusive { _file: file })
}

/// Replaces `path`, which the caller holds, by a file with the same pairs, `change` made.
pub fn rewrite(_held: &Exclusive, path: &Path, change: Option<&Change>) -> Result<Sizes, Failure> {
    let named = |error: std::io::Error| Failure::new(format!("{}: {}", path.display(), go_text(&error)));
    let file = fs::File::open(path).map_err(named)?;
    let before = file.metadata().map_err(named)?.len();
    let db = etcd::database(file, before)?;
    crate::status::check(&db)?;
    let mut planner = Planner::new();
    each(&db, change, |part| match part {
        Part::Bucket(name) => planner.bucket(name),
        Part::Pair(key, value) => planner.pair(key.len(), value.len()),
    })?;
    let temporary = path.with_extension("kvorum-tmp");
    let written = write(&db, change, planner, &temporary);
    if written.is_err() {
        // The failure is what counts; a file that cannot be removed is left.
        let _ = fs::remove_file(&temporary);
    }
    let after = written?;
    fs::rename(&temporary, path).map_err(named)?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::File::open(above).and_then(|dir| dir.sync_all()).map_err(named)?;
    Ok(Sizes { before, after })
}

fn write<S: Source>(db: &Db<S>, change: Option<&Change>, planner: Planner, to: &Path) -> Result<u64, Failure> {
    let named = |error: std::io::Error| Failure::new(format!("{}: {}", to.display(), go_text(&error)));
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(to).map_err(named)?;
    let plan = planner.finish();
    let bytes = plan.bytes();
    let mut writer = Writer::new(plan);
    let mut failed = None;
    each(db, change, |part| {
        match part {
            Part::Bucket(name) => writer.bucket(name)?,
            Part::Pair(key, value) => writer.pair(key, value)?,
        }
        if writer.ready() >= 1 << 20 && failed.is_none() {
            failed = file.write_all(&writer.take()).err();
        }
        Ok(())
    })?;
    if let Some(error) = failed {
        return Err(named(error));
    }
    let rest = writer.take();
    file.write_all(&rest).map_err(named)?;
    let rest = writer.finish().map_err(|error| Failure::new(error.to_string()))?;
    file.write_all(&rest).and_then(|()| file.sync_all()).map_err(named)?;
    Ok(bytes)
}

enum Part<'a> {
    Bucket(&'a [u8]),
    Pair(&'a [u8], &'a [u8]),
}

/// Every bucket and pair in order, `change` made.
fn each<S: Source>(
    db: &Db<S>,
    change: Option<&Change>,
    mut visit: impl FnMut(Part<'_>) -> Result<(), bolt::Diverged>,
) -> Result<(), Failure> {
    let mut visit = |part: Part<'_>| visit(part).map_err(|error| Failure::new(error.to_string()));
    for name in db.buckets().map_err(etcd::damaged)? {
        visit(Part::Bucket(&name))?;
        let bucket = db.bucket(&name).map_err(etcd::damaged)?.expect("it was just listed");
        if let Some(change) = change.filter(|_| name == b"meta"[..]) {
            let pairs: Result<Vec<(Bytes, Bytes)>, bolt::Error> = bucket.pairs().collect();
            let mut pairs = pairs.map_err(etcd::damaged)?;
            pairs.retain(|(key, _)| key != change.key);
            if let Some(value) = change.value {
                pairs.push((Bytes::copy_from_slice(change.key), Bytes::copy_from_slice(value)));
                pairs.sort_unstable();
            }
            for (key, value) in pairs {
                visit(Part::Pair(&key, &value))?;
            }
            continue;
        }
        for pair in bucket.pairs() {
            let (key, value) = pair.map_err(etcd::damaged)?;
            visit(Part::Pair(&key, &value))?;
        }
    }
    Ok(())
}
