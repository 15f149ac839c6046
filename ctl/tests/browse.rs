//! `kvorum ctl browse`: what a person sees under a terminal of 80 by 24 and
//! what a pipe gets. Reading keys needs `KVORUM_TEST_ETCD`; with
//! `KVORUM_TEST_SERVER` our own server is read too.

mod live;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use live::person::Person;
use portable_pty::CommandBuilder;

/// Our program under its own name, which cargo has built beside us.
fn ours() -> PathBuf {
    live::ours().with_file_name("kvorum-ctl")
}

fn sits_down(words: &[&str]) -> Person {
    let mut command = CommandBuilder::new(ours());
    command.args(words);
    Person::starts(command, 80)
}

fn leaves(mut person: Person) {
    assert!(person.has_given_screen());
    person.types("q");
    assert_eq!(person.ends(), 0);
    assert!(person.has_terminal_back());
}

/// Nobody listens on this port.
const DOWN: [&str; 5] = ["browse", "--endpoints", "127.0.0.1:1", "--command-timeout", "200ms"];

#[test]
fn a_cluster_that_is_down_is_told_and_q_ends_it() {
    let mut person = sits_down(&DOWN);
    person.sees(&["all keys  reading…", "context deadline exceeded: press r to read again"]);
    person.types("r");
    leaves(person);
}

#[test]
fn a_signal_ends_it_and_the_terminal_is_as_it_was() {
    for (signal, code) in [("TERM", 143), ("HUP", 129)] {
        let mut person = sits_down(&DOWN);
        person.sees(&["press r to read again"]);
        person.signals(signal);
        assert_eq!(person.ends(), code, "{signal}");
        assert!(person.has_terminal_back(), "{signal}");
    }
}

fn ctl(port: u16, words: &[&str]) -> (bool, String, String) {
    let mut command = Command::new(ours());
    command.args(words).args(["--endpoints", &format!("127.0.0.1:{port}")]);
    let output = command.output().expect("it ends");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

fn said(port: u16, words: &[&str]) -> String {
    let (success, out, err) = ctl(port, words);
    assert!(success, "{words:?}: {err}");
    out
}

fn browsed(port: u16) {
    for at in 0..250 {
        said(port, &["put", &format!("/registry/pods/p{at:03}"), "v"]);
    }
    said(port, &["put", "/registry/config", r#"{"colour":{"name":"green"}}"#]);
    said(port, &["put", "zoo", "lion"]);

    let mut person = sits_down(&["browse", "--endpoints", &format!("127.0.0.1:{port}")]);
    person.sees(&["all keys  2 rows  revision 253", "zoo", "251 keys begin like this"]);
    person.types("\r");
    person.sees(&["/  1 row", "registry/"]);
    person.types("\r");
    person.sees(&[
        "/registry/  2 rows",
        "pods/",
        "250",
        "\"colour\": {",
        "JSON, 27 B",
        "created 252  changed 252  version 1",
    ]);
    person.types("j\r");
    person.sees(&["/registry/pods/  ", "p000"]);
    person.types("/p24\r");
    person.sees(&["/registry/pods/  250 rows", "filter: p24  10 found", "p249"]);
    said(port, &["put", "/registry/pods/p24x", "w"]);
    said(port, &["compaction", "254"]);
    person.types("j");
    person.sees(&["revision 253 has been compacted away: press r to read the newest"]);
    person.types("r");
    person.sees(&["revision 254", "p24x"]);
    person.types("h");
    person.sees(&["/registry/  2 rows", "config"]);
    leaves(person);

    let tree = "all keys  (253 keys, revision 254)\n  /  (252 keys)\n    registry/  (252 keys)\n  zoo  (4 B)\n";
    assert_eq!(said(port, &["browse", "--depth", "2", "--sizes"]), tree);
    let cut =
        "/registry/po  (251 keys, revision 254)\n  pods/  (251 keys)\n    p000\n    p001\n    … more (see --limit)\n";
    assert_eq!(said(port, &["browse", "/registry/po", "--depth", "0", "--limit", "2"]), cut);
    let all = said(port, &["browse", "/registry/pods/", "--limit", "0"]);
    assert_eq!(all.lines().count(), 252);
    let json = said(port, &["browse", "-w", "json", "--depth", "0", "--limit", "1", "--sizes"]);
    let expected = r#"{"revision":254,"prefix":"","count":253,"rows":[{"name":"/","key":"Lw==","branch":true,"count":252,"rows":[{"name":"registry/","key":"L3JlZ2lzdHJ5Lw==","branch":true,"count":252,"rows":[{"name":"config","key":"L3JlZ2lzdHJ5L2NvbmZpZw==","size":27}],"more":true}]}],"more":true}"#;
    assert_eq!(json, format!("{expected}\n"));
    let yaml = said(port, &["browse", "-w", "yaml", "--limit", "1"]);
    assert!(yaml.starts_with("---\nrevision: 254\n") && yaml.contains("key: /\n"), "{yaml}");
    let none = said(port, &["browse", "nothing", "-w", "json"]);
    assert_eq!(none, "{\"revision\":254,\"prefix\":\"bm90aGluZw==\",\"count\":0,\"rows\":[]}\n");
}

#[test]
fn keys_are_walked_through_and_written_as_a_tree() {
    let Some(folder) = live::programs() else { return };
    browsed(live::start(&folder.join("etcd"), None).port);
    if let Some(server) = std::env::var_os("KVORUM_TEST_SERVER") {
        browsed(live::start(Path::new(&server), Some("server")).port);
    }
}

#[test]
fn words_that_make_no_sense_are_refused() {
    for (words, error) in [
        (&["browse", "a", "b"][..], "browse takes at most one prefix"),
        (&["browse", "--separator", ""], "--separator must not be empty"),
        (&["browse", "--depth", "-1"], "--depth must not be negative"),
        (&["browse", "--consistency", "x"], "unknown consistency flag \"x\""),
        (&["browse", "-w", "table"], "table not supported as output format"),
    ] {
        let (success, _, err) = ctl(1, words);
        assert!(!success && err.contains(error), "{words:?}: {err}");
    }
}
