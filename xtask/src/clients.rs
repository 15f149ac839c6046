//! Stock clients at their daily work: the Go, Python and Rust clients on three members while the
//! leader is killed, and a transcript of the stock `etcdctl` held against the real etcd's.

use crate::peers::{self, workspace};
use crate::server::{self, Program, Server};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const CLIENTS: [&str; 3] = ["go", "python", "rust"];

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The program [default: this workspace's release build].
    #[arg(long, value_name = "PROGRAM")]
    bin: Option<PathBuf>,
    /// How long each client works.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
}

impl Default for Args {
    fn default() -> Args {
        Args { bin: None, seconds: 15 }
    }
}

/// Runs the clients and the transcript.
///
/// # Errors
/// If a client lost an acknowledged write, or a line of the transcript differs.
pub async fn clients(args: &Args) -> Result<()> {
    let path = match &args.bin {
        Some(path) => path.clone(),
        None => peers::kvorum()?,
    };
    let program = Program::new(&path)?;
    build_clients()?;
    at_work(&program, args.seconds).await?;
    transcript(&program).await
}

fn cache() -> PathBuf {
    workspace().join("tests/peers/.cache/bin")
}

fn build_clients() -> Result<()> {
    for name in CLIENTS {
        if cache().join(format!("peer-{name}")).is_file() {
            continue;
        }
        let status =
            Command::new("sh").arg("build.sh").arg(name).current_dir(workspace().join("tests/peers")).status()?;
        if !status.success() {
            bail!("the {name} client does not build: {status}");
        }
    }
    Ok(())
}

async fn ready(members: &mut [Server]) -> Result<()> {
    for member in members {
        member.ready(Duration::from_secs(60)).await?;
    }
    Ok(())
}

/// All three clients at once; the leader is killed after a third of the time and comes back after
/// another.
async fn at_work(program: &Program, seconds: u64) -> Result<()> {
    let dir = tempfile::Builder::new().prefix("clients").tempdir()?;
    let mut members = server::cluster(program, 3, dir.path(), &[])?;
    ready(&mut members).await?;
    let endpoints: Vec<String> = members.iter().map(Server::endpoint).collect();
    let mut working: Vec<(&str, Child)> = Vec::new();
    for name in CLIENTS {
        let child = Command::new(cache().join(format!("peer-{name}")))
            .args(["--endpoints", &endpoints.join(","), "--seconds", &seconds.to_string()])
            .args(["--out", &dir.path().join(format!("{name}.json")).to_string_lossy()])
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("starting the {name} client"))?;
        working.push((name, child));
    }
    tokio::time::sleep(Duration::from_secs(seconds / 3)).await;
    let leader = leader_of(&endpoints).await?;
    println!("kill -9 of {}, which leads", members[leader].spec.name);
    members[leader].kill();
    tokio::time::sleep(Duration::from_secs(seconds / 3)).await;
    members[leader].restart()?;
    let deadline = Instant::now() + Duration::from_secs(seconds + 120);
    let mut failed = Vec::new();
    for (name, mut child) in working {
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if Instant::now() > deadline {
                // It fails only for a process that has ended, which is as good.
                let _ = child.kill();
                break None;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        match status {
            Some(status) if status.success() => println!("the {name} client: every acknowledged write is there"),
            Some(status) => failed.push(format!("the {name} client: {status}")),
            None => failed.push(format!("the {name} client did not end")),
        }
    }
    if !failed.is_empty() {
        let kept = dir.keep();
        bail!("{}; kept: {}", failed.join("; "), kept.display());
    }
    Ok(())
}

/// Position of the leader among `endpoints`, as soon as there is one.
async fn leader_of(endpoints: &[String]) -> Result<usize> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match leader_now(endpoints) {
            Err(_) if Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(50)).await,
            found => return found,
        }
    }
}

/// The same, as the stock tool sees it now.
fn leader_now(endpoints: &[String]) -> Result<usize> {
    let output = etcdctl(&endpoints.join(","), &["endpoint", "status", "-w", "json"], None)?;
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).context("endpoint status -w json")?;
    let leads = |one: &serde_json::Value| one["Status"]["leader"] == one["Status"]["header"]["member_id"];
    let found = status.as_array().and_then(|all| all.iter().find(|one| leads(one))).context("nobody leads")?;
    let endpoint = found["Endpoint"].as_str().context("an endpoint")?;
    endpoints.iter().position(|known| known == endpoint).context("a known endpoint")
}

fn etcdctl(endpoints: &str, words: &[&str], input: Option<&str>) -> Result<Output> {
    let mut command = Command::new(peers::program("etcdctl")?);
    command
        .args(["--endpoints", endpoints])
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let mut stdin = child.stdin.take().context("piped")?;
    if let Some(input) = input {
        use std::io::Write;
        stdin.write_all(input.as_bytes())?;
    }
    drop(stdin);
    Ok(child.wait_with_output()?)
}

/// What is asked of both, in order: words, and what is typed.
const LINES: &[(&str, Option<&str>)] = &[
    ("put foo bar", None),
    ("put foo baz --prev-kv", None),
    ("put fop 1", None),
    ("put zoo", Some("from a pipe")),
    ("get foo", None),
    ("get foo --rev=2", None),
    ("get fo --prefix -w json", None),
    ("get foo fop", None),
    ("get '' --prefix --sort-by=CREATE --order=DESCEND", None),
    ("get --prefix fo --limit=1 -w fields", None),
    ("get --prefix '' --keys-only", None),
    ("get --prefix '' --count-only -w fields", None),
    ("get foo --print-value-only", None),
    ("get foo --hex", None),
    ("get foo --consistency=s -w json", None),
    ("get nothing", None),
    ("get foo --rev=99", None),
    ("txn", Some("ver(\"foo\") = \"2\"\n\nput foo 3\nget foo\ndel fop\n\nget foo\n\n")),
    ("txn -w json", Some("val(\"foo\") = \"4\"\n\nput foo 3\n\nget foo\nget --prefix \"\"\n\n")),
    ("txn", Some("\nput a 1\nput a 2\n\n\n")),
    ("del fo --prefix --prev-kv", None),
    ("del nothing", None),
    ("lease grant 600 -w json", None),
    ("lease list", None),
    ("lease timetolive 99", None),
    ("lease revoke 99", None),
    ("lease keep-alive 99 --once", None),
    ("compaction 4", None),
    ("compaction 4", None),
    ("compaction 99", None),
    ("compaction 5 --physical", None),
    ("get foo --rev=3", None),
    ("member list", None),
    ("member list -w json", None),
    ("member list -w table", None),
    ("endpoint health", None),
    ("endpoint hashkv -w json", None),
    ("endpoint hashkv -w table", None),
    ("endpoint status -w fields", None),
    ("alarm list", None),
    ("defrag", None),
];

/// The same lines to a real etcd and to kvorum, one member each.
async fn transcript(program: &Program) -> Result<()> {
    let real = Program::new(&peers::program("etcd")?)?;
    let (left, right) = (recorded(&real).await?, recorded(program).await?);
    let mut differing = 0;
    for ((line, _), (ours, theirs)) in LINES.iter().zip(right.iter().zip(&left)) {
        if ours != theirs {
            differing += 1;
            println!("etcdctl {line}\n  etcd   {theirs:?}\n  kvorum {ours:?}");
        }
    }
    if differing > 0 {
        bail!("{differing} of {} lines of the transcript differ", LINES.len());
    }
    println!("transcript: {} lines of the stock etcdctl, all equal", LINES.len());
    Ok(())
}

async fn recorded(program: &Program) -> Result<Vec<String>> {
    let dir = tempfile::tempdir()?;
    let mut members = server::cluster(program, 1, Path::new(dir.path()), &[])?;
    ready(&mut members).await?;
    let endpoint = members[0].endpoint();
    let peer = format!("127.0.0.1:{}", members[0].spec.peer_port);
    let mut told = Vec::new();
    for (line, input) in LINES {
        let words: Vec<&str> = line.split(' ').map(|word| if word == "''" { "" } else { word }).collect();
        let output = etcdctl(&endpoint, &words, *input)?;
        let text = format!(
            "{}|{}|{}",
            output.status.code().unwrap_or(-1),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        told.push(masked(&text.replace(&peer, "PEER"), &endpoint));
    }
    Ok(told)
}

/// Ids, ports, times and sizes have another value on each server: long numbers, hex ids, durations
/// and the figures of the storage become `#`. Widths of tables follow from them.
fn masked(text: &str, endpoint: &str) -> String {
    let text = text.replace(endpoint, "ENDPOINT");
    let mut out = String::new();
    let mut word = String::new();
    let flush = |word: &mut String, out: &mut String| {
        let hex = word.len() >= 6 && word.chars().all(|c| c.is_ascii_hexdigit());
        let duration = word.ends_with("ms") || word.ends_with("µs");
        let number = duration && word.starts_with(|c: char| c.is_ascii_digit());
        out.push_str(if hex || number { "#" } else { word });
        word.clear();
    };
    for c in text.chars() {
        if c.is_alphanumeric() || c == '.' || c == 'µ' {
            word.push(c);
        } else {
            flush(&mut word, &mut out);
            if !matches!(c, '─' | ' ') {
                out.push(c);
            }
        }
    }
    flush(&mut word, &mut out);
    // The stock client's own log lines name addresses of its memory.
    let own_log = "\"level\":\"warn\"";
    let sizes = ["DBSize", "RaftIndex", "RaftAppliedIndex", "RaftTerm"];
    let kept = |line: &&str| !sizes.iter().any(|name| line.contains(name));
    let line_of = |line: &str| match line.find('{').filter(|_| line.contains(own_log)) {
        Some(start) => line[..start].to_string(),
        None => line.replace("\"raft_term\":2", "").replace("\"raft_term\":3", ""),
    };
    out.lines().filter(kept).map(line_of).collect::<Vec<_>>().join("\n")
}
