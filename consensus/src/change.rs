//! Membership changes: their bytes in the log, and what they do to who votes.
//!
//! The bytes are those of etcd's `raftpb.ConfChange` (1 id, 2 type, 3 node, 4 context, proto3), so
//! an exported log reads the same.

use crate::{ConfChange, ConfChangeKind, ConfState};
use bytes::Bytes;
use std::fmt;

const TAG_ID: u8 = 1 << 3;
const TAG_KIND: u8 = 2 << 3;
const TAG_MEMBER: u8 = 3 << 3;
const TAG_CONTEXT: u8 = 4 << 3 | 2;

/// A config entry whose data is no membership change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadChange {
    /// For a person.
    pub what: &'static str,
    /// A later version may know what it says: skipping it would let members diverge. What no
    /// version writes is passed over by all alike.
    pub later: bool,
}

fn bad(what: &'static str) -> BadChange {
    BadChange { what, later: false }
}

fn later(what: &'static str) -> BadChange {
    BadChange { what, later: true }
}

impl fmt::Display for BadChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "config entry: {}", self.what)
    }
}

impl std::error::Error for BadChange {}

impl ConfChange {
    /// The data of the config entry.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.context.len() + 32);
        if self.kind != ConfChangeKind::AddVoter {
            out.extend([TAG_KIND, self.kind as u8]);
        }
        if self.member != 0 {
            out.push(TAG_MEMBER);
            put_varint(self.member, &mut out);
        }
        if !self.context.is_empty() {
            out.push(TAG_CONTEXT);
            put_varint(self.context.len() as u64, &mut out);
            out.extend_from_slice(&self.context);
        }
        out.into()
    }

    /// The inverse of [`ConfChange::encode`]; `context` is a slice of `data`.
    pub fn decode(data: &Bytes) -> Result<ConfChange, BadChange> {
        let mut change = ConfChange { kind: ConfChangeKind::AddVoter, member: 0, context: Bytes::new() };
        let mut at = 0;
        while at < data.len() {
            let tag = data[at];
            at += 1;
            if ![TAG_ID, TAG_KIND, TAG_MEMBER, TAG_CONTEXT].contains(&tag) {
                return Err(later("unknown field"));
            }
            let value = get_varint(data, &mut at)?;
            match tag {
                TAG_ID => {}
                TAG_KIND => change.kind = kind_of(value)?,
                TAG_MEMBER => change.member = value,
                TAG_CONTEXT => {
                    let left = (data.len() - at) as u64;
                    if value > left {
                        return Err(bad("context cut short"));
                    }
                    let end = at + value as usize;
                    change.context = data.slice(at..end);
                    at = end;
                }
                _ => unreachable!("looked at above"),
            }
        }
        if change.member == 0 {
            return Err(bad("no member"));
        }
        Ok(change)
    }
}

impl ConfState {
    /// What the configuration becomes; `None` if the change is no legal single step: demoting a
    /// voter, or removing the last one.
    pub fn after(&self, change: &ConfChange) -> Option<ConfState> {
        let mut conf = self.clone();
        let id = change.member;
        match change.kind {
            ConfChangeKind::AddVoter => {
                conf.learners.retain(|learner| *learner != id);
                insert(&mut conf.voters, id);
            }
            ConfChangeKind::AddLearner if conf.voters.contains(&id) => return None,
            ConfChangeKind::AddLearner => insert(&mut conf.learners, id),
            ConfChangeKind::Remove => {
                conf.voters.retain(|voter| *voter != id);
                conf.learners.retain(|learner| *learner != id);
            }
            ConfChangeKind::Update => {}
        }
        (id != 0 && !conf.voters.is_empty()).then_some(conf)
    }

    pub fn contains(&self, id: u64) -> bool {
        self.voters.contains(&id) || self.learners.contains(&id)
    }
}

fn insert(ids: &mut Vec<u64>, id: u64) {
    if let Err(place) = ids.binary_search(&id) {
        ids.insert(place, id);
    }
}

fn kind_of(number: u64) -> Result<ConfChangeKind, BadChange> {
    match number {
        0 => Ok(ConfChangeKind::AddVoter),
        1 => Ok(ConfChangeKind::Remove),
        2 => Ok(ConfChangeKind::Update),
        3 => Ok(ConfChangeKind::AddLearner),
        _ => Err(later("unknown kind of change")),
    }
}

fn put_varint(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn get_varint(data: &[u8], at: &mut usize) -> Result<u64, BadChange> {
    let mut n = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *data.get(*at).ok_or(bad("cut short"))?;
        *at += 1;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            return Err(bad("number too long"));
        }
        n |= bits << shift;
        if byte < 0x80 {
            return Ok(n);
        }
    }
    Err(bad("number too long"))
}
