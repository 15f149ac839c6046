//! Endpoints, as they are written and what they mean.

use std::path::{Path, PathBuf};

use http::Uri;

use crate::{Error, Result};

/// An endpoint that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// As it is shown: with a scheme.
    pub text: String,
    /// Where to connect.
    pub target: Target,
    /// Whether the connection is encrypted.
    pub encrypted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A host without brackets, and its port.
    Tcp(String, u16),
    Unix(PathBuf),
    /// No address, and why; only [`Address::any`] makes one.
    Nowhere(String),
}

impl Address {
    /// Reads an endpoint. One without a scheme is encrypted if `tls` is there.
    pub(crate) fn parse(given: &str, tls: bool) -> Result<Address> {
        let bad = |reason: &str| Error::Endpoint { endpoint: given.to_owned(), reason: reason.to_owned() };
        let (scheme, rest) = match given.split_once("://") {
            Some((scheme, rest)) => (Some(scheme), rest),
            None => match given.split_once(':') {
                // The short way to write a path.
                Some((scheme @ ("unix" | "unixs"), rest)) => (Some(scheme), rest),
                _ => (None, given),
            },
        };
        let encrypted = match scheme {
            None => tls,
            Some("unix") => tls,
            Some("http") => false,
            Some("https" | "unixs") => true,
            Some(_) => return Err(bad("the scheme is not one of http, https, unix, unixs")),
        };
        if let Some(scheme @ ("unix" | "unixs")) = scheme {
            if rest.is_empty() || rest.contains('\0') {
                return Err(bad("the path of a socket is needed"));
            }
            return Ok(Address {
                text: format!("{scheme}://{rest}"),
                target: Target::Unix(PathBuf::from(rest)),
                encrypted,
            });
        }
        let scheme = if encrypted { "https" } else { "http" };
        let text = format!("{scheme}://{}", rest.trim_end_matches('/'));
        let uri: Uri = text.parse().map_err(|e: http::uri::InvalidUri| bad(&e.to_string()))?;
        if uri.path() != "/" || uri.query().is_some() {
            return Err(bad("no path may follow host and port"));
        }
        if uri.authority().is_some_and(|a| a.as_str().contains('@')) {
            return Err(bad("a user has no place in an endpoint"));
        }
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        match (host, uri.port_u16()) {
            ("", _) | (_, None) => Err(bad("host and port are needed")),
            (host, Some(port)) => Ok(Address { target: Target::Tcp(host.to_owned(), port), text, encrypted }),
        }
    }

    /// Reads any text as etcd's client does: path, query and user of a URL are
    /// passed over, no host is this one, and what is no address is an endpoint
    /// that is never reached.
    pub(crate) fn any(given: &str, tls: bool) -> Address {
        let read = match given.split_once("://") {
            Some((scheme, rest)) if ["http", "https"].contains(&scheme.to_ascii_lowercase().as_str()) => {
                let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
                let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
                Address::parse(&format!("{}://{}", scheme.to_ascii_lowercase(), here(host)), tls)
            }
            None if given.contains('/') && !given.starts_with("unix") => {
                Err(Error::Endpoint { endpoint: given.to_owned(), reason: "a path without a scheme".to_owned() })
            }
            _ => Address::parse(&here(given), tls),
        };
        match read {
            Ok(address) => Address { text: given.to_owned(), ..address },
            Err(error) => {
                Address { text: given.to_owned(), target: Target::Nowhere(error.to_string()), encrypted: false }
            }
        }
    }

    /// What requests say of where they go.
    pub(crate) fn origin(&self) -> Uri {
        let scheme = if self.encrypted { "https" } else { "http" };
        let authority = match &self.target {
            Target::Tcp(host, port) if host.contains(':') => format!("[{host}]:{port}"),
            Target::Tcp(host, port) => format!("{host}:{port}"),
            Target::Unix(path) => last_part(path).to_owned(),
            Target::Nowhere(_) => "localhost".to_owned(),
        };
        // A path may end in what is no host.
        format!("{scheme}://{authority}").parse().unwrap_or_else(|_| match self.encrypted {
            true => Uri::from_static("https://localhost"),
            false => Uri::from_static("http://localhost"),
        })
    }

    /// The name that a certificate has to have, if nothing else is asked for.
    pub(crate) fn host(&self) -> &str {
        match &self.target {
            Target::Tcp(host, _) => host,
            Target::Unix(path) => {
                let name = last_part(path);
                name.rsplit_once(':').map_or(name, |(host, _)| host)
            }
            Target::Nowhere(_) => "localhost",
        }
    }
}

/// The last part of a socket's path, which says as which host the server is spoken to: etcd's rule,
/// so that a certificate can be tried on `unixs://localhost:1`.
fn last_part(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).filter(|name| !name.is_empty()).unwrap_or("localhost")
}

/// A port alone is one of this host.
fn here(authority: &str) -> String {
    if authority.starts_with(':') && !authority.starts_with("::") {
        format!("localhost{authority}")
    } else {
        authority.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &str, tls: bool) -> String {
        match Address::parse(given, tls) {
            Ok(a) => format!("{} {} {}", a.text, a.origin(), a.host()),
            Err(Error::Endpoint { reason, .. }) => reason,
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn every_way_to_write_an_endpoint() {
        for (given, tls, wanted) in [
            ("a:1", false, "http://a:1 http://a:1/ a"),
            ("a:1", true, "https://a:1 https://a:1/ a"),
            ("http://a:1", true, "http://a:1 http://a:1/ a"),
            ("https://a:1/", false, "https://a:1 https://a:1/ a"),
            ("[::1]:2", false, "http://[::1]:2 http://[::1]:2/ ::1"),
            ("unix:///run/e.sock", false, "unix:///run/e.sock http://e.sock/ e.sock"),
            ("unix:///run/e.sock", true, "unix:///run/e.sock https://e.sock/ e.sock"),
            ("unixs://e.sock", false, "unixs://e.sock https://e.sock/ e.sock"),
            ("unix:e.sock", false, "unix://e.sock http://e.sock/ e.sock"),
            ("unix:localhost:20000", false, "unix://localhost:20000 http://localhost:20000/ localhost"),
            ("unixs:///run/localhost:m0", false, "unixs:///run/localhost:m0 https://localhost:m0/ localhost"),
            ("unix:/run/a b", false, "unix:///run/a b http://localhost/ a b"),
            ("https://localhost:20000", false, "https://localhost:20000 https://localhost:20000/ localhost"),
            ("localhost:2379", false, "http://localhost:2379 http://localhost:2379/ localhost"),
        ] {
            assert_eq!(read(given, tls), wanted, "{given}");
        }
    }

    #[test]
    fn any_text_is_an_endpoint_to_who_wants_it() {
        for (given, wanted) in [
            ("a:1", "http://a:1/"),
            ("HTTP://me@a:1/path?q#f", "http://a:1/"),
            ("https://a:1?q", "https://a:1/"),
            (":1", "http://localhost:1/"),
            ("http://:1", "http://localhost:1/"),
            ("unix://e.sock", "http://e.sock/"),
            ("[::1]:2", "http://[::1]:2/"),
        ] {
            let address = Address::any(given, false);
            assert!(!matches!(address.target, Target::Nowhere(_)), "{given}: {address:?}");
            assert_eq!((address.text.as_str(), address.origin().to_string().as_str()), (given, wanted));
        }
        for given in ["", "a", "::1", "a:1/", "http://", "http://a", "unix://", "ftp://a:1", "a b:1", " a:1", "a:x"] {
            let address = Address::any(given, true);
            assert!(matches!(address.target, Target::Nowhere(_)), "{given}: {address:?}");
            assert_eq!(address.text, given);
        }
    }

    #[test]
    fn what_is_none_is_refused_with_a_reason() {
        for (given, part) in [
            ("", ""),
            ("host", "host and port"),
            ("http://host", "host and port"),
            ("http://:1", ""),
            ("ftp://host:1", "scheme"),
            ("a b:1", ""),
            ("http://host:99999", ""),
            ("http://host:1/path", "no path"),
            ("http://host:1?q", "no path"),
            ("http://me@host:1", "user"),
            ("unix://", "path of a socket"),
            ("unix://a\0b", "path of a socket"),
        ] {
            let reason = Address::parse(given, false).expect_err(given).to_string();
            assert!(reason.starts_with("bad endpoint") && reason.contains(part), "{given:?}: {reason}");
        }
    }
}
