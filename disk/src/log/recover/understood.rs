//! Entries whose bytes are whole and that this program does not understand: a later one wrote them.
//! They are met before anything is changed, and are no damage. Damage is a matter of one disk, and
//! is made good by the others; all others have the same entry, and run the same program.

use super::super::batch::Row;
use super::Replay;
use crate::Fault;
use consensus::{EntryKind, Position};
use store::protobuf::Malformed;

/// Whether an entry is understood, and if not, why.
pub type Understands = fn(EntryKind, &[u8]) -> Result<(), Malformed>;

/// Which entries must be understood: those that will be applied.
#[derive(Clone, Copy)]
pub struct Reader {
    /// The entries up to this index are applied.
    pub applied: u64,
    pub understands: Understands,
}

impl Reader {
    /// Of whoever does not apply entries.
    pub const NONE: Reader = Reader { applied: u64::MAX, understands: |_, _| Ok(()) };
}

/// The first entry that is not understood.
pub(super) struct Strange {
    entry: Position,
    file: String,
    /// Where its batch begins.
    offset: u64,
    what: String,
}

impl Reader {
    /// The first of these entries that is not understood. They are whole.
    pub(super) fn first_strange(self, rows: &[Row], bodies: &[u8]) -> Option<(Position, String)> {
        let mut from = 0;
        rows.iter().find_map(|row| {
            let body = &bodies[from..from + row.len as usize];
            from += body.len();
            let entry = Position { index: row.id.index, term: row.id.term };
            let behind = entry.index > self.applied;
            let strange = behind.then(|| (self.understands)(row.kind, body).err()).flatten();
            strange.map(|Malformed { what, .. }| (entry, what))
        })
    }
}

impl Replay {
    /// A batch behind entry `base` is part of the log, and with it this entry of it.
    pub(super) fn note_strange(&mut self, base: u64, offset: u64, found: Option<(Position, String)>) {
        // What stood behind its base is replaced.
        self.strange.take_if(|strange| strange.entry.index > base);
        let file = &self.log.segments.back().expect("a segment is being read").path;
        if let (None, Some((entry, what))) = (&self.strange, found) {
            self.strange = Some(Strange { entry, file: file.clone(), offset, what });
        }
    }

    /// Only what is committed must be understood: the rest may be replaced.
    pub(super) fn refuse_strange(&self) -> Result<(), Fault> {
        let (last, commit) = self.stays();
        match &self.strange {
            Some(Strange { entry, file, offset, what }) if entry.index <= last.min(commit) => {
                let (file, what) = (file.clone(), what.clone());
                Err(Fault::NotUnderstood { file, offset: *offset, entry: *entry, what })
            }
            _ => Ok(()),
        }
    }
}
