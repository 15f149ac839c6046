//! What the edge makes of a client's request: the body of an entry, and what it takes of the quota.
//! The product's way and the simulator's own must agree on both, and on what is refused.

use crate::cluster::{MIN_TTL, Sim};
use crate::model::acceptable;
use crate::ops::{Command, Delete, Put, Txn};
use store::command::{self, AlarmAction, Checked, LEASE_GRANT_COST, Write};

/// Operations that a transaction may have.
const MOST: i64 = 128;

/// The product's way. None: refused.
fn product(command: &Command) -> Option<Write> {
    let own = |body: Checked, cost| Some(Write { body, cost });
    match command {
        Command::Put(put) => command::put(&put.encode()).ok(),
        Command::Delete(delete) => command::delete_range(&delete.encode()).ok(),
        Command::Txn(txn) => command::txn(&txn.encode(), MOST).ok().map(|txn| txn.write),
        Command::Compact { revision, physical } => own(command::encode_compaction(*revision, *physical), 0),
        Command::Grant { id, ttl } => own(command::encode_lease_grant(*id, *ttl, MIN_TTL), LEASE_GRANT_COST),
        Command::Revoke { id } => own(command::encode_lease_revoke(*id), 0),
        Command::Alarm { action, member, kind } => {
            let action = if *action == 1 { AlarmAction::Activate } else { AlarmAction::Deactivate };
            own(command::encode_alarm(action, *member, *kind as i32), 0)
        }
        Command::Users(change) => {
            let (what, message) = change.encode();
            own(store::auth::AuthCommand::decode(what, &message.0).ok()??.body(), 0)
        }
        Command::Checkpoint { .. } | Command::Expire { .. } | Command::Nothing => None,
    }
}

/// A neighbour of a command that etcd refuses, or may refuse.
fn neighbour(command: &Command) -> Option<(Command, bool)> {
    Some(match command {
        Command::Put(put) if put.ignore_value => (Command::Put(Put { value: b"v".to_vec(), ..put.clone() }), false),
        Command::Put(put) if put.lease != 0 => (Command::Put(Put { ignore_lease: true, ..put.clone() }), false),
        Command::Put(put) => (Command::Put(Put { key: Vec::new(), ..put.clone() }), false),
        Command::Delete(delete) => (Command::Delete(Delete { key: Vec::new(), ..delete.clone() }), false),
        Command::Txn(txn) => {
            let twice = Txn { success: [&txn.success[..], &txn.failure[..]].concat(), ..txn.clone() };
            let right = acceptable(&twice, MOST as usize);
            (Command::Txn(twice), right)
        }
        _ => return None,
    })
}

impl Sim {
    /// What the command takes of the quota, in bytes.
    pub(crate) fn cost(&mut self, command: &Command) -> u64 {
        let own = command.encode(0);
        let Some(write) = product(command).filter(|write| write.body[..] == own[..]) else {
            self.fail("codec", format!("the edge refuses {command:?}, or makes another entry of it"));
            return 0;
        };
        if let Some((other, right)) = neighbour(command)
            && product(&other).is_some() != right
        {
            self.fail("codec", format!("the edge takes {other:?}, or refuses it wrongly: right is {right}"));
        }
        write.cost
    }
}
