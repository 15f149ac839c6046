//! Backups at work: as the edge does it, the records are pulled twice and become a file of bbolt's.
//! The file is read back, and holds the state that the model has at the backup's index.

use crate::clients::{Pending, Reader};
use crate::cluster::Sim;
use crate::model::{Event, Mark, Model};
use bolt::{Db, Planner, Writer};
use node::{Input, Request};
use std::collections::BTreeMap;
use store::Rev;
use store::export::{Export, RECORDS};
use store::hash::{HashKv, bucket_key};
use store::import::{Import, Tables};
use store::record::{Record, key_value};

/// A backup that a client pulls.
#[derive(Debug)]
pub(crate) struct Pulling {
    id: u64,
    export: Box<Export>,
    records: Vec<Record>,
    /// The rows of the first pass, once it is over.
    first: Option<Vec<Record>>,
}

/// A backup that was taken: what it says of itself, and its rows.
struct Taken<'a> {
    export: &'a Export,
    rows: &'a [Record],
    mark: Mark,
}

impl Sim {
    /// The head is there. Some clients lose interest now, or while records are read.
    pub(crate) fn backup_begins(&mut self, who: usize, op: &mut Pending, id: u64, export: Box<Export>) -> bool {
        self.oracle.on_serial_begins(self.now, who, op.serial, export.revision);
        let end = Request::BackupEnd { backup: id };
        match self.work_rng.below(12) {
            0 => self.tell_member(who, end),
            1 => {
                self.tell_member(who, Request::BackupNext { backup: id, first: true });
                self.tell_member(who, end);
            }
            _ => {
                op.pulling = Some(Pulling { id, export, records: Vec::new(), first: None });
                return true;
            }
        }
        false
    }

    /// Says what nobody waits for.
    pub(crate) fn tell_member(&mut self, who: usize, request: Request) {
        let waiter = self.waiter(who, Reader::Flood);
        self.give(who, Input::Request { waiter, who: self.staff(), request });
    }

    /// What is asked next, if the backup goes on.
    pub(crate) fn backup_goes_on(
        &mut self,
        who: usize,
        op: &mut Pending,
        records: Vec<Record>,
        end: bool,
    ) -> Option<Request> {
        let pulling = op.pulling.as_mut()?;
        pulling.records.extend(records);
        let backup = pulling.id;
        if !end {
            return Some(Request::BackupNext { backup, first: false });
        }
        let mut rows = pulling.export.rows();
        pulling.records.retain(|record| rows.has(record.rev));
        let missing = rows.missing();
        let all = std::mem::take(&mut pulling.records);
        if missing > 0 {
            self.fail("S-5", format!("m{}: {missing} rows of a backup are not among the records", who + 1));
            return None;
        }
        let Some(first) = pulling.first.take() else {
            pulling.first = Some(all);
            return Some(Request::BackupNext { backup, first: true });
        };
        if first != all {
            self.fail("S-5", format!("m{}: a backup that is read twice differs", who + 1));
        }
        let pulling = op.pulling.take().expect("looked at just now");
        self.tell_member(who, Request::BackupEnd { backup });
        self.judge_backup(who, &pulling.export, &all);
        None
    }

    pub(crate) fn backup_failed(&mut self, who: usize, reason: String) {
        let life = self.members[who].up.as_ref();
        if life.is_some_and(|life| life.replaced) && reason.contains("replaced") {
            self.marks.hit("backup ended by a snapshot");
        } else if self.plan.quota >= 0 && reason.contains("in the way of writes") {
            self.marks.hit("backup ended for room");
        } else if !life.is_some_and(|life| life.faulted) {
            self.met_damage(who, format!("m{}: a backup fails: {reason}", who + 1));
        }
    }

    fn judge_backup(&mut self, who: usize, export: &Export, rows: &[Record]) {
        let Some(mark) = self.oracle.model.mark(export.applied.index) else {
            return self.fail("S-5", format!("m{} backs up index {}, which is nowhere", who + 1, export.applied.index));
        };
        let taken = Taken { export, rows, mark };
        match taken.judge(&self.oracle.model) {
            Ok(hash) => {
                self.marks.hit("backup taken");
                self.oracle.on_hash_kv(self.now, who, mark.revision, mark.compacted, hash);
            }
            Err(text) => self.fail("S-5", format!("m{}: the backup of {mark:?}: {text}", who + 1)),
        }
    }
}

impl Taken<'_> {
    /// HashKV of the file, or what is wrong.
    fn judge(&self, model: &Model) -> Result<u32, String> {
        let Taken { export, rows, mark } = self;
        if (export.revision, export.compacted) != (mark.revision, mark.compacted) {
            return Err(format!("revision {}, compacted {}", export.revision, export.compacted));
        }
        let wanted = model.kept(*mark);
        let got: Vec<Rev> = rows.iter().map(|record| record.rev).collect();
        if wanted != got {
            return Err(format!("rows {got:?}, right are {wanted:?}"));
        }
        for record in *rows {
            let right = model.events(record.rev.main).iter().find(|event| event.sub == record.rev.sub);
            if !right.is_some_and(|right| is_record_of(right, record)) {
                return Err(format!("{record:?}, right is {right:?}"));
            }
        }
        let file = self.file().map_err(|diverged| diverged.to_string())?;
        self.read(&file).map_err(|error| error.to_string())?;
        self.import(model)
    }

    /// The file as the edge makes it.
    fn file(&self) -> Result<Vec<u8>, bolt::Diverged> {
        let mut planner = Planner::new();
        for (name, pairs) in self.buckets() {
            planner.bucket(name.as_bytes())?;
            for (key, value) in &pairs {
                planner.pair(key.len(), value.len())?;
            }
        }
        let plan = planner.finish();
        let bytes = plan.bytes();
        let mut writer = Writer::new(plan);
        let mut file = Vec::new();
        for (name, pairs) in self.buckets() {
            writer.bucket(name.as_bytes())?;
            for (key, value) in &pairs {
                writer.pair(key, value)?;
                if writer.ready() > 0 {
                    file.extend(writer.take());
                }
            }
        }
        file.extend(writer.finish()?);
        assert_eq!(file.len() as u64, bytes, "a file has the length that was announced");
        Ok(file)
    }

    fn buckets(&self) -> Vec<store::export::Table> {
        let mut tables = self.export.buckets();
        for (_, pairs) in tables.iter_mut().filter(|(name, _)| *name == RECORDS) {
            *pairs = self.rows.iter().map(|r| (bucket_key(r.rev, r.tombstone), r.body.to_vec())).collect();
        }
        tables
    }

    /// The file is whole, and every bucket has its pairs.
    fn read(&self, file: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
        let db = Db::open(file)?;
        if let Some(finding) = db.check().first() {
            return Err(finding.to_string().into());
        }
        let tables = self.buckets();
        let names: Vec<Vec<u8>> = tables.iter().map(|(name, _)| name.as_bytes().to_vec()).collect();
        if db.buckets()? != names {
            return Err("the file has other buckets".into());
        }
        for (name, pairs) in tables {
            let bucket = db.bucket(name.as_bytes())?.ok_or(name)?;
            let found: Vec<_> = bucket.pairs().collect::<Result<_, _>>()?;
            if !found.iter().map(|(key, value)| (&key[..], &value[..])).eq(pairs.iter().map(|(k, v)| (&k[..], &v[..])))
            {
                return Err(format!("bucket {name} has other pairs").into());
            }
            for (key, value) in &pairs {
                if bucket.get(key)?.is_none_or(|found| found != value) {
                    return Err(format!("{} of bucket {name} is not found", key.escape_ascii()).into());
                }
            }
        }
        let summary = db.summary()?;
        let last = self.rows.last().map_or(0, |record| record.rev.main);
        if summary.revision != last || summary.total_bytes != file.len() as u64 {
            return Err(format!("{summary:?}").into());
        }
        Ok(())
    }

    /// A store that is restored from the rows answers as the model. HashKV at its revision.
    fn import(&self, model: &Model) -> Result<u32, String> {
        let mut import = Import::new(store::Config::default());
        for Record { rev, tombstone, body } in self.rows {
            if !import.row(*rev, *tombstone, body).map_err(|damage| damage.to_string())? {
                return Err(format!("the row {rev:?} is not in its one form"));
            }
        }
        let Mark { index, revision, compacted } = self.mark;
        let leases = model.leases_at(index).into_iter().map(|(id, ttl)| (id, ttl, 0)).collect();
        let applied = self.export.applied;
        let tables = Tables { applied, revision, compacted, leases, ..Tables::default() };
        let restored = import.finish(tables).map_err(|damage| damage.to_string())?;
        if !restored.orphans.is_empty() {
            return Err(format!("keys name leases that were not there: {:?}", restored.orphans));
        }
        let store = restored.store;
        let right: BTreeMap<_, _> = model.living_at(revision).map(|kv| (&kv.key[..], kv)).collect();
        if store.keys() != right.len() as u64 {
            return Err(format!("{} keys restored, right are {}", store.keys(), right.len()));
        }
        for (key, kv) in right {
            let item = store.get(key).ok_or("a key is not restored")?;
            let got = (item.create, item.modified, item.version, item.lease);
            if got != (kv.create, kv.modified, kv.version, kv.lease) {
                return Err(format!("{item:?} is restored, right is {kv:?}"));
            }
        }
        let mut keep = store.keep_set(revision);
        let keep = loop {
            if let Some(keep) = store.gather(&mut keep, 100) {
                break keep;
            }
        };
        let mut hash = HashKv::new(revision, compacted, keep);
        self.rows.iter().for_each(|record| hash.feed(record.rev, record.tombstone, &record.body));
        Ok(hash.finish())
    }
}

fn is_record_of(event: &Event, record: &Record) -> bool {
    let Ok(kv) = key_value(&record.body) else { return false };
    let (key, got) = (kv.key == event.kv.key, (kv.create, kv.modified, kv.version, kv.lease));
    let right = (event.kv.create, event.kv.modified, event.kv.version, event.kv.lease);
    key && record.tombstone == event.tombstone && (event.tombstone || (got == right && kv.value == event.kv.value))
}
