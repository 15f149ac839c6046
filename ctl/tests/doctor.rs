//! `kvorum ctl doctor` at clusters: none, three members, two of them, one. The
//! servers are those of `KVORUM_TEST_ETCD` and `KVORUM_TEST_SERVER`.

mod live;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

fn ours() -> PathBuf {
    live::ours().with_file_name("kvorum-ctl")
}

/// Exit code and page.
fn doctor(endpoints: &str, more: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(ours());
    command.args(["doctor", "--endpoints", endpoints, "--command-timeout", "3s"]).args(more);
    let output = command.output().expect("it starts");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn nobody_is_an_error() {
    let (code, page) = doctor("127.0.0.1:1", &["--command-timeout", "300ms"]);
    assert_eq!(code, Some(2), "{page}");
    assert!(page.starts_with("ERROR    Nobody answers. http://127.0.0.1:1: Connection refused."), "{page}");
    let (code, page) = doctor("127.0.0.1:1", &["--command-timeout", "300ms", "-w", "json"]);
    assert_eq!(code, Some(2), "{page}");
    assert!(page.contains(r#""findings":[{"level":"error","code":"no-answer""#), "{page}");
}

#[test]
fn members_that_die_are_missed() {
    let etcd = live::programs().map(|programs| (programs.join("etcd"), None));
    let kvorum = std::env::var_os("KVORUM_TEST_SERVER").map(|server| (PathBuf::from(server), Some("server")));
    for (program, sub) in etcd.into_iter().chain(kvorum) {
        a_cluster_of_three(&program, sub);
    }
}

fn a_cluster_of_three(program: &Path, sub: Option<&str>) {
    let mut servers = live::start_three(program, sub);
    let endpoint = format!("127.0.0.1:{}", servers[0].port);
    // All are well: nothing of this waits for the limit.
    let (code, page) = doctor(&endpoint, &["--command-timeout", "60s"]);
    assert!(page.starts_with("3 of 3 voters answer, 2 needed; "), "{page}");
    assert!(page.contains("  3 members have the same data: hash "), "{page}");
    // A slow disk under the tests is not what this is about.
    assert!(code == Some(0) || page.contains("[disk-slow]"), "{page}");
    servers[2].kill();
    let (code, page) = doctor(&endpoint, &[]);
    assert_eq!(code, Some(2), "{page}");
    assert!(
        page.contains("[no-spare]") && page.contains("does not answer: Connection refused.  [member-down]"),
        "{page}"
    );
    assert!(page.contains(" member add m2 --peer-urls="), "{page}");
    servers[1].kill();
    let (code, page) = doctor(&endpoint, &[]);
    assert_eq!(code, Some(2), "{page}");
    assert!(page.contains("There is no quorum: 1 of 3 voters answer and 2 are needed."), "{page}");
}
