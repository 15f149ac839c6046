//! Who this member is: ids from the initial cluster as etcd computes them, or from the data
//! directory's `identity` file (`disk::identity`) when there is one.

use crate::options::Options;
use crate::urls::{Url, texts};
use disk::Identity;
pub use disk::identity::{Found, cluster_id, find, member_id, write as write_identity};
use std::collections::{BTreeMap, BTreeSet};
use store::Member;

/// Level of all formats this program writes. A higher one is refused.
pub const FORMAT_LEVEL: u32 = disk::LEVEL;

/// A cluster that is to be founded.
#[derive(Debug, PartialEq, Eq)]
pub struct Founding {
    pub identity: Identity,
    /// Ascending by id. Names as in the flags, so that peers can be told before they publish.
    pub members: Vec<Member>,
}

/// Checks the initial cluster as etcd does, with its texts, and computes the ids.
pub fn founding(options: &Options) -> Result<Founding, String> {
    let mut by_name: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, url) in &options.initial_cluster {
        by_name.entry(name).or_default().push(url.text.clone());
    }
    for urls in by_name.values_mut() {
        urls.sort_unstable();
    }
    let Some(ours) = by_name.get(options.name.as_str()) else {
        return Err(format!("couldn't find local name {:?} in the initial cluster configuration", options.name));
    };
    check_advertised(&options.name, ours, &options.advertise_peer)?;
    let mut seen = BTreeSet::new();
    for url in by_name.values().flatten() {
        if !seen.insert(url) {
            let pairs = by_name.iter().flat_map(|(name, urls)| urls.iter().map(move |url| format!("{name}={url}")));
            let list: Vec<String> = pairs.collect();
            return Err(format!("initial cluster {} has duplicate url", list.join(",")));
        }
    }
    if options.existing {
        return Err(
            "--initial-cluster-state=existing: joining a running cluster is not supported by this version".into()
        );
    }
    let mut members: Vec<Member> = by_name
        .iter()
        .map(|(name, urls)| Member {
            id: member_id(urls, &options.token),
            name: name.to_string(),
            peer_urls: urls.clone(),
            client_urls: Vec::new(),
        })
        .collect();
    members.sort_unstable_by_key(|member| member.id);
    let ids: Vec<u64> = members.iter().map(|member| member.id).collect();
    let identity = Identity { cluster: cluster_id(&ids), member: member_id(ours, &options.token) };
    Ok(Founding { identity, members })
}

fn check_advertised(name: &str, ours: &[String], advertised: &[Url]) -> Result<(), String> {
    let mut advertised = texts(advertised);
    advertised.sort_unstable();
    let missing: Vec<String> =
        ours.iter().filter(|url| !advertised.contains(url)).map(|url| format!("{name}={url}")).collect();
    if !missing.is_empty() {
        return Err(format!(
            "--initial-cluster has {} but missing from --initial-advertise-peer-urls={} ({})",
            missing.join(","),
            advertised.join(","),
            difference(&advertised, ours)
        ));
    }
    let missing: Vec<&str> = advertised.iter().filter(|url| !ours.contains(url)).map(String::as_str).collect();
    if !missing.is_empty() {
        let all: Vec<String> = advertised.iter().map(|url| format!("{name}={url}")).collect();
        return Err(format!(
            "--initial-advertise-peer-urls has {} but missing from --initial-cluster={}",
            missing.join(","),
            all.join(",")
        ));
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
    use crate::flags::parse;
    use crate::options::options;

    fn found(line: &str) -> Result<Founding, String> {
        let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        founding(&options(&parse(&args, &[]).expect("parses"), 1).expect("valid"))
    }

    #[test]
    fn ids_are_etcds() {
        let one = found("").expect("good");
        assert_eq!(one.identity, Identity { cluster: 0xcdf8_1819_4e3a_8c32, member: 0x8e9e_05c5_2164_694d });
        // Written down from a real etcd 3.7.3 with this initial cluster.
        let three = found(
            "--name m1 --initial-cluster-token tkn --initial-advertise-peer-urls http://127.0.0.1:12380 \
             --initial-cluster m1=http://127.0.0.1:12380,m2=http://127.0.0.1:22380,m3=http://127.0.0.1:32380",
        )
        .expect("good");
        assert_eq!(three.members.len(), 3);
        assert!(three.members.is_sorted_by_key(|member| member.id));
        assert_eq!(three.identity, Identity { cluster: THREE.0, member: THREE.1 });
    }

    const THREE: (u64, u64) = (0x998d_851d_5817_7d55, 0x77f4_1cbd_7102_8a3a);

    #[test]
    fn a_wrong_initial_cluster_is_refused_in_etcds_words() {
        let table = [
            (
                "--initial-cluster a=http://localhost:2380",
                "couldn't find local name \"default\" in the initial cluster configuration",
            ),
            (
                "--initial-cluster default=http://localhost:1",
                "--initial-cluster has default=http://localhost:1 but missing from \
                 --initial-advertise-peer-urls=http://localhost:2380 \
                 (resolved urls: \"http://localhost:2380\" != \"http://localhost:1\")",
            ),
            (
                "--initial-cluster default=http://localhost:2380 \
                 --initial-advertise-peer-urls http://localhost:2380,http://localhost:3",
                "--initial-advertise-peer-urls has http://localhost:3 but missing from \
                 --initial-cluster=default=http://localhost:2380,default=http://localhost:3",
            ),
            (
                "--initial-cluster default=http://localhost:2380,b=http://localhost:2380",
                "initial cluster b=http://localhost:2380,default=http://localhost:2380 has duplicate url",
            ),
            (
                "--initial-cluster-state existing",
                "--initial-cluster-state=existing: joining a running cluster is not supported by this version",
            ),
        ];
        for (line, text) in table {
            assert_eq!(found(line).expect_err(line), text, "{line}");
        }
    }
}
