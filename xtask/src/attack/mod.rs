//! Attacks on a member that is started for each of them, beside a client that does no harm.
//!
//! What the honest client notices calm and under attack, the member's memory and what it refused
//! become a table. The command fails if the honest client waits too long, memory grows past the
//! budget, or the member ends.

mod frames;
mod honest;
mod kinds;
mod target;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use honest::{Honest, Noticed};
use kinds::{ALL, Attack};
use target::Target;

use crate::peers;
use crate::server::{self, Program, Server};

/// The member's `--memory-budget`, and the bound of what it may take.
const BUDGET: u64 = 512 << 20;
/// Whatever it was before, a put may take so long.
const ALWAYS_FINE: Duration = Duration::from_millis(150);

/// Attacks a member, and fails if that does harm.
#[derive(Debug, Parser)]
pub struct Args {
    /// Only attacks whose names begin so.
    name: Option<String>,
    /// What is attacked.
    #[arg(long, value_enum, default_values_t = [Against::Kvorum])]
    against: Vec<Against>,
    /// This kvorum, not a release build of the workspace.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Seconds of calm, and of each attack.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Where the table goes besides the screen.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Names the attacks, and does nothing.
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Against {
    Kvorum,
    Etcd,
}

/// What became of one attack.
struct Row {
    attack: &'static Attack,
    against: Against,
    calm: Noticed,
    under: Noticed,
    memory: Memory,
    done: u64,
    closed: u64,
    ended: Option<String>,
}

/// Anonymous memory of the member, in MiB.
#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    before: u64,
    peak: u64,
    after: u64,
}

/// # Errors
/// An attack did harm, or could not be made.
pub async fn attack(args: &Args) -> Result<()> {
    if args.list {
        ALL.iter().for_each(|attack| println!("{:16} {}", attack.name, attack.what));
        return Ok(());
    }
    let chosen = |attack: &&Attack| args.name.as_ref().is_none_or(|name| attack.name.starts_with(name.as_str()));
    let attacks: Vec<&'static Attack> = ALL.iter().filter(chosen).collect();
    if attacks.is_empty() {
        bail!("no attack of that name: see --list");
    }
    let mut rows = Vec::new();
    for against in &args.against {
        let program = match against {
            Against::Etcd => peers::program("etcd")?,
            Against::Kvorum => match &args.program {
                Some(program) => program.clone(),
                None => peers::kvorum()?,
            },
        };
        for attack in &attacks {
            let row = one(attack, *against, &program, Duration::from_secs(args.seconds)).await;
            let row = row.with_context(|| format!("{} against {against:?}", attack.name))?;
            println!("{}", row.line());
            rows.push(row);
        }
    }
    if let Some(out) = &args.out {
        std::fs::write(out, page(&rows)).with_context(|| out.display().to_string())?;
    }
    let bad: Vec<String> = rows.iter().filter_map(Row::harm).collect();
    if bad.is_empty() { Ok(()) } else { bail!("harm was done:\n{}", bad.join("\n")) }
}

/// The program, with so few descriptors.
fn limited(program: &Program, files: u32) -> Program {
    let inner = [program.path.display().to_string()].into_iter().chain(program.first.clone());
    let script = format!("ulimit -n {files}; exec \"$0\" \"$@\"");
    let first = ["-c".to_owned(), script].into_iter().chain(inner).collect();
    Program { path: "/bin/sh".into(), first, own_group: program.own_group }
}

async fn one(attack: &'static Attack, against: Against, program: &Path, lasting: Duration) -> Result<Row> {
    let dir = tempfile::tempdir()?;
    let extra = match against {
        Against::Kvorum => vec!["--memory-budget=512MiB".to_owned()],
        Against::Etcd => vec![],
    };
    let mut program = Program::new(program)?;
    if attack.files > 0 {
        program = limited(&program, attack.files);
    }
    let mut servers = server::cluster(&program, 1, dir.path(), &extra)?;
    let server = &mut servers[0];
    server.ready(Duration::from_secs(60)).await?;
    let honest = Honest::new(&server.endpoint()).await?;
    honest.fill().await?;
    let calm = honest.work(lasting).await;
    let target = Arc::new(Target {
        client_port: server.spec.client_port,
        peer_port: server.spec.peer_port,
        stop: AtomicBool::new(false),
        closed: AtomicU64::new(0),
        done: AtomicU64::new(0),
    });
    let mut memory = Memory { before: anonymous(server), ..Memory::default() };
    let peak = watch_memory(server, &target);
    let attackers: Vec<_> = (0..attack.threads)
        .map(|thread| {
            let (target, run) = (target.clone(), attack.run);
            std::thread::spawn(move || run(&target, thread))
        })
        .collect();
    let under = honest.work(lasting).await;
    target.stop.store(true, Ordering::Relaxed);
    for attacker in attackers {
        attacker.join().map_err(|_| anyhow::anyhow!("an attacker panicked"))?;
    }
    memory.peak = peak.join().map_err(|_| anyhow::anyhow!("the watcher panicked"))?.max(memory.before);
    tokio::time::sleep(Duration::from_secs(1)).await;
    memory.after = anonymous(server);
    let (done, closed) = (target.done.load(Ordering::Relaxed), target.closed.load(Ordering::Relaxed));
    let ended = server.ended().map(|end| format!("{end}\n{}", server.log_tail()));
    server.terminate().await;
    Ok(Row { attack, against, calm, under, memory, done, closed, ended })
}

/// MiB of anonymous memory; 0 for a process that has ended.
fn anonymous(server: &Server) -> u64 {
    server.pid().map_or(0, anonymous_of)
}

fn anonymous_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

fn watch_memory(server: &Server, target: &Arc<Target>) -> std::thread::JoinHandle<u64> {
    let (pid, target) = (server.pid().unwrap_or(0), target.clone());
    std::thread::spawn(move || {
        let mut peak = 0;
        while target.goes_on() {
            peak = peak.max(anonymous_of(pid));
            std::thread::sleep(Duration::from_millis(50));
        }
        peak.max(anonymous_of(pid))
    })
}

fn millis(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64() * 1e3)
}

impl Row {
    /// What went wrong, if anything did. A real etcd is measured, not judged.
    fn harm(&self) -> Option<String> {
        if self.against == Against::Etcd {
            return None;
        }
        let name = self.attack.name;
        if let Some(end) = &self.ended {
            return Some(format!("{name}: {end}"));
        }
        let bound = (3 * self.calm.puts.at(99)).max(ALWAYS_FINE);
        if self.under.puts.at(99) > bound {
            return Some(format!(
                "{name}: p99 of puts {} ms, at most {}",
                millis(self.under.puts.at(99)),
                millis(bound)
            ));
        }
        let grown = self.memory.peak.saturating_sub(self.memory.before);
        if grown > BUDGET >> 20 {
            return Some(format!("{name}: memory grew by {grown} MiB"));
        }
        let failed = self.under.puts.failed + self.under.connections.failed + self.under.renewals.failed;
        // Where places are what is attacked, its own address is the attacker's.
        let shares_places = matches!(name, "descriptors" | "half-handshakes");
        (failed > 0 && !shares_places).then(|| format!("{name}: {failed} calls of the honest client failed"))
    }

    fn cells(&self) -> Vec<String> {
        let Noticed { puts, renewals, connections } = &self.under;
        let three = |times: &honest::Times| [50, 99, 100].map(|part| millis(times.at(part))).join(" / ");
        let failed = puts.failed + renewals.failed + connections.failed;
        vec![
            self.attack.name.to_owned(),
            format!("{:?}", self.against).to_lowercase(),
            three(&self.calm.puts),
            three(puts),
            millis(renewals.at(100)),
            millis(connections.at(100)),
            format!("{failed} of {}", failed + puts.count() + renewals.count() + connections.count()),
            format!("{} / {} / {}", self.memory.before, self.memory.peak, self.memory.after),
            self.done.to_string(),
            self.closed.to_string(),
            if self.ended.is_some() { "ended" } else { "lives" }.to_owned(),
        ]
    }

    fn line(&self) -> String {
        self.cells().join("  ")
    }
}

const HEADS: &str = "| attack | against | puts calm, p50 / p99 / max | puts under attack | longest lease question | longest new connection | failed | MiB before / peak / after | done | closed | member |\n|---|---|---|---|---|---|---|---|---|---|---|\n";

fn page(rows: &[Row]) -> String {
    let mut text = "# Attacks\n\n`cargo xtask attack --out docs/attacks.md` makes this page: each attack for some seconds against a\nmember of its own, beside a client that puts, asks for a lease and connects anew. Milliseconds.\n`closed`: connections that the member refused or closed. `--list` says what each attack is.\n\n".to_owned();
    text.push_str(HEADS);
    for row in rows {
        text.push_str(&format!("| {} |\n", row.cells().join(" | ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_slow_put_and_an_ended_member_are_harm() {
        let mut calm = Noticed::default();
        calm.puts.add(Instant::now(), &Ok::<_, ()>(()));
        let mut row = Row {
            attack: &ALL[0],
            against: Against::Kvorum,
            under: calm.clone(),
            calm,
            memory: Memory::default(),
            done: 0,
            closed: 0,
            ended: None,
        };
        assert_eq!(row.harm(), None);
        row.under.puts.add(Instant::now() - Duration::from_secs(1), &Ok::<_, ()>(()));
        assert!(row.harm().is_some_and(|harm| harm.contains("p99")));
        row.ended = Some("it ended".into());
        assert!(row.harm().is_some_and(|harm| harm.contains("it ended")));
    }
}
