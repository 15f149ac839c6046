//! What a member remembers when another one led with another entry where its own is committed: two
//! histories. It lies beside the log, and a start finds it. Only an operator takes it away.

use crate::header::{Fields, put_u64};
use crate::{Fault, Files, Identity, small};
use consensus::Contradiction;
use consensus::Position;

const MAGIC: &[u8; 8] = b"kvtwohis";
const DIR: &str = "log";
/// Its name in the data directory.
pub const PATH: &str = "log/contradicted";

/// Durable once this returns.
///
/// # Errors
/// What the operating system says.
pub fn mark(files: &dyn Files, id: Identity, found: Contradiction) -> Result<(), Fault> {
    let mut value = Vec::new();
    for number in [found.leader, found.ours.index, found.ours.term, found.theirs] {
        put_u64(&mut value, number);
    }
    small::write(files, DIR, PATH, &small::encode(MAGIC, id, &value))
}

/// What was found in an earlier life. A mark that cannot be read is one, of which nothing is known.
///
/// # Errors
/// A later format level, another member's file.
pub fn find(files: &dyn Files, id: Identity) -> Result<Option<Contradiction>, Fault> {
    let unknown = Contradiction { leader: 0, ours: Position::default(), theirs: 0 };
    match small::read(files, PATH, MAGIC, id) {
        Ok(None) => Ok(None),
        Ok(Some(value)) => Ok(Some(decode(&value).unwrap_or(unknown))),
        Err(fault) if fault.is_damage() => Ok(Some(unknown)),
        Err(fault) => Err(fault),
    }
}

fn decode(value: &[u8]) -> Option<Contradiction> {
    let mut fields = Fields::new(value);
    let leader = fields.u64()?;
    let ours = Position { index: fields.u64()?, term: fields.u64()? };
    let theirs = fields.u64()?;
    fields.is_empty().then_some(Contradiction { leader, ours, theirs })
}
