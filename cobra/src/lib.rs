//! Command lines as etcd's tools have them: what Go's cobra and pflag accept, their help pages,
//! their error lines.
//!
//! For `ctl` and `utl`. Scripts depend on flags that stand anywhere, on `--flag v`, `--flag=v`,
//! `-w json`, `-wjson`, `--`, on prefixes of command names, and on the words of each refusal.
//! A program is a tree of [`Command`]s; reading, help, manual pages and completion all come from
//! that one table.
//!
//! | file | what it does |
//! |---|---|
//! | `table` | commands and flags |
//! | `parse` | words into a command, values and arguments |
//! | `help` | help and usage |
//! | `man` | manual pages |
//! | `complete`, `scripts` | what can follow the words so far; the shells' scripts, which ask for it |
//! | `go`, `raw` | values as Go reads and quotes them; words that are not text |
//!
//! It refuses to print, to end the program and to know any command: that is its callers' work.
//! What a command does is theirs too, as the `R` of [`Command`].

pub mod complete;
pub mod go;
pub mod help;
pub mod man;
mod parse;
pub mod raw;
mod scripts;
mod table;

pub use go::quote;
pub use parse::{Misread, Parsed, Values, distance, flag, known, parse, parse_lenient, stray, unknown_command};
pub use scripts::{SHELLS, script};
pub use table::{Command, Flag, HELP, Kind, Pages, Path, path_words, topic};
