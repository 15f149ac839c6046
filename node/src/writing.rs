//! Records on their way to the background thread: each one goes there once.

use std::collections::BTreeMap;
use store::Extent;

/// What of the unwritten records was handed over.
#[derive(Default)]
pub(crate) struct Writing {
    /// Of the records handed over and not written yet.
    bytes: u64,
    /// Segment → offset behind the last record handed over, and whether its seal was.
    upto: BTreeMap<u32, (u32, bool)>,
}

impl Writing {
    /// Bytes of records handed over and not written yet.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Cuts off what was handed over before. None: that is all of it. Else it is handed over now,
    /// with so many bytes.
    pub(crate) fn hand_over(&mut self, mut extent: Extent) -> Option<(Extent, u64)> {
        let (upto, sealing) = self.upto.get(&extent.segment).copied().unwrap_or((extent.offset, false));
        while extent.offset < upto && !extent.parts.is_empty() {
            extent.offset += extent.parts.remove(0).len() as u32;
        }
        if extent.parts.is_empty() && (sealing || !extent.seals) {
            return None;
        }
        let end = extent.end();
        let bytes = u64::from(end - extent.offset);
        self.upto.insert(extent.segment, (end, extent.seals));
        self.bytes += bytes;
        Some((extent, bytes))
    }

    /// `bytes` that were handed over together are in the file of their segment.
    pub(crate) fn written(&mut self, segment: u32, bytes: u64, sealed: bool) {
        self.bytes -= bytes;
        if sealed {
            self.upto.remove(&segment);
        }
    }
}
