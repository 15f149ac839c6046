//! `man`: the manual pages. Only `kvorum ctl` has them.

use std::path::Path;

use cobra::{
    Flag,
    man::{self, Manual},
};

use super::headings::PEOPLE;
use crate::{
    call::{Call, Command},
    env,
    exit::{Failure, IO, Outcome, system_words},
};

/// The row of the table.
pub const MAN: Command = Command {
    name: "man",
    usage: "man [options] [command]",
    group: PEOPLE,
    short: "Writes manual pages",
    long: "Writes the manual page of a command, or of the program, to standard output; with
--out the pages of it and of every command below it to a directory.",
    examples: "  # To read one
  kvorum ctl man lease grant | man -l -

  # For all users of this machine
  kvorum ctl man --out /usr/local/share/man/man1",
    flags: &[Flag::text("out", "", "directory for one file for each page")],
    topics: true,
    run: Some(run),
    ..Command::NONE
};

/// What the table does not say.
pub const MANUAL: Manual = Manual {
    version: concat!("kvorum ", env!("CARGO_PKG_VERSION")),
    // The texts of the table are those of the stock tool, with its name.
    names: &[
        ("etcdctl ", "kvorum ctl "),
        ("completion.d/etcdctl", "completion.d/kvorum"),
        ("/_etcdctl", "/_kvorum"),
        ("/etcdctl.fish", "/kvorum.fish"),
    ],
    variable: Some(env::variable),
    codes: &[
        ("0", "done"),
        ("1", "the server refused, time ran out, or the words do not fit"),
        ("2", "no client could be made: no endpoints, no token"),
        ("3", "standard input of txn or watch -i cannot be understood"),
        ("4", "no such output form, or a value that a flag does not know"),
        ("5", "ended before it was done: a watch by the server, a snapshot"),
        ("6", "a file or pipe failed"),
        ("128", "the arguments do not fit the command; a certificate file cannot be opened"),
    ],
    sister: "kvorum-utl",
};

fn run(call: &Call) -> Outcome {
    let path = cobra::topic(call.path[0], &call.args).map_err(|path| {
        let word = &call.args[path.len() - 1];
        Failure::bad_args(format!("{} has no command {word}", cobra::path_words(&path)))
    })?;
    if !call.changed("out") {
        return crate::say(&man::page(&MANUAL, &path));
    }
    let folder = Path::new(call.text("out"));
    let pages = man::write(&MANUAL, &path, folder).map_err(|(what, error)| {
        Failure::new(IO, format!("cannot write {}: {}", what.display(), system_words(&error)))
    })?;
    crate::say(&format!("{pages} pages in {}\n", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::root;

    #[test]
    fn every_command_has_a_page() {
        let pages = man::pages(&MANUAL, &[root("kvorum ctl")]);
        let names: Vec<&str> = pages.iter().map(|(name, _)| &name[..]).collect();
        for name in ["kvorum-ctl.1", "kvorum-ctl-get.1", "kvorum-ctl-lease-grant.1", "kvorum-ctl-browse.1"] {
            assert!(names.contains(&name), "{name} is not in {names:?}");
        }
        let mut once = names.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), names.len());
        for (name, text) in &pages {
            for heading in [".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH OPTIONS", ".SH \"SEE ALSO\""] {
                assert!(text.contains(heading), "{name} has no {heading}\n{text}");
            }
            let stock = if name.contains("completion") { "etcdctl" } else { "etcdctl " };
            assert!(!text.contains(stock), "{name} speaks of the stock tool");
        }
    }

    #[test]
    fn a_page() {
        let root = root("kvorum ctl");
        let lease = root.sub("lease").expect("a command");
        let text = man::page(&MANUAL, &[root, lease, lease.sub("grant").expect("a command")]);
        let head = text.split_once(".SH NAME\n").expect("a name").1;
        let expected = "kvorum\\-ctl\\-lease\\-grant \\- Grants a lease of so many seconds\n.SH SYNOPSIS\n\
                        \\fBkvorum ctl lease grant\\fR <ttl>\n";
        assert!(head.starts_with(expected), "{head}");
        assert!(head.contains(".SH \"SEE ALSO\"\nkvorum\\-ctl(1), kvorum\\-ctl\\-lease(1)\n"), "{head}");
        let compaction = man::page(&MANUAL, &[root, root.sub("compaction").expect("a command")]);
        let option = ".TP\n\\fB\\-\\-physical\\fR\nwait until the old revisions are removed for good\n";
        assert!(compaction.contains(option), "{compaction}");
        let whole = man::page(&MANUAL, &[root]);
        assert!(whole.contains(".TP\n\\fBETCDCTL_WRITE_OUT\\fR\n\\-\\-write\\-out\n"), "{whole}");
        assert!(whole.contains("\\fB\\-w, \\-\\-write\\-out\\fR\\fI string\\fR\n"), "{whole}");
    }
}
