//! Threads that read records which are not in memory, for connections and for the core.

use bytes::Bytes;

/// Handle on the reader threads.
#[derive(Clone)]
pub struct Readers {}

impl Readers {
    pub(crate) async fn records(&self, _located: &[store::Located]) -> Result<Vec<Bytes>, String> {
        unimplemented!()
    }
}
