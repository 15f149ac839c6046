//! What a stopped member's directory has that a cluster could go on with: for `kvorum ctl recover`,
//! which compares several of them. Nothing in the directory changes.

use crate::call::Failure;
use crate::kvorum::{self, hash_of};
use disk::{contradicted, corrupt};
use node::offline::{Whole, whole};
use serde_json::{Value, json};
use std::path::Path;
use store::Store;

/// A member as its cluster knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The member's id.
    pub id: u64,
    /// Empty until it has started.
    pub name: String,
    /// URLs at which other members reach it.
    pub peer_urls: Vec<String>,
    /// URLs at which clients reach it.
    pub client_urls: Vec<String>,
    /// It has no vote.
    pub learner: bool,
}

/// A place in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Term of the entry.
    pub term: u64,
    /// The entry.
    pub index: u64,
}

/// What is in one directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Where it was looked at.
    pub dir: String,
    /// Id of the cluster.
    pub cluster: u64,
    /// Id of the member.
    pub member: u64,
    /// Names the founding; 0: not known.
    pub founding: u64,
    /// The last durable entry.
    pub last: Place,
    /// The first entry of each run of one term, ascending, and before them where the log begins.
    pub terms: Vec<Place>,
    /// The last entry that is known to be committed.
    pub commit: u64,
    /// The revision there.
    pub committed_revision: i64,
    /// The revision with everything that the log holds.
    pub revision: i64,
    /// What was compacted; -1: nothing.
    pub compacted: i64,
    /// Keys at the newest revision.
    pub keys: u64,
    /// Leases.
    pub leases: u64,
    /// HashKV at the newest revision.
    pub hash: u32,
    /// Who belongs to the cluster.
    pub members: Vec<Known>,
    /// What is damaged or in doubt, each with its place.
    pub damage: Vec<String>,
    /// The log may have held more than it does: what is not in it may have been acknowledged.
    pub forgets: bool,
    /// Why no cluster can go on with it.
    pub unusable: Option<String>,
}

impl Survey {
    /// Looks at a directory.
    pub fn of(path: &Path) -> Survey {
        let dir = path.canonicalize().unwrap_or(path.to_path_buf()).display().to_string();
        let mut survey = Survey { dir, ..Survey::default() };
        if let Err(failure) = survey.look(path) {
            survey.unusable = Some(text_of(failure));
        }
        survey
    }

    fn look(&mut self, path: &Path) -> Result<(), Failure> {
        let directory = kvorum::open(path)?;
        let id = directory.identity;
        (self.cluster, self.member) = (id.cluster, id.member);
        let named = |fault| directory.named(fault);
        let marked = corrupt::marked(&*directory.files, id).map_err(named)?;
        let contradicted = contradicted::find(&*directory.files, id).map_err(named)?;
        let whole = whole(&directory.files, id, directory.log_options()).map_err(named)?;
        self.take(&whole);
        if marked {
            self.damage.push("log/corrupt: its state differed from that of the other members".to_string());
        }
        if let Some(seen) = contradicted {
            self.damage.push(format!("log/contradicted: two histories were seen: {seen}"));
        }
        let store = &whole.found.store;
        if store.member(id.member).is_none() {
            self.unusable = Some("this member was removed from its cluster".to_string());
        }
        // Every record is read for it, and compared with its checksum.
        match hash_of(&*directory.files, store, store.revision()) {
            Ok(hash) => self.hash = hash.hash,
            Err(fault) => self.damage.push(fault.to_string()),
        }
        Ok(())
    }

    fn take(&mut self, whole: &Whole) {
        let Whole { found, last, terms, boundary, commit, committed_revision, doubt, .. } = whole;
        let place = |at: &consensus::Position| Place { term: at.term, index: at.index };
        let store = &found.store;
        self.founding = store.founding();
        (self.last, self.commit, self.committed_revision) = (place(last), *commit, *committed_revision);
        self.terms = std::iter::once(boundary).chain(terms).map(place).collect();
        (self.revision, self.compacted) = (store.revision(), store.compacted());
        (self.keys, self.leases) = (store.keys(), store.leases().count() as u64);
        self.members = known(store);
        if let Some(fault) = &found.passed_over {
            self.damage.push(format!("{fault}: the older checkpoint is used"));
        }
        self.forgets = doubt.is_some();
        if let Some(doubt) = doubt {
            let upto = doubt.promise.map_or("an unknown entry".to_string(), |at| format!("entry {}", at.index));
            let sure = if doubt.sure { "was" } else { "may have been" };
            self.damage.push(format!(
                "{} at byte {}: {}: what {sure} here up to {upto} is lost",
                doubt.at.file, doubt.at.offset, doubt.at.what
            ));
        }
    }

    /// The term of an entry of this log, or of where it begins; None: it is not in it.
    pub fn term_of(&self, index: u64) -> Option<u64> {
        if index > self.last.index {
            return None;
        }
        self.terms.iter().rev().find(|run| run.index <= index).map(|run| run.term)
    }

    /// As JSON, for another machine.
    pub fn to_json(&self) -> Value {
        let place = |at: &Place| json!([at.term, at.index]);
        let member = |known: &Known| {
            json!({
                "id": hex(known.id), "name": known.name, "peerURLs": known.peer_urls,
                "clientURLs": known.client_urls, "learner": known.learner,
            })
        };
        json!({
            "dir": self.dir, "cluster": hex(self.cluster), "member": hex(self.member),
            "founding": hex(self.founding), "term": self.last.term, "entry": self.last.index,
            "terms": self.terms.iter().map(place).collect::<Vec<_>>(), "commit": self.commit,
            "committedRevision": self.committed_revision, "revision": self.revision,
            "compacted": self.compacted, "keys": self.keys, "leases": self.leases, "hash": self.hash,
            "members": self.members.iter().map(member).collect::<Vec<_>>(), "damage": self.damage,
            "forgets": self.forgets, "unusable": self.unusable,
        })
    }

    /// What [`Survey::to_json`] wrote; None: it is something else.
    pub fn from_json(value: &Value) -> Option<Survey> {
        let (number, signed) = (|name: &str| value.get(name)?.as_u64(), |name: &str| value.get(name)?.as_i64());
        let id = |value: &Value, name: &str| u64::from_str_radix(value.get(name)?.as_str()?, 16).ok();
        let text = |value: &Value, name: &str| Some(value.get(name)?.as_str()?.to_string());
        let place = |pair: &Value| Some(Place { term: pair.get(0)?.as_u64()?, index: pair.get(1)?.as_u64()? });
        let member = |value: &Value| {
            Some(Known {
                id: id(value, "id")?,
                name: text(value, "name")?,
                peer_urls: texts(value, "peerURLs")?,
                client_urls: texts(value, "clientURLs")?,
                learner: value.get("learner")?.as_bool()?,
            })
        };
        Some(Survey {
            dir: text(value, "dir")?,
            cluster: id(value, "cluster")?,
            member: id(value, "member")?,
            founding: id(value, "founding")?,
            last: Place { term: number("term")?, index: number("entry")? },
            terms: value.get("terms")?.as_array()?.iter().map(place).collect::<Option<_>>()?,
            commit: number("commit")?,
            committed_revision: signed("committedRevision")?,
            revision: signed("revision")?,
            compacted: signed("compacted")?,
            keys: number("keys")?,
            leases: number("leases")?,
            hash: u32::try_from(number("hash")?).ok()?,
            members: value.get("members")?.as_array()?.iter().map(member).collect::<Option<_>>()?,
            damage: texts(value, "damage")?,
            // An earlier version did not say it.
            forgets: value.get("forgets").is_none_or(|forgets| forgets != &json!(false)),
            unusable: value.get("unusable")?.as_str().map(str::to_string),
        })
    }
}

fn texts(value: &Value, name: &str) -> Option<Vec<String>> {
    value.get(name)?.as_array()?.iter().map(|text| Some(text.as_str()?.to_string())).collect()
}

fn hex(id: u64) -> String {
    format!("{id:x}")
}

fn known(store: &Store) -> Vec<Known> {
    let known = |member: &store::Member| Known {
        id: member.id,
        name: member.name.clone(),
        peer_urls: member.peer_urls.clone(),
        client_urls: member.client_urls.clone(),
        learner: store.is_learner(member.id),
    };
    store.members().map(known).collect()
}

fn text_of(failure: Failure) -> String {
    match failure {
        Failure::Usage(text) | Failure::Plain { text, .. } => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_survey_travels_as_json() {
        let survey = Survey {
            dir: "/d".into(),
            cluster: u64::MAX,
            member: 2,
            last: Place { term: 3, index: 9 },
            terms: vec![Place { term: 1, index: 2 }, Place { term: 3, index: 5 }],
            members: vec![Known { id: 2, name: "m".into(), peer_urls: vec!["u".into()], ..Known::default() }],
            damage: vec!["here".into()],
            forgets: true,
            unusable: Some("why".into()),
            ..Survey::default()
        };
        assert_eq!(Survey::from_json(&survey.to_json()), Some(survey.clone()));
        assert_eq!(Survey::from_json(&json!({"dir": "/d"})), None);
        let terms = [1, 2, 4, 5, 9, 10].map(|index| survey.term_of(index));
        assert_eq!(terms, [None, Some(1), Some(1), Some(3), Some(3), None]);
    }
}
