//! Users, roles and permissions: what a client must be to have a request carried out.
//!
//! [`Auth`] is part of the replicated state; commands change it (`change`). `need` says what a
//! request needs, and [`crate::Store::permit`] whether the one who asks has it. Whoever is not
//! named there gets nothing.

mod change;
mod need;
mod perms;
mod wire;

pub use change::AuthChange;
pub use need::{Need, needs_of};
pub use perms::Intervals;
pub use wire::{AuthCommand, encode_permission};
pub(crate) use wire::{decode_role, decode_user, encode_role, encode_user};

use crate::{Error, Key, KeyRange};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;

/// The user that must exist before users are asked for, and the role that may do everything.
pub const ROOT: &str = "root";

/// Permits reading. Other numbers than these three are kept as given, and permit nothing, as in
/// etcd.
pub const READ: i32 = 0;
/// Permits writing.
pub const WRITE: i32 = 1;
/// Permits both.
pub const READ_WRITE: i32 = 2;

/// Who asks for what an entry does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asker<'a> {
    /// A client that did not say who it is.
    #[default]
    Nobody,
    /// `revision`: of the users and roles, when the member that took the request in looked the user
    /// up.
    User {
        /// Its name.
        name: &'a str,
        /// See above.
        revision: u64,
    },
    /// The member itself.
    Member,
}

/// A user. Its hash is not shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct User {
    /// What it is called.
    pub name: String,
    /// As bcrypt writes it; empty without a password.
    pub password: Vec<u8>,
    /// The user cannot log in; a certificate names it.
    pub no_password: bool,
    /// Ascending.
    pub roles: Vec<String>,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let User { name, password: _, no_password, roles } = self;
        write!(f, "User {{ name: {name:?}, no_password: {no_password}, roles: {roles:?} }}")
    }
}

impl User {
    /// True if it holds the role.
    pub fn has(&self, role: &str) -> bool {
        self.roles.iter().any(|held| held == role)
    }
}

/// What a role permits on a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permission {
    /// [`READ`], [`WRITE`] or [`READ_WRITE`].
    pub kind: i32,
    /// The first key.
    pub key: Bytes,
    /// As in a request: empty = the single key, `\0` = every key from `key` on.
    pub range_end: Bytes,
}

impl Permission {
    fn range(&self) -> KeyRange {
        KeyRange::new(&self.key, &self.range_end)
    }
}

/// Permissions under a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Role {
    /// What it is called.
    pub name: String,
    /// Ascending by key.
    pub permissions: Vec<Permission>,
}

/// Whether users are asked for, and everything that is known of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    enabled: bool,
    revision: u64,
    users: BTreeMap<String, User>,
    roles: BTreeMap<String, Role>,
    /// Of each user, what its roles add up to: follows from the others.
    merged: BTreeMap<String, Merged>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Merged {
    read: Intervals,
    write: Intervals,
}

impl Default for Auth {
    fn default() -> Auth {
        Auth { enabled: false, revision: 1, users: BTreeMap::new(), roles: BTreeMap::new(), merged: BTreeMap::new() }
    }
}

impl Auth {
    /// Users are asked for.
    pub fn enabled(&self) -> bool {
        self.enabled
    }

    /// Grows with every change of users and roles; 1 in a fresh cluster.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Nobody has ever made a user or a role.
    pub fn untouched(&self) -> bool {
        !self.enabled && self.revision <= 1 && self.users.is_empty() && self.roles.is_empty()
    }

    /// A user by name.
    pub fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name)
    }

    /// By name, ascending.
    pub fn users(&self) -> impl Iterator<Item = &User> {
        self.users.values()
    }

    /// A role by name.
    pub fn role(&self, name: &str) -> Option<&Role> {
        self.roles.get(name)
    }

    /// By name, ascending.
    pub fn roles(&self) -> impl Iterator<Item = &Role> {
        self.roles.values()
    }

    /// The permissions of a role, as a client is told them: those of `root` are everything.
    pub fn shown(&self, name: &str) -> Option<Vec<Permission>> {
        let role = self.roles.get(name)?;
        if name == ROOT {
            return Some(vec![Permission {
                kind: READ_WRITE,
                key: Bytes::new(),
                range_end: Bytes::from_static(b"\0"),
            }]);
        }
        Some(role.permissions.clone())
    }

    fn admin(&self, name: &str) -> Result<(), Error> {
        let user = self.users.get(name).ok_or(Error::UserNotFound)?;
        if user.has(ROOT) { Ok(()) } else { Err(Error::PermissionDenied) }
    }

    fn keys(&self, name: &str, revision: u64, range: &KeyRange, write: bool) -> Result<(), Error> {
        match self.permitted(name, revision, write)? {
            Some(intervals) if !intervals.cover(range) => Err(Error::PermissionDenied),
            _ => Ok(()),
        }
    }

    /// Every key of the set. What lies in one interval is looked at once: there may be very many.
    fn each_of(&self, name: &str, revision: u64, keys: &BTreeSet<Key>, write: bool) -> Result<(), Error> {
        let Some(first) = keys.first() else { return Ok(()) };
        let Some(intervals) = self.permitted(name, revision, write)? else { return Ok(()) };
        let mut next = Some(first);
        while let Some(key) = next {
            let end = intervals.end_behind(key).ok_or(Error::PermissionDenied)?;
            next = end.and_then(|end| keys.range::<[u8], _>((Bound::Included(&end[..]), Bound::Unbounded)).next());
        }
        Ok(())
    }

    /// The keys that the user may read or write; None: all of them.
    fn permitted(&self, name: &str, revision: u64, write: bool) -> Result<Option<&Intervals>, Error> {
        if revision < self.revision {
            return Err(Error::AuthOldRevision);
        }
        let user = self.users.get(name).ok_or(Error::PermissionDenied)?;
        if user.has(ROOT) {
            return Ok(None);
        }
        let merged = self.merged.get(name).ok_or(Error::PermissionDenied)?;
        Ok(Some(if write { &merged.write } else { &merged.read }))
    }

    fn merge(&mut self, name: &str) {
        let Some(user) = self.users.get(name) else {
            self.merged.remove(name);
            return;
        };
        let held = user.roles.iter().filter_map(|role| self.roles.get(role));
        let permissions: Vec<&Permission> = held.flat_map(|role| &role.permissions).collect();
        let of = |kind| {
            let with = |permission: &&&Permission| permission.kind == kind || permission.kind == READ_WRITE;
            let ranges: Vec<KeyRange> = permissions.iter().filter(with).map(|permission| permission.range()).collect();
            Intervals::of(&ranges)
        };
        let merged = Merged { read: of(READ), write: of(WRITE) };
        self.merged.insert(name.to_owned(), merged);
    }

    /// The role has changed: so has what its users may do.
    fn merge_holders(&mut self, role: &str) {
        let holders: Vec<String> =
            self.users.values().filter(|user| user.has(role)).map(|user| user.name.clone()).collect();
        holders.iter().for_each(|name| self.merge(name));
    }

    /// As a file holds it.
    pub(crate) fn load(&mut self, enabled: bool, revision: u64) {
        (self.enabled, self.revision) = (enabled, revision.max(1));
    }

    /// False if there is one with its name already, or it has none.
    pub(crate) fn load_user(&mut self, user: User) -> bool {
        !user.name.is_empty() && self.users.insert(user.name.clone(), user).is_none()
    }

    /// As [`Auth::load_user`].
    pub(crate) fn load_role(&mut self, role: Role) -> bool {
        !role.name.is_empty() && self.roles.insert(role.name.clone(), role).is_none()
    }

    /// All users and roles are loaded.
    pub(crate) fn loaded(&mut self) {
        let names: Vec<String> = self.users.keys().cloned().collect();
        names.iter().for_each(|name| self.merge(name));
    }
}

#[cfg(test)]
mod tests;
