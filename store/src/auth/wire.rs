//! Users, roles and their commands as bytes: etcd's messages.

use super::{Permission, Role, User};
use crate::command::field;
use crate::protobuf::{Fields, Malformed, Value, nested, write_bool, write_bytes, write_message, write_varint};
use crate::request::{int32, text, wrong};
use bytes::Bytes;
use std::fmt;

/// A change of users and roles. Passwords come as base64 of their bcrypt hash, which the edge has
/// made.
#[derive(Clone, PartialEq, Eq)]
pub enum AuthCommand<'a> {
    /// Users are asked for from now on.
    Enable,
    /// They no more are.
    Disable,
    /// A user has logged in.
    Authenticate {
        /// The user.
        name: &'a str,
        /// The random part of the token; empty when the asker signs one.
        simple_token: &'a str,
    },
    /// A new user.
    UserAdd {
        /// The user.
        name: &'a str,
        /// The hash of its password.
        hashed: &'a str,
        /// It has none, and cannot log in.
        no_password: bool,
    },
    /// A user goes.
    UserDelete {
        /// The user.
        name: &'a str,
    },
    /// A user's password becomes another one.
    UserChangePassword {
        /// The user.
        name: &'a str,
        /// The hash of its password.
        hashed: &'a str,
    },
    /// A user gets a role.
    UserGrantRole {
        /// The user.
        user: &'a str,
        /// The role.
        role: &'a str,
    },
    /// A user loses a role.
    UserRevokeRole {
        /// The user.
        user: &'a str,
        /// The role.
        role: &'a str,
    },
    /// A new role.
    RoleAdd {
        /// The role.
        name: &'a str,
    },
    /// A role goes, from its users too.
    RoleDelete {
        /// The role.
        role: &'a str,
    },
    /// A role gets a permission.
    RoleGrantPermission {
        /// The role.
        role: &'a str,
        /// None: the request did not say which.
        permission: Option<Permission>,
    },
    /// A role loses a permission.
    RoleRevokePermission {
        /// The role.
        role: &'a str,
        /// Of the permission, as it was granted.
        key: &'a [u8],
        /// Of the permission, as it was granted.
        range_end: &'a [u8],
    },
}

/// Hashes and tokens are not shown.
impl fmt::Debug for AuthCommand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AuthCommand {}", self.number())
    }
}

/// The fields of a request, by number. What is not there is empty; the last one counts.
struct Read<'a> {
    strings: [&'a [u8]; 5],
    flag: bool,
    permission: Option<Permission>,
}

impl<'a> Read<'a> {
    fn text(&self, number: usize) -> Result<&'a str, Malformed> {
        text(self.strings[number])
    }
}

/// `message`: the field whose content is a message of its own, with its reader.
fn read<'a>(
    bytes: &'a [u8],
    message: u32,
    inner: impl Fn(&mut Read<'a>, &'a [u8]) -> Result<(), Malformed>,
) -> Result<Read<'a>, Malformed> {
    let mut read = Read { strings: [b""; 5], flag: false, permission: None };
    let mut fields = Fields::new(bytes);
    while let Some((number, value)) = fields.next_field()? {
        match value {
            Value::Bytes(b) if number == message => inner(&mut read, b)?,
            Value::Bytes(b) if number <= 4 => read.strings[number as usize] = b,
            _ if number <= 4 => return wrong("auth request", number),
            _ => {}
        }
    }
    Ok(read)
}

fn plain(bytes: &[u8]) -> Result<Read<'_>, Malformed> {
    read(bytes, 0, |_, _| Ok(()))
}

fn read_options<'a>(read: &mut Read<'a>, bytes: &'a [u8]) -> Result<(), Malformed> {
    let mut fields = Fields::new(bytes);
    while let Some((number, value)) = fields.next_field()? {
        if number == 1 {
            read.flag = value.flag();
        }
    }
    Ok(())
}

fn read_permission(bytes: &[u8]) -> Result<Permission, Malformed> {
    let mut permission = Permission::default();
    let mut fields = Fields::new(bytes);
    while let Some((number, value)) = fields.next_field()? {
        match (number, value) {
            (1, Value::Varint(v)) => permission.kind = int32(v),
            (2, Value::Bytes(b)) => permission.key = Bytes::copy_from_slice(b),
            (3, Value::Bytes(b)) => permission.range_end = Bytes::copy_from_slice(b),
            (1..=3, _) => return wrong("Permission", number),
            _ => {}
        }
    }
    Ok(permission)
}

impl<'a> AuthCommand<'a> {
    /// The field of an entry that holds it.
    pub(crate) fn number(&self) -> u32 {
        match self {
            AuthCommand::Enable => field::AUTH_ENABLE,
            AuthCommand::Disable => field::AUTH_DISABLE,
            AuthCommand::Authenticate { .. } => field::AUTHENTICATE,
            AuthCommand::UserAdd { .. } => field::AUTH_USER_ADD,
            AuthCommand::UserDelete { .. } => field::AUTH_USER_DELETE,
            AuthCommand::UserChangePassword { .. } => field::AUTH_USER_CHANGE_PASSWORD,
            AuthCommand::UserGrantRole { .. } => field::AUTH_USER_GRANT_ROLE,
            AuthCommand::UserRevokeRole { .. } => field::AUTH_USER_REVOKE_ROLE,
            AuthCommand::RoleAdd { .. } => field::AUTH_ROLE_ADD,
            AuthCommand::RoleDelete { .. } => field::AUTH_ROLE_DELETE,
            AuthCommand::RoleGrantPermission { .. } => field::AUTH_ROLE_GRANT_PERMISSION,
            AuthCommand::RoleRevokePermission { .. } => field::AUTH_ROLE_REVOKE_PERMISSION,
        }
    }

    /// Reads the request in field `number` of an entry. None: that is no command of ours.
    ///
    /// # Errors
    /// Bytes that are no such message.
    pub fn decode(number: u32, bytes: &'a [u8]) -> Result<Option<AuthCommand<'a>>, Malformed> {
        Ok(Some(match number {
            field::AUTH_ENABLE => plain(bytes).map(|_| AuthCommand::Enable)?,
            field::AUTH_DISABLE => plain(bytes).map(|_| AuthCommand::Disable)?,
            field::AUTHENTICATE => {
                let read = plain(bytes)?;
                AuthCommand::Authenticate { name: read.text(1)?, simple_token: read.text(3)? }
            }
            field::AUTH_USER_ADD => {
                let read = read(bytes, 3, read_options)?;
                AuthCommand::UserAdd { name: read.text(1)?, hashed: read.text(4)?, no_password: read.flag }
            }
            field::AUTH_USER_DELETE => AuthCommand::UserDelete { name: plain(bytes)?.text(1)? },
            field::AUTH_USER_CHANGE_PASSWORD => {
                let read = plain(bytes)?;
                AuthCommand::UserChangePassword { name: read.text(1)?, hashed: read.text(3)? }
            }
            field::AUTH_USER_GRANT_ROLE => {
                let read = plain(bytes)?;
                AuthCommand::UserGrantRole { user: read.text(1)?, role: read.text(2)? }
            }
            field::AUTH_USER_REVOKE_ROLE => {
                let read = plain(bytes)?;
                AuthCommand::UserRevokeRole { user: read.text(1)?, role: read.text(2)? }
            }
            field::AUTH_ROLE_ADD => AuthCommand::RoleAdd { name: plain(bytes)?.text(1)? },
            field::AUTH_ROLE_DELETE => AuthCommand::RoleDelete { role: plain(bytes)?.text(1)? },
            field::AUTH_ROLE_GRANT_PERMISSION => {
                let read = read(bytes, 2, |read, b| read_permission(b).map(|given| read.permission = Some(given)))?;
                AuthCommand::RoleGrantPermission { role: read.text(1)?, permission: read.permission }
            }
            field::AUTH_ROLE_REVOKE_PERMISSION => {
                let read = plain(bytes)?;
                let [_, _, key, range_end, _] = read.strings;
                AuthCommand::RoleRevokePermission { role: read.text(1)?, key, range_end }
            }
            _ => return Ok(None),
        }))
    }

    /// Body of an entry.
    pub fn body(&self) -> crate::command::Checked {
        let mut out = Vec::new();
        nested(&mut out, self.number(), |out| self.encode(out));
        crate::command::Checked::made(out)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let mut texts = |texts: &[(u32, &str)]| {
            for (number, text) in texts {
                write_bytes(out, *number, text.as_bytes());
            }
        };
        match self {
            AuthCommand::Enable | AuthCommand::Disable => {}
            AuthCommand::Authenticate { name, simple_token } => texts(&[(1, name), (3, simple_token)]),
            AuthCommand::UserAdd { name, hashed, no_password } => {
                texts(&[(1, name)]);
                nested(out, 3, |out| write_bool(out, 1, *no_password));
                write_bytes(out, 4, hashed.as_bytes());
            }
            AuthCommand::UserDelete { name } | AuthCommand::RoleAdd { name } => texts(&[(1, name)]),
            AuthCommand::UserChangePassword { name, hashed } => texts(&[(1, name), (3, hashed)]),
            AuthCommand::UserGrantRole { user, role } | AuthCommand::UserRevokeRole { user, role } => {
                texts(&[(1, user), (2, role)]);
            }
            AuthCommand::RoleDelete { role } => texts(&[(1, role)]),
            AuthCommand::RoleGrantPermission { role, permission } => {
                texts(&[(1, role)]);
                if let Some(permission) = permission {
                    nested(out, 2, |out| encode_permission(permission, out));
                }
            }
            AuthCommand::RoleRevokePermission { role, key, range_end } => {
                texts(&[(1, role)]);
                write_bytes(out, 2, key);
                write_bytes(out, 3, range_end);
            }
        }
    }
}

/// `authpb.Permission`.
pub fn encode_permission(permission: &Permission, out: &mut Vec<u8>) {
    write_varint(out, 1, i64::from(permission.kind).cast_unsigned());
    write_bytes(out, 2, &permission.key);
    write_bytes(out, 3, &permission.range_end);
}

/// `authpb.User`, as etcd stores it.
pub(crate) fn encode_user(user: &User, out: &mut Vec<u8>) {
    write_bytes(out, 1, user.name.as_bytes());
    write_bytes(out, 2, &user.password);
    for role in &user.roles {
        write_message(out, 3, role.as_bytes());
    }
    nested(out, 4, |out| write_bool(out, 1, user.no_password));
}

pub(crate) fn decode_user(bytes: &[u8]) -> Result<User, Malformed> {
    let mut user = User::default();
    let mut fields = Fields::new(bytes);
    while let Some((number, value)) = fields.next_field()? {
        match (number, value) {
            (1, Value::Bytes(b)) => user.name = text(b)?.to_owned(),
            (2, Value::Bytes(b)) => user.password = b.to_vec(),
            (3, Value::Bytes(b)) => user.roles.push(text(b)?.to_owned()),
            (4, Value::Bytes(b)) => {
                let mut options = Fields::new(b);
                while let Some((number, value)) = options.next_field()? {
                    if number == 1 {
                        user.no_password = value.flag();
                    }
                }
            }
            _ => return Err(Malformed::new(format!("user: unknown field {number}"))),
        }
    }
    user.roles.sort_unstable();
    user.roles.dedup();
    Ok(user)
}

/// `authpb.Role`.
pub(crate) fn encode_role(role: &Role, out: &mut Vec<u8>) {
    write_bytes(out, 1, role.name.as_bytes());
    for permission in &role.permissions {
        nested(out, 2, |out| encode_permission(permission, out));
    }
}

pub(crate) fn decode_role(bytes: &[u8]) -> Result<Role, Malformed> {
    let mut role = Role::default();
    let mut fields = Fields::new(bytes);
    while let Some((number, value)) = fields.next_field()? {
        match (number, value) {
            (1, Value::Bytes(b)) => role.name = text(b)?.to_owned(),
            (2, Value::Bytes(b)) => role.permissions.push(read_permission(b)?),
            _ => return Err(Malformed::new(format!("role: unknown field {number}"))),
        }
    }
    role.permissions.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(role)
}
