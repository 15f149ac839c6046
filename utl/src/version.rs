//! `version`: which etcdutl this stands in for.

use crate::call::{Call, Failure};

/// The etcd whose tool this is.
pub const ETCD_LEVEL: &str = "3.7.3";
/// Its API, and the storage version it writes.
pub const API: (u64, u64) = (3, 7);

pub fn run(call: &Call) -> Result<(), Failure> {
    println!("etcdutl version: {ETCD_LEVEL}\nAPI version: {}.{}", API.0, API.1);
    if call.root().name != crate::STOCK {
        println!("kvorum version: {}", env!("CARGO_PKG_VERSION"));
    }
    Ok(())
}
