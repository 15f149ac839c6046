//! URLs as etcd's flags take them.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
    Unix,
    Unixs,
}

/// `scheme://host:port`, kept as written: ids are computed from the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    pub scheme: Scheme,
    /// Without brackets around an IPv6 address.
    pub host: String,
    pub port: u16,
    pub text: String,
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Url {
    /// With etcd's texts for what is wrong.
    pub fn parse(text: &str) -> Result<Url, String> {
        let text = text.trim();
        let bad_scheme = || format!("URL scheme must be http, https, unix, or unixs: {text}");
        let (scheme, rest) = text.split_once("://").ok_or_else(bad_scheme)?;
        let scheme = match scheme {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            "unix" => Scheme::Unix,
            "unixs" => Scheme::Unixs,
            _ => return Err(bad_scheme()),
        };
        let local = matches!(scheme, Scheme::Unix | Scheme::Unixs);
        let authority = match rest.split_once('/') {
            _ if local => rest,
            Some((authority, "")) => authority,
            Some(_) => return Err(format!("URL must not contain a path: {text}")),
            None => rest,
        };
        let no_port = || format!("URL address does not have the form \"host:port\": {text}");
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) => (host, port.parse::<u16>().ok()),
            None => (authority, None),
        };
        let port = match port {
            Some(port) => port,
            None if local => 0,
            None => return Err(no_port()),
        };
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']').ok_or_else(no_port)?,
            None if host.contains(':') && !local => return Err(no_port()),
            None => host,
        };
        Ok(Url { scheme, host: host.to_string(), port, text: text.trim_end_matches('/').to_string() })
    }

    /// A comma-separated list; empty text gives no URLs.
    pub fn list(text: &str) -> Result<Vec<Url>, String> {
        text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(Url::parse).collect()
    }

    /// What to listen on or connect to, `host:port` with brackets where needed.
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    pub fn is_tls(&self) -> bool {
        matches!(self.scheme, Scheme::Https | Scheme::Unixs)
    }

    pub fn is_unix(&self) -> bool {
        matches!(self.scheme, Scheme::Unix | Scheme::Unixs)
    }

    /// etcd listens on addresses and on `localhost`, never on other names.
    pub fn can_bind(&self) -> bool {
        self.is_unix()
            || self.host.is_empty()
            || self.host == "localhost"
            || self.host.parse::<std::net::IpAddr>().is_ok()
    }
}

pub fn texts(urls: &[Url]) -> Vec<String> {
    urls.iter().map(|url| url.text.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_and_bad_urls() {
        let url = Url::parse("http://[::1]:2380").expect("good");
        assert_eq!((url.host.as_str(), url.port, url.address().as_str()), ("::1", 2380, "[::1]:2380"));
        assert_eq!(Url::parse(" http://localhost:1/ ").expect("good").text, "http://localhost:1");
        let table = [
            ("localhost:2380", "URL scheme must be http, https, unix, or unixs: localhost:2380"),
            ("ftp://a:1", "URL scheme must be http, https, unix, or unixs: ftp://a:1"),
            ("http://a", "URL address does not have the form \"host:port\": http://a"),
            ("http://a:99999", "URL address does not have the form \"host:port\": http://a:99999"),
            ("http://a:1/path", "URL must not contain a path: http://a:1/path"),
        ];
        for (text, error) in table {
            assert_eq!(Url::parse(text).expect_err(text), error);
        }
        assert!(!Url::parse("http://example.com:1").expect("good").can_bind());
        assert!(Url::parse("http://0.0.0.0:1").expect("good").can_bind());
    }
}
