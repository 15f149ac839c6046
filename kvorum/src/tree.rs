//! All programs as one table of commands, in the form that manual pages and completion are made of
//! (`cobra`). What reads its words with clap, and the flags of a member, are turned into it.

use clap::CommandFactory;
use cobra::man::Manual;
use cobra::{Command, Flag};
use std::any::TypeId;

type Row = Command<()>;

/// One of the programs: its first word, its commands, and what its manual pages say besides.
pub(crate) struct Part {
    /// The first word.
    pub(crate) word: &'static str,
    /// Its name is the two words: `kvorum ctl`.
    pub(crate) root: &'static Row,
    /// What the table does not say.
    pub(crate) manual: Manual,
}

const VERSION: &str = concat!("kvorum ", env!("CARGO_PKG_VERSION"));

const PLAIN: Manual = Manual {
    version: VERSION,
    names: &[],
    variable: None,
    codes: &[("0", "done"), ("1", "it could not be done"), ("2", "the words do not fit")],
    sister: "kvorum",
};

const SERVER: Manual = Manual {
    variable: Some(|flag| server::process::variable(flag.name)),
    codes: &[
        ("0", "done; stopped by a signal as the first process of a container"),
        ("1", "it could not start, or could not go on"),
        ("2", "the words do not fit"),
        ("128+n", "stopped by signal n"),
    ],
    ..PLAIN
};

/// The binary itself. Below it stand the programs, without `kvorum` in their names.
pub(crate) fn root() -> &'static Row {
    let parts = parts();
    let mut subs: Vec<Row> = parts.iter().map(|part| Row { name: part.word, ..*part.root }).collect();
    let own = own();
    for command in own.get_subcommands().filter(|command| !parts.iter().any(|part| part.word == command.get_name())) {
        let row = row(command, kept(command.get_name()));
        let topics = ["help", "man"].contains(&row.name);
        subs.push(if topics { Row { topics, subs: &[], words: None, ..row } } else { row });
    }
    keep(Row { subs: tables(subs), ..row(&own, "kvorum") })
}

/// The manual of the binary itself.
pub(crate) fn manual() -> Manual {
    Manual { sister: "kvorum-server", ..PLAIN }
}

/// Every program that has commands or flags.
pub(crate) fn parts() -> Vec<Part> {
    let clap = |word: &'static str, name: &'static str, command: &clap::Command| Part {
        word,
        root: keep(row(command, name)),
        manual: PLAIN,
    };
    let own = own();
    let dev = own.find_subcommand("dev").expect("a program of the binary");
    vec![
        Part { word: "server", root: keep(member()), manual: SERVER },
        Part { word: "ctl", root: ctl::table(), manual: ctl::MANUAL },
        Part { word: "utl", root: utl::table(), manual: utl::MANUAL },
        Part { word: "gateway", root: proxy::table("kvorum gateway"), manual: PLAIN },
        Part { word: "proxy", root: proxy::table("kvorum proxy"), manual: PLAIN },
        clap("bench", "kvorum bench", &built(bench::command())),
        clap("dev", "kvorum dev", dev),
    ]
}

fn own() -> clap::Command {
    built(crate::words::Cli::command())
}

/// With the flags that commands share.
fn built(mut command: clap::Command) -> clap::Command {
    command.build();
    command
}

/// A flag of a member.
fn etcd_flag(about: server::process::FlagAbout) -> Flag {
    let flag = match about.switch {
        true if about.default == "true" => Flag::switch_on(about.name, about.about),
        true => Flag::switch(about.name, about.about),
        false => Flag::text(about.name, about.default, about.about),
    };
    flag.choices(about.choices)
}

/// A member: etcd's flags, no words.
fn member() -> Row {
    Row {
        name: "kvorum server",
        usage: "kvorum server [flags]",
        short: "Runs one member, with etcd's flags",
        long: "Runs one member of a cluster, with etcd's flags and ETCD_* variables. Flags of etcd that have
no effect here are taken too: `kvorum server --help` lists them.",
        examples: "  kvorum server --name m1 --data-dir /var/lib/kvorum \\
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379",
        shared: server::process::flags().into_iter().map(etcd_flag).collect::<Vec<_>>().leak(),
        words: Some(0),
        run: Some(()),
        ..Row::NONE
    }
}

/// What clap knows of a command.
fn row(command: &clap::Command, name: &'static str) -> Row {
    let text = |styled: Option<&clap::builder::StyledStr>| kept(&styled.map(ToString::to_string).unwrap_or_default());
    let words: Vec<String> = command.get_positionals().map(|arg| format!("[{}]", arg.get_id())).collect();
    let subs = below(command);
    Row {
        name,
        usage: kept(format!("{name} {}", words.join(" ")).trim_end()),
        short: text(command.get_about()),
        long: text(command.get_long_about()),
        flags: flags(command, false),
        shared: flags(command, true),
        words: if words.is_empty() { Some(0) } else { None },
        choices: command.get_positionals().next().map(choices).unwrap_or_default(),
        run: (subs.is_empty() || !command.is_subcommand_required_set()).then_some(()),
        subs: tables(subs),
        ..Row::NONE
    }
}

/// The commands below one. clap repeats in each the flags that all share.
fn below(command: &clap::Command) -> Vec<Row> {
    let shown = command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set());
    shown.map(|sub| Row { shared: &[], ..row(sub, kept(sub.get_name())) }).collect()
}

/// Its flags: those that everything below it has too, or the others.
fn flags(command: &clap::Command, shared: bool) -> &'static [Flag] {
    let named = command.get_arguments().filter(|arg| arg.get_long().is_some_and(|name| name != "version"));
    let of = named.filter(|arg| arg.get_long() != Some(cobra::HELP.name) && arg.is_global_set() == shared);
    of.map(flag).collect::<Vec<_>>().leak()
}

fn flag(arg: &clap::Arg) -> Flag {
    let name = kept(arg.get_long().expect("only those that have a name"));
    let about = kept(&arg.get_help().map(ToString::to_string).unwrap_or_default());
    let defaults = arg.get_default_values().iter().map(|value| value.to_string_lossy());
    let default = kept(&defaults.collect::<Vec<_>>().join(","));
    let is = |id: TypeId| arg.get_value_parser().type_id() == id;
    let flag = if !arg.get_action().takes_values() {
        Flag::switch(name, about)
    } else if [TypeId::of::<u16>(), TypeId::of::<u64>(), TypeId::of::<usize>()].into_iter().any(is) {
        Flag::uint(name, default, about)
    } else {
        Flag::text(name, default, about)
    };
    let flag = Flag { required: arg.is_required_set(), ..flag.choices(choices(arg)) };
    arg.get_short().map_or(flag, |letter| flag.short(letter))
}

/// The values that can be listed.
fn choices(arg: &clap::Arg) -> &'static [&'static str] {
    if !arg.get_action().takes_values() {
        return &[];
    }
    arg.get_possible_values().iter().map(|value| kept(value.get_name())).collect::<Vec<_>>().leak()
}

fn tables(subs: Vec<Row>) -> &'static [&'static [Row]] {
    Box::leak(Box::new([&*subs.leak()]))
}

fn keep(row: Row) -> &'static Row {
    Box::leak(Box::new(row))
}

/// The table is made once, for the rest of the process.
fn kept(text: &str) -> &'static str {
    text.to_owned().leak()
}
