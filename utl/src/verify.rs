//! `kvorum utl verify`: every file of a stopped member's directory, read and compared with what
//! it says of itself. Changes nothing: what a start would put right is only told.
//!
//! A torn tail of the log is no damage: a kill in the middle of a write leaves one, and nothing in
//! it was acknowledged. Nor is a doubtful one where a start asks the other members; a lone member
//! refuses it. Files that no checkpoint names do not count either.

use crate::call::{Call, Failure};
use crate::directory::Frozen;
use crate::etcd::go_text;
use crate::history::Hash;
use crate::kvorum::{hash_of, log_options};
use crate::print::{count, size};
use crate::progress::bar;
use bytes::Bytes;
use disk::checkpoint::{self, Manifest, SegmentFile};
use disk::identity::{self, Found};
use disk::{Fault, Files, HEADER, How, Identity, Log, OnDoubt, PAGE, Tail, contradicted, records, startover, transfer};
use indicatif::ProgressBar;
use node::offline::{Offline, offline};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use store::record;

/// Of damage below the proven end of the log, in a member with peers.
const CUT: &str = "a start cuts the log there, and the other members have the rest";

/// A place where bytes are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Damage {
    file: String,
    offset: u64,
    what: String,
    /// Why a member lives with it.
    harmless: Option<&'static str>,
}

impl Damage {
    /// Why a member lives with it, now that it is known whether it `starts`.
    fn remark(&self, starts: bool) -> Option<&'static str> {
        let of_checkpoint =
            ["state/index-", "state/tables-", "state/manifest-"].iter().any(|part| self.file.starts_with(part));
        self.harmless.or((starts && of_checkpoint).then_some("a start uses the other checkpoint"))
    }
}

/// What was read.
struct Verify {
    files: Arc<dyn Files>,
    damages: BTreeSet<Damage>,
    notes: Vec<String>,
    /// An end of the log on which a lone member does not start.
    doubtful: bool,
    /// A start gives the state up.
    starts_over: bool,
    /// The member has peers: a start makes good from them what is damaged.
    peers: bool,
    /// Nothing here says whether it has. A start knows it by its flags.
    unknown: bool,
    /// A file of another member, which a start refuses.
    foreign: bool,
    bar: ProgressBar,
    count: u64,
    bytes: u64,
}

pub fn run(call: &Call) -> Result<(), Failure> {
    let dir = &call.args()[0];
    let frozen = Frozen::open(Path::new(dir)).map_err(|error| Failure::new(format!("{dir}: {}", go_text(&error))))?;
    let total = sizes(&frozen).iter().map(|(_, bytes)| bytes).sum();
    let mut verify = Verify {
        files: Arc::new(frozen),
        damages: BTreeSet::new(),
        notes: Vec::new(),
        doubtful: false,
        starts_over: false,
        peers: false,
        unknown: false,
        foreign: false,
        bar: bar(call.people, "verifying", total),
        count: 0,
        bytes: 0,
    };
    let summary = verify.all(dir)?;
    verify.bar.finish_and_clear();
    verify.report(dir, &summary)
}

/// Every file of the folders that are ours, with its length.
fn sizes(files: &dyn Files) -> Vec<(String, u64)> {
    let mut all = vec![identity::FILE.to_string()];
    for dir in ["log", "state", "incoming"] {
        all.extend(files.list(dir).unwrap_or_default().into_iter().map(|name| format!("{dir}/{name}")));
    }
    let len = |path: &str| files.open(path, How::Read).and_then(|file| file.len()).unwrap_or(0);
    all.into_iter().map(|path| (path.clone(), len(&path))).collect()
}

/// What is said of a directory that is whole.
struct Summary {
    id: Option<Identity>,
    state: Option<(Offline, Hash)>,
}

impl Verify {
    fn all(&mut self, dir: &str) -> Result<Summary, Failure> {
        let found = self.identity(dir)?;
        let manifests = self.manifests(found);
        let Some(id) = found.or(manifests.last().map(|manifest| manifest.id)) else {
            return Ok(Summary { id: None, state: None });
        };
        self.index_files(&manifests);
        self.segments(&manifests);
        self.unnamed(&manifests);
        let newest = startover::known_head(&*self.files, id).unwrap_or_default();
        let lone = newest.as_ref().is_some_and(|head| head.conf.voters == [id.member]);
        self.remembered(id)?;
        (self.peers, self.unknown) = (newest.is_some() && !lone, newest.is_none());
        self.log(id, if lone { OnDoubt::Refuse } else { OnDoubt::Keep });
        let state = self.state(id);
        Ok(Summary { id: Some(id), state })
    }

    fn damage(&mut self, file: &str, offset: u64, what: impl Into<String>, harmless: Option<&'static str>) {
        self.damages.insert(Damage { file: file.to_string(), offset, what: what.into(), harmless });
    }

    fn fault(&mut self, fault: Fault, harmless: Option<&'static str>) {
        match fault {
            Fault::Damaged { file, offset, what, .. } => self.damage(&file, offset, what, harmless),
            Fault::Io { file, offset, error } => self.damage(&file, offset, go_text(&error), harmless),
            Fault::Doubtful { file, offset, what, promise } => {
                self.doubtful = true;
                let lost = promise
                    .map_or(String::new(), |at| format!(" (log entries up to {} of term {})", at.index, at.term));
                let what = format!("{what}; what is lost may have been acknowledged{lost}");
                self.damage(&file, offset, what, harmless);
            }
            Fault::Foreign { file, what } => {
                self.foreign = true;
                self.damage(&file, 0, what, None);
            }
            other => self.damage(other.file(), other.offset().unwrap_or_default(), other.to_string(), harmless),
        }
    }

    fn read(&mut self, path: &str, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
        self.bar.set_message(path.to_string());
        self.bar.inc(bytes);
    }

    fn identity(&mut self, dir: &str) -> Result<Option<Identity>, Failure> {
        let refused = |what: &str| Err(Failure::new(format!("{dir}: {what}")));
        match identity::find(&*self.files) {
            Ok(Found::Ready(id)) => {
                self.read(identity::FILE, 0);
                Ok(Some(id))
            }
            Ok(Found::Empty) => refused("an empty directory"),
            Ok(Found::Founding(_)) => refused("its founding was not finished: there is nothing in it"),
            Err(why) if !why.is_damage() && self.files.open(identity::FILE, How::Read).is_err() => {
                refused(&why.to_string())
            }
            Err(why) => {
                let remark = "a start with peers writes it anew, if --initial-cluster and the other files say the same";
                let head = identity::from_other_files(&*self.files).map(|id| startover::known_head(&*self.files, id));
                let peers = matches!(head, Some(Ok(Some(head))) if head.conf.voters.len() > 1);
                self.damage(identity::FILE, 0, why.what(), peers.then_some(remark));
                Ok(None)
            }
        }
    }

    /// Those that can be read, ascending.
    fn manifests(&mut self, id: Option<Identity>) -> Vec<Manifest> {
        let indexes = checkpoint::manifests(&*self.files).unwrap_or_default();
        if indexes.is_empty() && !self.installing() {
            self.damage("state", 0, "there is no checkpoint", None);
        }
        let mut manifests = Vec::new();
        for index in indexes {
            let path = format!("state/manifest-{index:016x}");
            let bytes = match self.whole(&path) {
                Ok(bytes) => bytes,
                Err(error) => {
                    self.damage(&path, 0, go_text(&error), None);
                    continue;
                }
            };
            self.read(&path, bytes.len() as u64);
            let manifest = Manifest::decode(&path, &bytes).and_then(|manifest| {
                manifest.image_head()?;
                Ok(manifest)
            });
            match manifest {
                Ok(manifest) if manifest.index != index => {
                    self.damage(&path, 0, format!("it is the manifest of entry {}", manifest.index), None);
                }
                Ok(manifest) if id.is_some_and(|id| id != manifest.id) => {
                    let Identity { cluster, member } = manifest.id;
                    self.foreign = true;
                    self.damage(&path, 0, format!("it belongs to member {member:x} of cluster {cluster:x}"), None);
                }
                Ok(manifest) => manifests.push(manifest),
                Err(fault) => self.fault(fault, None),
            }
        }
        manifests
    }

    fn whole(&self, path: &str) -> std::io::Result<Bytes> {
        let file = self.files.open(path, How::Read)?;
        let len = usize::try_from(file.len()?).map_err(|_| std::io::ErrorKind::InvalidData)?;
        let mut bytes = vec![0; len];
        let got = file.read_at(0, &mut bytes)?;
        bytes.truncate(got);
        Ok(bytes.into())
    }

    fn index_files(&mut self, manifests: &[Manifest]) {
        for manifest in manifests {
            for file in &manifest.index_files {
                let path = format!("state/{}", file.name());
                let alone =
                    Manifest { segments: Vec::new(), index_files: vec![*file], tables: None, ..manifest.clone() };
                if let Err(fault) = checkpoint::verify(&*self.files, &alone) {
                    self.fault(fault, None);
                }
                self.header_page(&path);
                self.read(&path, file.len);
            }
            if let Some(file) = &manifest.tables {
                let path = format!("state/{}", file.name());
                let alone = Manifest { segments: Vec::new(), index_files: Vec::new(), ..manifest.clone() };
                if let Err(fault) = checkpoint::verify(&*self.files, &alone) {
                    self.fault(fault, None);
                }
                self.header_page(&path);
                self.read(&path, file.len);
            }
        }
    }

    fn segments(&mut self, manifests: &[Manifest]) {
        let mut named: BTreeMap<u32, BTreeMap<u32, (SegmentFile, &Manifest)>> = BTreeMap::new();
        for manifest in manifests {
            for file in &manifest.segments {
                named.entry(file.segment).or_default().insert(file.len, (*file, manifest));
            }
        }
        let head = manifests.last().and_then(|manifest| manifest.image_head().ok());
        for (segment, lengths) in named {
            let path = records::path(segment);
            for (file, manifest) in lengths.values() {
                let alone =
                    Manifest { segments: vec![*file], index_files: Vec::new(), tables: None, ..(*manifest).clone() };
                if let Err(fault) = checkpoint::verify(&*self.files, &alone) {
                    self.segment_damage(&path, u64::from(file.len), fault);
                }
            }
            self.header_page(&path);
            let sealed = head.iter().flat_map(|head| &head.segments).find(|used| used.id == segment && used.sealed);
            if let Some(used) = sealed {
                self.seek_table(&path, segment, used.end);
            }
            let longest = lengths.keys().last().map_or(0, |len| u64::from(*len));
            self.read(&path, longest);
        }
    }

    /// The first damage ends the verification of a file; the records tell of the others.
    fn segment_damage(&mut self, path: &str, until: u64, fault: Fault) {
        let in_records = fault.is_damage() && fault.offset().is_some_and(|offset| offset >= PAGE);
        let places = if in_records { self.bad_records(path, until) } else { Vec::new() };
        if places.is_empty() {
            return self.fault(fault, None);
        }
        for (offset, what) in places {
            self.damage(path, offset, what, None);
        }
    }

    fn bad_records(&self, path: &str, until: u64) -> Vec<(u64, String)> {
        let mut found = Vec::new();
        let Ok(file) = self.files.open(path, How::Read) else { return found };
        let mut at = PAGE;
        while at < until {
            let mut header = [0; record::HEADER];
            if file.read_at(at, &mut header).ok() != Some(header.len()) {
                found.push((at, "the file ends inside a record".to_string()));
                break;
            }
            let len = record::whole_len(&header).map_or(u64::MAX, |len| len as u64);
            if len > until - at {
                found.push((at, format!("a record of {len} bytes where {} are left", until - at)));
                break;
            }
            let mut bytes = vec![0; len as usize];
            let got = file.read_at(at, &mut bytes).unwrap_or(0);
            bytes.truncate(got);
            if let Err(damage) = record::open(&bytes.into()) {
                found.push((at, format!("a record of {len} bytes: {}", damage.what)));
            }
            at += len;
        }
        found
    }

    fn header_page(&mut self, path: &str) {
        let mut page = vec![0; PAGE as usize];
        let read = self.files.open(path, How::Read).and_then(|file| file.read_at(0, &mut page));
        let wrong = page[HEADER..].iter().position(|byte| *byte != 0);
        if let (Ok(_), Some(at)) = (read, wrong) {
            let offset = (HEADER + at) as u64;
            self.damage(path, offset, "bytes that were written as zeros are not", Some("nobody reads them"));
        }
    }

    fn seek_table(&mut self, path: &str, segment: u32, end: u32) {
        let len = self.files.open(path, How::Read).and_then(|file| file.len()).unwrap_or(0);
        if len > u64::from(end) && records::sealed(&*self.files, segment, end).is_ok_and(|found| !found) {
            self.damage(path, u64::from(end), "the seek table is not readable", Some("a start cuts it off"));
        }
    }

    /// A snapshot is decided on: its manifest is not among the others yet.
    fn installing(&self) -> bool {
        transfer::unfinished(&*self.files).unwrap_or(false)
    }

    fn unnamed(&mut self, manifests: &[Manifest]) {
        let mut named: BTreeSet<String> = manifests.iter().flat_map(Manifest::files).map(|(name, _)| name).collect();
        let indexes = checkpoint::manifests(&*self.files).unwrap_or_default();
        named.extend(indexes.iter().map(|index| format!("manifest-{index:016x}")));
        let installing = self.installing();
        for name in self.files.list("state").unwrap_or_default() {
            if !installing && !named.contains(&name) {
                self.notes.push(format!("state/{name}: no checkpoint names it; what it holds is in the log too"));
            }
        }
        if installing {
            self.notes.push("incoming: a snapshot was being installed; a start finishes it".to_string());
        } else if self.files.list("incoming").is_ok_and(|names| !names.is_empty()) {
            self.notes.push("incoming: a snapshot was being received; a start begins anew".to_string());
        }
        if self.files.list("aside").is_ok_and(|names| !names.is_empty()) {
            let text = "aside: damaged files that the member gave up; it removes them when it has again what it lost";
            self.notes.push(text.to_string());
        }
        for name in self.files.list("").unwrap_or_default() {
            if ![identity::FILE, "log", "state", "incoming", "aside", "lost+found"].contains(&name.as_str()) {
                self.notes.push(format!("{name}: no file of kvorum"));
            }
        }
    }

    fn log(&mut self, id: Identity, doubt: OnDoubt) {
        match Log::recover(Arc::clone(&self.files), id, log_options(id), None, doubt) {
            Ok((_, content)) => {
                self.tail(&content.tail);
                for healed in content.healed {
                    let beside = !healed.file.ends_with(".log");
                    let remark =
                        if beside { "a start writes it anew" } else { "a start restores it from its second copy" };
                    self.damage(&healed.file, healed.offset, healed.what, Some(remark));
                }
            }
            // What a member with peers does about it, its start says: see `state`.
            Err(fault) if self.peers && fault.is_damage() => self.fault(fault, Some(CUT)),
            Err(fault) => self.fault(fault, None),
        }
        for (path, len) in sizes(&*self.files) {
            if path.starts_with("log/") {
                self.read(&path, len);
            }
        }
    }

    /// What a start finds beside the log.
    fn remembered(&mut self, id: Identity) -> Result<(), Failure> {
        let failed = |fault: Fault| Failure::new(fault.to_string());
        if let Some(seen) = contradicted::find(&*self.files, id).map_err(failed)? {
            let path = contradicted::PATH;
            self.notes.push(format!("{path}: two histories: {seen}; a start answers nothing and replaces nothing"));
        }
        if startover::rebuilt(&*self.files, id).map_err(failed)?.is_hopeless() {
            let text = "log/rebuilt: the state was damaged again and again; a start takes no other one";
            self.notes.push(text.to_string());
        }
        Ok(())
    }

    fn tail(&mut self, tail: &Tail) {
        let verdict = match tail {
            // Each of its places was told.
            Tail::Whole | Tail::Damaged(_) => return,
            Tail::Torn(_) => "a torn tail, never acknowledged; a start cuts it",
            Tail::Doubtful(_) => "it may have been acknowledged; a start cuts it, remembers that, and asks the others",
        };
        if let Some(at) = tail.cut() {
            let note = format!("{} at byte {}: {}: {verdict}", at.file, at.offset, at.what);
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }

    /// What a start would do with all this.
    fn state(&mut self, id: Identity) -> Option<(Offline, Hash)> {
        let found = match offline(&self.files, id, log_options(id)) {
            Ok(found) => found,
            Err(fault) => {
                // Harmless places alone do not explain why it does not start.
                let starts_over = fault.is_damage() && (self.peers || self.unknown);
                if self.damages.iter().all(|damage| damage.harmless.is_some_and(|why| why != CUT)) {
                    self.fault(fault, None);
                }
                // What is no damage a start refuses, each time.
                self.starts_over = starts_over;
                return None;
            }
        };
        // With the checkpoint more may be missing than the log alone tells.
        self.tail(&found.tail);
        match hash_of(&*self.files, &found.store, found.store.revision()) {
            Ok(hash) => Some((found, hash)),
            Err(fault) => {
                if self.damages.is_empty() {
                    self.fault(fault, None);
                }
                None
            }
        }
    }

    fn report(&self, dir: &str, summary: &Summary) -> Result<(), Failure> {
        let starts = summary.state.is_some();
        for damage in &self.damages {
            println!("DAMAGED {} at byte {}: {}", damage.file, damage.offset, damage.what);
            if let Some(remark) = damage.remark(starts) {
                println!("        {remark}");
            }
        }
        for note in &self.notes {
            println!("note: {note}");
        }
        if self.damages.is_empty() {
            println!("OK {dir}");
        }
        if let Some(id) = summary.id {
            println!("member {:x} of cluster {:x}", id.member, id.cluster);
        }
        if let Some((found, hash)) = &summary.state {
            print_state(found, hash);
        }
        println!("read {} in {} files", size(self.bytes), count(self.count));
        if self.damages.is_empty() {
            return Ok(());
        }
        println!("What to do: {}", self.advice(starts));
        let places = self.damages.len();
        Err(Failure::new(format!("{places} damaged {} in {dir}", if places == 1 { "place" } else { "places" })))
    }

    fn advice(&self, starts: bool) -> &'static str {
        if self.foreign {
            "a start refuses a file of another member. Put this member's own file in its place. If there is none, move \
             the other one away and verify again: it says what is missing then."
        } else if self.starts_over && !self.peers {
            "nothing here says whether this member has peers. If it has, start it with the --initial-cluster that the \
             cluster was founded with, while the others are a majority: it starts over, and installs a snapshot of the \
             leader. If it was alone, keep this directory and restore the newest snapshot (kvorum utl snapshot restore). \
             Bytes that change by themselves point to the disk, so look at it."
        } else if self.starts_over {
            "start it, while the other members are a majority: it starts over, and installs a snapshot of the leader. \
             Bytes that change by themselves point to the disk, so look at it."
        } else if self.damages.iter().any(|damage| damage.harmless == Some(CUT)) {
            "start it, while the other members are a majority: they have what is missing. Bytes that change by \
             themselves point to the disk, so look at it."
        } else if starts && self.damages.iter().all(|damage| damage.remark(starts).is_some()) {
            "nothing is lost and the member starts; bytes that change by themselves point to the disk, so look at it."
        } else if self.doubtful {
            "keep a copy of this directory. If a snapshot is newer than what is lost, restore it. Else `kvorum utl \
             cut-tail --data-dir DIR` shows the end of the log that is in doubt, and cuts it with --yes."
        } else {
            "keep this directory and do not start on it. The others go on as long as they are a majority. Else restore \
             the newest snapshot for every member (kvorum utl snapshot restore). Bytes that change by themselves point \
             to the disk, so look at it."
        }
    }
}

fn print_state(found: &Offline, hash: &Hash) {
    let store = &found.store;
    println!(
        "revision {}, compacted {}, {} keys, {} versions, {} leases, HashKV {}",
        store.revision(),
        store.compacted(),
        count(store.keys()),
        count(store.versions()),
        count(store.leases().count() as u64),
        hash.hash
    );
    println!(
        "checkpoint at entry {}, {} entries in the log, {} of them behind the checkpoint and committed",
        found.manifest.index,
        count(found.entries),
        count(found.replayed)
    );
}
