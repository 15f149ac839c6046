//! What tells a batch of this log from bytes that look like one.
//!
//! The bodies of batches are what clients wrote, and a file that is used again still holds those of
//! its life before. Everything else that stands in a header is known to clients or can be guessed,
//! its checksum included. So each log has a salt: a random number that never leaves the directory.
//! It stands behind each header and in each sector that says that nothing follows, and whatever
//! does not have it is data.
//!
//! Which salt it is, the first batch of each file says: nothing but the log itself writes at the
//! beginning of a named file. The marks say it too.

use super::batch::{self, Header, NotHeader, Place};
use super::marks::Marks;
use super::space::Segment;
use crate::header::read_full;
use crate::{Fault, File, Identity, PAGE};

/// Whose log it is, and its salt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seal {
    pub id: Identity,
    pub salt: u64,
    /// Segments before this one are of format level 1, which had no salt.
    pub from: u64,
}

impl Seal {
    /// Of a log that begins now.
    pub(super) fn new(id: Identity, salt: u64) -> Seal {
        Seal { id, salt, from: 0 }
    }

    /// Of a log that has no salt yet.
    pub(super) fn without_salt(id: Identity) -> Seal {
        Seal { id, salt: 0, from: u64::MAX }
    }

    /// Segments of this id have the salt.
    pub(super) fn is_salted(&self, segment: u64) -> bool {
        segment >= self.from
    }

    /// The format level in which batches of a segment are written.
    pub(super) fn level(&self, segment: u64) -> u32 {
        if self.is_salted(segment) { batch::LEVEL } else { 1 }
    }

    /// Bytes of a header in a segment.
    pub(super) fn head(&self, segment: u64) -> usize {
        batch::head(self.level(segment))
    }

    /// The header at the beginning of `bytes`, and its digest, if this log wrote it.
    pub(super) fn decode(&self, bytes: &[u8]) -> Result<(Header, u32), NotHeader> {
        let (header, digest) = match Header::decode(bytes) {
            // A later level keeps the salt where it is.
            Err(NotHeader::TooNew(_)) if self.from != u64::MAX && batch::salt(bytes) != Some(self.salt) => {
                return Err(NotHeader::Unreadable);
            }
            decoded => decoded?,
        };
        let salt = batch::salt(bytes).filter(|_| header.level > 1);
        let right = header.level == self.level(header.at.segment) && (header.level == 1 || salt == Some(self.salt));
        if right { Ok((header, digest)) } else { Err(NotHeader::Unreadable) }
    }

    /// As [`Seal::decode`], of the copy at the end of a page in this segment.
    pub(super) fn decode_copy(&self, segment: u64, page: &[u8]) -> Result<(Header, u32), NotHeader> {
        let from = page.len().checked_sub(self.head(segment)).ok_or(NotHeader::Unreadable)?;
        self.decode(&page[from..])
    }

    /// What the first batch of a file says: the file's salt, or that it has none. None: it cannot
    /// be read.
    fn told(file: &dyn File, path: &str, segment: u64) -> Result<Option<Option<u64>>, Fault> {
        let mut bytes = vec![0; batch::head(batch::LEVEL)];
        let got = read_full(file, path, 0, &mut bytes)?;
        let first = Place { segment, offset: 0 };
        let header = Header::decode(&bytes[..got]).ok().filter(|(header, _)| header.at == first);
        Ok(header.map(|(header, _)| batch::salt(&bytes[..got]).filter(|_| header.level > 1)))
    }

    /// As one file alone tells it.
    pub(super) fn of_file(id: Identity, file: &dyn File, path: &str, segment: u64) -> Result<Seal, Fault> {
        let salt = Seal::told(file, path, segment)?.flatten();
        Ok(salt.map_or(Seal::without_salt(id), |salt| Seal::new(id, salt)))
    }

    /// As the files of a log tell it, or else its marks.
    pub(super) fn find<'s>(
        id: Identity,
        segments: impl Iterator<Item = &'s Segment>,
        marks: &Marks,
    ) -> Result<Seal, Fault> {
        let mut found: Option<Seal> = None;
        for segment in segments.filter(|segment| segment.len >= PAGE) {
            match Seal::told(&*segment.file, &segment.path, segment.id) {
                // An unreadable place is met again, and told, where the batches are read.
                Err(Fault::Io { .. }) | Ok(None | Some(None)) => {}
                Err(fault) => return Err(fault),
                Ok(Some(Some(salt))) if found.is_none() => found = Some(Seal { id, salt, from: segment.id }),
                Ok(Some(Some(_))) => {}
            }
        }
        Ok(match (found, marks.seal()) {
            // The first file of the level may be one that cannot be read.
            (Some(seal), Some((salt, from))) if seal.salt == salt => Seal { from: from.min(seal.from), ..seal },
            (Some(seal), _) => seal,
            (None, Some((salt, from))) => Seal { id, salt, from },
            (None, None) => Seal::without_salt(id),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_the_salt_is_a_header() {
        let seal = Seal { from: 3, ..Seal::new(Identity { cluster: 1, member: 2 }, 0x5a17) };
        for (segment, level) in [(2, 1), (3, 2), (9, 2)] {
            let header = Header { level, at: Place { segment, offset: 4096 }, ..Header::of_nothing(seal.id) };
            let bytes = header.encode(seal.salt);
            assert_eq!(bytes.len(), seal.head(segment));
            assert_eq!(seal.decode(&bytes).map(|(header, _)| header), Ok(header));
            let other = Header { level: 3 - level, ..header }.encode(seal.salt);
            assert_eq!(seal.decode(&other), Err(NotHeader::Unreadable), "a header of another level");
            let guessed = header.encode(seal.salt ^ 1);
            assert_eq!(seal.decode(&guessed).is_ok(), level == 1);
        }
    }

    #[test]
    fn a_later_level_is_believed_with_the_salt_alone() {
        let seal = Seal::new(Identity { cluster: 1, member: 2 }, 0x5a17);
        let later = Header { level: 9, ..Header::of_nothing(seal.id) };
        assert_eq!(seal.decode(&later.encode(seal.salt)), Err(NotHeader::TooNew(9)));
        assert_eq!(seal.decode(&later.encode(1)), Err(NotHeader::Unreadable));
        assert_eq!(Seal::without_salt(seal.id).decode(&later.encode(1)), Err(NotHeader::TooNew(9)));
    }
}
