//! The state as etcd would keep it in its file, for a backup that stock tools restore.
//!
//! The head is taken at once, then the revisions at or below the compacted one that compaction
//! left are gathered in slices. The rows of the bucket `key` come from the records afterwards:
//! [`Export::rows`] says which of them count. Everything else is small and is [`Export::buckets`].

use crate::apply::Position;
use crate::auth::{Auth, encode_role, encode_user};
use crate::protobuf::write_varint;
use crate::state::{Conf, Store};
use crate::{AlarmMember, Key, KeyRange, Member, Rev};
use std::fmt::Write;

/// A bucket of etcd: its name and its pairs, ascending by key.
pub type Table = (&'static str, Vec<(Vec<u8>, Vec<u8>)>);

/// The bucket whose rows are the records.
pub const RECORDS: &str = "key";

/// What a file of etcd would hold at one applied index.
#[derive(Clone, Debug)]
pub struct Export {
    /// The last entry that is in it.
    pub applied: Position,
    /// Rows go up to this revision.
    pub revision: i64,
    /// -1: never compacted.
    pub compacted: i64,
    /// Such as `3.7.0`; empty while the cluster has none.
    pub cluster_version: String,
    members: Vec<Member>,
    conf: Conf,
    removed: Vec<u64>,
    alarms: Vec<AlarmMember>,
    /// (id, seconds granted)
    leases: Vec<(i64, i64)>,
    auth: Auth,
    /// Rows at or below the compacted revision; in order once gathered.
    kept: Vec<Rev>,
    after: Option<Key>,
}

/// Says of records in the order of their revisions which of them are rows.
#[derive(Debug)]
pub struct Rows<'a> {
    export: &'a Export,
    kept: &'a [Rev],
    missed: usize,
}

impl Store {
    /// The head of an export. Until it is gathered and its records are read, a pin at the
    /// compacted revision must keep them.
    pub fn export(&self) -> Export {
        let kept = if self.compacted > 0 { Vec::with_capacity(self.keys() as usize) } else { Vec::new() };
        Export {
            applied: self.applied,
            revision: self.revision,
            compacted: self.compacted,
            cluster_version: self.cluster_version.clone(),
            members: self.members.values().cloned().collect(),
            conf: self.conf.clone(),
            removed: self.removed.iter().copied().collect(),
            alarms: self.alarms.iter().copied().collect(),
            leases: self.leases.iter().map(|(id, lease)| (id, lease.ttl)).collect(),
            auth: self.auth.clone(),
            kept,
            after: None,
        }
    }

    /// Looks at up to `most` keys more. True once all keys were seen.
    pub fn gather_export(&self, export: &mut Export, most: usize) -> bool {
        if export.compacted <= 0 {
            return true; // no row has a revision so low
        }
        let mut seen = 0;
        let after = export.after.take();
        self.keys.scan_after(&KeyRange::all(), after.as_deref(), |key, entry| {
            let dead = crate::compact::dead_versions(entry, export.compacted);
            let retained = entry.versions().skip(dead).take_while(|version| version.main <= export.compacted);
            export.kept.extend(retained.map(|version| version.rev()));
            seen += 1;
            if seen == most {
                export.after = Some(key.into());
            }
            seen < most
        });
        if seen < most {
            export.kept.sort_unstable();
        }
        seen < most
    }
}

impl Rows<'_> {
    /// Whether the record at `rev` is a row. To be asked in ascending order.
    pub fn has(&mut self, rev: Rev) -> bool {
        if rev.main > self.export.compacted {
            return rev.main <= self.export.revision;
        }
        let passed = self.kept.iter().take_while(|kept| **kept < rev).count();
        self.missed += passed;
        self.kept = &self.kept[passed..];
        let has = self.kept.first() == Some(&rev);
        if has {
            self.kept = &self.kept[1..];
        }
        has
    }

    /// Rows at or below the compacted revision that were not asked for. If there are any after
    /// the last record, records are missing.
    pub fn missing(&self) -> usize {
        self.missed + self.kept.len()
    }
}

impl Export {
    /// The rows of the bucket `key`, by revision; their values are fetched by handle.
    pub fn rows(&self) -> Rows<'_> {
        Rows { export: self, kept: &self.kept, missed: 0 }
    }

    /// Every bucket that etcd 3.7 has, ascending by name. `key` is empty here.
    pub fn buckets(&self) -> Vec<Table> {
        let mut tables = vec![
            ("alarm", self.alarms.iter().map(|alarm| (alarm_key(alarm), Vec::new())).collect()),
            ("auth", self.auth_pairs()),
            ("authRoles", self.auth.roles().map(|role| named(&role.name, |out| encode_role(role, out))).collect()),
            ("authUsers", self.auth.users().map(|user| named(&user.name, |out| encode_user(user, out))).collect()),
            ("cluster", self.version("clusterVersion")),
            (RECORDS, Vec::new()),
            ("lease", self.leases.iter().map(|(id, ttl)| lease_pair(*id, *ttl)).collect()),
            ("members", self.members.iter().map(|member| self.member_pair(member)).collect()),
            ("members_removed", self.removed.iter().map(|id| (hex(*id), b"removed".to_vec())).collect()),
            ("meta", self.meta()),
        ];
        tables.iter_mut().for_each(|(_, pairs)| pairs.sort_unstable());
        tables
    }

    /// The flag is there once it was set, as in etcd.
    fn auth_pairs(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut pairs = vec![(b"authRevision".to_vec(), self.auth.revision().to_be_bytes().to_vec())];
        if !self.auth.untouched() {
            pairs.push((b"authEnabled".to_vec(), vec![u8::from(self.auth.enabled())]));
        }
        pairs
    }

    fn version(&self, key: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
        let version = &self.cluster_version;
        if version.is_empty() { Vec::new() } else { vec![(key.into(), version.clone().into())] }
    }

    fn member_pair(&self, member: &Member) -> (Vec<u8>, Vec<u8>) {
        let mut json = format!("{{\"id\":{},\"peerURLs\":", member.id);
        write_list(&mut json, &member.peer_urls);
        if self.conf.learners.contains(&member.id) {
            json += ",\"isLearner\":true";
        }
        if !member.name.is_empty() {
            json += ",\"name\":";
            write_text(&mut json, &member.name);
        }
        if !member.client_urls.is_empty() {
            json += ",\"clientURLs\":";
            write_list(&mut json, &member.client_urls);
        }
        json.push('}');
        (hex(member.id), json.into())
    }

    fn meta(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut pairs = self.version("storageVersion");
        pairs.push((b"confState".to_vec(), self.conf_state().into()));
        pairs.push((b"consistent_index".to_vec(), self.applied.index.to_be_bytes().to_vec()));
        pairs.push((b"term".to_vec(), self.applied.term.to_be_bytes().to_vec()));
        if self.compacted >= 0 {
            let compacted = crate::hash::bucket_key(Rev { main: self.compacted, sub: 0 }, false);
            pairs.push((b"scheduledCompactRev".to_vec(), compacted.clone()));
            pairs.push((b"finishedCompactRev".to_vec(), compacted));
        }
        pairs
    }

    fn conf_state(&self) -> String {
        let ids = |name: &str, ids: &[u64]| {
            let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
            if ids.is_empty() { String::new() } else { format!("\"{name}\":[{}],", ids.join(",")) }
        };
        let (voters, learners) = (ids("voters", &self.conf.voters), ids("learners", &self.conf.learners));
        format!("{{{voters}{learners}\"auto_leave\":false}}")
    }
}

/// A message under a name.
fn named(name: &str, encode: impl FnOnce(&mut Vec<u8>)) -> (Vec<u8>, Vec<u8>) {
    let mut value = Vec::new();
    encode(&mut value);
    (name.as_bytes().to_vec(), value)
}

fn hex(id: u64) -> Vec<u8> {
    format!("{id:x}").into_bytes()
}

/// `AlarmMember` as a message.
fn alarm_key(alarm: &AlarmMember) -> Vec<u8> {
    let mut key = Vec::new();
    write_varint(&mut key, 1, alarm.member);
    write_varint(&mut key, 2, i64::from(alarm.alarm).cast_unsigned());
    key
}

/// Under the id, a `Lease` message. What is left of it etcd does not store by default: a lease
/// begins anew when a file is restored.
fn lease_pair(id: i64, ttl: i64) -> (Vec<u8>, Vec<u8>) {
    let mut value = Vec::new();
    write_varint(&mut value, 1, id.cast_unsigned());
    write_varint(&mut value, 2, ttl.cast_unsigned());
    (id.cast_unsigned().to_be_bytes().to_vec(), value)
}

fn write_list(json: &mut String, texts: &[String]) {
    json.push('[');
    for (at, text) in texts.iter().enumerate() {
        if at > 0 {
            json.push(',');
        }
        write_text(json, text);
    }
    json.push(']');
}

/// A string of JSON with the escapes that Go writes.
fn write_text(json: &mut String, text: &str) {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\u{8}' => json.push_str("\\b"),
            '\u{c}' => json.push_str("\\f"),
            '\0'..' ' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                write!(json, "\\u{:04x}", u32::from(c)).expect("a string takes everything");
            }
            other => json.push(other),
        }
    }
    json.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Config;

    fn member(id: u64, name: &str) -> Member {
        Member {
            id,
            name: name.into(),
            peer_urls: vec!["http://a:2380".into(), "http://b:2380".into()],
            client_urls: if name.is_empty() { vec![] } else { vec!["http://a:2379".into()] },
        }
    }

    #[test]
    fn small_buckets_are_written_as_etcd_does() {
        let mut store = Store::genesis(
            Config::default(),
            vec![member(0x5a8f_91fe_4611_9c16, "default"), member(16, "a<b>\"\u{1}")],
            Position { index: 49, term: 2 },
        );
        store.conf.learners = vec![store.conf.voters.remove(0)];
        store.members.insert(0xf0, member(0xf0, ""));
        store.removed.insert(0xab);
        store.alarms.insert(AlarmMember { member: 300, alarm: 1 });
        store.cluster_version = "3.7.0".into();
        store.compacted = 3;
        let mut text = String::new();
        for (name, pairs) in store.export().buckets() {
            text += &format!("{name}\n");
            for (key, value) in pairs {
                text += &format!("  {} = {}\n", key.escape_ascii(), value.escape_ascii());
            }
        }
        let expected = r#"alarm
  \x08\xac\x02\x10\x01 = 
auth
  authRevision = \x00\x00\x00\x00\x00\x00\x00\x01
authRoles
authUsers
cluster
  clusterVersion = 3.7.0
key
lease
members
  10 = {\"id\":16,\"peerURLs\":[\"http://a:2380\",\"http://b:2380\"],\"isLearner\":true,\"name\":\"a\\u003cb\\u003e\\\"\\u0001\",\"clientURLs\":[\"http://a:2379\"]}
  5a8f91fe46119c16 = {\"id\":6525594906366417942,\"peerURLs\":[\"http://a:2380\",\"http://b:2380\"],\"name\":\"default\",\"clientURLs\":[\"http://a:2379\"]}
  f0 = {\"id\":240,\"peerURLs\":[\"http://a:2380\",\"http://b:2380\"]}
members_removed
  ab = removed
meta
  confState = {\"voters\":[6525594906366417942],\"learners\":[16],\"auto_leave\":false}
  consistent_index = \x00\x00\x00\x00\x00\x00\x001
  finishedCompactRev = \x00\x00\x00\x00\x00\x00\x00\x03_\x00\x00\x00\x00\x00\x00\x00\x00
  scheduledCompactRev = \x00\x00\x00\x00\x00\x00\x00\x03_\x00\x00\x00\x00\x00\x00\x00\x00
  storageVersion = 3.7.0
  term = \x00\x00\x00\x00\x00\x00\x00\x02
"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn a_lease_is_stored_under_its_id() {
        let (key, value) = lease_pair(0x1c16_a220_305c_5c07, 100_000);
        assert_eq!(key, b"\x1c\x16\xa2 0\\\\\x07");
        assert_eq!(&value[..1], b"\x08");
        assert_eq!(&value[value.len() - 4..], b"\x10\xa0\x8d\x06");
        assert_eq!(lease_pair(-1, 5).0, [0xff; 8]);
    }

    #[test]
    fn rows_are_what_compaction_kept_and_everything_after_it() {
        let mut export = Store::new(Config::default()).export();
        let rev = |main, sub| Rev { main, sub };
        (export.revision, export.compacted) = (9, 5);
        export.kept = vec![rev(2, 1), rev(4, 0), rev(5, 0)];
        let mut rows = export.rows();
        let asked = [(2, 0), (2, 1), (3, 0), (4, 0), (4, 1), (5, 0), (5, 1), (6, 0), (9, 3), (10, 0)];
        let has: Vec<bool> = asked.iter().map(|(main, sub)| rows.has(rev(*main, *sub))).collect();
        assert_eq!(has, [false, true, false, true, false, true, false, true, true, false]);
        assert_eq!(rows.missing(), 0);
        let mut rows = export.rows();
        assert!(rows.has(rev(4, 0)));
        assert_eq!(rows.missing(), 2, "2.1 was passed over and 5.0 never asked for");
    }
}
