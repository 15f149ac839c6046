//! The manifest: one small file that names everything a checkpoint consists of. It goes to another
//! member in one frame, so nothing that grows with what clients do stands in it.
//!
//! ```text
//! magic, format level u32, level 2: number of tables files u32 (level 1: 0)
//! cluster, member, index, length of the head u64; number of segments, of index files u32
//! segments {id u32, first i64, last i64, length u32, crc u32}
//! index files, tables files {number u64, length u64, crc u32}
//! head (store::ImageHead), crc32c of all before
//! ```
//!
//! Level 1 has the tables (leases, members, removed ids, alarms) in its head. It is still written
//! while they are small, so that the binary before can be put back.

use crate::checkpoint::{named_segments, unflushed};
use crate::header::{Fields, check_identity, put_u32, put_u64, read_exact};
use crate::{Fault, Files, How, Identity, PAGE, records};
use bytes::Bytes;

const MAGIC: &[u8; 8] = b"kvmanife";
/// Highest format level of manifests: the one with a tables file.
pub(crate) const LEVEL: u32 = 2;
/// Longest manifest that is read. Those of level 1 may have large tables in them.
const LEN_MAX: u64 = 256 << 20;

/// One checkpoint, as it is written and as it is sent to a member that installs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    pub id: Identity,
    /// The applied index of the state.
    pub index: u64,
    /// Ascending ids.
    pub segments: Vec<SegmentFile>,
    /// A base and, later, deltas; in order.
    pub index_files: Vec<IndexFile>,
    /// Where the tables of the head lie; None: in the head.
    pub tables: Option<TablesFile>,
    /// `store::ImageHead`, encoded.
    pub head: Bytes,
}

/// The part of a segment that the checkpoint needs. Bytes behind `len` are none of its business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFile {
    pub segment: u32,
    /// Main revisions of the first and last record; 0 when there is none.
    pub first: i64,
    pub last: i64,
    /// Bytes, header page included.
    pub len: u32,
    /// CRC32C of the bytes behind the header page.
    pub crc: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexFile {
    /// The applied index in its name.
    pub number: u64,
    /// Bytes, header page included.
    pub len: u64,
    /// CRC32C of the bytes behind the header page.
    pub crc: u32,
}

/// The tables that grow with the state. Fields as those of [`IndexFile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TablesFile {
    pub number: u64,
    pub len: u64,
    pub crc: u32,
}

impl TablesFile {
    pub fn name(&self) -> String {
        tables_name(self.number)
    }
}

impl SegmentFile {
    pub fn name(&self) -> String {
        records::file_name(self.segment)
    }
}

impl IndexFile {
    pub fn name(&self) -> String {
        index_name(self.number)
    }
}

pub(crate) fn index_name(number: u64) -> String {
    format!("index-{number:016x}")
}

pub(crate) fn tables_name(number: u64) -> String {
    format!("tables-{number:016x}")
}

pub(crate) fn manifest_name(index: u64) -> String {
    format!("manifest-{index:016x}")
}

pub(crate) fn parse_manifest_name(name: &str) -> Option<u64> {
    let index = name.strip_prefix("manifest-").and_then(|hex| u64::from_str_radix(hex, 16).ok())?;
    (manifest_name(index) == name).then_some(index)
}

pub(crate) fn manifest_path(index: u64) -> String {
    format!("{}/{}", records::DIR, manifest_name(index))
}

impl Manifest {
    /// Names and lengths of the files, as transferred.
    pub fn files(&self) -> Vec<(String, u64)> {
        let segments = self.segments.iter().map(|file| (file.name(), u64::from(file.len)));
        let indexes = self.index_files.iter().map(|file| (file.name(), file.len));
        segments.chain(indexes).chain(self.tables.iter().map(|file| (file.name(), file.len))).collect()
    }

    /// Bytes of all files together.
    pub fn bytes(&self) -> u64 {
        self.files().iter().map(|(_, len)| len).sum()
    }

    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(128 + self.segments.len() * 28 + self.head.len());
        out.extend_from_slice(MAGIC);
        let tables = u32::from(self.tables.is_some());
        put_u32(&mut out, if self.tables.is_some() { LEVEL } else { 1 });
        put_u32(&mut out, tables);
        for value in [self.id.cluster, self.id.member, self.index, self.head.len() as u64] {
            put_u64(&mut out, value);
        }
        put_u32(&mut out, u32::try_from(self.segments.len()).expect("segment ids have 32 bits"));
        put_u32(&mut out, u32::try_from(self.index_files.len()).expect("few index files"));
        for file in &self.segments {
            put_u32(&mut out, file.segment);
            put_u64(&mut out, file.first.cast_unsigned());
            put_u64(&mut out, file.last.cast_unsigned());
            put_u32(&mut out, file.len);
            put_u32(&mut out, file.crc);
        }
        let indexes = self.index_files.iter().map(|file| (file.number, file.len, file.crc));
        for (number, len, crc) in indexes.chain(self.tables.map(|file| (file.number, file.len, file.crc))) {
            put_u64(&mut out, number);
            put_u64(&mut out, len);
            put_u32(&mut out, crc);
        }
        out.extend_from_slice(&self.head);
        let crc = crc32c::crc32c(&out);
        put_u32(&mut out, crc);
        Bytes::from(out)
    }

    /// `path` is for the fault. Whose manifest it is must be checked by the caller.
    pub fn decode(path: &str, bytes: &Bytes) -> Result<Manifest, Fault> {
        let malformed = || Fault::damaged(path, 0, "the manifest is not readable");
        let covered = bytes.len().checked_sub(4).ok_or_else(malformed)?;
        let crc = Fields::new(&bytes[covered..]).u32().ok_or_else(malformed)?;
        if !bytes.starts_with(MAGIC) || crc32c::crc32c(&bytes[..covered]) != crc {
            return Err(malformed());
        }
        let mut fields = Fields::new(&bytes[MAGIC.len()..covered]);
        let level = fields.u32().ok_or_else(malformed)?;
        if level > LEVEL {
            return Err(Fault::TooNew { file: path.to_string(), level });
        }
        Manifest::decode_fields(level, &mut fields, bytes).ok_or_else(malformed)
    }

    fn decode_fields(level: u32, fields: &mut Fields, bytes: &Bytes) -> Option<Manifest> {
        let tables = fields.u32()?;
        if tables > u32::from(level >= 2) {
            return None;
        }
        let id = Identity { cluster: fields.u64()?, member: fields.u64()? };
        let index = fields.u64()?;
        let head_len = usize::try_from(fields.u64()?).ok()?;
        let (segment_count, index_count) = (fields.u32()?, fields.u32()?);
        let mut segments: Vec<SegmentFile> = Vec::new();
        for _ in 0..segment_count {
            let segment = fields.u32()?;
            let (first, last) = (fields.i64()?, fields.i64()?);
            let (len, crc) = (fields.u32()?, fields.u32()?);
            if u64::from(len) < PAGE || segments.last().is_some_and(|before| before.segment >= segment) {
                return None;
            }
            segments.push(SegmentFile { segment, first, last, len, crc });
        }
        let mut index_files = Vec::new();
        for _ in 0..index_count {
            let file = IndexFile { number: fields.u64()?, len: fields.u64()?, crc: fields.u32()? };
            if file.len < PAGE {
                return None;
            }
            index_files.push(file);
        }
        let tables = match tables {
            0 => None,
            _ => Some(TablesFile { number: fields.u64()?, len: fields.u64()?, crc: fields.u32()? }),
        };
        if tables.is_some_and(|file| file.len < PAGE || file.number > index) {
            return None;
        }
        let head = fields.bytes(head_len)?;
        let head = bytes.slice_ref(head);
        fields.is_empty().then_some(Manifest { id, index, segments, index_files, tables, head })
    }

    /// Reads, and checks whose it is (with `member` None: of any member of the cluster).
    pub(crate) fn read(files: &dyn Files, path: &str, cluster: u64, member: Option<u64>) -> Result<Manifest, Fault> {
        let manifest = Manifest::read_unchecked(files, path)?;
        manifest.check_owner(path, cluster, member)?;
        Ok(manifest)
    }

    /// Reads it, whosever it is: for a directory that a start has checked.
    pub(crate) fn read_unchecked(files: &dyn Files, path: &str) -> Result<Manifest, Fault> {
        let file = files.open(path, How::Read).map_err(|e| Fault::io(path, 0, e))?;
        let len = file.len().map_err(|e| Fault::io(path, 0, e))?;
        if len > LEN_MAX {
            return Err(Fault::damaged(path, 0, format!("a manifest of {len} bytes")));
        }
        let bytes = Bytes::from(read_exact(&*file, path, 0, len as usize)?);
        Manifest::decode(path, &bytes)
    }

    pub(crate) fn check_owner(&self, path: &str, cluster: u64, member: Option<u64>) -> Result<(), Fault> {
        check_identity(path, Identity { cluster, member: member.unwrap_or(self.id.member) }, self.id)
    }

    /// The head, decoded. Its tables are empty where they lie in a file of their own.
    ///
    /// # Errors
    /// [`Fault::Damaged`] if it is not readable, or is the head of another checkpoint: of another
    /// index, with other segments, or with its tables elsewhere.
    pub fn image_head(&self) -> Result<store::ImageHead, Fault> {
        let path = manifest_path(self.index);
        let wrong = |what: String| Fault::damaged(&path, 0, what);
        let head = store::ImageHead::decode(&self.head).map_err(|damage| wrong(format!("the tables: {damage}")))?;
        if head.applied.index != self.index {
            return Err(wrong(format!(
                "the tables are of entry {}, the manifest of {}",
                head.applied.index, self.index
            )));
        }
        let named = self.segments.iter().map(|file| SegmentFile { crc: 0, ..*file });
        if !named.eq(named_segments(&head)) {
            return Err(wrong("the tables are of other segments than the manifest names".to_string()));
        }
        if head.elsewhere.is_some() != self.tables.is_some() {
            return Err(wrong("the tables lie elsewhere than the manifest says".to_string()));
        }
        Ok(head)
    }

    /// Id of the segment that was open at this checkpoint. Whatever was begun since has this id or
    /// a higher one; what was rewritten since has a lower one.
    ///
    /// # Errors
    /// As [`Manifest::image_head`].
    pub fn open_segment(&self) -> Result<u32, Fault> {
        let head = self.image_head()?;
        Ok(head.segments.last().expect("a head that decodes has an open segment").id)
    }

    /// Writes it under `path`: a new name, a flush, a rename, a flush of the directory.
    pub(crate) fn write(&self, files: &dyn Files, dir: &str, path: &str) -> Result<Bytes, Fault> {
        let bytes = self.stage(files, path)?;
        files.rename(&part_of(path), path).map_err(|e| Fault::io(path, 0, e))?;
        files.sync_dir(dir).map_err(|e| unflushed(path, e))?;
        Ok(bytes)
    }

    /// The first half of [`Manifest::write`]: durable, under [`part_of`] its name.
    pub(crate) fn stage(&self, files: &dyn Files, path: &str) -> Result<Bytes, Fault> {
        let bytes = self.encode();
        let written =
            files.open(&part_of(path), How::Create).and_then(|file| file.write_at(0, &[&bytes]).map(|()| file));
        let file = written.map_err(|e| Fault::io(path, 0, e))?;
        file.sync().map_err(|e| unflushed(path, e))?;
        Ok(bytes)
    }
}

/// The name of a file that is not whole yet.
pub(crate) fn part_of(path: &str) -> String {
    format!("{path}.part")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let segment = |segment| SegmentFile { segment, first: 2, last: 9, len: 5000, crc: 7 };
        Manifest {
            id: Identity { cluster: 1, member: 2 },
            index: 3,
            segments: vec![segment(1), segment(2)],
            index_files: vec![IndexFile { number: 3, len: 4096, crc: 8 }],
            tables: None,
            head: Bytes::from_static(b"head"),
        }
    }

    fn with_tables() -> Manifest {
        Manifest { tables: Some(TablesFile { number: 3, len: 5000, crc: 9 }), ..manifest() }
    }

    #[test]
    fn a_manifest_survives_encoding() {
        for (manifest, level) in [(manifest(), 1), (with_tables(), 2)] {
            let bytes = manifest.encode();
            assert_eq!(bytes[8], level);
            assert_eq!(Manifest::decode("m", &bytes).unwrap(), manifest);
        }
    }

    #[test]
    fn a_manifest_of_level_1_has_no_tables_file() {
        let mut bytes = with_tables().encode().to_vec();
        bytes[8] = 1;
        let covered = bytes.len() - 4;
        let crc = crc32c::crc32c(&bytes[..covered]);
        bytes[covered..].copy_from_slice(&crc.to_le_bytes());
        assert!(Manifest::decode("m", &bytes.into()).unwrap_err().is_damage());
    }

    #[test]
    fn every_flipped_bit_and_every_shorter_length_is_damage() {
        let good = with_tables().encode();
        for bit in 0..good.len() * 8 {
            let mut bad = good.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::decode("m", &bad.into()).unwrap_err().is_damage());
        }
        for len in 0..good.len() {
            assert!(Manifest::decode("m", &good.slice(..len)).unwrap_err().is_damage());
        }
    }

    #[test]
    fn a_later_level_is_named() {
        let mut bytes = manifest().encode().to_vec();
        bytes[8] = 9;
        let covered = bytes.len() - 4;
        let crc = crc32c::crc32c(&bytes[..covered]);
        bytes[covered..].copy_from_slice(&crc.to_le_bytes());
        let fault = Manifest::decode("state/manifest-3", &bytes.into()).unwrap_err();
        assert_eq!(
            fault.to_string(),
            "state/manifest-3 at byte 0: written in format level 9, this program knows up to 2"
        );
    }
}
