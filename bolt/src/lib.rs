//! bbolt files: the container that etcd keeps its data in, and in which `etcdctl snapshot save`
//! hands a backup to its user.
//!
//! For whoever moves data between etcd and kvorum: the tools that look at or restore a file of
//! etcd ([`Db`]), and the server that streams a snapshot ([`Plan`], [`Writer`]).
//!
//! ```text
//! page 0, 1   meta      the newer valid one counts: page size, root, high-water mark, txid, checksum
//! page 2 ...  freelist  ids of pages in no use; etcd does not write one
//!             branch    first key and page of each child, ascending
//!             leaf      key and value; a value may be a bucket: (root page, sequence), or root 0
//!                       and one small leaf page right behind it ("inline")
//! ```
//!
//! Every number is little-endian. A page larger than the page size goes on in the pages that
//! follow it ("overflow").
//!
//! What it refuses: to touch a file or a clock (bytes come through [`Source`], pages leave as
//! bytes), to change a file in place, and to believe a file. Nothing that stands in a file makes
//! it panic, loop, or take more memory than [`MAX_PAGE_BYTES`] for a level of a tree.

#![warn(missing_docs, unreachable_pub, clippy::missing_errors_doc)]

mod check;
mod cursor;
mod layout;
mod read;
mod small;
mod status;
mod write;

pub use check::Finding;
pub use cursor::Pairs;
pub use layout::{Meta, NO_FREELIST};
pub use read::{Bucket, Db, Error, MAX_PAGE_BYTES, Source};
pub use small::write_all;
pub use status::{Summary, digest_follows};
pub use write::{Diverged, PAGE_SIZE, Plan, Planner, Writer};
