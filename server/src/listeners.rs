//! Sockets to listen on, bound before anything else happens, so that a taken port is said
//! at once and changes nothing.

use crate::urls::Url;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};

/// Binds one URL as etcd does: `localhost` is the IPv4 loopback where there is one, an
/// unspecified address is every address of both families. The error names the URL.
pub fn bind(url: &Url) -> io::Result<TcpListener> {
    let addresses = candidates(url)?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpListener::bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(io::Error::new(last.kind(), format!("listen tcp {}: bind: {}", url.address(), reason(&last))))
}

/// The system's words as etcd has them: without the number, and beginning small.
fn reason(error: &io::Error) -> String {
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
    fn a_taken_port_is_named() {
        let first = TcpListener::bind("127.0.0.1:0").expect("binds");
        let port = first.local_addr().expect("bound").port();
        let url = Url::parse(&format!("http://127.0.0.1:{port}")).expect("good");
        let error = bind(&url).expect_err("taken");
        assert_eq!(error.to_string(), format!("listen tcp 127.0.0.1:{port}: bind: address already in use"));
    }
}
