//! Users and roles: what clients change and ask, and the model of it. [`crate::asked`] has what
//! they may do once somebody asks for them.

use crate::ops::Blob;
use crate::proto::{Value, Writer, fields};
use crate::rng::Rng;
use node::{AuthAnswer, AuthQuery};
use std::collections::{BTreeMap, BTreeSet};
use store::Error;

/// A change of users and roles; `what` is the number of etcd's field for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    what: u32,
    /// Of a user, or of a role if there is no user in it.
    first: String,
    /// A role of the user.
    second: String,
    no_password: bool,
    permission: Option<(i64, Blob, Blob)>,
}

const ENABLE: u32 = 1000;
const DISABLE: u32 = 1011;
const LOG_IN: u32 = 1012;
const USER_ADD: u32 = 1100;
const USER_DELETE: u32 = 1101;
const USER_PASSWORD: u32 = 1103;
const USER_GRANT: u32 = 1104;
const USER_REVOKE: u32 = 1105;
const ROLE_ADD: u32 = 1200;
const ROLE_DELETE: u32 = 1201;
const ROLE_GRANT: u32 = 1203;
const ROLE_REVOKE: u32 = 1204;
const ALL: [u32; 12] = [
    ENABLE,
    DISABLE,
    LOG_IN,
    USER_ADD,
    USER_DELETE,
    USER_PASSWORD,
    USER_GRANT,
    USER_REVOKE,
    ROLE_ADD,
    ROLE_DELETE,
    ROLE_GRANT,
    ROLE_REVOKE,
];
/// As often as it is drawn: things that come outnumber those that go.
const DRAWN: [u32; 16] = [
    ENABLE,
    DISABLE,
    USER_ADD,
    USER_ADD,
    USER_ADD,
    USER_DELETE,
    USER_PASSWORD,
    USER_GRANT,
    USER_GRANT,
    USER_REVOKE,
    ROLE_ADD,
    ROLE_ADD,
    ROLE_DELETE,
    ROLE_GRANT,
    ROLE_GRANT,
    ROLE_REVOKE,
];
/// The same, where users are asked for.
const DRAWN_WHEN_ASKED: [u32; 24] = [
    LOG_IN,
    LOG_IN,
    LOG_IN,
    LOG_IN,
    LOG_IN,
    ENABLE,
    DISABLE,
    USER_ADD,
    USER_ADD,
    USER_DELETE,
    USER_PASSWORD,
    USER_GRANT,
    USER_GRANT,
    USER_GRANT,
    USER_REVOKE,
    ROLE_ADD,
    ROLE_ADD,
    ROLE_DELETE,
    ROLE_GRANT,
    ROLE_GRANT,
    ROLE_GRANT,
    ROLE_GRANT,
    ROLE_GRANT,
    ROLE_REVOKE,
];
/// The user that everything is permitted to.
pub const ROOT: &str = "root";
/// What the edge would have made of a password: any bytes, in base64.
const HASHED: &[u8] = b"JDJhJDA0JGt2b3J1bQ==";

fn name(rng: &mut Rng, letter: char) -> String {
    match rng.below(20) {
        0 => String::new(),
        n => format!("{letter}{}", n % 4),
    }
}

impl Change {
    /// Any change of a few users and roles.
    pub fn draw(rng: &mut Rng) -> Change {
        let what = *rng.pick(&DRAWN);
        let of_user = what < ROLE_ADD;
        let first = name(rng, if of_user { 'u' } else { 'r' });
        let second = if rng.percent(5) { "root".to_string() } else { name(rng, 'r') };
        let key = rng.pick(&[&b"a"[..], b"b", b"k/", b""]).to_vec();
        let end = rng.pick(&[&b""[..], b"\0", b"b", b"k0"]).to_vec();
        let permission = rng.percent(95).then_some((rng.below(3) as i64, key, end));
        Change { what, first, second, no_password: rng.percent(20), permission }
    }

    /// Any change where users are asked for, of the users that there are. `tag` makes tokens
    /// unique.
    pub fn draw_when_asked(rng: &mut Rng, users: &Users, tag: u64) -> Change {
        let mut change = Change::draw(rng);
        change.what = *rng.pick(&DRAWN_WHEN_ASKED);
        let of_user = change.what < ROLE_ADD;
        change.first = format!("{}{}", if of_user { 'u' } else { 'r' }, rng.below(4));
        change.second = if rng.percent(5) { ROOT.to_string() } else { format!("r{}", rng.below(4)) };
        let (key, end) = *rng.pick(&[
            (&b"\0"[..], &b"\0"[..]),
            (b"\0", b"k"),
            (b"a", b"b"),
            (b"b", b"\0"),
            (b"k/", b"k0"),
            (b"a", b""),
            (b"k/1", b"k/2"),
            (b"k/2", b"l"),
        ]);
        change.permission = Some((rng.below(3) as i64, key.to_vec(), end.to_vec()));
        if change.what == LOG_IN {
            change.second = format!("t{tag}");
        }
        if [LOG_IN, USER_DELETE, USER_PASSWORD, USER_REVOKE].contains(&change.what) && rng.percent(10) {
            change.first = ROOT.to_string();
        }
        // What must be there before users are asked for.
        let root = users.now().users.get(ROOT);
        if !users.now().enabled && rng.percent(60) {
            let what = match root {
                None => USER_ADD,
                Some(roles) if !roles.contains(ROOT) => USER_GRANT,
                Some(_) => ENABLE,
            };
            let (first, second) = (ROOT.to_string(), ROOT.to_string());
            return Change { what, first, second, no_password: false, permission: None };
        }
        change
    }

    /// The user that logs in with it.
    pub fn logs_in(&self) -> Option<(&str, &str)> {
        (self.what == LOG_IN).then_some((&self.first, &self.second))
    }

    /// Field and message of a log entry.
    pub fn encode(&self) -> (u32, Writer) {
        let mut w = Writer::default();
        match self.what {
            ENABLE | DISABLE => {}
            LOG_IN => drop(w.bytes(1, self.first.as_bytes()).bytes(3, self.second.as_bytes())),
            USER_ADD => {
                let mut options = Writer::default();
                options.flag(1, self.no_password);
                w.bytes(1, self.first.as_bytes()).message(3, &options.0).bytes(4, HASHED);
            }
            USER_PASSWORD => drop(w.bytes(1, self.first.as_bytes()).bytes(3, HASHED)),
            USER_GRANT | USER_REVOKE => drop(w.bytes(1, self.first.as_bytes()).bytes(2, self.second.as_bytes())),
            ROLE_GRANT => {
                w.bytes(1, self.first.as_bytes());
                if let Some((kind, key, end)) = &self.permission {
                    let mut permission = Writer::default();
                    permission.int(1, *kind).bytes(2, key).bytes(3, end);
                    w.message(2, &permission.0);
                }
            }
            ROLE_REVOKE => {
                let (_, key, end) = self.permission.clone().unwrap_or_default();
                w.bytes(1, self.first.as_bytes()).bytes(2, &key).bytes(3, &end);
            }
            _ => drop(w.bytes(1, self.first.as_bytes())),
        }
        (self.what, w)
    }

    /// The change in this field, and the number of the operation. None: it is no such field.
    pub fn decode(what: u32, message: &[u8], tag: u32) -> Option<(Change, Option<u64>)> {
        if !ALL.contains(&what) {
            return None;
        }
        let mut change =
            Change { what, first: String::new(), second: String::new(), no_password: false, permission: None };
        let mut number = None;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let mut range = (Blob::new(), Blob::new());
        for (field, value) in fields(message)? {
            match (what, field, value) {
                (_, field, Value::Varint(v)) if field == tag => number = Some(v),
                (_, 1, Value::Bytes(b)) => change.first = text(b)?,
                (USER_GRANT | USER_REVOKE, 2, Value::Bytes(b)) => change.second = text(b)?,
                (LOG_IN, 3, Value::Bytes(b)) => change.second = text(b)?,
                (USER_ADD, 3, Value::Bytes(b)) => change.no_password = !fields(b)?.is_empty(),
                (ROLE_GRANT, 2, Value::Bytes(b)) => change.permission = Some(permission(b)?),
                (ROLE_REVOKE, 2, Value::Bytes(b)) => range.0 = b.to_vec(),
                (ROLE_REVOKE, 3, Value::Bytes(b)) => range.1 = b.to_vec(),
                _ => {}
            }
        }
        if what == ROLE_REVOKE {
            change.permission = Some((0, range.0, range.1));
        }
        Some((change, number))
    }
}

fn permission(bytes: &[u8]) -> Option<(i64, Blob, Blob)> {
    let (mut kind, mut key, mut end) = (0, Blob::new(), Blob::new());
    for (field, value) in fields(bytes)? {
        match (field, value) {
            (1, Value::Varint(v)) => kind = v as i64,
            (2, Value::Bytes(b)) => key = b.to_vec(),
            (3, Value::Bytes(b)) => end = b.to_vec(),
            _ => {}
        }
    }
    Some((kind, key, end))
}

/// A question about users and roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Their revision.
    Status,
    /// The names of all.
    Users,
    /// The names of all.
    Roles,
    /// The roles of this user.
    User(String),
    /// The permissions of this role.
    Role(String),
}

impl Question {
    /// Any question.
    pub fn draw(rng: &mut Rng) -> Question {
        match rng.below(5) {
            0 => Question::Status,
            1 => Question::Users,
            2 => Question::Roles,
            3 => Question::User(name(rng, 'u')),
            _ => Question::Role(name(rng, 'r')),
        }
    }

    /// As a member is asked it.
    pub fn query(&self) -> AuthQuery {
        match self.clone() {
            Question::Status => AuthQuery::Status,
            Question::Users => AuthQuery::Users,
            Question::Roles => AuthQuery::Roles,
            Question::User(name) => AuthQuery::User { name },
            Question::Role(name) => AuthQuery::Role { name },
        }
    }
}

/// What a question is answered with: names, or key ranges with their kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Whether users are asked for, and the revision of users and roles.
    Revision(bool, u64),
    /// Ascending.
    Names(Vec<String>),
    /// Kind, key and end of its range.
    Permissions(Vec<(i64, Blob, Blob)>),
    /// There is no such user or role.
    Refused(Error),
}

impl Said {
    /// None: it answers another question.
    pub fn of(question: &Question, answer: AuthAnswer) -> Option<Said> {
        Some(match (question, answer) {
            (Question::Status, AuthAnswer::Status { enabled, revision }) => Said::Revision(enabled, revision),
            (Question::Users, AuthAnswer::Users { users }) => Said::Names(users),
            (Question::Roles, AuthAnswer::Roles { roles }) => Said::Names(roles),
            (Question::User(_), AuthAnswer::User { roles }) => Said::Names(roles),
            (Question::Role(_), AuthAnswer::Role { permissions }) => Said::Permissions(
                permissions.iter().map(|p| (i64::from(p.kind), p.key.to_vec(), p.range_end.to_vec())).collect(),
            ),
            _ => return None,
        })
    }
}

/// Users and roles after some entry.
#[derive(Clone, Debug)]
pub struct State {
    /// Users are asked for.
    pub enabled: bool,
    /// Of both.
    pub revision: u64,
    /// The roles that each user holds.
    pub users: BTreeMap<String, BTreeSet<String>>,
    /// By key; permissions with one key in the order in which they came.
    pub roles: BTreeMap<String, Vec<(i64, Blob, Blob)>>,
    /// Users that cannot log in.
    pub without_password: BTreeSet<String>,
    /// Whose each token is. A member may have lost some.
    pub tokens: BTreeMap<String, String>,
}

impl Default for State {
    fn default() -> State {
        State {
            enabled: false,
            // etcd counts from 1.
            revision: 1,
            users: BTreeMap::new(),
            roles: BTreeMap::new(),
            without_password: BTreeSet::new(),
            tokens: BTreeMap::new(),
        }
    }
}

/// All states there ever were.
#[derive(Debug, Default)]
pub struct Users {
    now: State,
    /// From which entry on, ascending.
    states: Vec<(u64, State)>,
}

impl Users {
    /// The entry `index` says this.
    pub fn apply(&mut self, index: u64, change: &Change) -> Result<(), Error> {
        if self.states.is_empty() {
            self.states.push((0, State::default()));
        }
        let enabled = self.now.enabled;
        let changed = self.now.change(index, change)?;
        self.now.revision += u64::from(changed);
        if changed || enabled != self.now.enabled || change.what == LOG_IN {
            self.states.push((index, self.now.clone()));
        }
        Ok(())
    }

    /// After the last entry.
    pub fn now(&self) -> &State {
        &self.now
    }

    /// Each state after some entry from `from` to `upto`, oldest first.
    pub fn between(&self, from: u64, upto: u64) -> Vec<&State> {
        if self.states.is_empty() {
            return vec![&self.now];
        }
        let first = self.states.partition_point(|(index, _)| *index <= from).saturating_sub(1);
        self.states[first..].iter().take_while(|(index, _)| *index <= upto).map(|(_, state)| state).collect()
    }

    /// That was right after some entry from `from` to `upto`.
    pub fn was(&self, from: u64, upto: u64, question: &Question, said: &Said) -> bool {
        self.between(from, upto).iter().any(|state| state.says(question) == *said)
    }
}

impl State {
    fn says(&self, question: &Question) -> Said {
        let names = |names: &BTreeSet<String>| Said::Names(names.iter().cloned().collect());
        match question {
            Question::Status => Said::Revision(self.enabled, self.revision),
            Question::Users => Said::Names(self.users.keys().cloned().collect()),
            Question::Roles => Said::Names(self.roles.keys().cloned().collect()),
            Question::User(name) => self.users.get(name).map_or(Said::Refused(Error::UserNotFound), names),
            Question::Role(name) => {
                let role = self.roles.get(name).cloned();
                role.map_or(Said::Refused(Error::RoleNotFound), Said::Permissions)
            }
        }
    }

    /// True: something is another now.
    fn change(&mut self, index: u64, change: &Change) -> Result<bool, Error> {
        let Change { what, first, second, permission, no_password } = change;
        match *what {
            ENABLE if self.enabled => return Ok(false),
            ENABLE => {
                let root = self.users.get(ROOT).ok_or(Error::RootUserNotExist)?;
                self.enabled = root.contains(ROOT);
                return if self.enabled { Ok(false) } else { Err(Error::RootRoleNotExist) };
            }
            DISABLE if !self.enabled => return Ok(false),
            DISABLE => {
                self.enabled = false;
                self.tokens.clear();
            }
            LOG_IN if !self.enabled => return Err(Error::AuthNotEnabled),
            LOG_IN => {
                if !self.users.contains_key(first) || self.without_password.contains(first) {
                    return Err(Error::AuthFailed);
                }
                self.tokens.insert(format!("{second}.{index}"), first.clone());
                return Ok(false);
            }
            // Who asks for users keeps one who may change them.
            USER_DELETE if self.enabled && first == ROOT => return Err(Error::InvalidAuthMgmt),
            USER_REVOKE if self.enabled && first == ROOT && second == ROOT => return Err(Error::InvalidAuthMgmt),
            ROLE_DELETE if self.enabled && first == ROOT => return Err(Error::InvalidAuthMgmt),
            USER_ADD if first.is_empty() => return Err(Error::UserEmpty),
            USER_ADD if self.users.contains_key(first) => return Err(Error::UserAlreadyExist),
            USER_ADD => {
                self.users.insert(first.clone(), BTreeSet::new());
                if *no_password {
                    self.without_password.insert(first.clone());
                }
            }
            USER_DELETE | USER_PASSWORD => {
                if !self.users.contains_key(first) {
                    return Err(Error::UserNotFound);
                }
                self.tokens.retain(|_, user| user != first);
                if *what == USER_DELETE {
                    self.users.remove(first);
                    self.without_password.remove(first);
                }
            }
            USER_GRANT => {
                let known = second == "root" || self.roles.contains_key(second);
                let roles = self.users.get_mut(first).ok_or(Error::UserNotFound)?;
                if !known {
                    return Err(Error::RoleNotFound);
                }
                return Ok(roles.insert(second.clone()));
            }
            USER_REVOKE => {
                let roles = self.users.get_mut(first).ok_or(Error::UserNotFound)?;
                if !roles.remove(second) {
                    return Err(Error::RoleNotGranted);
                }
            }
            ROLE_ADD if first.is_empty() => return Err(Error::RoleEmpty),
            ROLE_ADD if self.roles.contains_key(first) => return Err(Error::RoleAlreadyExist),
            ROLE_ADD => drop(self.roles.insert(first.clone(), Vec::new())),
            ROLE_DELETE => {
                self.roles.remove(first).ok_or(Error::RoleNotFound)?;
                self.users.values_mut().for_each(|roles| roles.retain(|role| role != first));
            }
            ROLE_GRANT => {
                let (kind, key, end) = permission.clone().ok_or(Error::PermissionNotGiven)?;
                if key.is_empty() || !(end.is_empty() || end == [0] || key < end) {
                    return Err(Error::InvalidAuthMgmt);
                }
                let held = self.roles.get_mut(first).ok_or(Error::RoleNotFound)?;
                // Only the first one with this key is compared, as in etcd.
                match held.iter_mut().find(|(_, held, _)| *held == key).filter(|(_, _, held)| *held == end) {
                    Some(same) => same.0 = kind,
                    None => {
                        let behind = held.iter().take_while(|(_, held, _)| *held <= key).count();
                        held.insert(behind, (kind, key, end));
                    }
                }
            }
            ROLE_REVOKE => {
                let (_, key, end) = permission.clone().unwrap_or_default();
                let held = self.roles.get_mut(first).ok_or(Error::RoleNotFound)?;
                let before = held.len();
                held.retain(|(_, k, e)| (k, e) != (&key, &end));
                if held.len() == before {
                    return Err(Error::PermissionNotGranted);
                }
            }
            _ => unreachable!("{change:?}"),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_survives_its_bytes() {
        let mut rng = Rng::new(7, "changes");
        for _ in 0..500 {
            let change = Change::draw(&mut rng);
            let (what, message) = change.encode();
            let (read, _) = Change::decode(what, &message.0, 1000).expect("one of ours");
            assert_eq!((read.what, read.encode().1.0), (what, message.0));
        }
    }

    #[test]
    fn answers_are_right_at_some_moment_of_their_time() {
        let add = |first: &str| Change {
            what: USER_ADD,
            first: first.into(),
            second: String::new(),
            no_password: false,
            permission: None,
        };
        let mut users = Users::default();
        let names = |names: &[&str]| Said::Names(names.iter().map(ToString::to_string).collect());
        assert!(users.was(0, 3, &Question::Users, &names(&[])));
        assert_eq!(users.apply(5, &add("a")), Ok(()));
        assert_eq!(users.apply(6, &add("a")), Err(Error::UserAlreadyExist));
        assert_eq!(users.apply(8, &add("b")), Ok(()));
        for (from, upto, said, right) in [
            (0, 4, &[][..], true),
            (0, 4, &["a"], false),
            (4, 5, &["a"], true),
            (7, 7, &["a"], true),
            (8, 9, &["a"], false),
            (6, 9, &["a", "b"], true),
        ] {
            assert_eq!(users.was(from, upto, &Question::Users, &names(said)), right, "{from} {upto} {said:?}");
        }
        assert!(users.was(9, 9, &Question::Status, &Said::Revision(false, 3)));
    }
}
