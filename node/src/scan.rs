//! A HashKV on its way through the files, slice by slice.

use disk::{Fault, Files, records};
use store::hash::HashKv;
use store::{Rev, SegmentUse};

/// A HashKV on its way through the files.
#[derive(Debug)]
pub struct HashScan {
    hash: Of,
    place: records::Place,
    until: i64,
    /// The segments that the state had when the slice was asked for.
    segments: Vec<SegmentUse>,
}

#[derive(Debug)]
enum Of {
    /// It has not begun. What is kept is not sorted yet: there may be millions, and a turn of the
    /// core must not take that long.
    Kept {
        revision: i64,
        compacted: i64,
        keep: Vec<Rev>,
    },
    Begun(HashKv),
}

impl HashScan {
    /// `keep`: the keep-set of `revision`.
    pub fn new(revision: i64, compacted: i64, keep: Vec<Rev>) -> HashScan {
        let (place, segments) = (records::Place::default(), Vec::new());
        let hash = Of::Kept { revision, compacted, keep };
        HashScan { hash, place, until: revision.saturating_add(1), segments }
    }

    /// The segments that the state has now.
    pub(crate) fn knows(&mut self, segments: Vec<SegmentUse>) {
        self.segments = segments;
    }

    /// Reads about `bytes` more; true when the scan is done.
    ///
    /// # Errors
    /// A record could not be read. After [`Fault::Io`] the scan may go on where it stands.
    pub(crate) fn slice(&mut self, files: &dyn Files, bytes: u64) -> Result<bool, Fault> {
        records::check_there(files, &self.segments)?;
        if let Of::Kept { revision, compacted, keep } = &mut self.hash {
            self.hash = Of::Begun(HashKv::new(*revision, *compacted, std::mem::take(keep)));
        }
        let Of::Begun(hash) = &mut self.hash else { unreachable!("just begun") };
        records::scan_on(files, &self.segments, &mut self.place, self.until, bytes, |record| {
            hash.feed(record.rev, record.tombstone, &record.body);
        })
    }

    /// Of what was read so far.
    pub fn hash(&self) -> u32 {
        match &self.hash {
            Of::Kept { revision, compacted, .. } => HashKv::new(*revision, *compacted, []).finish(),
            Of::Begun(hash) => hash.finish(),
        }
    }
}

/// A scan over nothing.
impl Default for HashScan {
    fn default() -> HashScan {
        HashScan::new(0, 0, Vec::new())
    }
}
