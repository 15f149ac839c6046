//! `kvorum man`, `kvorum completion`, and what the shells ask (`__complete`).

use crate::tree::{self, Part};
use cobra::{complete, man};
use std::path::Path;

/// Answers a shell that asks what can follow the words, unless they belong to a program that knows
/// more than its table (`ctl` asks the store) or are no such question.
pub(crate) fn asked(args: &[String]) -> Option<i32> {
    let at = args.iter().take(2).position(|word| ["__complete", "__completeNoDesc"].contains(&word.as_str()))?;
    if at == 1 && ["ctl", "utl"].contains(&args[0].as_str()) {
        return None;
    }
    let words = [&args[..at], &args[at + 1..]].concat();
    let (answer, directive) = complete::answer(tree::root(), &words, args[at] == "__complete", &|_, _, _| None);
    print!("{answer}");
    eprintln!("Completion ended with directive: {directive}");
    Some(0)
}

/// The script for a shell.
pub(crate) fn script(shell: &str) -> i32 {
    print!("{}", cobra::script(shell, "kvorum ctl").expect("clap lets only known shells through"));
    0
}

/// The page of a command, or all pages from it on as files of a directory.
pub(crate) fn manual(out: Option<&Path>, words: &[String]) -> i32 {
    let done = match (out, words) {
        (None, []) => Ok(man::page(&tree::manual(), &[tree::root()])),
        (Some(folder), []) => whole(folder),
        (out, words) => of_part(out, words),
    };
    match done {
        Ok(text) => {
            print!("{text}");
            0
        }
        Err(failed) => {
            eprintln!("kvorum man: {failed}");
            1
        }
    }
}

/// Why there is no page.
#[derive(Debug)]
enum Failed {
    NoSuch(String),
    Write(std::path::PathBuf, std::io::Error),
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failed::NoSuch(text) => f.write_str(text),
            Failed::Write(what, why) => write!(f, "cannot write {}: {why}", what.display()),
        }
    }
}

/// The page of the binary, and those of every program.
fn whole(folder: &Path) -> Result<String, Failed> {
    let failed = |(what, why)| Failed::Write(what, why);
    let mut pages = 0;
    for Part { root, manual, .. } in tree::parts() {
        pages += man::write(&manual, &[root], folder).map_err(failed)?;
    }
    let own = folder.join("kvorum.1");
    let text = man::page(&tree::manual(), &[tree::root()]);
    std::fs::write(&own, text).map_err(|why| Failed::Write(own, why))?;
    let lone = lone()?;
    for (name, text) in &lone {
        let file = folder.join(name);
        std::fs::write(&file, text).map_err(|why| Failed::Write(file, why))?;
    }
    Ok(format!("{} pages in {}\n", pages + 1 + lone.len(), folder.display()))
}

/// The pages of what is no program: `version`, `completion`, `man`.
fn lone() -> Result<Vec<(String, String)>, Failed> {
    let root = tree::root();
    let parts = tree::parts();
    let others = root.shown_subs().into_iter().filter(|sub| !parts.iter().any(|part| part.word == sub.name));
    Ok(others.flat_map(|sub| man::pages(&tree::manual(), &[root, sub])).collect())
}

fn of_part(out: Option<&Path>, words: &[String]) -> Result<String, Failed> {
    let part = tree::parts().into_iter().find(|part| part.word == words[0]);
    let (manual, path) = match part {
        Some(part) => (part.manual, cobra::topic(part.root, &words[1..]).map_err(|path| (path, 1))),
        None => (tree::manual(), cobra::topic(tree::root(), words).map_err(|path| (path, 0))),
    };
    // A program's own name takes the first word.
    let path =
        path.map_err(|(path, taken)| Failed::NoSuch(cobra::unknown_command(&path, &words[path.len() - 1 + taken])))?;
    let Some(folder) = out else { return Ok(man::page(&manual, &path)) };
    let pages = man::write(&manual, &path, folder).map_err(|(what, why)| Failed::Write(what, why))?;
    Ok(format!("{pages} pages in {}\n", folder.display()))
}
