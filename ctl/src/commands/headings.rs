//! Under which heading of the help a command stands.

/// Heading of the commands that deal with keys.
pub const KEYS: &str = "Key-value commands";
/// Heading of the commands that look after the cluster.
pub const CLUSTER: &str = "Cluster maintenance commands";
/// Heading of locks and elections.
pub const CONCURRENCY: &str = "Concurrency commands";
/// Heading of users and roles.
pub const AUTH: &str = "Authentication commands";
/// Heading of the rest.
pub const UTILITY: &str = "Utility commands";
/// Heading of what only `kvorum ctl` has.
pub const PEOPLE: &str = "Commands for people";
