//! `man`: the manual pages. Only `kvorum ctl` has them.

use std::{fs, path::Path};

use super::{Command, PEOPLE};
use crate::{
    call::Call,
    exit::{Failure, IO, Outcome, system_words},
    flags::Flag,
    help, man,
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
    run: Some(run),
    ..Command::NONE
};

fn run(call: &Call) -> Outcome {
    let mut path = vec![call.path[0]];
    for word in &call.args {
        let Some(sub) = path.last().expect("begins with the program").sub(word) else {
            return Err(Failure::bad_args(format!("{} has no command {word}", help::path_words(&path))));
        };
        path.push(sub);
    }
    if !call.changed("out") {
        return crate::say(&man::page(&path));
    }
    let folder = Path::new(call.text("out"));
    let failed = |what: &Path, error: std::io::Error| {
        Failure::new(IO, format!("cannot write {}: {}", what.display(), system_words(&error)))
    };
    fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
    let pages = man::pages(&path);
    for (name, text) in &pages {
        let file = folder.join(name);
        fs::write(&file, text).map_err(|e| failed(&file, e))?;
    }
    crate::say(&format!("{} pages in {}\n", pages.len(), folder.display()))
}
