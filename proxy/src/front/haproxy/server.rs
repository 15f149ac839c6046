//! `server NAME ADDRESS …` and `default-server …`.

use super::Fault;
use super::words::Line;
use crate::front::config::{OnError, SendProxy, Server};
use crate::front::span::Span;

/// Words that stand alone, and have no meaning here.
const PLAIN: [&str; 6] = ["no-agent-check", "no-check-ssl", "no-ssl", "no-backup", "no-send-proxy", "non-stick"];
/// Words with a value, and no meaning here.
const VALUED: [&str; 4] = ["id", "init-addr", "resolve-prefer", "pool-max-conn"];

/// What the words say beyond the server itself.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    /// `port`: where the checks go.
    port: Option<u32>,
    /// `addr`: to whom.
    address: Option<String>,
    verify: Option<bool>,
}

/// Applies the words from `at` on.
pub(crate) fn words(server: &mut Server, extra: &mut Extra, line: &Line, mut at: usize) -> Result<(), Fault> {
    while at < line.words.len() {
        at += 1 + word(server, extra, line, at)?;
    }
    Ok(())
}

/// One word; how many values it has.
fn word(server: &mut Server, extra: &mut Extra, line: &Line, at: usize) -> Result<usize, Fault> {
    let name = line.word(at);
    match name {
        "check" => server.check = true,
        "no-check" => server.check = false,
        "backup" => server.backup = true,
        "disabled" => server.disabled = true,
        "enabled" => server.disabled = false,
        "check-ssl" => server.check_ssl = true,
        "send-proxy" => server.send_proxy = SendProxy::V1,
        "send-proxy-v2" => server.send_proxy = SendProxy::V2,
        _ if PLAIN.contains(&name) => {}
        _ => {
            valued(server, extra, line, at)?;
            return Ok(1);
        }
    }
    Ok(0)
}

/// A word with a value.
fn valued(server: &mut Server, extra: &mut Extra, line: &Line, at: usize) -> Result<(), Fault> {
    let name = line.word(at);
    let value = at + 1;
    let text = |what: &str| line.wanted(value, what).map(str::to_owned);
    match name {
        "inter" => server.inter = not_nothing(line.span_at(value)?, name)?,
        "fastinter" => server.fastinter = Some(not_nothing(line.span_at(value)?, name)?),
        "downinter" => server.downinter = Some(not_nothing(line.span_at(value)?, name)?),
        "slowstart" => server.slowstart = Some(line.span_at(value)?),
        "rise" => server.rise = line.number_at(value, 1..=1_000_000)?,
        "fall" => server.fall = line.number_at(value, 1..=1_000_000)?,
        "weight" => server.weight = line.number_at(value, 0..=256)?,
        "maxconn" => server.maxconn = some_unless_0(line.number_at(value, 0..=10_000_000)?),
        "maxqueue" => server.maxqueue = some_unless_0(line.number_at(value, 0..=10_000_000)?),
        "error-limit" => server.error_limit = line.number_at(value, 1..=1_000_000)?,
        "port" => extra.port = Some(line.number_at(value, 1..=65_535)?),
        "addr" => extra.address = Some(text("an address")?),
        "ca-file" => server.ca_file = Some(text("a file")?),
        "check-sni" => server.check_sni = Some(text("a name")?),
        "verify" => {
            extra.verify = Some(match line.wanted(value, "none or required")? {
                "none" => false,
                "required" => true,
                other => return Err(Fault::new(format!("`verify` is none or required, not `{other}`"))),
            });
        }
        "on-marked-down" => match line.wanted(value, "shutdown-sessions")? {
            "shutdown-sessions" => server.shutdown_sessions = true,
            other => return Err(Fault::new(format!("`on-marked-down` is shutdown-sessions, not `{other}`"))),
        },
        "observe" => match line.wanted(value, "layer4")? {
            "layer4" => server.observe = true,
            other => {
                return Err(Fault::new(format!("`observe {other}` is not understood; layer4 is"))
                    .without("connections of clients would not count as checks"));
            }
        },
        "on-error" => {
            server.on_error = match line.wanted(value, "what is done")? {
                "fastinter" => OnError::Fastinter,
                "fail-check" => OnError::FailCheck,
                "sudden-death" => OnError::SuddenDeath,
                "mark-down" => OnError::MarkDown,
                other => return Err(Fault::new(format!("`on-error {other}` is not understood"))),
            }
        }
        _ if VALUED.contains(&name) => drop(text("a value")?),
        _ => return Err(unknown(name)),
    }
    Ok(())
}

fn unknown(name: &str) -> Fault {
    let without = match name {
        "ssl" | "crt" | "sni" | "alpn" | "no-verifyhost" | "verifyhost" => {
            "the front would pass what clients send, and encrypt nothing itself"
        }
        "cookie" | "track" | "redir" => "the server would be chosen and checked by itself",
        "agent-check" | "agent-port" | "agent-inter" | "agent-addr" | "agent-send" => {
            "the checks alone would say how the server is"
        }
        "resolvers" => "the name would be looked up by the system, at each connection",
        _ => "the server would be used as if the word were not there",
    };
    Fault::new(format!("`{name}` of a server is not understood")).without(without)
}

fn some_unless_0(number: u32) -> Option<u32> {
    (number > 0).then_some(number)
}

fn not_nothing(span: Span, name: &str) -> Result<Span, Fault> {
    if span.0.is_zero() { Err(Fault::new(format!("`{name}` is longer than nothing"))) } else { Ok(span) }
}

/// What stands apart in the file becomes one value here.
pub(crate) fn finish(server: &mut Server, extra: &Extra) -> Result<(), Fault> {
    if extra.port.is_some() || extra.address.is_some() {
        let (host, port) = server.address.rsplit_once(':').unwrap_or((&server.address, ""));
        let host = extra.address.as_deref().unwrap_or(host);
        let port = extra.port.map_or_else(|| port.to_owned(), |port| port.to_string());
        server.check_address = Some(format!("{host}:{port}"));
    }
    match extra.verify {
        Some(true) if server.ca_file.is_none() => {
            return Err(Fault::new("`verify required` wants a `ca-file`"));
        }
        Some(false) => server.ca_file = None,
        None if server.check_ssl && server.ca_file.is_none() => {
            return Err(Fault::new("`check-ssl` wants a `ca-file`, or `verify none`"));
        }
        _ => {}
    }
    Ok(())
}

impl Extra {
    /// What a server has of `default-server`.
    pub(crate) fn copy(&self) -> Extra {
        Extra { port: self.port, address: self.address.clone(), verify: self.verify }
    }
}
