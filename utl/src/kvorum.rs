//! A data directory of kvorum whose member is stopped, read with the code that a member starts
//! with and without a change to it.

use crate::call::Failure;
use crate::directory::Frozen;
use crate::etcd::go_text;
use crate::history::{Hash, keep, revision_of};
use disk::identity::{self, Found};
use disk::{Fault, Files, Identity, LogOptions, records};
use node::offline::{Offline, offline};
use std::hash::BuildHasher;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use store::hash::HashKv;
use store::record;

/// True if the directory says that it is one.
pub fn is_data_dir(path: &Path) -> bool {
    path.join(identity::FILE).is_file()
}

/// An open directory; a running member refuses it.
pub struct Directory {
    pub files: Arc<dyn Files>,
    pub identity: Identity,
    path: String,
}

pub fn open(path: &Path) -> Result<Directory, Failure> {
    let path_text = path.display().to_string();
    let named = |what: String| Failure::new(format!("{path_text}: {what}"));
    let frozen = Frozen::open(path).map_err(|error| named(go_text(&error)))?;
    let identity = match identity::find(&frozen).map_err(|why| named(why.to_string()))? {
        Found::Ready(identity) => identity,
        Found::Founding(_) => return Err(named("its founding was not finished: there is nothing in it".into())),
        Found::Empty => return Err(named("an empty directory".into())),
    };
    Ok(Directory { files: Arc::new(frozen), identity, path: path_text })
}

impl Directory {
    pub fn log_options(&self) -> LogOptions {
        log_options(self.identity)
    }

    pub fn named(&self, fault: Fault) -> Failure {
        Failure::new(format!("{}/{fault}", self.path))
    }

    /// The state that the member would start with.
    pub fn state(&self) -> Result<Offline, Failure> {
        offline(&self.files, self.identity, self.log_options()).map_err(|fault| self.named(fault))
    }

    pub fn hash(&self, revision: i64) -> Result<Hash, Failure> {
        let store = self.state()?.store;
        let revision = revision_of(&store, revision)?;
        hash_of(&*self.files, &store, revision).map_err(|fault| self.named(fault))
    }
}

/// As the member on this machine would open its log.
pub fn log_options(id: Identity) -> LogOptions {
    const BOOT: &str = "/proc/sys/kernel/random/boot_id";
    let config = node::Config::new(id.cluster, id.member, 0, 0);
    let boot = std::fs::read_to_string(BOOT).ok().and_then(|text| disk::parse_boot(&text));
    // The standard library's hasher is seeded by the system.
    let salt = std::hash::RandomState::new().hash_one(id.member);
    LogOptions { segment_bytes: config.log_segment_bytes, boot, salt }
}

/// Of the records in files, then of those that the log alone holds.
pub fn hash_of(files: &dyn Files, store: &store::Store, revision: i64) -> Result<Hash, Fault> {
    let mut hash = HashKv::new(revision, store.compacted(), keep(store, revision));
    let unwritten = store.unwritten(usize::MAX);
    records::scan(files, &store.segments_in_files(), 0, i64::MAX, |record, _| {
        hash.feed(record.rev, record.tombstone, &record.body);
        ControlFlow::Continue(())
    })?;
    for part in unwritten.iter().flat_map(|extent| &extent.parts) {
        let record = record::open(part).expect("it was encoded just now");
        hash.feed(record.rev, record.tombstone, &record.body);
    }
    Ok(Hash { hash: hash.finish(), revision, compacted: store.compacted() })
}
