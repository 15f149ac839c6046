//! What one entry may cost when the records that it needs are in files: calls, reads and memory
//! grow with what it names, and one call does little.

use bytes::Bytes;
use std::collections::BTreeMap;
use store::command::{self, Compare, Operand, PutRequest, RangeRequest, RequestOp, TxnRequest};
use store::{Asked, Config, Handle, Origin, Outcome, Position, Reply, Step, Store};

const VALUE: &[u8] = &[b'v'; 100];

struct Bench {
    store: Store,
    files: BTreeMap<Handle, Bytes>,
    /// Calls of apply for the last entry, and the records it asked for.
    calls: usize,
    asked: usize,
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

impl Bench {
    /// `keys` keys with a value each, all in files.
    fn new(keys: usize) -> Bench {
        let mut bench = Bench { store: Store::new(Config::default()), files: BTreeMap::new(), calls: 0, asked: 0 };
        for n in 0..keys {
            let key = format!("k{n:08}");
            let put = PutRequest { key: key.as_bytes(), value: VALUE, ..Default::default() };
            bench.apply(&command::encode_put(&encoded(|out| put.encode(out))).unwrap());
        }
        for extent in bench.store.unwritten(usize::MAX) {
            let mut offset = extent.offset;
            for part in &extent.parts {
                let len = part.len() as u32;
                bench.files.insert(Handle { segment: extent.segment, offset, len }, part.clone());
                offset += len;
            }
            bench.store.written(extent.segment, extent.end(), extent.seals);
        }
        bench
    }

    fn apply(&mut self, body: &command::Checked) -> Reply {
        let at = Position { index: self.store.applied().index + 1, term: 1 };
        let data = command::seal(body, Origin { member: 1, boot: 2, seq: at.index }, Some(1));
        (self.calls, self.asked) = (0, 0);
        let mut fetched: Option<Vec<Bytes>> = None;
        loop {
            self.calls += 1;
            match self.store.apply(at, &data, fetched.as_deref()).expect("well formed") {
                Outcome::Done(applied) => return applied.result.expect("nothing is wrong with it"),
                Outcome::Pause => fetched = None,
                Outcome::Park(handles) => {
                    self.asked += handles.len();
                    fetched = Some(handles.iter().map(|handle| self.files[handle].clone()).collect());
                }
            }
        }
    }

    fn txn(&mut self, txn: &TxnRequest<'_>) -> Reply {
        self.apply(&command::encode_txn(&encoded(|out| txn.encode(out))).unwrap())
    }
}

fn all_equal(value: &[u8]) -> Compare<'_> {
    let operand = Operand::Value(value);
    Compare { result: 0, target: 3, key: b"k", range_end: b"l", operand }
}

fn put() -> RequestOp<'static> {
    RequestOp::Put(PutRequest { key: b"z", value: b"1", ..Default::default() })
}

#[test]
fn a_compare_of_many_values_reads_each_once_in_few_calls() {
    let keys = 20_000;
    let mut bench = Bench::new(keys);
    let txn = TxnRequest { compare: vec![all_equal(VALUE)], success: vec![put()], ..Default::default() };
    let reply = bench.txn(&txn);
    assert!(matches!(reply, Reply::Txn { succeeded: true, .. }));
    assert_eq!(bench.asked, keys, "each record is read once");
    assert!(bench.calls <= keys / 100, "{} calls", bench.calls);
}

#[test]
fn many_compares_and_puts_that_keep_their_value_are_read_together() {
    let mut bench = Bench::new(2_000);
    let keys: Vec<String> = (0..1_000).map(|n| format!("k{n:08}")).collect();
    let operand = Operand::Value(VALUE);
    let one = |key| Compare { result: 0, target: 3, key, operand, ..Default::default() };
    let nested =
        |key: &'static str| RequestOp::Txn(TxnRequest { compare: vec![one(key.as_bytes())], ..Default::default() });
    let success = keys.iter().map(|key| nested(key.clone().leak())).collect();
    bench.txn(&TxnRequest { success, ..Default::default() });
    assert!(bench.asked == 1_000 && bench.calls < 10, "{} calls for {} records", bench.calls, bench.asked);

    let keep = |key: &'static str| {
        RequestOp::Put(PutRequest { key: key.as_bytes(), ignore_value: true, ..Default::default() })
    };
    let success = (1_000..2_000).map(|n| keep(format!("k{n:08}").leak())).collect();
    bench.txn(&TxnRequest { success, ..Default::default() });
    assert!(bench.asked == 1_000 && bench.calls < 10, "{} calls for {} records", bench.calls, bench.asked);
    assert_eq!(bench.store.get(b"k00001999").expect("it is there").version, 2);
}

/// One call looks at no more keys than its step allows, whatever the entry names.
#[test]
fn one_call_looks_at_few_keys() {
    let mut bench = Bench::new(1_000);
    let older = Compare { result: 2, target: 2, key: b"k", range_end: b"l", operand: Operand::Mod(i64::MAX) };
    let range = RequestOp::Range(RangeRequest { key: b"k", range_end: b"l", ..Default::default() });
    let success = vec![range.clone(), put(), range];
    let txn = TxnRequest { compare: vec![older; 3], success, ..Default::default() };
    let body = command::encode_txn(&encoded(|out| txn.encode(out))).unwrap();
    let at = Position { index: bench.store.applied().index + 1, term: 1 };
    let data = command::seal(&body, Origin::default(), Some(1));
    let mut keys = 0;
    let mut applied = loop {
        let mut step = Step { keys: 100, ..Step::default() };
        let outcome = bench.store.apply_in_steps(at, &data, None, Asked::InSteps, &mut step).expect("well formed");
        keys += 100 - step.keys;
        match outcome {
            Outcome::Done(applied) => break applied,
            Outcome::Pause => assert_eq!(step.keys, 0, "it paused because it had to"),
            Outcome::Park(handles) => panic!("no value decides, not {handles:?}"),
        }
    };
    assert!((3_000..3_200).contains(&keys), "{keys} keys for three compares of a thousand, and the begun answer");
    let pin = bench.store.pin(applied.holds.expect("the answer is not whole"));
    let reply = applied.result.as_mut().expect("nothing is wrong with it");
    let (mut steps, mut room) = (0, u64::MAX);
    while !bench.store.go_on(reply, &mut Step { keys: 100, bytes: 0 }, &mut room) {
        steps += 1;
    }
    bench.store.unpin(pin);
    assert!((18..=21).contains(&steps), "{steps} steps for two ranges of a thousand");
    let Reply::Txn { responses, .. } = reply else { panic!("of a transaction") };
    for range in [0, 2] {
        let Reply::Range(range) = &responses[range].reply else { panic!("of a range") };
        assert_eq!((range.items.len(), range.count, range.rest.is_some()), (1_000, 1_000, false));
    }
}

/// Who answers nobody does not run the ranges, and comes to the same state.
#[test]
fn ranges_that_nobody_reads_are_not_run() {
    let mut bench = Bench::new(1_000);
    let mut other = bench.store.clone();
    let range = RequestOp::Range(RangeRequest { key: b"k", range_end: b"l", ..Default::default() });
    let success: Vec<_> = std::iter::repeat_n(range, 100).chain([put()]).collect();
    let body = command::encode_txn(&encoded(|out| TxnRequest { success, ..Default::default() }.encode(out))).unwrap();
    let at = Position { index: bench.store.applied().index + 1, term: 1 };
    let data = command::seal(&body, Origin::default(), Some(1));
    let mut step = Step::default();
    let outcome = bench.store.apply_in_steps(at, &data, None, Asked::Nobody, &mut step).expect("well formed");
    let Outcome::Done(applied) = outcome else { panic!("it needs nothing") };
    assert_eq!((step, applied.holds), (Step::default(), None), "no key was looked at");
    let Ok(Reply::Txn { responses, .. }) = applied.result else { panic!("of a transaction") };
    assert_eq!(responses.len(), 101, "they are counted all the same");
    other.apply(at, &data, None).expect("well formed");
    assert_eq!(other.digest(), bench.store.digest());
}
