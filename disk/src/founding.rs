//! Who founds a cluster: the checks of an initial cluster in etcd's order and words, and the ids
//! of cluster and members that it gives.

use crate::Identity;
use crate::identity::{cluster_id, member_id};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use store::Member;

/// A cluster that is to be founded.
#[derive(Debug, PartialEq, Eq)]
pub struct Founding {
    /// Of the member that founds here.
    pub identity: Identity,
    /// Ascending by id. Names as in the flags, so that peers can be told before they publish.
    pub members: Vec<Member>,
}

/// An initial cluster that does not fit. Its text is etcd's.
#[derive(Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// It does not name the member that founds here.
    Nameless(String),
    /// It gives this member URLs that the member does not claim.
    Unclaimed {
        /// The member that founds here.
        name: String,
        /// Those that it does not claim.
        urls: Vec<String>,
        /// All that it claims, sorted.
        claimed: Vec<String>,
        /// All that the cluster gives it, sorted.
        given: Vec<String>,
    },
    /// This member claims URLs that it does not give it.
    NotGiven {
        /// The member that founds here.
        name: String,
        /// Those that are not given.
        urls: Vec<String>,
        /// All that it claims, sorted.
        claimed: Vec<String>,
    },
    /// One URL stands there twice. As `name=url,name=url`.
    Duplicate(String),
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::Nameless(name) => {
                write!(f, "couldn't find local name {name:?} in the initial cluster configuration")
            }
            Mismatch::Unclaimed { name, urls, claimed, given } => write!(
                f,
                "--initial-cluster has {} but missing from --initial-advertise-peer-urls={} ({})",
                named(name, urls),
                claimed.join(","),
                difference(claimed, given)
            ),
            Mismatch::NotGiven { name, urls, claimed } => write!(
                f,
                "--initial-advertise-peer-urls has {} but missing from --initial-cluster={}",
                urls.join(","),
                named(name, claimed)
            ),
            Mismatch::Duplicate(cluster) => write!(f, "initial cluster {cluster} has duplicate url"),
        }
    }
}

impl std::error::Error for Mismatch {}

/// Checks an initial cluster, given as a name and a peer URL at a time, and computes the ids.
/// `name` is the member that founds here, `advertised` the peer URLs it claims. URLs are compared
/// as texts: what the names in them stand for is not looked up.
///
/// # Errors
/// What does not fit.
pub fn founding<'c>(
    name: &str,
    cluster: impl IntoIterator<Item = (&'c str, &'c str)>,
    token: &str,
    advertised: &[String],
) -> Result<Founding, Mismatch> {
    let mut by_name: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, url) in cluster {
        by_name.entry(name).or_default().push(url.to_string());
    }
    for urls in by_name.values_mut() {
        urls.sort_unstable();
    }
    let Some(ours) = by_name.get(name) else {
        return Err(Mismatch::Nameless(name.to_string()));
    };
    check_advertised(name, ours, advertised)?;
    let mut seen = BTreeSet::new();
    if by_name.values().flatten().any(|url| !seen.insert(url)) {
        let list: Vec<String> = by_name.iter().map(|(name, urls)| named(name, urls)).collect();
        return Err(Mismatch::Duplicate(list.join(",")));
    }
    let member = |(name, urls): (&&str, &Vec<String>)| Member {
        id: member_id(urls, token),
        name: name.to_string(),
        peer_urls: urls.clone(),
        client_urls: Vec::new(),
    };
    let mut members: Vec<Member> = by_name.iter().map(member).collect();
    members.sort_unstable_by_key(|member| member.id);
    let ids: Vec<u64> = members.iter().map(|member| member.id).collect();
    Ok(Founding { identity: Identity { cluster: cluster_id(&ids), member: member_id(ours, token) }, members })
}

/// `name=url,name=url`.
fn named(name: &str, urls: &[String]) -> String {
    urls.iter().map(|url| format!("{name}={url}")).collect::<Vec<_>>().join(",")
}

fn check_advertised(name: &str, ours: &[String], advertised: &[String]) -> Result<(), Mismatch> {
    let mut advertised = advertised.to_vec();
    advertised.sort_unstable();
    let missing = |from: &[String], of: &[String]| -> Vec<String> {
        from.iter().filter(|url| !of.contains(url)).cloned().collect()
    };
    let absent = missing(ours, &advertised);
    if !absent.is_empty() {
        let given = ours.to_vec();
        return Err(Mismatch::Unclaimed { name: name.to_string(), urls: absent, claimed: advertised, given });
    }
    let absent = missing(&advertised, ours);
    if !absent.is_empty() {
        return Err(Mismatch::NotGiven { name: name.to_string(), urls: absent, claimed: advertised });
    }
    Ok(())
}

/// How etcd words the comparison of two sorted lists of URLs.
pub fn difference(a: &[String], b: &[String]) -> String {
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

    fn found(name: &str, cluster: &str, token: &str, advertised: &str) -> Result<Founding, Mismatch> {
        let advertised: Vec<String> = advertised.split(',').map(str::to_string).collect();
        founding(name, cluster.split(',').filter_map(|part| part.split_once('=')), token, &advertised)
    }

    #[test]
    fn ids_are_etcds() {
        // Written down from etcdutl 3.7.3.
        let cluster = "m1=http://127.0.0.1:2380,m2=http://127.0.0.1:3380";
        let two = found("m1", cluster, "tok", "http://127.0.0.1:2380").expect("good");
        assert_eq!(two.identity, Identity { cluster: 0xf302_a516_f08f_29be, member: 0x7140_5583_d3e2_d5ce });
        let ids: Vec<u64> = two.members.iter().map(|member| member.id).collect();
        assert_eq!(ids, [0x320b_7ba6_b5cc_7cc1, 0x7140_5583_d3e2_d5ce]);
        // And from etcd 3.7.3.
        let cluster = "m1=http://127.0.0.1:12380,m2=http://127.0.0.1:22380,m3=http://127.0.0.1:32380";
        let three = found("m1", cluster, "tkn", "http://127.0.0.1:12380").expect("good");
        assert_eq!(three.members.len(), 3);
        assert!(three.members.is_sorted_by_key(|member| member.id));
        assert_eq!(three.identity, Identity { cluster: 0x998d_851d_5817_7d55, member: 0x77f4_1cbd_7102_8a3a });
    }

    #[test]
    fn what_does_not_fit_is_said_in_etcds_words() {
        const LOCAL: &str = "http://localhost:2380";
        let table = [
            (
                "foo",
                "default=http://localhost:2380",
                LOCAL,
                "couldn't find local name \"foo\" in the initial cluster configuration",
            ),
            (
                "default",
                "default=http://localhost:2380,b=http://localhost:2380",
                LOCAL,
                "initial cluster b=http://localhost:2380,default=http://localhost:2380 has duplicate url",
            ),
            (
                "default",
                "default=http://localhost:2380",
                "http://localhost:2381,http://localhost:2380",
                "--initial-advertise-peer-urls has http://localhost:2381 but missing from \
                 --initial-cluster=default=http://localhost:2380,default=http://localhost:2381",
            ),
            // Both it and the duplicate are wrong: etcd sees this first.
            (
                "default",
                "default=http://localhost:1,b=http://localhost:1",
                LOCAL,
                "--initial-cluster has default=http://localhost:1 but missing from \
                 --initial-advertise-peer-urls=http://localhost:2380 \
                 (resolved urls: \"http://localhost:2380\" != \"http://localhost:1\")",
            ),
            (
                "default",
                "default=http://localhost:2380,default=http://localhost:1",
                LOCAL,
                "--initial-cluster has default=http://localhost:1 but missing from \
                 --initial-advertise-peer-urls=http://localhost:2380 (len([\"http://localhost:2380\"]) != \
                 len([\"http://localhost:1\" \"http://localhost:2380\"]))",
            ),
        ];
        for (name, cluster, advertised, text) in table {
            let mismatch = found(name, cluster, "etcd-cluster", advertised).expect_err(cluster);
            assert_eq!(mismatch.to_string(), text, "{cluster}");
        }
    }
}
