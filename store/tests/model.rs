//! Random histories against a model that keeps every version in one list and does everything the
//! slow, obvious way. Beside the store under test runs a second one that never frees memory, never
//! sweeps and was never loaded from an image: both must say the same.

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use store::command::{self, Compare, DeleteRangeRequest, Operand, PutRequest, RangeRequest, RequestOp, TxnRequest};
use store::{Config, Error, Handle, Item, KeyRange, Origin, Outcome, Position, Reply, Store};

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

const KEYS: [&[u8]; 7] = [b"\0", b"a", b"a\0", b"ab", b"b", b"c", b"\xff"];
const ENDS: [&[u8]; 6] = [b"", b"", b"\0", b"ab", b"c", b"\xff"];
const VALUES: [&[u8]; 4] = [b"", b"x", b"y", b"a longer value"];

#[derive(Clone, Debug)]
struct Version {
    key: Vec<u8>,
    main: i64,
    create: i64,
    version: i64,
    lease: i64,
    value: Option<Vec<u8>>,
}

/// (key, create, mod, version, lease, value)
type Row = (Vec<u8>, i64, i64, i64, i64, Vec<u8>);

#[derive(Clone, Debug, Default)]
struct Model {
    revision: i64,
    compacted: i64,
    versions: Vec<Version>,
    leases: BTreeSet<i64>,
}

/// What a reply says, values included.
#[derive(Clone, Debug, PartialEq)]
enum Said {
    Put(Option<Row>),
    Delete(i64, Vec<Row>),
    Range(Vec<Row>, i64, bool),
    Txn(bool, Vec<(i64, Said)>),
    Other,
}

impl Model {
    fn new() -> Model {
        Model { revision: 1, compacted: -1, ..Model::default() }
    }

    fn at(&self, key: &[u8], revision: i64) -> Option<&Version> {
        let last = self.versions.iter().rfind(|v| v.key == key && v.main <= revision)?;
        last.value.is_some().then_some(last)
    }

    fn live(&self, range: &KeyRange, revision: i64) -> Vec<Version> {
        let keys: BTreeSet<&Vec<u8>> = self.versions.iter().map(|v| &v.key).filter(|k| range.contains(k)).collect();
        keys.into_iter().filter_map(|key| self.at(key, revision).cloned()).collect()
    }

    fn range(&self, r: &RangeRequest<'_>) -> Result<Said, Error> {
        let revision = if r.revision <= 0 { self.revision } else { r.revision };
        if revision > self.revision {
            return Err(Error::FutureRev);
        }
        if revision < self.compacted {
            return Err(Error::Compacted);
        }
        let mut all = self.live(&KeyRange::new(r.key, r.range_end), revision);
        let count = all.len() as i64;
        if r.count_only {
            return Ok(Said::Range(Vec::new(), count, false));
        }
        let filters = r.min_mod != 0 || r.max_mod != 0 || r.min_create != 0 || r.max_create != 0;
        if r.limit > 0 && r.sort_order == 0 && !filters {
            all.truncate(r.limit as usize + 1);
        }
        all.retain(|v| r.max_mod == 0 || v.main <= r.max_mod);
        all.retain(|v| r.min_mod == 0 || v.main >= r.min_mod);
        all.retain(|v| r.max_create == 0 || v.create <= r.max_create);
        all.retain(|v| r.min_create == 0 || v.create >= r.min_create);
        match r.sort_target {
            0 => {}
            1 => all.sort_by_key(|v| v.version),
            2 => all.sort_by_key(|v| v.create),
            3 => all.sort_by_key(|v| v.main),
            _ => all.sort_by_key(|v| v.value.clone()),
        }
        if r.sort_order == 2 {
            // descending, but ties stay in key order
            all.sort_by(|a, b| a.key.cmp(&b.key));
            match r.sort_target {
                0 => all.reverse(),
                1 => all.sort_by_key(|v| -v.version),
                2 => all.sort_by_key(|v| -v.create),
                3 => all.sort_by_key(|v| -v.main),
                _ => all.sort_by_key(|v| std::cmp::Reverse(v.value.clone())),
            }
        }
        let more = r.limit > 0 && all.len() > r.limit as usize;
        if more {
            all.truncate(r.limit as usize);
        }
        let mut rows: Vec<Row> = all.iter().map(row).collect();
        if r.keys_only {
            for row in &mut rows {
                row.5.clear();
                if r.sort_target != 4 {
                    row.4 = 0;
                }
            }
        }
        Ok(Said::Range(rows, count, more))
    }

    fn check_put(&self, p: &PutRequest<'_>) -> Result<(), Error> {
        if p.lease != 0 && !self.leases.contains(&p.lease) {
            return Err(Error::LeaseNotFound);
        }
        if (p.ignore_value || p.ignore_lease) && self.at(p.key, self.revision).is_none() {
            return Err(Error::KeyNotFound);
        }
        Ok(())
    }

    fn put(&mut self, p: &PutRequest<'_>, main: i64) -> Said {
        let before = self.at(p.key, i64::MAX).cloned();
        let value = if p.ignore_value { before.clone().unwrap().value.unwrap() } else { p.value.to_vec() };
        self.versions.push(Version {
            key: p.key.to_vec(),
            main,
            create: before.as_ref().map_or(main, |b| b.create),
            version: before.as_ref().map_or(1, |b| b.version + 1),
            lease: if p.ignore_lease { before.as_ref().unwrap().lease } else { p.lease },
            value: Some(value),
        });
        Said::Put(before.filter(|_| p.prev_kv).as_ref().map(row))
    }

    fn delete(&mut self, range: &KeyRange, prev_kv: bool, main: i64) -> Said {
        let gone = self.live(range, i64::MAX);
        for v in &gone {
            let tombstone = Version { main, create: 0, version: 0, lease: 0, value: None, ..v.clone() };
            self.versions.push(tombstone);
        }
        Said::Delete(gone.len() as i64, if prev_kv { gone.iter().map(row).collect() } else { Vec::new() })
    }

    fn holds(&self, c: &Compare<'_>) -> bool {
        let one = |v: Option<&Version>| {
            let zero = Version { key: vec![], main: 0, create: 0, version: 0, lease: 0, value: Some(vec![]) };
            let v = v.unwrap_or(&zero);
            let ordering = match (c.target, c.operand) {
                (0, o) => v.version.cmp(&if let Operand::Version(n) = o { n } else { 0 }),
                (1, o) => v.create.cmp(&if let Operand::Create(n) = o { n } else { 0 }),
                (2, o) => v.main.cmp(&if let Operand::Mod(n) = o { n } else { 0 }),
                (3, o) => v.value.as_deref().unwrap().cmp(if let Operand::Value(b) = o { b } else { b"" }),
                (_, o) => v.lease.cmp(&if let Operand::Lease(n) = o { n } else { 0 }),
            };
            match c.result {
                0 => ordering.is_eq(),
                1 => ordering.is_gt(),
                2 => ordering.is_lt(),
                _ => ordering.is_ne(),
            }
        };
        let live = self.live(&c.range(), self.revision);
        if live.is_empty() { c.target != 3 && one(None) } else { live.iter().all(|v| one(Some(v))) }
    }

    fn txn(&mut self, t: &TxnRequest<'_>) -> Result<Said, Error> {
        let before = self.clone();
        before.check_branch(t)?;
        let main = self.revision + 1;
        let said = self.run(t, &before, main);
        if self.versions.len() > before.versions.len() {
            self.revision = main;
        }
        Ok(said.1)
    }

    fn branch<'r, 'a>(&self, t: &'r TxnRequest<'a>) -> (bool, &'r [RequestOp<'a>]) {
        let yes = t.compare.iter().all(|c| self.holds(c));
        (yes, if yes { &t.success } else { &t.failure })
    }

    fn check_branch(&self, t: &TxnRequest<'_>) -> Result<(), Error> {
        for op in self.branch(t).1 {
            match op {
                RequestOp::Range(r) => drop(self.range(r)?),
                RequestOp::Put(p) => self.check_put(p)?,
                RequestOp::Txn(t) => self.check_branch(t)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn run(&mut self, t: &TxnRequest<'_>, before: &Model, main: i64) -> (i64, Said) {
        let (yes, ops) = before.branch(t);
        let mut said = Vec::new();
        for op in ops {
            let told = match op {
                RequestOp::Put(p) => self.put(p, main),
                RequestOp::DeleteRange(d) => self.delete(&d.range(), d.prev_kv, main),
                RequestOp::Range(r) => {
                    let mut now = self.clone();
                    now.revision = now.newest(before);
                    now.range(r).expect("checked")
                }
                RequestOp::Txn(t) => {
                    said.push(self.run(t, before, main));
                    continue;
                }
                RequestOp::None => unreachable!(),
            };
            said.push((self.newest(before), told));
        }
        (0, Said::Txn(yes, said))
    }

    fn newest(&self, before: &Model) -> i64 {
        before.revision + i64::from(self.versions.len() > before.versions.len())
    }

    fn end_lease(&mut self, lease: i64) {
        let main = self.revision + 1;
        let all = self.live(&KeyRange::all(), self.revision);
        let mut any = false;
        for v in all.iter().filter(|v| v.lease == lease) {
            self.delete(&KeyRange::new(&v.key, b""), false, main);
            any = true;
        }
        self.revision += i64::from(any);
        self.leases.remove(&lease);
    }
}

fn row(v: &Version) -> Row {
    (v.key.clone(), v.create, v.main, v.version, v.lease, v.value.clone().unwrap())
}

/// The store under test, its "files", and the untouched twin.
struct Bench {
    store: Store,
    twin: Store,
    files: BTreeMap<Handle, Bytes>,
    parks: u64,
    index: u64,
}

impl Bench {
    fn new() -> Bench {
        // small segments, so that histories cross many
        let config = Config { segment_bytes: 4096 + 400 };
        Bench { store: Store::new(config), twin: Store::new(Config::default()), files: BTreeMap::new(), parks: 0, index: 0 }
    }

    fn apply(&mut self, body: &[u8]) -> Result<Said, Error> {
        self.index += 1;
        let at = Position { index: self.index, term: 3 };
        let data = command::seal(body, Origin { member: 1, boot: 2, seq: self.index }, Some(self.index * 10));
        let (mut fetched, before) = (None, self.store.digest());
        let applied = loop {
            match self.store.apply(at, &data, fetched.as_ref()).expect("well formed") {
                Outcome::Done(applied) => break applied,
                Outcome::Park(handle) => {
                    assert_eq!(self.store.digest(), before, "nothing changes before a park");
                    self.parks += 1;
                    fetched = Some(self.files[&handle].clone());
                }
            }
        };
        let Outcome::Done(twin) = self.twin.apply(at, &data, None).unwrap() else { panic!("all in memory") };
        assert_eq!(applied.result.is_ok(), twin.result.is_ok());
        assert_eq!(self.store.digest(), self.twin.digest());
        for (main, event) in applied.events.iter().flat_map(|r| r.events.iter().map(move |e| (r.revision, e))) {
            assert_eq!(event.revision.main, main);
            let opened = store::record::open(&event.record).unwrap();
            let kv = store::record::key_value(&opened.body).unwrap();
            assert_eq!((kv.key, kv.create, opened.tombstone), (&event.key[..], event.create, event.tombstone));
        }
        assert_eq!(applied.revision, self.store.revision());
        applied.result.map(|reply| self.said(reply))
    }

    fn record(&self, item: &Item) -> Bytes {
        item.at.bytes.clone().unwrap_or_else(|| self.files[&item.at.handle].clone())
    }

    fn row(&self, item: &Item, keys_only: bool) -> Row {
        let record = store::record::open(&self.record(item)).unwrap();
        let kv = store::record::key_value(&record.body).unwrap();
        assert_eq!((kv.key, kv.create, kv.modified, kv.version), (&item.key[..], item.create, item.modified, item.version));
        let value = if keys_only { Vec::new() } else { kv.value.to_vec() };
        (item.key.to_vec(), item.create, item.modified, item.version, item.lease, value)
    }

    fn said(&self, reply: Reply) -> Said {
        match reply {
            Reply::Put { prev } => Said::Put(prev.map(|item| self.row(&item, false))),
            Reply::Delete { deleted, prevs } => Said::Delete(deleted, prevs.iter().map(|i| self.row(i, false)).collect()),
            Reply::Txn { succeeded, responses } => {
                Said::Txn(succeeded, responses.into_iter().map(|op| (op.revision, self.said(op.reply))).collect())
            }
            Reply::Range(range) => self.sorted(&range.query, range.items, range.count, range.more),
            _ => Said::Other,
        }
    }

    fn sorted(&self, query: &store::Query, mut items: Vec<Item>, count: i64, mut more: bool) -> Said {
        if query.needs_sort() {
            let value = |item: &Item| {
                let body = store::record::open(&self.record(item)).unwrap().body;
                body.slice_ref(store::record::key_value(&body).unwrap().value)
            };
            (items, more) = store::order::finish(query, items, value);
        }
        Said::Range(items.iter().map(|item| self.row(item, query.keys_only)).collect(), count, more)
    }

    /// A range read in slices of `most` keys.
    fn range(&self, request: &RangeRequest<'_>, most: usize) -> Result<Said, Error> {
        let mut walk = self.store.walk(request.query())?;
        let (said, items, finished) = self.rest_of(&mut walk, most);
        if !walk.query().needs_sort() {
            self.check_measure(request, &items, finished);
        }
        Ok(said)
    }

    fn rest_of(&self, walk: &mut store::Walk, most: usize) -> (Said, Vec<Item>, store::Finished) {
        let mut items = Vec::new();
        loop {
            let slice = self.store.advance(walk, most);
            items.extend(slice.items);
            if let Some(finished) = slice.finished {
                let said = self.sorted(walk.query(), items.clone(), finished.count, finished.more);
                return (said, items, finished);
            }
        }
    }

    fn check_measure(&self, request: &RangeRequest<'_>, items: &[Item], finished: store::Finished) {
        let (mut walk, mut measure) = (self.store.walk(request.query()).unwrap(), store::Measure::default());
        while !self.store.measure(&mut walk, 2, &mut measure) {}
        let len = |item: &Item| {
            let body = store::record::open(&self.record(item)).unwrap().body;
            let kv = store::record::key_value(&body).unwrap();
            let kv = if request.keys_only { store::record::KeyValueRef { value: b"", lease: 0, ..kv } } else { kv };
            kv.encoded_len() as u64
        };
        assert_eq!(measure.bytes, items.iter().map(len).sum::<u64>());
        assert_eq!((measure.kvs, measure.finished), (items.len() as u64, Some(finished)));
    }

    /// Everything in memory goes to "files".
    fn write_out(&mut self, most: usize) {
        for extent in self.store.unwritten(most) {
            let mut offset = extent.offset;
            for part in &extent.parts {
                let handle = Handle { segment: extent.segment, offset, len: part.len() as u32 };
                assert!(self.files.insert(handle, part.clone()).is_none(), "a place is used once");
                offset = handle.offset + handle.len;
            }
            assert_eq!(offset, extent.end());
            self.store.written(extent.segment, extent.end(), extent.seals);
        }
    }

    /// Image, encoded and decoded, loaded; compared with what went in.
    fn reload(&mut self, dice: &mut Dice) {
        self.write_out(usize::MAX);
        let (head, mut cursor) = self.store.image();
        let head = store::ImageHead::decode(&head.encode()).unwrap();
        let mut rows = Vec::new();
        while !self.store.image_rows(&mut cursor, 2, &mut rows) {}
        let pieces = rows.chunks(1 + dice.below(40) as usize).map(|piece| Ok::<_, store::Damage>(piece.to_vec()));
        let loaded = Store::load(self.store.config(), head, pieces).unwrap();
        self.store.end_image(cursor);
        while !self.store.sweep(10) {}
        // unless pins hold the sweep back, what was loaded is what is left here
        if self.store.swept() == self.store.compacted() {
            assert_eq!(loaded.live_bytes(), self.store.live_bytes());
            assert_eq!(loaded.versions(), self.store.versions());
        }
        assert_eq!(loaded.keys(), self.store.keys());
        assert_eq!(loaded.leases().collect::<Vec<_>>(), self.store.leases().collect::<Vec<_>>());
        self.store = loaded;
    }

    fn hash(&self, store: &Store, revision: i64) -> u32 {
        store.hash_kv(revision, |handle| store.located(handle).bytes.unwrap_or_else(|| self.files[&handle].clone()))
    }
}

fn random_range(dice: &mut Dice, revision: i64) -> RangeRequest<'static> {
    let bound = |dice: &mut Dice| if dice.one_in(5) { dice.below(revision as u64 + 2) as i64 } else { 0 };
    RangeRequest {
        key: dice.pick(&KEYS),
        range_end: dice.pick(&ENDS),
        limit: if dice.one_in(2) { dice.below(4) as i64 } else { 0 },
        revision: if dice.one_in(2) { dice.below(revision as u64 + 3) as i64 } else { 0 },
        sort_order: dice.below(3) as i32,
        sort_target: dice.below(5) as i32,
        keys_only: dice.one_in(5),
        count_only: dice.one_in(8),
        min_mod: bound(dice),
        max_mod: bound(dice),
        min_create: bound(dice),
        max_create: bound(dice),
        serializable: false,
    }
}

fn random_put(dice: &mut Dice) -> PutRequest<'static> {
    let (ignore_value, ignore_lease) = (dice.one_in(6), dice.one_in(6));
    PutRequest {
        key: dice.pick(&KEYS),
        value: if ignore_value { b"" } else { dice.pick(&VALUES) },
        lease: if ignore_lease || dice.one_in(2) { 0 } else { dice.below(4) as i64 },
        prev_kv: dice.one_in(2),
        ignore_value,
        ignore_lease,
    }
}

fn random_txn(dice: &mut Dice, revision: i64, depth: u32) -> TxnRequest<'static> {
    let mut txn = TxnRequest::default();
    for _ in 0..dice.below(3) {
        let n = dice.below(revision as u64 + 1) as i64;
        let operands =
            [Operand::None, Operand::Version(n % 4), Operand::Create(n), Operand::Mod(n), Operand::Value(dice.pick(&VALUES)), Operand::Lease(n % 4)];
        let target = dice.below(5) as i32;
        let operand = if dice.one_in(6) { dice.pick(&operands) } else { operands[target as usize + 1] };
        let key = dice.pick(&KEYS);
        let range_end = if dice.one_in(3) { dice.pick(&ENDS) } else { b"" };
        txn.compare.push(Compare { result: dice.below(4) as i32, target, key, range_end, operand });
    }
    for branch in [&mut txn.success, &mut txn.failure] {
        for _ in 0..dice.below(4) {
            branch.push(match dice.below(if depth < 2 { 7 } else { 6 }) {
                0 | 1 => RequestOp::Range(RangeRequest { revision: 0, ..random_range(dice, revision) }),
                2 => RequestOp::Range(random_range(dice, revision)),
                3 | 4 => RequestOp::Put(random_put(dice)),
                5 => RequestOp::DeleteRange(random_delete(dice)),
                _ => RequestOp::Txn(random_txn(dice, revision, depth + 1)),
            });
        }
    }
    txn
}

fn random_delete(dice: &mut Dice) -> DeleteRangeRequest<'static> {
    DeleteRangeRequest { key: dice.pick(&KEYS), range_end: dice.pick(&ENDS), prev_kv: dice.one_in(2) }
}

fn encoded(encode: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

fn uses_quirk(txn: &TxnRequest<'_>) -> bool {
    txn.success.iter().chain(&txn.failure).any(|op| match op {
        RequestOp::DeleteRange(delete) => delete.range_end == b"\0",
        RequestOp::Txn(txn) => uses_quirk(txn),
        _ => false,
    })
}

/// False: the store was replaced by what its image loaded as.
fn one_step(bench: &mut Bench, model: &mut Model, dice: &mut Dice) -> bool {
    match dice.below(20) {
        0..=6 => {
            let put = random_put(dice);
            let said = bench.apply(&command::encode_put(&encoded(|out| put.encode(out))).unwrap());
            let expected = model.check_put(&put).map(|()| {
                model.revision += 1;
                model.put(&put, model.revision)
            });
            assert_eq!(said, expected);
        }
        7 | 8 => {
            let delete = random_delete(dice);
            let said = bench.apply(&command::encode_delete_range(&encoded(|out| delete.encode(out))).unwrap());
            let expected = model.delete(&delete.range(), delete.prev_kv, model.revision + 1);
            model.revision += i64::from(!matches!(expected, Said::Delete(0, _)));
            assert_eq!(said, Ok(expected));
        }
        9..=13 => {
            let txn = random_txn(dice, model.revision, 0);
            if uses_quirk(&txn) {
                return true;
            }
            let said = bench.apply(&command::encode_txn(&encoded(|out| txn.encode(out))).unwrap());
            if said == Err(Error::DuplicateKey) {
                return true;
            }
            assert_eq!(said, model.txn(&txn), "{txn:?}");
        }
        14 => {
            let revision = model.revision - dice.below(12) as i64;
            let said = bench.apply(&command::encode_compaction(revision, false));
            if revision <= model.compacted {
                assert_eq!(said, Err(Error::Compacted));
            } else {
                assert_eq!(said, Ok(Said::Other));
                model.compacted = revision;
            }
        }
        15 | 16 => {
            let lease = 1 + dice.below(3) as i64;
            let said = bench.apply(&command::encode_lease_grant(lease, 5, 2));
            assert_eq!(said.is_ok(), model.leases.insert(lease));
        }
        17 => {
            let lease = 1 + dice.below(3) as i64;
            let said = bench.apply(&command::encode_lease_revoke(lease));
            assert_eq!(said.is_ok(), model.leases.contains(&lease));
            model.end_lease(lease);
        }
        18 => {
            let leases: Vec<(i64, u64)> = bench.store.leases().map(|(id, lease)| (id, lease.granted)).collect();
            bench.apply(&command::encode_expire(3, &leases)).unwrap();
            for (lease, _) in leases {
                model.end_lease(lease);
            }
        }
        _ => {
            bench.reload(dice);
            return false;
        }
    }
    true
}

fn history(seed: u64, steps: usize) -> u64 {
    let (mut dice, mut bench, mut model) = (Dice(seed), Bench::new(), Model::new());
    // accepted walks: whatever happens, they give what was there when they began
    let mut walks: Vec<(store::PinId, store::Walk, Said)> = Vec::new();
    for _ in 0..steps {
        if !one_step(&mut bench, &mut model, &mut dice) {
            walks.clear(); // the pins went with the old state
        }
        if walks.len() < 3 && dice.one_in(4) {
            let range = random_range(&mut dice, model.revision);
            if let Ok(walk) = bench.store.walk(range.query()) {
                walks.push((bench.store.pin(walk.revision()), walk, model.range(&range).unwrap()));
            }
        } else if walks.len() > 1 && dice.one_in(3) {
            let (pin, mut walk, expected) = walks.remove(dice.below(walks.len() as u64) as usize);
            assert_eq!(bench.rest_of(&mut walk, 1 + dice.below(3) as usize).0, expected);
            bench.store.unpin(pin);
        }
        assert_eq!((bench.store.revision(), bench.store.compacted()), (model.revision, model.compacted));
        if dice.one_in(6) {
            bench.write_out(dice.below(300) as usize);
        }
        bench.store.sweep(dice.below(4) as usize);
        for _ in 0..4 {
            let range = random_range(&mut dice, model.revision);
            let most = 1 + dice.below(5) as usize;
            assert_eq!(bench.range(&range, most), model.range(&range), "{range:?}");
        }
        if dice.one_in(10) {
            let revision = bench.store.compacted().max(1) + dice.below(3) as i64;
            if revision <= bench.store.revision() {
                check_hash(&bench, revision);
            }
        }
    }
    walks.into_iter().for_each(|(pin, _, _)| bench.store.unpin(pin));
    finish(&mut bench, &model);
    bench.parks
}

/// Equal to the twin, which was never swept, and to etcd's rule over all versions.
fn check_hash(bench: &Bench, revision: i64) {
    assert_eq!(bench.hash(&bench.store, revision), bench.hash(&bench.twin, revision));
}

/// Swept to the end, exactly what the predicate keeps is left.
fn finish(bench: &mut Bench, model: &Model) {
    while !bench.store.sweep(3) {}
    assert_eq!(bench.store.swept(), model.compacted);
    let superseded = |v: &&Version, i: usize| {
        model.versions[i + 1..].iter().any(|later| later.key == v.key && later.main <= model.compacted)
    };
    let kept = model.versions.iter().enumerate().filter(|(i, v)| {
        !superseded(v, *i) && !(v.value.is_none() && v.main < model.compacted)
    });
    let cost = |v: &Version| 256 + v.key.len() + v.value.as_ref().map_or(0, Vec::len);
    let (count, bytes) = kept.fold((0, 0), |(count, bytes), (_, v)| (count + 1, bytes + cost(v)));
    assert_eq!((bench.store.versions(), bench.store.live_bytes()), (count, bytes as u64));
    let live: u64 = bench.store.segments().map(|segment| segment.live).sum();
    assert!(live >= count * store::record::HEADER as u64);
}

#[test]
fn random_histories_agree_with_the_model() {
    let parks: u64 = (0..120).map(|seed| history(seed, 150)).sum();
    assert!(parks > 50, "values outside of memory were asked for ({parks})");
}

#[test]
fn pins_delay_the_sweep_and_nothing_else() {
    let mut bench = Bench::new();
    for value in [b"1", b"2", b"3", b"4"] {
        let put = PutRequest { key: b"k", value, ..Default::default() };
        bench.apply(&command::encode_put(&encoded(|out| put.encode(out))).unwrap()).unwrap();
    }
    let pin = bench.store.pin(3);
    let mut walk = bench.store.walk(RangeRequest { key: b"k", revision: 3, ..Default::default() }.query()).unwrap();
    bench.apply(&command::encode_compaction(5, false)).unwrap();
    assert!(bench.store.sweep(100));
    assert_eq!((bench.store.swept(), bench.store.versions()), (3, 3));
    let old = RangeRequest { key: b"k", revision: 3, ..Default::default() };
    assert_eq!(bench.store.walk(old.query()).unwrap_err(), Error::Compacted, "no new reader");
    assert!(walk.overtaken(bench.store.compacted()));
    let slice = bench.store.advance(&mut walk, 10);
    assert_eq!(slice.items[0].modified, 3, "the accepted walk goes on at its revision");
    bench.store.unpin(pin);
    assert!(bench.store.sweep_pending());
    assert!(bench.store.sweep(100));
    assert_eq!((bench.store.swept(), bench.store.versions()), (5, 1));
}

#[test]
fn an_image_shows_its_moment_though_the_state_moves_on() {
    let (mut dice, mut bench, mut model) = (Dice(99), Bench::new(), Model::new());
    for _ in 0..80 {
        one_step(&mut bench, &mut model, &mut dice);
    }
    bench.write_out(usize::MAX);
    let (head, mut cursor) = bench.store.image();
    let (frozen, digest) = (model.clone(), bench.store.digest());
    let mut rows = Vec::new();
    let mut done = false;
    while !done {
        done = bench.store.image_rows(&mut cursor, 1, &mut rows);
        // everything may happen meanwhile, except another image
        let put = PutRequest { key: dice.pick(&KEYS), value: b"later", ..Default::default() };
        bench.apply(&command::encode_put(&encoded(|out| put.encode(out))).unwrap()).unwrap();
        bench.apply(&command::encode_compaction(bench.store.revision(), false)).unwrap();
        bench.store.sweep(100);
    }
    bench.store.end_image(cursor);
    let loaded = Store::load(bench.store.config(), head, [Ok::<_, store::Damage>(rows)]).unwrap();
    assert_eq!(loaded.digest(), digest);
    bench.store = loaded;
    for revision in frozen.compacted.max(1)..=frozen.revision {
        let all = RangeRequest { key: b"\0", range_end: b"\0", revision, ..Default::default() };
        assert_eq!(bench.range(&all, 100), frozen.range(&all));
    }
}

#[test]
fn a_damaged_image_is_refused() {
    let mut bench = Bench::new();
    let mut model = Model::new();
    let mut dice = Dice(5);
    for _ in 0..60 {
        one_step(&mut bench, &mut model, &mut dice);
    }
    let (head, mut cursor) = bench.store.image();
    let mut rows = Vec::new();
    while !bench.store.image_rows(&mut cursor, 3, &mut rows) {}
    let encoded = head.encode();
    for cut in 0..encoded.len() {
        assert!(store::ImageHead::decode(&encoded[..cut]).is_err());
        let mut flipped = encoded.clone();
        flipped[cut] ^= 0x10;
        assert!(store::ImageHead::decode(&flipped).is_err(), "head byte {cut}");
    }
    let load = |rows: &[u8]| Store::load(Config::default(), head.clone(), [Ok::<_, store::Damage>(rows)]);
    assert!(load(&rows).is_ok());
    let first = 12 + u32::from_le_bytes(rows[4..8].try_into().unwrap()) as usize;
    assert!(load(&rows[first..]).is_err(), "a block is missing");
    for at in 0..rows.len() {
        assert!(load(&rows[..at]).is_err(), "cut at {at}");
        let mut flipped = rows.clone();
        flipped[at] ^= 1;
        assert!(load(&flipped).is_err(), "row byte {at}");
    }
}
