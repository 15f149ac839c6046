//! The tables of an image that grow with the state, apart from its head: leases, members, removed
//! ids, alarms, users, roles. A head goes through the network in one piece; these are written in
//! bounded blocks to a file of their own.
//!
//! A block is whole rows, each a field of the head's message: 2 a lease, 3 a member, 6 a removed
//! id, 7 an alarm, 12 a user, 13 a role. The head says how many of each there are, so a block that
//! is left out is noticed.

use crate::auth::{Role, User, decode_role, decode_user, encode_role, encode_user};
use crate::command::{decode_member, encode_member};
use crate::image::{ImageHead, LeaseHead, Loader, numbers, read_numbers};
use crate::lease::Lease;
use crate::protobuf::{Fields, Malformed, Value, nested};
use crate::record::Damage;
use crate::state::Store;
use crate::types::AlarmMember;
use std::collections::BTreeSet;

/// A block is closed at this many bytes. One row more may stand in it.
pub const TABLE_BLOCK: usize = 64 << 10;

/// Rows of each table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounts {
    /// Leases.
    pub leases: u64,
    /// Members.
    pub members: u64,
    /// Members that have left.
    pub removed: u64,
    /// Alarms that are raised.
    pub alarms: u64,
    /// Users.
    pub users: u64,
    /// Roles.
    pub roles: u64,
}

impl TableCounts {
    pub(crate) fn values(self) -> [u64; 6] {
        [self.leases, self.members, self.removed, self.alarms, self.users, self.roles]
    }

    pub(crate) fn of([leases, members, removed, alarms, users, roles]: [u64; 6]) -> TableCounts {
        TableCounts { leases, members, removed, alarms, users, roles }
    }
}

impl ImageHead {
    pub(crate) fn table_counts(&self) -> TableCounts {
        let (users, roles) = (self.users.len(), self.roles.len());
        let lens = [self.leases.len(), self.members.len(), self.removed.len(), self.alarms.len(), users, roles];
        TableCounts::of(lens.map(|n| n as u64))
    }

    /// Bytes of the tables when they are encoded, at most.
    pub fn tables_bytes(&self) -> usize {
        let members: usize = self.members.iter().map(member_bytes).sum();
        let users: usize = self.users.iter().map(user_bytes).sum();
        let roles: usize = self.roles.iter().map(role_bytes).sum();
        self.leases.len() * 48 + self.removed.len() * 16 + self.alarms.len() * 32 + members + users + roles
    }

    /// Hands the tables to `emit`, block by block. Needs room for one block alone.
    ///
    /// # Errors
    /// The first error of `emit`.
    pub fn table_blocks<E>(&self, mut emit: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut block = Vec::new();
        let mut flush = |block: &mut Vec<u8>, least: usize| {
            if block.len() >= least && !block.is_empty() {
                emit(block)?;
                block.clear();
            }
            Ok(())
        };
        for lease in &self.leases {
            put_lease(&mut block, lease);
            flush(&mut block, TABLE_BLOCK)?;
        }
        for member in &self.members {
            nested(&mut block, 3, |out| encode_member(member, out));
            flush(&mut block, TABLE_BLOCK)?;
        }
        for removed in &self.removed {
            numbers(&mut block, 6, &[*removed]);
            flush(&mut block, TABLE_BLOCK)?;
        }
        for alarm in &self.alarms {
            put_alarm(&mut block, alarm);
            flush(&mut block, TABLE_BLOCK)?;
        }
        for user in &self.users {
            nested(&mut block, 12, |out| encode_user(user, out));
            flush(&mut block, TABLE_BLOCK)?;
        }
        for role in &self.roles {
            nested(&mut block, 13, |out| encode_role(role, out));
            flush(&mut block, TABLE_BLOCK)?;
        }
        flush(&mut block, 0)
    }
}

fn member_bytes(member: &crate::Member) -> usize {
    let urls = member.peer_urls.iter().chain(&member.client_urls);
    64 + member.name.len() + urls.map(|url| url.len() + 8).sum::<usize>()
}

fn user_bytes(user: &User) -> usize {
    64 + user.name.len() + user.password.len() + user.roles.iter().map(|role| role.len() + 8).sum::<usize>()
}

fn role_bytes(role: &Role) -> usize {
    let permissions = role.permissions.iter().map(|held| held.key.len() + held.range_end.len() + 32);
    64 + role.name.len() + permissions.sum::<usize>()
}

pub(crate) fn put_lease(out: &mut Vec<u8>, lease: &LeaseHead) {
    numbers(out, 2, &[lease.id as u64, lease.ttl as u64, lease.granted, lease.deadline]);
}

pub(crate) fn read_lease(bytes: &[u8]) -> Result<LeaseHead, Malformed> {
    let [id, ttl, granted, deadline] = read_numbers(bytes)?;
    Ok(LeaseHead { id: id as i64, ttl: ttl as i64, granted, deadline })
}

pub(crate) fn put_alarm(out: &mut Vec<u8>, alarm: &AlarmMember) {
    numbers(out, 7, &[alarm.member, i64::from(alarm.alarm) as u64]);
}

pub(crate) fn read_alarm(bytes: &[u8]) -> Result<AlarmMember, Malformed> {
    let [member, alarm] = read_numbers(bytes)?;
    Ok(AlarmMember { member, alarm: alarm as i32 })
}

/// False if there is one with its id already, or it has none.
pub(crate) fn load_lease(store: &mut Store, lease: LeaseHead) -> bool {
    if lease.id == 0 || store.leases.get(lease.id).is_some() {
        return false;
    }
    let LeaseHead { id, ttl, granted, deadline } = lease;
    store.leases.insert(id, Lease { ttl, granted, deadline, keys: BTreeSet::new() });
    true
}

impl Loader {
    /// Takes the next block of the tables. All of them come before the rows.
    ///
    /// # Errors
    /// What is no block of rows, and a row that comes twice.
    pub fn table(&mut self, block: &[u8]) -> Result<(), Damage> {
        let mut fields = Fields::new(block);
        while let Some((number, value)) = fields.next_field()? {
            let Value::Bytes(bytes) = value else {
                return Err(Damage::new(0, format!("tables: unknown row {number}")));
            };
            if !load_row(&mut self.store, number, bytes)? {
                return Err(Damage::new(0, "tables: a row twice or without id"));
            }
        }
        Ok(())
    }

    /// The head said how many rows there are.
    pub(crate) fn check_tables(&self, expected: TableCounts) -> Result<(), Damage> {
        let store = &self.store;
        let (users, roles) = (store.auth.users().count(), store.auth.roles().count());
        let lens = [store.leases.len(), store.members.len(), store.removed.len(), store.alarms.len(), users, roles];
        let found = TableCounts::of(lens.map(|n| n as u64));
        if found == expected {
            return Ok(());
        }
        Err(Damage::new(0, format!("tables: {found:?} where the head says {expected:?}")))
    }
}

fn load_row(store: &mut Store, number: u32, bytes: &[u8]) -> Result<bool, Malformed> {
    Ok(match number {
        2 => load_lease(store, read_lease(bytes)?),
        3 => {
            let member = decode_member(bytes)?;
            store.members.insert(member.id, member).is_none()
        }
        6 => store.removed.insert(read_numbers::<1>(bytes)?[0]),
        7 => store.alarms.insert(read_alarm(bytes)?),
        12 => store.auth.load_user(decode_user(bytes)?),
        13 => store.auth.load_role(decode_role(bytes)?),
        _ => return Err(Malformed::new(format!("tables: unknown row {number}"))),
    })
}
