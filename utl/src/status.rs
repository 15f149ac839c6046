//! `snapshot status`: what a snapshot file holds, behind a check of the whole file.

use crate::call::{Call, Failure};
use crate::etcd;
use crate::print::{Column, Form, size};
use bolt::{Db, Source};
use std::collections::BTreeSet;

/// What is told of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// CRC-32C over the name of each bucket and its keys and values.
    pub hash: u32,
    /// Main revision of the last row.
    pub revision: i64,
    /// Keys that exist at the last revision.
    pub keys: u64,
    /// Bytes.
    pub size: u64,
    pub version: String,
}

pub fn run(call: &Call) -> Result<(), Failure> {
    let [file] = call.args() else {
        return Err(Failure::bad_arguments("snapshot status requires exactly one argument"));
    };
    let db = etcd::open(call, file)?;
    let status = status(&db)?;
    let form = Form::of(call)?;
    print!("{}", form.render(&columns(&status)));
    Ok(())
}

fn columns(status: &Status) -> [Column; 5] {
    let column = |json, fields, table, value: serde_json::Value, shown| Column { json, fields, table, value, shown };
    [
        column("hash", "Hash", "hash", status.hash.into(), format!("{:x}", status.hash)),
        column("revision", "Revision", "revision", status.revision.into(), status.revision.to_string()),
        column("totalKey", "Keys", "total keys", status.keys.into(), status.keys.to_string()),
        column("totalSize", "Size", "total size", status.size.into(), size(status.size)),
        column("version", "Version", "version", status.version.clone().into(), status.version.clone()),
    ]
}

pub fn status<S: Source>(db: &Db<S>) -> Result<Status, Failure> {
    check(db)?;
    let (mut hash, mut revision, mut keys) = (0, 0, BTreeSet::new());
    for name in db.buckets().map_err(etcd::damaged)? {
        hash = crc32c::crc32c_append(hash, &name);
        let bucket = db.bucket(&name).map_err(etcd::damaged)?.expect("it was just listed");
        for pair in bucket.pairs() {
            let (key, value) = pair.map_err(etcd::damaged)?;
            hash = crc32c::crc32c_append(hash, &key);
            hash = crc32c::crc32c_append(hash, &value);
            if name != b"key"[..] {
                continue;
            }
            let Some((rev, tombstone)) = etcd::revision(&key) else { continue };
            revision = rev.main;
            let kv = store::record::key_value(&value);
            let kv = kv.map_err(|malformed| {
                Failure::new(format!("cannot unmarshal value, key: {:?} value: {malformed}", rev.main))
            })?;
            match tombstone {
                true => keys.remove(kv.key),
                false => keys.insert(kv.key.to_vec()),
            };
        }
    }
    Ok(Status { hash, revision, keys: keys.len() as u64, size: db.bytes(), version: etcd::storage_version(db)? })
}

/// Every page of the file, as the stock tool checks it.
pub fn check<S: Source>(db: &Db<S>) -> Result<(), Failure> {
    let findings = db.check();
    if findings.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    Err(Failure::new(format!(
        "snapshot file integrity check failed. {} errors found.\n{}",
        lines.len(),
        lines.join("\n")
    )))
}
