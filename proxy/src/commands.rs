//! The table of commands: names, flags, defaults and help as the stock program's.

use crate::{front, gateway};
use cobra::Flag;
use std::time::Duration;

/// One command: a row of the table.
pub(crate) type Command = cobra::Command<fn(&Call) -> Result<(), String>>;

/// Words that were understood, for the one that carries them out: on failure it gives the text to
/// print.
pub(crate) struct Call(cobra::Parsed<fn(&Call) -> Result<(), String>>);

impl Call {
    /// The words that are no flags.
    pub(crate) fn args(&self) -> &[String] {
        &self.0.args
    }

    pub(crate) fn switch(&self, flag: &str) -> bool {
        self.0.values.switch(self.0.flag(flag))
    }

    pub(crate) fn text(&self, flag: &str) -> &str {
        self.0.values.last(self.0.flag(flag))
    }

    pub(crate) fn list(&self, flag: &str) -> Vec<String> {
        self.0.values.list(self.0.flag(flag))
    }

    pub(crate) fn duration(&self, flag: &str) -> Duration {
        self.0.values.duration(self.0.flag(flag))
    }
}

/// The program with this name.
pub(crate) fn root(name: &str) -> &'static Command {
    match name {
        "etcd gateway" => &STOCK,
        "kvorum proxy" => &front::ROOT,
        _ => &KVORUM,
    }
}

static STOCK: Command = Command { name: "etcd gateway", short: SHORT, subs: &[&[START]], ..Command::NONE };

static KVORUM: Command = Command {
    name: "kvorum gateway",
    short: "Passes connections on to the members of a cluster",
    subs: &[&[Command { words: Some(0), ..START }]],
    ..Command::NONE
};

const SHORT: &str = "gateway related command";

const START: Command = Command {
    name: "start",
    short: "start the gateway",
    flags: &[
        Flag::text("discovery-srv", "", "DNS domain used to bootstrap initial cluster"),
        Flag::text("discovery-srv-name", "", "service name to query when using DNS discovery"),
        Flag::list("endpoints", "127.0.0.1:2379", "comma separated etcd cluster endpoints"),
        Flag::switch("insecure-discovery", "accept insecure SRV records"),
        Flag::text("listen-addr", "127.0.0.1:23790", "listen address"),
        Flag::duration("retry-delay", "1m0s", "duration of delay before retrying failed endpoints"),
        Flag::text(
            "trusted-ca-file",
            "",
            "path to the client server TLS CA file for verifying the discovered endpoints when discovery-srv is \
             provided.",
        ),
    ],
    run: Some(gateway::start),
    ..Command::NONE
};

/// Runs what the words say; the status to exit with.
pub(crate) fn main(root: &'static Command, args: &[String]) -> i32 {
    let misread = |text: &str, follows: &str| {
        eprintln!("Error: {text}\n{follows}\n{text}");
        1
    };
    let parsed = match cobra::parse(root, args) {
        Ok(parsed) => parsed,
        // The stock program shows its help for a word that names no command.
        Err(wrong)
            if std::ptr::eq(root, &STOCK)
                && wrong.path.len() == 1
                && args.iter().all(|word| !word.starts_with('-')) =>
        {
            print!("{}", cobra::help::help(&wrong.path));
            return 0;
        }
        Err(wrong) => return misread(&wrong.text, &cobra::help::usage(&wrong.path)),
    };
    let path = parsed.path.clone();
    match parsed.runnable() {
        Ok(Some(run)) => match run(&Call(parsed)) {
            Ok(()) => 0,
            Err(text) => {
                eprintln!("{text}");
                1
            }
        },
        Ok(None) => {
            print!("{}", cobra::help::help(&path));
            0
        }
        Err(text) => misread(&text, &cobra::help::usage(&path)),
    }
}
