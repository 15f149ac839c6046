//! Colours and hints: on a terminal, and only under our own name. Nobody
//! listens at the endpoint.

mod live;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use live::person::Person;
use portable_pty::CommandBuilder;

const WORDS: [&str; 7] = ["endpoint", "health", "-w", "table", "--endpoints=127.0.0.1:1", "--command-timeout", "200ms"];

fn ours() -> PathBuf {
    live::ours().with_file_name("kvorum-ctl")
}

/// Everything that a terminal of 80 columns is sent.
fn seen(program: &Path, words: &[&str], variables: &[(&str, &str)]) -> String {
    let mut command = CommandBuilder::new(program);
    command.args(words);
    command.env_remove("NO_COLOR");
    command.env("TERM", "xterm");
    variables.iter().for_each(|(name, value)| command.env(name, value));
    let mut person = Person::starts(command, 80);
    person.ends();
    person.said()
}

/// Standard output and error, piped.
fn piped(program: &Path, words: &[&str]) -> (String, String) {
    let output = Command::new(program).args(words).output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn people_see_colours_and_hints() {
    let page = seen(&ours(), &WORDS, &[]);
    assert!(page.contains("\x1b[1;31mfalse\x1b[0m"), "{page}");
    assert!(page.contains("hint: a quorum"), "{page}");
    for (flag, variables) in [("--color=auto", &[("NO_COLOR", "1")][..]), ("--color=never", &[])] {
        let words = [&WORDS[..], &[flag, "--hints=false"]].concat();
        let page = seen(&ours(), &words, variables);
        assert!(page.contains("false") && !page.contains('\x1b') && !page.contains("hint:"), "{page}");
    }
}

#[test]
fn the_stock_tool_has_neither() {
    let page = seen(&live::ours(), &WORDS, &[]);
    assert!(page.contains("false") && !page.contains('\x1b') && !page.contains("hint:"), "{page}");
}

#[test]
fn pipes_get_what_the_stock_tool_writes() {
    // How long it took is not the same twice.
    let words = ["endpoint", "status", "-w", "table", "--endpoints=127.0.0.1:1", "--command-timeout", "200ms"];
    assert_eq!(piped(&ours(), &words), piped(&live::ours(), &words));
    let (table, errors) = piped(&ours(), &[&words[..], &["--color=always", "--hints"]].concat());
    assert!(table.contains("\x1b[1m ENDPOINT \x1b[0m"), "{table}");
    assert!(errors.lines().last().is_some_and(|line| line.starts_with("hint: nobody listens there")), "{errors}");
}
