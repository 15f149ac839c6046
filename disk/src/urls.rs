//! URLs as the flags of etcd and of its tools take them.

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
    /// 0 for the socket of a file that names none.
    pub port: u16,
    pub text: String,
}

/// What is wrong with a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It has none of the schemes.
    Scheme,
    /// Host and port do not stand there as `host:port`.
    Form,
    /// Something follows the port.
    Path,
}

/// A text that is no URL. Its own text is etcd's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadUrl {
    /// As given, without blanks around it.
    pub text: String,
    /// What is wrong with it.
    pub wrong: Wrong,
}

impl fmt::Display for BadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wrong = match self.wrong {
            Wrong::Scheme => "URL scheme must be http, https, unix, or unixs",
            Wrong::Form => "URL address does not have the form \"host:port\"",
            Wrong::Path => "URL must not contain a path",
        };
        write!(f, "{wrong}: {}", self.text)
    }
}

impl std::error::Error for BadUrl {}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Url {
    /// Checks the form in etcd's order. Blanks around the text are left out, and a slash behind
    /// the port, which etcd refuses.
    ///
    /// # Errors
    /// What is wrong.
    pub fn parse(text: &str) -> Result<Url, BadUrl> {
        let text = text.trim();
        let bad = |wrong| BadUrl { text: text.to_string(), wrong };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| bad(Wrong::Scheme))?;
        let scheme = match scheme {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            "unix" => Scheme::Unix,
            "unixs" => Scheme::Unixs,
            _ => return Err(bad(Wrong::Scheme)),
        };
        if matches!(scheme, Scheme::Unix | Scheme::Unixs) {
            let (host, port) = host_and_port(rest).unwrap_or((rest, 0));
            return Ok(Url { scheme, host: host.to_string(), port, text: text.to_string() });
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let Some((host, port)) = host_and_port(authority) else {
            return Err(bad(Wrong::Form));
        };
        if !path.is_empty() {
            return Err(bad(Wrong::Path));
        }
        Ok(Url { scheme, host: host.to_string(), port, text: text.trim_end_matches('/').to_string() })
    }

    /// A comma-separated list; empty text gives no URLs.
    ///
    /// # Errors
    /// As [`Url::parse`], of the first that is wrong.
    pub fn list(text: &str) -> Result<Vec<Url>, BadUrl> {
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
}

/// The host without its brackets, and the port.
fn host_and_port(authority: &str) -> Option<(&str, u16)> {
    let (host, port) = authority.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    // `parse` takes a sign, too.
    port.parse().ok().filter(|_| port.bytes().all(|byte| byte.is_ascii_digit())).map(|port| (host, port))
}

/// The texts of some URLs, as written.
pub fn texts(urls: &[Url]) -> Vec<String> {
    urls.iter().map(|url| url.text.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_urls() {
        let url = Url::parse("http://[::1]:2380").expect("good");
        assert_eq!((url.host.as_str(), url.port, url.address().as_str()), ("::1", 2380, "[::1]:2380"));
        assert_eq!(Url::parse(" http://localhost:1/ ").expect("good").text, "http://localhost:1");
        let file = Url::parse("unix://a/b").expect("good");
        assert_eq!((file.host.as_str(), file.port, file.text.as_str()), ("a/b", 0, "unix://a/b"));
        assert_eq!(Url::parse("unixs://localhost:7").expect("good").port, 7);
        assert_eq!(texts(&Url::list(" http://a:1,, http://b:2 ").expect("good")), ["http://a:1", "http://b:2"]);
    }

    /// etcd and etcdutl 3.7.3 say the same, except where noted.
    #[test]
    fn bad_urls_in_etcds_words() {
        let scheme = "URL scheme must be http, https, unix, or unixs";
        let form = "URL address does not have the form \"host:port\"";
        let path = "URL must not contain a path";
        let table = [
            ("localhost:2380", scheme),
            ("", scheme),
            ("ftp://a:1", scheme),
            ("http://a", form),
            ("http://a/x", form),
            ("http://a:1/x", path),
            // Not etcd's words: those are Go's, or it looks at the number only when it listens.
            ("http://a:99999", form),
            ("http://a:+1", form),
            ("http://::1:1", form),
            ("http://[::1:1", form),
        ];
        for (text, error) in table {
            assert_eq!(Url::parse(text).expect_err(text).to_string(), format!("{error}: {text}"));
        }
    }
}
