//! `version`: which etcdutl this stands in for.

use crate::call::{Call, Failure};

/// The etcd whose tool this is.
pub const ETCD_LEVEL: &str = "3.7.3";
/// Its API, and the storage version it writes.
pub const API: Version = Version { major: 3, minor: 7 };

/// A version of etcd without its patch level: `3.7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Versions of another major cannot be migrated to.
    pub major: u64,
    /// Each has a storage format of its own; migration goes one at a time.
    pub minor: u64,
}

impl Version {
    /// Two numbers with a dot in between; None if it is anything else.
    pub fn parse(text: &str) -> Option<Version> {
        let (major, minor) = text.split_once('.')?;
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        (digits(major) && digits(minor))
            .then(|| Some(Version { major: major.parse().ok()?, minor: minor.parse().ok()? }))?
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

pub fn run(call: &Call) -> Result<(), Failure> {
    println!("etcdutl version: {ETCD_LEVEL}\nAPI version: {API}");
    if call.root().name != crate::call::STOCK {
        println!("kvorum version: {}", env!("CARGO_PKG_VERSION"));
    }
    Ok(())
}
