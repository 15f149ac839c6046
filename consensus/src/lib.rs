//! Consensus for one member: the `raft` crate behind our own words.
//!
//! For `node`, which turns inputs into calls and [`Turn`]s into disk and network work. The crate
//! keeps elections, replication, ReadIndex, membership and snapshots right; this facade keeps the
//! crate right. `raft` 0.7.0 panics where its caller guesses wrong and draws its election timeouts
//! from the thread's generator, so every way into it goes through a guard here:
//!
//! 1. pre-vote and check-quorum are on; after every call the election timeout is written from
//!    {seed, member, term, campaigns}, so the crate's own draw is never read;
//! 2. the log up to the durable commit is applied before the crate exists; every entry above
//!    applied stays in memory, older ones come back through [`Turn::fetch`];
//! 3. messages that claim something leave only after the save that makes it true;
//! 4. entries are handed out only when committed *and* on the local disk, each once, in order;
//! 5. no campaign while any entry is not on disk;
//! 6. one membership change at a time, simple ones only, and only after the leader committed in
//!    its own term;
//! 7. impossible append rejections are dropped and reported, and no snapshot at or below the commit
//!    index is delivered;
//! 8. bytes are bounded: per message, uncommitted, cached;
//! 9. bytes from the network are read by our own decoder ([`Message::decode`]) and checked
//!    ([`Consensus::step`]) before the crate sees them;
//! 10. a leader whose process is gone is not waited for ([`Consensus::leader_gone`]);
//! 11. a member that may have lost what it promised votes and campaigns as if it still had it
//!     ([`Doubt`]).
//!
//! It refuses to know: files, sockets, clocks (it counts ticks), what an entry means, who may
//! change the membership, and whom a removed member's id belonged to.

// The crate's messages are generated: fields are set one by one, as everywhere with them.
#![allow(clippy::field_reassign_with_default)]

mod again;
mod away;
mod change;
mod check;

mod consensus;
mod doubt;
mod fit;
mod gone;
mod histories;
mod membership;
mod message;
mod plausible;
mod reads;
mod snapshots;
mod storage;

mod turn;
mod types;

pub use crate::consensus::Consensus;
pub use change::BadChange;
pub use message::{Malformed, Message};
pub use plausible::Implausible;
pub use turn::*;
pub use types::*;
