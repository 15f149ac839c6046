//! Transcripts on a cluster of three: the files in `clusters/*.txt` are run with
//! the stock tool and then with ours, each time on a new cluster of real etcds at
//! the same addresses, and both must have said the same.
//!
//! `$c0` is where member 0 serves clients, `$p0` where it serves other members,
//! `$id0` its id; a request goes to `$c0` if nothing else is said. Lines that
//! begin with `%` are done by the test:
//!
//! ```text
//! % lead 0          member 0 becomes the leader
//! % kill 2          member 2 dies
//! % join 3          member 3, which was added, is started
//! ```
//!
//! Needs `KVORUM_TEST_ETCD`.

mod live;
mod transcript;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use live::{Cluster, PATIENCE, ours, programs};
use transcript::{Case, Run, Said, difference, files, masked, parse};

/// Members that a case file may name.
const NAMED: usize = 10;

/// A cluster while a file is run on it.
struct Stage {
    cluster: Cluster,
    etcdctl: PathBuf,
}

impl Stage {
    fn new(folder: &Path) -> Stage {
        let stage = Stage { cluster: Cluster::found(&folder.join("etcd")), etcdctl: folder.join("etcdctl") };
        (0..3).for_each(|at| stage.settle(at));
        stage
    }

    /// Waits for what `at` tells of itself: a new etcd moves its storage to its own version seconds
    /// after it serves.
    fn settle(&self, at: usize) {
        let minor = |version: &str| version.rsplit_once('.').map(|(minor, _)| minor.to_owned());
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.answer(&Cluster::client(at), "endpoint status");
            let mut fields = status.split(", ").skip(2).map(minor);
            if fields.next() == fields.next() {
                return;
            }
            assert!(Instant::now() < deadline, "the storage has another version than the member: {status}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The stock tool's answer, as soon as there is one.
    fn answer(&self, endpoints: &str, line: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut command = Command::new(&self.etcdctl);
            let output = command.args(line.split(' ')).env("ETCDCTL_ENDPOINTS", endpoints).output().expect("it ends");
            if output.status.success() {
                return String::from_utf8_lossy(&output.stdout).into_owned();
            }
            assert!(Instant::now() < deadline, "{line}: {}", String::from_utf8_lossy(&output.stderr));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn founders() -> String {
        [0, 1, 2].map(Cluster::client).join(",")
    }

    /// Id, name and URL of each member.
    fn members(&self) -> Vec<(String, String, String)> {
        let list = self.answer(&Stage::founders(), "member list");
        let member = |line: &str| {
            let mut columns = line.split(", ").map(str::to_owned);
            let mut next = || columns.next().unwrap_or_default();
            let (id, _, name, url) = (next(), next(), next(), next());
            (id, name, url)
        };
        list.lines().map(member).collect()
    }

    /// What was said, and the values under the names of the cases.
    fn run(&mut self, program: &Path, cases: &[Case]) -> (Vec<Said>, BTreeMap<String, String>) {
        let mut run = Run::at(program, &Cluster::client(0));
        for at in 0..NAMED {
            run.kept.insert(format!("$c{at}"), Cluster::client(at));
            run.kept.insert(format!("$p{at}"), Cluster::peer(at));
        }
        for (id, name, _) in self.members() {
            run.kept.insert(format!("$id{}", name.trim_start_matches('m')), id);
        }
        let mut said = Vec::new();
        for case in cases {
            match &case.deed {
                Some(deed) => self.perform(deed),
                None => said.push(run.say(case)),
            }
        }
        (said, run.kept)
    }

    fn perform(&mut self, deed: &str) {
        let (what, at) = deed.split_once(' ').expect("a deed and a member");
        let at: usize = at.parse().expect("the number of a member");
        match what {
            "lead" => self.lead(at),
            "kill" => self.cluster.kill(at),
            "join" => {
                let named = |(_, name, url)| {
                    if name == String::new() { format!("m{at}={url}") } else { format!("{name}={url}") }
                };
                let members: Vec<String> = self.members().into_iter().map(named).collect();
                self.cluster.join(at, &members.join(","));
            }
            other => panic!("nobody knows how to {other}"),
        }
    }

    fn lead(&self, at: usize) {
        let leads = || {
            let status = self.answer(&Cluster::client(at), "endpoint status");
            status.split(", ").nth(8) == Some("true")
        };
        while !leads() {
            let id = &self.members().into_iter().find(|(_, name, _)| *name == format!("m{at}")).expect("it is there").0;
            self.answer(&Stage::founders(), &format!("move-leader {id}"));
        }
    }
}

#[test]
fn on_three_members_our_tool_says_what_the_stock_tool_says() {
    let Some(folder) = programs() else { return };
    let mut differences = Vec::new();
    for (file, cases) in files("clusters") {
        let expected = said_of(&folder, &folder.join("etcdctl"), &cases);
        let said = said_of(&folder, &ours(), &cases);
        let spoken = cases.iter().filter(|case| case.deed.is_none());
        let pairs = spoken.zip(expected.iter().zip(&said));
        differences.extend(
            pairs
                .filter_map(|(case, (expected, said))| difference(case, expected, said))
                .map(|text| format!("{file}: {text}")),
        );
        show(&cases, &expected);
    }
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
}

/// What `program` says on a new cluster. etcd draws the id of a member that joins, and one of
/// sixteen has a digit less: columns are narrower then. Both programs are shown ids of one length.
fn said_of(folder: &Path, program: &Path, cases: &[Case]) -> Vec<Said> {
    loop {
        let mut stage = Stage::new(folder);
        let (said, kept) = stage.run(program, cases);
        if ids_are_whole(&kept) {
            return said;
        }
    }
}

/// Whether each id that a case kept has its sixteen digits. Those of the founders follow from their
/// addresses, and are the same for both programs.
fn ids_are_whole(kept: &BTreeMap<String, String>) -> bool {
    let drawn = kept.iter().filter(|(name, _)| !name.starts_with("$id")).map(|(_, value)| value);
    drawn.filter(|value| value.bytes().all(|b| b.is_ascii_hexdigit())).all(|id| id.len() == 16)
}

#[test]
fn an_id_with_a_digit_less_is_drawn_again() {
    let kept = |id: &str| {
        let pairs = [("$c0", "127.0.0.1:2379"), ("$p0", "127.0.0.1:2380"), ("$id0", "8e9e05c52164694d"), ("$L", id)];
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    };
    assert!(ids_are_whole(&kept("e9e05c52164694d1")));
    assert!(!ids_are_whole(&kept("e9e05c52164694d")));
    let founder = BTreeMap::from([("$id0".to_owned(), "e9e05c52164694d".to_owned())]);
    assert!(ids_are_whole(&founder), "it would be the same again");
}

/// What the stock tool said, for whoever writes a case: `KVORUM_TEST_SHOW=1` and
/// `--nocapture`.
fn show(cases: &[Case], said: &[Said]) {
    if std::env::var_os("KVORUM_TEST_SHOW").is_some() {
        let spoken = cases.iter().filter(|case| case.deed.is_none());
        spoken.zip(said).for_each(|(case, said)| println!("{}\n{said:#?}", case.text));
    }
}

#[test]
fn an_id_is_masked_whatever_its_length() {
    let kept = |id: &str| BTreeMap::from([("$N".to_owned(), id.to_owned())]);
    for id in ["8e9e05c52164694d", " e9e05c52164694d"] {
        let said = format!("Member {id} added to cluster 8e9e05c52164694d");
        assert_eq!(masked(&said, &BTreeMap::new()), "Member # added to cluster #\n");
        let own = id.trim();
        assert_eq!(masked(&said.replace("8e9e05c52164694d", own), &kept(own)).matches("$N").count(), 2);
        assert_eq!(masked(&format!("│ {own:<16} │ started │"), &kept(own)), "│ $N │ started │\n");
    }
}

#[test]
fn lines_of_a_case_file_are_read() {
    assert_eq!(parse("% kill 2").deed.as_deref(), Some("kill 2"));
    assert!(parse("* = member list").deed.is_none());
}
