//! Leases: many that end together, and renewals.

use super::keys::key;
use super::unary::Puts;
use super::watchers::{Told, Watch, Watchers};
use crate::args::Load;
use crate::drive::{Live, Plan, Seen, Source, drive, latencies, thread_cpu};
use crate::failure::Failure;
use crate::h2::{Begin, Event};
use crate::message;
use crate::net::Net;
use crate::run::{Progress, Row, add_costs, finish, report_of};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use wire::Rpc;

/// Keys of leases, apart from those of the puts that go on.
const LEASED: &str = "/leased/";

/// The window begins so long before the first lease is due.
const BEFORE: Duration = Duration::from_millis(200);

/// A server counts the life of a lease in ticks: so much too early is the grain of its clock.
const GRAIN: Duration = Duration::from_millis(50);

/// The ids of this process's leases begin here: of our own choosing, so that none is drawn.
fn first_id() -> i64 {
    (1 << 60) | (i64::from(std::process::id()) << 24)
}

/// Grants leases, or puts the key of each.
struct Grants {
    next: i64,
    ttl: i64,
    keys: bool,
}

impl Source for Grants {
    fn next(&mut self, _client: u32, out: &mut Vec<u8>) -> Rpc {
        let id = first_id() + self.next;
        self.next += 1;
        if self.keys {
            let mut name = Vec::new();
            key(&mut name, LEASED, (id - first_id()) as u64);
            message::put(out, &name, b"leased", id);
            return Rpc::Put;
        }
        message::number(out, 1, self.ttl);
        message::number(out, 2, id);
        Rpc::LeaseGrant
    }
}

/// Grants all leases, then puts a key for each if that is asked for.
///
/// # Errors
/// Says how many calls failed, and why.
fn grant(load: &Load, clients: u32, leases: u64, ttl: i64, keys: bool) -> Result<(), Failure> {
    let mut load = load.clone();
    (load.clients, load.conns, load.rate, load.target.threads) = (clients, None, None, 1);
    let plan = Plan { total: Some(leases), warm_up: Duration::ZERO, ..load.plan()? };
    for keys in [false, true].into_iter().take(1 + usize::from(keys)) {
        let (seen, ..) = drive(&plan, vec![Grants { next: 0, ttl, keys }], &Live::default(), |_, _| ())?;
        if let Some((what, count)) = seen.errors.first_key_value() {
            return Err(format!("{}: {count} x {what}", if keys { "keys of leases" } else { "granting" }).into());
        }
    }
    Ok(())
}

/// # Errors
/// If the run cannot begin, or the time to live is too short for this machine.
pub fn expire(load: &Load, leases: u64, ttl: i64) -> Result<bool, Failure> {
    let begin = Instant::now();
    grant(load, 256, leases, ttl, true)?;
    let watch = Watch { prefix: LEASED, count: 1, conns: 1, from_revision: 0 };
    let mut watcher = Watchers::open(load.target.dial()?, &watch)?;
    let limit = Duration::from_secs(u64::try_from(ttl).map_err(|_| "--ttl must be above 0")?);
    if begin.elapsed() + Duration::from_secs(1) > limit {
        return Err(format!("granting {leases} leases took {:?}: give a longer --ttl", begin.elapsed()).into());
    }
    let renewed = renew_all(load, leases)?;
    let due = renewed.first + limit;
    if Instant::now() + BEFORE > due {
        return Err(format!("renewing {leases} leases took {:?}: give a longer --ttl", renewed.first.elapsed()).into());
    }
    // The window begins before the first lease is due: nothing of what it costs is missed.
    let mut plan = load.plan()?;
    plan.warm_up = due.saturating_duration_since(Instant::now()).saturating_sub(BEFORE);
    let sources: Vec<Puts> = (0..plan.threads).map(|thread| Puts::new(load, thread)).collect();
    let watched = load.target.watched();
    let mut progress = Progress::new("expire", load.target.quiet);
    let (seen, _, (before, drained, after)) = drive(&plan, sources, &Live::default(), |from, until| {
        watcher.pump(from, |_| false);
        let before = watched.sample();
        let until = until.expect("a run of a fixed time");
        while Instant::now() < until && watcher.told.deletes < leases {
            watcher.pump(until.min(Instant::now() + Duration::from_secs(1)), |told| told.deletes >= leases);
            progress.say(&format!("{} of {leases} leases have ended", watcher.told.deletes));
        }
        let drained = watched.sample();
        watcher.pump(until, |_| false);
        (before, drained, watched.sample())
    })?;
    progress.clear();
    let told = &watcher.told;
    let what = format!("{leases} leases of one key end together; puts of {} B go on", load.value_size);
    let mut report = report_of(&Row { name: "expire", what, target: &load.target }, &plan, seen);
    if let (Ok(before), Ok(drained)) = (before, drained) {
        let cpu: f64 = drained.since(&before).servers.iter().map(|server| server.cpu_seconds).sum();
        report.figures.insert("server us per lease".into(), cpu * 1e6 / told.deletes.max(1) as f64);
        add_costs(&mut report, &before, after);
    }
    let over = due + Duration::from_secs_f64(report.seconds).saturating_sub(BEFORE);
    report.figures.insert("drained s".into(), drained_seconds(told, leases, due, over));
    report.figures.insert("due within s".into(), (renewed.last - renewed.first).as_secs_f64());
    report.figures.insert("ended %".into(), told.deletes as f64 * 100.0 / leases as f64);
    report.errors.extend(told.errors.clone());
    if told.first_delete.is_some_and(|first| first + GRAIN < due) {
        report.errors.insert("leases ended before the first was due".into(), 1);
    }
    if told.deletes < leases {
        report.remarks.push(format!(
            "drained s is no less than that: {} leases had not ended when the run did",
            leases - told.deletes
        ));
    }
    report.errors_total = report.errors.values().sum();
    Ok(finish(&load.target, &report))
}

/// From when the first lease was due until the last key was gone; if some were not, until the run
/// was over, which is the least it can have been.
fn drained_seconds(told: &Told, leases: u64, due: Instant, over: Instant) -> f64 {
    let end = told.last_event.filter(|_| told.deletes >= leases).unwrap_or(over);
    end.saturating_duration_since(due).as_secs_f64()
}

/// When leases were renewed: the first is due a time to live after `first` at the earliest, the
/// last one after `last` at the latest.
struct Renewed {
    first: Instant,
    last: Instant,
}

/// One renewal of each lease, all at once on a few streams.
fn renew_all(load: &Load, leases: u64) -> Result<Renewed, Failure> {
    const STREAMS: u64 = 16;
    let mut net = Net::connect(load.target.dial()?, STREAMS as usize)?;
    let first = Instant::now();
    let mut last = first;
    for stream in 0..STREAMS {
        let mut request = Vec::new();
        let mut id = 0;
        for lease in (stream..leases).step_by(STREAMS as usize) {
            request.clear();
            message::number(&mut request, 1, first_id() + lease as i64);
            let tx = net.tx(stream as usize);
            if id == 0 {
                let begin = Begin { rpc: Rpc::LeaseKeepAlive, tag: stream, open: true, keep: usize::MAX };
                id = tx.start(begin, &request);
            } else {
                tx.send(id, &request);
            }
        }
    }
    let (mut renewed, mut gone, mut failed) = (0, 0, None);
    let deadline = Instant::now() + Duration::from_secs(60);
    while renewed + gone < leases && failed.is_none() && Instant::now() < deadline {
        net.poll(Duration::from_millis(100), &mut |_, now, _, event| match event {
            Event::Message { bytes, .. } if message::number_of(bytes, 3) > 0 => (renewed, last) = (renewed + 1, now),
            Event::Message { .. } => gone += 1,
            Event::End { code, text, .. } => failed = Some(format!("code {code}: {text}")),
        });
    }
    match failed {
        Some(text) => Err(format!("renewing: {text}").into()),
        None if renewed < leases => Err(format!("{renewed} of {leases} leases were renewed, {gone} had ended").into()),
        None => Ok(Renewed { first, last }),
    }
}

/// Renewals in a closed loop.
///
/// # Errors
/// If the run cannot begin.
pub fn keep_alive(load: &Load) -> Result<bool, Failure> {
    let mut plan = load.plan()?;
    (plan.threads, plan.rate) = (1, None);
    grant(load, plan.clients.min(256), u64::from(plan.clients), 600, false)?;
    let watched = load.target.watched();
    let mut net = Net::connect(plan.dial.clone(), plan.conns)?;
    for client in 0..plan.clients {
        let begin = Begin { rpc: Rpc::LeaseKeepAlive, tag: u64::from(client), open: true, keep: usize::MAX };
        net.tx(client as usize % plan.conns).start(begin, &renewal(client));
    }
    let from = Instant::now() + plan.warm_up;
    let until = from + plan.run;
    let mut since = vec![Instant::now(); plan.clients as usize];
    let mut seen = Seen { window: plan.run, ..Seen::new() };
    let mut errors: BTreeMap<String, u64> = BTreeMap::new();
    let (mut before, mut cpu) = (None, Duration::ZERO);
    let mut progress = Progress::new("keep-alive", load.target.quiet);
    let mut tick = Instant::now();
    let mut all = latencies();
    while Instant::now() < until {
        if before.is_none() && Instant::now() >= from {
            before = Some(watched.sample()?);
            cpu = thread_cpu();
        }
        if tick.elapsed() > Duration::from_secs(1) {
            tick = Instant::now();
            progress.say(&format!("{} renewals", all.len()));
        }
        net.poll(Duration::from_millis(20), &mut |_, now, tx, event| match event {
            Event::Message { tag, stream, bytes, .. } => {
                if message::number_of(bytes, 3) <= 0 {
                    *errors.entry("a lease that had ended".into()).or_default() += 1;
                } else if now >= from {
                    all.saturating_record(((now - since[tag as usize]).as_micros() as u64).max(1));
                }
                since[tag as usize] = now;
                tx.send(stream, &renewal(tag as u32));
            }
            Event::End { code, text, .. } => *errors.entry(format!("code {code}: {text}")).or_default() += 1,
        });
    }
    let after = watched.sample();
    progress.clear();
    (seen.done, seen.latencies, seen.errors) = (all.len(), all, errors);
    seen.cpu = thread_cpu().saturating_sub(cpu);
    let what = format!("renewals of {} leases, a stream each", plan.clients);
    let mut report = report_of(&Row { name: "keep-alive", what, target: &load.target }, &plan, seen);
    if let Some(before) = before {
        add_costs(&mut report, &before, after);
    }
    Ok(finish(&load.target, &report))
}

fn renewal(client: u32) -> Vec<u8> {
    let mut request = Vec::new();
    message::number(&mut request, 1, first_id() + i64::from(client));
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last of those that did end says nothing about those that did not.
    #[test]
    fn leases_that_did_not_end_are_not_drained() {
        let due = Instant::now();
        let (last, over) = (due + Duration::from_secs(2), due + Duration::from_secs(8));
        let mut told = Told::new(1);
        (told.deletes, told.last_event) = (9, Some(last));
        assert_eq!(drained_seconds(&told, 9, due, over), 2.0);
        assert_eq!(drained_seconds(&told, 10, due, over), 8.0);
    }
}
