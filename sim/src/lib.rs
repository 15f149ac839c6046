//! The deterministic simulator of whole clusters: the shipped member, its log, its checkpoints
//! and its watch streams, on virtual time, simulated disks, networks and clocks.
//!
//! For everyone who changes `consensus`, `store`, `disk` or `node`, and for CI. A seed is the
//! whole reproduction: it expands to a [`plan`] (cluster, limits, workload, faults), and two
//! runs of it give the same trace to the byte. It refuses to share anything with the code
//! under test but its public surface: commands are encoded and read back by its own codec
//! ([`ops`]), answers are judged by its own model ([`model`]), and no product crate knows that
//! it exists.
//!
//! | file | what it is |
//! |---|---|
//! | `plan` | what a seed means |
//! | `sights`, `badday` | which bad days and checks are on, and what they draw |
//! | `disk`, `net`, `pipe`, `clock` | what fails |
//! | `cluster`, `faults` | the driver: lives, turns, jobs, frames; the fault script |
//! | `stories`, `bounds`, `differs` | harm to disks, a minority at a time; states that differ |
//! | `time_left` | what may be left to a lease |
//! | `vigil`, `whole` | checks that look on while faults go on; what who lost nothing keeps |
//! | `client`, `clients`, `edge`, `streams`, `backups` | what is asked, and by whom |
//! | `model`, `oracle`, `watcher` | what is right |
//! | `run`, `campaign`, `shrink` | one seed; many; a failing one made smaller |
//! | `alone` | a majority that is lost for good, and who goes on |
//! | `users`, `asked` | users and roles; users that are asked for |
//! | `forged` | values that look like parts of the log |
//! | `operator`, `confs` | who adds, promotes, moves and removes members; who belongs to the cluster |
//! | `load` | goodput against load |
//! | `planted`, `marks` | bugs that must be found; situations that must be met |
//!
//! The checks carry the names of the invariants they hold: KV-1 strict serialisability, KV-2
//! revision of a state, KV-3 fresh reads, KV-5 serialisable reads, KV-7 definite refusals, KV-8
//! nothing twice; W-1 to W-13 watches; L-1 not early, L-2 not for ever, L-7 renewals; D-1 nothing
//! acknowledged is lost, D-2 durable before counted, D-3 recovery gives back each entry as it was
//! flushed, D-4 every record in a file is right, D-5 damage is never served, D-6 no checkpoint
//! names damage, D-8 no own write spoils what was right; L-3 renewed leases live during faults, L-4
//! others end during faults, L-8 the time left; V-2 a healthy majority serves during faults, V-5
//! who lags makes progress; M-6 one list of members, M-8 members come and go; N-1 nothing is
//! said or done for ever, B-1 nothing is forwarded over and over, B-2 goodput does not fall with
//! load, B-3 no snapshot comes over and over; R-1 one leader a term, R-2 to R-6 logs, R-7 two
//! histories are noticed; H-1 equal digests, H-2 equal hashes, H-3 a wrong state is found and
//! replaced; S-5 backups; V-1 a write in peace, V-4 equality in peace, V-6 no doubt without a loss;
//! `panic`, `fatal`, `recover` and `codec` for what may simply not happen.

mod alone;
pub mod asked;
mod backups;
pub mod badday;
mod bounds;
pub mod campaign;
pub mod client;
mod clients;
pub mod clock;
pub mod cluster;
mod confs;
mod differs;
pub mod disk;
mod edge;
mod faults;
pub mod forged;
mod foundings;
mod knowable;
pub mod load;
pub mod marks;
pub mod model;
pub mod net;
pub mod operator;
pub mod ops;
pub mod oracle;
mod panics;
mod pipe;
pub mod plan;
pub mod planted;
pub mod proto;
pub mod rng;
pub mod run;
pub mod shrink;
pub mod sights;
mod stories;
mod streams;
mod time_left;
pub mod trace;
pub mod users;
mod vigil;
pub mod watcher;
mod whole;
