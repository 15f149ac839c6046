//! Who this member is: ids from the initial cluster as etcd computes them, or from the data
//! directory when there is one.
//!
//! The directory's `identity` file is written before the first other file (as *founding*)
//! and again behind the last (as *ready*). So a crash while founding is founded again, and
//! a directory whose identity is missing is never overwritten.

use crate::options::Options;
use crate::urls::{Url, texts};
use disk::{Files, How, Identity};
use sha1::{Digest, Sha1};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use store::Member;

/// Level of all formats this program writes. A higher one is refused.
pub const FORMAT_LEVEL: u32 = 1;

const IDENTITY: &str = "identity";
const IDENTITY_NEW: &str = "identity.new";

/// First 8 bytes, big-endian, of SHA-1 over the sorted peer URLs and the cluster token.
pub fn member_id(peer_urls: &[String], token: &str) -> u64 {
    let mut urls = peer_urls.to_vec();
    urls.sort_unstable();
    let mut hash = Sha1::new();
    for url in &urls {
        hash.update(url.as_bytes());
    }
    hash.update(token.as_bytes());
    first_8(&hash.finalize())
}

/// First 8 bytes, big-endian, of SHA-1 over the members' ids, ascending, 8 bytes each.
pub fn cluster_id(members: &[u64]) -> u64 {
    let mut ids = members.to_vec();
    ids.sort_unstable();
    let mut hash = Sha1::new();
    for id in ids {
        hash.update(id.to_be_bytes());
    }
    first_8(&hash.finalize())
}

fn first_8(digest: &[u8]) -> u64 {
    digest[..8].iter().fold(0, |id, byte| id << 8 | u64::from(*byte))
}

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

/// What the data directory says about itself.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    Empty,
    /// A crash while founding: nothing was ever acknowledged.
    Founding(Identity),
    Ready(Identity),
}

/// Reads the identity. Errors name the file and the reason; nothing is changed.
pub fn find(files: &Arc<dyn Files>) -> Result<Found, String> {
    match read_whole(files, IDENTITY) {
        Ok(text) => decode_identity(&text).map_err(|why| format!("{IDENTITY} at byte 0: {why}")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut names = files.list("").map_err(|error| format!("the data directory: {error}"))?;
            names.retain(|name| name != IDENTITY_NEW && name != "lost+found");
            names.sort_unstable();
            match names.iter().find(|name| !name.starts_with('.')) {
                None => Ok(Found::Empty),
                Some(name) if name == "member" => {
                    Err("member: this is a data directory of etcd; importing it is not supported by this version"
                        .into())
                }
                Some(name) => {
                    Err(format!("{name}: the directory holds files, but no {IDENTITY}: not a data directory of kvorum"))
                }
            }
        }
        Err(error) => Err(format!("{IDENTITY} at byte 0: {error}")),
    }
}

fn read_whole(files: &Arc<dyn Files>, name: &str) -> io::Result<Vec<u8>> {
    const MOST: u64 = 4096;
    let file = files.open(name, How::Read)?;
    let len = file.len()?;
    if len > MOST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "damaged: too long"));
    }
    let mut bytes = vec![0; len as usize];
    let got = file.read_at(0, &mut bytes)?;
    bytes.truncate(got);
    Ok(bytes)
}

/// Writes the identity durably: a new file, its flush, the rename, the directory's flush.
pub fn write_identity(files: &Arc<dyn Files>, identity: Identity, ready: bool) -> io::Result<()> {
    let text = encode_identity(identity, ready);
    let file = files.open(IDENTITY_NEW, How::Create)?;
    file.write_at(0, &[text.as_bytes()])?;
    file.sync()?;
    files.rename(IDENTITY_NEW, IDENTITY)?;
    files.sync_dir("")
}

fn encode_identity(identity: Identity, ready: bool) -> String {
    let state = if ready { "ready" } else { "founding" };
    let head = format!(
        "kvorum {FORMAT_LEVEL}\ncluster {:016x}\nmember {:016x}\nstate {state}\n",
        identity.cluster, identity.member
    );
    let sum = first_8(&Sha1::digest(head.as_bytes()));
    format!("{head}sum {sum:016x}\n")
}

fn decode_identity(bytes: &[u8]) -> Result<Found, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "damaged: not text")?;
    let mut lines = text.lines().map(|line| line.split_once(' ').unwrap_or((line, "")));
    let level = match lines.next() {
        Some(("kvorum", level)) => level.parse::<u32>().map_err(|_| "damaged: no format level")?,
        _ => return Err("not an identity file of kvorum".into()),
    };
    if level > FORMAT_LEVEL {
        return Err(format!("written in format level {level}, this program knows up to {FORMAT_LEVEL}"));
    }
    let mut hex = |key: &str| match lines.next() {
        Some((found, value)) if found == key => {
            u64::from_str_radix(value, 16).map_err(|_| format!("damaged: no number of the {key}"))
        }
        _ => Err(format!("damaged: the line of the {key} is missing")),
    };
    let identity = Identity { cluster: hex("cluster")?, member: hex("member")? };
    let found = match lines.next() {
        Some(("state", "ready")) => Found::Ready(identity),
        Some(("state", "founding")) => Found::Founding(identity),
        _ => return Err("damaged: the line of the state is missing".into()),
    };
    if encode_identity(identity, matches!(found, Found::Ready(_))) != text {
        return Err("damaged: the sum does not match".into());
    }
    Ok(found)
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

    #[test]
    fn a_damaged_or_newer_identity_is_named() {
        let identity = Identity { cluster: 1, member: 2 };
        let good = encode_identity(identity, true);
        assert_eq!(decode_identity(good.as_bytes()), Ok(Found::Ready(identity)));
        let founding = encode_identity(identity, false);
        assert_eq!(decode_identity(founding.as_bytes()), Ok(Found::Founding(identity)));
        for at in 0..good.len() {
            let mut bad = good.clone().into_bytes();
            bad[at] ^= 1;
            assert!(decode_identity(&bad).is_err(), "flipped byte {at}");
        }
        let newer = good.replace("kvorum 1", "kvorum 9");
        assert_eq!(
            decode_identity(newer.as_bytes()),
            Err("written in format level 9, this program knows up to 1".into())
        );
    }
}
