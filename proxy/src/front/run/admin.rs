//! Sockets for commands, in HAProxy's words.

use super::{Front, say};
use crate::front::config::{Config, Level, StatsSocket};
use crate::front::health::Wanted;
use crate::front::pool::Pool;
use crate::front::table::{self, Kind, Row};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::AbortHandle;

/// A line of commands is never longer.
const LINE: u64 = 16 << 10;
/// Who says nothing for so long is sent away.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same of one that asked for a prompt.
const PROMPT_PATIENCE: Duration = Duration::from_secs(3_600);

/// What may be said, and what it does.
const HELP: &str = "\
The following commands are valid at this level:
  clear counters [all]                    : clear max statistics counters (or all counters)
  disable frontend <frontend>             : temporarily disable specific frontend
  disable server <bk>/<srv>               : disable a server for maintenance
  enable frontend <frontend>              : re-enable specific frontend
  enable server <bk>/<srv>                : enable a disabled server
  get weight <bk>/<srv>                   : report a server's current weight
  help                                    : this text
  prompt                                  : toggle interactive mode with prompt
  quit                                    : disconnect
  set maxconn frontend <frontend> <value> : change a frontend's maxconn setting
  set maxconn global <value>              : change the per-process maxconn setting
  set maxconn server <bk>/<srv> <value>   : change a server's maxconn setting
  set server <bk>/<srv> state <state>     : ready, drain or maint
  set server <bk>/<srv> weight <weight>   : 0 to 256, or a percentage of the initial one
  set weight <bk>/<srv> <weight>          : the same
  show backend                            : list backends in the current running config
  show info                               : report information about the running process
  show servers state [<backend>]          : dump volatile server information
  show sess                               : report the list of current sessions
  show stat [<iid>|<proxy>] [<type> <sid>]: report counters for each proxy and server
  show version                            : report the version
  shutdown sessions server <bk>/<srv>     : kill sessions on a server
";

/// A socket that is open.
#[derive(Debug)]
pub(super) enum Opened {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Sockets by address, each with its task.
#[derive(Debug, Default)]
pub(super) struct Sockets(BTreeMap<String, (StatsSocket, AbortHandle)>);

impl Drop for Sockets {
    fn drop(&mut self) {
        for (address, (_, task)) in &self.0 {
            task.abort();
            if address.starts_with('/') {
                let _ = std::fs::remove_file(address);
            }
        }
    }
}

impl Sockets {
    /// Opens what this file names and is not open as it says.
    ///
    /// # Errors
    /// The text: a socket cannot be had.
    pub(super) fn open(&self, config: &Config) -> Result<Vec<(StatsSocket, Opened)>, String> {
        let new = |socket: &&StatsSocket| self.0.get(&socket.address).is_none_or(|(before, _)| before != *socket);
        let open = |socket: &StatsSocket| {
            let problem =
                |error: io::Error| format!("stats-socket {}: {}", socket.address, crate::relay::reason(&error));
            Ok((socket.clone(), opened(socket).map_err(problem)?))
        };
        config.global.stats_socket.iter().filter(new).map(open).collect()
    }

    pub(super) fn use_these(&mut self, opened: Vec<(StatsSocket, Opened)>, config: &Config, front: &Rc<Front>) {
        let named: Vec<&str> = config.global.stats_socket.iter().map(|socket| &socket.address[..]).collect();
        self.0.retain(|address, (_, task)| {
            let stays = named.contains(&&address[..]);
            if !stays {
                task.abort();
                if address.starts_with('/') {
                    let _ = std::fs::remove_file(address);
                }
            }
            stays
        });
        for (socket, listener) in opened {
            let task = tokio::task::spawn_local(accept(listener, socket.level, front.clone())).abort_handle();
            if let Some((_, before)) = self.0.insert(socket.address.clone(), (socket, task)) {
                before.abort();
            }
        }
    }
}

fn opened(socket: &StatsSocket) -> io::Result<Opened> {
    if !socket.address.starts_with('/') {
        let listener = std::net::TcpListener::bind(&socket.address)?;
        listener.set_nonblocking(true)?;
        return Ok(Opened::Tcp(TcpListener::from_std(listener)?));
    }
    // A name of its own first: the path is there with its mode, or not at all; and one that a
    // front before left behind is replaced.
    let part = format!("{}.{}.part", socket.address, std::process::id());
    let _ = std::fs::remove_file(&part);
    let listener = UnixListener::bind(&part)?;
    let mode = socket.mode.as_ref().and_then(|mode| u32::from_str_radix(mode, 8).ok()).unwrap_or(0o600);
    let placed = std::fs::set_permissions(&part, std::fs::Permissions::from_mode(mode))
        .and_then(|()| std::fs::rename(&part, &socket.address));
    if let Err(error) = placed {
        let _ = std::fs::remove_file(&part);
        return Err(error);
    }
    Ok(Opened::Unix(listener))
}

async fn accept(listener: Opened, level: Level, front: Rc<Front>) {
    loop {
        let result = match &listener {
            Opened::Unix(listener) => listener.accept().await.map(|(stream, _)| {
                let front = front.clone();
                drop(tokio::task::spawn_local(async move { talk(stream, level, &front).await }));
            }),
            Opened::Tcp(listener) => listener.accept().await.map(|(stream, _)| {
                let front = front.clone();
                drop(tokio::task::spawn_local(async move { talk(stream, level, &front).await }));
            }),
        };
        if let Err(error) = result {
            say("warn", "cannot accept a command", &[("error", Value::from(error.to_string()))]);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// One line is answered, and that is all; after `prompt` as many as come.
async fn talk(stream: impl AsyncRead + AsyncWrite + Unpin, level: Level, front: &Rc<Front>) {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut reader = BufReader::new(reader);
    let mut prompt = false;
    loop {
        let mut line = String::new();
        let patience = if prompt { PROMPT_PATIENCE } else { PATIENCE };
        let mut limited = (&mut reader).take(LINE);
        match tokio::time::timeout(patience, limited.read_line(&mut line)).await {
            Ok(Ok(count)) if count > 0 => {}
            _ => return,
        }
        for command in line.trim_end().split(';').map(str::trim) {
            match command {
                "quit" => return,
                "prompt" => prompt = !prompt,
                command => {
                    // Each answer ends with an empty line.
                    let said = carry_out(command, level, front);
                    let end = if said.is_empty() || said.ends_with('\n') { "\n" } else { "\n\n" };
                    if writer.write_all(format!("{said}{end}").as_bytes()).await.is_err() {
                        return;
                    }
                }
            }
        }
        if !prompt {
            let _ = writer.shutdown().await;
            return;
        }
        if writer.write_all(b"> ").await.is_err() {
            return;
        }
    }
}

const DENIED: &str = "Permission denied\n";

/// Does what a command says. The text to answer: empty where it is done.
pub(super) fn carry_out(command: &str, level: Level, front: &Rc<Front>) -> String {
    let words: Vec<&str> = command.split_whitespace().collect();
    let shown = match words[..] {
        ["help", ..] => Some(HELP.into()),
        ["show", "stat", ref rest @ ..] => Some(stat(rest, front)),
        ["show", "info", ..] => Some(info(front)),
        ["show", "version"] => Some(format!("{}\n", env!("CARGO_PKG_VERSION"))),
        ["show", "backend"] => Some(backends(front)),
        ["show", "servers", "state", ref rest @ ..] => Some(servers(rest, front)),
        ["show", "sess", ..] if level < Level::Operator => Some(DENIED.into()),
        ["show", "sess", ..] => Some(sessions(front)),
        ["get", "weight", name] => Some(weight(name, front)),
        _ => None,
    };
    if let Some(shown) = shown {
        return shown;
    }
    if !is_known(&words) {
        return format!("Unknown command: '{command}'\n{HELP}");
    }
    if level < Level::Admin {
        return DENIED.into();
    }
    let said = change(&words, front).err().unwrap_or_default();
    let fields = [("command", Value::from(command)), ("refused", Value::from(said.trim_end()))];
    say("info", "command", if said.is_empty() { &fields[..1] } else { &fields });
    said
}

fn is_known(words: &[&str]) -> bool {
    const STARTS: [&[&str]; 9] = [
        &["set", "server"],
        &["set", "weight"],
        &["set", "maxconn"],
        &["disable", "server"],
        &["enable", "server"],
        &["disable", "frontend"],
        &["enable", "frontend"],
        &["shutdown", "sessions", "server"],
        &["clear", "counters"],
    ];
    STARTS.iter().any(|start| words.starts_with(start))
}

/// A change; the error is the text to answer.
fn change(words: &[&str], front: &Rc<Front>) -> Result<(), String> {
    match *words {
        ["set", "server", name, "state", wanted] => {
            let wanted = match wanted {
                "ready" => Wanted::Ready,
                "drain" => Wanted::Drain,
                "maint" => Wanted::Maint,
                _ => return Err("'set server <srv> state' expects 'ready', 'drain' and 'maint'.\n".into()),
            };
            want(name, wanted, front)
        }
        ["set", "server", name, "weight", weight] | ["set", "weight", name, weight] => weigh(name, weight, front),
        ["set", "server", ..] => Err("usage: set server <backend>/<server> state | weight\n".into()),
        ["disable", "server", name] => want(name, Wanted::Maint, front),
        ["enable", "server", name] => want(name, Wanted::Ready, front),
        ["disable", "frontend", name] => pause(name, true, front),
        ["enable", "frontend", name] => pause(name, false, front),
        ["set", "maxconn", "frontend", name, most] => {
            let most = number(most)?;
            let mut state = front.state.borrow_mut();
            state.doors.get_mut(name).ok_or("No such frontend.\n")?.config.maxconn = Some(most);
            state.room.notify_waiters();
            Ok(())
        }
        ["set", "maxconn", "global", most] => {
            let most = number(most)?;
            let mut state = front.state.borrow_mut();
            state.config.global.maxconn = Some(most);
            state.room.notify_waiters();
            Ok(())
        }
        ["set", "maxconn", "server", name, most] => {
            // 0 is without end, as HAProxy has it.
            let most = most.parse::<u32>().map_err(|_| "Value out of range.\n")?;
            with_server(name, front, |pool, at| pool.members[at].config.maxconn = (most > 0).then_some(most))
        }
        ["shutdown", "sessions", "server", name] => {
            with_server(name, front, |_, _| ())?;
            let (backend, server) = name.split_once('/').expect("it was found");
            front.state.borrow_mut().shut(backend, server);
            Ok(())
        }
        ["clear", "counters", ref all @ ..] => {
            let all = all.first() == Some(&"all");
            let mut state = front.state.borrow_mut();
            state.count_all();
            state.connections.clear(all);
            state.doors.values_mut().for_each(|door| door.counters.clear(all));
            for pool in state.pools.values_mut() {
                pool.counters.clear(all);
                pool.members.iter_mut().for_each(|member| member.counters.clear(all));
            }
            Ok(())
        }
        _ => Err(format!("'{}' wants other words; see 'help'.\n", words.join(" "))),
    }
}

fn number(word: &str) -> Result<u32, String> {
    word.parse().ok().filter(|number| *number > 0).ok_or_else(|| "Value out of range.\n".to_owned())
}

/// Does something with a server, and gives places that became free to those that wait.
fn with_server<T>(name: &str, front: &Front, deed: impl FnOnce(&mut Pool, usize) -> T) -> Result<T, String> {
    let now = front.now();
    let mut state = front.state.borrow_mut();
    let (backend, server) = name.split_once('/').ok_or("Require 'backend/server'.\n")?;
    let pool = state.pools.get_mut(backend).ok_or("No such backend.\n")?;
    let at = pool.position(server).ok_or("No such server.\n")?;
    let done = deed(pool, at);
    state.admit(backend, now);
    Ok(done)
}

fn want(name: &str, wanted: Wanted, front: &Front) -> Result<(), String> {
    let now = front.now();
    with_server(name, front, |pool, at| {
        pool.want(at, wanted, now);
    })
}

fn weigh(name: &str, weight: &str, front: &Front) -> Result<(), String> {
    let now = front.now();
    with_server(name, front, |pool, at| {
        let initial = pool.members[at].config.weight;
        let weight = match weight.strip_suffix('%') {
            Some(percent) => {
                let percent: u32 = percent.parse().map_err(|_| RELATIVE)?;
                Some(initial * percent / 100).filter(|_| percent <= 100).ok_or(RELATIVE)?
            }
            None => weight.parse::<u32>().ok().filter(|weight| *weight <= 256).ok_or(ABSOLUTE)?,
        };
        pool.weigh(at, weight, now);
        Ok(())
    })?
}

const RELATIVE: &str = "Relative weight must be positive.\n";
const ABSOLUTE: &str = "Absolute weight can only be between 0 and 256 inclusive.\n";

fn pause(name: &str, paused: bool, front: &Front) -> Result<(), String> {
    let mut state = front.state.borrow_mut();
    let door = state.doors.get_mut(name).ok_or("No such frontend.\n")?;
    if door.paused == paused {
        return Err(format!("Frontend is already {}.\n", if paused { "disabled" } else { "enabled" }));
    }
    door.paused = paused;
    state.room.notify_waiters();
    Ok(())
}

fn weight(name: &str, front: &Front) -> String {
    with_server(name, front, |pool, at| {
        format!("{} (initial {})\n", pool.members[at].weight, pool.members[at].config.weight)
    })
    .unwrap_or_else(|text| text)
}

/// `show stat [ID|NAME] [TYPE SID]`: -1 is all.
fn stat(words: &[&str], front: &Front) -> String {
    let now = front.now();
    let mut state = front.state.borrow_mut();
    state.count_all();
    let rows = table::rows(&state, now);
    let (of, kinds, server) = match *words {
        [] => (None, -1, -1),
        [of] => (Some(of), -1, -1),
        [of, kinds, server] => (Some(of), kinds.parse().unwrap_or(-1), server.parse().unwrap_or(-1)),
        _ => return "usage: show stat [<iid>|<proxy>] [<type> <sid>]\n".into(),
    };
    let fits = |row: &&Row| {
        let bit = match row.kind {
            Kind::Frontend => 1,
            Kind::Backend => 2,
            Kind::Server => 4,
        };
        let of_proxy = of.is_none_or(|of| of == "-1" || of == row.get("pxname") || of == row.ids.0.to_string());
        let of_server = server == -1 || row.kind != Kind::Server || server == row.ids.1 as i64;
        of_proxy && (kinds == -1 || kinds & bit != 0) && of_server
    };
    table::csv(rows.iter().filter(fits))
}

fn info(front: &Front) -> String {
    let state = front.state.borrow();
    let (now, all) = (front.now(), &state.connections);
    let uptime = now.as_secs();
    let started = front.started.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
    let binds: usize = state.config.frontends.iter().map(|front| front.bind.len()).sum();
    let mut text = String::new();
    for (name, value) in [
        ("Name", "kvorum proxy".into()),
        ("Version", env!("CARGO_PKG_VERSION").into()),
        ("Nbthread", "1".into()),
        ("Nbproc", "1".into()),
        ("Process_num", "1".into()),
        ("Pid", std::process::id().to_string()),
        ("Uptime", format!("{}d {}h{:02}m{:02}s", uptime / 86_400, uptime / 3_600 % 24, uptime / 60 % 60, uptime % 60)),
        ("Uptime_sec", uptime.to_string()),
        ("Maxconn", state.maxconn().to_string()),
        ("Hard_maxconn", state.most.to_string()),
        ("CurrConns", all.current.to_string()),
        ("CumConns", all.total.to_string()),
        ("ConnRate", all.rate.read(now).to_string()),
        ("MaxConnRate", all.rate.max.to_string()),
        ("SessRate", all.rate.read(now).to_string()),
        ("MaxSessRate", all.rate.max.to_string()),
        ("Listeners", binds.to_string()),
        ("TotalBytesOut", all.bytes_out.to_string()),
        ("Start_time_sec", started.to_string()),
    ] {
        let _ = writeln!(text, "{name}: {value}");
    }
    text
}

fn backends(front: &Front) -> String {
    let state = front.state.borrow();
    let names: String = state.config.backends.iter().map(|back| format!("{}\n", back.name)).collect();
    format!("# name\n{names}")
}

/// The columns are HAProxy's; what has no meaning here is 0 or `-`.
fn servers(words: &[&str], front: &Front) -> String {
    let (now, state) = (front.now(), front.state.borrow());
    if let Some(name) = words.first().filter(|name| !state.pools.contains_key(**name)) {
        return format!("Can't find backend {name}.\n");
    }
    let mut text = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight \
                    srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state \
                    srv_agent_state bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl \
                    srv_check_port srv_check_addr srv_agent_addr srv_agent_port\n"
        .to_owned();
    for (at, back) in state.config.backends.iter().enumerate() {
        let Some(pool) = state.pools.get(&back.name).filter(|_| words.first().is_none_or(|name| *name == back.name))
        else {
            continue;
        };
        for (number, member) in pool.members.iter().enumerate() {
            let (host, port) = member.config.address.rsplit_once(':').unwrap_or((&member.config.address, "0"));
            // 0 stopped, 1 starting, 2 running.
            let running = match (member.is_up(), member.health.throttle(now)) {
                (false, _) => 0,
                (true, 100) => 2,
                (true, _) => 1,
            };
            // Bits: 1 maintenance by an operator, 8 drain by one.
            let wanted = match member.wanted {
                Wanted::Ready => 0,
                Wanted::Maint => 1,
                Wanted::Drain => 8,
            };
            let _ = writeln!(
                text,
                "{} {} {} {} {host} {running} {wanted} {} {} {} 0 {} {} 6 0 0 0 - {port} - 0 0 - - 0",
                at + 2 + state.config.frontends.len(),
                back.name,
                number + 1,
                member.config.name,
                member.weight,
                member.config.weight,
                now.saturating_sub(member.changed).as_secs(),
                if member.health.is_up() { 3 } else { 2 },
                member.health.score(),
            );
        }
    }
    text
}

fn sessions(front: &Front) -> String {
    let (now, state) = (front.now(), front.state.borrow());
    let mut text = String::new();
    for (number, session) in &state.sessions {
        let at = session.at.borrow();
        let (backend, server) =
            at.as_ref().map_or(("<NONE>", "<none>"), |(backend, server)| (&backend[..], &server[..]));
        let _ = writeln!(
            text,
            "{number:#x}: proto=tcp src={} fe={} be={backend} srv={server} age={}s in={} out={}",
            session.client,
            session.frontend,
            now.saturating_sub(session.since).as_secs(),
            session.bytes[0].get(),
            session.bytes[1].get()
        );
    }
    text
}
