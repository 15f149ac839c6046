//! The front: `kvorum proxy`, what stands before several servers of one kind.
//!
//! | file | what it does |
//! |---|---|
//! | `config`, `span` | what a front is told to do |
//! | `file`, `haproxy` | both forms of the file, and what is wrong with one |
//! | `health`, `pool`, `counters`, `state` | who is up, who is next, what is counted: no clock, no socket |
//! | `opening` | the PROXY protocol, and the name that a client of TLS asks for |
//! | `run` | sockets, tasks, the clock |
//! | `table`, `metrics`, `page` | statistics in HAProxy's words |
//! | `commands` | the command line |

mod commands;
mod config;
mod counters;
mod file;
mod haproxy;
mod health;
mod metrics;
mod opening;
mod page;
mod pool;
mod run;
mod span;
mod state;
mod table;

pub(crate) use commands::ROOT;
