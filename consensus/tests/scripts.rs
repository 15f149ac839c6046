//! Scripts of a small cluster, `tests/scripts/*.txt`: commands, and what they must print. Each
//! script's name is its claim.

mod cluster;

use bytes::Bytes;
use cluster::Cluster;
use consensus::{ConfChange, ConfChangeKind, Consensus, Doubt, Position};
use testkit::golden;

fn run(script: &str) -> String {
    let mut cluster = Cluster::new(1, &[]);
    golden::lines(script, |line| {
        cluster.trace.clear();
        command(&mut cluster, line);
        cluster.trace.join("\n")
    })
}

fn command(cluster: &mut Cluster, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    match words[0] {
        "cluster" => {
            let voters: Vec<u64> = (1..words.len()).map(number).collect();
            *cluster = Cluster::new(1, &voters);
        }
        "saves" => cluster.auto_save = words[1] == "auto",
        "cache" => cluster.cache_bytes = number(1),
        "join" => cluster.join(number(1)),
        "tick" => {
            for _ in 0..words.get(2).map_or(1, |_| number(2)) {
                cluster.call(number(1), Consensus::tick);
            }
        }
        // away MEMBER TICKS: it does not live through them.
        "away" => {
            let ticks = number(2);
            cluster.call(number(1), |consensus| consensus.was_away(ticks));
        }
        // gone MEMBER LEADER: the port of the leader refuses connections.
        "gone" => {
            let leader = number(2);
            cluster.call(number(1), |consensus| consensus.leader_gone(leader));
        }
        "campaign" => {
            cluster.call(number(1), Consensus::campaign);
        }
        "propose" => {
            let data = Bytes::from(words[2].to_string());
            say(cluster, number(1), |consensus| consensus.propose(data));
        }
        "change" => {
            let kind = match words[2] {
                "voter" => ConfChangeKind::AddVoter,
                "learner" => ConfChangeKind::AddLearner,
                "remove" => ConfChangeKind::Remove,
                _ => ConfChangeKind::Update,
            };
            let change = ConfChange { kind, member: number(3), context: Bytes::new() };
            say(cluster, number(1), |consensus| consensus.propose_change(&change));
        }
        "transfer" => say(cluster, number(1), |consensus| consensus.transfer(number(2))),
        "read" => cluster.read(number(1)),
        "save" => cluster.save(number(1)),
        "crash" => cluster.crash(number(1)),
        "restart" => cluster.restart(number(1)),
        "compact" => cluster.compact(number(1)),
        "install" => cluster.install(number(1)),
        "abandon" => cluster.abandon(number(1)),
        "fetch" => cluster.fetch(number(1)),
        "stepdown" => {
            cluster.call(number(1), Consensus::step_down);
        }
        // unreachable MEMBER PEER: the connection broke.
        "unreachable" => {
            let peer = number(2);
            cluster.call(number(1), |consensus| consensus.unreachable(peer));
        }
        // ask MEMBER PEER; lose MEMBER INDEX PROMISE: the tail above INDEX; it knows to have
        // promised PROMISE, an index of its term, or (0) neither that nor its vote. With `torn`:
        // its disk shows a write that never finished.
        "ask" => cluster.ask(number(1), number(2)),
        "lose" => lose(cluster, number(1), number(2), number(3), words.get(4) == Some(&"torn")),
        "forget" => forget(cluster, number(1), number(2)),
        "settle" => cluster.settle(),
        "quietly" => {
            command(cluster, &words[1..].join(" "));
            cluster.trace.clear();
        }
        // deliver FROM TO: everything in flight on that way, 0 = any.
        "deliver" => take(cluster, number(1), number(2), true),
        "drop" => take(cluster, number(1), number(2), false),
        "status" => {
            let status = cluster.status(number(1));
            cluster.say(format!("{status:?}"));
        }
        other => panic!("unknown command {other}"),
    }
}

fn say<T: std::fmt::Debug>(cluster: &mut Cluster, id: u64, body: impl FnOnce(&mut Consensus) -> T) {
    let at = cluster.trace.len();
    let result = cluster.call(id, body);
    cluster.trace.insert(at, format!("{id} answers {result:?}"));
}

/// The disk of a crashed member loses what lies above `index`, and knows it.
fn lose(cluster: &mut Cluster, id: u64, index: u64, promise: u64, torn: bool) {
    let hard = &mut cluster.member(id).disk.hard;
    let term = hard.term;
    if promise == 0 {
        hard.vote = 0;
    }
    let promised = Some(Position { index: promise, term }).filter(|_| promise > 0);
    cluster.lose_tail(id, index, Some(Doubt { promise: promised, vote: promise == 0, sure: false, torn }));
}

/// The disk of a crashed member loses everything above `index`, and forgets that it was committed.
fn forget(cluster: &mut Cluster, id: u64, index: u64) {
    let disk = &mut cluster.member(id).disk;
    disk.entries.retain(|entry| entry.index <= index);
    disk.hard.commit = disk.hard.commit.min(index);
}

fn take(cluster: &mut Cluster, from: u64, to: u64, deliver: bool) {
    let matches = |m: &consensus::Message| (from == 0 || m.from() == from) && (to == 0 || m.to() == to);
    let (taken, left): (Vec<_>, Vec<_>) = cluster.network.drain(..).partition(matches);
    cluster.network = left;
    for message in taken {
        if deliver {
            let to = message.to();
            cluster.call(to, |consensus| consensus.step(message));
        }
    }
}

#[test]
fn scripts_print_what_they_claim() {
    golden::folder(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts"), run);
}
