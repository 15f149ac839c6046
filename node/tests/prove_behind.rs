//! The proof of an idle log, and its restart behind a snapshot, go behind every save that is ready,
//! also one that was made in the middle of a turn.

use consensus::Message;
use disk::{Files, Identity, Log};
use node::frame::Frame;
use node::*;
use std::sync::Arc;
use store::{Member, Position};
use testkit::files::MemFiles;

const CLUSTER: u64 = 0xc1;
const APPEND: u8 = 1;
const HEARTBEAT: u8 = 7;
const SNAPSHOT: u8 = 9;
/// Where the leader has a checkpoint, and this member no log.
const BEYOND: Position = Position { index: 10, term: 2 };

fn message(kind: u8, numbers: [u64; 4], tail: &[u8]) -> Input {
    let [term, log_term, index, commit] = numbers;
    let mut out = vec![1, kind, 0, u8::from(kind == SNAPSHOT)];
    for n in [1, 2, term, log_term, index, commit, 0, 0] {
        out.extend(n.to_le_bytes());
    }
    out.extend([0, 0]);
    out.extend_from_slice(if tail.is_empty() { &[0; 4] } else { tail });
    Input::Frame { from: 2, frame: Frame::Raft(Message::decode(out.into()).expect("well-formed")) }
}

/// Entries without data.
fn append(at: (u64, u64), commit: u64, terms: &[u64]) -> Input {
    let mut tail = u32::try_from(terms.len()).expect("few").to_le_bytes().to_vec();
    for of in terms {
        tail.extend(of.to_le_bytes());
        tail.extend([0, 0, 0, 0, 0]);
    }
    message(APPEND, [2, at.1, at.0, commit], &tail)
}

/// An old one, which is not needed.
fn snapshot(index: u64, term: u64) -> Input {
    offer(2, Position { index, term }, &[])
}

fn offer(leads: u64, Position { index, term }: Position, manifest: &[u8]) -> Input {
    let mut tail = 0u32.to_le_bytes().to_vec();
    tail.extend(index.to_le_bytes());
    tail.extend(term.to_le_bytes());
    tail.extend(3u16.to_le_bytes());
    [1u64, 2, 3].iter().for_each(|id| tail.extend(id.to_le_bytes()));
    tail.extend([0, 0]);
    tail.extend((manifest.len() as u32).to_le_bytes());
    tail.extend(manifest);
    message(SNAPSHOT, [leads, 0, 0, 0], &tail)
}

struct World {
    node: Node,
    log: Log,
    files: Arc<dyn Files>,
    jobs: Vec<String>,
    /// The files of the leader.
    others: MemFiles,
    /// What the leader would answer, and what a disk that is slow has not said yet.
    coming: Vec<Input>,
}

impl World {
    fn proves(&self) -> bool {
        self.jobs.iter().any(|job| job.contains("Prove"))
    }

    /// All of these arrive before the next turn.
    fn turn(&mut self, inputs: Vec<Input>) {
        let mut out = Vec::new();
        inputs.into_iter().for_each(|input| self.node.step(input, &mut out));
        self.node.flush(&mut out);
        let whose = work::Whose {
            id: Identity { cluster: CLUSTER, member: 1 },
            config: store::Config { segment_bytes: 1 << 20 },
        };
        for output in out {
            match output {
                Output::Job { job, work } => {
                    self.jobs.push(format!("{work:?}"));
                    let last = matches!(work, Job::Background(BackgroundJob::InstallFinish { .. }));
                    let ran = work::run(&mut self.log, &*self.files, whose, work);
                    let work::Ran::Done(result) = ran else { panic!("there is room") };
                    let done = Input::Done { job, result };
                    if last { self.coming.push(done) } else { self.turn(vec![done]) }
                }
                Output::Send { frame: Frame::ChunkRequest { boot, token, file, offset, len, .. }, .. } => {
                    let read = disk::transfer::read_chunk(&self.others, &file, offset, len);
                    let (bytes, end) = read.expect("it is there");
                    let frame = Frame::Chunk { boot, token, ok: true, end, bytes };
                    self.turn(vec![Input::Frame { from: 2, frame }]);
                }
                _ => {}
            }
        }
    }
}

/// A member that has saved something, in the turn before the tick that proves its log.
fn almost_idle() -> World {
    let member = |id| Member { id, name: format!("m{id}"), peer_urls: vec![], client_urls: vec![] };
    let files: Arc<dyn Files> = MemFiles::new().shared();
    let config = Config::new(CLUSTER, 1, 1, 7);
    let id = Identity { cluster: CLUSTER, member: 1 };
    genesis(&files, id, &config, vec![member(1), member(2), member(3)]).expect("an empty disk");
    let (node, log) = Node::recover(config, &files, &mut Vec::new()).expect("recovers");
    let others = MemFiles::new();
    let state = store::Store::genesis(store::Config::default(), vec![member(1), member(2), member(3)], BEYOND);
    let theirs = Identity { cluster: CLUSTER, member: 2 };
    disk::checkpoint::genesis(&others, theirs, BEYOND.index, &state.image_head()).expect("an empty disk");
    let mut world = World { node, log, files, jobs: vec![], others, coming: vec![] };
    world.turn(vec![append((3, 1), 3, &[2, 2])]);
    (1..20).for_each(|_| world.turn(vec![Input::Tick]));
    assert!(!world.proves(), "{:?}", world.jobs);
    world.jobs.clear();
    world
}

#[test]
fn a_log_is_proven_when_it_is_idle() {
    let mut world = almost_idle();
    world.turn(vec![Input::Tick]);
    assert!(world.proves(), "{:?}", world.jobs);
}

/// In one turn: an append, a snapshot that is not needed, whose answer goes behind a save, a
/// heartbeat with a newer commit index, and the tick.
#[test]
fn a_proof_overtakes_no_save_of_its_turn() {
    let mut world = almost_idle();
    world.turn(vec![append((5, 2), 3, &[2]), snapshot(3, 1), message(HEARTBEAT, [2, 0, 0, 5], &[]), Input::Tick]);
    assert!(world.jobs[0].starts_with("Save") && !world.proves(), "{:?}", world.jobs);
    assert_eq!(world.log.hard().commit, 3, "the save is of the moment before the heartbeat");
    (0..20).for_each(|_| world.turn(vec![Input::Tick]));
    assert!(world.proves() && world.log.hard().commit == 5, "{:?}", world.jobs);
}

/// A snapshot was put in place, and the files say so in the turn in which the term goes up twice.
/// The answer to another snapshot, in between, goes behind a save of the first of these terms.
#[test]
fn a_restart_overtakes_no_save_of_its_turn() {
    let mut world = almost_idle();
    let manifest = world.others.bytes(&format!("state/manifest-{:016x}", BEYOND.index));
    world.turn(vec![offer(2, BEYOND, &manifest)]);
    let in_place = world.coming.pop().expect("all pieces came");
    let beats = |term| message(HEARTBEAT, [term, 0, 0, 0], &[]);
    let old = offer(3, Position { index: 3, term: 1 }, &[]);
    world.turn(vec![beats(3), old, beats(4), in_place]);
    assert_eq!((world.log.hard().term, world.log.boundary().index), (4, BEYOND.index), "{:?}", world.jobs);
}
