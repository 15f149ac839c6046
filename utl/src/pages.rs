//! `help`, `man` and `completion`: what is made from the table of commands.

use crate::call::{Call, Command, Failure, STOCK};
use crate::etcd::go_text;
use cobra::complete::answer;
use cobra::man::{self, Manual};
use std::path::Path;

/// What the table does not say. As `etcdutl` there are no manual pages.
pub const MANUAL: Manual = Manual {
    version: concat!("kvorum ", env!("CARGO_PKG_VERSION")),
    names: &[],
    variable: None,
    codes: &[
        ("0", "done"),
        ("1", "it could not be done, or the words do not fit"),
        ("4", "no such output form"),
        ("128", "the arguments do not fit the command"),
    ],
    sister: "kvorum-ctl",
};

/// The page of the root, or of the command that the words name.
pub fn help(call: &Call) -> Result<(), Failure> {
    match cobra::topic(call.root(), call.args()) {
        Err(path) if call.root().name != STOCK => {
            return Err(Failure::new(cobra::unknown_command(&path, &call.args()[path.len() - 1])));
        }
        Err(path) if path.len() == 1 => eprintln!("{}", cobra::help::unknown_topic(path[0], call.args())),
        Ok(path) | Err(path) => print!("{}", cobra::help::help(&path)),
    }
    Ok(())
}

pub fn manual(call: &Call) -> Result<(), Failure> {
    let path = cobra::topic(call.root(), call.args()).map_err(|path| {
        let word = &call.args()[path.len() - 1];
        Failure::bad_arguments(format!("{} has no command {word}", cobra::path_words(&path)))
    })?;
    let folder = call.text("out");
    if folder.is_empty() {
        print!("{}", man::page(&MANUAL, &path));
        return Ok(());
    }
    let pages = man::write(&MANUAL, &path, Path::new(folder))
        .map_err(|(what, error)| Failure::new(format!("cannot write {}: {}", what.display(), go_text(&error))))?;
    println!("{pages} pages in {folder}");
    Ok(())
}

pub fn completion(call: &Call) -> Result<(), Failure> {
    let (shell, program) = (&call.args()[0], call.root().name);
    let unknown = || Failure::Usage(format!("invalid argument {} for \"{program} completion\"", cobra::quote(shell)));
    print!("{}", cobra::script(shell, program).ok_or_else(unknown)?);
    Ok(())
}

/// Answers a script: the words so far, the last of them unfinished.
pub fn complete(root: &'static Command, words: &[String], describe: bool) {
    let (answer, directive) = answer(root, words, describe, &|_, _, _| None);
    print!("{answer}");
    eprintln!("Completion ended with directive: {directive}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::root;

    #[test]
    fn what_can_follow_comes_from_the_table() {
        let ask = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_string).collect();
            answer(root("kvorum utl"), &words, false, &|_, _, _| None).0.replace('\n', " ")
        };
        let cases = [
            ("ver", "verify version :4 "),
            ("snapshot ", "restore status :4 "),
            ("snapshot restore ", ":0 "),
            ("snapshot restore --data", "--data-dir :4 "),
            ("snapshot restore --data-dir ", ":0 "),
            ("--timeout 5s -w ta", "table :4 "),
            ("hashkv a.db --write-out=j", "json :4 "),
            ("completion z", "zsh :4 "),
            ("man snap", "snapshot :4 "),
            // A word that is no command leads nowhere.
            ("nothing ", ":0 "),
        ];
        for (line, expected) in cases {
            assert_eq!(ask(line), expected, "{line}");
        }
    }

    #[test]
    fn every_command_has_a_page() {
        let pages = man::pages(&MANUAL, &[root("kvorum utl")]);
        for name in ["kvorum-utl.1", "kvorum-utl-snapshot-restore.1", "kvorum-utl-verify.1"] {
            let (_, text) = pages.iter().find(|(page, _)| page == name).unwrap_or_else(|| panic!("no {name}"));
            for heading in [".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS", ".SH \"SEE ALSO\""] {
                assert!(text.contains(heading), "{name} has no {heading}: {text}");
            }
        }
        let hashkv = &pages.iter().find(|(page, _)| page == "kvorum-utl-hashkv.1").expect("a page").1;
        let synopsis = ".SH SYNOPSIS\n\\fBkvorum utl hashkv\\fR <filename> [flags]\n";
        assert!(hashkv.contains(synopsis), "{hashkv}");
        assert!(hashkv.contains("\\fB\\-\\-rev\\fR\\fI int\\fR\nmaximum revision to hash"), "{hashkv}");
        assert!(pages.iter().all(|(_, text)| !text.contains("etcdutl\\-")), "a page under the stock name");
    }
}
