//! Random histories against a model that keeps every version in one list and does everything the
//! slow, obvious way. Beside the store under test runs a second one that never frees memory, never
//! sweeps and was never loaded from an image: both must say the same.

mod dumb;
mod rewriting;

use bytes::Bytes;
use dumb::{Model, Row, Said, Version};
use rewriting::Rewriting;
use std::collections::BTreeMap;
use store::command::{self, Compare, DeleteRangeRequest, Operand, PutRequest, RangeRequest, RequestOp, TxnRequest};
use store::{Asked, Config, Error, Handle, Item, Origin, Outcome, Position, Reply, Step, Store};
use testkit::Dice;

const KEYS: [&[u8]; 7] = [b"\0", b"a", b"a\0", b"ab", b"b", b"c", b"\xff"];
const ENDS: [&[u8]; 6] = [b"", b"", b"\0", b"ab", b"c", b"\xff"];
const VALUES: [&[u8]; 4] = [b"", b"x", b"y", b"a longer value"];

/// The store under test, its "files", and the untouched twins.
struct Bench {
    store: Store,
    twin: Store,
    /// Was told every entry again, as after a restart.
    again: Store,
    files: BTreeMap<Handle, Bytes>,
    parks: u64,
    steps: u64,
    pauses: u64,
    /// Steps of answers that were not whole.
    long_answers: u64,
    index: u64,
    rewriting: Option<Rewriting>,
    /// Runs of segments that were rewritten.
    runs: u64,
}

impl Bench {
    fn new() -> Bench {
        // small segments, so that histories cross many
        let config = Config { segment_bytes: 4096 + 400 };
        Bench {
            store: Store::new(config),
            twin: Store::new(Config::default()),
            again: Store::new(Config::default()),
            files: BTreeMap::new(),
            parks: 0,
            steps: 0,
            pauses: 0,
            long_answers: 0,
            index: 0,
            rewriting: None,
            runs: 0,
        }
    }

    fn apply(&mut self, body: &command::Checked) -> Result<Said, Error> {
        self.index += 1;
        let at = Position { index: self.index, term: 3 };
        let data = command::seal(body, Origin { member: 1, boot: 2, seq: self.index }, Some(self.index * 10));
        let applied = self.apply_in_steps(at, &data);
        let Outcome::Done(twin) = self.twin.apply(at, &data, None).unwrap() else { panic!("all in memory") };
        assert_eq!(applied.result.is_ok(), twin.result.is_ok());
        assert_eq!(self.store.digest(), self.twin.digest());
        assert_eq!(self.again.replay(at, &data, None, 0), Ok(None), "all in memory");
        assert_eq!(self.again.digest(), self.twin.digest());
        for (main, event) in applied.events.iter().flat_map(|r| r.events.iter().map(move |e| (r.revision, e))) {
            assert_eq!(event.revision.main, main);
            let opened = store::record::open(&event.record).unwrap();
            let kv = store::record::key_value(&opened.body).unwrap();
            assert_eq!((kv.key, kv.create, opened.tombstone), (&event.key[..], event.create, event.tombstone));
        }
        assert_eq!(applied.revision, self.store.revision());
        applied.result.map(|reply| self.said(reply))
    }

    /// In steps of every size, as long as they do something.
    fn apply_in_steps(&mut self, at: Position, data: &Bytes) -> store::Applied {
        let (mut fetched, before): (Option<Vec<Bytes>>, _) = (None, self.store.digest());
        let mut applied = loop {
            self.steps += 1;
            let keys = 1 + (self.steps % 4) as usize;
            let mut step = Step { keys, bytes: self.steps % 3 * 60 };
            let outcome = self.store.apply_in_steps(at, data, fetched.as_deref(), Asked::InSteps, &mut step);
            match outcome.expect("well formed") {
                Outcome::Done(applied) => break applied,
                Outcome::Pause => (fetched, self.pauses) = (None, self.pauses + 1),
                Outcome::Park(handles) => {
                    self.parks += 1;
                    fetched = Some(handles.iter().map(|handle| self.files[handle].clone()).collect());
                }
            }
            assert_eq!(self.store.digest(), before, "nothing changes before it is done");
        };
        let pin = applied.holds.map(|revision| self.store.pin(revision));
        while let Some(reply) = applied.result.as_mut().ok().filter(|_| pin.is_some()) {
            self.store.sweep(usize::MAX);
            self.long_answers += 1;
            if self.store.go_on(reply, &mut Step { keys: 1, bytes: 0 }, &mut u64::MAX.clone()) {
                break;
            }
        }
        pin.into_iter().for_each(|pin| self.store.unpin(pin));
        applied
    }

    fn record(&self, item: &Item) -> Bytes {
        item.at.bytes.clone().unwrap_or_else(|| self.files[&item.at.handle].clone())
    }

    fn row(&self, item: &Item, keys_only: bool) -> Row {
        let record = store::record::open(&self.record(item)).unwrap();
        let kv = store::record::key_value(&record.body).unwrap();
        assert_eq!(
            (kv.key, kv.create, kv.modified, kv.version),
            (&item.key[..], item.create, item.modified, item.version)
        );
        let value = if keys_only { Vec::new() } else { kv.value.to_vec() };
        (item.key.to_vec(), item.create, item.modified, item.version, item.lease, value)
    }

    fn said(&self, reply: Reply) -> Said {
        match reply {
            Reply::Put { prev } => Said::Put(prev.map(|item| self.row(&item, false))),
            Reply::Delete { deleted, prevs } => {
                Said::Delete(deleted, prevs.iter().map(|i| self.row(i, false)).collect())
            }
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
        self.end_rewriting();
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
        store.hash_kv(revision, |handle| store.in_memory(handle).unwrap_or_else(|| self.files[&handle].clone()))
    }
}

fn random_range(dice: &mut Dice, revision: i64) -> RangeRequest<'static> {
    let bound = |dice: &mut Dice| {
        if dice.one_in(5) { dice.below(revision as u64 + 2) as i64 } else { 0 }
    };
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
        let operands = [
            Operand::None,
            Operand::Version(n % 4),
            Operand::Create(n),
            Operand::Mod(n),
            Operand::Value(dice.pick(&VALUES)),
            Operand::Lease(n % 4),
        ];
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

/// Values that were read from files, and runs of segments that were rewritten.
fn history(seed: u64, steps: usize) -> Counts {
    let (mut dice, mut bench, mut model) = (Dice::new(seed), Bench::new(), Model::new());
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
        if dice.one_in(2) {
            bench.rewrite(&mut dice);
        }
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
    bench.check_files(&model);
    Counts { parks: bench.parks, pauses: bench.pauses, long_answers: bench.long_answers, runs: bench.runs }
}

/// What a history met.
#[derive(Default)]
struct Counts {
    parks: u64,
    pauses: u64,
    long_answers: u64,
    runs: u64,
}

/// Equal to the twin, which was never swept, and to etcd's rule over all versions.
fn check_hash(bench: &Bench, revision: i64) {
    assert_eq!(bench.hash(&bench.store, revision), bench.hash(&bench.twin, revision));
}

/// What replaying leaves is what applying left: tables, index, records.
fn check_again(bench: &mut Bench) {
    let [twin, again] = [&mut bench.twin, &mut bench.again].map(|store| {
        let (head, mut cursor) = store.image();
        let mut rows = Vec::new();
        while !store.image_rows(&mut cursor, 100, &mut rows) {}
        store.end_image(cursor);
        let records: Vec<Bytes> = store.unwritten(usize::MAX).into_iter().flat_map(|extent| extent.parts).collect();
        (head, rows, records)
    });
    assert_eq!(again, twin);
}

/// Swept to the end, exactly what the predicate keeps is left.
fn finish(bench: &mut Bench, model: &Model) {
    check_again(bench);
    while !bench.store.sweep(3) {}
    assert_eq!(bench.store.swept(), model.compacted);
    let superseded = |v: &&Version, i: usize| {
        model.versions[i + 1..].iter().any(|later| later.key == v.key && later.main <= model.compacted)
    };
    let kept = model
        .versions
        .iter()
        .enumerate()
        .filter(|(i, v)| !superseded(v, *i) && (v.value.is_some() || v.main >= model.compacted));
    let cost = |v: &Version| 256 + v.key.len() + v.value.as_ref().map_or(0, Vec::len);
    let (count, bytes) = kept.fold((0, 0), |(count, bytes), (_, v)| (count + 1, bytes + cost(v)));
    assert_eq!((bench.store.versions(), bench.store.live_bytes()), (count, bytes as u64));
    let live: u64 = bench.store.segments().map(|segment| segment.live).sum();
    assert!(live >= count * store::record::HEADER as u64);
}

#[test]
fn random_histories_agree_with_the_model() {
    let mut all = Counts::default();
    for counts in (0..120).map(|seed| history(seed, 150)) {
        all.parks += counts.parks;
        all.pauses += counts.pauses;
        all.long_answers += counts.long_answers;
        all.runs += counts.runs;
    }
    assert!(all.parks > 50, "values outside of memory were asked for ({})", all.parks);
    assert!(all.pauses > 50, "entries took several steps ({})", all.pauses);
    assert!(all.long_answers > 50, "so did answers ({})", all.long_answers);
    assert!(all.runs > 200, "runs of segments were rewritten ({})", all.runs);
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
    let (mut dice, mut bench, mut model) = (Dice::new(99), Bench::new(), Model::new());
    for _ in 0..80 {
        one_step(&mut bench, &mut model, &mut dice);
    }
    bench.write_out(usize::MAX);
    bench.end_rewriting();
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
    let mut dice = Dice::new(5);
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
