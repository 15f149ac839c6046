//! `migrate`: the storage version of an etcd's file, one minor version at a time. A directory of
//! kvorum has none, and no etcd can open it.

use crate::call::{Call, Failure};
use crate::etcd::{self, backend};
use crate::kvorum;
use crate::print::log;
use crate::rewrite::{Change, Exclusive, exclusive, rewrite};
use crate::version::{API, Version};
use serde_json::json;
use std::path::Path;

const PLACE: &str = "schema/migrate.rs";
/// The oldest that is migrated to; it does not write its version down.
const OLDEST: Version = Version { major: 3, minor: 5 };
const KEY: &[u8] = b"storageVersion";

pub fn run(call: &Call) -> Result<(), Failure> {
    let text = call.text("target-version");
    let target = Version::parse(text).ok_or_else(|| {
        Failure::bad_arguments(format!("wrong target version format, expected \"X.Y\", got {text:?}"))
    })?;
    if target < OLDEST {
        return Err(Failure::bad_arguments(format!("target version {text:?} not supported. Minimal \"3.5\"")));
    }
    let dir = call.text("data-dir");
    if kvorum::is_data_dir(Path::new(dir)) {
        return of_kvorum(dir, target);
    }
    let path = backend(dir);
    let held = exclusive(call, &path)?;
    match migrate(call, &held, &path, target) {
        Err(Failure::Plain { text, .. }) if call.switch("force") => force(&held, &path, target, &text),
        done => done,
    }
}

fn of_kvorum(dir: &str, target: Version) -> Result<(), Failure> {
    if target == API {
        let reason = json!("a directory of kvorum follows no storage version of etcd");
        log(
            "info",
            PLACE,
            "storage version up-to-date",
            &[("storage-version", json!(target.to_string())), ("reason", reason)],
        );
        return Ok(());
    }
    Err(Failure::new(format!(
        "{dir} is a data directory of kvorum, which no etcd can open: to go to etcd {}, save a snapshot of the running \
         member (etcdctl snapshot save) and restore it with that etcd's etcdutl",
        target
    )))
}

fn migrate(call: &Call, held: &Exclusive, path: &Path, target: Version) -> Result<(), Failure> {
    let current = {
        let db = etcd::open_held(path)?;
        etcd::detected_version(&db)?
    };
    let current = current
        .strip_suffix(".0")
        .and_then(Version::parse)
        .ok_or_else(|| Failure::new(format!("cannot detect storage version: {:?} in {}", current, path.display())))?;
    if current == target {
        log("info", PLACE, "storage version up-to-date", &[("storage-version", json!(target.to_string()))]);
        return Ok(());
    }
    if let Some(unknown) = [current, target].into_iter().find(|version| *version > API || version.major != API.major) {
        return Err(Failure::new(format!("cannot create migration plan: version \"{}.0\" is not supported", unknown)));
    }
    if target < current {
        let fields = [("data-dir", json!(call.text("data-dir")))];
        log(
            "warn",
            PLACE,
            "the write-ahead log is not searched for entries that the older version cannot read",
            &fields,
        );
    }
    // In between nothing but the version changes: one new file will do.
    set(held, path, target)?;
    let mut version = current;
    while version != target {
        version.minor = if version < target { version.minor + 1 } else { version.minor - 1 };
        log("info", PLACE, "updated storage version", &[("new-storage-version", json!(format!("{version}.0")))]);
    }
    Ok(())
}

fn set(held: &Exclusive, path: &Path, version: Version) -> Result<(), Failure> {
    let text = format!("{version}.0");
    let value = (version > OLDEST).then_some(text.as_bytes());
    rewrite(held, path, Some(&Change { key: KEY, value })).map(drop)
}

fn force(held: &Exclusive, path: &Path, target: Version, why: &str) -> Result<(), Failure> {
    log("info", PLACE, "normal migrate failed, trying with force", &[("error", json!(why))]);
    set(held, path, target)?;
    match target > OLDEST {
        true => {
            log("warn", PLACE, "forcefully set storage version", &[("storage-version", json!(target.to_string()))]);
        }
        false => log("warn", PLACE, "forcefully cleared storage version", &[]),
    }
    Ok(())
}
