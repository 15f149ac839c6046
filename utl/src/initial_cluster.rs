//! Who the members of a restored cluster are: URLs as etcd's flags take them; the rest is `disk::founding`.

use crate::call::Failure;
use disk::founding::{self, Founding};

/// Checks the flags and computes the ids.
pub fn founding(name: &str, cluster: &str, token: &str, advertised: &str) -> Result<Founding, Failure> {
    let mut members = Vec::new();
    for part in cluster.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, address) = part.split_once('=').unwrap_or((part, ""));
        members.push((name, url(address)?));
    }
    let advertised: Vec<String> = advertised.split(',').map(url).collect::<Result<_, _>>()?;
    let members = members.iter().map(|(name, url)| (*name, &url[..]));
    founding::founding(name, members, token, &advertised).map_err(Failure::new)
}

/// The text is kept as written: ids are computed from it.
fn url(text: &str) -> Result<String, Failure> {
    let text = text.trim();
    let scheme = || Failure::new(format!("URL scheme must be http, https, unix, or unixs: {text}"));
    let (protocol, rest) = text.split_once("://").ok_or_else(scheme)?;
    match protocol {
        "unix" | "unixs" => return Ok(text.to_string()),
        "http" | "https" => {}
        _ => return Err(scheme()),
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let port = authority.rsplit_once(':').and_then(|(host, port)| {
        let plain = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
        port.parse::<u16>().ok().filter(|_| plain)
    });
    if port.is_none() {
        return Err(Failure::new(format!("URL address does not have the form \"host:port\": {text}")));
    }
    if !path.is_empty() {
        return Err(Failure::new(format!("URL must not contain a path: {text}")));
    }
    Ok(text.trim_end_matches('/').to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_in_etcds_words() {
        const LOCAL: &str = "http://localhost:2380";
        let table = [
            (
                "foo",
                "default=http://localhost:2380",
                LOCAL,
                "couldn't find local name \"foo\" in the initial cluster configuration",
            ),
            ("default", "junk", LOCAL, "URL scheme must be http, https, unix, or unixs: "),
            ("default", "default=ftp://foo:1", LOCAL, "URL scheme must be http, https, unix, or unixs: ftp://foo:1"),
            (
                "default",
                "default=http://localhost:2380/x",
                LOCAL,
                "URL must not contain a path: http://localhost:2380/x",
            ),
            (
                "default",
                "default=http://localhost",
                LOCAL,
                "URL address does not have the form \"host:port\": http://localhost",
            ),
            ("default", "default=http://localhost:2380", "", "URL scheme must be http, https, unix, or unixs: "),
        ];
        for (name, cluster, advertised, text) in table {
            let error = founding(name, cluster, "etcd-cluster", advertised).unwrap_err();
            assert_eq!(error, Failure::new(text), "{cluster}");
        }
    }
}
