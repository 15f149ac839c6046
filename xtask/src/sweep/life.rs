//! The life that the damaged directories come from: small and big values, deletes, leases, a
//! compaction, checkpoints, an idle end, a busy end and a clean stop. It is lived once per worker,
//! with the real program, and what was acknowledged is written down.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use wire::{Rpc, etcdserverpb as pb};

use super::{
    copy::copy_dir,
    places::System,
    read::{State, read_all},
};
use crate::{
    raw::Raw,
    rng::Rng,
    server::{self, Program, Server},
};

/// Until a member that nothing is wrong with serves.
pub const READY: Duration = Duration::from_secs(60);
/// Writers at the busy end.
const WRITERS: u64 = 4;
const BIG: usize = 1_040_000;
const LEASE_TTL: i64 = 10_000_000;

/// Short enough that an election takes a moment, long enough for a busy machine.
pub const TIMES: [&str; 4] = ["--heartbeat-interval", "50", "--election-timeout", "500"];

/// What the keys of the busy end must be. Every key is written once.
#[derive(Clone, Debug, Default)]
pub struct Busy {
    /// Acknowledged: value and revision.
    pub acknowledged: BTreeMap<Bytes, (Bytes, i64)>,
    /// Sent, with or without an answer.
    pub sent: BTreeMap<Bytes, Bytes>,
}

/// The members' directories at one moment at which all of them were down.
#[derive(Clone, Debug)]
pub struct Image {
    /// How the life ended: `idle`, `killed` or `stopped`.
    pub end: &'static str,
    /// Of each member.
    pub dirs: Vec<PathBuf>,
    /// Earlier directories of the first member, the oldest first.
    pub older: Vec<PathBuf>,
    /// The last member was down during the last writes.
    pub lagging: bool,
    pub busy: Busy,
}

/// A life and what must be found of it.
#[derive(Debug)]
pub struct Life {
    pub specs: Vec<server::Spec>,
    pub images: Vec<Image>,
    /// The state before the busy end; the busy keys come on top of it.
    pub quiet: State,
}

struct Living<'a> {
    system: System,
    dir: &'a Path,
    members: Vec<Server>,
    busy: Busy,
    rounds: u64,
    images: Vec<Image>,
    older: Vec<PathBuf>,
}

/// Lives it below `dir`.
///
/// # Errors
/// If the program does not do what it must without any damage.
pub async fn live(system: System, program: &Program, members: usize, dir: &Path, seed: u64) -> Result<Life> {
    let home = dir.join("life");
    fs::create_dir_all(&home).with_context(|| home.display().to_string())?;
    let mut extra: Vec<String> = TIMES.iter().map(ToString::to_string).collect();
    extra.extend(match system {
        System::Etcd => ["--snapshot-count", "40"].map(String::from),
        // A day of scrubbing in seconds.
        System::Kvorum => ["--scrub-interval", "2s"].map(String::from),
    });
    let mut members = server::cluster(program, members, &home, &extra)?;
    for member in &mut members {
        member.ready(READY).await?;
    }
    let (busy, images, older) = (Busy::default(), Vec::new(), Vec::new());
    let mut living = Living { system, dir, members, busy, rounds: 0, images, older };
    let quiet = living.grow_up(seed).await?;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    living.kill_all();
    living.image("idle", false)?;

    living.start().await?;
    let lagging = living.members.len() > 1;
    if lagging {
        living.members.last_mut().expect("three").kill();
        living.members[0].ready(READY).await?;
    }
    living.work(true).await;
    living.image("killed", lagging)?;

    living.start().await?;
    living.work(false).await;
    for member in &mut living.members {
        member.terminate().await;
    }
    living.image("stopped", false)?;
    let specs = living.members.iter().map(|member| member.spec.clone()).collect();
    Ok(Life { specs, images: living.images, quiet })
}

impl Living<'_> {
    async fn start(&mut self) -> Result<()> {
        for member in self.members.iter_mut().filter(|member| !member.runs()) {
            member.restart()?;
        }
        for member in &mut self.members {
            member.ready(READY).await?;
        }
        Ok(())
    }

    fn kill_all(&mut self) {
        self.members.iter_mut().for_each(Server::kill);
    }

    /// Copies the directories of members that are down.
    fn image(&mut self, end: &'static str, lagging: bool) -> Result<()> {
        let mut dirs = Vec::new();
        for member in &self.members {
            let to = self.dir.join("images").join(end).join(&member.spec.name);
            copy_dir(&member.spec.data_dir, &to)?;
            dirs.push(to);
        }
        let older = self.older.clone();
        self.older.push(dirs[0].clone());
        self.images.push(Image { end, dirs, older, lagging, busy: self.busy.clone() });
        Ok(())
    }

    async fn raw(&self) -> Result<Raw> {
        Raw::connect(&self.members[0].endpoint()).await
    }

    /// All but the busy end.
    async fn grow_up(&mut self, seed: u64) -> Result<State> {
        let raw = self.raw().await?;
        let mut rng = Rng::new(seed);
        small(&raw, &mut rng, 150).await?;
        for id in 1..=12 {
            let _: pb::LeaseGrantResponse =
                raw.call(Rpc::LeaseGrant, &pb::LeaseGrantRequest { ttl: LEASE_TTL + id, id }).await?;
            put(&raw, &format!("lease/{id}"), value("lease", 40), id).await?;
        }
        big(&raw, &mut rng, ("first", 12), 40).await?;
        let revision = small(&raw, &mut rng, 60).await?;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let early = self.dir.join("early").join(&self.members[0].spec.name);
        copy_dir(&self.members[0].spec.data_dir, &early)?;
        self.older.push(early);
        self.compact(&raw, revision - 70).await?;
        big(&raw, &mut rng, ("second", 8), 28).await?;
        let revision = small(&raw, &mut rng, 120).await?;
        self.compact(&raw, revision - 145).await?;
        let quiet = read_all(&raw, true, None).await.map_err(anyhow::Error::msg)?;
        for member in &self.members[1..] {
            let other = Raw::connect(&member.endpoint()).await?;
            let theirs = read_all(&other, true, Some(quiet.revision)).await.map_err(anyhow::Error::msg)?;
            if theirs.hash != quiet.hash {
                bail!("the members differ before any damage was done");
            }
        }
        Ok(quiet)
    }

    /// A compaction that is on the disk when it is answered; for kvorum this is a checkpoint too.
    async fn compact(&self, raw: &Raw, revision: i64) -> Result<()> {
        let physical = true;
        let _: pb::CompactionResponse = raw.call(Rpc::Compact, &pb::CompactionRequest { revision, physical }).await?;
        if self.system == System::Kvorum {
            // The other members' checkpoints are their own matter; they come soon.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    }

    /// Writes of several clients at once, until they are told to end or all members are killed.
    async fn work(&mut self, until_killed: bool) {
        self.rounds += 1;
        let shared = Arc::new(Mutex::new(std::mem::take(&mut self.busy)));
        let endpoint = self.members[0].endpoint();
        let count = if until_killed { u64::MAX } else { 25 };
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| tokio::spawn(busy(endpoint.clone(), Arc::clone(&shared), (self.rounds, writer), count)))
            .collect();
        if until_killed {
            tokio::time::sleep(Duration::from_millis(400)).await;
            self.kill_all();
        }
        for writer in writers {
            // A writer ends with its connection.
            let _ = writer.await;
        }
        self.busy = std::mem::take(&mut *shared.lock().expect("nothing panics under this lock"));
    }
}

async fn busy(endpoint: String, shared: Arc<Mutex<Busy>>, (round, writer): (u64, u64), count: u64) {
    let Ok(raw) = Raw::connect(&endpoint).await else { return };
    for n in 0..count {
        let key = format!("busy/{round}/{writer}/{n}");
        let (name, value) = (Bytes::from(key.clone()), value(&key, 100 + (n as usize * 37) % 900));
        shared.lock().expect("nothing panics under this lock").sent.insert(name.clone(), value.clone());
        let Ok(revision) = put(&raw, &key, value.clone(), 0).await else { return };
        shared.lock().expect("nothing panics under this lock").acknowledged.insert(name, (value, revision));
    }
}

/// Bytes that follow from the tag, none of them zero.
fn value(tag: &str, len: usize) -> Bytes {
    let seed = tag.bytes().fold(7u64, |hash, byte| hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte));
    let mut rng = Rng::new(seed);
    let mut bytes = tag.as_bytes().to_vec();
    while bytes.len() < len {
        bytes.extend((rng.next() | 0x0101_0101_0101_0101).to_le_bytes());
    }
    bytes.truncate(len.max(tag.len()));
    bytes.into()
}

async fn put(raw: &Raw, key: &str, value: Bytes, lease: i64) -> Result<i64> {
    let request = pb::PutRequest { key: Bytes::from(key.to_string()), value, lease, ..Default::default() };
    let answer: pb::PutResponse = raw.call(Rpc::Put, &request).await?;
    Ok(answer.header.context("a header")?.revision)
}

/// Puts and deletes of 60 keys; the last revision.
async fn small(raw: &Raw, rng: &mut Rng, count: u64) -> Result<i64> {
    let mut revision = 0;
    for n in 0..count {
        let key = format!("small/{}", rng.below(60));
        if rng.percent(12) {
            let request = pb::DeleteRangeRequest { key: key.into(), ..Default::default() };
            let answer: pb::DeleteRangeResponse = raw.call(Rpc::DeleteRange, &request).await?;
            revision = answer.header.context("a header")?.revision;
            continue;
        }
        revision = put(raw, &key, value(&format!("{key}={n}"), 60 + rng.below(400) as usize), 0).await?;
    }
    Ok(revision)
}

/// Values of a megabyte, on so many keys in turns.
async fn big(raw: &Raw, rng: &mut Rng, (name, keys): (&str, u64), count: u64) -> Result<()> {
    for n in 0..count {
        let key = format!("big/{name}/{}", n % keys);
        put(raw, &key, value(&format!("{key}={n}/{}", rng.next()), BIG), 0).await?;
    }
    Ok(())
}

/// What a state lacks of what was acknowledged, and what it has that nobody wrote.
#[derive(Clone, Debug, Default)]
pub struct Difference {
    pub lost: Vec<String>,
    pub wrong: Vec<String>,
}

impl Difference {
    pub fn is_none(&self) -> bool {
        self.lost.is_empty() && self.wrong.is_empty()
    }
}

impl Life {
    /// Holds a state against what was acknowledged by the end of that image.
    pub fn differs(&self, image: &Image, found: &State) -> Difference {
        let mut difference = Difference::default();
        let named = |key: &Bytes| String::from_utf8_lossy(key).into_owned();
        for (key, due) in &self.quiet.kvs {
            match found.kvs.get(key) {
                None => difference.lost.push(named(key)),
                Some(kv) if kv == due => {}
                Some(kv) if kv.mod_revision < due.mod_revision => {
                    difference.lost.push(format!("{} is as of revision {}", named(key), kv.mod_revision));
                }
                Some(_) => difference.wrong.push(named(key)),
            }
        }
        for (key, (value, revision)) in &image.busy.acknowledged {
            match found.kvs.get(key) {
                None => difference.lost.push(named(key)),
                Some(kv) if kv.value == *value && kv.mod_revision == *revision => {}
                Some(_) => difference.wrong.push(named(key)),
            }
        }
        for (key, kv) in &found.kvs {
            let known = self.quiet.kvs.contains_key(key) || image.busy.acknowledged.contains_key(key);
            if !known && image.busy.sent.get(key) != Some(&kv.value) {
                difference.wrong.push(format!("{} should not be there", named(key)));
            }
        }
        let (leases, due): (&BTreeSet<i64>, _) = (&found.leases, &self.quiet.leases);
        difference.lost.extend(due.difference(leases).map(|id| format!("lease {id}")));
        difference.wrong.extend(leases.difference(due).map(|id| format!("lease {id} should not be there")));
        if found.hash != self.quiet.hash && difference.lost.is_empty() {
            difference.wrong.push(format!("HashKV at revision {}", self.quiet.revision));
        }
        difference
    }
}

#[cfg(test)]
mod tests {
    use super::super::read::by_key;
    use super::*;
    use wire::mvccpb::KeyValue;

    fn pair(key: &str, value: &str, revision: i64) -> KeyValue {
        KeyValue {
            key: Bytes::from(key.to_string()),
            value: Bytes::from(value.to_string()),
            create_revision: 2,
            mod_revision: revision,
            version: revision - 1,
            lease: 0,
        }
    }

    fn state(kvs: &[KeyValue]) -> State {
        State { revision: 9, kvs: by_key(kvs.to_vec()), leases: [5].into(), hash: 77 }
    }

    #[test]
    fn what_is_lost_and_what_is_wrong_is_told_apart() {
        let quiet = state(&[pair("a", "two", 3)]);
        let life = Life { specs: vec![], images: vec![], quiet: quiet.clone() };
        let mut busy = Busy::default();
        busy.acknowledged.insert("b".into(), ("one".into(), 4));
        busy.sent.insert("b".into(), "one".into());
        busy.sent.insert("c".into(), "unknown".into());
        let image = Image { end: "killed", dirs: vec![], older: vec![], lagging: false, busy };
        let (a, b, c) = (pair("a", "two", 3), pair("b", "one", 4), pair("c", "unknown", 5));
        let told = |found: &State| {
            let difference = life.differs(&image, found);
            (difference.lost.len(), difference.wrong.len())
        };
        assert_eq!(told(&state(&[a.clone(), b.clone()])), (0, 0));
        assert_eq!(told(&state(&[a.clone(), b.clone(), c])), (0, 0), "a write without an answer may be there");
        assert_eq!(told(&state(std::slice::from_ref(&a))), (1, 0), "an acknowledged write is gone");
        assert_eq!(told(&state(&[pair("a", "one", 2), b.clone()])), (1, 0), "an older value is a lost write");
        assert_eq!(told(&state(&[pair("a", "twx", 3), b.clone()])), (0, 1), "a value that nobody wrote");
        assert_eq!(told(&state(&[a.clone(), b.clone(), pair("d", "", 6)])), (0, 1), "a key that was deleted");
        let mut found = state(&[a, b]);
        found.leases.clear();
        found.hash = 78;
        assert_eq!(told(&found), (1, 0), "a lease is gone");
        found.leases = quiet.leases;
        assert_eq!(told(&found), (0, 1), "an older version, which no range shows, differs");
    }
}
