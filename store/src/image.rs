//! The state as bytes: a head with everything small, and the index as rows in key order. Together
//! with the segments that the head names they are a checkpoint. Values are not in it.
//!
//! A head and its rows speak of the same applied index: the head is taken at once, the rows are
//! walked afterwards in slices and leave out what came later. Rows come in blocks:
//!
//! ```text
//! crc32c of everything behind it  u32 | length of the payload  u32 | keys in it  u32 | payload
//! ```
//!
//! A payload is, for each key: length and bytes of the key, number of versions, and for each
//! version main, sub, create, version, lease, segment, offset, length as varints. The last block
//! holds `u32::MAX` keys and the number of all keys, so a file that is cut short is noticed.

use crate::apply::Position;
use crate::auth::{Role, User, decode_role, decode_user, encode_role, encode_user};
use crate::command::{decode_member, encode_member};
use crate::compact::{PinId, dead_versions};
use crate::digest::Digest;
use crate::index::{Entry, Version};
use crate::lease::Lease;
use crate::protobuf::{
    Fields, Malformed, Value, nested, put_varint, read_varint, write_bool, write_bytes, write_varint,
};
use crate::record::Damage;
use crate::state::{Conf, Config, Store};
use crate::tables::{TableCounts, load_lease, put_alarm, put_lease, read_alarm, read_lease};
use crate::tail::{SegmentUse, Tail};
use crate::tree::common_prefix;
use crate::{AlarmMember, Handle, Key, KeyRange, Member};

const MAGIC: &[u8; 7] = b"kvstate";
/// Format level of heads and rows. Higher than ours is refused. Level 2 knows users and roles,
/// level 3 the founding; a level is written only where there is something of its kind, so that the
/// version before can read everything else.
pub const FORMAT: u8 = 3;
const FORMAT_WITHOUT_FOUNDING: u8 = 2;
const FORMAT_WITHOUT_AUTH: u8 = 1;
const HEAD_PREFIX: usize = 16;
const BLOCK_HEADER: usize = 12;
/// Instead of a number of keys: the last block.
pub(crate) const END: u32 = u32::MAX;
/// A block is closed at this many bytes of payload.
const BLOCK_BYTES: usize = 256 << 10;
/// Longest payload that is believed.
const BLOCK_LIMIT: usize = 1 << 30;

/// Everything of the state that is not in rows or segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageHead {
    /// The last entry that is in it.
    pub applied: Position,
    /// Revision of the store.
    pub revision: i64,
    /// The revision that was compacted last; -1: none.
    pub compacted: i64,
    /// Milliseconds.
    pub lease_clock: u64,
    /// Digest of the state, which members compare.
    pub digest: u128,
    /// Every lease, ascending by id.
    pub leases: Vec<LeaseHead>,
    /// Every member, ascending by id.
    pub members: Vec<Member>,
    /// Who votes and who listens.
    pub conf: Conf,
    /// Ids of members that have left, ascending; they never come back.
    pub removed: Vec<u64>,
    /// Every alarm that is raised.
    pub alarms: Vec<AlarmMember>,
    /// Such as `3.7.0`; empty while the cluster has none.
    pub cluster_version: String,
    /// Names the founding; 0: nothing has named it yet.
    pub founding: u64,
    /// Users are asked for.
    pub auth_enabled: bool,
    /// Of users and roles; 1 = there never were some.
    pub auth_revision: u64,
    /// By name, ascending.
    pub users: Vec<User>,
    /// By name, ascending.
    pub roles: Vec<Role>,
    /// Every segment that holds records of the image, ascending. Only the last is open; bytes of
    /// its file behind `end` are not part of the image.
    pub segments: Vec<SegmentUse>,
    /// The tables (leases, members, removed, alarms, users, roles) lie elsewhere and are empty
    /// here: how many rows each must have. None: they are here.
    pub elsewhere: Option<TableCounts>,
}

/// A lease less its keys, which follow from the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseHead {
    /// The lease's id.
    pub id: i64,
    /// Seconds granted.
    pub ttl: i64,
    /// Index of the entry that granted it.
    pub granted: u64,
    /// Lease-clock milliseconds.
    pub deadline: u64,
}

/// How far the rows of an image have been written.
#[derive(Clone, Debug)]
pub struct ImageCursor {
    pin: PinId,
    revision: i64,
    compacted: i64,
    after: Option<Key>,
    keys: u64,
    finished: bool,
}

impl Store {
    /// Begins an image of the state as it is now. [`Store::end_image`] must follow.
    ///
    /// # Panics
    /// If the state only stands in for one ([`Store::stand_at`]): written down, it would be served.
    pub fn image(&mut self) -> (ImageHead, ImageCursor) {
        assert!(!self.stands_in, "what stands in for a state is never written down");
        // nothing that the head calls readable may be swept before its rows are written
        let pin = self.pin(self.compacted);
        let (revision, compacted) = (self.revision, self.compacted);
        let cursor = ImageCursor { pin, revision, compacted, after: None, keys: 0, finished: false };
        (self.image_head(), cursor)
    }

    /// The small tables as they are now.
    pub fn image_head(&self) -> ImageHead {
        let lease = |(id, lease): (i64, &Lease)| LeaseHead {
            id,
            ttl: lease.ttl,
            granted: lease.granted,
            deadline: lease.deadline,
        };
        ImageHead {
            applied: self.applied,
            revision: self.revision,
            compacted: self.compacted,
            lease_clock: self.lease_clock,
            digest: self.digest(),
            leases: self.leases().map(lease).collect(),
            members: self.members().cloned().collect(),
            conf: self.conf.clone(),
            removed: self.removed.iter().copied().collect(),
            alarms: self.alarms().collect(),
            cluster_version: self.cluster_version.clone(),
            founding: self.founding,
            auth_enabled: self.auth.enabled(),
            auth_revision: self.auth.revision(),
            users: self.auth.users().cloned().collect(),
            roles: self.auth.roles().cloned().collect(),
            segments: self.segments().copied().collect(),
            elsewhere: None,
        }
    }

    /// Appends rows of up to `most` keys more to `out`, in whole blocks. True: that was all.
    pub fn image_rows(&self, cursor: &mut ImageCursor, most: usize, out: &mut Vec<u8>) -> bool {
        if cursor.finished {
            return true;
        }
        let (mut seen, mut block) = (0, Block::default());
        let after = cursor.after.take();
        self.keys.scan_after(&KeyRange::all(), after.as_deref(), |key, entry| {
            seen += 1;
            if block.push(key, entry, cursor.compacted, cursor.revision) {
                cursor.keys += 1;
            }
            if block.payload.len() >= BLOCK_BYTES {
                block.close(out);
            }
            if seen == most {
                cursor.after = Some(key.into());
            }
            seen < most
        });
        block.close(out);
        if seen < most {
            cursor.finished = true;
            put_varint(&mut block.payload, cursor.keys);
            block.keys = END;
            block.close(out);
        }
        cursor.finished
    }

    /// Ends an image, whole or given up: what it held back may be compacted.
    pub fn end_image(&mut self, cursor: ImageCursor) {
        self.unpin(cursor.pin);
    }

    /// Loads an image from its head and the bytes of its rows, in pieces of any size.
    ///
    /// # Errors
    /// An error of the source, or [`Damage`]: the bytes are not the rows of this head.
    pub fn load<B: AsRef<[u8]>, E: From<Damage>>(
        config: Config,
        head: ImageHead,
        rows: impl IntoIterator<Item = Result<B, E>>,
    ) -> Result<Store, E> {
        let mut loader = Store::loader(config, head);
        for piece in rows {
            loader.block(piece?.as_ref())?;
        }
        Ok(loader.finish()?)
    }

    /// As [`Store::load`], for a caller that hands the rows over itself.
    ///
    /// # Panics
    /// If the head is impossible; one from [`ImageHead::decode`] is not.
    pub fn loader(config: Config, head: ImageHead) -> Loader {
        let elsewhere = head.elsewhere;
        let mut store = from_head(config, head).expect("a head is checked when it is decoded");
        store.tail.begin_recount();
        Loader {
            store,
            pending: Vec::new(),
            offset: 0,
            last_key: Vec::new(),
            versions: Vec::new(),
            keys: 0,
            ended: false,
            elsewhere,
        }
    }
}

#[derive(Debug, Default)]
struct Block {
    keys: u32,
    payload: Vec<u8>,
}

impl Block {
    /// Adds the versions of a key that live at the image's revisions; false if there are none.
    fn push(&mut self, key: &[u8], entry: &Entry, compacted: i64, revision: i64) -> bool {
        let dead = dead_versions(entry, compacted);
        let versions = || entry.versions().skip(dead).take_while(|version| version.main <= revision);
        let count = versions().count();
        if count == 0 {
            return false;
        }
        let out = &mut self.payload;
        put_varint(out, key.len() as u64);
        out.extend_from_slice(key);
        put_varint(out, count as u64);
        for version in versions() {
            put_version(out, &version);
        }
        self.keys += 1;
        true
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        if self.keys == 0 {
            return;
        }
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&u32::try_from(self.payload.len()).expect("a block is small").to_le_bytes());
        out.extend_from_slice(&self.keys.to_le_bytes());
        out.append(&mut self.payload);
        let crc = crc32c::crc32c(&out[start + 4..]);
        out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
        self.keys = 0;
    }
}

fn put_version(out: &mut Vec<u8>, version: &Version) {
    put_varint(out, version.main as u64);
    put_varint(out, u64::from(version.sub));
    put_varint(out, version.create as u64);
    put_varint(out, version.version as u64);
    put_varint(out, version.lease as u64);
    put_varint(out, u64::from(version.handle.segment));
    put_varint(out, u64::from(version.handle.offset));
    put_varint(out, u64::from(version.handle.len));
}

/// Builds a store from an image. Damage names the offset in the rows' bytes.
#[derive(Debug)]
pub struct Loader {
    pub(crate) store: Store,
    /// Bytes of a block that is not complete yet, and where they begin.
    pending: Vec<u8>,
    offset: u64,
    last_key: Vec<u8>,
    /// Room for those of one key.
    versions: Vec<Version>,
    keys: u64,
    ended: bool,
    elsewhere: Option<TableCounts>,
}

impl Loader {
    /// Takes the next bytes of the rows: one block, several, or pieces cut anywhere.
    ///
    /// # Errors
    /// The bytes are damaged, or are not the rows that come next.
    pub fn block(&mut self, bytes: &[u8]) -> Result<(), Damage> {
        if self.pending.is_empty() {
            let used = self.blocks(bytes)?;
            self.pending.extend_from_slice(&bytes[used..]);
            return Ok(());
        }
        self.pending.extend_from_slice(bytes);
        let mut pending = std::mem::take(&mut self.pending);
        let used = self.blocks(&pending)?;
        pending.drain(..used);
        self.pending = pending;
        Ok(())
    }

    /// Takes every whole block at the front; how many bytes that were.
    fn blocks(&mut self, bytes: &[u8]) -> Result<usize, Damage> {
        let mut at = 0;
        while let Some(block) = whole_block(&bytes[at..]).map_err(|Malformed { what, .. }| self.damage(what))? {
            let (keys, payload) = open_block(block).map_err(|Malformed { what, .. }| self.damage(what))?;
            self.keys_of(keys, payload)?;
            at += block.len();
            self.offset += block.len() as u64;
        }
        Ok(at)
    }

    /// The whole image was given.
    ///
    /// # Errors
    /// Rows are missing, or the state that they make is not the one of the head.
    pub fn finish(mut self) -> Result<Store, Damage> {
        if !self.ended || !self.pending.is_empty() {
            return Err(self.damage("rows are cut short or run on behind their end".into()));
        }
        if let Some(expected) = self.elsewhere {
            self.check_tables(expected)?;
        }
        self.store.auth.loaded();
        self.store.keys.loaded();
        Ok(self.store)
    }

    fn damage(&self, what: String) -> Damage {
        Damage::new(self.offset, what)
    }

    fn keys_of(&mut self, keys: u32, payload: &[u8]) -> Result<(), Damage> {
        if self.ended {
            return Err(self.damage("a block behind the end".into()));
        }
        let mut reader = Varints::new(payload);
        if keys == END {
            let total = reader.next().map_err(|Malformed { what, .. }| self.damage(what))?;
            self.ended = true;
            return if total == self.keys && reader.rest.is_empty() {
                Ok(())
            } else {
                Err(self.damage(format!("{} keys where the end says {total}", self.keys)))
            };
        }
        for _ in 0..keys {
            self.row(&mut reader).map_err(|Malformed { what, .. }| self.damage(what))?;
        }
        if !reader.rest.is_empty() {
            return Err(self.damage("bytes behind the last key of a block".into()));
        }
        Ok(())
    }

    fn row(&mut self, reader: &mut Varints) -> Result<(), Malformed> {
        let key = reader.row(&mut self.versions)?;
        let shared = common_prefix(&self.last_key, key);
        if self.keys > 0 && self.last_key.get(shared) >= key.get(shared) {
            return Err(Malformed::new("keys do not ascend"));
        }
        let latest = *self.versions.last().expect("a row has a version");
        if !self.versions.is_sorted_by(|a, b| a.rev() < b.rev()) || latest.main > self.store.revision {
            return Err(Malformed::new("versions do not ascend up to the revision"));
        }
        for Version { handle, .. } in &self.versions {
            if !self.store.tail.counted(*handle) {
                return Err(Malformed::new(format!("{handle:?} lies in no segment of the head")));
            }
        }
        if !self.store.leases.load_key(key, latest.lease) {
            return Err(Malformed::new(format!("a key on lease {:x}, which the head does not have", latest.lease)));
        }
        self.store.keys.load(key, shared, &self.versions);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
        self.keys += 1;
        Ok(())
    }
}

fn le32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}

/// The first block, if all of it is there.
pub(crate) fn whole_block(bytes: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    if bytes.len() < BLOCK_HEADER {
        return Ok(None);
    }
    let len = le32(&bytes[4..]) as usize;
    if len > BLOCK_LIMIT {
        return Err(Malformed::new(format!("a block of {len} bytes")));
    }
    Ok(bytes.get(..BLOCK_HEADER + len))
}

pub(crate) fn open_block(block: &[u8]) -> Result<(u32, &[u8]), Malformed> {
    let (stored, computed) = (le32(block), crc32c::crc32c(&block[4..]));
    if stored != computed {
        return Err(Malformed::new(format!("block checksum {stored:08x}, computed {computed:08x}")));
    }
    Ok((le32(&block[8..]), &block[BLOCK_HEADER..]))
}

pub(crate) struct Varints<'a> {
    rest: &'a [u8],
}

impl<'a> Varints<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Varints<'a> {
        Varints { rest: bytes }
    }

    pub(crate) fn next(&mut self) -> Result<u64, Malformed> {
        let (value, used) = read_varint(self.rest)?;
        self.rest = &self.rest[used..];
        Ok(value)
    }

    fn int(&mut self) -> Result<i64, Malformed> {
        Ok(self.next()? as i64)
    }

    fn small(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.next()?).map_err(|_| Malformed::new("a number above 32 bits"))
    }

    fn version(&mut self) -> Result<Version, Malformed> {
        let (main, sub) = (self.int()?, self.small()?);
        let (create, version, lease) = (self.int()?, self.int()?, self.int()?);
        let (segment, offset, len) = (self.small()?, self.small()?, self.small()?);
        let put = main > 1 && (1..=main).contains(&create) && version > 0;
        let tombstone = main > 1 && create == 0 && version == 0 && lease == 0;
        if !(put || tombstone) {
            return Err(Malformed::new(format!("an impossible version {main}.{sub}")));
        }
        Ok(Version { main, create, version, lease, sub, handle: Handle { segment, offset, len } })
    }

    /// A key; its versions take the place of what is in `versions`.
    fn row(&mut self, versions: &mut Vec<Version>) -> Result<&'a [u8], Malformed> {
        let len = self.next()?;
        let len = usize::try_from(len).ok().filter(|len| *len <= self.rest.len());
        let (key, rest) = self.rest.split_at(len.ok_or_else(|| Malformed::new("a key is cut short"))?);
        self.rest = rest;
        let count = self.next()?;
        if count == 0 {
            return Err(Malformed::new("a key without versions"));
        }
        versions.clear();
        for _ in 0..count {
            let version = self.version()?;
            let least = crate::record::HEADER + version.without_value(key).encoded_len();
            if (version.handle.len as usize) < least {
                return Err(Malformed::new("a record too short for its key"));
            }
            versions.push(version);
        }
        Ok(key)
    }
}

fn from_head(config: Config, head: ImageHead) -> Result<Store, Damage> {
    let mut store = Store::new(config);
    let bad = |what: &str| Damage::new(0, format!("image head: {what}"));
    if head.elsewhere.is_some() && head.table_counts() != TableCounts::default() {
        return Err(bad("tables here that lie elsewhere"));
    }
    if head.revision < 1 || head.compacted < -1 || head.compacted > head.revision {
        return Err(bad("impossible revisions"));
    }
    store.applied = head.applied;
    store.revision = head.revision;
    store.compacted = head.compacted;
    store.lease_clock = head.lease_clock;
    store.digest = Digest::from_value(head.digest);
    for lease in head.leases {
        if !load_lease(&mut store, lease) {
            return Err(bad("a lease twice or without id"));
        }
    }
    store.members = head.members.into_iter().map(|member| (member.id, member)).collect();
    store.conf = head.conf;
    store.removed = head.removed.into_iter().collect();
    store.alarms = head.alarms.into_iter().collect();
    store.cluster_version = head.cluster_version;
    store.founding = head.founding;
    store.auth.load(head.auth_enabled, head.auth_revision);
    let (mut users, mut roles) = (head.users.into_iter(), head.roles.into_iter());
    if !users.all(|user| store.auth.load_user(user)) {
        return Err(bad("a user twice or without name"));
    }
    if !roles.all(|role| store.auth.load_role(role)) {
        return Err(bad("a role twice or without name"));
    }
    store.tail = Tail::restore(head.segments).ok_or_else(|| bad("segments out of order"))?;
    Ok(store)
}

/// Numbers as fields 1, 2, 3 … of a nested message.
pub(crate) fn numbers(out: &mut Vec<u8>, number: u32, values: &[u64]) {
    nested(out, number, |out| {
        for (field, value) in (1..).zip(values) {
            write_varint(out, field, *value);
        }
    });
}

pub(crate) fn read_numbers<const N: usize>(bytes: &[u8]) -> Result<[u64; N], Malformed> {
    let mut values = [0; N];
    let mut fields = Fields::new(bytes);
    while let Some((number, value)) = fields.next_field()? {
        match value {
            Value::Varint(v) if number as usize <= N => values[number as usize - 1] = v,
            _ => {
                return Err(Malformed::new(format!("image head: unknown field {number}")));
            }
        }
    }
    Ok(values)
}

impl ImageHead {
    /// Magic, format level, length, crc32c, then everything as a protobuf message of our own.
    pub fn encode(&self) -> Vec<u8> {
        let mut message = Vec::new();
        self.write(&mut message);
        self.write_tables(&mut message);
        sealed(self.level(), message)
    }

    /// As [`ImageHead::encode`], without the tables ([`ImageHead::table_blocks`]): a head that does
    /// not grow with what clients do.
    pub fn encode_without_tables(&self) -> Vec<u8> {
        let mut message = Vec::new();
        self.write(&mut message);
        numbers(&mut message, 10, &self.table_counts().values());
        sealed(self.level(), message)
    }

    fn level(&self) -> u8 {
        match (self.founding, self.auth_revision) {
            (0, 0..=1) => FORMAT_WITHOUT_AUTH,
            (0, _) => FORMAT_WITHOUT_FOUNDING,
            _ => FORMAT,
        }
    }

    fn write_tables(&self, out: &mut Vec<u8>) {
        for lease in &self.leases {
            put_lease(out, lease);
        }
        for member in &self.members {
            nested(out, 3, |out| encode_member(member, out));
        }
        for removed in &self.removed {
            numbers(out, 6, &[*removed]);
        }
        for alarm in &self.alarms {
            put_alarm(out, alarm);
        }
        for user in &self.users {
            nested(out, 12, |out| encode_user(user, out));
        }
        for role in &self.roles {
            nested(out, 13, |out| encode_role(role, out));
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let (low, high) = (self.digest as u64, (self.digest >> 64) as u64);
        numbers(
            out,
            1,
            &[
                self.applied.index,
                self.applied.term,
                self.revision as u64,
                self.compacted as u64,
                self.lease_clock,
                low,
                high,
            ],
        );
        for voter in &self.conf.voters {
            numbers(out, 4, &[*voter]);
        }
        for learner in &self.conf.learners {
            numbers(out, 5, &[*learner]);
        }
        write_bytes(out, 8, self.cluster_version.as_bytes());
        if self.auth_revision > 1 {
            numbers(out, 11, &[u64::from(self.auth_enabled), self.auth_revision]);
        }
        if self.founding != 0 {
            numbers(out, 14, &[self.founding]);
        }
        for segment in &self.segments {
            nested(out, 9, |out| {
                write_varint(out, 1, u64::from(segment.id));
                write_varint(out, 2, segment.first as u64);
                write_varint(out, 3, segment.last as u64);
                write_varint(out, 4, u64::from(segment.end));
                write_varint(out, 5, segment.live);
                write_bool(out, 6, segment.sealed);
            });
        }
    }

    /// Exactly one encoded head.
    ///
    /// # Errors
    /// The bytes are damaged, of a later format, or describe a state that cannot be.
    pub fn decode(bytes: &[u8]) -> Result<ImageHead, Damage> {
        if bytes.len() < HEAD_PREFIX || &bytes[..7] != MAGIC {
            return Err(Damage::new(0, "not the head of a state image"));
        }
        if bytes[7] > FORMAT {
            return Err(Damage::new(7, format!("format level {} is newer than ours, {FORMAT}", bytes[7])));
        }
        let message = &bytes[HEAD_PREFIX..];
        if le32(&bytes[8..]) as usize != message.len() {
            return Err(Damage::new(8, "image head has the wrong length"));
        }
        let (stored, computed) = (le32(&bytes[12..]), crc32c::crc32c(message));
        if stored != computed {
            let what = format!("image head checksum {stored:08x}, computed {computed:08x}");
            return Err(Damage::new(12, what));
        }
        let head = ImageHead::read(message);
        let head = head.map_err(|malformed| Damage::new(HEAD_PREFIX as u64, malformed.to_string()))?;
        // whatever decodes can be loaded
        from_head(Config::default(), head.clone())?;
        Ok(head)
    }

    fn empty() -> ImageHead {
        ImageHead {
            applied: Position::default(),
            revision: 0,
            compacted: 0,
            lease_clock: 0,
            digest: 0,
            leases: Vec::new(),
            members: Vec::new(),
            conf: Conf::default(),
            removed: Vec::new(),
            alarms: Vec::new(),
            cluster_version: String::new(),
            founding: 0,
            auth_enabled: false,
            auth_revision: 1,
            users: Vec::new(),
            roles: Vec::new(),
            segments: Vec::new(),
            elsewhere: None,
        }
    }

    fn read(message: &[u8]) -> Result<ImageHead, Malformed> {
        let mut head = ImageHead::empty();
        let mut fields = Fields::new(message);
        while let Some((number, value)) = fields.next_field()? {
            let Value::Bytes(bytes) = value else {
                return Err(Malformed::new(format!("image head: unknown field {number}")));
            };
            head.read_field(number, bytes)?;
        }
        Ok(head)
    }

    fn read_field(&mut self, number: u32, bytes: &[u8]) -> Result<(), Malformed> {
        match number {
            1 => {
                let [index, term, revision, compacted, lease_clock, low, high] = read_numbers(bytes)?;
                self.applied = Position { index, term };
                (self.revision, self.compacted) = (revision as i64, compacted as i64);
                self.lease_clock = lease_clock;
                self.digest = u128::from(low) | u128::from(high) << 64;
            }
            2 => self.leases.push(read_lease(bytes)?),
            3 => self.members.push(decode_member(bytes)?),
            4 => self.conf.voters.push(read_numbers::<1>(bytes)?[0]),
            5 => self.conf.learners.push(read_numbers::<1>(bytes)?[0]),
            6 => self.removed.push(read_numbers::<1>(bytes)?[0]),
            7 => self.alarms.push(read_alarm(bytes)?),
            8 => {
                let text = std::str::from_utf8(bytes).map_err(|_| Malformed::new("version is not UTF-8"))?;
                self.cluster_version = text.to_owned();
            }
            9 => self.segments.push(read_segment(bytes)?),
            10 => self.elsewhere = Some(TableCounts::of(read_numbers(bytes)?)),
            11 => {
                let [enabled, revision] = read_numbers(bytes)?;
                (self.auth_enabled, self.auth_revision) = (enabled != 0, revision);
            }
            12 => self.users.push(decode_user(bytes)?),
            13 => self.roles.push(decode_role(bytes)?),
            14 => [self.founding] = read_numbers(bytes)?,
            _ => {
                return Err(Malformed::new(format!("image head: unknown field {number}")));
            }
        }
        Ok(())
    }
}

/// Behind its prefix.
fn sealed(level: u8, mut message: Vec<u8>) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_PREFIX + message.len());
    out.extend_from_slice(MAGIC);
    out.push(level);
    out.extend_from_slice(&u32::try_from(message.len()).expect("tables are small").to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(&message).to_le_bytes());
    out.append(&mut message);
    out
}

fn read_segment(bytes: &[u8]) -> Result<SegmentUse, Malformed> {
    let [id, first, last, end, live, sealed] = read_numbers(bytes)?;
    let small = |v: u64| u32::try_from(v).map_err(|_| Malformed::new("segment above 32 bits"));
    Ok(SegmentUse {
        id: small(id)?,
        first: first as i64,
        last: last as i64,
        end: small(end)?,
        live,
        sealed: sealed != 0,
    })
}
