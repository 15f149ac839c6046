//! A storm of pods, as the API server writes it: create, three status updates, an event, delete;
//! every write compared with the revision it is based on; everything watched.

use super::keys::{STAMP, key, noise, stamp};
use super::watch::{FanOut, OWED, add_watchers};
use super::watchers::{Watch, Watchers};
use crate::args::Load;
use crate::call::Caller;
use crate::drive::{Live, Source, drive};
use crate::failure::Failure;
use crate::message;
use crate::run::{Progress, Row, finish, report_of};
use wire::Rpc;

const CALLS: u64 = 6;
const EVENT: usize = 700;

struct Pods {
    prefix: String,
    value: Vec<u8>,
    next: u64,
    step: u64,
    /// Per client: its pod, the call that is next, the pod's mod revision.
    at: Vec<(u64, u64, i64)>,
    scratch: Vec<u8>,
}

impl Source for Pods {
    fn next(&mut self, client: u32, out: &mut Vec<u8>) -> Rpc {
        let (pod, call, revision) = &mut self.at[client as usize];
        if *call == 0 {
            (*pod, *revision) = (self.next, 0);
            self.next += self.step;
        }
        let mut name = Vec::new();
        if let Some(begin) = self.value.first_chunk_mut::<STAMP>() {
            *begin = stamp();
        }
        if *call == 4 {
            key(&mut name, &format!("{}events/", self.prefix), *pod);
            let value = &self.value[..EVENT.min(self.value.len())];
            message::swap(out, &name, 0, value, &mut self.scratch);
            return Rpc::Txn;
        }
        key(&mut name, &format!("{}pods/", self.prefix), *pod);
        if *call == CALLS - 1 {
            message::remove(out, &name, *revision);
        } else {
            message::swap(out, &name, *revision, &self.value, &mut self.scratch);
        }
        Rpc::Txn
    }

    fn answer(&mut self, client: u32, bytes: &[u8], _len: usize) -> Result<(), &'static str> {
        let (_, call, revision) = &mut self.at[client as usize];
        if message::number_of(bytes, 2) != 1 {
            return Err("a comparison failed although nobody else writes");
        }
        if *call < 4 {
            *revision = message::revision(bytes);
        }
        *call = (*call + 1) % CALLS;
        Ok(())
    }
}

/// # Errors
/// If the run cannot begin.
pub fn pods(load: &Load, fan: FanOut) -> Result<bool, Failure> {
    if load.value_size < STAMP {
        return Err(format!("--value-size must be at least {STAMP}: the value carries when it was sent").into());
    }
    let plan = load.plan()?;
    let watched = load.target.watched();
    let prefix = &load.target.prefix;
    let from_revision = Caller::connect(load.target.dial()?)?.revision()? + 1;
    let watch = Watch { prefix, count: fan.watchers, conns: fan.conns, from_revision };
    let mut watchers = Watchers::open(load.target.dial()?, &watch)?;
    let sources: Vec<Pods> = crate::drive::share(u64::from(plan.clients), plan.threads)
        .enumerate()
        .map(|(thread, clients)| Pods {
            prefix: prefix.clone(),
            value: noise(load.value_size),
            next: thread as u64,
            step: plan.threads as u64,
            at: vec![(0, 0, 0); clients as usize],
            scratch: Vec::new(),
        })
        .collect();
    let live = Live::default();
    let mut progress = Progress::new("pods", load.target.quiet);
    let (seen, _, within) = drive(&plan, sources, &live, |from, until| {
        let until = until.expect("a run of a fixed time");
        watchers.within(from, until, &watched, || progress.show(&live))
    })?;
    // Each call that went well is one event.
    let missing = watchers.settle(seen.answered, OWED);
    progress.clear();
    let what = format!("pods of {} B created, updated, deleted; {} watchers", load.value_size, fan.watchers);
    let mut report = report_of(&Row { name: "pods", what, target: &load.target }, &plan, seen);
    report.figures.insert("pods/s".into(), report.operations_per_second / CALLS as f64);
    add_watchers(&mut report, &watchers, within, missing);
    Ok(finish(&load.target, &report))
}
