//! One run of one row on one side: a new cluster, the fill, the load, the figures.

use super::rows::{Row, Run};
use super::side::Side;
use crate::raw::Raw;
use crate::server::{self, Program, Server};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use wire::{Rpc, etcdserverpb as pb};

/// Both sides get these: a quota that no row reaches.
const FLAGS: [&str; 2] = ["--quota-backend-bytes", "17179869184"];
const READY: Duration = Duration::from_secs(120);

/// What all runs have.
#[derive(Clone, Debug)]
pub struct Bench {
    pub generator: PathBuf,
    pub data: PathBuf,
    pub seconds: u64,
    pub warm_up: u64,
    /// How long a soak goes.
    pub soak: Duration,
    /// Processes that keep the CPUs awake: their time is nobody's.
    pub spinners: Vec<u32>,
}

type Figures = BTreeMap<String, f64>;

struct Cluster<'a> {
    bench: &'a Bench,
    members: Vec<Server>,
    dir: &'a Path,
}

impl Bench {
    /// The figures of one run, and what the generator said.
    ///
    /// # Errors
    /// If a member does not serve or the generator does not run to its end.
    pub async fn one(&self, row: &Row, members: usize, side: &Side) -> Result<(Figures, Value)> {
        let dir = tempfile::Builder::new().prefix("run-").tempdir_in(&self.data)?;
        let flags: Vec<String> = FLAGS.iter().map(|flag| (*flag).to_owned()).collect();
        // Ctrl-C at a terminal goes to the whole group of processes, and a soak goes on without.
        let program = Program { own_group: matches!(row.run, Run::Soak(_)), ..side.program.clone() };
        let mut cluster =
            Cluster { bench: self, members: server::cluster(&program, members, dir.path(), &flags)?, dir: dir.path() };
        for member in &mut cluster.members {
            member.ready(READY).await?;
        }
        for words in row.fill {
            cluster.load(words, None).await.with_context(|| format!("filling with {words:?}"))?;
        }
        match row.run {
            Run::Load(words) => {
                let report = cluster.load(words, Some(self.seconds)).await?;
                Ok((figures(&report), report))
            }
            Run::Restart => cluster.restart().await,
            Run::Failover => cluster.failover(true).await,
            Run::MoveLeader => cluster.failover(false).await,
            Run::Space => cluster.space().await,
            Run::Soak(words) => cluster.soak(words).await,
            Run::Behind(words) => cluster.behind(words).await,
        }
    }
}

impl Cluster<'_> {
    fn command(&self, words: &[&str], seconds: Option<u64>) -> Command {
        let mut command = Command::new(&self.bench.generator);
        command.arg("bench");
        let endpoints: Vec<String> = self.members.iter().map(Server::endpoint).collect();
        command.args(words).arg("--endpoints").arg(endpoints.join(",")).arg("--disk").arg(self.dir);
        command.args(["--json", "--quiet"]);
        for pid in self.members.iter().filter_map(Server::pid) {
            command.args(["--pid", &pid.to_string()]);
        }
        let spinners: Vec<String> = self.bench.spinners.iter().map(u32::to_string).collect();
        // Not by a flag: a generator of yesterday would refuse it.
        command.env("KVORUM_BENCH_SPINNERS", spinners.join(","));
        if let Some(seconds) = seconds {
            command.args(["--warm-up", &format!("{}s", self.bench.warm_up)]);
            // Some rows need a time of their own, whatever the form.
            if !words.contains(&"--for") {
                command.args(["--for", &format!("{seconds}s")]);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    async fn load(&self, words: &[&str], seconds: Option<u64>) -> Result<Value> {
        let child = self.command(words, seconds).spawn().context("the generator does not start")?;
        answer(child).await
    }

    /// Mixed load for long; an interrupt ends it early, with the results so far.
    async fn soak(self, words: &[&str]) -> Result<(Figures, Value)> {
        let seconds = self.bench.soak.as_secs();
        let mut command = self.command(words, Some(seconds));
        // It is told of the interrupt by us, not by the terminal: otherwise twice.
        let child = command.process_group(0).spawn().context("the generator does not start")?;
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        let mut answer = std::pin::pin!(answer(child));
        let report = tokio::select! {
            report = &mut answer => report?,
            interrupt = tokio::signal::ctrl_c() => {
                interrupt?;
                if let Some(pid) = pid {
                    kill_process(pid, Signal::INT)?;
                }
                answer.await?
            }
        };
        Ok((figures(&report), report))
    }

    /// All members at once are killed and started again.
    async fn restart(mut self) -> Result<(Figures, Value)> {
        let held = self.held(0).await?;
        self.members.iter_mut().for_each(Server::kill);
        let begin = Instant::now();
        for member in &mut self.members {
            member.restart()?;
        }
        for member in &mut self.members {
            member.ready(READY).await?;
        }
        let took = begin.elapsed().as_secs_f64();
        for member in 0..self.members.len() {
            same(held, self.held(member).await?)?;
        }
        // What goes on after the first answer is part of what a restart costs.
        let report = self.load(&["idle", "--warm-up", "0s", "--for", "3s"], None).await?;
        let cpu: f64 = self.members.iter().filter_map(Server::pid).map(cpu_seconds).sum();
        let mut figures = figures(&report);
        figures.insert("restart s".into(), took);
        figures.insert("restart CPU s".into(), cpu);
        Ok((figures, report))
    }

    /// Puts go on while the leader dies or hands over; what counts is the longest gap.
    async fn failover(mut self, kill: bool) -> Result<(Figures, Value)> {
        // So many callers that those whose call hangs do not leave the rest without one.
        let words = ["put", "--rate", "500", "--clients", "8000", "--conns", "6"];
        // A second election may follow; who hands over is done at once.
        let seconds = if kill { 8 } else { 4 };
        let child = self.command(&words, Some(seconds)).spawn().context("the generator does not start")?;
        tokio::time::sleep(Duration::from_secs(self.bench.warm_up + 2)).await;
        // Whoever leads now: to kill a follower would be no failover.
        let leader = self.leader().await?;
        if kill {
            self.members[leader].kill();
        } else {
            self.move_leader(leader).await?;
        }
        let mut report = answer(child).await?;
        // A call that was under way on the dead member may fail: that is the row's subject.
        report["errors_expected"] = json!(true);
        let mut figures = figures(&report);
        figures.insert("gap ms".into(), report["longest_gap_ms"].as_f64().unwrap_or(f64::NAN));
        figures.insert("failed calls".into(), failed_calls(&report));
        Ok((figures, report))
    }

    /// A follower misses the load; how long it takes until it answers for all of it.
    async fn behind(mut self, words: &[&str]) -> Result<(Figures, Value)> {
        let leader = self.leader().await?;
        let away = (leader + 1) % self.members.len();
        self.members[away].kill();
        let absent = self.members.remove(away);
        let report = self.load(words, None).await?;
        let held = self.held(0).await?;
        self.members.push(absent);
        let begin = Instant::now();
        let last = self.members.len() - 1;
        self.members[last].restart()?;
        // Linearisable: it must have applied all of what the others have.
        self.members[last].ready(READY).await?;
        let took = begin.elapsed().as_secs_f64();
        same(held, self.held(last).await?)?;
        let cpu: f64 = self.members.iter().filter_map(Server::pid).map(cpu_seconds).sum();
        let mut figures = figures(&report);
        figures.insert("catch-up s".into(), took);
        figures.insert("all CPU s".into(), cpu);
        Ok((figures, report))
    }

    /// Room on the disk before and after, and what a defragmentation does to those who write.
    async fn space(self) -> Result<(Figures, Value)> {
        let raw = Raw::connect(&self.members[0].endpoint()).await?;
        let failed = |what: &'static str| move |failure| anyhow::anyhow!("{what}: {failure}");
        let filled = allocated(self.dir)?;
        let all = pb::DeleteRangeRequest { key: "/".into(), range_end: "0".into(), ..Default::default() };
        let deleted: pb::DeleteRangeResponse = raw.call(Rpc::DeleteRange, &all).await.map_err(failed("delete"))?;
        let revision = deleted.header.map_or(0, |header| header.revision);
        let compaction = pb::CompactionRequest { revision, physical: true };
        raw.call::<_, pb::CompactionResponse>(Rpc::Compact, &compaction).await.map_err(failed("compact"))?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let emptied = allocated(self.dir)?;
        let words = ["put", "--rate", "500", "--clients", "8000", "--conns", "3", "--keys", "100"];
        let child = self.command(&words, Some(5)).spawn().context("the generator does not start")?;
        tokio::time::sleep(Duration::from_secs(self.bench.warm_up + 1)).await;
        let begin = Instant::now();
        let request = pb::DefragmentRequest::default();
        raw.call::<_, pb::DefragmentResponse>(Rpc::Defragment, &request).await.map_err(failed("defragment"))?;
        let took = begin.elapsed().as_secs_f64() * 1e3;
        let report = answer(child).await?;
        let mut figures = figures(&report);
        for (name, value) in [
            ("filled MB", filled),
            ("emptied MB", emptied),
            ("defragmented MB", allocated(self.dir)?),
            ("defragmentation ms", took),
            ("gap ms", report["longest_gap_ms"].as_f64().unwrap_or(f64::NAN)),
        ] {
            figures.insert(name.into(), value);
        }
        Ok((figures, report))
    }

    /// What a member answers for.
    async fn held(&self, member: usize) -> Result<Held> {
        let raw = Raw::connect(&self.members[member].endpoint()).await?;
        let all = pb::RangeRequest {
            key: vec![0u8].into(),
            range_end: vec![0u8].into(),
            count_only: true,
            ..Default::default()
        };
        let answer = raw.call::<_, pb::RangeResponse>(Rpc::Range, &all).await;
        let answer = answer.map_err(|failure| anyhow::anyhow!("count of all keys: {failure}"))?;
        Ok(Held { revision: answer.header.map_or(0, |header| header.revision), keys: answer.count })
    }

    async fn status(&self, member: usize) -> Result<pb::StatusResponse> {
        let raw = Raw::connect(&self.members[member].endpoint()).await?;
        let answer = raw.call::<_, pb::StatusResponse>(Rpc::Status, &pb::StatusRequest::default()).await;
        answer.map_err(|failure| anyhow::anyhow!("status: {failure}"))
    }

    async fn leader(&self) -> Result<usize> {
        for member in 0..self.members.len() {
            let status = self.status(member).await?;
            if status.header.is_some_and(|header| header.member_id == status.leader) {
                return Ok(member);
            }
        }
        bail!("no member says that it leads")
    }

    async fn move_leader(&self, leader: usize) -> Result<()> {
        let next = self.status((leader + 1) % self.members.len()).await?;
        let target = next.header.map_or(0, |header| header.member_id);
        let raw = Raw::connect(&self.members[leader].endpoint()).await?;
        let request = pb::MoveLeaderRequest { target_id: target };
        let moved = raw.call::<_, pb::MoveLeaderResponse>(Rpc::MoveLeader, &request).await;
        moved.map_err(|failure| anyhow::anyhow!("move-leader: {failure}"))?;
        Ok(())
    }
}

/// What a linearisable read says that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    revision: i64,
    keys: i64,
}

/// A server that has less to read is soon ready: what was acknowledged must be there again.
fn same(before: Held, after: Held) -> Result<()> {
    if before != after {
        bail!("{} keys at revision {} became {} at {}", before.keys, before.revision, after.keys, after.revision);
    }
    Ok(())
}

/// Calls without a good answer: a call that hangs for ever has failed as well.
fn failed_calls(report: &Value) -> f64 {
    let of = |name: &str| report[name].as_f64().unwrap_or(f64::NAN);
    of("errors_total") + of("unanswered")
}

/// What the generator prints: exit code 1 with a report is a report of errors.
async fn answer(child: Child) -> Result<Value> {
    let output = child.wait_with_output().await?;
    let text = String::from_utf8_lossy(&output.stdout);
    match serde_json::from_str(text.trim()) {
        Ok(report) => Ok(report),
        Err(_) => {
            bail!("the generator ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())
        }
    }
}

/// Megabytes that a folder occupies on its disk. Files may vanish meanwhile.
fn allocated(folder: &Path) -> Result<f64> {
    use std::os::unix::fs::MetadataExt;
    let mut sum = 0.0;
    for entry in std::fs::read_dir(folder)?.flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        sum += if meta.is_dir() { allocated(&entry.path()).unwrap_or(0.0) } else { meta.blocks() as f64 * 512.0 / 1e6 };
    }
    Ok(sum)
}

fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let numbers: Vec<f64> = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_ascii_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|n| n.parse().ok())
        .collect();
    // Ticks are hundredths of a second on every Linux that runs here.
    numbers.iter().sum::<f64>() / 100.0
}

/// The figures every report has, by the names the rows use.
fn figures(report: &Value) -> Figures {
    let mut out = Figures::new();
    let mut add = |name: &str, value: Option<f64>| {
        if let Some(value) = value {
            out.insert(name.to_owned(), value);
        }
    };
    let of = |name: &str| report[name].as_f64();
    let latency = |name: &str| report["latency"][name].as_f64().map(|us| us / 1e3);
    let operations = of("operations").filter(|n| *n > 0.0);
    if operations.is_some() {
        add("ops/s", of("operations_per_second"));
        add("MB/s", of("megabytes_per_second"));
        for (name, field) in [("p50 ms", "p50_us"), ("p99 ms", "p99_us"), ("p99.9 ms", "p999_us"), ("max ms", "max_us")]
        {
            add(name, latency(field));
        }
        add("client us/op", of("client_cpu_us_per_operation"));
    }
    add("server us/op", of("server_cpu_us_per_operation"));
    add("disk B/op", of("disk_bytes_per_operation"));
    add("flushes/op", report["disk"]["flushes"].as_f64().zip(operations).map(|(flushes, n)| flushes / n));
    let seconds = of("seconds").filter(|s| *s > 0.0);
    add("idle flushes per s", report["disk"]["flushes"].as_f64().zip(seconds).map(|(flushes, s)| flushes / s));
    let servers = report["servers"].as_array().map_or(&[][..], Vec::as_slice);
    let sum =
        |field: &str| (!servers.is_empty()).then(|| servers.iter().filter_map(|s| s[field].as_f64()).sum::<f64>());
    add("RSS MB", sum("rss_bytes").map(|b| b / 1e6));
    add("anonymous MB", sum("anonymous_bytes").map(|b| b / 1e6));
    add("peak MB", sum("peak_rss_bytes").map(|b| b / 1e6));
    add("server CPU s", sum("cpu_seconds"));
    add("CPU ms per s", sum("cpu_seconds").zip(seconds).map(|(cpu, s)| cpu / s * 1e3));
    add("switches/op", sum("context_switches").zip(operations).map(|(switches, n)| switches / n));
    let others = report["others"]["cpu_seconds"].as_f64().zip(report["others"]["stolen_seconds"].as_f64());
    add("others' CPUs", others.zip(seconds).map(|((cpu, stolen), s)| (cpu + stolen) / s));
    for (name, value) in report["figures"].as_object().into_iter().flatten() {
        add(name, value.as_f64());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_or_hangs_is_seen() {
        let held = Held { revision: 9, keys: 3 };
        assert!(same(held, held).is_ok());
        assert!(same(held, Held { revision: 8, ..held }).is_err() && same(held, Held { keys: 2, ..held }).is_err());
        assert_eq!(failed_calls(&json!({"errors_total": 3, "unanswered": 4})), 7.0);
        assert!(failed_calls(&json!({})).is_nan(), "no report is no good report");
    }

    #[test]
    fn a_report_becomes_figures() {
        let report = json!({
            "operations": 1000, "operations_per_second": 500.0, "seconds": 2.0,
            "latency": {"p50_us": 250, "p99_us": 2000},
            "disk": {"flushes": 100}, "disk_bytes_per_operation": 77.0,
            "servers": [{"rss_bytes": 1e6, "cpu_seconds": 0.5}, {"rss_bytes": 2e6, "cpu_seconds": 0.25}],
            "figures": {"lag p99 ms": 3.5},
        });
        let figures = figures(&report);
        let expected = [
            ("ops/s", 500.0),
            ("p50 ms", 0.25),
            ("p99 ms", 2.0),
            ("flushes/op", 0.1),
            ("RSS MB", 3.0),
            ("disk B/op", 77.0),
            ("CPU ms per s", 375.0),
            ("lag p99 ms", 3.5),
        ];
        for (name, value) in expected {
            assert_eq!(figures.get(name), Some(&value), "{name}");
        }
    }
}
