//! Limits of the process under attack: descriptors, CPU time, open calls, watches; and who may
//! look.

#[path = "live/mod.rs"]
mod live;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use client::wire::etcdserverpb::WatchCreateRequest;
use live::watching::Watching;
use live::{Alone, Member, PATIENCE, Spec, block_on, client_of, http};

const MIB: i64 = 1 << 20;

fn metric(port: u16, name: &str) -> i64 {
    let page = http::get(port, "/metrics").unwrap().body;
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is shown")).parse::<f64>().unwrap() as i64
}

/// Bytes of anonymous memory of a process.
fn anonymous(pid: u32) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<i64>().unwrap() * 1024
}

/// Processor time that a process has used.
fn cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// A connection from another address of this machine.
fn from_address(last: u8, port: u16) -> std::io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &SocketAddr::from(SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, last), 0)))?;
    connect(&socket, &SocketAddr::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)))?;
    Ok(TcpStream::from(socket))
}

/// A member that may have so many files open.
fn with_files(dir: &Path, most: u32, extra: &[&str]) -> Member {
    let program = live::program();
    let script = dir.join("limited");
    let text = format!("#!/bin/sh\nulimit -n {most}\nexec {} \"$@\"\n", program.get_program().display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut member = Member::spawn_by(Spec::alone(dir, extra), &script);
    member.ready();
    member
}

#[test]
fn idle_connections_leave_descriptors_for_everything_else() {
    let dir = tempfile::tempdir().unwrap();
    let mut member = with_files(dir.path(), 256, &[]);
    let port = member.spec.client_port;
    let idle: Vec<TcpStream> = block_on(async {
        let client = client_of([&member]);
        client.put("first", "x").await.expect("puts");
        let idle = (0..1_000).filter_map(|_| TcpStream::connect(("127.0.0.1", port)).ok()).collect();
        for n in 0..3_000 {
            client.put(format!("key/{n}"), vec![b'x'; 1024]).await.expect("puts go on");
        }
        idle
    });
    assert_eq!(member.ended(), None, "it lives");
    // Another address is let in, though one holds all that it may.
    let mut other = from_address(2, port).expect("connects");
    other.set_read_timeout(Some(PATIENCE)).unwrap();
    other.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    other.read_to_string(&mut answer).expect("is answered");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(idle);
    let until = Instant::now() + PATIENCE;
    while http::get(port, "/health").is_err() {
        assert!(Instant::now() < until, "places are free again");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(metric(port, "kvorum_client_connections_refused_total") > 800);
    assert_eq!(member.log().matches("refused a client: too many connections").count(), 1, "{}", member.log());
}

#[test]
fn a_trickled_json_string_is_read_once() {
    let own = Alone::new(&[]);
    let port = own.port();
    let before = cpu(own.member.pid());
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_nodelay(true).unwrap();
    let head = "POST /v3/watch HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut piece = format!("{:x}\r\n", 1024).into_bytes();
    piece.extend([b'a'; 1024]);
    piece.extend(b"\r\n");
    stream.write_all(b"1a\r\n{\"create_request\":{\"key\":\"\r\n").unwrap();
    for n in 0..2_900 {
        stream.write_all(&piece).expect("is read");
        // So slowly that each piece is read alone.
        if n % 4 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    std::thread::sleep(Duration::from_secs(1));
    let used = cpu(own.member.pid()) - before;
    println!("used {used:?}");
    assert!(used < Duration::from_millis(700), "{used:?}");
}

#[test]
fn many_watches_in_one_breath_are_all_created() {
    const WATCHES: usize = 20_000;
    let own = Alone::new(&["--memory-budget=128MiB"]);
    block_on(async {
        let create = |n: usize| WatchCreateRequest {
            key: format!("burst/{n}").into_bytes().into(),
            ..WatchCreateRequest::default()
        };
        let mut watching = Watching::open(&own.member.endpoint(), create(0)).await;
        (1..WATCHES).for_each(|n| watching.create(create(n)));
        for _ in 0..WATCHES {
            let answer = watching.next().await;
            assert!(answer.created && !answer.canceled, "{answer:?}");
        }
        own.client().put(format!("burst/{}", WATCHES - 1), "x").await.expect("puts");
        assert_eq!(watching.events(1).await.len(), 1);
    });
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

/// Headers of a call.
fn headers(path: &str) -> Vec<u8> {
    let mut head = Vec::new();
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "a"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    for (name, value) in fields {
        head.push(0);
        for text in [name, value] {
            head.push(text.len() as u8);
            head.extend(text.as_bytes());
        }
    }
    head
}

/// So many calls on one connection, of which this much has come and no more does.
fn unfinished(port: u16, path: &str, calls: u32, begun: &[u8]) -> Option<TcpStream> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let mut out = PREFACE.to_vec();
    out.extend(frame(4, 0, 0, &[]));
    let head = headers(path);
    for call in 0..calls {
        out.extend(frame(1, 4, 2 * call + 1, &head));
        if !begun.is_empty() {
            out.extend(frame(0, 0, 2 * call + 1, begun));
        }
    }
    socket.write_all(&out).ok()?;
    Some(socket)
}

const PUT: &str = "/etcdserverpb.KV/Put";
const WATCH: &str = "/etcdserverpb.Watch/Watch";
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whether a put from another address of this machine is carried out. Its message comes in two
/// frames; a refusal has none.
fn puts_from_elsewhere(port: u16) -> bool {
    let mut socket = from_address(2, port).expect("connects");
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut out = PREFACE.to_vec();
    out.extend(frame(4, 0, 0, &[]));
    out.extend(frame(1, 4, 1, &headers(PUT)));
    let mut message = vec![0, 0, 0, 0, 106, 0x0a, 1, b'k', 0x12, 101];
    message.extend([b'v'; 101]);
    let (first, second) = message.split_at(50);
    out.extend(frame(0, 0, 1, first));
    socket.write_all(&out).expect("writes");
    // So that the first frame is read alone.
    std::thread::sleep(Duration::from_millis(50));
    socket.write_all(&frame(0, 1, 1, second)).expect("writes");
    let mut head = [0; 9];
    loop {
        socket.read_exact(&mut head).expect("is answered");
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        socket.read_exact(&mut payload).expect("is answered");
        match (head[3], head[4] & 1, head[8]) {
            (0, _, 1) => return true,
            (1, 1, 1) | (3, _, 1) => return false,
            _ => {}
        }
    }
}

#[test]
fn open_calls_hold_a_bounded_part_of_memory() {
    let own = Alone::new(&["--memory-budget=512MiB"]);
    let port = own.port();
    block_on(async {
        let client = own.client();
        client.put("before", "x").await.expect("puts");
        let before = anonymous(own.member.pid());
        let held: Vec<_> = (0..100).filter_map(|_| unfinished(port, PUT, 2_000, b"")).collect();
        std::thread::sleep(Duration::from_secs(8));
        let grown = anonymous(own.member.pid()) - before;
        println!("200,000 calls asked on {} connections: grown by {} MiB", held.len(), grown / MIB);
        // Calls that are open, some 80 MiB of it; and a good KiB in the transport for each stream
        // that was refused: the transport keeps its place as long as the connection stands.
        assert!(grown < 384 * MIB, "{grown}");
        assert!(metric(port, "kvorum_budget_full_total{name=\"calls\"}") > 0, "some were refused");
        assert!(puts_from_elsewhere(port), "another address has its part");
        drop(held);
        let until = Instant::now() + PATIENCE;
        while client.put("after", "x").await.is_err() {
            assert!(Instant::now() < until, "calls are free again");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}

/// What watches are kept by grows with their keys, and an answer with those of a lease.
#[test]
fn long_keys_of_watches_and_leases_hold_a_bounded_part_of_memory() {
    if live::is_other() {
        return; // etcd has no budgets to look at
    }
    let own = Alone::new(&["--memory-budget=128MiB"]);
    block_on(async {
        let (client, port) = (own.client(), own.port());
        let before = anonymous(own.member.pid());
        let limit = metric(port, "kvorum_budget_limit_bytes{name=\"watches\"}");
        let long = |n: u32| WatchCreateRequest {
            key: [n.to_string().into_bytes(), vec![b'w'; 1 << 20]].concat().into(),
            ..WatchCreateRequest::default()
        };
        let mut watching = Watching::open(&own.member.endpoint(), long(0)).await;
        (1..200).for_each(|n| watching.create(long(n)));
        let mut refused = 0;
        for _ in 0..200 {
            let answer = watching.next().await;
            refused += i64::from(answer.canceled);
            assert!(answer.created && (!answer.canceled || answer.cancel_reason.contains("too many requests")));
        }
        let held = metric(port, "kvorum_budget_bytes{name=\"watches\"}");
        let grown = anonymous(own.member.pid()) - before;
        println!("{refused} of 200 watches refused, {held} held, memory grew by {grown}");
        assert!(refused > 0 && held <= limit && grown < limit + 64 * MIB, "{refused} refused, {held} held, {grown}");
        // Those that are cancelled leave room.
        (0..100).for_each(|id| watching.cancel(id));
        let until = Instant::now() + PATIENCE;
        while metric(port, "kvorum_budget_bytes{name=\"watches\"}") > 0 {
            assert!(Instant::now() < until, "it is given back");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        drop(watching);

        let lease = client.lease_grant(600, 0).await.unwrap().id;
        for n in 0..32 {
            let puts = (0..32).map(|m| {
                let key = [format!("{n:02}{m:02}").into_bytes(), vec![b'k'; 16 << 10]].concat();
                let request = client::wire::etcdserverpb::PutRequest { lease, ..live::ops::put_request(key, "") };
                live::ops::put_op(request)
            });
            client.txn(live::ops::txn(puts.collect())).await.unwrap();
        }
        let before = anonymous(own.member.pid());
        let deaf: Vec<TcpStream> = (0..4).map(|_| asks_and_reads_nothing(port, lease, 20)).collect();
        let until = Instant::now() + PATIENCE;
        while metric(port, "kvorum_budget_bytes{name=\"unsent\"}") < MIB {
            assert!(Instant::now() < until, "answers wait");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let grown = anonymous(own.member.pid()) - before;
        println!("80 answers of 16 MiB wait, memory grew by {grown}");
        assert!(grown < 128 * MIB, "{grown}");
        drop(deaf);
        let told = client.lease_time_to_live(lease, true).await.unwrap();
        assert_eq!((told.keys.len(), told.keys[0].len()), (1024, 4 + (16 << 10)));
    });
}

/// A connection that asks so often for the keys of a lease, with its windows wide open, and never
/// reads.
fn asks_and_reads_nothing(port: u16, lease: i64, times: u32) -> TcpStream {
    let mut out = PREFACE.to_vec();
    out.extend(frame(4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]));
    out.extend(frame(8, 0, 0, &0x7000_0000_u32.to_be_bytes()));
    let mut message = vec![0x08];
    let mut rest = lease as u64;
    while rest >= 0x80 {
        message.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    message.extend([rest as u8, 0x10, 1]);
    let mut data = vec![0];
    data.extend((message.len() as u32).to_be_bytes());
    data.extend(message);
    for call in 0..times {
        out.extend(frame(1, 4, 2 * call + 1, &headers("/etcdserverpb.Lease/LeaseTimeToLive")));
        out.extend(frame(0, 1, 2 * call + 1, &data));
    }
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.write_all(&out).unwrap();
    socket
}

#[test]
fn bodies_that_stop_leave_room_for_those_of_others() {
    let own = Alone::new(&["--memory-budget=512MiB"]);
    let port = own.port();
    // The head of a message of 1 MB, and little of it.
    let mut begun = vec![0, 0, 16, 0, 0];
    begun.extend([b'x'; 8 << 10]);
    // A connection takes 64 KiB before it hears of a larger window.
    let held: Vec<_> = (0..300).filter_map(|_| unfinished(port, PUT, 7, &begun)).collect();
    let until = Instant::now() + PATIENCE;
    while metric(port, "kvorum_budget_full_total{name=\"inbound\"}") == 0 {
        assert!(Instant::now() < until, "2,100 bodies are more than there is room for");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(puts_from_elsewhere(port), "another address has its part");
    drop(held);
}

#[test]
fn unread_watches_of_all_history_hold_their_budget() {
    let own = Alone::new(&["--memory-budget=512MiB"]);
    let port = own.port();
    block_on(async {
        let client = own.client();
        for n in 0..1_000 {
            client.put(format!("data/{n}"), vec![b'x'; 4096]).await.expect("puts");
        }
        let before = anonymous(own.member.pid());
        // data/ to data0, from revision 1.
        let create = b"\x0a\x10\x0a\x05data/\x12\x05data0\x18\x01";
        let message = [&[0, 0, 0, 0, create.len() as u8], &create[..]].concat();
        let held: Vec<_> = (0..100).filter_map(|_| unfinished(port, WATCH, 10, &message)).collect();
        let until = Instant::now() + PATIENCE;
        let mut most = 0;
        // All are there, and have been fed what they may hold.
        let fed = || metric(port, "etcd_debugging_mvcc_events_total") >= 1_000;
        while metric(port, "etcd_debugging_mvcc_watch_stream_total") < 1_000 || !fed() {
            assert!(Instant::now() < until, "the watches begin");
            most = most.max(anonymous(own.member.pid()) - before);
            std::thread::sleep(Duration::from_millis(5));
        }
        most = most.max(anonymous(own.member.pid()) - before);
        println!("1,000 unread watches: grown by {} MiB", most / MIB);
        assert!(most < 128 * MIB, "{most}");
        client.put("after", "x").await.expect("others are served");
        drop(held);
    });
}

#[test]
fn no_bound_of_streams_is_none() {
    let own = Alone::new(&["--max-concurrent-streams=0"]);
    block_on(async { own.client().put("a", "b").await.expect("a stream is let in") });
}

#[test]
fn loose_modes_and_links_are_told_and_logs_are_private() {
    let dir = tempfile::tempdir().unwrap();
    let (real, log) = (dir.path().join("real"), dir.path().join("member.log"));
    std::fs::create_dir(&real).unwrap();
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o777)).unwrap();
    let output = format!("--log-outputs=stderr,{}", log.display());
    let spec = Spec::alone(dir.path(), &[&output]);
    std::os::unix::fs::symlink(&real, &spec.dir).unwrap();
    let member = Member::start(spec);
    for text in ["others may write in the data directory", "the data directory is a link"] {
        assert!(member.log().contains(text), "{text}: {}", member.log());
    }
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&log), 0o600);
    assert_eq!(mode(&real), 0o777, "it is the operator's");
    let own = Alone::new(&[]);
    assert!(!own.member.log().contains("others may"), "a directory of its own is private: {}", own.member.log());
}
