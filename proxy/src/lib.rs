//! What stands between clients and a cluster: `etcd gateway start`, `kvorum gateway start`, and
//! `kvorum proxy` (the folder `front`), which does what HAProxy does there.
//!
//! A gateway takes connections on one address and passes their bytes on to the members, one member
//! a connection, in turn. It knows nothing of what the bytes say, so it needs no certificate: TLS
//! goes through it. It keeps nothing that matters, and any number of gateways may run.
//!
//! | file | what it does |
//! |---|---|
//! | `commands` | the table of commands, which the crate `cobra` reads |
//! | `gateway` | one run: from the command line to the sockets |
//! | `endpoints` | which member a connection goes to; no clock, no socket |
//! | `relay` | accepts, connects, copies |
//! | `log` | lines in the shape of the stock program's |

mod commands;
mod endpoints;
mod front;
mod gateway;
mod log;
mod relay;

/// The commands of `kvorum gateway` or `kvorum proxy`, without what carries them out.
pub fn table(name: &str) -> &'static cobra::Command<()> {
    commands::root(name).bare()
}

/// Runs the program called `name` (`etcd gateway`, `kvorum gateway` or `kvorum proxy`) with the
/// words after its name; the exit code is the stock program's.
pub fn run(name: &str, args: &[String]) -> i32 {
    commands::main(commands::root(name), args)
}
