//! Rows of single calls on single keys: put, get, compare-and-swap, fill.

use super::keys::{Keys, STAMP, key, noise, stamp};
use crate::args::{Load, Order};
use crate::drive::{Plan, Source};
use crate::failure::Failure;
use crate::message::{self, Range};
use crate::run::{Row, measured};
use wire::Rpc;

/// Puts.
pub struct Puts {
    keys: Keys,
    value: Vec<u8>,
    key: Vec<u8>,
}

impl Puts {
    /// Values of at least [`STAMP`] bytes begin with when they were sent.
    pub fn new(load: &Load, thread: usize) -> Puts {
        Puts { keys: Keys::new(load, thread), value: noise(load.value_size), key: Vec::new() }
    }
}

impl Source for Puts {
    fn next(&mut self, _client: u32, out: &mut Vec<u8>) -> Rpc {
        self.key.clear();
        self.keys.draw(&mut self.key);
        if let Some(begin) = self.value.first_chunk_mut::<STAMP>() {
            *begin = stamp();
        }
        message::put(out, &self.key, &self.value, 0);
        Rpc::Put
    }

    fn answer(&mut self, _client: u32, bytes: &[u8], _len: usize) -> Result<(), &'static str> {
        if message::revision(bytes) > 0 { Ok(()) } else { Err("no revision in the answer") }
    }
}

/// Reads of one key.
struct Gets {
    keys: Keys,
    key: Vec<u8>,
    serializable: bool,
    value_size: usize,
}

impl Source for Gets {
    fn next(&mut self, _client: u32, out: &mut Vec<u8>) -> Rpc {
        self.key.clear();
        self.keys.draw(&mut self.key);
        message::range(out, &Range { key: &self.key, serializable: self.serializable, ..Range::default() });
        Rpc::Range
    }

    fn answer(&mut self, _client: u32, bytes: &[u8], len: usize) -> Result<(), &'static str> {
        if len > self.value_size && message::bytes_of(bytes, 2).is_some() {
            return Ok(());
        }
        Err("the key is not there (was it filled?)")
    }

    fn keep(&self) -> usize {
        usize::MAX
    }
}

/// Compare-and-swap: each client goes round its own keys.
struct Swaps {
    prefix: String,
    value: Vec<u8>,
    /// Last known mod revision of each key; 0: not there.
    known: Vec<i64>,
    /// Key each client has under way, as a place in `known`.
    at: Vec<usize>,
    clients: usize,
    first: u64,
    step: u64,
    key: Vec<u8>,
    scratch: Vec<u8>,
}

impl Source for Swaps {
    fn next(&mut self, client: u32, out: &mut Vec<u8>) -> Rpc {
        let at = &mut self.at[client as usize];
        *at += self.clients;
        if *at >= self.known.len() {
            *at = client as usize % self.known.len();
        }
        self.key.clear();
        key(&mut self.key, &self.prefix, self.first + *at as u64 * self.step);
        message::swap(out, &self.key, self.known[*at], &self.value, &mut self.scratch);
        Rpc::Txn
    }

    fn answer(&mut self, client: u32, bytes: &[u8], _len: usize) -> Result<(), &'static str> {
        let known = &mut self.known[self.at[client as usize]];
        if message::number_of(bytes, 2) == 1 {
            *known = message::revision(bytes);
            return Ok(());
        }
        // The other branch: responses (3) > response_range (1) > kvs (2) > mod_revision (3).
        let kv = message::bytes_of(bytes, 3)
            .and_then(|op| message::bytes_of(op, 1))
            .and_then(|range| message::bytes_of(range, 2));
        let found = kv.map_or(0, |kv| message::number_of(kv, 3));
        if found == *known {
            return Err("the comparison failed although the revision is the known one");
        }
        *known = found;
        Ok(())
    }

    fn keep(&self) -> usize {
        usize::MAX
    }
}

/// # Errors
/// If the run cannot begin.
pub fn put(load: &Load) -> Result<bool, Failure> {
    let what = format!("put {} B over {} keys", load.value_size, load.keys);
    let sources = (0..load.target.threads).map(|thread| Puts::new(load, thread)).collect();
    prepare(load)?;
    measured(&Row { name: "put", what, target: &load.target }, &load.plan()?, sources)
}

/// # Errors
/// If the run cannot begin.
pub fn get(load: &Load, serializable: bool) -> Result<bool, Failure> {
    let kind = if serializable { "serialisable" } else { "linearisable" };
    let what = format!("{kind} get of {} B over {} keys", load.value_size, load.keys);
    let source =
        |thread| Gets { keys: Keys::new(load, thread), key: Vec::new(), serializable, value_size: load.value_size };
    prepare(load)?;
    let sources = (0..load.target.threads).map(source).collect();
    measured(&Row { name: "get", what, target: &load.target }, &load.plan()?, sources)
}

/// # Errors
/// If the run cannot begin.
pub fn swap(load: &Load) -> Result<bool, Failure> {
    let what = format!("compare-and-swap of {} B over {} keys", load.value_size, load.keys);
    let plan = load.plan()?;
    let threads = plan.threads;
    if load.keys < u64::from(plan.clients) {
        return Err("a swap needs at least as many --keys as --clients: each client swaps keys of its own".into());
    }
    prepare(load)?;
    let shares: Vec<(u64, u64)> =
        crate::drive::share(load.keys, threads).zip(crate::drive::share(u64::from(plan.clients), threads)).collect();
    let sources = shares
        .iter()
        .enumerate()
        .map(|(thread, (keys, clients))| Swaps {
            prefix: load.target.prefix.clone(),
            value: noise(load.value_size),
            known: vec![0; *keys as usize],
            at: (0..*clients as usize).collect(),
            clients: *clients as usize,
            first: thread as u64,
            step: threads as u64,
            key: Vec::new(),
            scratch: Vec::new(),
        })
        .collect();
    measured(&Row { name: "swap", what, target: &load.target }, &plan, sources)
}

/// # Errors
/// If the run cannot begin.
pub fn fill(load: &Load) -> Result<bool, Failure> {
    let (plan, sources) = filling(load)?;
    let what = format!("put each of {} keys once, {} B", load.keys, load.value_size);
    measured(&Row { name: "fill", what, target: &load.target }, &plan, sources)
}

/// Fills before the row, if that is asked for.
///
/// # Errors
/// If a put fails.
pub fn prepare(load: &Load) -> Result<(), Failure> {
    if !load.fill {
        return Ok(());
    }
    let (plan, sources) = filling(load)?;
    let live = crate::drive::Live::default();
    let (seen, ..) = crate::drive::drive(&plan, sources, &live, |_, _| ())?;
    match seen.errors.first_key_value() {
        Some((what, count)) => Err(format!("filling: {count} x {what}").into()),
        None => Ok(()),
    }
}

fn filling(load: &Load) -> Result<(Plan, Vec<Puts>), Failure> {
    let load = Load { order: Order::Sequential, clients: load.clients.max(256), rate: None, ..load.clone() };
    let plan = Plan { total: Some(load.keys), warm_up: std::time::Duration::ZERO, ..load.plan()? };
    let sources = (0..load.target.threads).map(|thread| Puts::new(&load, thread)).collect();
    Ok((plan, sources))
}

/// Writes so many revisions, over the keys of the load in turn.
///
/// # Errors
/// If a put fails.
pub fn history(load: &Load, revisions: u64) -> Result<(), Failure> {
    let load = Load { order: Order::Sequential, clients: 256, rate: None, conns: None, ..load.clone() };
    let plan = Plan { total: Some(revisions), warm_up: std::time::Duration::ZERO, ..load.plan()? };
    let sources: Vec<Puts> = (0..plan.threads).map(|thread| Puts::new(&load, thread)).collect();
    let (seen, ..) = crate::drive::drive(&plan, sources, &crate::drive::Live::default(), |_, _| ())?;
    match seen.errors.first_key_value() {
        Some((what, count)) => Err(format!("writing history: {count} x {what}").into()),
        None => Ok(()),
    }
}
