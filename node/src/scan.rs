//! A HashKV on its way through the files, slice by slice.

use disk::{Fault, Files, records};
use store::SegmentUse;
use store::hash::HashKv;

/// A HashKV on its way through the files.
#[derive(Debug)]
pub struct HashScan {
    hash: HashKv,
    place: records::Place,
    until: i64,
    /// The segments that the state had.
    segments: Vec<SegmentUse>,
}

impl HashScan {
    /// `hash` holds the keep-set of `revision`.
    pub fn new(revision: i64, hash: HashKv, segments: Vec<SegmentUse>) -> HashScan {
        HashScan { hash, place: records::Place::default(), until: revision.saturating_add(1), segments }
    }

    /// Reads about `bytes` more; true when the scan is done.
    ///
    /// # Errors
    /// A record could not be read. After [`Fault::Io`] the scan may go on where it stands.
    pub(crate) fn slice(&mut self, files: &dyn Files, bytes: u64) -> Result<bool, Fault> {
        records::check_there(files, &self.segments)?;
        let hash = &mut self.hash;
        records::scan_on(files, &self.segments, &mut self.place, self.until, bytes, |record| {
            hash.feed(record.rev, record.tombstone, &record.body);
        })
    }

    pub fn hash(&self) -> u32 {
        self.hash.finish()
    }
}

/// A scan over nothing.
impl Default for HashScan {
    fn default() -> HashScan {
        HashScan::new(0, HashKv::new(0, 0, []), Vec::new())
    }
}
