//! Golden scripts of whole members: commands, `---`, what came of it. `REWRITE=1` writes the
//! outcome into the files; read the diff before you keep it.
//!
//! A script drives a cluster without faults: jobs are done at once, frames arrive in order.
//! The simulator is where disks and networks misbehave; here one reads how a member behaves.

#[path = "../../disk/tests/support/mod.rs"]
#[allow(dead_code)]
mod support;
mod village;

use std::path::Path;
use village::Village;

#[test]
fn scripts_tell_what_members_do() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut names: Vec<_> =
        std::fs::read_dir(&folder).expect("scripts").map(|entry| entry.expect("entry").path()).collect();
    names.sort();
    // ONLY=word runs the scripts with that word in their name.
    let only = std::env::var("ONLY").unwrap_or_default();
    names.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(&only)));
    assert!(!names.is_empty());
    for path in names {
        let text = std::fs::read_to_string(&path).expect("readable");
        let told = run(&text);
        if std::env::var_os("REWRITE").is_some() {
            std::fs::write(&path, told).expect("writable");
        } else {
            assert_eq!(text, told, "{} tells another story (REWRITE=1 rewrites it)", path.display());
        }
    }
}

/// Blocks are parted by empty lines: comments, commands, `---`, outcome.
fn run(text: &str) -> String {
    let mut village = Village::default();
    let mut told = Vec::new();
    for block in text.trim_end().split("\n\n") {
        let commands = block.split("\n---").next().expect("a block");
        let mut outcome = String::new();
        for line in commands.lines().filter(|line| !line.starts_with('#')) {
            outcome.push_str(&village.command(line));
        }
        if outcome.is_empty() {
            outcome.push_str("(nothing)");
        }
        let only_comments = commands.lines().all(|line| line.starts_with('#'));
        told.push(if only_comments {
            commands.to_string()
        } else {
            format!("{commands}\n---\n{}", outcome.trim_end())
        });
    }
    told.join("\n\n") + "\n"
}
