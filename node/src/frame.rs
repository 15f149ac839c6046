//! What members say to each other, and its bytes.
//!
//! One frame = one kind byte and its fields, little-endian. The transport adds a length and
//! bounds it before allocation; here every length is checked against what is left.
//! Format level 1 is announced in the hello of the connection.

use bytes::{Buf, BufMut, Bytes};
use consensus::{Doubt, Message, Position, Standing};
use store::Rev;

/// A frame between members.
#[derive(Clone, Debug)]
pub enum Frame {
    Raft(Message),
    /// Commands for the leader of `term`. The leader proposes them only while its term is
    /// still `term`; so a forward can never be applied in a later term, and what was not
    /// applied when a later term's first entry is, never will be.
    Forward {
        term: u64,
        boot: u64,
        commands: Vec<Forwarded>,
    },
    /// None of these was proposed.
    ForwardRefused {
        boot: u64,
        seqs: Vec<u64>,
        why: Why,
    },
    /// Which of these forwards has the leader of `term` not seen?
    ForwardQuestion {
        term: u64,
        boot: u64,
        token: u64,
        seqs: Vec<SeqRange>,
    },
    /// These it has not seen. What it refused comes as `ForwardRefused`.
    ForwardMissing {
        boot: u64,
        token: u64,
        seqs: Vec<SeqRange>,
    },
    /// Asks for an index that a linearisable read may be served at.
    ReadIndex {
        boot: u64,
        token: u64,
    },
    /// `index` 0 = not confirmed.
    ReadIndexReply {
        boot: u64,
        token: u64,
        index: u64,
    },
    KeepAlive {
        boot: u64,
        token: u64,
        lease: i64,
    },
    /// `ok` false = not answered by a proven leader.
    KeepAliveReply {
        boot: u64,
        token: u64,
        ok: bool,
        ttl: i64,
    },
    TimeToLive {
        boot: u64,
        token: u64,
        lease: i64,
    },
    /// The leader's index lets the asker wait until it has applied as much.
    TimeToLiveReply {
        boot: u64,
        token: u64,
        ok: bool,
        ttl: i64,
        index: u64,
    },
    /// A piece of a file of the checkpoint at `index`.
    ChunkRequest {
        boot: u64,
        token: u64,
        index: u64,
        file: String,
        offset: u64,
        len: u32,
    },
    Chunk {
        boot: u64,
        token: u64,
        ok: bool,
        end: bool,
        bytes: Bytes,
    },
    /// Records between two revisions, which are not among them: the asker's copies are damaged.
    /// About `most` bytes of them in one answer.
    RecordsWanted {
        boot: u64,
        token: u64,
        after: Rev,
        before: Rev,
        most: u32,
    },
    /// Whole records, ascending: all that there are, or (`end` false) the first of them. `ok`
    /// false: they are not to be had here. `compacted`: the sender's compacted revision.
    Records {
        boot: u64,
        token: u64,
        ok: bool,
        end: bool,
        compacted: i64,
        records: Vec<Bytes>,
    },
    /// The asker's state is of no use and its log is whole: it wants a checkpoint at `least` or
    /// above.
    StateWanted {
        boot: u64,
        token: u64,
        least: u64,
    },
    /// The manifest of such a checkpoint of the sender.
    StateOffer {
        boot: u64,
        token: u64,
        manifest: Bytes,
    },
    /// The transfer of the checkpoint at `index` ended at the receiver.
    TransferEnded {
        index: u64,
        ok: bool,
    },
    /// How the sender stands. A `question` names the asker's life in `boot`, its answer names it
    /// again.
    Standing {
        boot: u64,
        question: bool,
        standing: Standing,
    },
    /// Logical digest after applying `index`.
    Digest {
        index: u64,
        digest: u128,
    },
    /// A membership change for the leader of `term`; it is said again with the same token until it
    /// is answered, or applied.
    ChangeMember {
        /// The leader proposes it in this term alone.
        term: u64,
        /// Life of the asker.
        boot: u64,
        /// Names the change in that life.
        token: u64,
        /// `store::MemberChange`, without an origin.
        change: Bytes,
    },
    /// The leader did not propose it.
    MemberUnchanged {
        /// Life of the asker.
        boot: u64,
        /// As it was asked with.
        token: u64,
        /// The reason.
        why: Unchanged,
    },
    /// Whether the sender saves and applies entries in time. Said when it changes, and while it is
    /// false once in each election timeout. A member that is not able is no successor of a leader.
    Able {
        able: bool,
    },
}

#[derive(Clone, Debug)]
pub struct Forwarded {
    pub seq: u64,
    pub body: Bytes,
}

/// Numbers of forwards, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqRange {
    pub first: u64,
    pub last: u64,
}

/// Another member in one of its lives, and its name for what it asked: where an answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) member: u64,
    pub(crate) boot: u64,
    pub(crate) token: u64,
}

/// Why a forward was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Why {
    NotLeader = 0,
    TooMany = 1,
    /// It is no command: the same bytes are refused by every leader.
    NoCommand = 2,
}

/// Why the leader does not propose a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Unchanged {
    /// The member asked does not lead (any more).
    NotLeader = 0,
    /// Too few of the voters have ever started.
    NotEnoughStarted = 1,
    /// Too few of the voters are connected.
    Unhealthy = 2,
    /// The learner lags.
    LearnerNotReady = 3,
    /// There are as many learners as may be.
    TooManyLearners = 4,
    /// Too many changes wait.
    TooMany = 5,
    /// The member is there already.
    Exists = 6,
    /// Another member has the URL.
    UrlExists = 7,
    /// There is no such member.
    NotFound = 8,
    /// It has a vote already.
    NotLearner = 9,
}

impl Unchanged {
    /// The reason with this number, as it stands in a frame.
    pub(crate) fn numbered(number: u64) -> Option<Unchanged> {
        use Unchanged::*;
        let all = [
            NotLeader,
            NotEnoughStarted,
            Unhealthy,
            LearnerNotReady,
            TooManyLearners,
            TooMany,
            Exists,
            UrlExists,
            NotFound,
            NotLearner,
        ];
        all.into_iter().find(|why| *why as u64 == number)
    }
}

/// Which queue of a peer connection a frame goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Votes, heartbeats, answers to appends, read rounds: small, and ahead of everything.
    Urgent,
    /// Appends.
    Log,
    /// Commands on their way to the leader: beside appends, in their own bound.
    Forward,
    /// Pieces of checkpoints.
    Bulk,
}

/// Which connection of a pair of members a lane goes through. On a slow link a long frame takes
/// longer than an election timeout, and a connection carries one after the other: what is urgent
/// has a connection of its own, and so have the pieces of checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// The urgent lane.
    Urgent,
    /// Appends and forwards.
    Log,
    /// Pieces of checkpoints.
    Bulk,
}

impl Lane {
    /// The connection of this lane.
    pub fn connection(self) -> Connection {
        match self {
            Lane::Urgent => Connection::Urgent,
            Lane::Log | Lane::Forward => Connection::Log,
            Lane::Bulk => Connection::Bulk,
        }
    }
}

/// The lane of a frame. Forwards and questions about them keep their order because they all go
/// through one lane: a question that passes a forward would have it said again.
pub fn lane(frame: &Frame) -> Lane {
    match frame {
        Frame::Raft(message) if message.is_urgent() => Lane::Urgent,
        Frame::Raft(_) => Lane::Log,
        Frame::Chunk { .. } | Frame::ChunkRequest { .. } => Lane::Bulk,
        Frame::Records { .. } | Frame::RecordsWanted { .. } => Lane::Bulk,
        Frame::StateOffer { .. } => Lane::Bulk,
        Frame::Forward { .. } | Frame::ForwardQuestion { .. } => Lane::Forward,
        _ => Lane::Urgent,
    }
}

/// The bytes are not a frame of format level 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("malformed peer frame")
    }
}

impl std::error::Error for Malformed {}

/// Numbers of forwards beyond this are nonsense; below it no sum overflows.
const MOST: u64 = 1 << 62;

const RAFT: u8 = 1;
const FORWARD: u8 = 2;
const FORWARD_REFUSED: u8 = 3;
const READ_INDEX: u8 = 4;
const READ_INDEX_REPLY: u8 = 5;
const KEEP_ALIVE: u8 = 6;
const KEEP_ALIVE_REPLY: u8 = 7;
const TIME_TO_LIVE: u8 = 8;
const TIME_TO_LIVE_REPLY: u8 = 9;
const CHUNK_REQUEST: u8 = 10;
const CHUNK: u8 = 11;
const TRANSFER_ENDED: u8 = 12;
const DIGEST: u8 = 13;
const STANDING: u8 = 14;
const FORWARD_QUESTION: u8 = 16;
const FORWARD_MISSING: u8 = 17;
const ABLE: u8 = 15;
const RECORDS_WANTED: u8 = 18;
const RECORDS: u8 = 19;
const STATE_WANTED: u8 = 20;
const STATE_OFFER: u8 = 21;
const CHANGE_MEMBER: u8 = 22;
const MEMBER_UNCHANGED: u8 = 23;

/// Appends the bytes of `frame` to `out`.
pub fn encode(frame: &Frame, out: &mut Vec<u8>) {
    match frame {
        Frame::Raft(message) => {
            out.put_u8(RAFT);
            message.encode(out);
        }
        Frame::Forward { term, boot, commands } => {
            out.put_u8(FORWARD);
            out.put_u64_le(*term);
            out.put_u64_le(*boot);
            out.put_u32_le(commands.len() as u32);
            for command in commands {
                out.put_u64_le(command.seq);
                put_bytes(out, &command.body);
            }
        }
        Frame::ForwardRefused { boot, seqs, why } => {
            out.put_u8(FORWARD_REFUSED);
            out.put_u64_le(*boot);
            out.put_u8(*why as u8);
            out.put_u32_le(seqs.len() as u32);
            for seq in seqs {
                out.put_u64_le(*seq);
            }
        }
        Frame::ForwardQuestion { term, boot, token, seqs } => {
            put_numbers(out, FORWARD_QUESTION, &[*term, *boot, *token]);
            put_ranges(out, seqs);
        }
        Frame::ForwardMissing { boot, token, seqs } => {
            put_numbers(out, FORWARD_MISSING, &[*boot, *token]);
            put_ranges(out, seqs);
        }
        Frame::ReadIndex { boot, token } => put_numbers(out, READ_INDEX, &[*boot, *token]),
        Frame::ReadIndexReply { boot, token, index } => put_numbers(out, READ_INDEX_REPLY, &[*boot, *token, *index]),
        Frame::KeepAlive { boot, token, lease } => put_numbers(out, KEEP_ALIVE, &[*boot, *token, *lease as u64]),
        Frame::KeepAliveReply { boot, token, ok, ttl } => {
            put_numbers(out, KEEP_ALIVE_REPLY, &[*boot, *token, *ok as u64, *ttl as u64]);
        }
        Frame::TimeToLive { boot, token, lease } => put_numbers(out, TIME_TO_LIVE, &[*boot, *token, *lease as u64]),
        Frame::TimeToLiveReply { boot, token, ok, ttl, index } => {
            put_numbers(out, TIME_TO_LIVE_REPLY, &[*boot, *token, *ok as u64, *ttl as u64, *index]);
        }
        Frame::ChunkRequest { boot, token, index, file, offset, len } => {
            put_numbers(out, CHUNK_REQUEST, &[*boot, *token, *index, *offset]);
            out.put_u32_le(*len);
            put_bytes(out, file.as_bytes());
        }
        Frame::Chunk { boot, token, ok, end, bytes } => {
            put_numbers(out, CHUNK, &[*boot, *token, *ok as u64, *end as u64]);
            put_bytes(out, bytes);
        }
        Frame::RecordsWanted { boot, token, after, before, most } => {
            let revs = [after.main, after.sub, before.main, before.sub].map(|number| number as u64);
            put_numbers(out, RECORDS_WANTED, &[*boot, *token, revs[0], revs[1], revs[2], revs[3]]);
            out.put_u32_le(*most);
        }
        Frame::Records { boot, token, ok, end, compacted, records } => {
            put_numbers(out, RECORDS, &[*boot, *token, *ok as u64, *end as u64, *compacted as u64]);
            out.put_u32_le(u32::try_from(records.len()).expect("fewer than bytes"));
            for record in records {
                put_bytes(out, record);
            }
        }
        Frame::StateWanted { boot, token, least } => put_numbers(out, STATE_WANTED, &[*boot, *token, *least]),
        Frame::StateOffer { boot, token, manifest } => {
            put_numbers(out, STATE_OFFER, &[*boot, *token]);
            put_bytes(out, manifest);
        }
        Frame::TransferEnded { index, ok } => put_numbers(out, TRANSFER_ENDED, &[*index, *ok as u64]),
        Frame::Standing { boot, question, standing } => put_standing(out, *boot, *question, standing),
        Frame::Digest { index, digest } => {
            put_numbers(out, DIGEST, &[*index, *digest as u64, (*digest >> 64) as u64]);
        }
        Frame::Able { able } => put_numbers(out, ABLE, &[*able as u64]),
        Frame::ChangeMember { term, boot, token, change } => {
            put_numbers(out, CHANGE_MEMBER, &[*term, *boot, *token]);
            put_bytes(out, change);
        }
        Frame::MemberUnchanged { boot, token, why } => {
            put_numbers(out, MEMBER_UNCHANGED, &[*boot, *token, *why as u64]);
        }
    }
}

/// Reads one frame; all of `bytes` must belong to it.
pub fn decode(mut bytes: Bytes) -> Result<Frame, Malformed> {
    if bytes.is_empty() {
        return Err(Malformed);
    }
    let kind = bytes.get_u8();
    if kind == RAFT {
        return Message::decode(bytes).map(Frame::Raft).map_err(|_| Malformed);
    }
    let mut r = Reader(bytes);
    let frame = match kind {
        FORWARD => r.forward()?,
        FORWARD_REFUSED => r.forward_refused()?,
        FORWARD_QUESTION => {
            Frame::ForwardQuestion { term: r.u64()?, boot: r.u64()?, token: r.u64()?, seqs: r.ranges()? }
        }
        FORWARD_MISSING => Frame::ForwardMissing { boot: r.u64()?, token: r.u64()?, seqs: r.ranges()? },
        READ_INDEX => Frame::ReadIndex { boot: r.u64()?, token: r.u64()? },
        READ_INDEX_REPLY => Frame::ReadIndexReply { boot: r.u64()?, token: r.u64()?, index: r.u64()? },
        KEEP_ALIVE => Frame::KeepAlive { boot: r.u64()?, token: r.u64()?, lease: r.u64()? as i64 },
        KEEP_ALIVE_REPLY => {
            Frame::KeepAliveReply { boot: r.u64()?, token: r.u64()?, ok: r.flag()?, ttl: r.u64()? as i64 }
        }
        TIME_TO_LIVE => Frame::TimeToLive { boot: r.u64()?, token: r.u64()?, lease: r.u64()? as i64 },
        TIME_TO_LIVE_REPLY => Frame::TimeToLiveReply {
            boot: r.u64()?,
            token: r.u64()?,
            ok: r.flag()?,
            ttl: r.u64()? as i64,
            index: r.u64()?,
        },
        CHUNK_REQUEST => r.chunk_request()?,
        CHUNK => Frame::Chunk { boot: r.u64()?, token: r.u64()?, ok: r.flag()?, end: r.flag()?, bytes: r.bytes()? },
        RECORDS_WANTED => {
            let (boot, token, after, before) = (r.u64()?, r.u64()?, r.rev()?, r.rev()?);
            Frame::RecordsWanted { boot, token, after, before, most: r.u32()? }
        }
        RECORDS => r.records()?,
        STATE_WANTED => Frame::StateWanted { boot: r.u64()?, token: r.u64()?, least: r.u64()? },
        STATE_OFFER => Frame::StateOffer { boot: r.u64()?, token: r.u64()?, manifest: r.bytes()? },
        TRANSFER_ENDED => Frame::TransferEnded { index: r.u64()?, ok: r.flag()? },
        STANDING => r.standing()?,
        DIGEST => Frame::Digest { index: r.u64()?, digest: r.u64()? as u128 | (r.u64()? as u128) << 64 },
        ABLE => Frame::Able { able: r.flag()? },
        CHANGE_MEMBER => Frame::ChangeMember { term: r.u64()?, boot: r.u64()?, token: r.u64()?, change: r.bytes()? },
        MEMBER_UNCHANGED => {
            let (boot, token) = (r.u64()?, r.u64()?);
            Frame::MemberUnchanged { boot, token, why: Unchanged::numbered(r.u64()?).ok_or(Malformed)? }
        }
        _ => return Err(Malformed),
    };
    if r.0.has_remaining() { Err(Malformed) } else { Ok(frame) }
}

fn put_numbers(out: &mut Vec<u8>, kind: u8, numbers: &[u64]) {
    out.put_u8(kind);
    for number in numbers {
        out.put_u64_le(*number);
    }
}

fn put_standing(out: &mut Vec<u8>, boot: u64, question: bool, standing: &Standing) {
    let place = |place: Option<Position>| place.map_or([0, 0, 0], |place| [1, place.index, place.term]);
    let Standing { term, last, leads, doubt, commit, acknowledged, wrote } = standing;
    put_numbers(out, STANDING, &[boot, question as u64, *term, last.index, last.term, *leads as u64]);
    for number in [commit.index, commit.term] {
        out.put_u64_le(number);
    }
    let doubted = doubt.map_or([0; 6], |doubt| {
        let [known, index, term] = place(doubt.promise);
        [1, known, index, term, doubt.vote as u64, doubt.sure as u64]
    });
    for number in doubted.into_iter().chain(place(*acknowledged)).chain(place(*wrote)) {
        out.put_u64_le(number);
    }
}

fn put_ranges(out: &mut Vec<u8>, ranges: &[SeqRange]) {
    out.put_u32_le(u32::try_from(ranges.len()).expect("fewer than the forwards under way"));
    for range in ranges {
        out.put_u64_le(range.first);
        out.put_u64_le(range.last);
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.put_u32_le(u32::try_from(bytes.len()).expect("a frame part is far below 4 GiB"));
    out.put_slice(bytes);
}

struct Reader(Bytes);

impl Reader {
    fn u64(&mut self) -> Result<u64, Malformed> {
        if self.0.remaining() < 8 { Err(Malformed) } else { Ok(self.0.get_u64_le()) }
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        if self.0.remaining() < 4 { Err(Malformed) } else { Ok(self.0.get_u32_le()) }
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u64()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    fn bytes(&mut self) -> Result<Bytes, Malformed> {
        let len = self.u32()? as usize;
        if self.0.remaining() < len { Err(Malformed) } else { Ok(self.0.split_to(len)) }
    }

    /// A count of parts, each of which takes at least `least` bytes: bounds the allocation.
    fn count(&mut self, least: usize) -> Result<usize, Malformed> {
        let count = self.u32()? as usize;
        if count.checked_mul(least).is_none_or(|bytes| bytes > self.0.remaining()) {
            return Err(Malformed);
        }
        Ok(count)
    }

    fn position(&mut self) -> Result<Option<Position>, Malformed> {
        let (known, index, term) = (self.flag()?, self.u64()?, self.u64()?);
        Ok(known.then_some(Position { index, term }))
    }

    fn standing(&mut self) -> Result<Frame, Malformed> {
        let (boot, question, term) = (self.u64()?, self.flag()?, self.u64()?);
        let last = Position { index: self.u64()?, term: self.u64()? };
        let leads = self.flag()?;
        let commit = Position { index: self.u64()?, term: self.u64()? };
        let (doubts, promise, vote, sure) = (self.flag()?, self.position()?, self.flag()?, self.flag()?);
        let doubt = doubts.then_some(Doubt { promise, vote, sure, torn: false });
        let (acknowledged, wrote) = (self.position()?, self.position()?);
        let standing = Standing { term, last, leads, doubt, commit, acknowledged, wrote };
        Ok(Frame::Standing { boot, question, standing })
    }

    fn forward(&mut self) -> Result<Frame, Malformed> {
        let (term, boot) = (self.u64()?, self.u64()?);
        let count = self.count(12)?;
        let mut commands = Vec::with_capacity(count);
        for _ in 0..count {
            let seq = self.u64()?;
            if seq > MOST {
                return Err(Malformed);
            }
            commands.push(Forwarded { seq, body: self.bytes()? });
        }
        Ok(Frame::Forward { term, boot, commands })
    }

    fn forward_refused(&mut self) -> Result<Frame, Malformed> {
        let boot = self.u64()?;
        if !self.0.has_remaining() {
            return Err(Malformed);
        }
        let why = match self.0.get_u8() {
            0 => Why::NotLeader,
            1 => Why::TooMany,
            2 => Why::NoCommand,
            _ => return Err(Malformed),
        };
        let count = self.count(8)?;
        let seqs = (0..count).map(|_| self.u64()).collect::<Result<_, _>>()?;
        Ok(Frame::ForwardRefused { boot, seqs, why })
    }

    fn ranges(&mut self) -> Result<Vec<SeqRange>, Malformed> {
        let count = self.count(16)?;
        let mut ranges = Vec::with_capacity(count);
        for _ in 0..count {
            let range = SeqRange { first: self.u64()?, last: self.u64()? };
            if range.first > range.last || range.last == u64::MAX {
                return Err(Malformed);
            }
            ranges.push(range);
        }
        Ok(ranges)
    }

    fn rev(&mut self) -> Result<Rev, Malformed> {
        Ok(Rev { main: self.u64()? as i64, sub: self.u64()? as i64 })
    }

    fn records(&mut self) -> Result<Frame, Malformed> {
        let (boot, token, ok, end) = (self.u64()?, self.u64()?, self.flag()?, self.flag()?);
        let compacted = self.u64()? as i64;
        let count = self.count(4)?;
        let records = (0..count).map(|_| self.bytes()).collect::<Result<_, _>>()?;
        Ok(Frame::Records { boot, token, ok, end, compacted, records })
    }

    fn chunk_request(&mut self) -> Result<Frame, Malformed> {
        let (boot, token, index, offset) = (self.u64()?, self.u64()?, self.u64()?, self.u64()?);
        let len = self.u32()?;
        let file = String::from_utf8(self.bytes()?.to_vec()).map_err(|_| Malformed)?;
        Ok(Frame::ChunkRequest { boot, token, index, file, offset, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Frame> {
        vec![
            Frame::Forward {
                term: 7,
                boot: 9,
                commands: vec![
                    Forwarded { seq: 1, body: Bytes::from_static(b"abc") },
                    Forwarded { seq: 2, body: Bytes::new() },
                ],
            },
            Frame::ForwardRefused { boot: 9, seqs: vec![1, 2], why: Why::TooMany },
            Frame::ForwardQuestion { term: 7, boot: 9, token: 3, seqs: vec![SeqRange { first: 4, last: 8 }] },
            Frame::ForwardMissing { boot: 9, token: 3, seqs: vec![SeqRange { first: 4, last: 4 }] },
            Frame::ReadIndex { boot: 1, token: 2 },
            Frame::ReadIndexReply { boot: 1, token: 2, index: 3 },
            Frame::KeepAlive { boot: 1, token: 2, lease: -3 },
            Frame::KeepAliveReply { boot: 1, token: 2, ok: true, ttl: 60 },
            Frame::TimeToLive { boot: 1, token: 2, lease: 4 },
            Frame::TimeToLiveReply { boot: 1, token: 2, ok: false, ttl: -1, index: 12 },
            Frame::ChunkRequest { boot: 1, token: 2, index: 3, file: "state/x".into(), offset: 4, len: 5 },
            Frame::Chunk { boot: 1, token: 2, ok: true, end: false, bytes: Bytes::from_static(b"piece") },
            Frame::TransferEnded { index: 8, ok: true },
            Frame::Standing {
                boot: 9,
                question: true,
                standing: Standing {
                    term: 4,
                    last: Position { index: 7, term: 3 },
                    leads: false,
                    doubt: Some(Doubt { promise: None, vote: true, sure: false, torn: false }),
                    commit: Position { index: 6, term: 3 },
                    acknowledged: Some(Position { index: 8, term: 4 }),
                    wrote: None,
                },
            },
            Frame::Standing {
                boot: 9,
                question: false,
                standing: Standing {
                    term: 4,
                    last: Position { index: 9, term: 4 },
                    leads: true,
                    doubt: Some(Doubt {
                        promise: Some(Position { index: 10, term: 4 }),
                        vote: false,
                        sure: true,
                        torn: false,
                    }),
                    commit: Position { index: 9, term: 4 },
                    acknowledged: None,
                    wrote: Some(Position { index: 9, term: 4 }),
                },
            },
            Frame::Digest { index: 4096, digest: (1u128 << 100) + 5 },
            Frame::Able { able: false },
            Frame::ChangeMember { term: 3, boot: 9, token: 4, change: Bytes::from_static(b"who") },
            Frame::MemberUnchanged { boot: 9, token: 4, why: Unchanged::LearnerNotReady },
        ]
    }

    /// A message of this kind without entries, as it lies on the wire.
    fn raft(kind: u8) -> Frame {
        let mut bytes = vec![1, kind, 0, 0];
        bytes.extend([0; 8 * 8 + 2 + 4]);
        bytes[4] = 1;
        bytes[12] = 2;
        Frame::Raft(Message::decode(bytes.into()).expect("well-formed"))
    }

    #[test]
    fn what_is_small_and_waited_for_never_stands_behind_what_is_large() {
        for frame in samples() {
            let wanted = match frame {
                Frame::Forward { .. } | Frame::ForwardQuestion { .. } => Lane::Forward,
                Frame::ChunkRequest { .. } | Frame::Chunk { .. } => Lane::Bulk,
                _ => Lane::Urgent,
            };
            assert_eq!(lane(&frame), wanted, "{frame:?}");
        }
        // An append, its answer, votes and heartbeats with their answers, TimeoutNow.
        assert_eq!(lane(&raft(1)), Lane::Log);
        for kind in [2, 3, 4, 5, 6, 7, 8, 10] {
            assert_eq!(lane(&raft(kind)), Lane::Urgent, "{kind}");
        }
    }

    #[test]
    fn every_frame_survives_the_wire() {
        for frame in samples() {
            let mut bytes = Vec::new();
            encode(&frame, &mut bytes);
            let back = decode(Bytes::from(bytes)).expect("decodes");
            assert_eq!(format!("{frame:?}"), format!("{back:?}"));
        }
    }

    #[test]
    fn every_truncation_and_every_extension_is_refused() {
        for frame in samples() {
            let mut bytes = Vec::new();
            encode(&frame, &mut bytes);
            for cut in 0..bytes.len() {
                assert!(decode(Bytes::copy_from_slice(&bytes[..cut])).is_err(), "{frame:?} cut at {cut}");
            }
            bytes.push(0);
            assert!(decode(Bytes::from(bytes)).is_err());
        }
    }

    #[test]
    fn a_count_that_lies_allocates_nothing() {
        let mut bytes = vec![FORWARD];
        bytes.extend_from_slice(&[0; 16]);
        bytes.extend_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(decode(Bytes::from(bytes)), Err(Malformed)));
    }
}
