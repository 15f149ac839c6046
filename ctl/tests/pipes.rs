//! Standard output and error that nobody reads any more. Needs nothing but the
//! program itself.

mod live;

use std::process::{Command, ExitStatus, Stdio};

/// Runs the program with both ends closed where they are read.
fn unheard(words: &[&str]) -> ExitStatus {
    let closed = || {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        Stdio::from(writer)
    };
    let mut command = Command::new(live::ours());
    command.args(words).stdin(Stdio::null()).stdout(closed()).stderr(closed());
    command.status().expect("it starts")
}

#[test]
fn an_error_that_nobody_reads_has_its_exit_code_all_the_same() {
    for words in [&["bogus"][..], &["get", "--bogus"], &["help", "bogus"]] {
        assert_eq!(unheard(words).code(), Some(if words[0] == "help" { 0 } else { 1 }), "{words:?}");
    }
    assert_eq!(unheard(&["get"]).code(), Some(128));
}

#[test]
fn output_that_nobody_reads_ends_the_program_like_the_signal() {
    assert_eq!(unheard(&["version"]).code(), Some(141));
    assert_eq!(unheard(&["help"]).code(), Some(141));
}
