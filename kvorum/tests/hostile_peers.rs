//! A peer port under attack: what one member or a stranger says must harm no other.

#[path = "live/mod.rs"]
mod live;

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use client::Client;
use live::peers::{Cluster, Line, forward, raft};
use live::{Alone, Member, PATIENCE, Spec, block_on, client_of, http};

const TIMES: [&str; 2] = ["--heartbeat-interval=50", "--election-timeout=500"];

struct Three {
    // Dropped in this order.
    members: Vec<Member>,
    cluster: Cluster,
    _dir: tempfile::TempDir,
}

impl Three {
    fn start() -> Three {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut members: Vec<Member> = Spec::cluster(dir.path(), 3, &TIMES).into_iter().map(Member::spawn).collect();
        members.iter_mut().for_each(Member::ready);
        let cluster = Cluster::of(&members[0]);
        Three { members, cluster, _dir: dir }
    }

    fn all(&self) -> Client {
        client_of(&self.members)
    }

    /// Who leads, and in which term.
    async fn leader(&self) -> (usize, u64) {
        let until = Instant::now() + PATIENCE;
        loop {
            for (at, member) in self.members.iter().enumerate() {
                let Ok(status) = client_of([member]).status().await else { continue };
                if status.leader != 0 && status.leader == status.header.unwrap_or_default().member_id {
                    return (at, status.raft_term);
                }
            }
            assert!(Instant::now() < until, "somebody leads");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn all_live(&mut self) {
        for member in &mut self.members {
            assert_eq!(member.ended(), None, "{} lives", member.spec.name);
        }
    }

    async fn puts_go_on(&self, name: &str) {
        for n in 0..20 {
            self.all().put(format!("{name}/{n}"), "x").await.expect("puts go on");
        }
    }
}

fn metric(member: &Member, name: &str) -> i64 {
    let page = http::get(member.spec.client_port, "/metrics").unwrap().body;
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is shown")).parse::<f64>().unwrap() as i64
}

/// Bytes of anonymous memory of a process.
fn anonymous(member: &Member) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", member.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<i64>().unwrap() * 1024
}

#[test]
fn a_forward_that_is_no_command_is_refused_and_ends_nobody() {
    let mut three = Three::start();
    block_on(async {
        three.puts_go_on("before").await;
        let (leader, term) = three.leader().await;
        let from = three.members[(leader + 1) % 3].spec.name.clone();
        let mut line = Line::hello(&three.members[leader], &three.cluster, &from).expect("a member is let in");
        // A put whose key is longer than the message, a text that is none, two commands, a field
        // that nobody has, one that a later version may have, no command at all.
        let bodies: [&[u8]; 6] = [
            b"\x22\x03\x0a\x05k",
            b"\xaa\x51\x03\x0a\x01\xff",
            b"\x22\x03\x0a\x01k\x22\x03\x0a\x01k",
            b"\x0a\x01k",
            b"\x9a\xe8\x09\x00",
            b"",
        ];
        for (seq, body) in (1..).zip(bodies) {
            line.send(&forward(term, seq, body)).expect("sent");
        }
        // A whole one behind them is taken.
        line.send(&forward(term, 7, b"\x22\x0c\x0a\x07forward\x12\x01v")).expect("sent");
        let until = Instant::now() + PATIENCE;
        while three.all().get("forward").await.expect("reads go on").is_none() {
            assert!(Instant::now() < until, "a whole command is carried out");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        three.puts_go_on("after").await;
        assert_eq!(metric(&three.members[leader], "kvorum_peer_refused_total{what=\"command\"}"), 6);
        let log = three.members[leader].log();
        assert_eq!(log.matches("refused a command that member").count(), 1, "one line: {log}");
    });
    three.all_live();
    for member in &mut three.members {
        member.kill();
        member.respawn();
    }
    three.members.iter_mut().for_each(Member::ready);
    block_on(three.puts_go_on("again"));
}

/// Kinds on the wire: append, its answer, vote, pre-vote, heartbeat.
const APPEND: u8 = 1;
const APPEND_ANSWER: u8 = 2;
const VOTE: u8 = 3;
const HEARTBEAT: u8 = 7;

#[test]
fn a_term_close_to_the_end_does_not_end_elections() {
    let mut three = Three::start();
    block_on(async {
        three.puts_go_on("before").await;
        let (leader, term) = three.leader().await;
        let huge = 1 << 62;
        for at in 0..3 {
            let from = three.members[(at + 1) % 3].spec.name.clone();
            let (to, by) = (three.cluster.member(&three.members[at].spec.name), three.cluster.member(&from));
            let mut line = Line::hello(&three.members[at], &three.cluster, &from).expect("a member is let in");
            for kind in [APPEND, APPEND_ANSWER, VOTE, HEARTBEAT] {
                line.send(&raft(kind, to, by, [huge, 1, 1, 1])).expect("sent");
                line.send(&raft(kind, to, by, [term, 1, huge, huge])).expect("sent");
            }
        }
        three.puts_go_on("after").await;
        let name = "kvorum_peer_refused_total{what=\"numbers\"}";
        assert!(metric(&three.members[leader], name) >= 4, "{}", metric(&three.members[leader], name));
    });
    three.all_live();
    // Whoever leads goes: another can be elected, and the one that comes back is heard.
    let (leader, _) = block_on(three.leader());
    three.members[leader].kill();
    block_on(three.puts_go_on("without"));
    three.members[leader].respawn();
    three.members[leader].ready();
    block_on(three.puts_go_on("again"));
    let (_, term) = block_on(three.leader());
    assert!(term < 1 << 40, "nobody took the huge term: {term}");
}

#[test]
fn a_plausible_forged_term_costs_one_election() {
    let mut three = Three::start();
    block_on(async {
        let (_, term) = three.leader().await;
        let from = three.members[1].spec.name.clone();
        let (to, by) = (three.cluster.member(&three.members[0].spec.name), three.cluster.member(&from));
        let mut line = Line::hello(&three.members[0], &three.cluster, &from).expect("a member is let in");
        line.send(&raft(HEARTBEAT, to, by, [term + (1 << 30), 0, 0, 0])).expect("sent");
        three.puts_go_on("after").await;
    });
    three.all_live();
}

#[test]
fn announced_lengths_cost_nothing_and_wrong_checksums_close_the_line() {
    let three = Three::start();
    let before = anonymous(&three.members[0]);
    let from = three.members[1].spec.name.clone();
    let mut lines = Vec::new();
    for _ in 0..64 {
        // Some are refused: a member has so many places.
        let Ok(mut line) = Line::hello(&three.members[0], &three.cluster, &from) else { continue };
        let mut head = (6_u32 << 20).to_le_bytes().to_vec();
        head.extend(0_u32.to_le_bytes());
        head.extend([0, 2]);
        let _ = line.socket.write_all(&head);
        lines.push(line);
    }
    std::thread::sleep(Duration::from_millis(500));
    let grown = anonymous(&three.members[0]) - before;
    println!("{} lines, grown by {grown}", lines.len());
    assert!(grown < 16 << 20, "{grown}");
    drop(lines);
    let mut line = Line::hello(&three.members[0], &three.cluster, &from).expect("a place is free again");
    let mut frame = live::peers::whole(&[6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    *frame.last_mut().unwrap() ^= 1;
    line.socket.write_all(&frame).expect("sent");
    let mut byte = [0];
    assert!(!matches!(std::io::Read::read(&mut line.socket, &mut byte), Ok(1)), "it is closed");
    let until = Instant::now() + PATIENCE;
    while !three.members[0].log().contains("checksum") {
        assert!(Instant::now() < until, "it is told: {}", three.members[0].log());
        std::thread::sleep(Duration::from_millis(20));
    }
    block_on(three.puts_go_on("after"));
}

#[test]
fn another_level_of_frames_is_refused_with_the_reason() {
    let three = Three::start();
    for (level, text) in [(1, "lower than ours"), (99, "higher than ours")] {
        let from = three.members[1].spec.name.clone();
        let Err(error) = Line::at_level(&three.members[0], &three.cluster, &from, level) else {
            panic!("level {level} is refused")
        };
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn silent_strangers_keep_no_member_out() {
    let mut three = Three::start();
    three.members[0].kill();
    // Nothing is said on half of them; the others ask and read nothing. Whoever leads is among
    // those on whose ports they stand.
    let port = three.members[1].spec.peer_port;
    let mut strangers: Vec<TcpStream> = Vec::new();
    for n in 0..1_200 {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", three.members[1 + n % 2].spec.peer_port)) else {
            continue;
        };
        if n % 4 < 2 {
            let _ = stream.write_all(&b"GET /members HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100));
        }
        strangers.push(stream);
    }
    let begin = Instant::now();
    three.members[0].respawn();
    three.members[0].ready();
    let took = begin.elapsed();
    println!("serves again after {took:?} beside {} strangers", strangers.len());
    assert!(took < Duration::from_secs(4), "{took:?}");
    block_on(three.puts_go_on("after"));
    // It hears the member on whose port they stand, too.
    let begin = Instant::now();
    while http::get(port, "/version").is_err() {
        assert!(begin.elapsed() < PATIENCE, "strangers are closed in the end");
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("{port} answers another stranger after {:?}", begin.elapsed());
    assert!(metric(&three.members[1], "kvorum_peer_connections_refused_total") > 0);
    assert!(three.members[1].log().contains("too many connections on the peer port"), "told");
}

#[test]
fn a_lone_members_peer_port_survives_garbage() {
    let mut own = Alone::new(&[]);
    for n in 0..200_u32 {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", own.member.spec.peer_port)) else { continue };
        let noise: Vec<u8> = (0..400).map(|k| (n.wrapping_mul(2_654_435_761).rotate_left(k % 31) >> 7) as u8).collect();
        let _ = stream.write_all(if n % 2 == 0 { &noise } else { b"\xf5kvorum\n\xff\xff\x00" });
    }
    block_on(async { own.client().put("a", "b").await.expect("puts go on") });
    assert_eq!(own.member.ended(), None);
}

/// Whoever is no member is a guest if it says where it is called. Guests are few, and what they say
/// is nothing that a member would heed.
#[test]
fn guests_are_few_and_are_not_believed() {
    let mut three = Three::start();
    let cluster = three.cluster.clone();
    let to = &three.members[0];
    let url = "http://127.0.0.1:9";
    let mut guests: Vec<Line> = (1..=16).map(|id| Line::called_at(to, &cluster, id, url).expect("a guest")).collect();
    let full = Line::called_at(to, &cluster, 17, url).err().expect("one too many").to_string();
    assert!(full.contains("16 members that are not known here yet"), "{full}");
    // A vote for itself, in a later term.
    for guest in &mut guests {
        let _ = guest.send(&raft(4, cluster.member(&to.spec.name), 1, [1 << 20, 1, 9, 9]));
    }
    guests.pop();
    let until = Instant::now() + PATIENCE;
    while let Err(error) = Line::called_at(to, &cluster, 17, url) {
        assert!(Instant::now() < until, "{error}");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(guests);
    block_on(three.puts_go_on("guests"));
    three.all_live();
}

/// Whoever is dialled can say what he likes: one address says to everybody that they were removed.
#[test]
fn one_address_does_not_end_the_members_that_dial_it() {
    let mut three = Three::start();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            // Magic, length, level, code 3.
            let _ = stream.write_all(b"\xf5kvorum\n\x05\x00\x02\x00\x00\x00\x03");
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    // As a guest, which is dialled back.
    let cluster = three.cluster.clone();
    let guest = Line::called_at(&three.members[0], &cluster, 77, &url).expect("a guest");
    block_on(async {
        let until = Instant::now() + PATIENCE;
        let added = loop {
            match three.all().member_add(vec![url.clone()], true).await {
                Ok(added) => break added,
                // On a busy machine the voters are heard with gaps.
                Err(error) => assert!(error.says("unhealthy cluster") && Instant::now() < until, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        tokio::time::sleep(Duration::from_secs(3)).await;
        three.puts_go_on("told").await;
        three.all().member_remove(added.member.unwrap_or_default().id).await.expect("removes it again");
    });
    drop(guest);
    three.all_live();
}

/// Of a member that is not known here a leader is followed and a candidate heard. Nothing else.
#[test]
fn what_a_guest_forwards_is_not_carried_out() {
    let mut three = Three::start();
    block_on(async {
        let (leader, term) = three.leader().await;
        let to = &three.members[leader];
        let mut guest = Line::called_at(to, &three.cluster, 77, "http://127.0.0.1:9").expect("a guest");
        guest.send(&forward(term, 1, b"\x22\x0c\x0a\x07forward\x12\x01v")).expect("sent");
        // A later leader's word does not count while one leads.
        let _ = guest.send(&raft(8, three.cluster.member(&to.spec.name), 77, [term + 5, 1, 9, 9]));
        three.puts_go_on("behind").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(three.all().get("forward").await.expect("reads").is_none(), "a guest wrote");
        assert_eq!(three.leader().await, (leader, term));
    });
    three.all_live();
}
