//! Who the members of a restored cluster are: etcd's flags, checks and texts.

use crate::cobra::Failure;
use disk::Identity;
use disk::identity::{cluster_id, member_id};
use std::collections::{BTreeMap, BTreeSet};
use store::Member;

#[derive(Debug, PartialEq, Eq)]
pub struct Founding {
    pub identity: Identity,
    /// Ascending by id.
    pub members: Vec<Member>,
}

/// Checks the flags and computes the ids.
pub fn founding(name: &str, cluster: &str, token: &str, advertised: &str) -> Result<Founding, Failure> {
    let mut by_name: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for part in cluster.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, address) = part.split_once('=').unwrap_or((part, ""));
        by_name.entry(name).or_default().push(url(address)?);
    }
    let mut advertised: Vec<String> = advertised.split(',').map(url).collect::<Result<_, _>>()?;
    advertised.sort_unstable();
    for urls in by_name.values_mut() {
        urls.sort_unstable();
    }
    let Some(ours) = by_name.get(name) else {
        return Err(Failure::new(format!("couldn't find local name {name:?} in the initial cluster configuration")));
    };
    let mut seen = BTreeSet::new();
    for url in by_name.values().flatten() {
        if !seen.insert(url) {
            let pairs = by_name.iter().flat_map(|(name, urls)| urls.iter().map(move |url| format!("{name}={url}")));
            let list: Vec<String> = pairs.collect();
            return Err(Failure::new(format!("initial cluster {} has duplicate url", list.join(","))));
        }
    }
    check_advertised(name, ours, &advertised)?;
    let identity = |members: &[Member]| {
        let ids: Vec<u64> = members.iter().map(|member| member.id).collect();
        Identity { cluster: cluster_id(&ids), member: member_id(ours, token) }
    };
    let member = |(name, urls): (&&str, &Vec<String>)| Member {
        id: member_id(urls, token),
        name: name.to_string(),
        peer_urls: urls.clone(),
        client_urls: Vec::new(),
    };
    let mut members: Vec<Member> = by_name.iter().map(member).collect();
    members.sort_unstable_by_key(|member| member.id);
    Ok(Founding { identity: identity(&members), members })
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

/// Texts are compared, and what the names in them stand for is not: see docs/utl.md.
fn check_advertised(name: &str, ours: &[String], advertised: &[String]) -> Result<(), Failure> {
    let missing = |from: &[String], of: &[String]| -> Vec<String> {
        from.iter().filter(|url| !of.contains(url)).cloned().collect()
    };
    let absent = missing(ours, advertised);
    if !absent.is_empty() {
        let absent: Vec<String> = absent.iter().map(|url| format!("{name}={url}")).collect();
        return Err(Failure::new(format!(
            "--initial-cluster has {} but missing from --initial-advertise-peer-urls={} ({})",
            absent.join(","),
            advertised.join(","),
            difference(advertised, ours)
        )));
    }
    let absent = missing(advertised, ours);
    if !absent.is_empty() {
        let all: Vec<String> = advertised.iter().map(|url| format!("{name}={url}")).collect();
        return Err(Failure::new(format!(
            "--initial-advertise-peer-urls has {} but missing from --initial-cluster={}",
            absent.join(","),
            all.join(",")
        )));
    }
    Ok(())
}

/// How etcd words the comparison of two sorted lists of URLs.
fn difference(a: &[String], b: &[String]) -> String {
    let quoted = |list: &[String]| list.iter().map(|url| format!("{url:?}")).collect::<Vec<_>>().join(" ");
    if a.len() != b.len() {
        return format!("len([{}]) != len([{}])", quoted(a), quoted(b));
    }
    let pair = a.iter().zip(b).find(|(a, b)| a != b);
    pair.map_or_else(String::new, |(a, b)| format!("resolved urls: {a:?} != {b:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_etcds() {
        // Written down from etcdutl 3.7.3.
        let cluster = "m1=http://127.0.0.1:2380,m2=http://127.0.0.1:3380";
        let founding = founding("m1", cluster, "tok", "http://127.0.0.1:2380").unwrap();
        assert_eq!(founding.identity, Identity { cluster: 0xf302_a516_f08f_29be, member: 0x7140_5583_d3e2_d5ce });
        let ids: Vec<u64> = founding.members.iter().map(|member| member.id).collect();
        assert_eq!(ids, [0x320b_7ba6_b5cc_7cc1, 0x7140_5583_d3e2_d5ce]);
    }

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
            (
                "default",
                "default=http://localhost:2380,b=http://localhost:2380",
                LOCAL,
                "initial cluster b=http://localhost:2380,default=http://localhost:2380 has duplicate url",
            ),
            (
                "default",
                "default=http://localhost:2380",
                "http://localhost:2380,http://localhost:2381",
                "--initial-advertise-peer-urls has http://localhost:2381 but missing from \
                 --initial-cluster=default=http://localhost:2380,default=http://localhost:2381",
            ),
            (
                "default",
                "default=http://localhost:2380",
                "http://127.0.0.1:2380",
                "--initial-cluster has default=http://localhost:2380 but missing from \
                 --initial-advertise-peer-urls=http://127.0.0.1:2380 \
                 (resolved urls: \"http://127.0.0.1:2380\" != \"http://localhost:2380\")",
            ),
        ];
        for (name, cluster, advertised, text) in table {
            let error = founding(name, cluster, "etcd-cluster", advertised).unwrap_err();
            assert_eq!(error, Failure::new(text), "{cluster}");
        }
    }
}
