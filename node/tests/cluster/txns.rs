//! Transactions of the scripts, and what they cost.

use super::Cluster;
use node::{Config, Job, ReadJob, Request};
use std::collections::BTreeMap;
use std::fmt::Write;
use store::command::{self, Compare, Operand, PutRequest, RangeRequest, RequestOp, TxnRequest};
use store::{OpReply, Reply};

/// What apply may do at once, and what it has read.
#[derive(Default)]
pub struct Txns {
    /// Keys looked at in a turn, and bytes of records read at once; None: the defaults.
    steps: Option<(usize, u64)>,
    /// Bytes of entries that may wait for apply; None: the default.
    unapplied: Option<u64>,
    /// Jobs that read values for apply, and their records, by member.
    reads: BTreeMap<u64, (u64, usize)>,
}

impl Txns {
    pub fn configure(&self, config: &mut Config) {
        if let Some((keys, bytes)) = self.steps {
            (config.budgets.apply_keys, config.budgets.apply_read) = (keys, bytes);
        }
        config.budgets.unapplied = self.unapplied.unwrap_or(config.budgets.unapplied);
    }

    pub fn see(&mut self, id: u64, work: &Job) {
        if let Job::Read(ReadJob::ReadRecords { handles }) = work {
            let (jobs, records) = self.reads.entry(id).or_default();
            (*jobs, *records) = (*jobs + 1, *records + handles.len());
        }
    }
}

/// What a transaction of these words asks for; None: they are of none.
/// `same KEY END VALUE`: every key from KEY to END has that value. Then `done` is put.
/// `only same KEY END VALUE`: it puts nothing. `ranges COUNT KEY END`: so many, behind a put.
pub fn request(words: &[&str]) -> Option<Request> {
    let op = RequestOp::Put(PutRequest { key: b"done", value: b"1", ..Default::default() });
    let range = |key: &str, end: &str| RangeRequest {
        key: key.to_owned().leak().as_bytes(),
        range_end: end.to_owned().leak().as_bytes(),
        ..Default::default()
    };
    let same = |key: &str, end: &str, value: &str| {
        let RangeRequest { key, range_end, .. } = range(key, end);
        let operand = Operand::Value(super::requests::spelled(value).leak().as_bytes());
        vec![Compare { result: 0, target: 3, key, range_end, operand }]
    };
    let txn = match *words {
        ["same", key, end, value] => {
            TxnRequest { compare: same(key, end, value), success: vec![op], ..Default::default() }
        }
        ["only", "same", key, end, value] => {
            let one = RequestOp::Range(range(key, ""));
            TxnRequest { compare: same(key, end, value), success: vec![one], ..Default::default() }
        }
        ["ranges", count, key, end] => {
            let one = RequestOp::Range(range(key, end));
            let ranges = std::iter::repeat_n(one, count.parse().expect("a number"));
            TxnRequest { success: [op].into_iter().chain(ranges).collect(), ..Default::default() }
        }
        _ => return None,
    };
    let mut bytes = Vec::new();
    txn.encode(&mut bytes);
    let body = command::encode_txn(&bytes).expect("well-formed");
    Some(match txn.is_read_only() {
        true => Request::ReadTxn { body, linearizable: true },
        false => Request::Propose { body, cost: 0 },
    })
}

pub fn tell(succeeded: bool, responses: &[OpReply]) -> String {
    let one = |op: &OpReply| match &op.reply {
        Reply::Range(range) => format!("{} of {} keys", range.items.len(), range.count),
        Reply::Put { .. } => "put".to_string(),
        other => format!("{other:?}"),
    };
    let mut told: Vec<String> = responses.iter().map(one).collect();
    let all = told.len();
    told.dedup();
    format!("{}: {all} done: {}", if succeeded { "success" } else { "failure" }, told.join(", "))
}

impl Cluster {
    /// `unapplied BYTES` (what may wait for apply), `waits ID BYTES` (whether more of the log than
    /// that is in memory), `apply KEYS BYTES` (what apply may do at once, for members that start
    /// afterwards), `reads` (what apply has read since the last time). False: it is none of them.
    pub fn txn_command(&mut self, words: &[&str]) -> bool {
        match words {
            ["apply", keys, bytes] => {
                self.txns.steps = Some((keys.parse().expect("keys"), bytes.parse().expect("bytes")));
            }
            ["unapplied", bytes] => self.txns.unapplied = Some(bytes.parse().expect("bytes")),
            ["waits", id, most] => {
                let held = self.machines[&id.parse().expect("id")].node.status().held;
                let more = if held.entry_cache > most.parse().expect("bytes") { "more" } else { "no more" };
                let _ = writeln!(self.told, "{id}: {} entries wait, {more} than {most} bytes", held.unapplied_entries);
            }
            ["reads"] => {
                for (id, (jobs, records)) in std::mem::take(&mut self.txns.reads) {
                    let _ = writeln!(self.told, "{id}: apply read {records} records in {jobs} jobs");
                }
            }
            _ => return false,
        }
        true
    }
}
