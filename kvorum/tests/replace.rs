//! `kvorum ctl` and members, as people use it: one command that replaces a member, names in the
//! place of ids, and who may fail now.

mod live;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::wire::etcdserverpb::Member as Listed;
use live::{Ended, Member, PATIENCE, Spec, block_on, client_of, comes, is_other, run_to_end, shell_code};

const TIMES: [&str; 2] = ["--heartbeat-interval=50", "--election-timeout=500"];

/// The members are dropped before the folder.
struct Cluster {
    members: Vec<Member>,
    dir: tempfile::TempDir,
}

fn of(count: usize) -> Cluster {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut members: Vec<Member> = Spec::cluster(dir.path(), count, &TIMES).into_iter().map(Member::spawn).collect();
    members.iter_mut().for_each(Member::ready);
    Cluster { members, dir }
}

impl Cluster {
    fn command(&self, words: &[&str]) -> Command {
        let endpoints: Vec<String> = self.members.iter().map(Member::endpoint).collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvorum"));
        live::clean(&mut command);
        command.arg("ctl").args(words).args(["--endpoints", &endpoints.join(",")]);
        command
    }

    fn ctl(&self, words: &[&str]) -> Ended {
        run_to_end(self.command(words))
    }

    fn listed(&self) -> Vec<Listed> {
        block_on(client_of(&self.members).member_list()).expect("lists").members
    }

    /// Starts the command without waiting for its end.
    fn begin(&self, words: &[&str]) -> Running {
        let mut command = self.command(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(Some(command.spawn().expect("starts")))
    }

    /// Waits until a learner is listed at this URL; how it is to be started, as the list says.
    fn learner_at(&self, name: &str, url: &str) -> Spec {
        let mut found = None;
        comes("a learner", || {
            let listed = self.listed();
            found = listed.iter().any(|it| it.peer_urls == [url.to_owned()] && it.is_learner).then_some(listed);
            found.is_some()
        });
        let listed = found.expect("it came");
        let named = listed.iter().map(|it| {
            let name = if it.peer_urls == [url.to_owned()] { name } else { &it.name };
            format!("{name}={}", it.peer_urls[0])
        });
        Spec {
            client_port: live::free_port(),
            peer_port: url.rsplit_once(':').expect("a port").1.parse().expect("a port"),
            initial_cluster: named.collect::<Vec<_>>().join(","),
            dir: self.dir.path().join(name),
            extra: TIMES.iter().chain(&["--initial-cluster-state=existing"]).map(ToString::to_string).collect(),
            name: name.to_owned(),
        }
    }
}

/// It is killed when nobody waits for it.
struct Running(Option<Child>);

impl Running {
    fn kill(mut self) {
        let mut child = self.0.take().expect("it runs");
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
    }

    #[track_caller]
    fn ended(mut self) -> Ended {
        let mut child = self.0.take().expect("it runs");
        let until = Instant::now() + PATIENCE;
        while child.try_wait().expect("asks").is_none() {
            if Instant::now() > until {
                let _ = child.kill();
                panic!("it does not end: {:?}", child.wait_with_output());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let output = child.wait_with_output().expect("has ended");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn url() -> String {
    format!("http://127.0.0.1:{}", live::free_port())
}

/// The leader by one command that is killed and run again; then a dead one; then what is refused.
#[test]
fn members_are_replaced_by_one_command() {
    if is_other() {
        return;
    }
    let mut cluster = of(3);
    let client = client_of(&cluster.members);
    block_on(async { client.put("k", "v").await }).expect("puts");
    let status = block_on(client.status()).expect("says");
    let leader = cluster.listed().iter().position(|it| it.id == status.leader).expect("one leads");
    let old = cluster.listed()[leader].name.clone();
    let (first, name) = (url(), format!("{old}-2"));

    let dry = cluster.ctl(&["member", "replace", &old, &first, "--dry-run"]);
    assert_eq!(dry.code, Some(0), "{dry:?}");
    for part in ["Would do:", &format!("1. add {name} as a learner, reached at {first}"), "which leads and hands over"]
    {
        assert!(dry.stdout.contains(part), "{part}: {dry:?}");
    }
    assert_eq!(cluster.listed().len(), 3, "nothing was done");

    // It is killed when the learner is there, and goes on.
    let running = cluster.begin(&["member", "replace", &old, &first]);
    let spec = cluster.learner_at(&name, &first);
    running.kill();
    let running = cluster.begin(&["member", "replace", &old, &first]);
    let mut new = Member::spawn(spec);
    let ended = running.ended();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for part in ["--initial-cluster-state existing", &format!("--name {name} "), "and votes.", "in the place of"] {
        assert!(ended.stdout.contains(part), "{part}: {ended:?}");
    }
    new.ready();
    let at = cluster.members.iter().position(|it| it.spec.name == old).expect("it is there");
    let mut gone = std::mem::replace(&mut cluster.members[at], new);
    comes("the end of the old member", || gone.ended().is_some());
    assert_eq!(shell_code(gone.ended().expect("has ended")), Some(0));
    let listed = cluster.listed();
    assert!(listed.len() == 3 && listed.iter().all(|it| !it.is_learner && it.name != old), "{listed:?}");
    // What is done is done: once more changes nothing.
    let again = cluster.ctl(&["member", "replace", &old, &first]);
    assert!(again.code == Some(0) && cluster.listed() == listed, "{again:?}");

    a_dead_one(&mut cluster);
}

/// Whoever was typed is gone at the end, and the run that has not removed it hears of that too.
#[test]
fn two_runs_at_once_replace_the_only_member() {
    if is_other() {
        return;
    }
    let (mut cluster, url) = (of(1), url());
    // The one that does not remove m1 may see it end before the new one has said where clients call
    // it: then it knows of nobody but who was typed.
    let client_port = live::free_port();
    let there = format!("127.0.0.1:{client_port}");
    let words = ["member", "replace", "m1", &url, "--timeout", "60s", "--endpoints", &there];
    let runs = [cluster.begin(&words), cluster.begin(&words)];
    let mut new = Member::spawn(Spec { client_port, ..cluster.learner_at("m1-2", &url) });
    for run in runs {
        let ended = run.ended();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stdout.contains("is a member in the place of m1"), "{ended:?}");
    }
    new.ready();
    let mut gone = std::mem::replace(&mut cluster.members[0], new);
    comes("the end of the old member", || gone.ended().is_some());
    assert_eq!(cluster.listed().len(), 1);
}

fn a_dead_one(cluster: &mut Cluster) {
    let second = url();
    let dead = cluster.members.iter().position(|it| !it.spec.name.contains('-')).expect("a founder is left");
    let mut gone = cluster.members.remove(dead);
    gone.kill();
    let other = cluster.members[0].spec.name.clone();
    // While one is down, another one cannot be replaced.
    let refused = cluster.ctl(&["member", "replace", &other, &second]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let parts =
        ["2 of 3 voters answer", &format!("{} does not: Connection refused", gone.spec.name), "replace that one"];
    assert!(parts.iter().all(|part| refused.stderr.contains(part)), "{refused:?}");
    let list = cluster.ctl(&["member", "list"]);
    let first = list.stdout.lines().next().unwrap_or_default();
    assert!(first.starts_with("2 of 3 voters serve, 2 needed: none may fail; "), "{list:?}");
    let down = format!("does not serve: {} (voter): Connection refused", gone.spec.name);
    assert!(list.stdout.contains(&down), "{list:?}");
    // It only counts: it goes first, and its name is free.
    let running = cluster.begin(&["member", "replace", &gone.spec.name, &second]);
    let mut new =
        Member::spawn(Spec { dir: cluster.dir.path().join("again"), ..cluster.learner_at(&gone.spec.name, &second) });
    let ended = running.ended();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("which does not answer: Connection refused"), "{ended:?}");
    new.ready();
    cluster.members.push(new);
    let listed = cluster.listed();
    assert!(listed.len() == 3 && listed.iter().all(|it| !it.is_learner && !it.name.is_empty()), "{listed:?}");
    let list = cluster.ctl(&["member", "list"]);
    assert!(list.stdout.starts_with("3 of 3 voters serve, 2 needed: one may fail; "), "{list:?}");
    names(cluster);
}

/// Every command that wants a member takes a name; the stock tool does not.
fn names(cluster: &Cluster) {
    let name = &cluster.members[0].spec.name;
    let said = cluster.ctl(&["member", "update", name, "--peer-urls", &peer_url(&cluster.members[0])]);
    assert!(said.code == Some(0) && said.stdout.contains(" updated in cluster "), "{said:?}");
    let said = cluster.ctl(&["member", "promote", name]);
    assert!(said.code == Some(1) && said.stderr.contains("can only promote a learner member"), "{said:?}");
    let said = cluster.ctl(&["alarm", "disarm", name]);
    assert!(said.code == Some(0) && said.stdout.is_empty(), "{said:?}");
    let leader = block_on(client_of(&cluster.members).status()).expect("says").leader;
    let to = cluster.listed().into_iter().find(|it| it.id != leader).expect("another");
    let said = cluster.ctl(&["move-leader", &to.name]);
    assert!(said.code == Some(0) && said.stdout.contains(&format!(" to {:x}", to.id)), "{said:?}");
    let said = cluster.ctl(&["member", "remove", "nobody"]);
    assert!(said.code == Some(128) && said.stderr.contains("no member has the name \"nobody\"; the members are "));
    let said = cluster.ctl(&["member", "remove", "abc"]);
    assert!(said.code == Some(1) && said.stderr.contains("etcdserver: member not found: none has the id or the name"));
    let json = cluster.ctl(&["member", "list", "-w", "json", "--hex"]);
    let page: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!(page["quorum"]["mayFail"], 1, "{page}");
    assert_eq!(page["members"].as_array().expect("a list").len(), 3);
    assert!(page["members"][0]["state"] == "serves" && page["members"][0]["entriesBehind"].is_number(), "{page}");
    let stock = cluster.ctl(&["member", "list", "--status=false"]);
    assert!(stock.stdout.lines().all(|line| line.split(", ").count() == 6), "{stock:?}");
    let stock = cluster.ctl(&["member", "replace", "x"]);
    assert_eq!(stock.code, Some(128), "{stock:?}");
}

fn peer_url(member: &Member) -> String {
    format!("http://127.0.0.1:{}", member.spec.peer_port)
}
