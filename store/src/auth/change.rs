//! How commands change users and roles. The checks, their order and what counts as a change are
//! etcd's.

use super::wire::AuthCommand;
use super::{Auth, Permission, ROOT, Role, User};
use crate::Error;
use crate::digest::{Digest, Effect};
use base64::Engine;

/// For the tokens, which are local to a member.
#[derive(Clone, PartialEq, Eq)]
pub enum AuthChange {
    /// A user has logged in. The token is good from this entry on.
    LoggedIn {
        /// Its name.
        user: String,
        /// The whole token.
        token: String,
    },
    /// The tokens of a user are good no more: it is gone, or its password is another one.
    Ended {
        /// Its name.
        user: String,
    },
    /// Nobody is asked for tokens any more, and none is good later.
    Disabled,
}

impl std::fmt::Debug for AuthChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AuthChange::LoggedIn { user, token: _ } => write!(f, "LoggedIn {{ user: {user:?} }}"),
            AuthChange::Ended { user } => write!(f, "Ended {{ user: {user:?} }}"),
            AuthChange::Disabled => f.write_str("Disabled"),
        }
    }
}

type Done = Result<Option<AuthChange>, Error>;

impl Auth {
    /// `index`: of the entry. Nothing has changed if it is refused.
    pub(crate) fn apply(&mut self, index: u64, command: &AuthCommand<'_>, digest: &mut Digest) -> Done {
        let before = (self.enabled, self.revision);
        let done = self.change(index, command)?;
        if before != (self.enabled, self.revision) {
            digest.effect(Effect::Auth);
            digest.bytes(&command.body());
            digest.word(u64::from(self.enabled));
            digest.word(self.revision);
        }
        Ok(done)
    }

    fn change(&mut self, index: u64, command: &AuthCommand<'_>) -> Done {
        match *command {
            AuthCommand::Enable => self.enable(),
            AuthCommand::Disable => self.disable(),
            AuthCommand::Authenticate { name, simple_token } => self.log_in(index, name, simple_token),
            AuthCommand::UserAdd { name, hashed, no_password } => self.add_user(name, hashed, no_password),
            AuthCommand::UserDelete { name } => self.delete_user(name),
            AuthCommand::UserChangePassword { name, hashed } => self.change_password(name, hashed),
            AuthCommand::UserGrantRole { user, role } => self.grant_role(user, role),
            AuthCommand::UserRevokeRole { user, role } => self.revoke_role(user, role),
            AuthCommand::RoleAdd { name } => self.add_role(name),
            AuthCommand::RoleDelete { role } => self.delete_role(role),
            AuthCommand::RoleGrantPermission { role, ref permission } => self.grant(role, permission.as_ref()),
            AuthCommand::RoleRevokePermission { role, key, range_end } => self.revoke(role, key, range_end),
        }
    }

    fn enable(&mut self) -> Done {
        if self.enabled {
            return Ok(None);
        }
        let root = self.users.get(ROOT).ok_or(Error::RootUserNotExist)?;
        if !root.has(ROOT) {
            return Err(Error::RootRoleNotExist);
        }
        self.enabled = true;
        Ok(None)
    }

    fn disable(&mut self) -> Done {
        if !self.enabled {
            return Ok(None);
        }
        self.enabled = false;
        self.revision += 1;
        Ok(Some(AuthChange::Disabled))
    }

    /// The password was compared before. The asker compares revisions: another one since means a
    /// stale password.
    fn log_in(&mut self, index: u64, name: &str, simple_token: &str) -> Done {
        if !self.enabled {
            return Err(Error::AuthNotEnabled);
        }
        let user = self.users.get(name).ok_or(Error::AuthFailed)?;
        if user.no_password {
            return Err(Error::AuthFailed);
        }
        if simple_token.is_empty() {
            return Ok(None); // the asker signs one of its own
        }
        Ok(Some(AuthChange::LoggedIn { user: name.to_owned(), token: format!("{simple_token}.{index}") }))
    }

    fn add_user(&mut self, name: &str, hashed: &str, no_password: bool) -> Done {
        if name.is_empty() {
            return Err(Error::UserEmpty);
        }
        if self.users.contains_key(name) {
            return Err(Error::UserAlreadyExist);
        }
        let password = if no_password { Vec::new() } else { hash(hashed)? };
        self.put_user(User { name: name.to_owned(), password, no_password, roles: Vec::new() });
        Ok(None)
    }

    fn delete_user(&mut self, name: &str) -> Done {
        if self.enabled && name == ROOT {
            return Err(Error::InvalidAuthMgmt);
        }
        self.users.remove(name).ok_or(Error::UserNotFound)?;
        self.merge(name);
        self.revision += 1;
        Ok(Some(AuthChange::Ended { user: name.to_owned() }))
    }

    fn change_password(&mut self, name: &str, hashed: &str) -> Done {
        let user = self.users.get(name).ok_or(Error::UserNotFound)?;
        let password = if user.no_password { Vec::new() } else { hash(hashed)? };
        self.put_user(User { password, ..user.clone() });
        Ok(Some(AuthChange::Ended { user: name.to_owned() }))
    }

    fn grant_role(&mut self, user: &str, role: &str) -> Done {
        let mut user = self.users.get(user).ok_or(Error::UserNotFound)?.clone();
        if role != ROOT && !self.roles.contains_key(role) {
            return Err(Error::RoleNotFound);
        }
        if user.has(role) {
            return Ok(None);
        }
        user.roles.push(role.to_owned());
        user.roles.sort_unstable();
        self.put_user(user);
        Ok(None)
    }

    fn revoke_role(&mut self, user: &str, role: &str) -> Done {
        if self.enabled && user == ROOT && role == ROOT {
            return Err(Error::InvalidAuthMgmt);
        }
        let mut user = self.users.get(user).ok_or(Error::UserNotFound)?.clone();
        if !user.has(role) {
            return Err(Error::RoleNotGranted);
        }
        user.roles.retain(|held| held != role);
        self.put_user(user);
        Ok(None)
    }

    fn add_role(&mut self, name: &str) -> Done {
        if name.is_empty() {
            return Err(Error::RoleEmpty);
        }
        if self.roles.contains_key(name) {
            return Err(Error::RoleAlreadyExist);
        }
        self.put_role(Role { name: name.to_owned(), permissions: Vec::new() });
        Ok(None)
    }

    fn delete_role(&mut self, role: &str) -> Done {
        if self.enabled && role == ROOT {
            return Err(Error::InvalidAuthMgmt);
        }
        self.roles.remove(role).ok_or(Error::RoleNotFound)?;
        let holders: Vec<String> =
            self.users.values().filter(|user| user.has(role)).map(|user| user.name.clone()).collect();
        for name in holders {
            let user = self.users.get_mut(&name).expect("listed");
            user.roles.retain(|held| held != role);
            self.merge(&name);
        }
        self.revision += 1;
        Ok(None)
    }

    fn grant(&mut self, role: &str, permission: Option<&Permission>) -> Done {
        let permission = permission.ok_or(Error::PermissionNotGiven)?;
        let (key, end) = (&permission.key, &permission.range_end);
        if key.is_empty() || !(end.is_empty() || &end[..] == b"\0" || key < end) {
            return Err(Error::InvalidAuthMgmt);
        }
        let mut role = self.roles.get(role).ok_or(Error::RoleNotFound)?.clone();
        // Only the first one with this key is compared, as in etcd.
        let at = role.permissions.partition_point(|held| held.key < *key);
        match role.permissions.get_mut(at).filter(|held| held.key == *key && held.range_end == *end) {
            Some(held) => held.kind = permission.kind,
            None => {
                let behind = role.permissions.partition_point(|held| held.key <= *key);
                role.permissions.insert(behind, permission.clone());
            }
        }
        self.put_role(role);
        Ok(None)
    }

    fn revoke(&mut self, role: &str, key: &[u8], range_end: &[u8]) -> Done {
        let mut role = self.roles.get(role).ok_or(Error::RoleNotFound)?.clone();
        let before = role.permissions.len();
        role.permissions.retain(|held| held.key != key || held.range_end != range_end);
        if role.permissions.len() == before {
            return Err(Error::PermissionNotGranted);
        }
        self.put_role(role);
        Ok(None)
    }

    fn put_user(&mut self, user: User) {
        let name = user.name.clone();
        self.users.insert(name.clone(), user);
        self.merge(&name);
        self.revision += 1;
    }

    fn put_role(&mut self, role: Role) {
        let name = role.name.clone();
        self.roles.insert(name.clone(), role);
        self.merge_holders(&name);
        self.revision += 1;
    }
}

/// The hash that the edge has put into the command.
fn hash(hashed: &str) -> Result<Vec<u8>, Error> {
    base64::engine::general_purpose::STANDARD.decode(hashed).map_err(|_| Error::NoPasswordUser)
}
