//! One member, and a leader that it does not know: what it hears of it, and which snapshot it
//! refuses.

use bytes::Bytes;
use consensus::{ConfState, Consensus, HardState, Restored, Snapshot, Turn};
use disk::checkpoint::{IndexFile, Manifest};
use disk::{Files, Identity, Log, PAGE};
use node::frame::Frame;
use node::*;
use std::sync::Arc;
use store::{Member, Position, Store};
use testkit::files::MemFiles;

const CLUSTER: u64 = 0xc1;
const STRANGER: u64 = 9;
/// Where the stranger's log begins and ends.
const AT: u64 = 50;

struct World {
    node: Node,
    files: Arc<dyn Files>,
    log: Log,
    stranger: Consensus,
    /// What the member said besides frames, and the jobs that it began.
    notes: Vec<String>,
    jobs: Vec<String>,
    /// Frames to the stranger.
    sent: usize,
}

impl World {
    /// `conf`: as the stranger knows it.
    fn new(conf: ConfState) -> World {
        let member = |id| Member { id, name: format!("m{id}"), peer_urls: vec![], client_urls: vec![] };
        let files: Arc<dyn Files> = MemFiles::new().shared();
        let config = Config::new(CLUSTER, 1, 1, 7);
        let id = Identity { cluster: CLUSTER, member: 1 };
        genesis(&files, id, &config, vec![member(1), member(2)]).expect("an empty disk");
        let (node, log) = Node::recover(config, &files, &mut Vec::new()).expect("recovers");
        let config = consensus::Config {
            id: STRANGER,
            seed: 1,
            boot: 1,
            election_ticks: 100,
            heartbeat_ticks: 10,
            max_message_bytes: 1 << 20,
            max_uncommitted_bytes: 1 << 20,
            cache_bytes: 1 << 20,
        };
        let restored = Restored {
            doubt: None,
            voters_lost: false,
            hard: HardState { term: 3, vote: 0, commit: AT },
            conf,
            applied: consensus::Position { index: AT, term: 3 },
            entries: vec![],
            boundary: consensus::Position { index: AT, term: 3 },
            terms: vec![],
        };
        let mut stranger = Consensus::new(config, restored);
        stranger.campaign();
        World { node, files, log, stranger, notes: vec![], jobs: vec![], sent: 0 }
    }

    /// `snapshot`: what the stranger offers.
    fn run(&mut self, ticks: u32, snapshot: Option<&Snapshot>) {
        for _ in 0..ticks {
            self.stranger.tick();
            loop {
                let mut turn = Turn::default();
                self.stranger.turn(&mut turn);
                if turn.is_empty() {
                    break;
                }
                if let Some(save) = &turn.save {
                    self.stranger.saved(save.number);
                }
                if let Some(last) = turn.committed.last() {
                    self.stranger.applied(last.index);
                }
                if let (Some(_), Some(snapshot)) = (turn.want_snapshot, snapshot) {
                    self.stranger.offer_snapshot(snapshot.clone());
                }
                for message in turn.messages {
                    if message.to() == 1 {
                        self.input(Input::Frame { from: STRANGER, frame: Frame::Raft(message) });
                    }
                }
            }
        }
    }

    fn input(&mut self, input: Input) {
        let mut out = Vec::new();
        self.node.step(input, &mut out);
        self.node.flush(&mut out);
        for output in out {
            match output {
                Output::Send { to: STRANGER, frame: Frame::Raft(message) } => {
                    self.sent += 1;
                    self.stranger.step(message);
                }
                Output::Note { text, .. } => self.notes.push(text),
                Output::Job { job, work } => self.work(job, work),
                _ => {}
            }
        }
    }

    fn work(&mut self, job: JobId, work: Job) {
        let name = format!("{work:?}");
        self.jobs.push(name.split(|letter: char| !letter.is_alphanumeric()).next().expect("a word").to_string());
        let id = Identity { cluster: CLUSTER, member: 1 };
        let whose = work::Whose { id, config: store::Config { segment_bytes: 1 << 20 } };
        let ran = work::run(&mut self.log, &*self.files, whose, work);
        let work::Ran::Done(result) = ran else { panic!("there is room") };
        self.input(Input::Done { job, result });
    }
}

fn conf(voters: &[u64], learners: &[u64]) -> ConfState {
    ConfState { voters: voters.to_vec(), learners: learners.to_vec() }
}

/// The manifest of a checkpoint at `index`.
fn manifest(index: u64) -> Bytes {
    let member = Member { id: STRANGER, name: "s".into(), peer_urls: vec![], client_urls: vec![] };
    let store = Store::genesis(store::Config { segment_bytes: 1 << 20 }, vec![member], Position { index, term: 3 });
    let index_files = vec![IndexFile { number: index, len: PAGE, crc: 0 }];
    let id = Identity { cluster: CLUSTER, member: STRANGER };
    Manifest { id, index, segments: vec![], index_files, tables: None, head: Bytes::from(store.image_head().encode()) }
        .encode()
}

#[test]
fn a_leader_that_is_not_known_yet_is_heard() {
    let mut world = World::new(conf(&[STRANGER], &[1]));
    world.run(50, None);
    assert_eq!(world.node.status().leader, STRANGER, "a follower learns of its leader's addition from nobody else");
    assert!(world.sent > 0);
}

/// Its addition may be committed and not applied here, and nobody else may be able to lead
/// (`tests/scripts/member_unknown.txt`). While a leader is known it is not heard
/// (`what_a_guest_forwards_is_not_carried_out` in `kvorum/tests/hostile_peers.rs`).
#[test]
fn a_stranger_gets_a_vote_while_nobody_leads() {
    let mut world = World::new(conf(&[1, STRANGER], &[]));
    world.run(500, None);
    assert_eq!(world.node.status().leader, STRANGER);
    assert!(world.sent > 0);
}

#[test]
fn a_snapshot_whose_manifest_is_of_another_index_is_refused_before_anything_is_touched() {
    let offer = |manifest| Snapshot { index: AT, term: 3, conf: conf(&[STRANGER], &[1]), manifest };
    let mut world = World::new(conf(&[STRANGER], &[1]));
    world.run(100, Some(&offer(manifest(AT - 1))));
    assert!(!world.jobs.iter().any(|job| job == "InstallBegin"), "{:?}", world.jobs);
    let told = world.notes.iter().filter(|note| note.contains("gave up the snapshot at 50")).count();
    assert_eq!(told, 1, "{:?}", world.notes);

    let mut world = World::new(conf(&[STRANGER], &[1]));
    world.run(100, Some(&offer(manifest(AT))));
    assert!(world.jobs.iter().any(|job| job == "InstallBegin"), "a right one is begun: {:?}", world.notes);
}
