//! `browse`: the keys as a tree, a level at a time. Only `kvorum ctl` has it;
//! it reads real etcd as well.
//!
//! | file | what it does |
//! |---|---|
//! | `level` | the rows of one level, found by skipping |
//! | `show`, `kubernetes` | a value or a name for people |
//! | `plan` | what to walk through |
//! | `view`, `screen` | the full screen: what is on it; keys and reads |
//! | `plain` | the tree as lines or JSON |

mod kubernetes;
pub(super) mod level;
mod plain;
mod plan;
mod screen;
mod show;
mod view;

use std::io::IsTerminal;

use cobra::Flag;

use self::plan::Plan;
use super::headings::PEOPLE;
use crate::{
    call::{Call, Command},
    exit::{BAD_FEATURE, Failure, Outcome},
    print::{Format, yaml},
};

/// The row of the table.
pub const BROWSE: Command = Command {
    name: "browse",
    usage: "browse [options] [prefix]",
    group: PEOPLE,
    short: "Walks through the keys as a tree",
    long: "Walks through the keys as a tree, cut at each separator. On a terminal it has the
whole screen; piped, or with --plain, it writes the tree as lines, or as JSON
with -w json or yaml. All reads are of one revision, and what is below a branch is
counted, not read.
Keys: arrows or hjkl move, Enter opens, Backspace goes up, / filters the names,
x shows bytes, r reads anew, q ends.",
    examples: "  # From the top
  kvorum ctl browse

  # What Kubernetes keeps, two levels of it, as lines
  kvorum ctl browse /registry/ --plain --depth 2

  # Largest branches first
  kvorum ctl browse /registry/ -w json | jq '[.rows[] | select(.branch)] | sort_by(-.count)[] | {name, count}'",
    flags: &[
        Flag::text("consistency", "l", "Linearizable(l) or Serializable(s)").choices(&["l", "s"]),
        Flag::int("depth", "1", "levels to write (0: all); with --plain"),
        Flag::int("limit", "1000", "rows to write of each level (0: all); with --plain"),
        Flag::switch("plain", "write lines, even to a terminal"),
        Flag::text("separator", "/", "what ends a name"),
        Flag::switch("sizes", "read the keys' values for their sizes; with --plain"),
    ],
    run: Some(run),
    ..Command::NONE
};

fn run(call: &Call) -> Outcome {
    if call.args.len() > 1 {
        return Err(Failure::bad_args("browse takes at most one prefix"));
    }
    let serializable = match call.text("consistency") {
        "l" => false,
        "s" => true,
        other => return Err(Failure::new(BAD_FEATURE, format!("unknown consistency flag {}", cobra::quote(other)))),
    };
    if call.text("separator").is_empty() {
        return Err(Failure::bad_args("--separator must not be empty"));
    }
    let plan =
        Plan { prefix: call.arg(0).unwrap_or_default().into(), separator: call.text("separator").into(), serializable };
    let client = call.connect()?;
    let format = call.printer()?.format;
    let lines = ["plain", "depth", "limit", "sizes"].iter().any(|flag| call.changed(flag)) || format != Format::Simple;
    let watched = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if watched && !lines {
        return screen::run(call, &client, plan);
    }
    let bound = |name: &str| match usize::try_from(call.int(name)) {
        Ok(0) => Ok(usize::MAX),
        Ok(bound) => Ok(bound),
        Err(_) => Err(Failure::bad_args(format!("--{name} must not be negative"))),
    };
    let tree = plain::Tree { plan, depth: bound("depth")?, limit: bound("limit")?, sizes: call.switch("sizes") };
    if format == Format::Yaml {
        let document = yaml::document(|| {
            let mut json = String::new();
            let mut keep = |piece: &str| {
                json.push_str(piece);
                Ok(())
            };
            call.block_on(tree.write(&client, format, &mut keep))?;
            Ok(json)
        });
        return crate::say(&document?);
    }
    call.block_on(tree.write(&client, format, &mut crate::say))
}
