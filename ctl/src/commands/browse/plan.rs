//! What to walk through, and the requests that it makes.

use client::wire::etcdserverpb::RangeRequest;

/// What to walk through.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where to begin.
    pub prefix: Vec<u8>,
    /// Not empty.
    pub separator: Vec<u8>,
    /// Whether any member may answer from what it has.
    pub serializable: bool,
}

impl Plan {
    /// The request with the plan's consistency.
    pub fn consistent(&self, request: RangeRequest) -> RangeRequest {
        RangeRequest { serializable: self.serializable, ..request }
    }

    /// How many keys begin like this.
    pub fn count(&self, prefix: &[u8], revision: i64) -> RangeRequest {
        let range = client::prefix(prefix.to_vec());
        self.consistent(RangeRequest { revision, count_only: true, ..range.into() })
    }

    /// One key with its value.
    pub fn value(&self, key: &[u8], revision: i64) -> RangeRequest {
        self.consistent(RangeRequest { revision, ..client::key(key.to_vec()).into() })
    }
}

/// Whether a read failed because its revision is gone.
pub fn is_compacted(error: &client::Error) -> bool {
    matches!(error, client::Error::Compacted { .. })
        || error.says("etcdserver: mvcc: required revision has been compacted")
}
