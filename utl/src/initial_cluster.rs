//! Who the members of a restored cluster are, read from the flags; the checks are `disk::urls` and
//! `disk::founding`.

use crate::call::Failure;
use disk::founding::{self, Founding};
use disk::urls::Url;

/// Checks the flags and computes the ids.
pub fn founding(name: &str, cluster: &str, token: &str, advertised: &str) -> Result<Founding, Failure> {
    let mut members = Vec::new();
    for part in cluster.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, address) = part.split_once('=').unwrap_or((part, ""));
        members.push((name, url(address)?));
    }
    let advertised: Vec<String> = advertised.split(',').map(url).collect::<Result<_, _>>()?;
    let members = members.iter().map(|(name, url)| (*name, &url[..]));
    founding::founding(name, members, token, &advertised).map_err(|mismatch| Failure::new(mismatch.to_string()))
}

/// The text is kept as written: ids are computed from it.
fn url(text: &str) -> Result<String, Failure> {
    Url::parse(text).map(|url| url.text).map_err(|bad| Failure::new(bad.to_string()))
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
