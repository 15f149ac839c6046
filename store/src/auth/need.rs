//! From a request to what it needs: the one place that says so, for everything a client can ask.

use super::Asker;
use super::wire::AuthCommand;
use crate::command::{AlarmAction, Command, PutRequest, RequestOp, TxnRequest};
use crate::state::Store;
use crate::{Error, KeyRange};

/// One thing that the asker must have. A request may need several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing: also who is nobody may ask.
    Nothing,
    /// To be a user, whatever its roles.
    User,
    /// The role `root`.
    Admin,
    /// To be this user, or an admin.
    SelfOr(String),
    /// To hold this role, or be an admin.
    HoldsOr(String),
    /// To read every key of the range.
    Read(KeyRange),
    /// To write every key of the range.
    Write(KeyRange),
    /// To write every key on the lease.
    WriteLease(i64),
    /// To read every key on the lease.
    ReadLease(i64),
    /// To read every key on every lease.
    ReadLeases,
}

/// What the command needs. Commands that no request of a client becomes need nothing.
pub fn needs_of(command: &Command<'_>) -> Vec<Need> {
    match command {
        Command::Empty
        | Command::LeaseCheckpoint { .. }
        | Command::Expire { .. }
        | Command::MemberAttr { .. }
        | Command::ClusterVersion { .. }
        | Command::Refound { .. } => vec![Need::Nothing],
        Command::Put(put) => {
            let mut needs = vec![Need::User];
            of_put(put, &mut needs);
            needs
        }
        Command::DeleteRange(delete) => {
            let mut needs = vec![Need::User, Need::Write(delete.range())];
            needs.extend(delete.prev_kv.then(|| Need::Read(delete.range())));
            needs
        }
        Command::Txn(txn) => {
            let mut needs = vec![Need::User];
            of_txn(txn, &mut needs);
            needs
        }
        Command::LeaseGrant { .. } => vec![Need::User],
        Command::LeaseRevoke { id } => vec![Need::User, Need::WriteLease(*id)],
        Command::Compaction { .. } => vec![Need::Admin],
        Command::Alarm { action: AlarmAction::Get, .. } => vec![Need::User],
        Command::Alarm { action: AlarmAction::Activate | AlarmAction::Deactivate, .. } => vec![Need::Admin],
        Command::Auth(AuthCommand::Authenticate { .. }) => vec![Need::Nothing],
        Command::Auth(
            AuthCommand::Enable
            | AuthCommand::Disable
            | AuthCommand::UserAdd { .. }
            | AuthCommand::UserDelete { .. }
            | AuthCommand::UserChangePassword { .. }
            | AuthCommand::UserGrantRole { .. }
            | AuthCommand::UserRevokeRole { .. }
            | AuthCommand::RoleAdd { .. }
            | AuthCommand::RoleDelete { .. }
            | AuthCommand::RoleGrantPermission { .. }
            | AuthCommand::RoleRevokePermission { .. },
        ) => vec![Need::Admin],
    }
}

/// A put on a lease needs every key that hangs on it: who cannot write one of them could not revoke
/// it.
fn of_put(put: &PutRequest<'_>, needs: &mut Vec<Need>) {
    let key = KeyRange::new(put.key, b"");
    needs.push(Need::Write(key.clone()));
    needs.extend((put.lease != 0).then_some(Need::WriteLease(put.lease)));
    needs.extend(put.prev_kv.then_some(Need::Read(key)));
}

/// Both branches, taken or not, at every depth.
fn of_txn(txn: &TxnRequest<'_>, needs: &mut Vec<Need>) {
    needs.extend(txn.compare.iter().map(|compare| Need::Read(compare.range())));
    for op in txn.success.iter().chain(&txn.failure) {
        match op {
            RequestOp::Range(range) => needs.push(Need::Read(KeyRange::new(range.key, range.range_end))),
            RequestOp::Put(put) => of_put(put, needs),
            RequestOp::DeleteRange(delete) => {
                needs.extend(delete.prev_kv.then(|| Need::Read(delete.range())));
                needs.push(Need::Write(delete.range()));
            }
            RequestOp::Txn(txn) => of_txn(txn, needs),
            RequestOp::None => {}
        }
    }
}

impl Store {
    /// Whether `asker` has everything of `needs`. While users are not asked for, everybody has.
    ///
    /// # Errors
    /// etcd's, for the first thing that is missing. A request that says of nothing what it needs is
    /// denied.
    pub fn permit(&self, asker: Asker<'_>, needs: &[Need]) -> Result<(), Error> {
        if !self.auth.enabled() || asker == Asker::Member {
            return Ok(());
        }
        if needs.is_empty() {
            return Err(Error::PermissionDenied);
        }
        needs.iter().try_for_each(|need| self.permit_one(asker, need))
    }

    fn permit_one(&self, asker: Asker<'_>, need: &Need) -> Result<(), Error> {
        if *need == Need::Nothing {
            return Ok(());
        }
        let Asker::User { name, revision } = asker else { return Err(Error::UserEmpty) };
        let auth = &self.auth;
        match need {
            Need::Nothing | Need::User => Ok(()),
            Need::Admin => auth.admin(name),
            Need::SelfOr(user) => auth.admin(name).or_else(|error| if user == name { Ok(()) } else { Err(error) }),
            Need::HoldsOr(role) => auth.admin(name).or_else(|error| {
                let holds = auth.user(name).is_some_and(|user| user.has(role));
                if holds { Ok(()) } else { Err(error) }
            }),
            Need::Read(range) => auth.keys(name, revision, range, false),
            Need::Write(range) => auth.keys(name, revision, range, true),
            Need::WriteLease(id) => self.permit_lease(name, revision, *id, true),
            Need::ReadLease(id) => self.permit_lease(name, revision, *id, false),
            Need::ReadLeases => {
                let mut ids = self.leases.ids_from(i64::MIN);
                ids.try_for_each(|id| self.permit_lease(name, revision, id, false))
            }
        }
    }

    fn permit_lease(&self, name: &str, revision: u64, id: i64, write: bool) -> Result<(), Error> {
        if self.auth.admin(name).is_ok() {
            return Ok(());
        }
        let Some(lease) = self.leases.get(id) else { return Ok(()) };
        self.auth.each_of(name, revision, &lease.keys, write)
    }
}
