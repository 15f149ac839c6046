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
    Err(io::Error::new(last.kind(), format!("listen tcp {}: {last}", url.address())))
}

fn candidates(url: &Url) -> io::Result<Vec<SocketAddr>> {
    let any = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), url.port);
    let host = if url.host.is_empty() { "0.0.0.0" } else { url.host.as_str() };
    let mut addresses: Vec<SocketAddr> = (host, url.port).to_socket_addrs()?.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    if addresses.iter().any(|address| address.ip().is_unspecified() && address.is_ipv4()) {
        addresses.insert(0, any);
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn localhost_is_ipv4_first_and_any_is_both() {
        let local = candidates(&Url::parse("http://localhost:1").expect("good")).expect("resolves");
        assert_eq!(local[0], "127.0.0.1:1".parse().expect("good"));
        let any = candidates(&Url::parse("http://0.0.0.0:1").expect("good")).expect("resolves");
        assert_eq!(any, ["[::]:1".parse().expect("good"), "0.0.0.0:1".parse().expect("good")]);
    }

    #[test]
    fn a_taken_port_is_named() {
        let first = TcpListener::bind("127.0.0.1:0").expect("binds");
        let port = first.local_addr().expect("bound").port();
        let url = Url::parse(&format!("http://127.0.0.1:{port}")).expect("good");
        let error = bind(&url).expect_err("taken");
        assert!(error.to_string().starts_with(&format!("listen tcp 127.0.0.1:{port}: ")), "{error}");
    }
}
