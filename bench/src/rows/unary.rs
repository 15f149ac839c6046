//! Rows of single calls on single keys: put, get, compare-and-swap, fill.

use crate::args::{Load, Order};
use crate::drive::{Plan, Source};
use crate::message::{self, Range};
use crate::run::{Row, measured};
use std::sync::Arc;
use wire::Rpc;

/// Chance that repeats: the same numbers at each run.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(limit)) >> 64) as u64
    }
}

/// Bytes that do not compress, the same at each run.
pub fn noise(len: usize) -> Vec<u8> {
    let mut chance = Chance::new(7);
    (0..len).map(|_| chance.below(256) as u8).collect()
}

/// Appends the key of a number: all keys of a prefix are equally long and sort as their numbers.
pub fn key(out: &mut Vec<u8>, prefix: &str, number: u64) {
    out.extend_from_slice(prefix.as_bytes());
    let mut digits = [b'0'; 12];
    let mut rest = number;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&digits);
}

/// The first key behind all that begin with `prefix`.
pub fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < 255 {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

/// Draws numbers of keys.
#[derive(Clone, Debug)]
pub struct Keys {
    prefix: Arc<str>,
    order: Order,
    count: u64,
    chance: Chance,
    next: u64,
    step: u64,
}

impl Keys {
    /// The share of thread `thread` of `threads`.
    pub fn new(load: &Load, thread: usize) -> Keys {
        Keys {
            prefix: load.target.prefix.as_str().into(),
            order: load.order,
            count: load.keys,
            chance: Chance::new(thread as u64 + 1),
            next: thread as u64,
            step: load.target.threads as u64,
        }
    }

    fn draw(&mut self, out: &mut Vec<u8>) {
        let number = match self.order {
            Order::Random => self.chance.below(self.count),
            Order::Sequential => {
                let number = self.next % self.count;
                self.next += self.step;
                number
            }
        };
        key(out, &self.prefix, number);
    }
}

/// Puts.
pub struct Puts {
    keys: Keys,
    value: Vec<u8>,
    key: Vec<u8>,
}

impl Puts {
    pub fn new(load: &Load, thread: usize) -> Puts {
        Puts { keys: Keys::new(load, thread), value: noise(load.value_size), key: Vec::new() }
    }
}

impl Source for Puts {
    fn next(&mut self, _client: u32, out: &mut Vec<u8>) -> Rpc {
        self.key.clear();
        self.keys.draw(&mut self.key);
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
    missed: u64,
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
        self.missed += 1;
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
pub fn put(load: &Load) -> Result<bool, String> {
    let what = format!("put {} B over {} keys", load.value_size, load.keys);
    let sources = (0..load.target.threads).map(|thread| Puts::new(load, thread)).collect();
    prepare(load)?;
    let (report, _) = measured(&Row { name: "put", what, target: &load.target }, &load.plan()?, sources)?;
    Ok(report)
}

/// # Errors
/// If the run cannot begin.
pub fn get(load: &Load, serializable: bool) -> Result<bool, String> {
    let kind = if serializable { "serialisable" } else { "linearisable" };
    let what = format!("{kind} get of {} B over {} keys", load.value_size, load.keys);
    let source =
        |thread| Gets { keys: Keys::new(load, thread), key: Vec::new(), serializable, value_size: load.value_size };
    prepare(load)?;
    let sources = (0..load.target.threads).map(source).collect();
    let (good, _) = measured(&Row { name: "get", what, target: &load.target }, &load.plan()?, sources)?;
    Ok(good)
}

/// # Errors
/// If the run cannot begin.
pub fn swap(load: &Load) -> Result<bool, String> {
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
            missed: 0,
        })
        .collect();
    let (good, _) = measured(&Row { name: "swap", what, target: &load.target }, &plan, sources)?;
    Ok(good)
}

/// # Errors
/// If the run cannot begin.
pub fn fill(load: &Load) -> Result<bool, String> {
    let (plan, sources) = filling(load)?;
    let what = format!("put each of {} keys once, {} B", load.keys, load.value_size);
    let (good, _) = measured(&Row { name: "fill", what, target: &load.target }, &plan, sources)?;
    Ok(good)
}

/// Fills before the row, if that is asked for.
///
/// # Errors
/// If a put fails.
pub fn prepare(load: &Load) -> Result<(), String> {
    if !load.fill {
        return Ok(());
    }
    let (plan, sources) = filling(load)?;
    let live = crate::drive::Live::default();
    let (seen, ..) = crate::drive::drive(&plan, sources, &live, |_, _| ())?;
    match seen.errors.first_key_value() {
        Some((what, count)) => Err(format!("filling: {count} x {what}")),
        None => Ok(()),
    }
}

fn filling(load: &Load) -> Result<(Plan, Vec<Puts>), String> {
    let load = Load { order: Order::Sequential, clients: load.clients.max(256), rate: None, ..load.clone() };
    let plan = Plan { total: Some(load.keys), warm_up: std::time::Duration::ZERO, ..load.plan()? };
    let sources = (0..load.target.threads).map(|thread| Puts::new(&load, thread)).collect();
    Ok((plan, sources))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_their_numbers() {
        let text = |number| {
            let mut out = Vec::new();
            key(&mut out, "/p/", number);
            String::from_utf8(out).expect("ASCII")
        };
        assert_eq!(text(1_234), "/p/000000001234");
        assert_eq!(text(0).len(), text(u64::from(u32::MAX)).len());
        assert_eq!(end_of("/p/"), b"/p0");
        assert_eq!(end_of("\u{7f}"), [0x80]);
    }

    #[test]
    fn chance_repeats_and_keeps_its_limit() {
        let draw =
            |seed| (0..1000).map(|_| 0).scan(Chance::new(seed), |c, _: i32| Some(c.below(10))).collect::<Vec<_>>();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let mut counts = [0; 10];
        draw(3).into_iter().for_each(|n| counts[n as usize] += 1);
        assert!(counts.iter().all(|n| (60..140).contains(n)), "{counts:?}");
    }
}
