//! What members may hold, and ranges that are read in slices.

use super::Cluster;
use node::{Config, Found, Request};
use std::fmt::Write;

/// Settings of members that start afterwards.
#[derive(Default)]
pub struct Budgets {
    /// Items of an answer that comes whole; None: the default.
    whole: Option<usize>,
    /// Bytes; None: the default.
    quota: Option<i64>,
    /// Bytes of entries that wait for apply; None: the default.
    unapplied: Option<u64>,
}

impl Budgets {
    pub fn configure(&self, config: &mut Config) {
        if let Some(items) = self.whole {
            (config.budgets.whole_answer_items, config.budgets.slice_keys) = (items, items);
        }
        config.quota_bytes = self.quota.unwrap_or(config.quota_bytes);
        config.budgets.unapplied = self.unapplied.unwrap_or(config.budgets.unapplied);
    }
}

/// `walk ID`: the next slice. `walk-end ID`. None: neither.
pub fn request(words: &[&str]) -> Option<Request> {
    match *words {
        ["walk", walk] => Some(Request::WalkNext { walk: walk.parse().expect("walk") }),
        ["walk-end", walk] => Some(Request::WalkEnd { walk: walk.parse().expect("walk") }),
        _ => None,
    }
}

impl Cluster {
    /// `whole ITEMS` (answers of more come in slices of so many), `quota BYTES`, `unapplied BYTES`;
    /// `waits 2` (what waits there for apply). False: none of them.
    pub fn budget_command(&mut self, words: &[&str]) -> bool {
        match words {
            ["whole", items] => self.budgets.whole = Some(items.parse().expect("items")),
            ["quota", bytes] => self.budgets.quota = Some(bytes.parse().expect("bytes")),
            ["unapplied", bytes] => self.budgets.unapplied = Some(bytes.parse().expect("bytes")),
            ["waits", id] => {
                let held = self.machines[&id.parse().expect("id")].node.status().held;
                let (kib, cached) = (held.unapplied >> 10, held.entry_cache >> 10);
                let _ = writeln!(self.told, "{id}: {kib} KiB of entries wait for apply, {cached} KiB are in memory");
            }
            _ => return false,
        }
        true
    }

    pub(super) fn values(&self, id: u64, found: &Found) -> String {
        let kvs: Vec<String> = found.places().map(|at| self.value(id, at)).collect();
        kvs.join(" ")
    }

    pub(super) fn value(&self, id: u64, at: &store::Located) -> String {
        let record = at.bytes.clone().unwrap_or_else(|| {
            let files = self.machines[&id].files.shared();
            disk::records::read(&*files, at.handle).expect("a record")
        });
        let opened = store::record::open(&record).expect("whole");
        let kv = store::record::key_value(&opened.body).expect("a key value");
        let value = String::from_utf8_lossy(kv.value);
        let value = if value.len() > 12 { format!("{}*{}", &value[..1], value.len()) } else { value.into_owned() };
        format!("{}={}#{}", String::from_utf8_lossy(kv.key), value, kv.version)
    }
}
