//! Who asks, and whether it may: from a request to what it needs.
//!
//! Commands are decided in apply (`store::auth`), so that the log's order counts. Everything else
//! is decided here, on this member's state, when the request is served.

use crate::io::{AuthQuery, Request};
use std::sync::Arc;
use store::Store;
use store::auth::{Asker, Need, needs_of};

/// Who asks, as far as this member knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    Member,
    Nobody,
    /// `revision`: of users and roles, as a signed token says it. None: the present one.
    User {
        name: Arc<str>,
        revision: Option<u64>,
    },
}

impl Identity {
    pub(crate) fn asker<'a>(&'a self, store: &Store) -> Asker<'a> {
        match self {
            Identity::Member => Asker::Member,
            Identity::Nobody => Asker::Nobody,
            Identity::User { name, revision } => {
                Asker::User { name, revision: revision.unwrap_or(store.auth().revision()) }
            }
        }
    }
}

/// What a request needs, kept until it is served.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    identity: Identity,
    needs: Vec<Need>,
}

impl Guard {
    /// Nothing is left to ask.
    pub(crate) fn passed() -> Guard {
        Guard { identity: Identity::Member, needs: Vec::new() }
    }

    pub(crate) fn new(store: &Store, identity: Identity, request: &Request) -> Guard {
        // Without users nothing is listed; if they are asked for later, it is denied.
        let free = identity == Identity::Nobody && !store.auth().enabled() && !is_open(request);
        let needs = if free || identity == Identity::Member { Vec::new() } else { needs(request) };
        Guard { identity, needs }
    }

    pub(crate) fn check(&self, store: &Store) -> Result<(), store::Error> {
        if self.identity == Identity::Nobody && self.needs.is_empty() && store.auth().enabled() {
            return Err(store::Error::UserEmpty);
        }
        store.permit(self.identity.asker(store), &self.needs)
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// Anybody may ask it, with or without users: what [`needs`] says so of. Without users it costs
/// nothing.
fn is_open(request: &Request) -> bool {
    match request {
        Request::Auth { query: AuthQuery::Status | AuthQuery::Password { .. } }
        | Request::WalkNext { .. }
        | Request::WalkEnd { .. }
        | Request::BackupNext { .. }
        | Request::BackupEnd { .. }
        | Request::History { .. }
        | Request::Barrier => true,
        Request::Auth { .. }
        | Request::Range { .. }
        | Request::Watch { .. }
        | Request::Propose { .. }
        | Request::ReadTxn { .. }
        | Request::Compact { .. }
        | Request::HashKv { .. }
        | Request::Hash
        | Request::Backup
        | Request::MoveLeader { .. }
        | Request::ChangeMember { .. }
        | Request::Admin
        | Request::KeepAlive { .. }
        | Request::TimeToLive { .. }
        | Request::Leases
        | Request::Members { .. }
        | Request::Status
        | Request::Alarms { .. } => false,
    }
}

/// What the request needs. A command's needs are listed again in apply, which decides.
pub(crate) fn needs(request: &Request) -> Vec<Need> {
    if is_open(request) {
        return vec![Need::Nothing];
    }
    match request {
        Request::Range { query, .. } => vec![Need::User, Need::Read(query.range.clone())],
        Request::Watch { range } => vec![Need::User, Need::Read(range.clone())],
        Request::Propose { body, .. } | Request::ReadTxn { body, .. } => match store::command::decode(body) {
            Ok(envelope) => needs_of(&envelope.command),
            Err(_) => Vec::new(), // denied
        },
        Request::Compact { .. }
        | Request::HashKv { .. }
        | Request::Hash
        | Request::Backup
        | Request::MoveLeader { .. }
        | Request::ChangeMember { .. }
        | Request::Admin => vec![Need::Admin],
        Request::KeepAlive { lease } => vec![Need::User, Need::WriteLease(*lease)],
        Request::TimeToLive { keys: false, .. } => vec![Need::User],
        Request::TimeToLive { lease, keys: true } => vec![Need::User, Need::ReadLease(*lease)],
        Request::Leases => vec![Need::User, Need::ReadLeases],
        Request::Members { .. } | Request::Status | Request::Alarms { .. } => vec![Need::User],
        Request::Auth { query } => match query {
            // A password is compared at the edge, and its hash goes nowhere else.
            AuthQuery::Status | AuthQuery::Password { .. } => Vec::new(),
            AuthQuery::User { name } => vec![Need::SelfOr(name.clone())],
            AuthQuery::Role { name } => vec![Need::HoldsOr(name.clone())],
            AuthQuery::Users | AuthQuery::Roles => vec![Need::Admin],
        },
        // Parts of calls that were let in, and the checks of health.
        Request::WalkNext { .. }
        | Request::WalkEnd { .. }
        | Request::BackupNext { .. }
        | Request::BackupEnd { .. }
        | Request::History { .. }
        | Request::Barrier => Vec::new(),
    }
}
