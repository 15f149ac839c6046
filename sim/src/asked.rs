//! Users that are asked for: who a client says it is, what that one may do, and whether it was let
//! in or refused rightly (U-2).

use crate::client::Ask;
use crate::clients::Pending;
use crate::cluster::Sim;
use crate::ops::{Asker, Blob, Command, Op, Put, Range, Txn};
use crate::rng::Rng;
use crate::users::{Question, ROOT, State};
use node::{Secret, Who};
use store::Error;

/// Tokens that clients remember.
const TOKENS: usize = 12;

/// What clients know of users.
#[derive(Debug)]
pub(crate) struct Asked {
    rng: Rng,
    /// Tokens that were given out, the newest last.
    tokens: Vec<String>,
}

/// One thing that the asker must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// Also who is nobody may ask.
    Nothing,
    /// To be some user.
    User,
    /// The role `root`.
    Admin,
    /// To be this user, or an admin.
    SelfOr(String),
    /// To hold this role, or be an admin.
    HoldsOr(String),
    /// To read every key of a range, or to write it.
    Keys {
        /// The first key.
        key: Blob,
        /// As in a request.
        end: Blob,
        /// To write them.
        write: bool,
    },
    /// All keys on it, now.
    Lease {
        /// Of the lease.
        id: i64,
        /// To write them.
        write: bool,
    },
    /// As `Lease`; what hung on it when the question was decided is not known.
    SomeLease,
}

fn keys(key: &[u8], end: &[u8], write: bool) -> Need {
    Need::Keys { key: key.to_vec(), end: end.to_vec(), write }
}

fn of_put(put: &Put, needs: &mut Vec<Need>) {
    needs.push(keys(&put.key, b"", true));
    needs.extend((put.lease != 0).then_some(Need::Lease { id: put.lease, write: true }));
    needs.extend(put.prev_kv.then(|| keys(&put.key, b"", false)));
}

fn of_txn(txn: &Txn, needs: &mut Vec<Need>) {
    needs.extend(txn.compare.iter().map(|c| keys(&c.key, &c.end, false)));
    for op in txn.success.iter().chain(&txn.failure) {
        match op {
            Op::Range(range) => needs.push(keys(&range.key, &range.end, false)),
            Op::Put(put) => of_put(put, needs),
            Op::Delete(delete) => {
                needs.push(keys(&delete.key, &delete.end, true));
                needs.extend(delete.prev_kv.then(|| keys(&delete.key, &delete.end, false)));
            }
            Op::Txn(txn) => of_txn(txn, needs),
        }
    }
}

/// What a command needs.
pub fn of_command(command: &Command) -> Vec<Need> {
    let mut needs = vec![Need::User];
    match command {
        Command::Put(put) => of_put(put, &mut needs),
        Command::Delete(delete) => {
            needs.push(keys(&delete.key, &delete.end, true));
            needs.extend(delete.prev_kv.then(|| keys(&delete.key, &delete.end, false)));
        }
        Command::Txn(txn) => of_txn(txn, &mut needs),
        Command::Grant { .. } | Command::Alarm { action: 0, .. } => {}
        Command::Revoke { id } => needs.push(Need::Lease { id: *id, write: true }),
        Command::Users(change) if change.logs_in().is_some() => return vec![Need::Nothing],
        Command::Compact { .. } | Command::Alarm { .. } | Command::Users(_) => return vec![Need::Admin],
        Command::Checkpoint { .. } | Command::Expire { .. } | Command::Nothing => return vec![Need::Nothing],
    }
    needs
}

/// What a question needs that is not answered from the log. None: it is a command.
fn of_ask(ask: &Ask) -> Option<Vec<Need>> {
    Some(match ask {
        Ask::Command(_) => return None,
        Ask::Range { range: Range { key, end, .. }, .. } => vec![Need::User, keys(key, end, false)],
        Ask::ReadTxn { txn, .. } => {
            let mut needs = vec![Need::User];
            of_txn(txn, &mut needs);
            needs
        }
        Ask::Watch(create) => vec![Need::User, keys(&create.key, &create.range_end, false)],
        Ask::KeepAlive { .. } | Ask::TimeToLive { keys: true, .. } | Ask::Leases => vec![Need::User, Need::SomeLease],
        Ask::TimeToLive { keys: false, .. } | Ask::Members { .. } | Ask::Status | Ask::Alarms { .. } => {
            vec![Need::User]
        }
        Ask::HashKv { .. } | Ask::MoveLeader { .. } | Ask::Backup | Ask::Digest => vec![Need::Admin],
        Ask::Users(Question::Status) | Ask::Barrier | Ask::CancelWatch { .. } | Ask::WatchProgress => {
            vec![Need::Nothing]
        }
        Ask::Users(Question::User(name)) => vec![Need::SelfOr(name.clone())],
        Ask::Users(Question::Role(name)) => vec![Need::HoldsOr(name.clone())],
        Ask::Users(Question::Users | Question::Roles) => vec![Need::Admin],
    })
}

/// As a half-open interval. No end: every key from there on.
fn interval(key: &[u8], end: &[u8]) -> (Blob, Option<Blob>) {
    match end {
        [] => (key.to_vec(), Some([key, &[0]].concat())),
        [0] => (key.to_vec(), None),
        end => (key.to_vec(), Some(end.to_vec())),
    }
}

/// Whether `end` lies behind the key.
fn behind(end: &Option<Blob>, key: &[u8]) -> bool {
    end.as_ref().is_none_or(|end| end.as_slice() > key)
}

impl State {
    /// Whether `asker` has everything that is needed; etcd's error for the first thing that is
    /// missing. `on`: the keys on a lease.
    pub fn lets(&self, asker: &Asker, needs: &[Need], on: impl Fn(i64) -> Vec<Blob>) -> Result<(), Error> {
        if !self.enabled || *asker == Asker::Member {
            return Ok(());
        }
        for need in needs {
            if *need == Need::Nothing {
                continue;
            }
            let Asker::User { name, revision } = asker else { return Err(Error::UserEmpty) };
            let revision = revision.unwrap_or(self.revision);
            let held = self.users.get(name);
            let admin = held.is_some_and(|roles| roles.contains(ROOT));
            let no_admin = if held.is_some() { Error::PermissionDenied } else { Error::UserNotFound };
            match need {
                Need::Nothing | Need::User | Need::SomeLease => {}
                _ if admin && !matches!(need, Need::Keys { .. }) => {}
                Need::SelfOr(user) if user == name => {}
                Need::HoldsOr(role) if held.is_some_and(|roles| roles.contains(role)) => {}
                Need::Admin | Need::SelfOr(_) | Need::HoldsOr(_) => return Err(no_admin),
                Need::Keys { key, end, write } => self.permits(name, revision, key, end, *write)?,
                Need::Lease { id, write } => {
                    for key in on(*id) {
                        self.permits(name, revision, &key, b"", *write)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn permits(&self, name: &str, revision: u64, key: &[u8], end: &[u8], write: bool) -> Result<(), Error> {
        if revision < self.revision {
            return Err(Error::AuthOldRevision);
        }
        let roles = self.users.get(name).ok_or(Error::PermissionDenied)?;
        if roles.contains(ROOT) || self.covers(roles.iter(), key, end, write) {
            return Ok(());
        }
        Err(Error::PermissionDenied)
    }

    /// Told the long way: one permission after the other takes the covered part further.
    fn covers<'r>(&self, roles: impl Iterator<Item = &'r String>, key: &[u8], end: &[u8], write: bool) -> bool {
        let kinds = if write { [1, 2] } else { [0, 2] };
        let held = roles.filter_map(|role| self.roles.get(role)).flatten();
        let held = held.filter(|(kind, ..)| kinds.contains(kind));
        let mut held: Vec<(Blob, Option<Blob>)> = held.map(|(_, key, end)| interval(key, end)).collect();
        held.sort();
        let mut joined: Vec<(Blob, Option<Blob>)> = Vec::new();
        for (from, to) in held {
            match joined.last_mut() {
                Some((_, last)) if behind(last, &from) || last.as_ref() == Some(&from) => {
                    if to.as_ref().is_none_or(|to| !behind(last, to)) {
                        *last = to;
                    }
                }
                _ => joined.push((from, to)),
            }
        }
        let (from, to) = interval(key, end);
        if to.as_ref().is_some_and(|to| *to <= from) {
            // It holds no key. etcd lets it in if both of its ends lie in one permission.
            let end = to.expect("it has one");
            let last = joined.iter().rev().find(|(begin, _)| *begin < end);
            return last.is_some_and(|(_, its_end)| behind(its_end, &from));
        }
        joined.iter().any(|(begin, its_end)| {
            *begin <= from && (its_end.is_none() || to.is_some() && its_end.as_ref() >= to.as_ref())
        })
    }

    /// Who that is, as a member sees it that has this state. None: its token is of no use.
    fn seen(&self, who: &Who) -> Vec<Option<Asker>> {
        let user = |name: &str, revision| Some(Asker::User { name: name.to_string(), revision });
        match who {
            Who::Member => vec![Some(Asker::Member)],
            _ if !self.enabled => vec![Some(Asker::Nobody)],
            Who::Nobody => vec![Some(Asker::Nobody)],
            Who::Invalid => vec![None],
            Who::Certified { user: name } => vec![user(name, None)],
            Who::Signed { user: name, revision } => vec![user(name, Some(*revision))],
            Who::Token(token) => {
                // A member forgets all of them with its life, and when it gets another state.
                let known = self.tokens.get(token.shown()).map(|name| user(name, None));
                known.into_iter().chain([None]).collect()
            }
        }
    }
}

/// What a refusal says of the one who asked, not of what was asked.
fn is_of_asker(error: &Error) -> bool {
    matches!(error, Error::PermissionDenied | Error::UserEmpty | Error::AuthOldRevision | Error::InvalidAuthToken)
}

impl Asked {
    pub(crate) fn new(seed: u64) -> Asked {
        Asked { rng: Rng::new(seed, "who asks"), tokens: Vec::new() }
    }
}

impl Sim {
    /// Who asks this. Most are the one who may do everything.
    pub(crate) fn who_asks(&mut self, ask: &Ask) -> Who {
        if !self.plan.asked {
            return Who::Nobody;
        }
        let (rng, now) = (&mut self.asked.rng, self.oracle.model.users.now());
        let named = |name: String| std::sync::Arc::<str>::from(name);
        let some = format!("u{}", rng.below(4));
        let share = if matches!(ask, Ask::Command(Command::Users(_))) { 80 } else { 40 };
        if rng.percent(share) {
            return Who::Certified { user: named(ROOT.to_string()) };
        }
        match rng.below(20) {
            0 => Who::Nobody,
            1 => Who::Invalid,
            2..=5 => {
                let user = if rng.percent(30) { ROOT.to_string() } else { some };
                Who::Signed { user: named(user), revision: now.revision.saturating_sub(rng.below(20) / 17).max(1) }
            }
            6..=10 if !self.asked.tokens.is_empty() => {
                let nth = rng.below(self.asked.tokens.len() as u64) as usize;
                Who::Token(Secret::new(&self.asked.tokens[nth]))
            }
            11 => Who::Token(Secret::new(&format!("t0.{}", self.oracle.model.last().index + rng.below(30)))),
            _ => Who::Certified { user: named(some) },
        }
    }

    /// The program itself, for the simulator's own needs.
    pub(crate) fn staff(&self) -> Who {
        if self.plan.asked { Who::Member } else { Who::Nobody }
    }

    /// Somebody has a token.
    pub(crate) fn logged_in(&mut self, simple: &str, index: u64) {
        self.asked.tokens.push(format!("{simple}.{index}"));
        if self.asked.tokens.len() > TOKENS {
            self.asked.tokens.remove(0);
        }
    }

    /// Whether some state that the member had meanwhile says so: lets the asker in, or refuses it
    /// with this error.
    fn might_be(&self, who: usize, op: &Pending, refused: Option<&Error>) -> bool {
        let Some(needs) = of_ask(&op.ask) else { return true };
        let states = self.oracle.model.users.between(op.applied, self.oracle.applied(who).max(op.applied));
        let leases = needs.contains(&Need::SomeLease);
        states.iter().enumerate().any(|(at, seen)| {
            seen.seen(&op.asker).into_iter().any(|asker| {
                let Some(mut asker) = asker else { return refused == Some(&Error::InvalidAuthToken) };
                if let (Ask::ReadTxn { .. }, Asker::User { revision, .. }, Some(Error::AuthOldRevision)) =
                    (&op.ask, &mut asker, refused)
                {
                    // If it compares values that are in files, the log decides it, later.
                    revision.get_or_insert(seen.revision);
                }
                states[at..].iter().any(|state| {
                    let said = state.lets(&asker, &needs, |_| Vec::new());
                    let of_lease = leases
                        && said.is_ok()
                        && state.enabled
                        && matches!(refused, Some(Error::PermissionDenied | Error::AuthOldRevision));
                    of_lease || said.err().as_ref() == refused
                })
            })
        })
    }

    /// An answer that is no refusal.
    pub(crate) fn was_let_in(&mut self, who: usize, op: &Pending) {
        if !self.plan.asked || self.is_hurt(who) || self.oracle.is_harmed(who) {
            return;
        }
        if matches!(op.asker, Who::Token(_)) && self.oracle.model.users.now().enabled {
            self.marks.hit("a token was good");
        }
        if !self.might_be(who, op, None) {
            let text = format!("m{} lets {} ask {:?}", who + 1, shown(&op.asker), op.ask);
            self.fail("U-2", text);
        }
    }

    /// True: the refusal was about the one who asked.
    pub(crate) fn was_kept_out(&mut self, who: usize, op: &Pending, error: &Error) -> bool {
        if !self.plan.asked || matches!(op.ask, Ask::Command(_)) && *error != Error::InvalidAuthToken {
            return false;
        }
        match error {
            Error::PermissionDenied => self.marks.hit("a request was denied"),
            Error::UserEmpty => self.marks.hit("who had not logged in was refused"),
            Error::AuthOldRevision => self.marks.hit("an old revision of users was refused"),
            Error::InvalidAuthToken => self.marks.hit("a token was not known"),
            _ => {}
        }
        if matches!(op.ask, Ask::Command(_)) {
            return false;
        }
        if self.is_hurt(who) || self.oracle.is_harmed(who) {
            let users = matches!(op.ask, Ask::Users(_)) && *error == Error::UserNotFound;
            return is_of_asker(error) || users;
        }
        if self.might_be(who, op, Some(error)) {
            return true;
        }
        if is_of_asker(error) {
            let text = format!("m{} refuses {} with {error:?}: {:?}", who + 1, shown(&op.asker), op.ask);
            self.fail("U-2", text);
        }
        is_of_asker(error)
    }

    /// Whom an entry of the log names is who asked for it, or nobody.
    pub(crate) fn check_asker(&mut self, op: &Pending) {
        let Some(written) = self.oracle.asker_of(op.tag).filter(|_| self.plan.asked) else { return };
        let right = match (written, &op.asker) {
            (Asker::Nobody, _) => true,
            (Asker::Member, _) => false,
            (Asker::User { name, .. }, Who::Certified { user }) => **name == **user,
            (Asker::User { name, revision }, Who::Signed { user, revision: signed }) => {
                **name == **user && *revision == Some(*signed)
            }
            (Asker::User { name, .. }, Who::Token(token)) => {
                let index = self.oracle.index_of(op.tag).unwrap_or(0);
                let states = self.oracle.model.users.between(op.applied, index);
                states.iter().any(|state| state.tokens.get(token.shown()) == Some(name))
            }
            (Asker::User { .. }, Who::Nobody | Who::Invalid | Who::Member) => false,
        };
        if !right {
            let text = format!("{} asked for operation {}, and its entry names {written:?}", shown(&op.asker), op.tag);
            self.fail("U-2", text);
        }
    }
}

fn shown(who: &Who) -> String {
    match who {
        Who::Token(token) => format!("token {}", token.shown()),
        who => format!("{who:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn state(permissions: &[(i64, &[u8], &[u8])]) -> State {
        let held = permissions.iter().map(|(kind, key, end)| (*kind, key.to_vec(), end.to_vec())).collect();
        let mut state = State { enabled: true, revision: 5, ..State::default() };
        state.roles.insert("r".to_string(), held);
        state.users.insert("u".to_string(), BTreeSet::from(["r".to_string()]));
        state.users.insert(ROOT.to_string(), BTreeSet::from([ROOT.to_string()]));
        state
    }

    fn asker(name: &str, revision: Option<u64>) -> Asker {
        Asker::User { name: name.to_string(), revision }
    }

    #[test]
    fn neighbouring_permissions_add_up() {
        let state = state(&[(0, b"a", b"b"), (2, b"b", b"d"), (1, b"x", b"")]);
        let lets = |key: &[u8], end: &[u8], write| {
            state.lets(&asker("u", None), &[Need::User, keys(key, end, write)], |_| Vec::new())
        };
        assert_eq!(lets(b"a", b"d", false), Ok(()));
        assert_eq!(lets(b"a", b"d", true), Err(Error::PermissionDenied));
        assert_eq!(lets(b"b", b"c", true), Ok(()));
        assert_eq!(lets(b"x", b"", true), Ok(()));
        assert_eq!(lets(b"x", b"", false), Err(Error::PermissionDenied));
        assert_eq!(lets(b"a", b"\0", false), Err(Error::PermissionDenied));
    }

    #[test]
    fn who_it_is_counts() {
        let state = state(&[(2, b"\0", b"\0")]);
        let on = |_| vec![b"k".to_vec()];
        let put = [Need::User, keys(b"k", b"", true), Need::Lease { id: 1, write: true }];
        assert_eq!(state.lets(&asker("u", None), &put, on), Ok(()));
        assert_eq!(state.lets(&asker("u", Some(4)), &put, on), Err(Error::AuthOldRevision));
        assert_eq!(state.lets(&asker("nobody", None), &put, on), Err(Error::PermissionDenied));
        assert_eq!(state.lets(&Asker::Nobody, &put, on), Err(Error::UserEmpty));
        assert_eq!(state.lets(&asker("u", None), &[Need::Admin], on), Err(Error::PermissionDenied));
        assert_eq!(state.lets(&asker("nobody", None), &[Need::Admin], on), Err(Error::UserNotFound));
        assert_eq!(state.lets(&asker(ROOT, Some(1)), &[Need::Admin], on), Ok(()));
        assert_eq!(state.lets(&asker("u", None), &[Need::SelfOr("u".to_string())], on), Ok(()));
        assert_eq!(state.lets(&Asker::Member, &put, on), Ok(()));
        assert_eq!(State::default().lets(&Asker::Nobody, &put, on), Ok(()));
    }
}
