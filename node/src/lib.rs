//! One member, whole: consensus and store together, and what is pending between them.
//!
//! For the two drivers: the server's core thread and the simulator. Sans-IO: inputs in,
//! outputs out ([`io`]); time is `Input::Tick`, disk is `Output::Job`, chance is `Config::seed`.
//! It refuses to know sockets, threads, wall clocks and the encodings of the client protocol.
//!
//! What carries a turn:
//!
//! | file | what it decides |
//! |---|---|
//! | `member` | the parts, `step`, `flush`: the order of one turn, and who is told what |
//! | `member/requests` | which part a request of a client concerns |
//! | `member/done` | which part a finished or failed job concerns, and which failure is fatal |
//! | `member/status` | the figures that a member tells of itself |
//! | `ground` | what every part may use: config, time, leadership, consensus, store, jobs, outputs |
//! | `config` | what a member is told at its start |
//! | `jobs` | jobs under way, and what each was begun for |
//! | `writing` | records on their way to files |
//! | `pace` | how much is asked of another member at a time, and when what failed is tried again |
//! | `permit` | who asks, and whether it may |
//!
//! The parts, in the order of a turn. Each has private state and knows the ground and nothing of
//! the other parts:
//!
//! | part | what it decides |
//! |---|---|
//! | `gate` | a command becomes one proposal, exactly once |
//! | `forwards` | within `gate`: what is under way to the leader, and what a leader has seen |
//! | `reads` | ReadIndex rounds |
//! | `saves` | what becomes one flush of the log, and how much of it memory keeps |
//! | `apply` | committed entries change the store |
//! | `foundings` | who is of another founding, and is not heard |
//! | `tokens` | the simple tokens of clients, each with its user |
//! | `walks` | ranges in slices |
//! | `answers` | answers of transactions with long ranges, in slices |
//! | `listings` | lists of all leases, in slices |
//! | `backup` | the state at one moment, for a file of etcd's form |
//! | `hashes` | HashKV, and what it remembers of compactions |
//! | `lessor` | lease clock, renewals, expiry |
//! | `watches` | the core's half of watching: live watches in the hub, and history for the others |
//! | `history` | within `watches`: pieces of the past, each read once |
//! | `checkpoints` | images of the state in files, and where the log is cut |
//! | `reclaim` | which segments are rewritten, so that the space of dead records comes back |
//! | `scrub` | the slow look at what lies still |
//! | `mend` | damaged records come again from another member |
//! | `placing` | within `mend`: where the records of a damaged stretch belong |
//! | `watchdog` | whether clients get anything from this member |
//! | `health` | hung disk, clean stop, digests: when a member must not lead or not answer |
//! | `health/room` | room on the disk: jobs that wait for it, and the reserve |
//! | `transfer` | snapshots between members |
//! | `doubts` | who asks whom what it still has; what may be lost is remembered |
//! | `moves` | MoveLeader |
//! | `membership` | members that come, go, get a vote or move |
//! | `nonsense` | what other members say that none can mean: refused, counted, told |
//!
//! What is said to a member and what it says, and the disk jobs:
//!
//! | file | what it decides |
//! |---|---|
//! | `io` | all of it under one name |
//! | `io/request` | what is said to a member: time, frames, requests, finished jobs |
//! | `io/job` | the disk jobs. The type of a job is its lane |
//! | `io/output` | what a member says: jobs, frames, answers, messages to watch streams |
//! | `tally` | what is counted beside the work, for metrics |
//! | `frame` | peer frames and their bytes |
//! | `lanes` | what waits for one peer: what goes first, what is given up |
//! | `queue` | the order of a lane's jobs |
//! | `work` | a job carried out, on the driver's thread |
//! | `scan` | a HashKV on its way through the files |
//!
//! Beside the member:
//!
//! | file | what it decides |
//! |---|---|
//! | `recover` | from the files to a member |
//! | `recover/alone` | a member whose cluster lost its quorum for good goes on without the others |
//! | `recover/startover` | a member whose state is of no use begins with an empty one |
//! | `offline` | from the files to a member's state alone, for tools |
//! | `watch` | the stream's half of watching |
//! | `watch/message` | what a stream hears and tells, and how large that is |
//! | `watch/outbox` | what a stream holds for its client, with its budget |
//! | `watch/few` | a map that most often holds one thing |

mod answers;
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
mod membership;
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
pub mod tally;
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
pub use recover::{alone, exists, genesis, join};
pub use scan::HashScan;
