//! The result of a run: as a table for people, as JSON for `cargo xtask bench`.

use crate::cost::{Costs, DiskCost, Others, ProcessCost};
use crate::drive::{Bucket, Latencies, Seen};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Points of a latency curve, in percent.
const POINTS: [f64; 17] =
    [0.0, 10.0, 25.0, 50.0, 60.0, 70.0, 75.0, 80.0, 90.0, 95.0, 97.0, 98.0, 99.0, 99.5, 99.9, 99.99, 100.0];

/// Latencies in microseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Latency {
    pub count: u64,
    pub mean_us: f64,
    pub p50_us: u64,
    pub p90_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
    pub max_us: u64,
    /// Pairs of percentile and microseconds.
    pub curve: Vec<(f64, u64)>,
}

impl Latency {
    pub fn of(seen: &Latencies) -> Latency {
        let at = |percent: f64| if seen.is_empty() { 0 } else { seen.value_at_quantile(percent / 100.0) };
        Latency {
            count: seen.len(),
            mean_us: seen.mean(),
            p50_us: at(50.0),
            p90_us: at(90.0),
            p99_us: at(99.0),
            p999_us: at(99.9),
            max_us: if seen.is_empty() { 0 } else { seen.max() },
            curve: POINTS.iter().map(|p| (*p, at(*p))).collect(),
        }
    }
}

/// A tenth of a second: calls that ended well, calls that failed, the worst latency.
type Tenth = (u64, u64, u64);

/// The result of one run of one row.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    pub row: String,
    /// What was asked of the server, in words.
    pub what: String,
    pub clients: u64,
    pub connections: u64,
    pub threads: u64,
    /// Calls a second that were due; absent for a closed loop.
    pub open_loop_rate: Option<f64>,
    pub seconds: f64,
    /// Answered well within the window.
    pub operations: u64,
    pub operations_per_second: f64,
    pub megabytes_per_second: f64,
    pub errors: BTreeMap<String, u64>,
    pub errors_total: u64,
    /// Calls that were due or under way and had no answer when the run gave up.
    pub unanswered: u64,
    pub lost_connections: u64,
    pub losses: Vec<String>,
    pub latency: Latency,
    /// From the sending of a put to the arrival of its event.
    pub lag: Option<Latency>,
    /// Longest time without a good answer.
    pub longest_gap_ms: f64,
    pub client_cpu_us_per_operation: f64,
    /// CPU seconds a second of the generator; at its number of threads it is the bottleneck.
    pub client_cpus: f64,
    pub servers: Vec<ProcessCost>,
    pub server_cpu_us_per_operation: Option<f64>,
    /// Of the device, all processes together.
    pub disk_bytes_per_operation: Option<f64>,
    pub disk: Option<DiskCost>,
    pub others: Others,
    pub line_tenths: Vec<Tenth>,
    /// Bytes resident, all servers together, about once a second of the window.
    pub rss_line: Vec<u64>,
    /// Of the row of that name.
    pub soak: Option<Soak>,
    /// Numbers of this row alone, named with their units.
    pub figures: BTreeMap<String, f64>,
    pub remarks: Vec<String>,
}

impl Report {
    pub fn of(row: &str, what: String, seen: Seen) -> Report {
        let seconds = seen.window.as_secs_f64();
        // An open loop that is too fast has its answers after the window: they have latencies, but
        // they are no part of the rate, nor were they paid for within it.
        let operations = if seen.line.is_empty() { seen.done } else { seen.line.iter().map(|tenth| tenth.done).sum() };
        let per_second = |n: f64| if seconds > 0.0 { n / seconds } else { 0.0 };
        Report {
            row: row.to_owned(),
            what,
            seconds,
            operations,
            operations_per_second: per_second(operations as f64),
            megabytes_per_second: per_second(seen.bytes as f64 / 1e6),
            errors_total: seen.errors_total(),
            unanswered: seen.unanswered,
            lost_connections: seen.lost,
            latency: Latency::of(&seen.latencies),
            longest_gap_ms: seen.gap.as_secs_f64() * 1e3,
            client_cpu_us_per_operation: per(seen.cpu.as_secs_f64() * 1e6, operations).unwrap_or(0.0),
            client_cpus: per_second(seen.cpu.as_secs_f64()),
            line_tenths: seen
                .line
                .iter()
                .map(|Bucket { done, errors, worst_us }| (*done, *errors, *worst_us))
                .collect(),
            errors: seen.errors,
            losses: seen.losses,
            ..Report::default()
        }
    }

    /// Adds what the servers spent.
    pub fn costs(&mut self, costs: Costs) {
        let Costs { servers, disk, others } = costs;
        if !servers.is_empty() {
            let cpu: f64 = servers.iter().map(|s| s.cpu_seconds).sum();
            self.server_cpu_us_per_operation = per(cpu * 1e6, self.operations);
        }
        self.disk_bytes_per_operation = disk.as_ref().and_then(|d| per(d.written_bytes as f64, self.operations));
        (self.servers, self.disk, self.others) = (servers, disk, others);
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        self.head(&mut out);
        self.calls(&mut out);
        self.failures(&mut out);
        self.spent(&mut out);
        self.kinds(&mut out);
        // Latencies of kinds stand above.
        let kinds: Vec<&str> = self.soak.iter().flat_map(|soak| soak.kinds.keys().copied()).collect();
        let above =
            |name: &String| kinds.iter().any(|kind| name.strip_prefix(kind).is_some_and(|n| n.starts_with(' ')));
        for (name, value) in self.figures.iter().filter(|(name, _)| !above(name)) {
            line(&mut out, name, &figure(*value));
        }
        for remark in &self.remarks {
            line(&mut out, "remark", remark);
        }
        out
    }

    fn head(&self, out: &mut String) {
        let _ = writeln!(out, "{}: {}", self.row, self.what);
        let how = match self.open_loop_rate {
            Some(rate) => format!("open loop, {rate} a second due, at most {} under way", self.clients),
            None if self.clients > 0 => format!("closed loop, {} clients", self.clients),
            None => return,
        };
        line(out, "load", &format!("{how}, {} connections, {} thread(s)", self.connections, self.threads));
    }

    fn calls(&self, out: &mut String) {
        if self.operations == 0 && self.latency.count == 0 {
            return;
        }
        let mut rate =
            format!("{} in {:.1} s = {}/s", self.operations, self.seconds, figure(self.operations_per_second));
        if self.megabytes_per_second >= 1.0 {
            let _ = write!(rate, ", {:.1} MB/s of answers", self.megabytes_per_second);
        }
        line(out, "operations", &rate);
        let l = &self.latency;
        let text = [("p50", l.p50_us), ("p90", l.p90_us), ("p99", l.p99_us), ("p99.9", l.p999_us), ("max", l.max_us)]
            .map(|(name, us)| format!("{name} {}", millis(us)))
            .join("  ");
        line(out, "latency", &text);
        if self.client_cpu_us_per_operation > 0.0 {
            let text = format!(
                "{:.1} us of CPU per operation, {:.2} CPUs{}",
                self.client_cpu_us_per_operation,
                self.client_cpus,
                if self.generator_is_full() { ": the generator itself is the limit" } else { "" }
            );
            line(out, "generator", &text);
        }
    }

    fn kinds(&self, out: &mut String) {
        for (name, l) in self.soak.iter().flat_map(|soak| &soak.kinds) {
            let text = [("p50", l.p50_us), ("p99", l.p99_us), ("p99.9", l.p999_us), ("max", l.max_us)]
                .map(|(name, us)| format!("{name} {}", millis(us)))
                .join("  ");
            line(out, name, &format!("{:>9} x  {text}", l.count));
        }
    }

    fn generator_is_full(&self) -> bool {
        self.threads > 0 && self.client_cpus > 0.95 * self.threads as f64
    }

    fn failures(&self, out: &mut String) {
        if self.operations > 0 || self.errors_total > 0 {
            line(out, "errors", &self.errors_total.to_string());
        }
        for (what, count) in &self.errors {
            line(out, "", &format!("{count} x {what}"));
        }
        if self.unanswered > 0 {
            line(out, "unanswered", &format!("{} (their wait counts as latency)", self.unanswered));
        }
        if self.lost_connections > 0 {
            line(out, "lost", &format!("{} connections: {}", self.lost_connections, self.losses.join("; ")));
        }
        if self.longest_gap_ms >= 500.0 {
            line(out, "gap", &format!("{:.0} ms without a good answer", self.longest_gap_ms));
        }
    }

    fn spent(&self, out: &mut String) {
        if let Some(us) = self.server_cpu_us_per_operation {
            line(out, "servers", &format!("{us:.1} us of CPU per operation"));
        }
        for s in &self.servers {
            let text = format!(
                "{:.2} CPU s, RSS {:.1} MB (anonymous {:.1}, peak {:.1}), {} write calls, {} switches, {} threads",
                s.cpu_seconds,
                s.rss_bytes as f64 / 1e6,
                s.anonymous_bytes as f64 / 1e6,
                s.peak_rss_bytes as f64 / 1e6,
                s.write_calls,
                s.context_switches,
                s.threads
            );
            line(out, &format!("{} {}", s.name, s.pid), &text);
        }
        if let Some(disk) = &self.disk {
            let per = self.disk_bytes_per_operation.map_or_else(String::new, |b| format!(" ({b:.0} B per operation)"));
            let text = format!(
                "{:.1} MB{per} in {} writes, {} flushes ({:.0}/s), of all processes",
                disk.written_bytes as f64 / 1e6,
                disk.writes,
                disk.flushes,
                if self.seconds > 0.0 { disk.flushes as f64 / self.seconds } else { 0.0 }
            );
            line(out, &format!("disk {}", disk.device), &text);
        }
        let foreign = (self.others.cpu_seconds + self.others.stolen_seconds) / self.seconds.max(0.1);
        if foreign > 0.2 {
            line(out, "busy machine", &format!("others used {foreign:.2} CPUs meanwhile: distrust the figures"));
        }
    }
}

fn per(what: f64, operations: u64) -> Option<f64> {
    (operations > 0).then(|| what / operations as f64)
}

fn line(out: &mut String, name: &str, text: &str) {
    let _ = writeln!(out, "  {name:<24} {text}");
}

fn millis(us: u64) -> String {
    match us {
        0..1000 => format!("{us} us"),
        1000..100_000 => format!("{:.2} ms", us as f64 / 1e3),
        _ => format!("{:.0} ms", us as f64 / 1e3),
    }
}

fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        a if a >= 1000.0 => format!("{value:.0}"),
        a if a >= 10.0 => format!("{value:.1}"),
        a if a >= 0.1 => format!("{value:.3}"),
        _ => format!("{value:.5}"),
    }
}

/// What the row `soak` alone reports.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Soak {
    /// By kind of call.
    pub kinds: BTreeMap<&'static str, Latency>,
    /// The servers over the run; the first one is its beginning.
    pub points: Vec<Point>,
    /// Ended before its time.
    pub interrupted: bool,
}

/// All servers together at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Point {
    pub seconds: f64,
    /// Calls answered well so far.
    pub operations: u64,
    pub cpu_seconds: f64,
    pub rss_bytes: u64,
    pub anonymous_bytes: u64,
    /// What the folder given as `--disk` occupies; absent if it is none.
    pub disk_bytes: Option<u64>,
    /// Of the calls that were due in the slice of the run that ends here.
    pub p99_us: u64,
    pub max_us: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::latencies;
    use std::time::Duration;

    /// What is late has a latency, and is no part of the rate.
    #[test]
    fn late_answers_are_not_part_of_the_rate() {
        let mut seen = Seen::new();
        seen.window = Duration::from_secs(2);
        seen.line = vec![Bucket { done: 30, errors: 0, worst_us: 9 }, Bucket { done: 70, errors: 1, worst_us: 5 }];
        seen.done = 500;
        (1..=500).for_each(|us| seen.latencies.record(us).expect("in bounds"));
        let report = Report::of("put", "puts".into(), seen);
        assert_eq!((report.operations, report.operations_per_second), (100, 50.0));
        assert_eq!((report.latency.count, report.latency.p50_us, report.latency.max_us), (500, 250, 500));
        assert_eq!(Latency::of(&latencies()).p99_us, 0, "no calls, no latency");
    }

    #[test]
    fn the_table_names_errors_and_a_generator_that_is_the_limit() {
        let report = Report {
            row: "put".into(),
            what: "puts".into(),
            clients: 1,
            threads: 1,
            seconds: 1.0,
            operations: 10,
            client_cpus: 0.99,
            client_cpu_us_per_operation: 9.0,
            errors: BTreeMap::from([("code 14: gone".into(), 3)]),
            errors_total: 3,
            ..Report::default()
        };
        let table = report.table();
        for words in ["3 x code 14: gone", "the generator itself is the limit", "closed loop, 1 clients"] {
            assert!(table.contains(words), "{words:?} in\n{table}");
        }
    }
}
