//! Members whose logs hold a committed entry that this program does not understand: a later one
//! wrote it, and somebody went back. Their bytes are whole: each refuses and changes nothing, so
//! that the later program starts all of them.

use bytes::Bytes;
use consensus::{Entry, EntryKind, HardState, Position};
use disk::{Fault, Files, Identity, Log, LogOptions, OnDoubt};
use node::{Config, Node, genesis};
use std::sync::Arc;
use store::Member;
use store::command::PutRequest;
use testkit::files::MemFiles;

const CLUSTER: u64 = 0xc1;

/// Field 20099, of which nothing is known here.
const LATER: &[u8] = &[0x9a, 0xe8, 0x09, 0x00];

fn put(key: &str) -> Bytes {
    let mut request = Vec::new();
    PutRequest { key: key.as_bytes(), value: b"v", ..PutRequest::default() }.encode(&mut request);
    Bytes::clone(&store::command::encode_put(&request).expect("well-formed"))
}

/// A member of `members`, founded, whose log goes on with `a`, `b`, the entry, and `c`. All but the
/// last `uncommitted` are committed.
fn member(id: u64, members: &[Member], kind: EntryKind, data: &'static [u8], uncommitted: u64) -> (MemFiles, Config) {
    let files = MemFiles::new();
    let shared: Arc<dyn Files> = files.shared();
    let whose = Identity { cluster: CLUSTER, member: id };
    let mut config = Config::new(CLUSTER, id, 1, 7 + id);
    config.founders = members.to_vec();
    genesis(&shared, whose, &config, members.to_vec()).expect("founds");
    let options = LogOptions { segment_bytes: config.log_segment_bytes, boot: None, salt: config.log_salt };
    let begin = members.len() as u64;
    let state = Some(Position { index: begin, term: 1 });
    let (mut log, _) = Log::recover(shared, whose, options, state, OnDoubt::Keep).expect("opens");
    let all = [
        (EntryKind::Normal, put("a")),
        (EntryKind::Normal, put("b")),
        (kind, Bytes::from_static(data)),
        (EntryKind::Normal, put("c")),
    ];
    let entry = |(index, (kind, data))| Entry { index, term: 2, kind, data };
    let entries: Vec<Entry> = (begin + 1..).zip(all).map(entry).collect();
    log.save(HardState { term: 2, vote: id, commit: begin }, &entries).expect("saves");
    log.close(begin + 4 - uncommitted).expect("stops");
    (files, config)
}

fn members(count: u64) -> Vec<Member> {
    let member =
        |id| Member { id, name: format!("m{id}"), peer_urls: vec![format!("http://m{id}")], client_urls: vec![] };
    (1..=count).map(member).collect()
}

#[test]
fn what_a_later_program_wrote_is_refused_and_nothing_is_changed() {
    for count in [1, 3] {
        for (kind, data) in [(EntryKind::Normal, LATER), (EntryKind::Config, &[0xff, 0xff][..])] {
            let members = members(count);
            for id in 1..=count {
                let (files, config) = member(id, &members, kind, data, 0);
                let before = files.contents();
                let Err(fault) = Node::recover(config, &files.shared(), &mut Vec::new()) else {
                    panic!("member {id} of {count} starts");
                };
                assert!(!fault.is_damage(), "{fault}");
                let text = fault.to_string();
                let entry = format!("entry {} of term 2", count + 3);
                for part in ["log/0000000000000001.log at byte", &entry, "start the later version"] {
                    assert!(text.contains(part), "{part:?} is not in {text:?}");
                }
                assert!(files.contents() == before, "a refusal changes nothing");
            }
        }
    }
}

/// An entry that is not committed may be replaced, and nobody has to understand it before.
#[test]
fn an_entry_that_is_not_committed_does_not_matter() {
    let members = members(3);
    let (files, config) = member(1, &members, EntryKind::Normal, LATER, 2);
    let recovered: Result<_, Fault> = Node::recover(config, &files.shared(), &mut Vec::new());
    let (node, log) = recovered.expect("starts");
    assert_eq!((node.status().revision, log.last().index), (3, 7));
}

/// Bytes that no version writes: a member once let them into the log unread. All pass over them
/// alike.
#[test]
fn what_no_version_writes_is_passed_over_by_all() {
    // A put whose key is longer than the message, a field that nobody has, two commands; a change
    // of nobody, one cut short.
    let normal = [&b"\x22\x03\x0a\x05k"[..], b"\x0a\x01k", b"\x22\x03\x0a\x01k\x22\x03\x0a\x01k"];
    let config = [&b"\x10\x01"[..], b"\x22\x05k"];
    let normal = normal.into_iter().map(|data| (EntryKind::Normal, data));
    for (kind, data) in normal.chain(config.into_iter().map(|data| (EntryKind::Config, data))) {
        let members = members(3);
        let digests = [1, 2, 3].map(|id| {
            let (files, config) = member(id, &members, kind, data, 0);
            let recovered = Node::recover(config, &files.shared(), &mut Vec::new());
            let (node, log) = recovered.unwrap_or_else(|fault| panic!("{kind:?} {data:?}: {fault}"));
            let status = node.status();
            assert_eq!((status.revision, status.applied, log.last().index), (4, 7, 7), "{kind:?} {data:?}");
            status.digest
        });
        assert_eq!(digests, [digests[0]; 3], "all hold the same state");
    }
}
