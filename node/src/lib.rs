//! One member, whole: consensus and store together, and what is pending between them.
//!
//! For the two drivers: the server's core thread and the simulator. Sans-IO: inputs in,
//! outputs out ([`io`]); time is `Input::Tick`, disk is `Output::Job`, chance is `Config::seed`.
//! It refuses to know sockets, threads, wall clocks and the encodings of the client protocol.
//!
//! | file | what it decides |
//! |---|---|
//! | `member` | the parts, `step`, `flush`: the order of one turn |
//! | `gate` | a command becomes one proposal, exactly once; forwarding |
//! | `reads` | ReadIndex rounds |
//! | `apply` | committed entries change the store |
//! | `walks` | ranges in slices |
//! | `backup` | the state at one moment, for a file of etcd's form |
//! | `watches`, `watch` | the core's half and the stream's half of watching |
//! | `history` | pieces of the past that watches want, each read once |
//! | `lessor` | lease clock, renewals, expiry |
//! | `checkpoints`, `transfer` | records to files, images, snapshots between members |
//! | `health`, `moves` | hung disk, clean stop, digests; MoveLeader |
//! | `saves` | what becomes one flush of the log |
//! | `recover`, `offline` | from the files to a member; to its state alone, for tools |
//! | `hashes` | HashKV, and what it remembers of compactions |
//! | `lanes` | what waits for one peer: what goes first, what is given up |
//! | `frame`, `work`, `queue` | peer frames and their bytes; jobs carried out, and in which order |

mod apply;
mod backup;
mod checkpoints;
pub mod config;
pub mod frame;
mod gate;
mod hashes;
mod health;
mod history;
pub mod io;
pub mod lanes;
mod lessor;
mod member;
mod moves;
pub mod offline;
pub mod queue;
mod reads;
mod recover;
mod requests;
mod saves;
mod transfer;
mod walks;
pub mod watch;
mod watches;
pub mod work;

pub use config::{Budgets, Config, TICK_MS};
pub use io::*;
pub use member::Node;
pub use recover::{exists, genesis};
