//! The replicated state of one member: what the keys, leases, alarms and members are
//! after a given log entry.
//!
//! For `node`, which feeds committed entries in ([`Store::apply`], [`Store::apply_conf`]) and takes
//! answers, events, walks ([`Store::walk`]), unwritten records ([`Store::unwritten`]) and
//! checkpoint images ([`Store::image`]) out; and for `disk`, which reads [`record`]s and [`image`]s
//! back.
//!
//! Apply is a function of (state, entry) alone. This crate refuses everything else: no clock
//! (time is the stamp in the entry), no file, no socket, no thread, no lock, no randomness, no
//! flag that could change a result, and no record bytes in memory longer than they need to be
//! written. Which version of a key is visible at which revision is answered from the index,
//! never by reading records; when *state* depends on a value that is only in a file, apply parks
//! before the entry ([`Outcome::Park`]) with nothing changed.
//!
//! A reader starts at `types`, then `apply` and `txn` (how an entry changes the state), [`auth`]
//! (who may), `index` and `compact` (which versions exist), `tail` (where records go), `reclaim`
//! (how their space comes back), `walk` and [`order`] (how ranges are read), [`image`] (how the
//! state is written and loaded).

#![warn(missing_docs, unreachable_pub, clippy::missing_errors_doc)]

mod apply;
pub mod auth;
mod check;
pub mod command;
mod compact;
mod digest;
pub mod export;
pub mod hash;
pub mod image;
pub mod import;
mod index;
mod lease;
pub mod order;
mod packed;
mod parked;
pub mod protobuf;
mod range;
mod ranges;
mod reclaim;
pub mod record;
mod request;
mod rows;
mod state;
mod tables;
mod tail;
mod tree;
mod txn;
mod types;
mod walk;
pub mod watch;

pub use apply::{Applied, Halt, LeaseChange, Outcome, Position};
pub use command::{MemberChange, MemberChangeKind, Origin};
pub use compact::PinId;
pub use image::{ImageCursor, ImageHead, Loader};
pub use lease::Lease;
pub use parked::Step;
pub use ranges::Asked;
pub use reclaim::{Moves, Run};
pub use record::Damage;
pub use rows::RowsCheck;
pub use state::{Conf, Config, Store};
pub use tables::{TABLE_BLOCK, TableCounts};
pub use tail::{Extent, SegmentUse};
pub use txn::TxnRead;
pub use types::*;
pub use walk::{Finished, Measure, Records, Slice, Walk};
