//! What `kvorum dev` cannot do, in words for whoever typed it.

use super::count;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why `kvorum dev` ends, or does nothing. Its text is for whoever typed it.
#[derive(Debug)]
pub struct Trouble(Why);

impl From<Why> for Trouble {
    fn from(why: Why) -> Trouble {
        Trouble(why)
    }
}

#[derive(Debug)]
pub(super) enum Why {
    /// A number of members that is not possible; the most that is.
    Members(u16),
    /// The directory has a cluster of `has` members.
    Size { dir: PathBuf, has: usize, wanted: u16 },
    /// A port is taken that this member needs for `clients` or `peers`.
    Taken { port: u16, member: usize, whose: &'static str },
    /// No port is free for another member.
    NoPort,
    /// A cluster runs there already.
    Runs { dir: PathBuf, process: u32, endpoints: String, called: String, folder: String },
    /// One is just starting there, and has not said anything yet.
    Starting(PathBuf),
    /// None runs there.
    Nothing { dir: PathBuf, called: String, folder: String },
    /// A member ended when it was started: its name, how, and what its log said last.
    Ended { member: String, how: String, why: String },
    /// These members do not serve in time.
    Late { members: String, seconds: u64, logs: PathBuf },
    /// `stop` was not heard.
    Deaf(u32),
    /// A file that is not what it should be.
    Damaged(PathBuf),
    /// What the operating system says, and of what.
    System { what: String, error: io::Error },
}

impl Trouble {
    /// What the operating system says of this file or folder.
    pub(super) fn of(path: &Path) -> impl Fn(io::Error) -> Trouble {
        let what = path.display().to_string();
        move |error| Trouble(Why::System { what: what.clone(), error })
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Why::Members(most) => write!(f, "--members must be 1 to {most}"),
            Why::Size { dir, has, wanted } => write!(
                f,
                "{} holds a cluster of {}, not of {wanted}; start it without --members, or choose another --data-dir",
                dir.display(),
                count(*has)
            ),
            Why::Taken { port, member, whose } => {
                let other =
                    if (*member, *whose) == (0, "clients") { "another port with --port" } else { "another --data-dir" };
                write!(
                    f,
                    "port {port} on 127.0.0.1, for {whose} of m{}, is taken; stop what listens there, or choose {other}",
                    member + 1
                )
            }
            Why::NoPort => f.write_str("no port is free on loopback"),
            Why::Runs { dir, process, endpoints, called, folder } => write!(
                f,
                "already running in {}: process {process}, endpoints {endpoints}; `{called} dev status{folder}` tells \
                 more, `{called} dev stop{folder}` ends it",
                dir.display()
            ),
            Why::Starting(dir) => write!(f, "another `kvorum dev` is just starting in {}", dir.display()),
            Why::Nothing { dir, called, folder } => {
                write!(f, "no cluster runs in {}; start one with `{called} dev{folder}`", dir.display())
            }
            Why::Ended { member, how, why } => write!(f, "{member} ended at once ({how}); {why}"),
            Why::Late { members, seconds, logs } => {
                write!(f, "{members} does not serve after {seconds} s; the logs say why: {}", logs.display())
            }
            Why::Deaf(process) => {
                write!(f, "process {process} does not end; `kill -9 {process}` ends it and its members")
            }
            Why::Damaged(file) => {
                write!(f, "{}: not a list of ports; remove it to choose new ones", file.display())
            }
            Why::System { what, error } => write!(f, "{what}: {error}"),
        }
    }
}
