//! Sockets to listen on, bound before anything else happens, so that a taken port is said
//! at once and changes nothing.

use super::{Listener, file, path};
use disk::urls::Url;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};

/// Connections that wait to be accepted. After a failover all clients come at once; one that finds
/// the queue full tries again a second later, then after two, then four. The system bounds it
/// further (`net.core.somaxconn`).
pub(super) const BACKLOG: i32 = 4096;

/// etcd listens on addresses and on `localhost`, never on other names.
pub(crate) fn can_bind(url: &Url) -> bool {
    if url.is_unix() {
        return is_plain(path(url));
    }
    let host = url.host.as_str();
    host.is_empty() || host == "localhost" || host.parse::<IpAddr>().is_ok()
}

/// A path that a URL says as it is: without escapes, and without what would be a query or a user.
fn is_plain(path: &str) -> bool {
    !path.is_empty() && !path.contains(['%', '?', '#', '@', '\0'])
}

/// Binds one URL as etcd does: `localhost` is the IPv4 loopback where there is one, an
/// unspecified address is every address of both families. The error names the URL.
pub(crate) fn bind(url: &Url) -> io::Result<Listener> {
    if url.is_unix() {
        return file::listen(path(url)).map(Listener::Unix);
    }
    let addresses = candidates(url)?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match listen(address) {
            Ok(listener) => return Ok(Listener::Tcp(listener)),
            Err(error) => last = error,
        }
    }
    Err(io::Error::new(last.kind(), format!("listen tcp {}: bind: {}", url.address(), reason(&last))))
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    // The standard library listens with a queue of 128.
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// The system's words as etcd has them: without the number, and beginning small.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

fn candidates(url: &Url) -> io::Result<Vec<SocketAddr>> {
    let host = if url.host.is_empty() { "0.0.0.0" } else { url.host.as_str() };
    Ok(preferred((host, url.port).to_socket_addrs()?.collect()))
}

fn preferred(mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    addresses.sort_by_key(SocketAddr::is_ipv6);
    if let Some(any) = addresses.first().filter(|first| first.ip().is_unspecified() && first.is_ipv4()) {
        let both = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), any.port());
        addresses.insert(0, both);
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn localhost_is_ipv4_first_and_any_is_both() {
        let parse =
            |texts: &[&str]| -> Vec<SocketAddr> { texts.iter().map(|text| text.parse().expect("good")).collect() };
        assert_eq!(preferred(parse(&["[::1]:1", "127.0.0.1:1"])), parse(&["127.0.0.1:1", "[::1]:1"]));
        assert_eq!(preferred(parse(&["0.0.0.0:1"])), parse(&["[::]:1", "0.0.0.0:1"]));
        let empty = candidates(&Url::parse("http://:1").expect("good")).expect("resolves");
        assert_eq!(empty, parse(&["[::]:1", "0.0.0.0:1"]));
    }

    #[test]
    fn names_are_not_bound() {
        let can = |text| can_bind(&Url::parse(text).expect("good"));
        assert!(!can("http://example.com:1"));
        assert!(can("unix://localhost:1") && can("unixs:///run/a.sock"));
        assert!(!can("unix://") && !can("unix:///a%20b") && !can("unix://a?b"));
        assert!(can("http://0.0.0.0:1") && can("http://[::1]:1") && can("http://localhost:1"));
    }

    #[test]
    fn a_storm_of_clients_waits_in_the_queue() {
        let listener = listen("127.0.0.1:0".parse().expect("good")).expect("listens");
        let address = listener.local_addr().expect("bound");
        let soon = std::time::Duration::from_millis(500);
        let come =
            |n| std::net::TcpStream::connect_timeout(&address, soon).unwrap_or_else(|e| panic!("client {n}: {e}"));
        let clients: Vec<_> = (0..400).map(come).collect();
        drop(clients);
    }

    #[test]
    fn a_taken_port_is_named() {
        let first = TcpListener::bind("127.0.0.1:0").expect("binds");
        let port = first.local_addr().expect("bound").port();
        let url = Url::parse(&format!("http://127.0.0.1:{port}")).expect("good");
        let error = bind(&url).expect_err("taken");
        assert_eq!(error.to_string(), format!("listen tcp 127.0.0.1:{port}: bind: address already in use"));
    }
}
