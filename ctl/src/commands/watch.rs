//! `watch`.

use std::{io::BufRead, os::unix::ffi::OsStrExt};

use client::{
    Client, KeyRange, Watcher,
    wire::{
        etcdserverpb::{ResponseHeader, WatchCreateRequest, WatchResponse},
        mvccpb::{Event, event::EventType},
    },
};
use cobra::{Flag, quote};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{headings::KEYS, run, words};
use crate::{
    call::{Call, Command},
    exit::{BAD_ARGS, ERROR, Failure, INTERRUPTED, INVALID_INPUT, Outcome, error_text},
    print::{Answer, Out, Printer, fields, json, protobuf, simple},
    raw,
};

/// Names the key, so that the command line need not.
const KEY: &str = "ETCDCTL_WATCH_KEY";
/// Names the end of the range.
const RANGE_END: &str = "ETCDCTL_WATCH_RANGE_END";

/// The row of the table.
pub const WATCH: Command = Command {
    name: "watch",
    usage: "watch [options] [key or prefix] [range_end] [--] [exec-command arg1 arg2 ...]",
    group: KEYS,
    raw: true,
    short: "Shows what happens to keys",
    flags: &[
        Flag::switch("interactive", "read watches from standard input").short('i'),
        Flag::switch("prefix", "all keys that begin like this"),
        Flag::switch("prev-kv", "show what each key was before"),
        Flag::switch("progress-notify", "show now and then how far the server is"),
        Flag::int("rev", "0", "begin with this revision"),
    ],
    variables: &[KEY, RANGE_END],
    run: Some(run_watch),
    ..Command::NONE
};

/// What stands in a line of an interactive watch.
static LINES: Command = Command { subs: &[&[WATCH]], ..Command::NONE };

/// Words that ask for no watch.
enum Unasked {
    /// Their number is wrong. What is wrong with it, in brackets behind a blank, or empty.
    Number(&'static str),
    /// They contradict one another.
    Ends,
}

impl std::fmt::Display for Unasked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unasked::Number(how) => write!(f, "bad number of arguments{how}"),
            Unasked::Ends => f.write_str("`range_end` and `--prefix` are mutually exclusive"),
        }
    }
}

/// One watch that was asked for.
struct Asked {
    request: WatchCreateRequest,
    /// A program to be run after each event.
    program: Vec<String>,
}

fn run_watch(call: &Call) -> Outcome {
    let variable = |name| raw::text(std::env::var_os(name).unwrap_or_default().as_bytes());
    let (key, end) = (variable(KEY), variable(RANGE_END));
    if call.switch("interactive") {
        let client = call.connect()?.with_request_timeout(None);
        let form = call.printer()?;
        return call.block_on(interactive(&client, form, (&key, &end)));
    }
    let asked = asked(call, (&key, &end)).map_err(|unasked| Failure::bad_args(unasked.to_string()))?;
    let client = call.connect()?.with_request_timeout(None);
    let form = call.printer()?;
    call.block_on(async {
        follow(client.watch(asked.request), &asked.program, form, &mut None).await?;
        Err(Failure::new(INTERRUPTED, "watch is canceled by the server"))
    })
}

/// The watch that the words of a call, or the environment, ask for.
fn asked(call: &Call, env: (&str, &str)) -> Result<Asked, Unasked> {
    let (before, program) = call.args.split_at(call.before_dash.unwrap_or(call.args.len()));
    if call.before_dash.is_some() && program.is_empty() {
        return Err(Unasked::Number(" (found separator --, but no commands)"));
    }
    if !env.0.is_empty() && !before.is_empty() {
        return Err(Unasked::Number(" (found conflicting environment key)"));
    }
    let (key, end) = match before {
        [] if !env.0.is_empty() => (env.0, Some(env.1).filter(|end| !end.is_empty())),
        [] => return Err(Unasked::Number("")),
        [key, end] => (key.as_str(), Some(end.as_str())),
        [key, ..] => (key.as_str(), None),
    };
    let prefix = call.switch("prefix");
    let range = match end {
        Some(_) if prefix => return Err(Unasked::Ends),
        Some(end) => KeyRange { key: raw::bytes(key).into(), range_end: raw::bytes(end).into() },
        None if prefix => client::prefix(raw::bytes(key)),
        None => client::key(raw::bytes(key)),
    };
    let request = WatchCreateRequest {
        start_revision: call.int("rev"),
        prev_kv: call.switch("prev-kv"),
        progress_notify: call.switch("progress-notify"),
        ..range.into()
    };
    Ok(Asked { request, program: program.to_vec() })
}

/// Shows what a watch delivers until the server ends it. Something received on
/// `progress` asks the server how far it is.
async fn follow(
    mut watcher: Watcher,
    program: &[String],
    form: Printer,
    progress: &mut Option<UnboundedReceiver<()>>,
) -> Outcome {
    loop {
        let asked = async {
            match progress.as_mut() {
                Some(receiver) => receiver.recv().await,
                None => std::future::pending().await,
            }
        };
        let next = tokio::select! {
            next = watcher.next() => next,
            Some(()) = asked => {
                if watcher.ready().await.is_ok() {
                    watcher.request_progress().await;
                }
                continue;
            }
        };
        match next {
            Ok(batch) => {
                let header = *watcher.header();
                if batch.events.is_empty() {
                    crate::say(&format!("progress notify: {}\n", header.revision))?;
                }
                let seen = Seen { header, events: batch.events, end: None };
                form.print(&seen)?;
                after_events(&seen, program).await?;
            }
            Err(error) => {
                let (reason, oldest) = match &error {
                    client::Error::Compacted { oldest } => (error_text(&error), *oldest),
                    client::Error::Canceled { reason } => (reason.clone(), 0),
                    other => (error_text(other), 0),
                };
                complain!("watch was canceled ({reason})");
                let header = ResponseHeader { revision: 0, ..*watcher.header() };
                return form.print(&Seen { header, events: Vec::new(), end: Some((oldest, reason)) });
            }
        }
    }
}

async fn after_events(seen: &Seen, program: &[String]) -> Outcome {
    if program.is_empty() {
        return Ok(());
    }
    for event in &seen.events {
        let kv = event.kv.clone().unwrap_or_default();
        let env = [
            ("ETCD_WATCH_REVISION", seen.header.revision.to_string()),
            ("ETCD_WATCH_EVENT_TYPE", quote(type_name(event))),
            ("ETCD_WATCH_KEY", crate::print::quote(&kv.key)),
            ("ETCD_WATCH_VALUE", crate::print::quote(&kv.value)),
        ];
        if let Err(unwell) = run::run(program, &env).await {
            let words: Vec<String> = program.iter().map(|word| quote(word)).collect();
            complain!("command [{}] error ({unwell})", words.join(" "));
            return Err(Failure::Silent(ERROR));
        }
    }
    Ok(())
}

/// Reads `watch …` and `progress` from standard input for as long as it lasts.
async fn interactive(client: &Client, form: Printer, env: (&str, &str)) -> Outcome {
    let mut lines = stdin_lines();
    let (ended, mut endings) = unbounded_channel::<Outcome>();
    let mut watches: Vec<UnboundedSender<()>> = Vec::new();
    loop {
        let line = tokio::select! {
            line = lines.recv() => line,
            Some(ending) = endings.recv() => {
                // A watch that the server has ended was spoken of; one that
                // failed here ends the program.
                ending?;
                continue;
            }
        };
        let Some(line) = line else {
            return Err(Failure::new(INVALID_INPUT, "error reading watch request line: EOF"));
        };
        let words = words::split(&line);
        match words.first().map(String::as_str) {
            None => complain!("Invalid command: {line} (watch and progress supported)"),
            Some("watch") if words.len() < 2 && env.0.is_empty() => {
                complain!("Invalid command {line} (command type or key is not provided)");
            }
            Some("watch") => match of_line(&words, env)? {
                Ok(asked) => watches.push(start(client, asked, form, ended.clone())),
                Err(reason) => complain!("Invalid command {line} ({reason})"),
            },
            Some("progress") => watches.retain(|watch| watch.send(()).is_ok()),
            Some(_) => complain!("Invalid command {line} (only support watch)"),
        }
    }
}

/// The watch of a line; the inner error is one that leaves the others alone.
fn of_line(words: &[String], env: (&str, &str)) -> Outcome<Result<Asked, Unasked>> {
    let parsed = cobra::parse(&LINES, words).map_err(|misread| Failure::new(BAD_ARGS, misread.text))?;
    match asked(&Call::new(parsed), env) {
        Err(wrong @ Unasked::Number(_)) => Err(Failure::new(BAD_ARGS, wrong.to_string())),
        other => Ok(other),
    }
}

fn start(client: &Client, asked: Asked, form: Printer, ended: UnboundedSender<Outcome>) -> UnboundedSender<()> {
    let (progress, receiver) = unbounded_channel();
    let watcher = client.watch(asked.request);
    tokio::spawn(async move {
        let ending = follow(watcher, &asked.program, form, &mut Some(receiver)).await;
        // Nobody listens any more when the program is ending.
        let _ = ended.send(ending);
    });
    progress
}

/// The lines of standard input, from a thread of their own: reading them cannot
/// be interrupted.
fn stdin_lines() -> UnboundedReceiver<String> {
    let (sender, receiver) = unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().split(b'\n') {
            let Ok(line) = line else { return };
            if sender.send(raw::text(line.strip_suffix(b"\r").unwrap_or(&line))).is_err() {
                return;
            }
        }
    });
    receiver
}

fn type_name(event: &Event) -> &'static str {
    if event.r#type() == EventType::Delete { "DELETE" } else { "PUT" }
}

/// Something that a watch delivered.
struct Seen {
    header: ResponseHeader,
    events: Vec<Event>,
    /// The end: oldest revision that is left, and why.
    end: Option<(i64, String)>,
}

impl Answer for Seen {
    fn simple(&self, out: &mut Out) -> Outcome {
        for event in &self.events {
            out.line(type_name(event));
            if let Some(kv) = &event.prev_kv {
                simple::key_value(out, kv, false);
            }
            simple::key_value(out, &event.kv.clone().unwrap_or_default(), false);
        }
        Ok(())
    }

    fn fields(&self, out: &mut Out) -> Outcome {
        fields::header(out, Some(&self.header));
        for event in &self.events {
            fields::field(out, "Type", type_name(event));
            if let Some(kv) = &event.prev_kv {
                fields::key_value(out, "Prev", kv);
            }
            fields::key_value(out, "", &event.kv.clone().unwrap_or_default());
        }
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        let events: Vec<String> = self.events.iter().map(json::event).collect();
        let events = if self.end.is_some() { "null".to_owned() } else { json::array(&events) };
        let oldest = self.end.as_ref().map_or(0, |(oldest, _)| *oldest);
        Ok(json::Object::new()
            .raw("Header", &json::header_json(&self.header, false))
            .raw("Events", &events)
            .number("CompactRevision", oldest)
            .switch("Canceled", self.end.is_some())
            .switch("Created", false)
            .text("CancelReason", "")
            .finish())
    }

    fn protobuf(&self) -> Outcome<Vec<u8>> {
        Ok(protobuf::bytes(&WatchResponse {
            header: Some(self.header),
            events: self.events.clone(),
            canceled: self.end.is_some(),
            compact_revision: self.end.as_ref().map_or(0, |(oldest, _)| *oldest),
            ..Default::default()
        }))
    }
}
