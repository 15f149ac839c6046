//! Lists of a whole prefix: in one answer, by pages, as a stream, or counted only.

use super::keys::{end_of, key};
use super::unary::prepare;
use crate::args::Load;
use crate::drive::{Latencies, Source, latencies};
use crate::failure::Failure;
use crate::message::{self, Fields, Range, Value};
use crate::run::{Row, measured_with};
use std::time::Instant;
use wire::Rpc;

/// How a list is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Whole,
    /// Pages of at most so many keys, all at the revision of the first.
    Pages(u64),
    Stream,
    Count,
}

/// Where a client is in its list.
#[derive(Clone, Debug, Default)]
struct At {
    seen: u64,
    revision: i64,
    since: Option<Instant>,
}

struct Lists {
    way: Way,
    prefix: String,
    keys: u64,
    end: Vec<u8>,
    at: Vec<At>,
    /// Of whole lists; a call of the run is one page.
    whole: Latencies,
}

impl Source for Lists {
    fn next(&mut self, client: u32, out: &mut Vec<u8>) -> Rpc {
        let at = &mut self.at[client as usize];
        let mut first = Vec::new();
        let mut range = Range { end: &self.end, ..Range::default() };
        match self.way {
            Way::Pages(limit) => {
                if at.seen >= self.keys || at.since.is_none() {
                    *at = At { since: Some(Instant::now()), ..At::default() };
                }
                key(&mut first, &self.prefix, at.seen);
                (range.limit, range.revision) = (limit as i64, at.revision);
            }
            _ => {
                *at = At::default();
                first.extend_from_slice(self.prefix.as_bytes());
                range.count_only = self.way == Way::Count;
            }
        }
        range.key = &first;
        message::range(out, &range);
        if self.way == Way::Stream { Rpc::RangeStream } else { Rpc::Range }
    }

    fn answer(&mut self, client: u32, bytes: &[u8], _len: usize) -> Result<(), &'static str> {
        let at = &mut self.at[client as usize];
        let answer = if self.way == Way::Stream { message::bytes_of(bytes, 1).unwrap_or(&[]) } else { bytes };
        let rows = Fields(answer).filter(|(number, value)| *number == 2 && matches!(value, Value::Bytes(_))).count();
        at.seen += rows as u64;
        if at.revision == 0 {
            at.revision = message::revision(answer);
        }
        if self.way == Way::Count {
            at.seen = message::number_of(answer, 4) as u64;
        }
        Ok(())
    }

    fn complete(&mut self, client: u32) -> Result<(), &'static str> {
        let at = &mut self.at[client as usize];
        if let Way::Pages(limit) = self.way {
            if at.seen < self.keys {
                return if at.seen.is_multiple_of(limit) { Ok(()) } else { Err("a page that is too short") };
            }
            let since = at.since.take().ok_or("a page of no list")?;
            self.whole.saturating_record(since.elapsed().as_micros() as u64);
        }
        if at.seen == self.keys { Ok(()) } else { Err("not as many keys as there are (run fill with the same --keys)") }
    }

    fn keep(&self) -> usize {
        usize::MAX
    }
}

/// # Errors
/// If the run cannot begin.
pub fn list(load: &Load, way: Way, total: Option<u64>) -> Result<bool, Failure> {
    let what = match way {
        Way::Whole => format!("list of {} keys in one answer", load.keys),
        Way::Pages(limit) => format!("list of {} keys by pages of {limit}", load.keys),
        Way::Stream => format!("list of {} keys as a stream", load.keys),
        Way::Count => format!("count of {} keys", load.keys),
    };
    if way == Way::Pages(0) {
        return Err("--page must be at least 1".into());
    }
    prepare(load)?;
    let mut plan = load.plan()?;
    plan.total = total;
    if total.is_some() {
        plan.warm_up = std::time::Duration::ZERO;
    }
    let source = |clients: u64| Lists {
        way,
        prefix: load.target.prefix.clone(),
        keys: load.keys,
        end: end_of(&load.target.prefix),
        at: vec![At::default(); clients as usize],
        whole: latencies(),
    };
    let sources = crate::drive::share(u64::from(plan.clients), plan.threads).map(source).collect();
    load.target.watched().pids.iter().for_each(|pid| {
        // Not allowed for another user's process: then its peak is of its whole life.
        crate::cost::reset_peak(*pid);
    });
    let row = Row { name: "list", what, target: &load.target };
    measured_with(&row, &plan, sources, |report, sources: Vec<Lists>| {
        let pages = report.operations as f64;
        let keys = match way {
            Way::Count => 0.0,
            Way::Pages(limit) => pages * limit.min(load.keys) as f64,
            _ => pages * load.keys as f64,
        };
        if keys > 0.0 {
            report.figures.insert("keys/s".into(), keys / report.seconds.max(1e-9));
            let cpu: f64 = report.servers.iter().map(|server| server.cpu_seconds).sum();
            report.figures.insert("server CPU ms per 10,000 keys".into(), cpu * 1e3 / (keys / 1e4));
        }
        let mut whole = latencies();
        sources.iter().for_each(|source| whole.add(&source.whole).expect("the same bounds"));
        if !whole.is_empty() {
            report.figures.insert("whole list p50 ms".into(), whole.value_at_quantile(0.5) as f64 / 1e3);
            report.figures.insert("whole list p99 ms".into(), whole.value_at_quantile(0.99) as f64 / 1e3);
        }
    })
}
