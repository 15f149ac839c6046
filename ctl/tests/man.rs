//! The manual pages as files, read by `groff` with all its warnings where it
//! is installed.

mod live;

use std::{collections::BTreeSet, process::Command};

#[test]
fn the_pages_of_all_commands_are_written_without_a_warning() {
    let program = live::ours().with_file_name("kvorum-ctl");
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("man1");
    let run = |words: &[&str]| {
        let output = Command::new(&program).args(words).output().expect("it starts");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = run(&["man", "--out", &out.to_string_lossy()]);
    let files: BTreeSet<_> =
        std::fs::read_dir(&out).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    assert_eq!(said, format!("{} pages in {}\n", files.len(), out.display()));
    let grant = std::fs::read_to_string(out.join("kvorum-ctl-lease-grant.1")).expect("a page");
    assert_eq!(run(&["man", "lease", "grant"]), grant);
    for file in &files {
        let Ok(output) = Command::new("groff").args(["-man", "-ww", "-z", "-Tutf8"]).arg(file).output() else { return };
        let warnings = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && warnings.is_empty(), "{warnings}");
    }
}

#[test]
fn a_page_that_is_none_is_refused() {
    let program = live::ours().with_file_name("kvorum-ctl");
    let output = Command::new(program).args(["man", "lease", "bogus"]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(128));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "Error: kvorum ctl lease has no command bogus\n");
    let stock = Command::new(live::ours()).arg("man").output().expect("it starts");
    assert!(String::from_utf8_lossy(&stock.stderr).contains("unknown command \"man\" for \"etcdctl\""));
}
