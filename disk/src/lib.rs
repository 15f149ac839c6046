//! What a member keeps on disk: the log of entries, the segments of records, checkpoints of
//! the state, and files received from another member.
//!
//! For `node` (which decides what is to be done) and for offline tools. Blocking code over
//! [`Files`]: no thread, no clock, no lock. Two implementations of `Files` exist, the real one
//! and the simulator's; the code in between is the same.
//!
//! ```text
//! identity                 whose directory this is                                (mod identity, founding, inquiry, urls)
//! log/%016x.log            the log: batches, each one write and one flush        (mod log)
//! log/spare-%016x          written files waiting to become log files
//! log/reserve-log, -state  room that is kept back for a full disk                   (mod log::reserve)
//! log/reached, log/tip     how far the log had come                             (mod log::marks)
//! log/doubt                what a lost end of the log may have promised          (mod doubt)
//! state/seg-%08x           records in revision order                             (mod records, fetch, reclaim)
//! state/index-%016x        the index at one applied index                        (mod checkpoint)
//! state/tables-%016x       what of the state grows beside the index: leases and the like  (mod checkpoint)
//! state/manifest-%016x     names the files of one checkpoint; two are kept
//! log/corrupt              the state differs from the other members'               (mod corrupt)
//! log/contradicted         another member led with another history                   (mod contradicted)
//! log/founding             the founding that the log is of                         (mod history)
//! log/voters, voters       who votes, once others than the founders do              (mod voters)
//! log/rebuilt              how often it started over                               (mod startover)
//! log/late                 founded when the others were beyond genesis           (mod late)
//! log/restored             made of a backup, and not started since               (mod restored)
//! incoming/                a checkpoint on its way from another member           (mod transfer, staging)
//! aside/                   damaged files that were given up, until the peers have replaced them    (mod aside)
//! ```
//!
//! A place that the disk refuses to read is damage for a start (mod holes).
//!
//! What lies still is looked at slowly (mod scrub); damaged records are written again from what
//! another member sent (mod mend).
//!
//! Refused, never guessed: bytes that were durable and are wrong ([`Fault::Damaged`], with file,
//! offset and the entries concerned), files of a later format level, files of another member.
//! A refusal changes nothing in the directory. The one thing that recovery cuts by itself is the
//! torn tail of the log: a batch whose write never finished, shown by evidence ([`Tail`]). What a
//! member with peers cuts beyond that it remembers as a [`Doubt`].

mod ahead;
pub mod aside;
pub mod checkpoint;
pub mod contradicted;
pub mod corrupt;
pub mod doubt;
mod fault;
pub mod fetch;
mod files;
pub mod founding;
pub mod handles;
mod header;
pub mod history;
mod holes;
pub mod identity;
pub mod inquiry;
pub mod late;
mod log;
mod manifest;
mod mark;
mod measure;
pub mod mend;
pub mod reclaim;
pub mod records;
pub mod restored;
pub mod scrub;
mod small;
pub mod staging;
pub mod startover;
pub mod transfer;
pub mod urls;
pub mod voters;

pub use doubt::Doubt;
pub use fault::{EntryId, Fault};
pub use files::{File, Files, How, Identity};
pub use header::HEADER;
pub use holes::Patient;
pub use log::{Boot, Log, LogContent, LogOptions, OnDoubt, Reader, Reserve, Tail, Torn, Understands, parse_boot};

/// Highest format level that this program reads, and the one it writes.
pub const LEVEL: u32 = 1;

/// Unit of the log's layout and of the header page of every file.
pub const PAGE: u64 = 4096;
