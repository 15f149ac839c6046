//! The administrative commands: members, endpoints, upkeep, users and roles.

mod alarm;
mod answer;
mod auth;
mod check;
mod defrag;
mod doctor;
mod downgrade;
mod each;
mod endpoint;
pub(super) mod gofmt;
mod health;
mod joining;
mod member;
mod memory;
mod move_leader;
mod replace;
mod role;
mod roster;
mod snapshot;
mod status;
mod top;
mod user;
mod whom;

use crate::call::Command;
pub(super) use snapshot::settle;

/// Those of the stock tool, in the order in which it proposes them.
pub const TABLE: &[Command] = &[
    alarm::ALARM,
    defrag::DEFRAG,
    downgrade::DOWNGRADE,
    endpoint::ENDPOINT,
    member::MEMBER,
    move_leader::MOVE_LEADER,
    snapshot::SNAPSHOT,
    auth::AUTH_COMMAND,
    role::ROLE,
    user::USER,
    check::CHECK,
];

/// The same for `kvorum ctl`, which takes a member's name where the stock tool takes its id.
pub const OURS_TABLE: &[Command] = &[
    alarm::OURS,
    defrag::DEFRAG,
    downgrade::DOWNGRADE,
    endpoint::ENDPOINT,
    member::OURS,
    move_leader::OURS,
    snapshot::SNAPSHOT,
    auth::AUTH_COMMAND,
    role::ROLE,
    user::USER,
    check::CHECK,
];

/// Those that only `kvorum ctl` has.
pub const PEOPLE_TABLE: &[Command] = &[doctor::DOCTOR, top::TOP];
