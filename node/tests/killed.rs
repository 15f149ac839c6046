//! A process that is killed leaves names which the next one sees, and which are not on the disk
//! yet. What a start relies on it flushes first: a power loss behind it takes none of these names
//! away.

use disk::identity::{self, Found};
use disk::{Files, Identity};
use node::*;
use std::io::ErrorKind;
use std::sync::Arc;
use store::Member;
use testkit::files::{Kept, MemFiles};

const ID: Identity = Identity { cluster: 0xc1, member: 1 };

fn config() -> Config {
    let small =
        Config { segment_bytes: 32 << 10, log_segment_bytes: 32 << 10, ..Config::new(ID.cluster, ID.member, 1, 7) };
    Config { founders: founders(), ..small }
}

fn founders() -> Vec<Member> {
    let founder = |id| Member { id, name: format!("m{id}"), peer_urls: vec![], client_urls: vec![] };
    [1, 2, 3].map(founder).into()
}

/// A member that was founded, but for its identity.
fn founded() -> MemFiles {
    let files = MemFiles::new();
    let shared: Arc<dyn Files> = files.shared();
    shared.make_dir("").expect("makes");
    identity::write(&*shared, ID, false).expect("an empty disk");
    genesis(&shared, ID, &config(), founders()).expect("an empty disk");
    files
}

fn start(files: &MemFiles) -> Result<(), disk::Fault> {
    Node::recover(config(), &files.shared(), &mut Vec::new()).map(drop)
}

#[test]
fn the_identity_of_a_founder_that_was_killed_is_flushed_at_its_next_start() {
    let mut seen = 0;
    for calls in 0.. {
        let files = founded();
        files.fail_after(calls, ErrorKind::Other);
        let written = identity::write(&files, ID, true);
        files.heal();
        if matches!(identity::find(&files), Ok(Found::Ready(_))) {
            seen += 1;
            start(&files).expect("starts");
            let crashed = files.crash(files.calls(), Kept::Nothing);
            assert!(matches!(identity::find(&crashed), Ok(Found::Ready(_))), "killed after call {calls}");
        }
        if written.is_ok() {
            break;
        }
    }
    assert!(seen >= 2, "the name is seen before it is flushed: {seen}");
}

#[test]
fn a_member_that_starts_over_is_killed_at_any_call_and_then_the_power_goes() {
    let mut killed = 0;
    for calls in 0.. {
        let files = founded();
        identity::write(&files, ID, true).expect("writes");
        let state: Vec<String> = files.files().into_iter().filter(|path| path.starts_with("state/manifest")).collect();
        state.iter().for_each(|path| Files::remove(&files, path).expect("there"));
        files.sync_dir("state").expect("flushes");
        files.fail_after(calls, ErrorKind::Other);
        let first = start(&files);
        files.heal();
        start(&files).unwrap_or_else(|fault| panic!("killed after call {calls}: {fault}"));
        let crashed = files.crash(files.calls(), Kept::Nothing);
        start(&crashed).unwrap_or_else(|fault| panic!("killed after call {calls}, then the power went: {fault}"));
        let rebuilt = disk::startover::rebuilt(&crashed, ID).expect("reads");
        // It counts behind the deed, so a kill in between leaves one uncounted, and none counts
        // twice.
        assert!(rebuilt.damaged <= 1, "killed after call {calls}: {rebuilt:?}");
        let doubt = disk::doubt::find(&crashed, ID).expect("reads");
        assert_eq!(doubt, None, "killed after call {calls}: its log is whole, and it lost nothing of it");
        if first.is_ok() {
            break;
        }
        killed += 1;
    }
    assert!(killed > 20, "{killed}");
}

/// Only the leader's state ends it, and only that counts.
#[test]
fn a_member_that_differs_and_is_killed_knows_that_it_does() {
    for calls in 0.. {
        let files = founded();
        identity::write(&files, ID, true).expect("writes");
        disk::corrupt::mark(&files, ID).expect("marks");
        files.fail_after(calls, ErrorKind::StorageFull);
        let first = start(&files);
        files.heal();
        start(&files).unwrap_or_else(|fault| panic!("killed after call {calls}: {fault}"));
        assert!(
            disk::corrupt::marked(&files, ID).expect("reads"),
            "killed after call {calls}: it serves a wrong state"
        );
        let rebuilt = disk::startover::rebuilt(&files, ID).expect("reads");
        assert_eq!(rebuilt.differs, 0, "killed after call {calls}");
        if first.is_ok() {
            break;
        }
    }
}

/// Who founds again finds what the killed process left, and relies on names of it.
#[test]
fn a_founding_that_is_done_again_is_durable() {
    for calls in 0.. {
        let files = MemFiles::new();
        let shared: Arc<dyn Files> = files.shared();
        shared.make_dir("").expect("makes");
        identity::write(&*shared, ID, false).expect("an empty disk");
        files.fail_after(calls, ErrorKind::Other);
        let founded = genesis(&shared, ID, &config(), founders());
        files.heal();
        genesis(&shared, ID, &config(), founders()).expect("founds again");
        identity::write(&*shared, ID, true).expect("writes");
        let crashed = files.crash(files.calls(), Kept::Nothing);
        let mut said = Vec::new();
        Node::recover(config(), &crashed.shared(), &mut said).expect("starts");
        let anew = said.iter().find(|said| format!("{said:?}").contains("starts over"));
        assert!(anew.is_none(), "killed after call {calls}: {anew:?}");
        if founded.is_ok() {
            break;
        }
    }
}
