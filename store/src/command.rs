//! What a log entry says: etcd's `InternalRaftRequest`, read without copying.
//!
//! An entry holds one command (etcd's field numbers) and kvorum's own additions, whose numbers
//! all stand on this page ([`field`]). Unknown fields *inside* a client's request are ignored, as
//! etcd does, and never reach the log: the builders splice a request only if it holds known fields
//! alone, each once, and else write again what was read.
//!
//! Only a [`Checked`] command can be proposed: its bytes were decoded whole. An unknown command or
//! an unknown private field is [`Malformed::later`]: this version cannot know what the entry means,
//! so the member must stop. An entry of bytes that no version writes is refused by all alike.

mod checked;

pub use checked::Checked;

pub use crate::check::{check_delete, check_put, check_range, check_txn};
pub use crate::protobuf::Malformed;
pub use crate::request::{Compare, DeleteRangeRequest, Operand, PutRequest, RangeRequest, RequestOp, TxnRequest};

use crate::auth::{Asker, AuthCommand};
use crate::protobuf::{Fields, Value, nested, write_bool, write_bytes, write_message, write_varint};
use crate::request::{int, int32, text, wrong};
use crate::{Error, Member};
use bytes::Bytes;

/// Field numbers of the envelope.
pub mod field {
    /// A put.
    pub const PUT: u32 = 4;
    /// The deletion of a range.
    pub const DELETE_RANGE: u32 = 5;
    /// A transaction.
    pub const TXN: u32 = 6;
    /// A compaction.
    pub const COMPACTION: u32 = 7;
    /// The grant of a lease.
    pub const LEASE_GRANT: u32 = 8;
    /// The revocation of a lease.
    pub const LEASE_REVOKE: u32 = 9;
    /// Alarms.
    pub const ALARM: u32 = 10;
    /// The time that leases have left.
    pub const LEASE_CHECKPOINT: u32 = 11;
    /// Who the client is: {ID=1, username=2, auth_revision=3}.
    pub const HEADER: u32 = 100;
    /// Users are asked for.
    pub const AUTH_ENABLE: u32 = 1000;
    /// They no more are.
    pub const AUTH_DISABLE: u32 = 1011;
    /// A user has logged in.
    pub const AUTHENTICATE: u32 = 1012;
    /// A new user.
    pub const AUTH_USER_ADD: u32 = 1100;
    /// A user goes.
    pub const AUTH_USER_DELETE: u32 = 1101;
    /// A user's new password.
    pub const AUTH_USER_CHANGE_PASSWORD: u32 = 1103;
    /// A user gets a role.
    pub const AUTH_USER_GRANT_ROLE: u32 = 1104;
    /// A user loses a role.
    pub const AUTH_USER_REVOKE_ROLE: u32 = 1105;
    /// A new role.
    pub const AUTH_ROLE_ADD: u32 = 1200;
    /// A role goes.
    pub const AUTH_ROLE_DELETE: u32 = 1201;
    /// A role gets a permission.
    pub const AUTH_ROLE_GRANT_PERMISSION: u32 = 1203;
    /// A role loses a permission.
    pub const AUTH_ROLE_REVOKE_PERMISSION: u32 = 1204;
    /// The version of the cluster.
    pub const CLUSTER_VERSION: u32 = 1300;
    /// What a member says of itself.
    pub const MEMBER_ATTR: u32 = 1301;
    /// Who asked: {member=1, boot=2, seq=3}.
    pub const ORIGIN: u32 = 20001;
    /// Leases that ran out: {term=1, repeated {lease=1, grant index=2}=2}.
    pub const EXPIRE: u32 = 20002;
    /// The leader's lease clock in milliseconds.
    pub const LEASE_CLOCK: u32 = 20003;
    /// 1: the member itself asks, no client. Not written while nobody has made a user.
    pub const OWN: u32 = 20004;
    /// Beside the version of the cluster: the name of its founding.
    pub const FOUNDING: u32 = 20005;
    /// The founding begins anew: {name=1}.
    pub const REFOUND: u32 = 20006;

    /// Whether etcd or kvorum may yet give this number to something: the gaps of etcd's commands,
    /// and our own from 20000 on. Numbers outside are nobody's.
    pub(super) fn may_be_added(number: u32) -> bool {
        matches!(number, 12..=999 | 1000..=1999 | 20000..)
    }
}

/// Names one request: the member that took it in, a nonce of that member's process, a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Id of the member that took it in.
    pub member: u64,
    /// Drawn anew by each process of that member.
    pub boot: u64,
    /// Counts the requests of that process.
    pub seq: u64,
}

/// An entry, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Who asked; None for what the cluster asks of itself.
    pub origin: Option<Origin>,
    /// Milliseconds, from the leader that proposed the entry.
    pub lease_clock: Option<u64>,
    /// Who asks.
    pub asker: Asker<'a>,
    /// What is to be done.
    pub command: Command<'a>,
}

/// What an entry asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// A new leader's first entry.
    Empty,
    /// Writes a key.
    Put(PutRequest<'a>),
    /// Deletes the keys of a range.
    DeleteRange(DeleteRangeRequest<'a>),
    /// A transaction.
    Txn(TxnRequest<'a>),
    /// Forgets what was superseded at or below a revision.
    Compaction {
        /// The oldest that can still be read afterwards.
        revision: i64,
        /// The asker waits until the space is swept.
        physical: bool,
    },
    /// `id` is chosen and `ttl` (seconds) raised to the minimum before the log.
    LeaseGrant {
        /// The lease's id, not 0.
        id: i64,
        /// Seconds.
        ttl: i64,
    },
    /// Ends a lease and deletes its keys.
    LeaseRevoke {
        /// The lease's id.
        id: i64,
    },
    /// (lease, remaining seconds)
    LeaseCheckpoint {
        /// One for each lease.
        leases: Vec<(i64, i64)>,
    },
    /// Lists, raises or ends alarms.
    Alarm {
        /// What is done with alarms.
        action: AlarmAction,
        /// Id of the member it is about; 0: of all, in a list.
        member: u64,
        /// Number of the alarm; 0: any, in a list.
        alarm: i32,
    },
    /// (lease, index of its grant); void unless the entry's raft term is `term`.
    Expire {
        /// Term of the leader that proposed it.
        term: u64,
        /// One for each lease.
        leases: Vec<(i64, u64)>,
    },
    /// What a member says of itself once it runs.
    MemberAttr {
        /// The member's id.
        member: u64,
        /// The member's name.
        name: &'a str,
        /// URLs at which clients reach it.
        client_urls: Vec<&'a str>,
    },
    /// Sets the version that all members speak.
    ClusterVersion {
        /// Such as `3.7.0`.
        version: &'a str,
        /// Names the founding, if nothing has named it before; 0: it is not spoken of.
        founding: u64,
    },
    /// The history goes on as a founding of its own: what the members of before it say from now on
    /// is of another history.
    Refound {
        /// Names the new founding, not 0.
        founding: u64,
    },
    /// Changes users and roles.
    Auth(AuthCommand<'a>),
}

/// What is done with alarms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlarmAction {
    /// Lists them.
    #[default]
    Get,
    /// Raises one.
    Activate,
    /// Ends them.
    Deactivate,
}

/// Reads an entry's data. Empty data is a new leader's first entry.
///
/// # Errors
/// The bytes are no entry, or one that a later version wrote.
pub fn decode(data: &[u8]) -> Result<Envelope<'_>, Malformed> {
    let mut envelope = Envelope { origin: None, lease_clock: None, asker: Asker::Nobody, command: Command::Empty };
    let mut commands = 0;
    let mut fields = Fields::new(data);
    while let Some((number, value)) = fields.next_field()? {
        match (number, value) {
            (field::ORIGIN, Value::Bytes(b)) => envelope.origin = Some(read_origin(b)?),
            (field::LEASE_CLOCK, Value::Varint(v)) => envelope.lease_clock = Some(v),
            (field::HEADER, Value::Bytes(b)) => envelope.asker = read_header(b)?,
            (field::OWN, Value::Varint(1)) => envelope.asker = Asker::Member,
            (_, Value::Bytes(b)) => {
                envelope.command = read_command(number, b)?;
                commands += 1;
            }
            (field::OWN, Value::Varint(_)) => {
                return Err(Malformed::later(format!("entry: unknown field {number}")));
            }
            _ => return Err(unknown("field", number)),
        }
    }
    if commands > 1 {
        return Err(Malformed::new(format!("entry: {commands} commands")));
    }
    Ok(envelope)
}

/// A field of an entry that this version does not know, or whose value has another type.
fn unknown(what: &str, number: u32) -> Malformed {
    let text = format!("entry: unknown {what} {number}");
    match field::may_be_added(number) && !is_known(number) {
        true => Malformed::later(text),
        false => Malformed::new(text),
    }
}

fn is_known(number: u32) -> bool {
    matches!(
        number,
        field::HEADER
            | field::AUTH_ENABLE
            | field::AUTH_DISABLE
            | field::AUTHENTICATE
            | field::AUTH_USER_ADD
            | field::AUTH_USER_DELETE
            | field::AUTH_USER_CHANGE_PASSWORD
            | field::AUTH_USER_GRANT_ROLE
            | field::AUTH_USER_REVOKE_ROLE
            | field::AUTH_ROLE_ADD
            | field::AUTH_ROLE_DELETE
            | field::AUTH_ROLE_GRANT_PERMISSION
            | field::AUTH_ROLE_REVOKE_PERMISSION
            | field::CLUSTER_VERSION
            | field::REFOUND
            | field::MEMBER_ATTR
            | field::ORIGIN
            | field::EXPIRE
            | field::LEASE_CLOCK
            | field::OWN
    )
}

/// Who asked for an entry that does not decode, as far as that can be told.
pub fn origin_of(data: &[u8]) -> Option<Origin> {
    let mut fields = Fields::new(data);
    while let Ok(Some((number, value))) = fields.next_field() {
        if let (field::ORIGIN, Value::Bytes(bytes)) = (number, value) {
            return read_origin(bytes).ok();
        }
    }
    None
}

fn read_command(number: u32, bytes: &[u8]) -> Result<Command<'_>, Malformed> {
    Ok(match number {
        field::PUT => Command::Put(PutRequest::decode(bytes)?),
        field::DELETE_RANGE => Command::DeleteRange(DeleteRangeRequest::decode(bytes)?),
        field::TXN => Command::Txn(TxnRequest::decode(bytes)?),
        field::COMPACTION => {
            let [revision, physical] = read_ints("CompactionRequest", bytes)?;
            Command::Compaction { revision: int(revision), physical: physical != 0 }
        }
        field::LEASE_GRANT => {
            let [ttl, id] = read_ints("LeaseGrantRequest", bytes)?;
            Command::LeaseGrant { id: int(id), ttl: int(ttl) }
        }
        field::LEASE_REVOKE => {
            let [id] = read_ints("LeaseRevokeRequest", bytes)?;
            Command::LeaseRevoke { id: int(id) }
        }
        field::LEASE_CHECKPOINT => read_checkpoint(bytes)?,
        field::ALARM => {
            let [action, member, alarm] = read_ints("AlarmRequest", bytes)?;
            let action = match int32(action) {
                0 => AlarmAction::Get,
                1 => AlarmAction::Activate,
                2 => AlarmAction::Deactivate,
                other => return Err(Malformed::later(format!("unknown alarm action {other}"))),
            };
            Command::Alarm { action, member, alarm: int32(alarm) }
        }
        field::EXPIRE => read_expire(bytes)?,
        field::MEMBER_ATTR => read_member_attr(bytes)?,
        field::CLUSTER_VERSION => read_cluster_version(bytes)?,
        field::REFOUND => {
            let [founding] = read_private("refound", bytes)?;
            Command::Refound { founding }
        }
        _ => match AuthCommand::decode(number, bytes)? {
            Some(command) => Command::Auth(command),
            None => return Err(unknown("command", number)),
        },
    })
}

fn read_header(bytes: &[u8]) -> Result<Asker<'_>, Malformed> {
    let (mut name, mut revision) = ("", 0);
    let mut fields = Fields::new(bytes);
    while let Some((number, value)) = fields.next_field()? {
        match (number, value) {
            (1, Value::Varint(_)) => {}
            (2, Value::Bytes(b)) => name = text(b)?,
            (3, Value::Varint(v)) => revision = v,
            _ => return wrong("RequestHeader", number),
        }
    }
    Ok(if name.is_empty() { Asker::Nobody } else { Asker::User { name, revision } })
}

/// The command with who asks. A command of nobody stays as it is.
pub fn signed(body: &Checked, asker: Asker<'_>) -> Checked {
    if asker == Asker::Nobody {
        return body.clone();
    }
    let mut out = Vec::with_capacity(body.len() + 64);
    out.extend_from_slice(body);
    match asker {
        Asker::Nobody => {}
        Asker::User { name, revision } => nested(&mut out, field::HEADER, |out| {
            write_bytes(out, 2, name.as_bytes());
            write_varint(out, 3, revision);
        }),
        Asker::Member => write_varint(&mut out, field::OWN, 1),
    }
    Checked::made(out)
}

/// Fields 1..=N of a message made of numbers alone; others are ignored.
fn read_ints<const N: usize>(message: &str, bytes: &[u8]) -> Result<[u64; N], Malformed> {
    let mut ints = [0; N];
    let mut fields = Fields::new(bytes);
    while let Some((number, value)) = fields.next_field()? {
        match (number as usize, value) {
            (n, Value::Varint(v)) if n <= N => ints[n - 1] = v,
            (n, _) if n <= N => return wrong(message, number),
            _ => {}
        }
    }
    Ok(ints)
}

fn read_origin(bytes: &[u8]) -> Result<Origin, Malformed> {
    let [member, boot, seq] = read_private("origin", bytes)?;
    Ok(Origin { member, boot, seq })
}

/// As [`read_ints`], for messages of ours: an unknown field must not be skipped.
fn read_private<const N: usize>(message: &str, bytes: &[u8]) -> Result<[u64; N], Malformed> {
    let mut ints = [0; N];
    let mut fields = Fields::new(bytes);
    while let Some((number, value)) = fields.next_field()? {
        match (number as usize, value) {
            (n, Value::Varint(v)) if n <= N => ints[n - 1] = v,
            (n, _) if n <= N => return wrong(message, number),
            _ => return Err(Malformed::later(format!("{message}: unknown field {number}"))),
        }
    }
    Ok(ints)
}

fn read_checkpoint(bytes: &[u8]) -> Result<Command<'_>, Malformed> {
    let mut leases = Vec::new();
    let mut fields = Fields::new(bytes);
    while let Some((number, value)) = fields.next_field()? {
        match (number, value) {
            (1, Value::Bytes(b)) => {
                let [id, remaining] = read_ints("LeaseCheckpoint", b)?;
                leases.push((int(id), int(remaining)));
            }
            (1, _) => return wrong("LeaseCheckpointRequest", number),
            _ => {}
        }
    }
    Ok(Command::LeaseCheckpoint { leases })
}

fn read_expire(bytes: &[u8]) -> Result<Command<'_>, Malformed> {
    let (mut term, mut leases) = (0, Vec::new());
    let mut fields = Fields::new(bytes);
    while let Some((number, value)) = fields.next_field()? {
        match (number, value) {
            (1, Value::Varint(v)) => term = v,
            (2, Value::Bytes(b)) => {
                let [lease, granted] = read_private("expired lease", b)?;
                leases.push((int(lease), granted));
            }
            (1 | 2, _) => return wrong("expire", number),
            _ => return Err(Malformed::later(format!("expire: unknown field {number}"))),
        }
    }
    Ok(Command::Expire { term, leases })
}

fn read_member_attr(bytes: &[u8]) -> Result<Command<'_>, Malformed> {
    let (mut member, mut name, mut client_urls) = (0, "", Vec::new());
    let mut fields = Fields::new(bytes);
    while let Some((number, value)) = fields.next_field()? {
        match (number, value) {
            (1, Value::Varint(v)) => member = v,
            (2, Value::Bytes(b)) => {
                let mut attributes = Fields::new(b);
                while let Some(attribute) = attributes.next_field()? {
                    match attribute {
                        (1, Value::Bytes(b)) => name = text(b)?,
                        (2, Value::Bytes(b)) => client_urls.push(text(b)?),
                        (1 | 2, _) => return wrong("Attributes", attribute.0),
                        _ => {}
                    }
                }
            }
            (1 | 2, _) => return wrong("ClusterMemberAttrSetRequest", number),
            _ => {}
        }
    }
    Ok(Command::MemberAttr { member, name, client_urls })
}

fn read_cluster_version(bytes: &[u8]) -> Result<Command<'_>, Malformed> {
    let (mut version, mut founding) = ("", 0);
    let mut fields = Fields::new(bytes);
    while let Some((number, value)) = fields.next_field()? {
        match (number, value) {
            (1, Value::Bytes(b)) => version = text(b)?,
            (field::FOUNDING, Value::Varint(v)) => founding = v,
            (1 | field::FOUNDING, _) => return wrong("ClusterVersionSetRequest", number),
            _ => {}
        }
    }
    Ok(Command::ClusterVersion { version, founding })
}

/// `message`: of a request that was read whole, or that this version writes.
fn body(number: u32, message: &[u8]) -> Checked {
    let mut out = Vec::with_capacity(message.len() + 16);
    write_message(&mut out, number, message);
    Checked::made(out)
}

fn body_of(number: u32, encode: impl FnOnce(&mut Vec<u8>)) -> Checked {
    let mut out = Vec::new();
    encode(&mut out);
    body(number, &out)
}

/// A client's write: read once, checked, and made the body of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Body of the entry; the asker is not in it yet.
    pub body: Checked,
    /// What it takes of the quota, in bytes; 0 = nothing.
    pub cost: u64,
}

/// As [`Write`], for a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnWrite {
    /// Its body and its cost.
    pub write: Write,
    /// It holds ranges alone: it needs no entry.
    pub read_only: bool,
    /// Of a read-only one: all its ranges are serialisable.
    pub serializable: bool,
}

/// Why a client's write goes no further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// The bytes are not that request.
    Malformed(Malformed),
    /// etcd refuses the request.
    Wrong(Error),
}

impl From<Malformed> for Rejected {
    fn from(malformed: Malformed) -> Rejected {
        Rejected::Malformed(malformed)
    }
}

impl From<Error> for Rejected {
    fn from(error: Error) -> Rejected {
        Rejected::Wrong(error)
    }
}

/// A write of the bytes of a `PutRequest` as they came from the client.
///
/// # Errors
/// The bytes are no `PutRequest`, or one that etcd refuses.
pub fn put(request: &[u8]) -> Result<Write, Rejected> {
    let read = PutRequest::read(request)?;
    check_put(&read.0)?;
    Ok(Write { cost: put_cost(&read.0), body: put_body(request, read) })
}

/// As [`put`], for a `DeleteRangeRequest`.
///
/// # Errors
/// As [`put`].
pub fn delete_range(request: &[u8]) -> Result<Write, Rejected> {
    let read = DeleteRangeRequest::read(request)?;
    check_delete(&read.0)?;
    Ok(Write { cost: 0, body: delete_range_body(request, read) })
}

/// As [`put`], for a `TxnRequest`. `max_ops`: operations that the member allows in one transaction.
///
/// # Errors
/// As [`put`].
pub fn txn(request: &[u8], max_ops: i64) -> Result<TxnWrite, Rejected> {
    let read = TxnRequest::read(request, 0)?;
    let txn = &read.0;
    check_txn(txn, max_ops)?;
    let (cost, read_only, serializable) = (txn_cost(txn), txn.is_read_only(), txn.is_serializable());
    Ok(TxnWrite { write: Write { cost, body: txn_body(request, read) }, read_only, serializable })
}

/// Body of an entry for the bytes of a `PutRequest`, unchecked.
///
/// # Errors
/// The bytes are no `PutRequest`.
pub fn encode_put(request: &[u8]) -> Result<Checked, Malformed> {
    Ok(put_body(request, PutRequest::read(request)?))
}

/// Body of an entry for the bytes of a `DeleteRangeRequest`, unchecked.
///
/// # Errors
/// The bytes are no `DeleteRangeRequest`.
pub fn encode_delete_range(request: &[u8]) -> Result<Checked, Malformed> {
    Ok(delete_range_body(request, DeleteRangeRequest::read(request)?))
}

/// Body of an entry for the bytes of a `TxnRequest`, unchecked.
///
/// # Errors
/// The bytes are no `TxnRequest`.
pub fn encode_txn(request: &[u8]) -> Result<Checked, Malformed> {
    Ok(txn_body(request, TxnRequest::read(request, 0)?))
}

/// `read`: the request, and whether its bytes can go into the log as they are.
fn put_body(request: &[u8], read: (PutRequest<'_>, bool)) -> Checked {
    let (put, plain) = read;
    if plain { body(field::PUT, request) } else { body_of(field::PUT, |out| put.encode(out)) }
}

fn delete_range_body(request: &[u8], read: (DeleteRangeRequest<'_>, bool)) -> Checked {
    let (delete, plain) = read;
    let number = field::DELETE_RANGE;
    if plain { body(number, request) } else { body_of(number, |out| delete.encode(out)) }
}

fn txn_body(request: &[u8], read: (TxnRequest<'_>, bool)) -> Checked {
    let (txn, plain) = read;
    if plain { body(field::TXN, request) } else { body_of(field::TXN, |out| txn.encode(out)) }
}

/// Body of an entry that compacts; the fields are those of [`Command::Compaction`].
pub fn encode_compaction(revision: i64, physical: bool) -> Checked {
    body_of(field::COMPACTION, |out| {
        write_varint(out, 1, revision as u64);
        write_bool(out, 2, physical);
    })
}

/// `min_ttl` (seconds) is the proposing member's minimum: apply must not depend on a flag,
/// so the time is raised here. An `id` of 0 must have been replaced by a chosen one.
pub fn encode_lease_grant(id: i64, ttl: i64, min_ttl: i64) -> Checked {
    body_of(field::LEASE_GRANT, |out| {
        write_varint(out, 1, ttl.max(min_ttl) as u64);
        write_varint(out, 2, id as u64);
    })
}

/// Body of an entry that ends a lease.
pub fn encode_lease_revoke(id: i64) -> Checked {
    body_of(field::LEASE_REVOKE, |out| write_varint(out, 1, id as u64))
}

/// (lease, remaining seconds)
pub fn encode_lease_checkpoint(leases: &[(i64, i64)]) -> Checked {
    body_of(field::LEASE_CHECKPOINT, |out| {
        for (id, remaining) in leases {
            nested(out, 1, |out| {
                write_varint(out, 1, *id as u64);
                write_varint(out, 2, *remaining as u64);
            });
        }
    })
}

/// Body of an entry about alarms; the fields are those of [`Command::Alarm`].
pub fn encode_alarm(action: AlarmAction, member: u64, alarm: i32) -> Checked {
    let action = match action {
        AlarmAction::Get => 0,
        AlarmAction::Activate => 1,
        AlarmAction::Deactivate => 2,
    };
    body_of(field::ALARM, |out| {
        write_varint(out, 1, action);
        write_varint(out, 2, member);
        write_varint(out, 3, i64::from(alarm) as u64);
    })
}

/// `term`: the raft term of the leader that proposes. `leases`: (lease, index of its grant).
pub fn encode_expire(term: u64, leases: &[(i64, u64)]) -> Checked {
    body_of(field::EXPIRE, |out| {
        write_varint(out, 1, term);
        for (lease, granted) in leases {
            nested(out, 2, |out| {
                write_varint(out, 1, *lease as u64);
                write_varint(out, 2, *granted);
            });
        }
    })
}

/// Body of an entry that says what a member says of itself.
pub fn encode_member_attr(member: u64, name: &str, client_urls: &[String]) -> Checked {
    body_of(field::MEMBER_ATTR, |out| {
        write_varint(out, 1, member);
        nested(out, 2, |out| {
            write_bytes(out, 1, name.as_bytes());
            for url in client_urls {
                write_message(out, 2, url.as_bytes());
            }
        });
    })
}

/// Body of an entry that sets the version of the cluster, such as `3.7.0`, and names its founding
/// (0: it does not).
pub fn encode_cluster_version(version: &str, founding: u64) -> Checked {
    body_of(field::CLUSTER_VERSION, |out| {
        write_bytes(out, 1, version.as_bytes());
        write_varint(out, field::FOUNDING, founding);
    })
}

/// Field number of the command that an entry begins with; None: it begins with none.
pub fn first_field(body: &[u8]) -> Option<u32> {
    Fields::new(body).next_field().ok().flatten().map(|(number, _)| number)
}

/// Body of an entry with which the history goes on as a founding of its own.
pub fn encode_refound(founding: u64) -> Checked {
    body_of(field::REFOUND, |out| write_varint(out, 1, founding))
}

/// True for bodies whose command needs the lease clock: grant, checkpoint, expire.
pub fn wants_clock(body: &[u8]) -> bool {
    let first = Fields::new(body).next_field();
    matches!(first, Ok(Some((field::LEASE_GRANT | field::LEASE_CHECKPOINT | field::EXPIRE, _))))
}

/// True for what must pass when others are told "too many requests": it makes room or keeps
/// promises already given, and is small.
pub fn is_reserved(body: &[u8]) -> bool {
    let first = Fields::new(body).next_field();
    matches!(
        first,
        Ok(Some((field::LEASE_REVOKE | field::LEASE_CHECKPOINT | field::EXPIRE | field::ALARM | field::COMPACTION, _)))
    )
}

/// A body becomes an entry: who asked, and the leader's lease clock (ms) where [`wants_clock`].
pub fn seal(body: &Checked, origin: Origin, lease_clock: Option<u64>) -> Bytes {
    let mut out = Vec::with_capacity(body.len() + 48);
    out.extend_from_slice(body);
    nested(&mut out, field::ORIGIN, |out| {
        write_varint(out, 1, origin.member);
        write_varint(out, 2, origin.boot);
        write_varint(out, 3, origin.seq);
    });
    write_varint(&mut out, field::LEASE_CLOCK, lease_clock.unwrap_or(0));
    Bytes::from(out)
}

/// Quota cost of a put in bytes.
pub fn put_cost(put: &PutRequest<'_>) -> u64 {
    256 + put.key.len() as u64 + put.value.len() as u64
}

/// Quota cost of a transaction: the dearer branch, nested transactions included. 0 = holds no put.
pub fn txn_cost(txn: &TxnRequest<'_>) -> u64 {
    fn branch(ops: &[RequestOp<'_>]) -> u64 {
        let cost = |op: &RequestOp<'_>| match op {
            RequestOp::Put(put) => put_cost(put),
            RequestOp::Txn(txn) => txn_cost(txn),
            RequestOp::Range(_) | RequestOp::DeleteRange(_) | RequestOp::None => 0,
        };
        ops.iter().map(cost).sum()
    }
    branch(&txn.success).max(branch(&txn.failure))
}

/// Quota cost of a lease grant in bytes.
pub const LEASE_GRANT_COST: u64 = 64;

/// Context of a configuration entry: the member concerned, what happens to it, who asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberChange {
    /// Who asked.
    pub origin: Option<Origin>,
    /// What happens to the member.
    pub kind: MemberChangeKind,
    /// For `Remove` and `Promote` only the id counts.
    pub member: Member,
}

/// What happens to a member. The numbers stand in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberChangeKind {
    /// It joins with a vote.
    AddVoter = 1,
    /// It joins without a vote.
    AddLearner = 2,
    /// A learner gets a vote.
    Promote = 3,
    /// Replaces the peer URLs.
    Update = 4,
    /// It leaves.
    Remove = 5,
}

impl MemberChange {
    /// Bytes for the context of a configuration entry.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        write_varint(&mut out, 1, self.kind as u64);
        nested(&mut out, 2, |out| encode_member(&self.member, out));
        if let Some(origin) = self.origin {
            nested(&mut out, 3, |out| {
                write_varint(out, 1, origin.member);
                write_varint(out, 2, origin.boot);
                write_varint(out, 3, origin.seq);
            });
        }
        Bytes::from(out)
    }

    /// Reads what [`MemberChange::encode`] wrote.
    ///
    /// # Errors
    /// The bytes are no member change, or one that a later version wrote.
    pub fn decode(bytes: &[u8]) -> Result<MemberChange, Malformed> {
        let (mut kind, mut member, mut origin) = (None, None, None);
        let mut fields = Fields::new(bytes);
        while let Some((number, value)) = fields.next_field()? {
            match (number, value) {
                (1, Value::Varint(v)) => kind = Some(read_change_kind(v)?),
                (2, Value::Bytes(b)) => member = Some(decode_member(b)?),
                (3, Value::Bytes(b)) => origin = Some(read_origin(b)?),
                _ => {
                    return Err(Malformed::later(format!("member change: unknown field {number}")));
                }
            }
        }
        let kind = kind.ok_or_else(|| Malformed::new("member change without kind"))?;
        let member = member.ok_or_else(|| Malformed::new("member change without member"))?;
        Ok(MemberChange { origin, kind, member })
    }
}

fn read_change_kind(kind: u64) -> Result<MemberChangeKind, Malformed> {
    Ok(match kind {
        1 => MemberChangeKind::AddVoter,
        2 => MemberChangeKind::AddLearner,
        3 => MemberChangeKind::Promote,
        4 => MemberChangeKind::Update,
        5 => MemberChangeKind::Remove,
        _ => return Err(Malformed::later(format!("unknown member change {kind}"))),
    })
}

/// {id=1, name=2, peer_urls=3, client_urls=4}, as `etcdserverpb.Member`.
pub(crate) fn encode_member(member: &Member, out: &mut Vec<u8>) {
    write_varint(out, 1, member.id);
    write_bytes(out, 2, member.name.as_bytes());
    for url in &member.peer_urls {
        write_message(out, 3, url.as_bytes());
    }
    for url in &member.client_urls {
        write_message(out, 4, url.as_bytes());
    }
}

pub(crate) fn decode_member(bytes: &[u8]) -> Result<Member, Malformed> {
    let mut member = Member::default();
    let mut fields = Fields::new(bytes);
    while let Some((number, value)) = fields.next_field()? {
        match (number, value) {
            (1, Value::Varint(v)) => member.id = v,
            (2, Value::Bytes(b)) => member.name = text(b)?.to_owned(),
            (3, Value::Bytes(b)) => member.peer_urls.push(text(b)?.to_owned()),
            (4, Value::Bytes(b)) => member.client_urls.push(text(b)?.to_owned()),
            _ => return Err(Malformed::later(format!("member: unknown field {number}"))),
        }
    }
    Ok(member)
}

#[cfg(test)]
mod tests;
