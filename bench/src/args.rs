//! The command line of `kvorum bench`.

use crate::cost::Watched;
use crate::drive::Plan;
use crate::failure::Failure;
use crate::net::Dial;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// Measure a server that speaks etcd's protocol, from outside.
///
/// One lean client on one thread plays any number of clients. Latencies are kept in full
/// (HDR histograms); with --rate they count from when a call was due, so a stall is charged to
/// every call it delayed. Errors are counted and shown, and make the exit code 1.
#[derive(Debug, Parser)]
#[command(name = "kvorum bench", bin_name = "kvorum bench")]
pub struct Cli {
    #[command(subcommand)]
    pub row: Row,
}

#[derive(Debug, Subcommand)]
pub enum Row {
    /// Write keys.
    Put(Load),
    /// Read one key at a time; run `fill` or give --fill first.
    Get {
        #[command(flatten)]
        load: Load,
        /// Read what the asked member has, without a round to the others.
        #[arg(long)]
        serializable: bool,
    },
    /// Update keys as Kubernetes does: put if the mod revision is the known one, else get.
    Swap(Load),
    /// Write every key once and end.
    Fill(Load),
    /// Read all keys of the prefix at once; run `fill` with the same --keys first.
    List {
        #[command(flatten)]
        load: Load,
        /// By pages of so many keys, all at one revision.
        #[arg(long, value_name = "KEYS", conflicts_with_all = ["stream", "count"])]
        page: Option<u64>,
        /// With RangeStream (etcd 3.7).
        #[arg(long, conflicts_with = "count")]
        stream: bool,
        /// Only how many there are.
        #[arg(long)]
        count: bool,
        /// End after so many calls instead of after a time.
        #[arg(long, value_name = "CALLS")]
        total: Option<u64>,
    },
    /// Many watchers of one prefix; puts fall due at --rate (or go in a closed loop without).
    Watch {
        #[command(flatten)]
        load: Load,
        #[command(flatten)]
        fan: Fan,
        /// Further watchers that read nothing.
        #[arg(long, default_value_t = 0)]
        slow: u64,
    },
    /// Watchers that begin far back, while puts go on in another prefix.
    Resume {
        #[command(flatten)]
        load: Load,
        #[command(flatten)]
        fan: Fan,
        /// Revisions that are written first and lie behind.
        #[arg(long, default_value_t = 10_000)]
        history: u64,
    },
    /// Watches without events: what they cost in memory.
    Rest {
        #[command(flatten)]
        load: Load,
        #[command(flatten)]
        fan: Fan,
    },
    /// Leases that end together, while puts go on.
    Expire {
        #[command(flatten)]
        load: Load,
        #[arg(long, default_value_t = 10_000)]
        leases: u64,
        /// Seconds; granting and renewing all of them must take less.
        #[arg(long, default_value_t = 15)]
        ttl: i64,
    },
    /// Renewals in a closed loop: each client one lease and one stream.
    KeepAlive(Load),
    /// A compaction in the middle of a load; latencies before it and from it on.
    Compact {
        #[command(flatten)]
        load: Load,
        /// Revisions that are written first.
        #[arg(long, default_value_t = 100_000)]
        history: u64,
    },
    /// Pods that come and go: create, three status updates, an event, delete, each compared;
    /// watched.
    Pods {
        #[command(flatten)]
        load: Load,
        #[command(flatten)]
        fan: Fan,
    },
    /// Mixed load for long, at a fixed rate (500 a second unless --rate says otherwise): writes,
    /// swaps, reads, lists by pages, leases that are renewed and that end, watchers, compactions.
    /// Says what grows, what becomes slower, and whether an event was lost. Ctrl-C ends it with
    /// what it has.
    Soak {
        #[command(flatten)]
        load: Load,
        #[command(flatten)]
        soak: Mixed,
    },
    /// No load at all: what a server costs that has nothing to do.
    Idle(Target),
    /// What the machine itself can do: bare messages over loopback, bare flushes on the disk.
    Bound(Target),
}

/// Watchers.
#[derive(Clone, Copy, Debug, Args)]
pub struct Fan {
    #[arg(long, default_value_t = 100)]
    pub watchers: u64,
    /// Connections they share.
    #[arg(long, default_value_t = 10)]
    pub watch_conns: usize,
}

/// What the soak alone takes.
#[derive(Clone, Copy, Debug, Args)]
pub struct Mixed {
    /// Watchers of all keys, each of which must be told of every write once and in order.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub watchers: u64,
    /// Time between compactions [default: five minutes, and a tenth of a shorter run].
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub compact_every: Option<Duration>,
}

/// Order in which keys are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    Random,
    Sequential,
}

/// Whom to ask and how to report: what all rows have.
#[derive(Clone, Debug, Args)]
pub struct Target {
    /// Client addresses, host:port, comma separated; connections are spread over them.
    #[arg(long, default_value = "127.0.0.1:2379", value_delimiter = ',', value_name = "HOST:PORT")]
    pub endpoints: Vec<String>,
    /// Process of a server on this machine whose costs are to be shown (may be repeated).
    #[arg(long = "pid", value_name = "PID")]
    pub pids: Vec<u32>,
    /// A path on the servers' disk, to count the device's writes and flushes.
    #[arg(long, value_name = "PATH")]
    pub disk: Option<PathBuf>,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
    /// No progress line.
    #[arg(long)]
    pub quiet: bool,
    /// Threads of the generator.
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Bytes the server may send ahead on one stream.
    #[arg(long, default_value_t = 4 << 20, value_name = "BYTES")]
    pub stream_window: u32,
    /// Before it is measured the load runs this long.
    #[arg(long, default_value = "2s", value_parser = duration, value_name = "TIME")]
    pub warm_up: Duration,
    /// How long is measured.
    #[arg(long = "for", default_value = "10s", value_parser = duration, value_name = "TIME")]
    pub run: Duration,
    /// Keys begin with this.
    #[arg(long, default_value = "/bench/")]
    pub prefix: String,
}

/// Load of single calls.
#[derive(Clone, Debug, Args)]
pub struct Load {
    #[command(flatten)]
    pub target: Target,
    /// Callers, each with one call under way at a time.
    #[arg(long, default_value_t = 64)]
    pub clients: u32,
    /// Connections that the callers share; by default one for ten callers, at least one an
    /// endpoint.
    #[arg(long, value_name = "COUNT")]
    pub conns: Option<usize>,
    /// Open loop: calls fall due at this rate, all clients together.
    #[arg(long, value_name = "PER SECOND")]
    pub rate: Option<f64>,
    /// Different keys.
    #[arg(long, default_value_t = 10_000)]
    pub keys: u64,
    /// Bytes of a value.
    #[arg(long, default_value_t = 256, value_name = "BYTES")]
    pub value_size: usize,
    #[arg(long, value_enum, default_value_t = Order::Random)]
    pub order: Order,
    /// Write every key once before it begins.
    #[arg(long)]
    pub fill: bool,
}

impl Target {
    /// # Errors
    /// Names the endpoint that is no address.
    pub fn dial(&self) -> Result<Dial, Failure> {
        let resolve = |text: &String| -> Result<SocketAddr, Failure> {
            let bare = text.trim_start_matches("http://");
            let mut found =
                bare.to_socket_addrs().map_err(|e| format!("endpoint {text}: {e}; it must be host:port"))?;
            found.next().ok_or_else(|| format!("endpoint {text} has no address").into())
        };
        let endpoints = self.endpoints.iter().map(resolve).collect::<Result<_, _>>()?;
        Ok(Dial { endpoints, stream_window: self.stream_window })
    }

    /// Whose costs are read. `KVORUM_BENCH_SPINNERS` (process ids, comma separated) names processes
    /// that only keep the CPUs from halting, which `cargo xtask bench --awake` starts.
    pub fn watched(&self) -> Watched {
        let spinners = std::env::var("KVORUM_BENCH_SPINNERS").unwrap_or_default();
        let spinners = spinners.split(',').filter_map(|pid| pid.parse().ok()).collect();
        Watched { pids: self.pids.clone(), disk: self.disk.clone(), spinners }
    }
}

impl Load {
    /// # Errors
    /// Says which arguments do not go together.
    pub fn plan(&self) -> Result<Plan, Failure> {
        if self.clients == 0 || self.target.threads == 0 || self.keys == 0 {
            return Err("--clients, --threads and --keys must be at least 1".into());
        }
        if self.rate.is_some_and(|rate| !(rate > 0.0 && rate <= 10_000_000.0)) {
            return Err("--rate must be above 0 and at most 10,000,000".into());
        }
        let threads = self.target.threads;
        let least = self.target.endpoints.len().max(threads);
        let conns = self.conns.unwrap_or((self.clients as usize).div_ceil(10)).max(least);
        Ok(Plan {
            dial: self.target.dial()?,
            clients: self.clients.max(threads as u32),
            conns,
            threads,
            warm_up: self.target.warm_up,
            run: self.target.run,
            rate: self.rate,
            total: None,
        })
    }
}

/// `10s`, `500ms`, `2m`, or a number of seconds.
pub fn duration(text: &str) -> Result<Duration, Failure> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("{unit:?} is no unit; there are ms, s, m and h").into()),
    };
    let number: f64 = number.parse().map_err(|_| format!("{text:?} is no time, such as 10s or 500ms"))?;
    Duration::try_from_secs_f64(number * scale).map_err(|e| e.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
