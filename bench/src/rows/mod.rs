//! The rows: what load is put on a server, one file each.

pub mod bound;
pub mod compact;
mod keys;
pub mod lease;
pub mod list;
pub mod pods;
pub mod rest;
pub mod soak;
pub mod unary;
pub mod watch;
mod watchers;
