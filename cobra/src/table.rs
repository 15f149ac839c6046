//! Commands and flags, as the rows of a table that is known when the program is built.

use crate::go;

/// What a flag holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Needs no value.
    Bool,
    /// Any text.
    Text,
    /// A signed 64-bit number, decimal or with a Go prefix.
    Int,
    /// An unsigned number.
    Uint,
    /// A Go duration such as `1m30s`.
    Duration,
    /// Texts separated by commas; may be given several times.
    List,
}

/// One flag.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Without dashes.
    pub name: &'static str,
    /// One letter.
    pub short: Option<char>,
    /// What it holds.
    pub kind: Kind,
    /// As it would be typed.
    pub default: &'static str,
    /// One line for the help.
    pub text: &'static str,
    /// What completion offers for its value.
    pub choices: &'static [&'static str],
    /// The command line must have it.
    pub required: bool,
    /// Taken, and shown nowhere.
    pub hidden: bool,
}

impl Flag {
    const fn new(name: &'static str, kind: Kind, default: &'static str, text: &'static str) -> Flag {
        Flag { name, short: None, kind, default, text, choices: &[], required: false, hidden: false }
    }

    /// A switch that is off.
    pub const fn switch(name: &'static str, text: &'static str) -> Flag {
        Flag::new(name, Kind::Bool, "false", text)
    }

    /// A switch that is on.
    pub const fn switch_on(name: &'static str, text: &'static str) -> Flag {
        Flag::new(name, Kind::Bool, "true", text)
    }

    /// A text.
    pub const fn text(name: &'static str, default: &'static str, text: &'static str) -> Flag {
        Flag::new(name, Kind::Text, default, text)
    }

    /// A signed number.
    pub const fn int(name: &'static str, default: &'static str, text: &'static str) -> Flag {
        Flag::new(name, Kind::Int, default, text)
    }

    /// An unsigned number.
    pub const fn uint(name: &'static str, default: &'static str, text: &'static str) -> Flag {
        Flag::new(name, Kind::Uint, default, text)
    }

    /// A duration.
    pub const fn duration(name: &'static str, default: &'static str, text: &'static str) -> Flag {
        Flag::new(name, Kind::Duration, default, text)
    }

    /// A list.
    pub const fn list(name: &'static str, default: &'static str, text: &'static str) -> Flag {
        Flag::new(name, Kind::List, default, text)
    }

    /// The same flag with a letter.
    pub const fn short(mut self, letter: char) -> Flag {
        self.short = Some(letter);
        self
    }

    /// The same flag with values to offer; it takes others too, as far as parsing goes.
    pub const fn choices(mut self, choices: &'static [&'static str]) -> Flag {
        self.choices = choices;
        self
    }

    /// The same flag, without which there is no command.
    pub const fn required(mut self) -> Flag {
        self.required = true;
        self
    }

    /// The same flag, taken and not shown.
    pub const fn hidden(mut self) -> Flag {
        self.hidden = true;
        self
    }

    /// As error lines name it: `-w, --write-out`.
    pub(crate) fn shown(&self) -> String {
        self.short.map_or_else(|| format!("--{}", self.name), |letter| format!("-{letter}, --{}", self.name))
    }

    /// Whether the text is a value of this flag.
    ///
    /// # Errors
    /// Go's words for what is wrong with it.
    pub fn check(&self, value: &str) -> Result<(), String> {
        match self.kind {
            Kind::Bool => go::parse_bool(value).map(drop),
            Kind::Int => go::parse_int(value).map(drop),
            Kind::Uint => go::parse_uint(value).map(drop),
            Kind::Duration => go::parse_duration(value).map(drop),
            Kind::Text | Kind::List => Ok(()),
        }
    }
}

/// `--help`, which every command has.
pub const HELP: Flag = Flag::switch("help", "").short('h');

/// What the help pages of a program are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// etcdctl's: what the command is for, then its usage; the program's flags are on the page of
    /// a command `options`. Commands below the program stand under these headings.
    About(&'static [&'static str]),
    /// etcdutl's: the usage alone, the program's flags on every page.
    Usage,
}

/// One command; the one without a parent is the program. Start from [`Command::NONE`]. `R` is what
/// carries a command out.
#[derive(Clone, Copy, Debug)]
pub struct Command<R: 'static> {
    /// The word that is typed; of the program, all words that start it.
    pub name: &'static str,
    /// The line after `Usage:`, from the name on; `[flags]` may be left out.
    pub usage: &'static str,
    /// No `[flags]` behind the usage.
    pub bare_usage: bool,
    /// Heading in the help of the program; empty for sub-commands.
    pub group: &'static str,
    /// One line.
    pub short: &'static str,
    /// A page, if one line is not enough.
    pub long: &'static str,
    /// Lines that can be copied; without them the help has no such section.
    pub examples: &'static str,
    /// Flags of the command alone.
    pub flags: &'static [Flag],
    /// Flags of the command and of everything below it.
    pub shared: &'static [Flag],
    /// Variables of the environment that the command reads itself.
    pub variables: &'static [&'static str],
    /// Tables of commands below it.
    pub subs: &'static [&'static [Command<R>]],
    /// How many words it takes; none if it says itself what is wrong.
    pub words: Option<usize>,
    /// What completion offers for the first word.
    pub choices: &'static [&'static str],
    /// Its words name a command of the program.
    pub topics: bool,
    /// Its words may be any bytes: keys, values, files.
    pub raw: bool,
    /// Can be typed, and is shown nowhere.
    pub hidden: bool,
    /// Of the program: what its pages are like.
    pub pages: Pages,
    /// What it does; none if it only has commands below it.
    pub run: Option<R>,
}

/// From the program down to a command.
pub type Path<R> = [&'static Command<R>];

impl<R> Command<R> {
    /// Nothing yet.
    pub const NONE: Command<R> = Command {
        name: "",
        usage: "",
        bare_usage: false,
        group: "",
        short: "",
        long: "",
        examples: "",
        flags: &[],
        shared: &[],
        variables: &[],
        subs: &[],
        words: None,
        choices: &[],
        topics: false,
        raw: false,
        hidden: false,
        pages: Pages::Usage,
        run: None,
    };

    /// The commands below it.
    pub fn all_subs(&self) -> impl Iterator<Item = &'static Command<R>> + use<R> {
        self.subs.iter().flat_map(|table| table.iter())
    }

    /// Those of them that are shown, sorted by name.
    pub fn shown_subs(&self) -> Vec<&'static Command<R>> {
        let mut subs: Vec<_> = self.all_subs().filter(|sub| !sub.hidden).collect();
        subs.sort_by_key(|sub| sub.name);
        subs
    }

    /// Whether there are commands below it.
    pub fn has_subs(&self) -> bool {
        self.all_subs().next().is_some()
    }

    /// The same tree without what carries its commands out, so that trees of several programs can
    /// stand side by side. It is made for the rest of the process.
    pub fn bare(&'static self) -> &'static Command<()> {
        let subs: Vec<Command<()>> = self.all_subs().map(|sub| *sub.bare()).collect();
        let command = Command {
            name: self.name,
            usage: self.usage,
            bare_usage: self.bare_usage,
            group: self.group,
            short: self.short,
            long: self.long,
            examples: self.examples,
            flags: self.flags,
            shared: self.shared,
            variables: self.variables,
            subs: if subs.is_empty() { &[] } else { Box::leak(Box::new([&*subs.leak()])) },
            words: self.words,
            choices: self.choices,
            topics: self.topics,
            raw: self.raw,
            hidden: self.hidden,
            pages: self.pages,
            run: self.run.as_ref().map(|_| ()),
        };
        Box::leak(Box::new(command))
    }

    /// The command below it with this name, or the only one whose name begins
    /// like this.
    pub fn sub(&self, word: &str) -> Option<&'static Command<R>> {
        if let Some(sub) = self.all_subs().find(|c| c.name == word) {
            return Some(sub);
        }
        let mut near = self.all_subs().filter(|c| !word.is_empty() && c.name.starts_with(word));
        let first = near.next()?;
        near.next().is_none().then_some(first)
    }
}

/// The last of a path.
pub(crate) fn last<R>(path: &Path<R>) -> &'static Command<R> {
    path.last().expect("the path begins with the program")
}

/// The words that name a command, such as `etcdctl lease grant`.
pub fn path_words<R>(path: &Path<R>) -> String {
    path.iter().map(|c| c.name).collect::<Vec<_>>().join(" ")
}

/// The command that words behind `help` or `man` name.
///
/// # Errors
/// The path up to the first word that names no command.
pub fn topic<R>(
    root: &'static Command<R>,
    words: &[String],
) -> Result<Vec<&'static Command<R>>, Vec<&'static Command<R>>> {
    let mut path = vec![root];
    for word in words {
        match last(&path).sub(word) {
            Some(sub) => path.push(sub),
            None => return Err(path),
        }
    }
    Ok(path)
}
