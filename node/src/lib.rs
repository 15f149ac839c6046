//! One member, whole: consensus and store together, and what is pending between them.
//!
//! For the two drivers: the server's core thread and the simulator. Sans-IO: inputs in,
//! outputs out ([`io`]); time is `Input::Tick`, disk is `Output::Job`, chance is `Config::seed`.
//! It refuses to know sockets, threads, wall clocks and the encodings of the client protocol.
//!
//! | file | what it decides |
//! |---|---|
//! | `member` | the parts, `step`, `flush`: the order of one turn, and who is told what |
//! | `member/requests`, `member/done`, `member/status` | which part a request and a finished job concern; figures |
//! | `ground` | what every part may use: config, time, leadership, consensus, store, jobs, outputs |
//! | `jobs`, `writing` | jobs under way; records on their way to files |
//! | `pace` | how much is asked of another member at a time, and when what failed is tried again |
//!
//! The parts. Each has private state and knows the ground and nothing of the other parts:
//!
//! | part | what it decides |
//! |---|---|
//! | `gate` | a command becomes one proposal, exactly once |
//! | `forwards` | within `gate`: what is under way to the leader, and what a leader has seen |
//! | `reads` | ReadIndex rounds |
//! | `apply` | committed entries change the store |
//! | `walks`, `listings` | ranges, and lists of leases, in slices |
//! | `backup` | the state at one moment, for a file of etcd's form |
//! | `watches` | the core's half of watching: live watches in the hub, and history for the others |
//! | `history` | within `watches`: pieces of the past, each read once |
//! | `lessor` | lease clock, renewals, expiry |
//! | `checkpoints`, `transfer` | images of the state in files; snapshots between members |
//! | `health`, `moves` | hung disk, full disk, clean stop, digests; MoveLeader |
//! | `foundings` | who is of another founding, and is not heard |
//! | `doubts` | who asks whom what it still has; what may be lost is remembered |
//! | `saves` | what becomes one flush of the log, and how much of it memory keeps |
//! | `scrub` | the slow look at what lies still |
//! | `mend`, `placing` | damaged records come again from another member, to where they belong |
//! | `hashes` | HashKV, and what it remembers of compactions |
//! | `tokens`, `permit` | who asks, and whether it may |
//!
//! Beside the member:
//!
//! | file | what it decides |
//! |---|---|
//! | `watch` | the stream's half of watching |
//! | `recover`, `offline` | from the files to a member; to its state alone, for tools |
//! | `lanes` | what waits for one peer: what goes first, what is given up |
//! | `io` | what is said to a member, what it says, and the disk jobs |
//! | `frame` | peer frames and their bytes |
//! | `work`, `scan`, `queue` | jobs carried out, the hash over files, and the order of jobs |

mod apply;
mod backup;
mod checkpoints;
pub mod config;
mod doubts;
mod forwards;
pub mod foundings;
pub mod frame;
mod gate;
mod ground;
mod hashes;
mod health;
mod history;
pub mod io;
mod jobs;
pub mod lanes;
mod lessor;
mod listings;
mod member;
mod mend;
mod moves;
mod nonsense;
pub mod offline;
mod pace;
mod permit;
mod placing;
pub mod queue;
mod reads;
mod reclaim;
mod recover;
mod saves;
mod scan;
mod scrub;
mod tokens;
mod transfer;
mod walks;
pub mod watch;
mod watchdog;
mod watches;
pub mod work;
mod writing;

pub use config::{Budgets, Config, TICK_MS};
pub use io::*;
pub use member::Node;
pub use recover::{exists, genesis};
pub use scan::HashScan;
