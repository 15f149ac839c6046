//! The process of one member: what stands between the pure member of `node` and the world.
//!
//! For whoever runs `kvorum server` in place of `etcd`. Two sides: the *edge* (clients: gRPC,
//! JSON, HTTP) and the *process* (flags, log, data directory, threads, peers, signals). Both
//! talk to the core thread through `core::Core` and never touch the member itself.
//!
//! It refuses to decide anything about data: what a request does is the store's, what is
//! agreed is consensus', in which order is the node's. It refuses flags that it cannot
//! honour where ignoring them would be insecure.
//!
//! | file | what it does |
//! |---|---|
//! | `process` | from the command line to the last log line |
//! | `flags`, `options`, `settings` | etcd's flags, checked and typed |
//! | `bootstrap`, `publish` | ids, founding, joining |
//! | `signals`, `watchdog` | what asks the process to stop; what tells systemd that it lives |
//! | `core`, `intake`, `driver` | the handle on the core thread, its queue, its loop |
//! | `posts` | what the core tells one watch stream |
//! | `budgets` | every byte budget by name |
//! | `workers`, `readers`, `files` | threads for the disk, and the real disk |
//! | `peers` | connections to the other members |
//! | `membership` | log lines about members that come and go |
//! | `ports` | the sockets of a member, and how they are encrypted |
//! | `tls` | certificates and handshakes, for clients and peers |
//! | `passwords`, `tokens` | bcrypt with a bound, and what clients show of themselves |
//! | `compactor` | automatic compaction |
//! | `log` | zap-shaped log lines |
//! | `transport` | how clients reach it: sockets, HTTP, gRPC's framing |
//! | `services` | what it does for them: etcd's services, the JSON gateway, pages |
//! | `metrics` | the numbers of one member, under etcd's names |
//! | `dev` | a cluster on loopback with one command |

mod bootstrap;
mod budgets;
mod compactor;
mod config_file;
mod core;
mod descriptors;
pub mod dev;
mod discovery;
mod driver;
mod files;
mod flags;
mod intake;
mod log;
mod membership;
mod metrics;
mod options;
mod parent;
mod passwords;
mod peers;
mod ports;
mod posts;
pub mod process;
mod publish;
mod readers;
mod services;
mod settings;
mod signals;
mod sockets;
mod tls;
mod tokens;
mod transport;
mod watchdog;
mod workers;
