//! How a connection begins: the PROXY protocol, and the name that a client of TLS asks for.

use ppp::v2::{Builder, Command, Protocol, Version};
use ppp::{HeaderResult, PartialResult, v1, v2};
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncReadExt};

/// A header of the PROXY protocol is never longer here.
const LONGEST_HEADER: usize = 4_096;
/// A first message of TLS is never longer.
const LONGEST_HELLO: usize = 18_432;

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.to_owned())
}

/// Reads the header that a front before this one sends. `taken` gets what came behind it. None: it
/// speaks for itself (a check of its own).
///
/// # Errors
/// No header came.
pub(crate) async fn proxied(
    stream: &mut (impl AsyncRead + Unpin),
    taken: &mut Vec<u8>,
) -> io::Result<Option<(SocketAddr, SocketAddr)>> {
    loop {
        let result = HeaderResult::parse(taken);
        if result.is_complete() {
            let (addresses, length) = match result {
                HeaderResult::V1(Ok(header)) => (of_v1(&header.addresses), header.header.len()),
                HeaderResult::V2(Ok(header)) => (of_v2(&header), header.len()),
                _ => return Err(invalid("no PROXY header")),
            };
            taken.drain(..length);
            return Ok(addresses);
        }
        if taken.len() >= LONGEST_HEADER {
            return Err(invalid("a PROXY header that does not end"));
        }
        let mut buffer = [0; 256];
        match stream.read(&mut buffer).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => taken.extend_from_slice(&buffer[..count]),
        }
    }
}

fn of_v1(addresses: &v1::Addresses) -> Option<(SocketAddr, SocketAddr)> {
    match addresses {
        v1::Addresses::Tcp4(ip) => {
            Some(((ip.source_address, ip.source_port).into(), (ip.destination_address, ip.destination_port).into()))
        }
        v1::Addresses::Tcp6(ip) => {
            Some(((ip.source_address, ip.source_port).into(), (ip.destination_address, ip.destination_port).into()))
        }
        v1::Addresses::Unknown => None,
    }
}

fn of_v2(header: &v2::Header<'_>) -> Option<(SocketAddr, SocketAddr)> {
    if header.command == Command::Local {
        return None;
    }
    match header.addresses {
        v2::Addresses::IPv4(ip) => {
            Some(((ip.source_address, ip.source_port).into(), (ip.destination_address, ip.destination_port).into()))
        }
        v2::Addresses::IPv6(ip) => {
            Some(((ip.source_address, ip.source_port).into(), (ip.destination_address, ip.destination_port).into()))
        }
        _ => None,
    }
}

/// The header for the next one, in the first form of the protocol.
pub(crate) fn header_v1(client: SocketAddr, here: SocketAddr) -> Vec<u8> {
    match (client, here) {
        (SocketAddr::V4(a), SocketAddr::V4(b)) => v1::Addresses::new_tcp4(*a.ip(), *b.ip(), a.port(), b.port()),
        (SocketAddr::V6(a), SocketAddr::V6(b)) => v1::Addresses::new_tcp6(*a.ip(), *b.ip(), a.port(), b.port()),
        _ => v1::Addresses::Unknown,
    }
    .to_string()
    .into_bytes()
}

/// The same in the second.
///
/// # Errors
/// It would be too long, which it never is.
pub(crate) fn header_v2(client: SocketAddr, here: SocketAddr) -> io::Result<Vec<u8>> {
    Builder::with_addresses(Version::Two | Command::Proxy, Protocol::Stream, (client, here)).build()
}

/// The name that a client of TLS asks for, in small letters; `taken` gets all that was read. None:
/// it asks for none, or does not speak TLS.
///
/// # Errors
/// The client went away.
pub(crate) async fn name(stream: &mut (impl AsyncRead + Unpin), taken: &mut Vec<u8>) -> io::Result<Option<String>> {
    loop {
        let mut acceptor = rustls::server::Acceptor::default();
        let mut rest = &taken[..];
        while !rest.is_empty() {
            if acceptor.read_tls(&mut rest).is_err() {
                return Ok(None);
            }
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => return Ok(accepted.client_hello().server_name().map(str::to_ascii_lowercase)),
            Ok(None) if taken.len() < LONGEST_HELLO => {}
            Ok(None) | Err(_) => return Ok(None),
        }
        let mut buffer = [0; 2_048];
        match stream.read(&mut buffer).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => taken.extend_from_slice(&buffer[..count]),
        }
    }
}

/// A name of the file fits one that is asked for.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    let pattern = pattern.to_ascii_lowercase();
    match pattern.strip_prefix("*.") {
        Some(end) => name.split_once('.').is_some_and(|(first, rest)| !first.is_empty() && rest == end),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().expect(text)
    }

    #[test]
    fn a_header_that_is_written_is_read_and_what_follows_stays() {
        for (client, here) in [("1.2.3.4:5", "10.0.0.1:2379"), ("[fd00::1]:5", "[fd00::2]:2379")] {
            let (client, here) = (address(client), address(here));
            for header in [header_v1(client, here), header_v2(client, here).expect("it is short")] {
                let whole = [&header[..], b"and more"].concat();
                // It comes byte by byte.
                for cut in [0, 1, header.len() - 1, header.len()] {
                    let mut taken = whole[..cut].to_vec();
                    let mut rest = &whole[cut..];
                    let read = run(proxied(&mut rest, &mut taken)).expect("a header");
                    taken.extend_from_slice(rest);
                    assert_eq!((read, &taken[..]), (Some((client, here)), &b"and more"[..]), "{header:?}");
                }
            }
        }
        let mut taken = Vec::new();
        assert_eq!(run(proxied(&mut &b"PROXY UNKNOWN\r\nx"[..], &mut taken)).expect("a header"), None);
        assert_eq!(taken, b"x");
    }

    #[test]
    fn what_is_no_header_is_refused() {
        for wrong in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PROXY TCP4 1.2.3.4\r\n", b"PROXY TCP4 1", b"\r\n\r\n\0\r\nQUIX"]
        {
            let mut rest = wrong;
            assert!(run(proxied(&mut rest, &mut Vec::new())).is_err(), "{wrong:?}");
        }
        let endless = vec![b'a'; 100_000];
        assert!(run(proxied(&mut &endless[..], &mut Vec::new())).is_err());
    }

    #[test]
    fn the_name_of_tls_is_found_and_nothing_is_lost() {
        let roots = rustls::RootCertStore::empty();
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name_of = "API.example.com".to_owned().try_into().expect("a name");
        let mut client = rustls::ClientConnection::new(std::sync::Arc::new(config), name_of).expect("a client");
        let mut hello = Vec::new();
        client.write_tls(&mut hello).expect("it is written");
        for cut in [0, 5, hello.len() / 2, hello.len()] {
            let mut taken = hello[..cut].to_vec();
            let mut rest = &hello[cut..];
            let name = run(name(&mut rest, &mut taken)).expect("a hello");
            assert_eq!((name.as_deref(), &taken), (Some("api.example.com"), &hello));
        }
        let mut taken = Vec::new();
        let plain = &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..];
        assert_eq!(run(super::name(&mut &plain[..], &mut taken)).expect("no hello"), None);
        assert_eq!(taken, plain);
    }

    #[test]
    fn names_fit_whole_or_one_step_below() {
        for (pattern, name, right) in [
            ("api.example.com", "api.example.com", true),
            ("API.example.com", "api.example.com", true),
            ("*.example.com", "api.example.com", true),
            ("*.example.com", "a.b.example.com", false),
            ("*.example.com", "example.com", false),
            ("*.example.com", ".example.com", false),
        ] {
            assert_eq!(fits(pattern, name), right, "{pattern} {name}");
        }
    }
}
