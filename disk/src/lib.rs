//! What a member keeps on disk: the log of entries, the segments of records, checkpoints of
//! the state, and files received from another member.
//!
//! For `node` (which decides what is to be done) and for offline tools. Blocking code over
//! [`Files`]: no thread, no clock, no lock. Two implementations of `Files` exist, the real one
//! and the simulator's; the code in between is the same.
//!
//! ```text
//! identity                 whose directory this is                                (mod identity, founding, urls)
//! log/%016x.log            the log: batches, each one write and one flush        (mod log)
//! log/spare-%016x          written files waiting to become log files
//! state/seg-%08x           records in revision order                             (mod records, fetch)
//! state/index-%016x        the index at one applied index                        (mod checkpoint)
//! state/manifest-%016x     names the files of one checkpoint; two are kept
//! log/corrupt              the state differs from the other members'               (mod corrupt)
//! incoming/                a checkpoint on its way from another member           (mod transfer, staging)
//! ```
//!
//! Refused, never guessed: bytes that were durable and are wrong ([`Fault::Damaged`], with file,
//! offset and the entries concerned), files of a later format level, files of another member.
//! A refusal changes nothing in the directory. The one thing that recovery cuts by itself is the
//! torn tail of the log: bytes that no later batch proves to have been durable.

mod ahead;
pub mod checkpoint;
pub mod corrupt;
mod fault;
pub mod fetch;
mod files;
pub mod founding;
mod header;
pub mod identity;
mod log;
mod manifest;
pub mod records;
pub mod staging;
pub mod transfer;
pub mod urls;

pub use fault::{EntryId, Fault};
pub use files::{File, Files, How, Identity};
pub use header::HEADER;
pub use log::{Log, LogContent, LogOptions, Torn};

/// Highest format level that this program reads, and the one it writes.
pub const LEVEL: u32 = 1;

/// Unit of the log's layout and of the header page of every file.
pub const PAGE: u64 = 4096;
