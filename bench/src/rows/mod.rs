//! The rows: what load is put on a server, one file each.

pub mod unary;
