//! Whose data directory this is: the file `identity`, and the ids as etcd computes them.
//!
//! The file is written before the first other file (as *founding*) and again behind the last
//! (as *ready*). So a crash while founding is founded again, and a directory whose identity is
//! missing is never overwritten.

use crate::{Files, How, Identity, LEVEL, checkpoint};
use sha1::{Digest, Sha1};
use std::{fmt, io};

/// Its name in the data directory.
pub const FILE: &str = "identity";
const FILE_NEW: &str = "identity.new";

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

/// What the data directory says about itself.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    Empty,
    /// A crash while founding: nothing was ever acknowledged.
    Founding(Identity),
    Ready(Identity),
}

/// Why a directory does not say whose it is. Its text names the file and the reason.
#[derive(Debug)]
pub enum Unknown {
    /// The directory cannot be listed.
    Unlisted(io::Error),
    /// The identity cannot be read.
    Unread(io::Error),
    /// Its bytes are not those that were written.
    Damaged(String),
    /// It begins like no identity of kvorum.
    NoIdentity,
    /// It was written in this format level, by a later program.
    TooNew(u32),
    /// There is none, and the directory is etcd's.
    Etcds,
    /// There is none, but a file of this name.
    Missing(String),
}

impl Unknown {
    /// True: bytes were read, and they are wrong.
    pub fn is_damage(&self) -> bool {
        matches!(self, Unknown::Damaged(_))
    }

    /// What is wrong with the file, without its name; the whole text if the file is not there.
    pub fn what(&self) -> String {
        match self {
            Unknown::Unread(error) => error.to_string(),
            Unknown::Damaged(what) => what.clone(),
            Unknown::NoIdentity => "not an identity file of kvorum".into(),
            Unknown::TooNew(level) => format!("written in format level {level}, this program knows up to {LEVEL}"),
            Unknown::Unlisted(_) | Unknown::Etcds | Unknown::Missing(_) => self.to_string(),
        }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unknown::Unlisted(error) => write!(f, "the data directory: {error}"),
            Unknown::Damaged(what) => write!(f, "{FILE} at byte 0: damaged: {what}"),
            Unknown::Unread(_) | Unknown::NoIdentity | Unknown::TooNew(_) => {
                write!(f, "{FILE} at byte 0: {}", self.what())
            }
            Unknown::Etcds => f.write_str(
                "member: this is a data directory of etcd; bring its data over with \
                 `kvorum utl snapshot restore --skip-hash-check member/snap/db --data-dir NEW`",
            ),
            Unknown::Missing(name) => {
                write!(f, "{name}: the directory holds files, but no {FILE}: not a data directory of kvorum")
            }
        }
    }
}

impl std::error::Error for Unknown {}

/// Reads the identity; nothing is changed.
///
/// # Errors
/// Nothing says whose the directory is, or what says it cannot be believed.
pub fn find(files: &dyn Files) -> Result<Found, Unknown> {
    match read_whole(files, FILE) {
        Ok(Some(text)) => decode(&text),
        Ok(None) => Err(Unknown::Damaged("too long".into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut names = files.list("").map_err(Unknown::Unlisted)?;
            names.retain(|name| name != FILE_NEW && name != "lost+found");
            names.sort_unstable();
            match names.iter().find(|name| !name.starts_with('.')) {
                None => Ok(Found::Empty),
                Some(name) if name == "member" => Err(Unknown::Etcds),
                Some(name) => Err(Unknown::Missing(name.clone())),
            }
        }
        Err(error) => Err(Unknown::Unread(error)),
    }
}

/// What the other files of a directory agree on, for one whose identity is damaged or missing:
/// every manifest that can be read, and one at least. None: nothing says it, or they differ, or the
/// identity was written by a later format.
pub fn from_other_files(files: &dyn Files) -> Option<Identity> {
    let text = read_whole(files, FILE).ok().flatten();
    if text.is_some_and(|text| matches!(decode(&text), Err(Unknown::TooNew(_)))) {
        return None;
    }
    let mut found = None;
    for index in checkpoint::manifests(files).ok()? {
        let path = crate::manifest::manifest_path(index);
        match checkpoint::Manifest::read_unchecked(files, &path) {
            Ok(manifest) if found.is_none_or(|id| id == manifest.id) => found = Some(manifest.id),
            Err(fault) if fault.is_damage() => {}
            _ => return None,
        }
    }
    found
}

/// None: it is longer than an identity can be.
fn read_whole(files: &dyn Files, name: &str) -> io::Result<Option<Vec<u8>>> {
    const MOST: u64 = 4096;
    let file = files.open(name, How::Read)?;
    let len = file.len()?;
    if len > MOST {
        return Ok(None);
    }
    let mut bytes = vec![0; len as usize];
    let got = file.read_at(0, &mut bytes)?;
    bytes.truncate(got);
    Ok(Some(bytes))
}

/// Writes the identity durably: a new file, its flush, the rename, the directory's flush.
pub fn write(files: &dyn Files, identity: Identity, ready: bool) -> io::Result<()> {
    let text = encode(identity, ready);
    let file = files.open(FILE_NEW, How::Create)?;
    file.write_at(0, &[text.as_bytes()])?;
    file.sync()?;
    files.rename(FILE_NEW, FILE)?;
    files.sync_dir("")
}

fn encode(identity: Identity, ready: bool) -> String {
    let state = if ready { "ready" } else { "founding" };
    let head =
        format!("kvorum {LEVEL}\ncluster {:016x}\nmember {:016x}\nstate {state}\n", identity.cluster, identity.member);
    let sum = first_8(&Sha1::digest(head.as_bytes()));
    format!("{head}sum {sum:016x}\n")
}

fn decode(bytes: &[u8]) -> Result<Found, Unknown> {
    let damaged = |what: &str| Unknown::Damaged(what.into());
    let text = std::str::from_utf8(bytes).map_err(|_| damaged("not text"))?;
    let mut lines = text.lines().map(|line| line.split_once(' ').unwrap_or((line, "")));
    let level = match lines.next() {
        Some(("kvorum", level)) => level.parse::<u32>().map_err(|_| damaged("no format level"))?,
        _ => return Err(Unknown::NoIdentity),
    };
    if level > LEVEL {
        return Err(Unknown::TooNew(level));
    }
    let mut hex = |key: &str| match lines.next() {
        Some((found, value)) if found == key => {
            u64::from_str_radix(value, 16).map_err(|_| damaged(&format!("no number of the {key}")))
        }
        _ => Err(damaged(&format!("the line of the {key} is missing"))),
    };
    let identity = Identity { cluster: hex("cluster")?, member: hex("member")? };
    let found = match lines.next() {
        Some(("state", "ready")) => Found::Ready(identity),
        Some(("state", "founding")) => Found::Founding(identity),
        _ => return Err(damaged("the line of the state is missing")),
    };
    if encode(identity, matches!(found, Found::Ready(_))) != text {
        return Err(damaged("the sum does not match"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_etcds() {
        // Written down from a real etcd 3.7.3 and its defaults.
        let member = member_id(&["http://localhost:2380".to_string()], "etcd-cluster");
        assert_eq!((member, cluster_id(&[member])), (0x8e9e_05c5_2164_694d, 0xcdf8_1819_4e3a_8c32));
    }

    #[test]
    fn a_damaged_or_newer_identity_is_named() {
        let identity = Identity { cluster: 1, member: 2 };
        let good = encode(identity, true);
        assert_eq!(decode(good.as_bytes()).expect("good"), Found::Ready(identity));
        let founding = encode(identity, false);
        assert_eq!(decode(founding.as_bytes()).expect("good"), Found::Founding(identity));
        for at in 0..good.len() {
            let mut bad = good.clone().into_bytes();
            bad[at] ^= 1;
            assert!(decode(&bad).is_err(), "flipped byte {at}");
        }
        let newer = good.replace("kvorum 1", "kvorum 9");
        let text = "identity at byte 0: written in format level 9, this program knows up to 1";
        assert_eq!(decode(newer.as_bytes()).expect_err("newer").to_string(), text);
    }
}
