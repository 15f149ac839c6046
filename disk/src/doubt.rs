//! The doubt of a member that lost the end of its log, or cannot tell: what that end may have
//! promised to others. It is remembered beside the log, in `log/doubt`, before the end is cut, and
//! until the member has made good what it lost.

use crate::header::{Fields, put_u32, put_u64};
use crate::{Fault, Files, Identity, Torn, small};
use consensus::{HardState, Position};

const MAGIC: &[u8; 8] = b"kvdoubt\0";
const DIR: &str = "log";
pub(crate) const PATH: &str = "log/doubt";
const HAS_PROMISE: u32 = 1;
const PROVEN_TEAR: u32 = 2;
const AT_LEAST: u32 = 4;
const SURE: u32 = 8;
const CUTTING: u32 = 16;
const ZEROS: u32 = 32;
/// Most bytes kept of each text.
const TEXT: usize = 1024;

/// What is known of an end of the log that is not there any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// Where the log ended, and why.
    pub at: Torn,
    /// The last entry that the lost end held or may have held. None: nothing is known of it.
    pub promise: Option<Position>,
    /// The log went at least so far, and may have gone on.
    pub at_least: bool,
    /// The highest term, with its vote, that the lost end may have promised. Its commit is no
    /// promise.
    pub hard: HardState,
    /// The end was a write that never finished, so nobody was told of it. Kept all the same: other
    /// members may find out that the proof was wrong.
    pub proven_tear: bool,
    /// The proof is only that zeros stand behind the last batch, where a page said that nothing
    /// follows.
    pub by_zeros: bool,
    /// What is gone was durable, so this member has told others of it: no crash explains it.
    pub sure: bool,
    /// The end is being cut. Until that is done the log says nothing that is not known here
    /// already.
    pub(crate) cutting: bool,
}

impl Doubt {
    /// Both doubts in one: the further promise, the higher term, the newer place.
    #[must_use]
    pub fn merged(self, newer: Doubt) -> Doubt {
        let promise = match (self.promise, newer.promise) {
            (Some(a), Some(b)) => Some(a.max(b)),
            // A doubt of which nothing is known is the larger one, unless it is a proven tear.
            (a, b) if self.proven_tear != newer.proven_tear => {
                if self.proven_tear {
                    b
                } else {
                    a
                }
            }
            (a, b) if self.proven_tear && newer.proven_tear => a.or(b),
            _ => None,
        };
        Doubt {
            at: newer.at,
            promise,
            at_least: self.at_least || newer.at_least,
            hard: stricter(self.hard, newer.hard),
            proven_tear: self.proven_tear && newer.proven_tear,
            by_zeros: self.by_zeros || newer.by_zeros,
            sure: self.sure || newer.sure,
            cutting: self.cutting || newer.cutting,
        }
    }
}

/// `hard` with term and vote of `other`, where that promised more. The commit stays.
pub(crate) fn stricter(hard: HardState, other: HardState) -> HardState {
    if other.term > hard.term {
        HardState { commit: hard.commit, ..other }
    } else if other.term == hard.term && hard.vote == 0 {
        HardState { vote: other.vote, ..hard }
    } else {
        hard
    }
}

/// The doubt that is remembered. One that cannot be read is a doubt of which nothing is known.
///
/// # Errors
/// A later format level, another member's file.
pub fn find(files: &dyn Files, id: Identity) -> Result<Option<Doubt>, Fault> {
    let unknown = || Doubt {
        at: Torn { file: PATH.to_string(), offset: 0, what: "the file is not readable".to_string() },
        promise: None,
        at_least: false,
        hard: HardState::default(),
        proven_tear: false,
        by_zeros: false,
        sure: false,
        cutting: false,
    };
    match small::read(files, PATH, MAGIC, id) {
        Ok(None) => Ok(None),
        Ok(Some(value)) => Ok(Some(decode(&value).unwrap_or_else(unknown))),
        Err(fault) if fault.is_damage() => Ok(Some(unknown())),
        Err(fault) => Err(fault),
    }
}

/// Durable once this returns.
pub(crate) fn remember(files: &dyn Files, id: Identity, doubt: &Doubt) -> Result<(), Fault> {
    small::write(files, DIR, PATH, &small::encode(MAGIC, id, &encode(doubt)))
}

/// The member has made good what it lost: its doubt is forgotten, durably. True if there was one.
///
/// # Errors
/// What the operating system says.
pub fn clear(files: &dyn Files) -> Result<bool, Fault> {
    small::remove(files, DIR, PATH)
}

fn encode(doubt: &Doubt) -> Vec<u8> {
    let mut out = Vec::new();
    let flag = |set: bool, flag: u32| if set { flag } else { 0 };
    put_u32(
        &mut out,
        flag(doubt.promise.is_some(), HAS_PROMISE)
            | flag(doubt.proven_tear, PROVEN_TEAR)
            | flag(doubt.at_least, AT_LEAST)
            | flag(doubt.sure, SURE)
            | flag(doubt.cutting, CUTTING)
            | flag(doubt.by_zeros, ZEROS),
    );
    let promise = doubt.promise.unwrap_or_default();
    let HardState { term, vote, commit } = doubt.hard;
    for value in [promise.index, promise.term, term, vote, commit, doubt.at.offset] {
        put_u64(&mut out, value);
    }
    for text in [&doubt.at.file, &doubt.at.what] {
        let bytes = &text.as_bytes()[..text.floor_char_boundary(TEXT)];
        put_u32(&mut out, u32::try_from(bytes.len()).expect("a short text"));
        out.extend_from_slice(bytes);
    }
    out
}

fn decode(value: &[u8]) -> Option<Doubt> {
    let mut fields = Fields::new(value);
    let flags = fields.u32()?;
    let promise = Position { index: fields.u64()?, term: fields.u64()? };
    let hard = HardState { term: fields.u64()?, vote: fields.u64()?, commit: fields.u64()? };
    let offset = fields.u64()?;
    let mut text = || {
        let len = usize::try_from(fields.u32()?).ok()?;
        Some(String::from_utf8_lossy(fields.bytes(len)?).into_owned())
    };
    let (file, what) = (text()?, text()?);
    let known = flags & !(HAS_PROMISE | PROVEN_TEAR | AT_LEAST | SURE | CUTTING | ZEROS) == 0 && fields.is_empty();
    known.then_some(Doubt {
        at: Torn { file, offset, what },
        promise: (flags & HAS_PROMISE != 0).then_some(promise),
        at_least: flags & AT_LEAST != 0,
        hard,
        proven_tear: flags & PROVEN_TEAR != 0,
        by_zeros: flags & ZEROS != 0,
        sure: flags & SURE != 0,
        cutting: flags & CUTTING != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(index: u64, term: u64) -> Option<Position> {
        Some(Position { index, term })
    }

    fn doubt(promise: Option<Position>, term: u64, vote: u64, proven_tear: bool) -> Doubt {
        let at = Torn { file: "log/0000000000000001.log".to_string(), offset: 8192, what: "é".repeat(900) };
        let hard = HardState { term, vote, commit: 3 };
        let (sure, by_zeros) = (!proven_tear, proven_tear && vote == 0);
        Doubt { at, promise, at_least: proven_tear, hard, proven_tear, by_zeros, sure, cutting: term == 4 }
    }

    #[test]
    fn a_doubt_survives_encoding() {
        for promise in [None, at(7, 2)] {
            for proven in [false, true] {
                let full = doubt(promise, 4, 0xa1, proven);
                let found = decode(&encode(&full)).unwrap();
                let cut = Torn { what: "é".repeat(TEXT / 2), ..full.at.clone() };
                assert_eq!(found, Doubt { at: cut, ..full });
            }
        }
        assert_eq!(decode(&encode(&doubt(None, 1, 1, true))[1..]), None);
    }

    #[test]
    fn two_doubts_promise_the_most_of_both() {
        let merged = |a: Doubt, b: Doubt| {
            let both = a.merged(b);
            (both.promise, both.hard.term, both.hard.vote, both.proven_tear)
        };
        let lost = |promise, term, vote| doubt(promise, term, vote, false);
        let torn = |promise, term, vote| doubt(promise, term, vote, true);
        assert_eq!(merged(lost(at(9, 2), 2, 5), lost(at(7, 3), 3, 0)), (at(7, 3), 3, 0, false));
        assert_eq!(merged(lost(at(9, 3), 3, 0), lost(at(7, 3), 3, 6)), (at(9, 3), 3, 6, false));
        assert_eq!(merged(lost(None, 3, 5), lost(at(7, 3), 2, 6)), (None, 3, 5, false));
        assert_eq!(merged(torn(None, 3, 5), lost(at(7, 3), 2, 6)), (at(7, 3), 3, 5, false));
        assert_eq!(merged(torn(None, 3, 5), torn(at(7, 3), 2, 6)), (at(7, 3), 3, 5, true));
        assert_eq!(merged(lost(at(1, 1), 1, 0), torn(None, 1, 0)), (at(1, 1), 1, 0, false));
    }
}
