//! A message between members, and its bytes on the wire.
//!
//! The layout is ours and fixed, little-endian, so that no general decoder ever reads network
//! bytes. Lengths are checked before anything is allocated, and an entry's data stays a slice of
//! the received buffer. Entries carry no index: they follow `index` without gaps by construction.
//!
//! ```text
//! format u8 = 1 | kind u8 | reject u8 | has snapshot u8
//! to from term log_term index commit commit_term reject_hint   8 × u64
//! context: u16 length, bytes
//! entries: u32 count, each: term u64, kind u8, u32 length, bytes
//! snapshot, if any: index u64, term u64, voters: u16 count, u64 …, learners: same,
//!                   manifest: u32 length, bytes
//! ```

use crate::{ConfState, EntryKind, Snapshot};
use bytes::Bytes;
use raft::eraftpb::{self, EntryType, MessageType};
use std::fmt;

const FORMAT: u8 = 1;
/// Least bytes of one entry: term, kind, length.
const ENTRY_HEAD: usize = 8 + 1 + 4;
/// ReadIndex contexts and the transfer mark are far shorter.
const MAX_CONTEXT: usize = 256;
/// Terms and indexes beyond this are nonsense; below it no sum of ours overflows.
pub(crate) const MAX_NUMBER: u64 = 1 << 62;

/// The kinds that cross the network, and their numbers there.
const KINDS: [(u8, MessageType); 10] = [
    (1, MessageType::MsgAppend),
    (2, MessageType::MsgAppendResponse),
    (3, MessageType::MsgRequestVote),
    (4, MessageType::MsgRequestVoteResponse),
    (5, MessageType::MsgRequestPreVote),
    (6, MessageType::MsgRequestPreVoteResponse),
    (7, MessageType::MsgHeartbeat),
    (8, MessageType::MsgHeartbeatResponse),
    (9, MessageType::MsgSnapshot),
    (10, MessageType::MsgTimeoutNow),
];

/// One message from one member to another.
#[derive(Clone, PartialEq)]
pub struct Message(pub(crate) eraftpb::Message);

/// Bytes that are no message of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed consensus message: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

impl Message {
    pub fn from(&self) -> u64 {
        self.0.from
    }

    pub fn to(&self) -> u64 {
        self.0.to
    }

    pub fn term(&self) -> u64 {
        self.0.term
    }

    /// Votes, heartbeats, TimeoutNow and answers: they are small and must never wait behind
    /// entries.
    pub fn is_urgent(&self) -> bool {
        !matches!(self.0.get_msg_type(), MessageType::MsgAppend | MessageType::MsgSnapshot)
    }

    /// Appends, heartbeats and snapshots: said by the leader of its term alone.
    pub fn is_from_leader(&self) -> bool {
        matches!(self.0.get_msg_type(), MessageType::MsgAppend | MessageType::MsgHeartbeat | MessageType::MsgSnapshot)
    }

    /// Of one that stands for election, or is about to.
    pub fn asks_for_vote(&self) -> bool {
        matches!(self.0.get_msg_type(), MessageType::MsgRequestVote | MessageType::MsgRequestPreVote)
    }

    /// Bytes of entry data and manifest, for queue limits.
    pub fn payload_bytes(&self) -> u64 {
        let entries: usize = self.0.entries.iter().map(|entry| entry.data.len()).sum();
        (entries + self.0.get_snapshot().data.len()) as u64
    }

    /// Appends the wire form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let m = &self.0;
        let kind = KINDS.iter().find(|(_, kind)| *kind == m.get_msg_type());
        let (number, _) = kind.expect("only kinds of the table leave the facade");
        let snapshot = m.get_snapshot();
        out.extend([FORMAT, *number, u8::from(m.reject), u8::from(!snapshot.is_empty())]);
        for n in [m.to, m.from, m.term, m.log_term, m.index, m.commit, m.commit_term, m.reject_hint] {
            out.extend(n.to_le_bytes());
        }
        assert!(m.context.len() <= MAX_CONTEXT);
        // Lengths, term and kind of an entry take 13 bytes.
        out.reserve(80 + m.context.len() + m.entries.iter().map(|entry| 13 + entry.data.len()).sum::<usize>());
        out.extend((m.context.len() as u16).to_le_bytes());
        out.extend_from_slice(&m.context);
        out.extend(length(m.entries.len()));
        for (entry, index) in m.entries.iter().zip(m.index + 1..) {
            assert_eq!(entry.index, index, "entries of a message follow its index");
            out.extend(entry.term.to_le_bytes());
            out.push(kind_of(entry) as u8);
            out.extend(length(entry.data.len()));
            out.extend_from_slice(&entry.data);
        }
        if !snapshot.is_empty() {
            encode_snapshot(&snapshot_from(snapshot), out);
        }
    }

    /// Reads one whole message. Never panics; allocates at most in proportion to the input.
    pub fn decode(input: Bytes) -> Result<Message, Malformed> {
        let mut reader = Reader { input, at: 0 };
        if reader.u8()? != FORMAT {
            return Err(Malformed("unknown format"));
        }
        let number = reader.u8()?;
        let kind = KINDS.iter().find(|(n, _)| *n == number);
        let (_, kind) = kind.ok_or(Malformed("unknown kind"))?;
        let reject = reader.bool()?;
        let has_snapshot = reader.bool()?;
        let mut m = eraftpb::Message::default();
        m.set_msg_type(*kind);
        m.reject = reject;
        m.to = reader.u64()?;
        m.from = reader.u64()?;
        m.term = reader.number()?;
        m.log_term = reader.number()?;
        m.index = reader.number()?;
        m.commit = reader.number()?;
        m.commit_term = reader.number()?;
        m.reject_hint = reader.number()?;
        let context = reader.u16()? as usize;
        if context > MAX_CONTEXT {
            return Err(Malformed("context too long"));
        }
        m.context = reader.take(context)?;
        reader.entries(&mut m)?;
        if has_snapshot != (*kind == MessageType::MsgSnapshot) {
            return Err(Malformed("snapshot in the wrong kind"));
        }
        if has_snapshot {
            m.set_snapshot(snapshot_into(&reader.snapshot()?));
        }
        if reader.at != reader.input.len() {
            return Err(Malformed("bytes after the end"));
        }
        Ok(Message(m))
    }
}

impl fmt::Debug for Message {
    /// One line: kind, direction, term, and what differs from zero.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = &self.0;
        let kind = format!("{:?}", m.get_msg_type());
        write!(f, "{} {}->{} term={}", kind.trim_start_matches("Msg"), m.from, m.to, m.term)?;
        let at_zero = m.get_msg_type() == MessageType::MsgAppend;
        if at_zero || m.index != 0 || m.log_term != 0 {
            write!(f, " at={}/{}", m.index, m.log_term)?;
        }
        if m.commit != 0 {
            write!(f, " commit={}", m.commit)?;
        }
        if m.reject {
            write!(f, " reject")?;
            if m.reject_hint != 0 {
                write!(f, " hint={}", m.reject_hint)?;
            }
        }
        if !m.context.is_empty() {
            match crate::reads::counter_of(&m.context) {
                Some(counter) => write!(f, " read={counter}")?,
                None => write!(f, " forced")?,
            }
        }
        if !m.entries.is_empty() {
            let terms: Vec<String> = m.entries.iter().map(|e| format!("{}/{}", e.index, e.term)).collect();
            write!(f, " entries=[{}]", terms.join(" "))?;
        }
        if !m.get_snapshot().is_empty() {
            let meta = m.get_snapshot().get_metadata();
            write!(f, " snapshot={}/{}", meta.index, meta.term)?;
        }
        Ok(())
    }
}

fn length(n: usize) -> [u8; 4] {
    u32::try_from(n).expect("messages are far below 4 GiB").to_le_bytes()
}

fn encode_snapshot(snapshot: &Snapshot, out: &mut Vec<u8>) {
    out.extend(snapshot.index.to_le_bytes());
    out.extend(snapshot.term.to_le_bytes());
    for ids in [&snapshot.conf.voters, &snapshot.conf.learners] {
        out.extend(u16::try_from(ids.len()).expect("few members").to_le_bytes());
        ids.iter().for_each(|id| out.extend(id.to_le_bytes()));
    }
    out.extend(length(snapshot.manifest.len()));
    out.extend_from_slice(&snapshot.manifest);
}

struct Reader {
    input: Bytes,
    at: usize,
}

impl Reader {
    fn take(&mut self, n: usize) -> Result<Bytes, Malformed> {
        let left = self.input.len() - self.at;
        if n > left {
            return Err(Malformed("cut short"));
        }
        let taken = self.input.slice(self.at..self.at + n);
        self.at += n;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let end = self.at.checked_add(N).filter(|end| *end <= self.input.len());
        let end = end.ok_or(Malformed("cut short"))?;
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.input[self.at..end]);
        self.at = end;
        Ok(bytes)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("flag is neither 0 nor 1")),
        }
    }

    /// A term or an index.
    fn number(&mut self) -> Result<u64, Malformed> {
        let n = self.u64()?;
        if n > MAX_NUMBER {
            return Err(Malformed("term or index out of range"));
        }
        Ok(n)
    }

    fn entries(&mut self, m: &mut eraftpb::Message) -> Result<(), Malformed> {
        let count = self.u32()? as usize;
        if count > 0 && m.get_msg_type() != MessageType::MsgAppend {
            return Err(Malformed("entries in the wrong kind"));
        }
        if count > (self.input.len() - self.at) / ENTRY_HEAD {
            return Err(Malformed("more entries than bytes"));
        }
        let mut entries = Vec::with_capacity(count);
        for index in (m.index + 1..).take(count) {
            let mut entry = eraftpb::Entry::default();
            entry.index = index;
            entry.term = self.number()?;
            entry.set_entry_type(match self.u8()? {
                0 => EntryType::EntryNormal,
                1 => EntryType::EntryConfChange,
                _ => return Err(Malformed("unknown entry kind")),
            });
            let length = self.u32()? as usize;
            entry.data = self.take(length)?;
            entries.push(entry);
        }
        m.set_entries(entries.into());
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Snapshot, Malformed> {
        let index = self.number()?;
        let term = self.number()?;
        if index == 0 || term == 0 {
            return Err(Malformed("snapshot of nothing"));
        }
        let voters = self.ids()?;
        let learners = self.ids()?;
        let manifest = self.u32()? as usize;
        let manifest = self.take(manifest)?;
        Ok(Snapshot { index, term, conf: ConfState { voters, learners }, manifest })
    }

    fn ids(&mut self) -> Result<Vec<u64>, Malformed> {
        let count = self.u16()? as usize;
        if count > (self.input.len() - self.at) / 8 {
            return Err(Malformed("more members than bytes"));
        }
        let ids = (0..count).map(|_| self.u64()).collect::<Result<Vec<_>, _>>()?;
        if !ids.is_sorted_by(|a, b| a < b) {
            return Err(Malformed("members are not ascending"));
        }
        Ok(ids)
    }
}

pub(crate) fn kind_of(entry: &eraftpb::Entry) -> EntryKind {
    match entry.get_entry_type() {
        EntryType::EntryNormal => EntryKind::Normal,
        EntryType::EntryConfChange => EntryKind::Config,
        EntryType::EntryConfChangeV2 => panic!("joint membership changes are never proposed"),
    }
}

pub(crate) fn snapshot_from(snapshot: &eraftpb::Snapshot) -> Snapshot {
    let meta = snapshot.get_metadata();
    Snapshot {
        index: meta.index,
        term: meta.term,
        conf: conf_from(meta.get_conf_state()),
        manifest: snapshot.data.clone(),
    }
}

pub(crate) fn snapshot_into(snapshot: &Snapshot) -> eraftpb::Snapshot {
    let mut theirs = eraftpb::Snapshot::default();
    theirs.data = snapshot.manifest.clone();
    theirs.mut_metadata().index = snapshot.index;
    theirs.mut_metadata().term = snapshot.term;
    theirs.mut_metadata().set_conf_state(conf_into(&snapshot.conf));
    theirs
}

pub(crate) fn conf_from(theirs: &eraftpb::ConfState) -> ConfState {
    let mut conf = ConfState { voters: theirs.voters.to_vec(), learners: theirs.learners.to_vec() };
    conf.voters.sort_unstable();
    conf.learners.sort_unstable();
    conf
}

pub(crate) fn conf_into(conf: &ConfState) -> eraftpb::ConfState {
    let mut theirs = eraftpb::ConfState::default();
    theirs.voters = conf.voters.clone();
    theirs.learners = conf.learners.clone();
    theirs
}
