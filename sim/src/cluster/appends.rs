//! Planted: appends stay long, whatever the link carries. The parts into which a member cut an
//! append are put together again, in the wire form of a message (`consensus/src/message.rs`).

use super::*;
use consensus::Message;

const APPEND: u8 = 1;
const TERM_AT: usize = 20;
const INDEX_AT: usize = 36;
const COMMIT_AT: usize = 44;
/// Commit index, its term, and what a rejection hints at.
const COMMIT_END: usize = 68;
/// Where the number of entries stands behind an empty context.
const COUNT_AT: usize = 70;
const ENTRIES_AT: usize = 74;
/// Bytes of the longest append (`node/src/recover.rs`).
const MOST: u64 = 256 << 10;

/// An append as it goes over the wire.
struct Wire(Vec<u8>);

impl Wire {
    fn of(message: &Message) -> Option<Wire> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let is_plain = bytes[1] == APPEND && bytes[COMMIT_END..COUNT_AT] == [0, 0];
        is_plain.then_some(Wire(bytes))
    }

    fn number(&self, at: usize) -> u64 {
        self.0[at..at + 8].try_into().map_or(0, u64::from_le_bytes)
    }

    fn count(&self) -> u32 {
        self.0[COUNT_AT..ENTRIES_AT].try_into().map_or(0, u32::from_le_bytes)
    }

    /// `next` goes on where this one ends.
    fn is_followed_by(&self, next: &Wire) -> bool {
        self.count() > 0
            && next.count() > 0
            && self.number(TERM_AT) == next.number(TERM_AT)
            && self.number(INDEX_AT) + u64::from(self.count()) == next.number(INDEX_AT)
    }
}

/// Both as one; None: they are no parts of one append.
fn joined(first: &Message, next: &Message) -> Option<Message> {
    if first.payload_bytes() + next.payload_bytes() > MOST {
        return None;
    }
    let (mut both, next) = (Wire::of(first)?, Wire::of(next)?);
    if !both.is_followed_by(&next) {
        return None;
    }
    let count = both.count() + next.count();
    both.0[COUNT_AT..ENTRIES_AT].copy_from_slice(&count.to_le_bytes());
    both.0[COMMIT_AT..COMMIT_END].copy_from_slice(&next.0[COMMIT_AT..COMMIT_END]);
    both.0.extend_from_slice(&next.0[ENTRIES_AT..]);
    Message::decode(both.0.into()).ok()
}

impl Sim {
    /// What a turn says, with long appends where that is planted.
    pub(super) fn plant_in_outputs(&self, out: Vec<Output>) -> Vec<Output> {
        if !self.is(Planted::AppendsLong) {
            return out;
        }
        let mut all: Vec<Output> = Vec::new();
        for output in out {
            let Output::Send { to, frame: Frame::Raft(message) } = &output else {
                all.push(output);
                continue;
            };
            let before = all.iter_mut().rev().find_map(|said| match said {
                Output::Send { to: other, frame: Frame::Raft(said) } if other == to && !said.is_urgent() => Some(said),
                _ => None,
            });
            match before.and_then(|said| joined(said, message).map(|both| (said, both))) {
                Some((said, both)) => *said = both,
                None => all.push(output),
            }
        }
        all
    }
}
