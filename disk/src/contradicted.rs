//! What a member remembers when it has seen that members have two histories. It lies beside the log,
//! and a start finds it. Only an operator takes it away.

use crate::header::{Fields, put_u64};
use crate::{Fault, Files, Identity, small};
use consensus::{Contradiction, Position};

const MAGIC: &[u8; 8] = b"kvtwohis";
const DIR: &str = "log";
/// Its name in the data directory.
pub const PATH: &str = "log/contradicted";

/// What an earlier life left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// This was seen.
    Seen(Contradiction),
    /// The file is there and cannot be read: there are two histories, and no more is known.
    Unreadable,
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Found::Seen(found) => found.fmt(f),
            Found::Unreadable => f.write_str("what was seen is not readable any more"),
        }
    }
}

/// Durable once this returns.
///
/// # Errors
/// What the operating system says.
pub fn mark(files: &dyn Files, id: Identity, found: Contradiction) -> Result<(), Fault> {
    let mut value = Vec::new();
    for number in encode(found) {
        put_u64(&mut value, number);
    }
    small::write(files, DIR, PATH, &small::encode(MAGIC, id, &value))
}

/// What was found in an earlier life.
///
/// # Errors
/// A later format level, another member's file.
pub fn find(files: &dyn Files, id: Identity) -> Result<Option<Found>, Fault> {
    match small::read(files, PATH, MAGIC, id) {
        Ok(None) => Ok(None),
        Ok(Some(value)) => Ok(Some(decode(&value).map_or(Found::Unreadable, Found::Seen))),
        Err(fault) if fault.is_damage() => Ok(Some(Found::Unreadable)),
        Err(fault) => Err(fault),
    }
}

/// Which kind, and its numbers.
fn encode(found: Contradiction) -> [u64; 6] {
    match found {
        Contradiction::Entry { leader, ours, theirs } => [1, leader, ours.index, ours.term, 0, theirs],
        Contradiction::Below { leader, ours, theirs } => [2, leader, ours.index, ours.term, theirs.index, theirs.term],
        Contradiction::Leaders { term, leaders: [one, other] } => [3, one, other, term, 0, 0],
    }
}

fn decode(value: &[u8]) -> Option<Contradiction> {
    let mut fields = Fields::new(value);
    let mut next = || fields.u64();
    let numbers = [next()?, next()?, next()?, next()?, next()?, next()?];
    let [kind, leader, index, term, theirs_index, theirs_term] = numbers;
    let ours = Position { index, term };
    let found = match kind {
        1 => Contradiction::Entry { leader, ours, theirs: theirs_term },
        2 => Contradiction::Below { leader, ours, theirs: Position { index: theirs_index, term: theirs_term } },
        3 => Contradiction::Leaders { term, leaders: [leader, index] },
        _ => return None,
    };
    fields.is_empty().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let (ours, theirs) = (Position { index: 7, term: 2 }, Position { index: 5, term: 3 });
        let all = [
            Contradiction::Entry { leader: 9, ours, theirs: 3 },
            Contradiction::Below { leader: 9, ours, theirs },
            Contradiction::Leaders { term: 4, leaders: [8, 9] },
        ];
        for found in all {
            let mut bytes = Vec::new();
            encode(found).into_iter().for_each(|number| put_u64(&mut bytes, number));
            assert_eq!(decode(&bytes), Some(found));
            assert_eq!(decode(&bytes[1..]), None);
            bytes.push(0);
            assert_eq!(decode(&bytes), None);
        }
    }
}
