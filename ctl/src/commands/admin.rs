//! The administrative commands: members, endpoints, upkeep, users and roles.

use super::Command;

/// Those of the stock tool.
pub const TABLE: &[Command] = &[];

/// Those that only `kvorum ctl` has.
pub const PEOPLE_TABLE: &[Command] = &[];
