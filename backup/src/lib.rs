//! Backups of a cluster on a shelf: a folder today, object storage behind the same trait.
//!
//! For `kvorum ctl backup`. A backup is a snapshot of etcd's form, taken apart into its rows. The
//! rows are cut into pieces, each named by its SHA-256, and a manifest names the pieces of one
//! backup. A piece that is there already is not written again.
//!
//! ```text
//! kvorum-backup                            what this shelf is, and its format
//! pieces/1f/1f3a…                          rows of a snapshot, one behind the other   (mod rows)
//! saved/00000000000000001234-20261130T064400Z.json   one backup                      (mod manifest)
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | `shelf` | names and bytes; each name is there whole or not at all |
//! | `rows` | a stream of rows and its bytes; where it is cut |
//! | `manifest` | what is said of one backup |
//! | `save` | from a snapshot to a shelf |
//! | `load` | from a shelf to a snapshot; verify |
//! | `keep` | which backups stay, and the pieces of the others |
//!
//! It refuses: to believe what it reads (every piece has the name of its hash, every manifest its
//! hash behind it), clocks (the caller says what time it is), and to write a manifest before
//! everything that it names is on the disk.

#![warn(missing_docs, unreachable_pub, clippy::missing_errors_doc)]

mod keep;
mod load;
mod manifest;
mod rows;
mod save;
mod shelf;

pub use keep::{Keep, Pruned, prune};
pub use load::{Verified, rebuild, verify};
pub use manifest::{Manifest, Piece, Saved, for_revision, list};
pub use save::{About, Progress, Written, save};
pub use shelf::Shelf;

/// Why something of a backup failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The shelf says so.
    #[error("{name}: {source}")]
    Shelf {
        /// What was read or written.
        name: String,
        /// What it said.
        source: object_store::Error,
    },
    /// Something on the shelf is not what was written.
    #[error("{name} is damaged: {what}")]
    Damaged {
        /// Its name.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// A piece is not there.
    #[error("{name} is missing")]
    Missing {
        /// Its name.
        name: String,
    },
    /// The folder is not a shelf of this program.
    #[error("{0}")]
    Foreign(String),
    /// The snapshot is no whole file of etcd's form.
    #[error("the snapshot is damaged: {0}")]
    Snapshot(String),
    /// The file that is being made.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// What such a thing gives back.
pub type Result<T> = std::result::Result<T, Error>;

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
