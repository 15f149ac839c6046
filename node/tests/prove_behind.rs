//! The proof of an idle log goes behind every save that is ready, also one that was made in the
//! middle of a turn.

use consensus::Message;
use disk::{Files, Identity, Log};
use node::frame::Frame;
use node::*;
use std::sync::Arc;
use store::Member;
use testkit::files::MemFiles;

const CLUSTER: u64 = 0xc1;
const APPEND: u8 = 1;
const HEARTBEAT: u8 = 7;
const SNAPSHOT: u8 = 9;

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

fn snapshot(index: u64, term: u64) -> Input {
    let mut tail = 0u32.to_le_bytes().to_vec();
    tail.extend(index.to_le_bytes());
    tail.extend(term.to_le_bytes());
    tail.extend(3u16.to_le_bytes());
    [1u64, 2, 3].iter().for_each(|id| tail.extend(id.to_le_bytes()));
    tail.extend([0, 0, 0, 0, 0, 0]);
    message(SNAPSHOT, [2, 0, 0, 0], &tail)
}

struct World {
    node: Node,
    log: Log,
    files: Arc<dyn Files>,
    jobs: Vec<String>,
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
            if let Output::Job { job, work } = output {
                self.jobs.push(format!("{work:?}"));
                let ran = work::run(&mut self.log, &*self.files, whose, work);
                let work::Ran::Done(result) = ran else { panic!("there is room") };
                self.turn(vec![Input::Done { job, result }]);
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
    let mut world = World { node, log, files, jobs: vec![] };
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
