//! The log of the program: one line per event in the shape of etcd's zap logger, so that
//! what parses etcd's log parses this one.
//!
//! `{"level":"info","ts":"2026-08-20T15:13:15.000000Z","caller":"server/log.rs:1",
//! "msg":"…",fields}`

mod rotate;

use rotate::Rotating;
pub(crate) use rotate::Rules;
pub(crate) use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::panic::Location;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

pub(crate) use serde_json::json;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Debug,
    Info,
    Warn,
    Error,
    Panic,
    Fatal,
}

impl Level {
    const ALL: [Level; 6] = [Level::Debug, Level::Info, Level::Warn, Level::Error, Level::Panic, Level::Fatal];

    pub(crate) fn parse(text: &str) -> Option<Level> {
        Some(match text {
            "debug" => Level::Debug,
            "info" => Level::Info,
            "warn" => Level::Warn,
            "error" => Level::Error,
            "panic" | "dpanic" => Level::Panic,
            "fatal" => Level::Fatal,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
            Level::Panic => "panic",
            Level::Fatal => "fatal",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Console,
}

enum Sink {
    Stderr,
    Stdout,
    File(File),
    Rotating(Rotating),
}

impl Sink {
    fn open(output: &str, rotation: Option<Rules>) -> Result<Sink, NoSink> {
        let bad = |error| NoSink { output: output.to_string(), error };
        let path = Path::new(output);
        Ok(match (output, rotation) {
            ("default" | "stderr" | "systemd/journal", _) => Sink::Stderr,
            ("stdout", _) => Sink::Stdout,
            (_, None) => Sink::File(rotate::open(path).map_err(bad)?),
            (_, Some(rules)) => Sink::Rotating(Rotating::new(path, rules).map_err(bad)?),
        })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            Sink::Stderr => io::stderr().write_all(line),
            Sink::Stdout => io::stdout().write_all(line),
            Sink::File(file) => file.write_all(line),
            Sink::Rotating(file) => file.write(line),
        }
    }
}

/// Where no line can go.
#[derive(Debug, thiserror::Error)]
#[error("open sink {output:?}: {error}")]
pub(crate) struct NoSink {
    output: String,
    error: io::Error,
}

struct Logger {
    /// What was asked for at the start.
    usual: Level,
    /// What is said now.
    least: AtomicU8,
    format: Format,
    sinks: Mutex<Vec<Sink>>,
}

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// Where lines go from now on; the first call counts. `outputs`: `default`, `stderr`,
/// `stdout`, `systemd/journal` (stderr, which systemd keeps), or paths.
///
/// # Errors
/// A file cannot be opened.
pub(crate) fn start(least: Level, format: Format, outputs: &[String], rotation: Option<Rules>) -> Result<(), NoSink> {
    let sinks: Result<Vec<Sink>, NoSink> = outputs.iter().map(|output| Sink::open(output, rotation)).collect();
    let _ = LOGGER.set(Logger { usual: least, least: AtomicU8::new(least as u8), format, sinks: Mutex::new(sinks?) });
    Ok(())
}

/// Says everything from `level` on; None: as at the start. A line tells it, whatever the level.
pub(crate) fn set_level(level: Option<Level>) {
    let Some(logger) = LOGGER.get() else { return };
    let level = level.unwrap_or(logger.usual);
    let before = Level::ALL[usize::from(logger.least.load(Ordering::Relaxed))];
    logger.least.store(level.min(Level::Info) as u8, Ordering::Relaxed);
    info("changed the log level", &[("from", json!(before.name())), ("to", json!(level.name()))]);
    logger.least.store(level as u8, Ordering::Relaxed);
}

pub(crate) type Fields<'a> = &'a [(&'a str, Value)];

#[track_caller]
pub(crate) fn debug(msg: &str, fields: Fields) {
    emit(Level::Debug, Location::caller(), None, msg, fields);
}

#[track_caller]
pub(crate) fn info(msg: &str, fields: Fields) {
    emit(Level::Info, Location::caller(), None, msg, fields);
}

#[track_caller]
pub(crate) fn warn(msg: &str, fields: Fields) {
    emit(Level::Warn, Location::caller(), None, msg, fields);
}

#[track_caller]
pub(crate) fn error(msg: &str, fields: Fields) {
    emit(Level::Error, Location::caller(), None, msg, fields);
}

/// A line of one part of the program, as zap's named loggers write it (`"logger":"raft"`).
#[track_caller]
pub(crate) fn named(logger: &str, level: Level, msg: &str, fields: Fields) {
    emit(level, Location::caller(), Some(logger), msg, fields);
}

/// Logs and ends the process with status 1.
#[track_caller]
pub(crate) fn fatal(msg: &str, fields: Fields) -> ! {
    emit(Level::Fatal, Location::caller(), None, msg, fields);
    std::process::exit(1)
}

/// Member and cluster ids as etcd prints them.
pub(crate) fn hex(id: u64) -> Value {
    Value::String(format!("{id:x}"))
}

fn emit(level: Level, caller: &Location, logger: Option<&str>, msg: &str, fields: Fields) {
    let (least, format) =
        LOGGER.get().map_or((Level::Info as u8, Format::Json), |l| (l.least.load(Ordering::Relaxed), l.format));
    if (level as u8) < least {
        return;
    }
    let at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let line = match format {
        Format::Json => json_line(level, &at, &place(caller), logger, msg, fields),
        Format::Console => console_line(level, &at, &place(caller), logger, msg, fields),
    };
    match LOGGER.get() {
        // A log that cannot be written has nobody to tell.
        None => drop(std::io::stderr().write_all(line.as_bytes())),
        Some(logger) => {
            let mut sinks = logger.sinks.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            for sink in sinks.iter_mut() {
                let _ = sink.write(line.as_bytes());
            }
        }
    }
}

/// `folder/file.rs:line`, as zap shortens it, with the crate for the folder `src`.
fn place(caller: &Location) -> String {
    let path = caller.file().replace("/src/", "/");
    let mut parts = path.rsplit('/');
    let file = parts.next().unwrap_or("");
    match parts.next() {
        Some(folder) if folder != "src" => format!("{folder}/{file}:{}", caller.line()),
        _ => format!("server/{file}:{}", caller.line()),
    }
}

fn quoted(text: &str) -> String {
    Value::String(text.to_string()).to_string()
}

fn json_line(level: Level, at: &str, caller: &str, logger: Option<&str>, msg: &str, fields: Fields) -> String {
    let mut line = format!("{{\"level\":\"{}\",\"ts\":\"{at}\"", level.name());
    if let Some(logger) = logger {
        line += &format!(",\"logger\":{}", quoted(logger));
    }
    line += &format!(",\"caller\":{},\"msg\":{}", quoted(caller), quoted(msg));
    for (key, value) in fields {
        line += &format!(",{}:{value}", quoted(key));
    }
    line += "}\n";
    line
}

fn console_line(level: Level, at: &str, caller: &str, logger: Option<&str>, msg: &str, fields: Fields) -> String {
    let mut line = format!("{at}\t{}\t", level.name());
    if let Some(logger) = logger {
        line += &format!("{logger}\t");
    }
    line += &format!("{caller}\t{msg}");
    if !fields.is_empty() {
        let pairs: Vec<String> = fields.iter().map(|(key, value)| format!("{}: {value}", quoted(key))).collect();
        line += &format!("\t{{{}}}", pairs.join(", "));
    }
    line + "\n"
}

/// Keeps lines that would come again and again to one a minute each.
#[derive(Default)]
pub(crate) struct Seldom(Mutex<BTreeMap<String, Instant>>);

impl Seldom {
    /// Whether the line that `key` stands for is to be said now.
    pub(crate) fn due(&self, key: String) -> bool {
        self.due_at(key, Instant::now())
    }

    fn due_at(&self, key: String, now: Instant) -> bool {
        const EVERY: Duration = Duration::from_secs(60);
        const REMEMBERED: usize = 1000;
        let mut said = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if said.get(&key).is_some_and(|at| now.duration_since(*at) < EVERY) {
            return false;
        }
        if said.len() >= REMEMBERED {
            said.clear();
        }
        said.insert(key, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_line_parses_and_keeps_zaps_order() {
        let fields = [("a", json!(1)), ("error", json!("quote \" and \n newline"))];
        let line = json_line(Level::Warn, "T", "server/x.rs:3", Some("raft"), "m\"sg", &fields);
        assert_eq!(
            line,
            "{\"level\":\"warn\",\"ts\":\"T\",\"logger\":\"raft\",\"caller\":\"server/x.rs:3\",\"msg\":\"m\\\"sg\",\
             \"a\":1,\"error\":\"quote \\\" and \\n newline\"}\n"
        );
        assert!(serde_json::from_str::<Value>(&line).is_ok());
    }

    #[test]
    fn a_console_line_is_tab_separated() {
        let line = console_line(Level::Info, "T", "server/x.rs:3", None, "ready", &[("n", json!("v"))]);
        assert_eq!(line, "T\tinfo\tserver/x.rs:3\tready\t{\"n\": \"v\"}\n");
    }

    #[test]
    fn a_line_comes_once_a_minute() {
        let (seldom, begin) = (Seldom::default(), Instant::now());
        let due = |key: &str, seconds| seldom.due_at(key.into(), begin + Duration::from_secs(seconds));
        assert!(due("a", 0) && due("b", 1));
        assert!(!due("a", 59) && !due("b", 60));
        assert!(due("a", 60) && !due("a", 119));
    }

    #[test]
    fn the_caller_names_crate_and_file() {
        assert!(place(Location::caller()).starts_with("server/log.rs:"), "{}", place(Location::caller()));
    }
}
