//! A cluster in one thread: members with a disk each, and a bag of messages in flight. Nothing
//! happens unless a test says so. The cluster itself watches what must always hold.

#![allow(dead_code)]

use bytes::Bytes;
use consensus::*;
use std::collections::{BTreeMap, VecDeque};

/// What survives a crash.
#[derive(Clone)]
pub struct Disk {
    pub hard: HardState,
    pub base: Snapshot,
    pub entries: Vec<Entry>,
    /// Remembered until it is over.
    pub doubt: Option<Doubt>,
}

impl Disk {
    fn save(&mut self, save: &Save) {
        assert!(save.hard.term >= self.hard.term, "term goes back on disk");
        let commit = self.hard.commit.max(save.hard.commit);
        self.hard = HardState { commit, ..save.hard };
        if let Some(first) = save.entries.first() {
            let keep = first.index - self.base.index - 1;
            self.entries.truncate(keep as usize);
            self.entries.extend(save.entries.iter().cloned());
        }
    }
}

pub struct Member {
    pub id: u64,
    pub live: Option<Consensus>,
    pub disk: Disk,
    pub unsaved: VecDeque<Save>,
    pub conf: ConfState,
    pub applied: u64,
    pub install: Option<(u64, Snapshot)>,
    pub fetches: VecDeque<Fetch>,
    pub boots: u64,
    pub role: Role,
}

/// A member was heard to say that another one, or itself, lost what it had.
pub struct Lost {
    pub told: u64,
    pub lost: u64,
}

pub struct Cluster {
    pub seed: u64,
    pub cache_bytes: u64,
    pub members: BTreeMap<u64, Member>,
    pub network: Vec<Message>,
    /// index → (term, data) of everything any member applied.
    pub history: BTreeMap<u64, Entry>,
    pub leaders: BTreeMap<u64, u64>,
    /// token → least index that its answer may have.
    pub reads: BTreeMap<u64, u64>,
    pub served: u64,
    pub lost_data: Vec<Lost>,
    pub trace: Vec<String>,
    pub auto_save: bool,
    pub next_read: u64,
}

impl Cluster {
    pub fn new(seed: u64, voters: &[u64]) -> Cluster {
        let mut cluster = Cluster {
            seed,
            cache_bytes: 1 << 20,
            members: BTreeMap::new(),
            network: Vec::new(),
            history: BTreeMap::new(),
            leaders: BTreeMap::new(),
            reads: BTreeMap::new(),
            served: 0,
            lost_data: Vec::new(),
            trace: Vec::new(),
            auto_save: true,
            next_read: 0,
        };
        let conf = ConfState { voters: voters.to_vec(), learners: Vec::new() };
        let base = Snapshot { index: 1, term: 1, conf, manifest: Bytes::from_static(b"genesis") };
        for id in voters {
            cluster.add(*id, base.clone(), HardState { term: 1, vote: 0, commit: 1 });
        }
        cluster
    }

    /// A member without membership: it waits for a snapshot.
    pub fn join(&mut self, id: u64) {
        let (conf, manifest) = Default::default();
        let base = Snapshot { index: 0, term: 0, conf, manifest };
        self.add(id, base, HardState::default());
    }

    fn add(&mut self, id: u64, base: Snapshot, hard: HardState) {
        let disk = Disk { hard, entries: Vec::new(), base, doubt: None };
        let (unsaved, conf, fetches) = Default::default();
        let (applied, boots, role) = (0, 0, Role::Follower);
        let (live, install) = (None, None);
        let member = Member { id, live, disk, unsaved, conf, applied, install, fetches, boots, role };
        self.members.insert(id, member);
        self.restart(id);
    }

    pub fn crash(&mut self, id: u64) {
        let member = self.member(id);
        member.live = None;
        member.unsaved.clear();
        member.fetches.clear();
        member.install = None;
        member.role = Role::Follower;
    }

    pub fn restart(&mut self, id: u64) {
        self.crash(id);
        let (seed, cache_bytes) = (self.seed, self.cache_bytes);
        let member = self.member(id);
        member.boots += 1;
        let disk = &member.disk;
        let applied = disk.hard.commit.max(disk.base.index);
        let mut conf = disk.base.conf.clone();
        let mut at = disk.base.position();
        for entry in disk.entries.iter().filter(|entry| entry.index <= applied) {
            at = entry.position();
            if entry.kind == EntryKind::Config {
                conf = conf.after(&ConfChange::decode(&entry.data).unwrap()).unwrap();
            }
        }
        member.conf = conf.clone();
        member.applied = applied;
        let config = Config {
            id,
            seed,
            boot: member.boots,
            election_ticks: 10,
            heartbeat_ticks: 2,
            max_message_bytes: 100,
            max_uncommitted_bytes: 4000,
            cache_bytes,
        };
        // What is applied may come back as its terms alone.
        let (old, entries): (Vec<_>, Vec<_>) = disk.entries.iter().cloned().partition(|entry| entry.index <= applied);
        let mut terms: Vec<Position> = old.iter().map(Entry::position).collect();
        terms.dedup_by_key(|run| run.term);
        terms.retain(|run| run.term > disk.base.term);
        let restored = Restored {
            hard: disk.hard,
            conf,
            applied: Position { index: applied, ..at },
            entries,
            boundary: disk.base.position(),
            terms,
            doubt: disk.doubt,
            voters_lost: false,
        };
        member.live = Some(Consensus::new(config, restored));
        self.say(format!("{id} starts at {applied}"));
        self.turn(id);
    }

    pub fn member(&mut self, id: u64) -> &mut Member {
        self.members.get_mut(&id).expect("a member of the test")
    }

    pub fn say(&mut self, line: String) {
        self.trace.push(line);
    }

    /// Calls a live member and then takes its turn.
    pub fn call<T>(&mut self, id: u64, body: impl FnOnce(&mut Consensus) -> T) -> Option<T> {
        let result = self.member(id).live.as_mut().map(body);
        self.turn(id);
        result
    }

    pub fn status(&self, id: u64) -> Option<Status> {
        self.members[&id].live.as_ref().map(Consensus::status)
    }

    pub fn leader(&self) -> Option<u64> {
        let statuses = self.members.keys().filter_map(|id| self.status(*id));
        let leaders = statuses.filter(|status| status.role == Role::Leader);
        leaders.max_by_key(|status| status.term).map(|status| status.id)
    }

    pub fn read(&mut self, id: u64) {
        // Everything applied anywhere was committed before this read began.
        let least = self.history.keys().next_back().copied().unwrap_or(0);
        self.next_read += 1;
        let token = self.next_read;
        self.reads.insert(token, least);
        self.call(id, |consensus| consensus.read(token));
    }

    pub fn turn(&mut self, id: u64) {
        loop {
            let Some(live) = self.member(id).live.as_mut() else {
                return;
            };
            let mut turn = Turn::default();
            live.turn(&mut turn);
            if turn.is_empty() {
                return;
            }
            self.carry_out(id, turn);
        }
    }

    fn carry_out(&mut self, id: u64, turn: Turn) {
        if let Some(soft) = turn.soft {
            self.on_soft(id, soft);
        }
        for message in turn.messages {
            assert_eq!(message.from(), id);
            assert!(
                message.to() != id && self.members.contains_key(&message.to()),
                "{id} speaks to nobody: {message:?}"
            );
            self.say(format!("{id} sends {message:?}"));
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            let decoded = Message::decode(bytes.into()).expect("we read what we wrote");
            assert_eq!(decoded, message);
            self.network.push(decoded);
        }
        if let Some(save) = turn.save {
            let entries: Vec<String> = save.entries.iter().map(|e| format!("{}/{}", e.index, e.term)).collect();
            let HardState { term, vote, commit } = save.hard;
            self.say(format!("{id} saves term={term} vote={vote} commit={commit} {entries:?}"));
            let (first, applied) =
                (save.entries.first().map_or(u64::MAX, |entry| entry.index), self.member(id).applied);
            assert!(first > applied, "{id} rewrites entry {first} and has applied {applied}");
            self.member(id).unsaved.push_back(save);
        }
        for entry in turn.committed {
            self.apply(id, entry);
        }
        if turn.doubt_changed {
            let doubt = self.member(id).live.as_ref().and_then(Consensus::doubt);
            self.member(id).disk.doubt = doubt;
            self.say(match doubt {
                None => format!("{id} has no doubt"),
                Some(Doubt { promise: None, .. }) => format!("{id} does not know what it promised"),
                Some(Doubt { promise: Some(at), .. }) => format!("{id} promised up to {}/{}", at.index, at.term),
            });
        }
        for (token, result) in turn.reads {
            self.say(format!("{id} read {token}: {result:?}"));
            let least = self.reads.remove(&token).expect("each read is answered once");
            if let Ok(index) = result {
                self.served += 1;
                assert!(index >= least, "stale read: {index} but {least} was committed before");
            }
        }
        assert!(turn.contradicted.is_none(), "{id}: {:?}", turn.contradicted);
        for lost in turn.lost_data {
            self.say(format!("{id} says {lost} lost data"));
            self.lost_data.push(Lost { told: id, lost });
        }
        if let Some(index) = turn.want_snapshot {
            self.say(format!("{id} wants snapshot >= {index} for {:?}", turn.want_snapshot_for));
            self.offer(id);
        }
        if let Some((from, snapshot)) = turn.install {
            self.say(format!("{id} installs {} from {from}", snapshot.index));
            self.member(id).install = Some((from, snapshot));
        }
        for fetch in turn.fetch {
            self.say(format!("{id} fetches from {}", fetch.from_index));
            self.member(id).fetches.push_back(fetch);
        }
        // Last, since it takes a turn of its own.
        while self.auto_save && !self.member(id).unsaved.is_empty() {
            self.save(id);
        }
    }

    fn on_soft(&mut self, id: u64, soft: Soft) {
        self.say(format!("{id} is {:?} term={} leader={}", soft.role, soft.term, soft.leader));
        self.member(id).role = soft.role;
        if soft.role == Role::Leader {
            let known = *self.leaders.entry(soft.term).or_insert(id);
            assert_eq!(known, id, "two leaders in term {}", soft.term);
        }
    }

    fn apply(&mut self, id: u64, entry: Entry) {
        self.say(format!("{id} applies {}/{}", entry.index, entry.term));
        let known = self.history.entry(entry.index).or_insert_with(|| entry.clone()).clone();
        assert_eq!(known, entry, "member {id} applied another entry");
        let before = self.history.range(..entry.index).next_back().map_or(0, |(_, before)| before.term);
        assert!(before <= entry.term, "entry {} has term {} behind term {before}", entry.index, entry.term);
        let member = self.member(id);
        let place = (entry.index - member.disk.base.index - 1) as usize;
        assert_eq!(member.disk.entries.get(place), Some(&entry), "applied but not durable");
        assert_eq!(entry.index, member.applied + 1);
        member.applied = entry.index;
        let live = member.live.as_mut().expect("it is running");
        if entry.kind == EntryKind::Config {
            let change = ConfChange::decode(&entry.data).unwrap();
            member.conf = live.conf_applied(&change);
        }
        live.applied(entry.index);
    }

    /// The oldest save becomes durable.
    pub fn save(&mut self, id: u64) {
        let member = self.member(id);
        let Some(save) = member.unsaved.pop_front() else {
            return;
        };
        member.disk.save(&save);
        self.call(id, |consensus| consensus.saved(save.number));
    }

    /// A checkpoint of what is applied.
    pub fn offer(&mut self, id: u64) {
        let member = self.member(id);
        let index = member.applied;
        let term = term_of(&member.disk, index);
        let conf = member.conf.clone();
        let manifest = Bytes::from(format!("checkpoint {index}"));
        let snapshot = Snapshot { index, term, conf, manifest };
        if let Some(live) = member.live.as_mut() {
            live.offer_snapshot(snapshot);
        }
    }

    /// A checkpoint, and the log below it is forgotten.
    pub fn compact(&mut self, id: u64) {
        self.offer(id);
        let member = self.member(id);
        let index = member.applied;
        let (term, conf) = (term_of(&member.disk, index), member.conf.clone());
        let manifest = Bytes::from_static(b"compacted");
        member.disk.entries.retain(|entry| entry.index > index);
        member.disk.base = Snapshot { index, term, conf, manifest };
        self.call(id, |consensus| consensus.compact_cache(index + 1));
    }

    /// The held snapshot's files arrive.
    pub fn install(&mut self, id: u64) {
        let member = self.member(id);
        let Some((from, snapshot)) = member.install.take() else {
            return;
        };
        while !self.member(id).unsaved.is_empty() {
            self.save(id);
        }
        let member = self.member(id);
        member.disk.base = snapshot.clone();
        member.disk.entries.clear();
        member.disk.hard.commit = snapshot.index;
        member.disk.hard.term = member.disk.hard.term.max(snapshot.term);
        member.applied = snapshot.index;
        member.conf = snapshot.conf.clone();
        self.call(id, |consensus| consensus.installed(&snapshot));
        if self.members.contains_key(&from) {
            self.call(from, |consensus| consensus.snapshot_sent(id, true));
        }
    }

    pub fn abandon(&mut self, id: u64) {
        if let Some((from, _)) = self.member(id).install.take() {
            self.call(id, Consensus::abandon_install);
            self.call(from, |consensus| consensus.snapshot_sent(id, false));
        }
    }

    pub fn fetch(&mut self, id: u64) {
        let member = self.member(id);
        let Some(fetch) = member.fetches.pop_front() else {
            return;
        };
        let mut bytes = 0;
        let mut entries = Vec::new();
        for entry in member.disk.entries.iter().skip_while(|e| e.index < fetch.from_index) {
            bytes += entry.data.len() as u64;
            if !entries.is_empty() && bytes > fetch.max_bytes {
                break;
            }
            entries.push(entry.clone());
        }
        entries = if entries.first().is_some_and(|e| e.index == fetch.from_index) { entries } else { Vec::new() };
        self.call(id, |consensus| consensus.fetched(fetch.ticket, entries));
    }

    /// `id` asks `peer`: both tell their standing.
    pub fn ask(&mut self, id: u64, peer: u64) {
        let Some(question) = self.members[&id].live.as_ref().map(|asks| asks.standing(peer)) else { return };
        self.call(peer, |consensus| consensus.hear(id, question, false));
        let Some(answer) = self.members[&peer].live.as_ref().map(|answers| answers.standing(id)) else { return };
        self.call(id, |consensus| consensus.hear(peer, answer, true));
    }

    /// The disk of a crashed member loses every entry above `index`.
    pub fn lose_tail(&mut self, id: u64, index: u64, doubt: Option<Doubt>) {
        self.say(format!("{id} lost what it had above {index}: {doubt:?}"));
        let disk = &mut self.member(id).disk;
        disk.entries.retain(|entry| entry.index <= index);
        disk.hard.commit = disk.hard.commit.min(index);
        disk.doubt = match (disk.doubt, doubt) {
            (Some(old), Some(new)) => Some(old.and(new)),
            (old, new) => old.or(new),
        };
    }

    pub fn deliver(&mut self, at: usize) {
        let message = self.network.remove(at);
        let to = message.to();
        if self.members.contains_key(&to) {
            self.call(to, |consensus| consensus.step(message));
        }
    }

    /// Delivers in order until nothing moves, saving, fetching and installing on the way.
    pub fn settle(&mut self) {
        for _ in 0..10_000 {
            if !self.network.is_empty() {
                self.deliver(0);
                continue;
            }
            let ids: Vec<u64> = self.members.keys().copied().collect();
            for id in &ids {
                self.save(*id);
                self.fetch(*id);
                self.install(*id);
            }
            let idle = self.members.values().all(|m| m.unsaved.is_empty() && m.fetches.is_empty());
            if self.network.is_empty() && idle {
                return;
            }
        }
        panic!("the cluster does not settle");
    }
}

fn term_of(disk: &Disk, index: u64) -> u64 {
    if index == disk.base.index {
        return disk.base.term;
    }
    disk.entries[(index - disk.base.index - 1) as usize].term
}
