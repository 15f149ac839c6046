//! A member with peers starts over: its state is of no use, and the leader's replaces it.
//!
//! The state becomes an empty one at index 0, where no log begins, so that nothing but another
//! member's can fill it. It is put in place as a snapshot is ([`crate::transfer`]): before the
//! rename of `incoming/ready` the member is the old one, after it it has started over, and a crash
//! leaves one of the two. The files of the old state go to `aside/`. The log stays: what it holds
//! was acknowledged.
//!
//! `log/rebuilt` counts, so that a member that differs again soon is not rebuilt for ever.

use crate::checkpoint::{INDEX_MAGIC, IndexFile, Manifest, frame_header, no_rows};
use crate::header::{Fields, page, put_u64};
use crate::manifest::manifest_path;
use crate::records::names;
use crate::staging::discard;
use crate::transfer::{self, DIR, READY};
use crate::{Fault, Files, How, Identity, PAGE, checkpoint, measure, small};
use bytes::Bytes;
use store::ImageHead;

const MAGIC: &[u8; 8] = b"kvrebilt";
const LOG: &str = "log";
const PATH: &str = "log/rebuilt";

/// Why a member starts over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Files of its state are damaged or missing.
    Damaged,
    /// Its state differs from what the other members agree on.
    Differs,
}

/// How often a member has started over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    pub damaged: u64,
    pub differs: u64,
    /// The entry at which it differed when it last did because of that.
    pub at: u64,
    /// How far its log had come when it last did because of damage, and how often that happened
    /// soon after one another.
    pub damaged_at: u64,
    pub soon: u64,
}

/// A state that differs again within so many entries is not rebuilt by itself: something else is
/// wrong.
pub const SOON: u64 = 64 * 4_096;
/// A state that is damaged so often, each time within as many entries, is not asked for again.
pub const MOST: u64 = 8;

impl Rebuilt {
    /// May a member that differs at entry `index` start over, after what it did before?
    pub fn allows(self, index: u64) -> bool {
        self.differs == 0 || index >= self.at.saturating_add(SOON)
    }

    /// True: its state was damaged again and again. Copying it once more would not help.
    pub fn is_hopeless(self) -> bool {
        self.soon > MOST
    }

    fn and(self, why: Why, at: u64) -> Rebuilt {
        match why {
            Why::Differs => Rebuilt { differs: self.differs + 1, at: self.at.max(at), ..self },
            Why::Damaged => {
                let again = self.damaged > 0 && at < self.damaged_at.saturating_add(SOON);
                let soon = if again { self.soon + 1 } else { 1 };
                Rebuilt { damaged: self.damaged + 1, damaged_at: self.damaged_at.max(at), soon, ..self }
            }
        }
    }
}

/// How often this member has started over. A file that cannot be read counts as none.
///
/// # Errors
/// A later format level, another member's file.
pub fn rebuilt(files: &dyn Files, id: Identity) -> Result<Rebuilt, Fault> {
    match small::read(files, PATH, MAGIC, id) {
        Ok(value) => Ok(value.and_then(|value| decode(&value)).unwrap_or_default()),
        Err(fault) if fault.is_damage() => Ok(Rebuilt::default()),
        Err(fault) => Err(fault),
    }
}

/// Gives the state up. `head` is that of an empty state at index 0 which knows the members. Durable
/// once this returns.
///
/// # Errors
/// What the operating system says. Repeating it is safe, and so is a start after a crash.
pub fn start_over(files: &dyn Files, id: Identity, head: &ImageHead) -> Result<(), Fault> {
    assert_eq!(head.applied.index, 0, "no log joins the state of a member that starts over");
    drop_incoming(files)?;
    files.make_dir(DIR).and_then(|()| files.sync_dir("")).map_err(|e| Fault::io(DIR, 0, e))?;
    let index = write_index(files, id)?;
    let head = Bytes::from(head.encode());
    let empty = Manifest { id, index: 0, segments: Vec::new(), index_files: vec![index], tables: None, head };
    transfer::decide(files, &empty)?;
    // Behind the deed: counted before it, it would forbid what a crash or a full disk prevented. A
    // crash in between leaves one uncounted, which costs one more at most.
    count(files, id, Why::Damaged, crate::log::told_last(files, id)?)
}

/// The members and voters that a readable manifest knows, the newest that has them.
///
/// # Errors
/// What the operating system says; files of a later level or of another member.
pub fn known_head(files: &dyn Files, id: Identity) -> Result<Option<ImageHead>, Fault> {
    let installed = transfer::unfinished(files)?.then(|| READY.to_string());
    let kept = checkpoint::manifests(files)?.into_iter().rev().map(manifest_path);
    for path in installed.into_iter().chain(kept) {
        let head = Manifest::read(files, &path, id.cluster, Some(id.member)).and_then(|found| found.image_head());
        match head {
            Ok(head) if !head.members.is_empty() => return Ok(Some(head)),
            Ok(_) => {}
            Err(fault) if fault.is_damage() => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(None)
}

/// One more: a state was given up. `at`: the entry at which it differed, or how far the log is
/// known to have come.
///
/// # Errors
/// What the operating system says.
pub fn count(files: &dyn Files, id: Identity, why: Why, at: u64) -> Result<(), Fault> {
    files.make_dir(LOG).and_then(|()| files.sync_dir("")).map_err(|e| Fault::io(LOG, 0, e))?;
    let Rebuilt { damaged, differs, at, damaged_at, soon } = rebuilt(files, id)?.and(why, at);
    let mut value = Vec::new();
    for number in [damaged, differs, at, damaged_at, soon] {
        put_u64(&mut value, number);
    }
    small::write(files, LOG, PATH, &small::encode(MAGIC, id, &value))
}

fn decode(value: &[u8]) -> Option<Rebuilt> {
    let mut fields = Fields::new(value);
    let mut rebuilt =
        Rebuilt { damaged: fields.u64()?, differs: fields.u64()?, at: fields.u64()?, ..Rebuilt::default() };
    // An earlier version has no more.
    if !fields.is_empty() {
        (rebuilt.damaged_at, rebuilt.soon) = (fields.u64()?, fields.u64()?);
    }
    fields.is_empty().then_some(rebuilt)
}

/// An install that was decided and cannot be finished is taken back first of all.
fn drop_incoming(files: &dyn Files) -> Result<(), Fault> {
    if names(files, DIR)?.iter().any(|name| READY.ends_with(&format!("/{name}"))) {
        checkpoint::remove_if_there(files, READY)?;
        files.sync_dir(DIR).map_err(|e| Fault::io(DIR, 0, e))?;
    }
    discard(files)
}

/// The index file of a state without keys.
fn write_index(files: &dyn Files, id: Identity) -> Result<IndexFile, Fault> {
    let rows = no_rows();
    let mut named = IndexFile { number: 0, len: PAGE, crc: 0 };
    let path = format!("{DIR}/{}", named.name());
    let (page, frame) = (page(INDEX_MAGIC, id, 0), frame_header(&rows));
    named.len += (frame.len() + rows.len()) as u64;
    let io = |e| Fault::io(&path, 0, e);
    let file = files.open(&path, How::Create).map_err(io)?;
    file.write_at(0, &[&page, &frame, &rows]).and_then(|()| file.sync()).map_err(io)?;
    named.crc = measure::rows(&*file, &path, named.len)?;
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_survives_encoding() {
        let once = Rebuilt::default().and(Why::Damaged, 7);
        let twice = once.and(Why::Differs, 5);
        assert_eq!(
            (once, twice),
            (
                Rebuilt { damaged: 1, differs: 0, at: 0, damaged_at: 7, soon: 1 },
                Rebuilt { damaged: 1, differs: 1, at: 5, damaged_at: 7, soon: 1 }
            )
        );
        let often = |at: &dyn Fn(u64) -> u64| (0..=MOST).fold(twice, |before, n| before.and(Why::Damaged, at(n)));
        assert!(often(&|n| 7 + n).is_hopeless(), "again and again");
        assert!(!often(&|n| (n + 1) * 2 * SOON).is_hopeless(), "now and then");
        assert!(once.allows(5), "damage is no difference");
        assert!(!twice.allows(5 + SOON - 1) && twice.allows(5 + SOON));
        assert_eq!(decode(&[0; 24]), Some(Rebuilt::default()));
        assert_eq!(decode(&[0; 40]), Some(Rebuilt::default()));
        assert_eq!((decode(&[0; 25]), decode(&[0; 48])), (None, None));
    }
}
