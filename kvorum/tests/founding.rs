//! How a cluster begins, as processes: who may found it, and who must not found it again.

mod live;

use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use client::wire::etcdserverpb::RangeRequest;
use client::{Client, Options, prefix};
use live::{Alone, Member, PATIENCE, Spec, block_on, client_of, comes, is_other, shell_code};
use rustix::process::Signal;

const TIMES: [&str; 2] = ["--heartbeat-interval=50", "--election-timeout=500"];
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The members of a cluster of three that do not run yet.
fn three(dir: &Path) -> Vec<Spec> {
    Spec::cluster(dir, 3, &TIMES)
}

fn files_in(dir: &Path) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}

/// A client that gives up soon: nothing shall be answered.
fn hasty(member: &Member) -> Client {
    let options = Options::of([member.endpoint()]);
    Client::connect(Options { request_timeout: Some(Duration::from_millis(1500)), ..options }).expect("an endpoint")
}

async fn sees(member: &Member, key: &str) {
    let until = Instant::now() + PATIENCE;
    let request = || RangeRequest { serializable: true, ..client::key(key.to_owned()).into() };
    while client_of([member]).range(request()).await.expect("reads its own").count == 0 {
        assert!(Instant::now() < until, "{} does not see {key}", member.spec.name);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Nine acknowledged writes on the first two of three; then all three are down, and the second's
/// directory is gone. `seen`: the third has seen before that the second was one of them.
fn nine_writes_and_an_emptied_disk(dir: &Path, seen: bool) -> Vec<Member> {
    let mut members: Vec<Member> = three(dir).into_iter().map(Member::spawn).collect();
    members.iter_mut().for_each(Member::ready);
    if seen {
        block_on(async {
            // A member writes down what is committed along with the next entry.
            for n in 1..=3 {
                let key = format!("early{n}");
                client_of(&members).put(key.clone(), "x").await.expect("puts");
                sees(&members[2], &key).await;
            }
        });
    }
    members[2].kill();
    block_on(async {
        let client = client_of(&members[..2]);
        for n in 1..=9 {
            client.put(format!("k{n}"), "x").await.expect("two of three acknowledge");
        }
    });
    members[0].kill();
    members[1].kill();
    std::fs::remove_dir_all(&members[1].spec.dir).expect("empties the directory");
    members
}

async fn nine_are_there(client: &Client) {
    let range = client.range(RangeRequest { keys_only: true, ..prefix("k").into() }).await.expect("reads");
    assert_eq!(range.count, 9, "acknowledged writes are gone");
}

#[test]
fn an_emptied_member_does_not_found_the_cluster_again() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut members = nine_writes_and_an_emptied_disk(dir.path(), true);
    members[1].respawn();
    members[2].respawn();
    // Whatever these two do, they must not take writes: they know less than was acknowledged.
    comes("the end of the emptied member, or a write that it helped to lose", || {
        members[1].ended().is_some() || block_on(async { hasty(&members[2]).put("lost", "x").await.is_ok() })
    });
    let status = members[1].ended().expect("the emptied member founded the cluster again");
    assert_eq!(shell_code(status), Some(1));
    let log = members[1].log();
    let last = log.lines().last().unwrap_or_default();
    assert!(last.contains("has already been bootstrapped"), "{last}");
    if !is_other() {
        let way_out = ["(m3)", "member remove", "member add m2 --peer-urls=", "--initial-cluster-state existing"];
        assert!(way_out.iter().all(|part| last.contains(part)), "{last}");
        assert!(!members[1].spec.dir.exists(), "a refused start leaves no directory");
    }
    block_on(async { hasty(&members[2]).put("lost", "x").await.expect_err("one of three takes no writes") });
    members[0].respawn();
    members[0].ready();
    members[2].ready();
    block_on(async {
        let client = client_of([&members[0], &members[2]]);
        nine_are_there(&client).await;
        client.put("later", "x").await.expect("two of three go on");
    });
}

#[test]
fn an_emptied_member_that_nobody_remembers_helps_no_majority() {
    if is_other() {
        // A real etcd founds again if the member that answers does not know it.
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut members = nine_writes_and_an_emptied_disk(dir.path(), false);
    members[2].respawn();
    members[1].respawn();
    std::thread::sleep(Duration::from_secs(3));
    block_on(async { hasty(&members[2]).put("lost", "x").await.expect_err("two that know less take no writes") });
    members[0].respawn();
    members[0].ready();
    block_on(async { nine_are_there(&client_of([&members[0], &members[2]])).await });
}

#[test]
fn a_member_that_is_alone_waits_and_writes_nothing() {
    if is_other() {
        // A real etcd founds without a majority, and waits for it behind that.
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut first = Member::spawn(three(dir.path()).remove(0));
    comes("the line that names who is missing", || first.log().contains("waiting for the other initial members"));
    let log = first.log();
    assert!(log.contains("m2 (") && log.contains("m3 (") && log.contains("Connection refused"), "{log}");
    assert_eq!(files_in(&first.spec.dir), 0, "nothing is decided yet");
    let mut idle = std::net::TcpStream::connect(("127.0.0.1", first.spec.client_port)).expect("is bound");
    idle.set_read_timeout(Some(Duration::from_millis(300))).expect("sets");
    idle.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").expect("sends");
    assert!(idle.read(&mut [0; 1]).is_err(), "clients are not served");
    let (status, _) = first.stop(Signal::TERM);
    assert_eq!(shell_code(status), Some(143));
    assert!(!first.spec.dir.exists());
}

#[test]
fn two_of_three_found_and_the_third_joins_late() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut specs = three(dir.path());
    let last = specs.pop().expect("three");
    let mut members: Vec<Member> = specs.into_iter().map(Member::spawn).collect();
    members.iter_mut().for_each(Member::ready);
    block_on(async { client_of(&members).put("a", "x").await.expect("two of three take writes") });
    let mut last = Member::spawn(last);
    last.ready();
    block_on(async { sees(&last, "a").await });
    assert!(is_other() || last.log().contains("founding, late"), "{}", last.log());
    // It stays a member that counts: with it and one of the others writes go on.
    members[0].kill();
    block_on(async {
        client_of([&members[1], &last]).put("b", "x").await.expect("puts");
    });
}

/// Whoever restarts members one by one kills the next once this one is ready. A late one may have
/// lost a vote with its disk, so it counts for no election before all others have answered.
#[test]
fn a_late_founder_is_ready_once_it_counts() {
    if is_other() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    // The leader must not step down between the stop of its follower and the connection of the late
    // one, which gives it no vote to come back with.
    let mut specs = Spec::cluster(dir.path(), 3, &["--heartbeat-interval=50", "--election-timeout=2000"]);
    let last = specs.pop().expect("three");
    let mut members: Vec<Member> = specs.into_iter().map(Member::spawn).collect();
    members.iter_mut().for_each(Member::ready);
    let leads = |member: &Member| {
        block_on(async {
            let status = client_of([member]).status().await.expect("says");
            status.header.expect("a header").member_id == status.leader
        })
    };
    let follower = members.iter().position(|member| !leads(member)).expect("one leads");
    let mut last = Member::spawn(last);
    // It has the answers of both that it needs to found, and none yet that it needs to vote.
    comes("its founding", || last.log().contains("founding, late"));
    members[follower].signal(Signal::STOP);
    comes("its leader", || last.log().contains("elected leader"));
    std::thread::sleep(Duration::from_millis(1500));
    assert!(!last.log().contains("ready to serve"), "{}", last.log());
    members[follower].signal(Signal::CONT);
    last.ready();
    assert!(!last.log().contains("serving clients, though"), "{}", last.log());
    members[1 - follower].kill();
    block_on(async {
        client_of([&members[follower], &last]).put("b", "x").await.expect("puts");
    });
}

#[test]
fn an_emptied_member_asks_whoever_is_there_first() {
    if is_other() {
        return;
    }
    // The whole member runs alone. The other two have lost their directories: more than is promised
    // to survive, but a cluster beside the whole member is no answer to that.
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut members = nine_writes_and_an_emptied_disk(dir.path(), true);
    std::fs::remove_dir_all(&members[2].spec.dir).expect("empties the directory");
    members[0].respawn();
    let peer_port = members[0].spec.peer_port;
    comes("its peer port", || std::net::TcpStream::connect(("127.0.0.1", peer_port)).is_ok());
    members[1..].iter_mut().for_each(Member::respawn);
    for member in &mut members[1..] {
        comes("the end of an emptied member", || member.ended().is_some());
        assert_eq!(shell_code(member.ended().expect("has ended")), Some(1));
    }
}

/// Puts `name` of 0 to `count` through one of these members.
fn puts(members: &[Member], name: &str, count: usize) {
    block_on(async {
        let client = client_of(members);
        for n in 0..count {
            client.put(format!("{name}{n}"), "x").await.expect("a majority takes writes");
        }
    });
}

/// Every key that the member itself has.
fn keys_of(member: &Member) -> Vec<String> {
    block_on(async {
        let request = RangeRequest { serializable: true, keys_only: true, ..prefix("").into() };
        let found = client_of([member]).range(request).await.expect("reads its own");
        found.kvs.into_iter().map(|kv| String::from_utf8(kv.key.to_vec()).expect("text")).collect()
    })
}

fn numbered(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{name}{n}")).collect()
}

#[track_caller]
fn stops_as_of_another_founding(member: &mut Member) {
    let name = member.spec.name.clone();
    comes("the end of the member of another founding", || member.ended().is_some());
    assert_eq!(shell_code(member.ended().expect("has ended")), Some(1), "{name}");
    let log = member.log();
    let last = log.lines().last().unwrap_or_default();
    assert!(last.contains("a majority, are of founding") && last.contains("Nothing is changed"), "{last}");
}

/// The same flags give the same ids. A volume that was not wiped must not bring its history back.
#[test]
fn a_directory_of_an_earlier_founding_is_not_heard() {
    if is_other() {
        // A real etcd takes it for a member.
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut members: Vec<Member> = three(dir.path()).into_iter().map(Member::spawn).collect();
    members.iter_mut().for_each(Member::ready);
    puts(&members, "first", 12);
    // Elections make the directory that is kept newer than the next cluster, by term.
    for _ in 0..2 {
        members.iter_mut().for_each(Member::kill);
        members.iter_mut().for_each(Member::respawn);
        members.iter_mut().for_each(Member::ready);
    }
    members.iter_mut().for_each(Member::kill);
    let kept = dir.path().join("kept");
    std::fs::rename(&members[1].spec.dir, &kept).expect("moves");
    for at in [0, 2] {
        std::fs::remove_dir_all(&members[at].spec.dir).expect("removes");
    }
    members.iter_mut().for_each(Member::respawn);
    members.iter_mut().for_each(Member::ready);
    puts(&members, "second", 8);
    members[1].kill();
    let right = dir.path().join("right");
    std::fs::rename(&members[1].spec.dir, &right).expect("moves");
    std::fs::rename(&kept, &members[1].spec.dir).expect("moves");
    members[1].respawn();
    stops_as_of_another_founding(&mut members[1]);
    let others = [members.remove(0), members.pop().expect("the third")];
    puts(&others, "third", 1);
    // Their line is written behind the answer that stopped it.
    comes("the line of the others", || others.iter().any(|member| member.log().contains("is of another founding")));
    // With its own directory it is one of them again.
    let mut back = members.pop().expect("the second");
    std::fs::remove_dir_all(&back.spec.dir).expect("removes");
    std::fs::rename(&right, &back.spec.dir).expect("moves");
    back.kill();
    back.respawn();
    back.ready();
    let wanted: Vec<String> = numbered("second", 8).into_iter().chain(numbered("third", 1)).collect();
    block_on(async { sees(&back, "third0").await });
    for member in others.iter().chain([&back]) {
        assert_eq!(keys_of(member), wanted, "{}", member.spec.name);
    }
}

#[test]
fn a_member_that_was_down_while_the_others_were_emptied_is_not_heard() {
    if is_other() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut members: Vec<Member> = three(dir.path()).into_iter().map(Member::spawn).collect();
    members.iter_mut().for_each(Member::ready);
    puts(&members, "old", 10);
    members.iter_mut().for_each(Member::kill);
    for at in [0, 1] {
        std::fs::remove_dir_all(&members[at].spec.dir).expect("removes");
        members[at].respawn();
    }
    members[..2].iter_mut().for_each(Member::ready);
    puts(&members[..2], "new", 5);
    // One against one: nobody knows who is right. Both stay, say so, and take nothing.
    members[0].kill();
    members[2].respawn();
    for at in [1, 2] {
        comes("the line about the other founding", || members[at].log().contains("is of another founding"));
    }
    std::thread::sleep(Duration::from_secs(2));
    for at in [1, 2] {
        assert!(members[at].ended().is_none(), "{}", members[at].log());
        block_on(async { hasty(&members[at]).put("lost", "x").await.expect_err("one of three takes no writes") });
    }
    members[0].respawn();
    members[0].ready();
    stops_as_of_another_founding(&mut members[2]);
    puts(&members[..2], "newer", 1);
    let wanted: Vec<String> = numbered("new", 5).into_iter().chain(numbered("newer", 1)).collect();
    block_on(async { sees(&members[0], "newer0").await });
    block_on(async { sees(&members[1], "newer0").await });
    for member in &members[..2] {
        assert_eq!(keys_of(member), wanted, "{}", member.spec.name);
    }
}

/// A name service of the test's own: SRV records that lead to ports of `localhost`. What it does
/// not have does not exist.
fn name_service(records: Vec<(String, Vec<u16>)>) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("binds");
    let address = socket.local_addr().expect("bound");
    std::thread::spawn(move || {
        let mut query = [0; 1024];
        while let Ok((length, from)) = socket.recv_from(&mut query) {
            socket.send_to(&answer(&query[..length], &records), from).expect("answers");
        }
    });
    address
}

/// The header, the question as it was asked, and one record for each port.
fn answer(query: &[u8], records: &[(String, Vec<u16>)]) -> Vec<u8> {
    let mut labels = Vec::new();
    let mut at = 12;
    while query[at] != 0 {
        let end = at + 1 + usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..end]).into_owned());
        at = end;
    }
    let (question, name) = (&query[12..at + 5], labels.join("."));
    let asks_srv = query[at + 1..at + 3] == [0, 33];
    let found = records.iter().find(|(known, _)| *known == name).filter(|_| asks_srv);
    let ports = found.map_or(&[][..], |(_, ports)| ports);
    // An answer, and for no ports: no such name.
    let flags = [0x84, if ports.is_empty() { 3 } else { 0 }];
    let mut reply = [&query[..2], &flags, &[0, 1, 0, ports.len() as u8, 0, 0, 0, 0], question].concat();
    for port in ports {
        let target = b"\x09localhost\0";
        // The name of the question; SRV; internet; a minute; the length.
        reply.extend([0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 60, 0, 6 + target.len() as u8]);
        reply.extend([0, 0, 0, 0]);
        reply.extend(port.to_be_bytes());
        reply.extend(target);
    }
    reply
}

/// Ids, names and texts are those of a real etcd whose `/etc/resolv.conf` named such a service.
#[test]
fn the_name_service_says_who_founds() {
    if is_other() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut specs = three(dir.path());
    let ports: Vec<u16> = specs.iter().map(|spec| spec.peer_port).collect();
    let asked = name_service(vec![
        ("_etcd-server._tcp.a.test".into(), ports.clone()),
        ("_etcd-server-x._tcp.a.test".into(), vec![ports[1]]),
        ("_etcd-server-ssl._tcp.b.test".into(), vec![ports[0]]),
    ]);
    let program = dir.path().join("asks");
    let script = format!("#!/bin/sh\nKVORUM_RESOLVER={asked} exec {} \"$@\"\n", env!("CARGO_BIN_EXE_kvorum"));
    std::fs::write(&program, script).expect("writes");
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("allows");
    let fails = |spec: &Spec, flags: &[&str]| {
        let mut command = std::process::Command::new(&program);
        live::clean(&mut command);
        spec.flags(command.arg("server"));
        let ended = live::run_to_end({
            command.args(flags);
            command
        });
        assert!(ended.code == Some(1) && !spec.dir.exists(), "{ended:?}");
        ended.stderr
    };
    for (n, spec) in specs.iter_mut().enumerate() {
        spec.initial_cluster.clear();
        // An address of its own that the record leads to is as good as the name.
        let host = if n == 0 { "127.0.0.1" } else { "localhost" };
        spec.extra.push(format!("--initial-advertise-peer-urls=http://{host}:{}", spec.peer_port));
    }
    let lookup = |service: &str| {
        format!(
            "error querying DNS SRV records for _{service} lookup _{service}._tcp.none.test on {asked}: no such host"
        )
    };
    let neither =
        format!("error setting up initial cluster: {}\\n{}", lookup("etcd-server-ssl"), lookup("etcd-server"));
    let scheme = format!(
        "bootstrap at https://localhost:{0} from DNS for etcd-server-ssl has scheme mismatch with expected peer \
         http://127.0.0.1:{0}",
        ports[0]
    );
    let table = [
        (&["--discovery-srv=none.test"][..], &neither[..]),
        (
            &["--discovery-srv=a.test", "--discovery-srv-name=x"],
            "cannot find local etcd member \\\"m1\\\" in SRV records",
        ),
        (&["--discovery-srv=b.test"], &scheme),
    ];
    for (flags, text) in table {
        let said = fails(&specs[0], flags);
        assert!(said.contains("\"msg\":\"discovery failed\"") && said.contains(text), "{flags:?}: {said}");
    }

    specs.iter_mut().for_each(|spec| spec.extra.push("--discovery-srv=a.test".into()));
    let second = specs.remove(1);
    let mut members: Vec<Member> = specs.into_iter().map(|spec| Member::spawn_by(spec, &program)).collect();
    members.iter_mut().for_each(Member::ready);
    // etcd calls it 0 on the first and 1 on the third: two states.
    for member in &members {
        let list = block_on(client_of([member]).member_list()).expect("lists").members;
        let names: Vec<&str> = list.iter().map(|one| &one.name[..]).filter(|name| !name.starts_with('m')).collect();
        assert_eq!(names, [""], "{}", member.spec.name);
    }
    members.insert(1, Member::spawn_by(second, &program));
    members[1].ready();
    let url = |n: usize| format!("http://localhost:{}", ports[n]);
    let named: Vec<(String, String)> = (0..3).map(|n| (format!("m{}", n + 1), url(n))).collect();
    let by_flags = named.iter().map(|(name, url)| (&name[..], &url[..]));
    let expected = disk::founding::founding("m1", by_flags, "tests", &[url(0)]).expect("good");
    let listed = || block_on(client_of(&members).member_list()).expect("lists");
    comes("every name", || {
        let list = listed();
        assert_eq!(list.header.expect("a header").cluster_id, expected.identity.cluster);
        let mut found: Vec<_> = list.members.into_iter().map(|mut one| (one.name, one.peer_urls.remove(0))).collect();
        found.sort();
        found == named
    });
    // The directory says who it is: the name service may be down then.
    let mut first = members.remove(0);
    first.stop(Signal::TERM);
    first.respawn();
    first.ready();
    assert_eq!(first.log().matches("get cluster for etcd-server SRV").count(), 1);
}

/// Keys, ids and texts are a real etcd's: founders of both kinds have registered side by side.
#[test]
fn founders_register_in_another_cluster() {
    let service = Alone::new(&TIMES);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut specs = Spec::cluster(dir.path(), 4, &TIMES);
    for spec in &mut specs {
        spec.initial_cluster.clear();
        spec.extra.push(format!("--discovery-endpoints=http://{}", service.member.endpoint()));
    }
    let registry = |rest: &str| format!("/_etcd/registry/{rest}");
    let sized = |token: &str, size: &str| {
        let key = registry(&format!("{token}/_config/size"));
        block_on(service.client().put(key, size.to_string())).expect("puts");
    };
    sized("bad", "-1");
    sized("good", "3");
    let fails = |spec: &Spec, flags: &[&str], text: &str| {
        let mut spec = spec.clone();
        spec.extra.extend(flags.iter().map(ToString::to_string));
        let ended = spec.run_to_end();
        assert!(ended.code == Some(1) && ended.stderr.contains(text), "{flags:?}: {ended:?}");
        assert!(!ended.stderr.contains("unsaid") || is_other(), "{ended:?}");
    };
    let joining = |why: &str| format!("failed to join discovery cluster ({why})");
    let secret = "--discovery-password=unsaid";
    fails(&specs[0], &["--discovery-token=none", secret], &joining("discovery: size key not found"));
    fails(&specs[0], &["--discovery-token=bad"], &joining("discovery: size key is bad"));
    let existing = ["--discovery-token=good", "--initial-cluster-state=existing"];
    fails(&specs[0], &existing, "discovery URL should not be set when joining existing initial cluster");

    let no_file = ["--discovery-token=good", "--discovery-cacert=/no/such"];
    fails(&specs[0], &no_file, &joining("open /no/such: no such file or directory"));
    let alone = ["--discovery-token=good", "--force-new-cluster"];
    fails(&specs[0], &alone, "--force-new-cluster: no member has ever started here");

    specs.iter_mut().for_each(|spec| spec.extra.push("--discovery-token=good".into()));
    let late = specs.pop().expect("a fourth");
    let mut members: Vec<Member> = specs.into_iter().map(Member::spawn).collect();
    members.iter_mut().for_each(Member::ready);
    let url = |member: &Member| format!("http://127.0.0.1:{}", member.spec.peer_port);
    let named: Vec<(String, String)> = members.iter().map(|one| (one.spec.name.clone(), url(one))).collect();
    let registered = block_on(service.client().range(prefix(registry("good/members/")))).expect("reads");
    let mut registered: Vec<_> = registered.kvs.into_iter().map(|kv| (kv.key, kv.value)).collect();
    let mut expected: Vec<_> = named
        .iter()
        .map(|(name, url)| {
            let id = disk::identity::member_id(std::slice::from_ref(url), "good");
            (registry(&format!("good/members/{id:x}")).into(), format!("{name}={url}").into())
        })
        .collect();
    registered.sort();
    expected.sort();
    assert_eq!(registered, expected);
    let by_flags = named.iter().map(|(name, url)| (&name[..], &url[..]));
    let founding = disk::founding::founding("m1", by_flags, "good", &[url(&members[0])]).expect("good");
    comes("every name", || {
        let list = block_on(client_of(&members).member_list()).expect("lists");
        assert_eq!(list.header.expect("a header").cluster_id, founding.identity.cluster);
        list.members.iter().all(|one| !one.name.is_empty())
    });
    fails(&late, &[], &joining("discovery: cluster is full"));
    // The service is asked once.
    drop(service);
    members[0].stop(Signal::TERM);
    members[0].respawn();
    members[0].ready();
    let ignored = "discovery token is ignored since cluster already initialized; valid logs are found";
    assert!(members[0].log().contains(ignored));
}
