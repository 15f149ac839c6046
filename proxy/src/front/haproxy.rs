//! Reads `haproxy.cfg`: the directives that set-ups before etcd and before API servers use. What
//! is not understood is an error that says what would be done without it.

mod draft;
mod server;
mod words;

use super::config::{Config, Level, StatsSocket};
use draft::Draft;
use std::fmt;
use words::Line;

/// Why a file is refused, at one of its lines.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) line: usize,
    pub(crate) text: String,
    /// What would be done if the line were not there.
    pub(crate) without: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.text)?;
        if !self.without.is_empty() {
            write!(f, "; without it {}", self.without)?;
        }
        Ok(())
    }
}

/// A line that is understood and changes nothing here, and why.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// What was read.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) config: Config,
    pub(crate) notes: Vec<Note>,
}

/// Where a line stands.
enum Section {
    None,
    Global,
    Defaults,
    Proxy,
}

/// A reading under way.
struct Reader {
    section: Section,
    config: Config,
    /// What later sections begin with.
    defaults: Draft,
    /// All frontends, backends and listens.
    proxies: Vec<Draft>,
    notes: Vec<Note>,
    wrongs: Vec<Wrong>,
}

/// A directive's outcome: nothing to say, or why its line changes nothing.
type Taken = Result<Option<&'static str>, Fault>;

/// What is wrong with a directive; the reader adds the line.
#[derive(Debug)]
pub(crate) struct Fault {
    text: String,
    without: String,
}

impl Fault {
    fn new(text: impl Into<String>) -> Fault {
        Fault { text: text.into(), without: String::new() }
    }

    fn without(self, without: &str) -> Fault {
        Fault { without: without.into(), ..self }
    }
}

/// Reads a file. `env`: the value of a variable that the file names.
///
/// # Errors
/// All lines that are wrong or not understood.
pub(crate) fn read(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Read, Vec<Wrong>> {
    let mut reader = Reader {
        section: Section::None,
        config: Config::default(),
        defaults: Draft::default(),
        proxies: Vec::new(),
        notes: Vec::new(),
        wrongs: Vec::new(),
    };
    for (at, raw) in text.lines().enumerate() {
        let line = at + 1;
        match words::split(raw, env) {
            Ok(words) if words.is_empty() => {}
            Ok(words) => reader.line(&Line { number: line, words }),
            Err(fault) => reader.fault(line, fault),
        }
    }
    reader.finish()
}

impl Reader {
    fn fault(&mut self, line: usize, fault: Fault) {
        self.wrongs.push(Wrong { line, text: fault.text, without: fault.without });
    }

    fn line(&mut self, line: &Line) {
        let taken = match line.words[0].as_str() {
            "global" | "defaults" | "frontend" | "backend" | "listen" => self.begin(line),
            "peers" | "resolvers" | "userlist" | "mailers" | "cache" | "program" | "http-errors" | "ring"
            | "fcgi-app" => {
                // Its lines would each be an error of their own.
                self.section = Section::None;
                Err(Fault::new(format!("a section `{}` is not known here", line.words[0]))
                    .without("all of its lines would be left out"))
            }
            _ => match self.section {
                Section::None if self.wrongs.is_empty() => {
                    Err(Fault::new(format!("`{}` stands before the first section", line.words[0])))
                }
                Section::None => Ok(None),
                Section::Global => self.global(line),
                Section::Defaults => self.defaults.directive(line),
                Section::Proxy => self.proxies.last_mut().expect("a section began").directive(line),
            },
        };
        match taken {
            Ok(None) => {}
            Ok(Some(why)) => {
                let text = format!("`{}` changes nothing here: {why}", line.words.join(" "));
                self.notes.push(Note { line: line.number, text });
            }
            Err(fault) => self.fault(line.number, fault),
        }
    }

    fn begin(&mut self, line: &Line) -> Taken {
        let kind = line.words[0].as_str();
        match kind {
            "global" => self.section = Section::Global,
            "defaults" => {
                self.section = Section::Defaults;
                self.defaults = Draft::default();
            }
            _ => {
                self.section = Section::Proxy;
                let name = line.words.get(1).cloned().unwrap_or_default();
                let taken = self.proxies.iter().find(|other| other.clashes(kind, &name)).map(|other| other.line);
                self.proxies.push(self.defaults.begin(kind, &name, line.number));
                if name.is_empty() {
                    return Err(Fault::new(format!("`{kind}` wants a name")));
                }
                if let Some(taken) = taken {
                    return Err(Fault::new(format!("there is a `{name}` already, at line {taken}")));
                }
                if line.words.len() > 2 && kind == "listen" {
                    return Err(Fault::new(format!("`{}` behind the name is not understood", line.words[2]))
                        .without("the address would have to stand in a `bind`"));
                }
            }
        }
        Ok(None)
    }

    fn global(&mut self, line: &Line) -> Taken {
        match line.words[0].as_str() {
            "maxconn" => self.config.global.maxconn = Some(line.number_at(1, 1..=10_000_000)?),
            "stats" if line.word(1) == "socket" => {
                let socket = stats_socket(line)?;
                self.config.global.stats_socket.push(socket);
            }
            "stats" if line.word(1) == "timeout" => return Ok(Some("a command's socket is closed with its client")),
            "log" | "log-tag" | "log-send-hostname" => {
                return Ok(Some("lines of the log go to standard error, as JSON"));
            }
            "daemon" | "master-worker" | "pidfile" => {
                return Ok(Some("the program stays in the foreground; systemd keeps it"));
            }
            "user" | "group" | "uid" | "gid" | "chroot" => {
                return Ok(Some("who it runs as is the business of whoever starts it (`deploy/systemd`)"));
            }
            "nbthread" | "nbproc" | "cpu-map" | "thread-groups" => return Ok(Some("one thread serves all")),
            "ulimit-n" => return Ok(Some("the limit of descriptors is raised as far as the system allows")),
            "ca-base" | "crt-base" => {
                return Ok(Some("no certificate is read from there; paths are taken as they are"));
            }
            "description" | "node" | "spread-checks" | "hard-stop-after" => return Ok(Some("nothing needs it")),
            word if word.starts_with("ssl-") || word.starts_with("tune.") || word.starts_with("no-") => {
                return Ok(Some("it sets how HAProxy itself works"));
            }
            word => {
                return Err(Fault::new(format!("`{word}` in `global` is not understood"))
                    .without("the program would start as if the line were not there"));
            }
        }
        Ok(None)
    }

    fn finish(mut self) -> Result<Read, Vec<Wrong>> {
        for draft in std::mem::take(&mut self.proxies) {
            let line = draft.line;
            for fault in draft.into(&mut self.config) {
                self.fault(line, fault);
            }
        }
        self.wrongs.sort_by_key(|wrong| wrong.line);
        if self.wrongs.is_empty() { Ok(Read { config: self.config, notes: self.notes }) } else { Err(self.wrongs) }
    }
}

/// `stats socket ADDRESS [mode M] [level L] …`
fn stats_socket(line: &Line) -> Result<StatsSocket, Fault> {
    let address = line.wanted(2, "a path or an address")?;
    let address = ["unix@", "ipv4@", "ipv6@"].iter().find_map(|kind| address.strip_prefix(kind)).unwrap_or(address);
    // Without a word of it HAProxy's level is `operator`.
    let mut socket = StatsSocket { address: address.to_owned(), level: Level::Operator, mode: None };
    let mut at = 3;
    while at < line.words.len() {
        match line.word(at) {
            "level" => {
                socket.level = match line.wanted(at + 1, "user, operator or admin")? {
                    "user" => Level::User,
                    "operator" => Level::Operator,
                    "admin" => Level::Admin,
                    other => return Err(Fault::new(format!("`level` is user, operator or admin, not `{other}`"))),
                }
            }
            "mode" => {
                let mode = line.wanted(at + 1, "permissions, as 660")?;
                if u32::from_str_radix(mode, 8).is_err() {
                    return Err(Fault::new(format!("`mode` is octal, as 660, not `{mode}`")));
                }
                socket.mode = Some(mode.to_owned());
            }
            "user" | "group" | "uid" | "gid" => {}
            "expose-fd" => {}
            "process" | "thread" => {}
            other => {
                return Err(Fault::new(format!("`{other}` of a socket is not understood"))
                    .without("the socket would be opened as if the word were not there"));
            }
        }
        at += 2;
    }
    Ok(socket)
}
