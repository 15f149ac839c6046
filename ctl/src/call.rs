//! A command, a row of the table of commands; and one run of it: its words, and what they give
//! access to.

use std::{
    cell::{OnceCell, RefCell},
    ffi::OsString,
    future::Future,
    os::unix::ffi::OsStrExt,
    time::Duration,
};

use client::Options;
use cobra::{Flag, Values};
use tokio::runtime::Runtime;

use crate::{
    env,
    exit::{ERROR, Failure, Outcome},
    print::{Answer, Format, Printer, look::Look},
    raw,
};

/// The name under which this is the stock tool and nothing more.
pub const STOCK: &str = "etcdctl";

/// What carries a command out.
pub type Run = fn(&Call) -> Outcome;

/// One command: a row of the table.
pub type Command = cobra::Command<Run>;

/// Words that were understood.
pub type Parsed = cobra::Parsed<Run>;

/// A command under way. Reading a flag that the command does not have is a
/// mistake of ours and panics.
#[derive(Debug)]
pub struct Call {
    /// The program, its parents, the command.
    pub path: Vec<&'static Command>,
    /// The words that are no flags.
    pub args: Vec<String>,
    /// How many of them stood before `--`, if it was there.
    pub before_dash: Option<usize>,
    /// What was typed.
    typed: Values,
    /// What was typed and what the environment says; set by [`Call::prepare`].
    prepared: OnceCell<Values>,
    /// Read once: a password may have to be asked for.
    pub(crate) options: RefCell<Option<Options>>,
    runtime: OnceCell<Runtime>,
}

impl Call {
    /// A call of what was parsed.
    pub fn new(parsed: Parsed) -> Call {
        Call {
            path: parsed.path,
            args: parsed.args,
            before_dash: parsed.before_dash,
            typed: parsed.values,
            prepared: OnceCell::new(),
            options: RefCell::new(None),
            runtime: OnceCell::new(),
        }
    }

    /// `etcdctl` or `kvorum ctl`.
    pub fn program(&self) -> &'static str {
        self.path[0].name
    }

    /// Whether this is more than the stock tool: `kvorum ctl`.
    pub fn is_ours(&self) -> bool {
        self.program() != STOCK
    }

    /// One argument, if it was given.
    pub fn arg(&self, at: usize) -> Option<&str> {
        self.args.get(at).map(String::as_str)
    }

    /// The arguments, if there are as many as are wanted.
    ///
    /// # Errors
    /// The text, if there are more or fewer.
    pub fn exactly<const N: usize>(&self, otherwise: &str) -> Outcome<&[String; N]> {
        self.args.as_slice().try_into().map_err(|_| Failure::bad_args(otherwise))
    }

    fn flag(&self, name: &str) -> &'static Flag {
        cobra::flag(&self.path, name)
    }

    pub(crate) fn values(&self) -> &Values {
        self.prepared.get().unwrap_or(&self.typed)
    }

    /// Whether the flag was given.
    pub fn changed(&self, name: &str) -> bool {
        self.values().changed(self.flag(name).name)
    }

    /// A switch.
    pub fn switch(&self, name: &str) -> bool {
        self.values().switch(self.flag(name))
    }

    /// A text.
    pub fn text(&self, name: &str) -> &str {
        self.values().last(self.flag(name))
    }

    /// A signed number.
    pub fn int(&self, name: &str) -> i64 {
        self.values().int(self.flag(name))
    }

    /// An unsigned number.
    pub fn uint(&self, name: &str) -> u64 {
        self.values().uint(self.flag(name))
    }

    /// A duration.
    pub fn duration(&self, name: &str) -> Duration {
        self.values().duration(self.flag(name))
    }

    /// A list.
    pub fn list(&self, name: &str) -> Vec<String> {
        self.values().list(self.flag(name))
    }

    /// Reads the environment and checks the output form: what the stock tool
    /// does when a command first needs the cluster.
    ///
    /// # Errors
    /// See [`env::apply`] and [`Format::of`].
    pub fn prepare(&self) -> Outcome {
        if self.prepared.get().is_some() {
            return Ok(());
        }
        let mut values = self.typed.clone();
        // Variables that a command reads itself are known to it.
        let own = self.path.last().map_or(&[][..], |command| command.variables);
        env::apply(
            self.path[0].shared,
            &mut values,
            std::env::vars_os().filter_map(readable).filter(|(name, _)| !own.contains(&name.as_str())),
        )?;
        self.prepared.set(values).expect("was empty");
        if self.switch("debug") {
            for flag in self.path[0].shared {
                let value = if flag.kind == cobra::Kind::List {
                    format!("[{}]", self.list(flag.name).join(","))
                } else {
                    self.text(flag.name).to_owned()
                };
                complain!("{}={value}", env::variable(flag));
            }
        }
        self.look()?;
        Format::of(self.text("write-out"), self.is_ours()).map(drop)
    }

    /// The printer that the flags describe.
    ///
    /// # Errors
    /// See [`Format::of`].
    pub fn printer(&self) -> Outcome<Printer> {
        self.prepare()?;
        let format = Format::of(self.text("write-out"), self.is_ours())?;
        Ok(Printer { format, hex: self.switch("hex"), look: self.look()? })
    }

    fn look(&self) -> Outcome<Look> {
        if self.is_ours() { Look::ours(self.text("color")) } else { Ok(Look::default()) }
    }

    /// Prints an answer in the form that the flags ask for.
    ///
    /// # Errors
    /// If the answer has no such form, or standard output is closed.
    pub fn print(&self, answer: &impl Answer) -> Outcome {
        self.printer()?.print(answer)
    }

    /// Runs a future to its end on this thread.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime().block_on(future)
    }

    /// Runs a future to its end, or until `--command-timeout`.
    ///
    /// # Errors
    /// Those of the future; `context deadline exceeded` when time runs out.
    pub fn timed<T>(&self, future: impl Future<Output = Result<T, client::Error>>) -> Outcome<T> {
        self.timed_outcome(async { future.await.map_err(Failure::from) })
    }

    /// As [`Call::timed`], for work that fails in its own words.
    ///
    /// # Errors
    /// Those of the future; `context deadline exceeded` when time runs out.
    pub fn timed_outcome<T>(&self, future: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        let limit = self.duration("command-timeout");
        self.block_on(async {
            let late = |_| Failure::new(ERROR, "context deadline exceeded");
            tokio::time::timeout(limit, future).await.map_err(late)?
        })
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        self.runtime.get_or_init(|| {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("the system has room for one runtime")
        })
    }
}

fn readable((name, value): (OsString, OsString)) -> Option<(String, String)> {
    Some((name.into_string().ok()?, raw::text(value.as_bytes())))
}
