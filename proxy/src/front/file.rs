//! A file, in either form, becomes a configuration that holds together; or all that is wrong with
//! it, each with its place.

use super::config::{Backend, Balance, Config, Frontend, Mode, Server};
use super::haproxy;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// A configuration, and what its file says without effect.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    /// One a line, with file and line.
    pub(crate) notes: Vec<String>,
}

/// Why a file is refused: one a line, each with the file and, where there is one, the line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) struct Refused(pub(crate) Vec<String>);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

/// Reads a file: TOML if its name ends so, else HAProxy's form.
///
/// # Errors
/// All that is wrong with it.
pub(crate) fn load(path: &Path) -> Result<Loaded, Refused> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| Refused(vec![format!("{name}: {error}")]))?;
    parse(&name, &text)
}

/// The same of a text.
///
/// # Errors
/// All that is wrong with it.
pub(crate) fn parse(name: &str, text: &str) -> Result<Loaded, Refused> {
    let is_toml = Path::new(name).extension().is_some_and(|ending| ending == "toml");
    let loaded = if is_toml {
        let config = toml::from_str(text).map_err(|error| Refused(vec![placed(name, text, &error)]))?;
        Loaded { config, notes: Vec::new() }
    } else {
        let all = |wrongs: Vec<haproxy::Wrong>| Refused(wrongs.iter().map(|wrong| format!("{name}:{wrong}")).collect());
        let read = haproxy::read(text, &|name| std::env::var(name).ok()).map_err(all)?;
        let notes = read.notes.iter().map(|note| format!("{name}:{}: {}", note.line, note.text)).collect();
        Loaded { config: read.config, notes }
    };
    let wrong = faults(&loaded.config);
    if wrong.is_empty() {
        return Ok(loaded);
    }
    Err(Refused(wrong.iter().map(|text| format!("{name}: {text}")).collect()))
}

/// A fault of the form, with its line.
fn placed(name: &str, text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    let place = line.map_or_else(String::new, |line| format!("{line}:"));
    format!("{name}:{place} {}", error.message().replace('\n', " "))
}

/// What does not hold together.
fn faults(config: &Config) -> Vec<String> {
    let mut faults = Vec::new();
    if config.frontends.is_empty() {
        faults.push("there is no frontend: nothing would be listened to".to_owned());
    }
    twice("frontend", config.frontends.iter().map(|front| &front.name), &mut faults);
    twice("backend", config.backends.iter().map(|back| &back.name), &mut faults);
    let backends: BTreeSet<&str> = config.backends.iter().map(|back| back.name.as_str()).collect();
    for front in &config.frontends {
        of_frontend(front, &backends, &mut faults);
    }
    for back in &config.backends {
        of_backend(back, &mut faults);
    }
    for socket in &config.global.stats_socket {
        if socket.mode.as_ref().is_some_and(|mode| u32::from_str_radix(mode, 8).is_err()) {
            faults.push(format!("stats-socket {}: the mode is octal, as 660", socket.address));
        }
    }
    faults
}

fn of_frontend(front: &Frontend, backends: &BTreeSet<&str>, faults: &mut Vec<String>) {
    let mut say = |text: String| faults.push(format!("frontend {}: {text}", front.name));
    if front.bind.is_empty() {
        say("no `bind` says where to listen".into());
    }
    for bind in &front.bind {
        if !is_address(&bind.address) {
            say(format!("{:?} is no host:port", bind.address));
        }
    }
    let named = front.default_backend.iter().chain(front.use_backend.iter().map(|route| &route.backend));
    for backend in named {
        if !backends.contains(backend.as_str()) {
            say(format!("there is no backend {backend:?}"));
        }
    }
    for route in &front.use_backend {
        if route.sni.is_empty() {
            say(format!("no name leads to backend {:?}", route.backend));
        }
    }
    match (front.mode, &front.stats, &front.default_backend) {
        (Mode::Tcp, Some(_), _) => say("a page of statistics wants mode http".into()),
        (Mode::Tcp, None, None) if front.use_backend.is_empty() => say("no backend is named".into()),
        (Mode::Http, None, _) => say("mode http is for the page of statistics alone; tcp carries HTTP as well".into()),
        (Mode::Http, Some(_), Some(_)) => say("the page of statistics has no backend".into()),
        _ => {}
    }
    if [front.maxconn, front.rate_limit_sessions, front.rate_limit_source].contains(&Some(0)) {
        say("a limit of 0 would refuse everybody".into());
    }
    for pair in front.stats.iter().flat_map(|stats| &stats.auth) {
        if !pair.contains(':') {
            // It may be a password alone: it is not repeated.
            say("`auth` is user:password".into());
        }
    }
}

fn of_backend(back: &Backend, faults: &mut Vec<String>) {
    let mut say = |text: String| faults.push(format!("backend {}: {text}", back.name));
    if back.servers.is_empty() {
        say("it has no server".into());
    }
    if let super::config::Check::Http(check) = &back.check {
        if check.expected().is_none() {
            say(format!("{:?} are no codes of HTTP, as 200 or 200-399", check.expect));
        }
        if !check.uri.starts_with('/') || check.uri.contains([' ', '\r', '\n']) {
            say(format!("{:?} is no path", check.uri));
        }
        if check.method.is_empty() || !check.method.chars().all(|c| c.is_ascii_uppercase()) {
            say(format!("{:?} is no method", check.method));
        }
    }
    if back.redispatch < -1_000 || back.redispatch > 1_000 {
        say("`redispatch` is a number from -1000 to 1000".into());
    }
    let learns = matches!(back.balance, Balance::Leader | Balance::Nearest);
    if learns && !back.servers.iter().all(|server| server.check) {
        say(format!("`balance {}` goes by what checks learn: every server wants one", back.balance.name()));
    }
    if back.timeout.connect.0.is_zero() {
        say("a connect timeout of nothing would end every connection".into());
    }
    for server in &back.servers {
        of_server(server, &mut say);
    }
    twice(&format!("backend {}: server", back.name), back.servers.iter().map(|server| &server.name), faults);
}

fn of_server(server: &Server, say: &mut dyn FnMut(String)) {
    let name = &server.name;
    for address in std::iter::once(&server.address).chain(&server.check_address) {
        if !is_address(address) || address.starts_with(['*', ':']) {
            say(format!("server {name}: {address:?} is no host:port"));
        }
    }
    if server.weight > 256 {
        say(format!("server {name}: a weight is a number from 0 to 256"));
    }
    if server.rise == 0 || server.fall == 0 || server.error_limit == 0 {
        say(format!("server {name}: rise, fall and error-limit are at least 1"));
    }
    let spans = [Some(server.inter), server.fastinter, server.downinter];
    if spans.iter().flatten().any(|span| span.0.is_zero()) {
        say(format!("server {name}: checks are some time apart"));
    }
    if server.maxconn == Some(0) {
        say(format!("server {name}: a maxconn of 0 would never let anybody in"));
    }
}

/// Names that stand twice.
fn twice<'a>(kind: &str, names: impl Iterator<Item = &'a String>, faults: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for name in names {
        if name.is_empty() || name.contains(['/', ' ', ',', '\n']) {
            faults.push(format!("{kind} {name:?}: a name has no space, comma or slash, and is not empty"));
        }
        if !seen.insert(name) {
            faults.push(format!("{kind} {name:?} stands there twice"));
        }
    }
}

/// `host:port`, `*:port`, `:port` or `[address]:port`.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_host =
        !host.contains(['/', '@', ' ']) && (!host.contains(':') || host.starts_with('[') && host.ends_with(']'));
    is_host && port.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests;
