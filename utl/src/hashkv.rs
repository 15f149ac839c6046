//! `hashkv`: etcd's hash over the history of keys, of a bbolt file or of a data directory of
//! kvorum.

use crate::call::{Call, Failure};
use crate::etcd;
use crate::history::{Hash, keep, revision_of};
use crate::kvorum;
use crate::print::{Column, Form};
use std::path::Path;
use store::hash::HashKv;

pub fn run(call: &Call) -> Result<(), Failure> {
    let (path, revision) = (&call.args()[0], call.int("rev"));
    let form = Form::of(call)?;
    let hash = match kvorum::is_data_dir(Path::new(path)) {
        true => kvorum::open(Path::new(path))?.hash(revision)?,
        false => of_file(call, path, revision)?,
    };
    let number =
        |json, fields, table, value: i64| Column { json, fields, table, value: value.into(), shown: value.to_string() };
    let row = [
        number("hash", "Hash", "hash", hash.hash.into()),
        number("hashRevision", "Hash revision", "hash revision", hash.revision),
        number("compactRevision", "Compact revision", "compact revision", hash.compacted),
    ];
    print!("{}", form.render(&row));
    Ok(())
}

fn of_file(call: &Call, path: &str, revision: i64) -> Result<Hash, Failure> {
    let db = etcd::open(call, path)?;
    let tables = etcd::tables(&db)?;
    let content = etcd::import(&db, i64::MAX, tables, etcd::forget, |_| {}, |_, _| Ok(()))?;
    let store = content.imported.store;
    let revision = revision_of(&store, revision)?;
    let mut hash = HashKv::new(revision, store.compacted(), keep(&store, revision));
    etcd::rows(&db, |rev, tombstone, body| {
        hash.feed(rev, tombstone, &body);
        Ok(())
    })?;
    Ok(Hash { hash: hash.finish(), revision, compacted: store.compacted() })
}
