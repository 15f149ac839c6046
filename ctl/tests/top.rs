//! `kvorum ctl top` under a terminal of 80 by 24: what a person sees, and that
//! the terminal is given back. With `KVORUM_TEST_ETCD` a real etcd behind TLS is
//! looked at, too.

mod live;

use live::{certs::Authority, person::Person, programs, start_encrypted};
use portable_pty::CommandBuilder;

fn top(columns: u16, words: &[&str]) -> Person {
    let mut command = CommandBuilder::new(live::ours().with_file_name("kvorum-ctl"));
    command.args(["top", "--interval", "200ms"]);
    command.args(words);
    Person::starts(command, columns)
}

/// Nobody listens on this port.
const DOWN: [&str; 4] = ["--endpoints", "127.0.0.1:1", "--command-timeout", "200ms"];

#[test]
fn a_member_that_is_down_is_shown_and_q_ends_it() {
    let mut person = top(80, &DOWN);
    // One round of drawing may come in several pieces.
    person.sees(&["down", "Enter look into"]);
    let contents = person.contents();
    assert!(contents.starts_with("0/1 up  leader nobody  term 0"), "{contents}");
    assert!(contents.contains("NAME         ROLE      LAG      LATENCY    WRITES/S  READS/S"), "{contents}");
    assert!(contents.trim_end().ends_with("q quit  s sort:NAME  r reverse  Enter look into"), "{contents}");
    assert!(person.has_given_screen());
    person.types("q");
    assert_eq!(person.ends(), 0);
    assert!(person.has_terminal_back());
}

#[test]
fn a_signal_ends_it_and_the_terminal_is_as_it_was() {
    for (signal, code) in [("TERM", 143), ("HUP", 129), ("INT", 130)] {
        let mut person = top(80, &DOWN);
        // One round of drawing may come in several pieces.
        person.sees(&["down", "Enter look into"]);
        person.signals(signal);
        assert_eq!(person.ends(), code, "{signal}");
        assert!(person.has_terminal_back(), "{signal}");
    }
}

#[test]
fn metrics_are_read_with_the_certificates_of_the_flags() {
    let Some(folder) = programs() else { return };
    let authority = Authority::new();
    authority.issue("server", &["127.0.0.1"]);
    authority.issue("client", &["ann"]);
    let server = start_encrypted(&folder.join("etcd"), &authority);
    let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(|file| authority.file(file));
    let [ca, cert, key] = [&ca, &cert, &key].map(|file| file.to_str().expect("a path of ours"));
    let endpoint = format!("127.0.0.1:{}", server.port);
    let mut person = top(160, &["--endpoints", &endpoint, "--cacert", ca, "--cert", cert, "--key", key]);
    // The whole row, memory and all, is there once two rounds have been made.
    person.waits("the whole row", |person| {
        let contents = person.contents();
        let row = contents.lines().find(|line| line.starts_with("m1 ")).unwrap_or_default();
        row.contains("leader") && row.contains("MB") && !row.split_whitespace().any(|cell| cell == "-")
    });
    person.types("q");
    assert_eq!(person.ends(), 0);
}
