//! `kvorum ctl member replace` and names of members on three real etcds. The new member is started
//! with what the command prints. Needs `KVORUM_TEST_ETCD`; on our own server it is tried in
//! `kvorum/tests/replace.rs`.

mod live;

use std::{
    io::{BufRead, BufReader, Read},
    process::{Command, Stdio},
};

use live::{Cluster, ours, programs};

fn ctl(words: &[&str]) -> Command {
    let endpoints = [0, 1, 2].map(Cluster::client).join(",");
    let mut command = Command::new(ours().with_file_name("kvorum-ctl"));
    command.args(words).args(["--endpoints", &endpoints]);
    command
}

/// Exit code, standard output, standard error.
fn said(words: &[&str]) -> (Option<i32>, String, String) {
    let output = ctl(words).output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_member_of_real_etcds_is_replaced() {
    let Some(folder) = programs() else { return };
    let mut cluster = Cluster::found(&folder.join("etcd"));
    let (code, list, _) = said(&["member", "list"]);
    assert!(code == Some(0) && list.starts_with("3 of 3 voters serve, 2 needed: one may fail; "), "{list}");
    let (code, _, error) = said(&["move-leader", "m9"]);
    assert!(code == Some(128) && error.contains("no member has the name \"m9\"; the members are m"), "{error}");

    let url = format!("http://{}", Cluster::peer(3));
    let mut command = ctl(&["member", "replace", "m2", &url, "--name", "m3", "--timeout", "60s"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let members = lines.by_ref().find_map(|line| {
        let line = line.expect("text");
        line.strip_prefix("ETCD_INITIAL_CLUSTER=\"").map(|rest| rest.trim_end_matches('"').to_owned())
    });
    let Some(members) = members else {
        let mut error = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut error).expect("text");
        panic!("it does not say how the member is started: {error}");
    };
    cluster.join(3, &members);
    let rest: Vec<String> = lines.map(|line| line.expect("text")).collect();
    let status = child.wait().expect("it ends");
    assert!(status.success(), "{rest:?}");
    assert!(
        rest.last().is_some_and(|line| line.starts_with("m3 (") && line.contains("in the place of m2")),
        "{rest:?}"
    );
    let (code, list, _) = said(&["member", "list", "--status=false"]);
    let names: Vec<&str> = list.lines().filter_map(|line| line.split(", ").nth(2)).collect();
    assert_eq!((code, names.len(), names.contains(&"m2")), (Some(0), 3, false), "{list}");
}
