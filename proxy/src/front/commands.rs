//! The command line of `kvorum proxy`.

use super::config::Config;
use super::{file, run};
use crate::commands::{Call, Command};
use cobra::Flag;
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// How long the answer to a command may take.
const ANSWER: Duration = Duration::from_secs(10);

/// The program.
pub(crate) static ROOT: Command = Command {
    name: "kvorum proxy",
    short: "Stands before the members of a cluster, or before other servers, as HAProxy does",
    long: "Stands before the members of a cluster, or before other servers, as HAProxy does: takes connections,
asks servers whether they are well, and passes bytes on, TLS untouched. Its file is TOML, or a
haproxy.cfg as it is. docs/front.md says what each word of it does.",
    examples: "  kvorum proxy check haproxy.cfg
  kvorum proxy convert haproxy.cfg > front.toml
  kvorum proxy start front.toml
  kvorum proxy tell /run/kvorum-proxy.sock show stat",
    subs: &[&[START, CHECK, CONVERT, SCHEMA, TELL]],
    ..Command::NONE
};

const START: Command = Command {
    name: "start",
    usage: "start <file>",
    short: "Passes connections on, as a file says",
    long: "Passes connections on, as a file says. SIGHUP takes the file again: whole, or, if anything in it is
wrong, not at all; connections that stand go on. SIGTERM takes nothing new and ends when all
connections have ended, or after --grace; a second one ends at once.",
    flags: &[Flag::duration("grace", "30s", "how long connections may go on after SIGTERM")],
    words: Some(1),
    run: Some(start),
    ..Command::NONE
};

const CHECK: Command = Command {
    name: "check",
    usage: "check <file>",
    short: "Says what is wrong with a file, and which of its lines do nothing",
    flags: &[Flag::switch("quiet", "lines that do nothing are not said")],
    words: Some(1),
    run: Some(check),
    ..Command::NONE
};

const CONVERT: Command = Command {
    name: "convert",
    usage: "convert <haproxy.cfg>",
    short: "Writes a haproxy.cfg as TOML",
    words: Some(1),
    run: Some(convert),
    ..Command::NONE
};

const SCHEMA: Command = Command {
    name: "schema",
    short: "Writes the JSON schema of the TOML form, for editors",
    words: Some(0),
    run: Some(schema),
    ..Command::NONE
};

const TELL: Command = Command {
    name: "tell",
    usage: "tell <socket> <command>...",
    short: "Says a command over a stats socket, and prints the answer",
    long: "Says a command over a stats socket, and prints the answer. `help` lists the commands; they are
HAProxy's: `show stat`, `show info`, `set server <backend>/<server> state drain`.",
    run: Some(tell),
    ..Command::NONE
};

fn named(call: &Call) -> PathBuf {
    PathBuf::from(&call.args()[0])
}

fn start(call: &Call) -> Result<(), String> {
    let path = named(call);
    let loaded = file::load(&path).map_err(|refused| refused.to_string())?;
    for note in &loaded.notes {
        run::say("info", "a line of the file does nothing", &[("line", Value::from(&note[..]))]);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let tasks = tokio::task::LocalSet::new();
    let served = tasks.block_on(&runtime, run::serve(loaded.config, path, call.duration("grace")));
    served.map_err(|refused| refused.to_string())
}

fn check(call: &Call) -> Result<(), String> {
    let path = named(call);
    let loaded = file::load(&path).map_err(|refused| refused.to_string())?;
    if !call.switch("quiet") {
        loaded.notes.iter().for_each(|note| eprintln!("{note}"));
    }
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let servers = loaded.config.backends.iter().map(|back| back.servers.len()).sum();
    println!(
        "{} is good: {}, {}, {}",
        path.display(),
        count(loaded.config.frontends.len(), "frontend"),
        count(loaded.config.backends.len(), "backend"),
        count(servers, "server")
    );
    Ok(())
}

fn convert(call: &Call) -> Result<(), String> {
    let loaded = file::load(&named(call)).map_err(|refused| refused.to_string())?;
    loaded.notes.iter().for_each(|note| eprintln!("{note}"));
    print!("{}", toml::to_string(&loaded.config).map_err(|error| error.to_string())?);
    Ok(())
}

fn schema(_: &Call) -> Result<(), String> {
    let schema = schemars::schema_for!(Config);
    println!("{}", serde_json::to_string_pretty(&schema).map_err(|error| error.to_string())?);
    Ok(())
}

fn tell(call: &Call) -> Result<(), String> {
    let [socket, words @ ..] = call.args() else { return Err("a socket and a command are wanted".into()) };
    if words.is_empty() {
        return Err("a command is wanted, such as: show stat".into());
    }
    let problem = |error: std::io::Error| format!("{socket}: {}", crate::relay::reason(&error));
    let mut stream = UnixStream::connect(socket).map_err(problem)?;
    stream.set_read_timeout(Some(ANSWER)).map_err(problem)?;
    stream.write_all(format!("{}\n", words.join(" ")).as_bytes()).map_err(problem)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(problem)?;
    print!("{}", answer.strip_suffix('\n').unwrap_or(&answer));
    Ok(())
}
