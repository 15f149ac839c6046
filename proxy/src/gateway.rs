//! `gateway start`: what its words mean, with the stock program's texts for what does not fit.

use crate::commands::Call;
use crate::endpoints::Endpoints;
use crate::log;
use crate::relay;
use serde_json::Value;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::time::Duration;

const CALLER: &str = "etcdmain/gateway.go";

/// Runs a gateway until the process ends.
///
/// # Errors
/// The text to print: what of the words does not fit, or that the address is taken.
pub(crate) fn start(call: &Call) -> Result<(), String> {
    let text = |flag: &str| call.text(flag).to_string();
    let args: Vec<String> = std::env::args().collect();
    log::line("info", CALLER, "Running: ", &[("args", Value::from(args))]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let listen = text("listen-addr");
    let discovery = (text("discovery-srv"), text("discovery-srv-name"));
    let addresses = runtime.block_on(addresses(call.list("endpoints"), discovery))?;
    if addresses.is_empty() {
        return Err("no endpoints found".into());
    }
    let (host, port) = split(&listen).ok_or_else(|| format!("failed to validate listen address: {listen}"))?;
    not_itself(&addresses, &listen, (host, port))?;
    let delay = call.duration("retry-delay");
    raise_limit();
    let taken = |error| format!("listen tcp {listen}: bind: {}", relay::reason(&error));
    let listener = TcpListener::bind(&listen[..]).map_err(taken)?;
    ready("etcdmain/main.go");
    log::line(
        "info",
        "tcpproxy/userspace.go",
        "ready to proxy client requests",
        &[("endpoints", Value::from(addresses.clone()))],
    );
    // The stock program never tries again at none; here it would try without end.
    let delay = delay.max(Duration::from_millis(1));
    runtime.block_on(relay::run(listener, Endpoints::new(addresses, delay))).map_err(|error| error.to_string())
}

/// The members' addresses, `host:port` each.
async fn addresses(given: Vec<String>, (domain, service_name): (String, String)) -> Result<Vec<String>, String> {
    let found = match domain.is_empty() {
        true => given,
        false => {
            let discovery = client::Discovery { domain, service_name, resolver: None };
            discovery.endpoints().await.map_err(|error| match error {
                client::Error::Discovery { reason } => reason,
                other => other.to_string(),
            })?
        }
    };
    found
        .iter()
        .map(|text| {
            let authority = text.split_once("://").map_or(&text[..], |(_, rest)| rest);
            let authority = authority.split('/').next().unwrap_or_default();
            split(authority)
                .map(|_| authority.to_string())
                .ok_or_else(|| format!("error parsing endpoint {}", cobra::quote(text)))
        })
        .collect()
}

/// Host, without its brackets, and port.
fn split(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    Some((host, port.parse().ok()?))
}

/// A gateway that passes connections on to itself would do so without end.
fn not_itself(addresses: &[String], listen: &str, (host, port): (&str, u16)) -> Result<(), String> {
    let resolved = |host: &str, port: u16| -> Option<Vec<SocketAddr>> {
        let host = if host.is_empty() { "0.0.0.0" } else { host };
        (host, port).to_socket_addrs().ok().map(Iterator::collect)
    };
    let own = resolved(host, port).ok_or_else(|| format!("failed to resolve listen address: {listen}"))?;
    for address in addresses {
        let (host, port) = split(address).expect("was read before");
        let theirs = resolved(host, port).ok_or_else(|| format!("failed to resolve endpoint host: {host}"))?;
        if let Some(same) = theirs.iter().find(|address| own.contains(address)) {
            return Err(format!(
                "SRV or endpoint ({address}->{same}) should not resolve to the gateway listen addr ({listen})"
            ));
        }
    }
    Ok(())
}

/// Each connection needs two descriptors.
/// Raises the limit of descriptors as far as the system allows, and says what it is.
pub(crate) fn raise_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // What cannot be raised stays as it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Tells systemd, where that waits for it.
pub(crate) fn ready(caller: &str) {
    log::line("info", caller, "notifying init daemon", &[]);
    match sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
        Ok(()) => log::line("info", caller, "successfully notified init daemon", &[]),
        Err(error) => {
            let fields = [("error", Value::from(error.to_string()))];
            log::line("error", caller, "failed to notify systemd for readiness", &fields);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[&str]) -> Result<Vec<String>, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let given = given.iter().map(ToString::to_string).collect();
        runtime.block_on(addresses(given, Default::default()))
    }

    #[test]
    fn endpoints_are_urls_or_addresses() {
        let good = ["127.0.0.1:1", "http://a:2", "https://[::1]:3/x"];
        assert_eq!(read(&good), Ok(vec!["127.0.0.1:1".into(), "a:2".into(), "[::1]:3".into()]));
        for bad in ["a", "http://a", "::1:2", "a:x", "a:70000"] {
            assert_eq!(read(&["b:1", bad]), Err(format!("error parsing endpoint \"{bad}\"")));
        }
    }

    #[test]
    fn a_gateway_to_itself_is_refused() {
        let to = |address: &str| not_itself(&[address.to_string()], "localhost:5", ("localhost", 5));
        let text =
            "SRV or endpoint (127.0.0.1:5->127.0.0.1:5) should not resolve to the gateway listen addr (localhost:5)";
        assert_eq!(to("127.0.0.1:5"), Err(text.into()));
        assert_eq!(to("127.0.0.1:6"), Ok(()));
        assert_eq!(to("nosuch.invalid:5"), Err("failed to resolve endpoint host: nosuch.invalid".into()));
    }
}
