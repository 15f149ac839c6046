//! One member as a process: from the command line to the last log line.

use crate::bootstrap::{self, Begun, Failed, Start, failed, quota};
use crate::config_file;
use crate::core::{self, Core};
use crate::descriptors::{self, Descriptors};
use crate::driver::{Driver, End};
use crate::files::PageCache;
use crate::flags::{self, Given, Rejected};
use crate::log::{self, hex, json};
use crate::metrics::{db_in_use, db_size};
use crate::options::{self, Options};
use crate::peers::{Peers, Setup};
use crate::ports::{Bound, Listening};
use crate::readers::Readers;
use crate::settings::ETCD_LEVEL;
use crate::signals::{Stops, die_of, levels};
use crate::sockets::{self, Listener};
use crate::tls::Security;
use crate::transport::{self, Door, Edge};
use crate::watchdog::Watchdog;
use crate::workers::Workers;
use crate::{compactor, discovery, publish};
use disk::Files;
use disk::urls::texts;
use node::work::Whose;
use node::{Node, Output};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::Member;
use tokio::sync::oneshot;

/// Connections and peers answer on runtimes of their own.
const CLIENTS: usize = 0;
const PEERS: usize = 1;
/// A clean stop takes at most this long; then the process ends all the same.
const STOP_WITHIN: Duration = Duration::from_millis(1500);

/// Answers that are on their way when a removed member ends get so long.
const LAST_ANSWERS: Duration = Duration::from_millis(100);

/// What `--version` prints: etcd's first line, then ours.
pub fn version_text() -> String {
    format!(
        "etcd Version: {ETCD_LEVEL}\nGit SHA: kvorum\nGo Version: none\nGo OS/Arch: {}/{}\nkvorum Version: {}\n",
        std::env::consts::OS,
        goarch(),
        env!("CARGO_PKG_VERSION")
    )
}

/// A flag of a member, for manual pages and completion.
#[derive(Clone, Copy, Debug)]
pub struct FlagAbout {
    /// Without dashes.
    pub name: &'static str,
    /// Needs no value.
    pub switch: bool,
    /// As it would be typed.
    pub default: &'static str,
    /// The values that it takes, if they can be listed.
    pub choices: &'static [&'static str],
    /// One line.
    pub about: &'static str,
}

/// The flags of a member that do something. Those that are taken for etcd's sake and have no effect
/// are on the page of `--help` alone.
pub fn flags() -> Vec<FlagAbout> {
    flags::about()
}

/// The variable of a flag: `ETCD_` and its name in capitals.
pub fn variable(flag: &str) -> String {
    flags::env_name(flag)
}

fn goarch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Runs a member with etcd's flags (`args` without the program's name). Returns the status
/// for `exit`; after a signal it does not return, but dies of that signal.
pub fn serve(args: &[String]) -> i32 {
    if !crate::parent::follow() {
        // Nobody is there to be told.
        return 1;
    }
    let env: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let read = config_file::given(args, &env).and_then(|given| {
        if given.bool("version") {
            print!("{}", version_text());
            return Ok(None);
        }
        let options = options::options(&given, random()).map_err(|why| config_file::in_its_words(&given, why))?;
        Ok(Some((given, options)))
    });
    match read {
        Ok(None) => 0,
        Ok(Some((given, options))) => {
            let on_screen =
                options.log_outputs.iter().any(|output| ["default", "stderr", "stdout"].contains(&&output[..]));
            match start(args, &given, options) {
                Ok(()) => 0,
                Err(Failed { message, error }) => {
                    sockets::remove_files();
                    if !on_screen {
                        eprintln!("{message}: {error}");
                    }
                    log::fatal(message, &[("error", json!(error))])
                }
            }
        }
        Err(rejected) => refuse(args, rejected),
    }
}

fn refuse(args: &[String], rejected: Rejected) -> i32 {
    match rejected {
        Rejected::Usage(text) => {
            eprint!("{text}\n{}", flags::usage());
            2
        }
        Rejected::Help => {
            eprint!("{}", flags::usage());
            print!("{}", flags::flag_list());
            0
        }
        Rejected::Shadowed(variable) => log::fatal(
            "conflicting environment variable is shadowed by corresponding command-line flag \
             (either unset environment variable or disable flag))",
            &[("environment-variable", json!(variable))],
        ),
        Rejected::Invalid(text) => {
            log::info("Running: ", &[("args", json!(harmless(args)))]);
            log::warn("failed to verify flags", &[("error", json!(text))]);
            1
        }
    }
}

fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // The standard library's hasher is seeded by the system for each process.
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.write_i128(jiff::Timestamp::now().as_nanosecond());
    hasher.finish()
}

/// Flags that go away, as etcd says it.
const DEPRECATED: [(&str, &str); 2] = [
    ("max-snapshots", "--max-snapshots is deprecated in 3.6 and will be decommissioned in 3.8."),
    (
        "v2-deprecation",
        "--v2-deprecation is deprecated and scheduled for removal in v3.8. The default value is enforced, ignoring \
         user input.",
    ),
];

/// The arguments for the log: without a password.
fn harmless(args: &[String]) -> Vec<&str> {
    const SECRET: &str = "discovery-password";
    let name = |arg: &str| arg.trim_start_matches('-').to_string();
    let mut hides = false;
    let show = |arg: &String| -> &str {
        if std::mem::take(&mut hides) {
            return "…";
        }
        hides = arg.starts_with('-') && name(arg) == SECRET;
        if name(arg).starts_with(&format!("{SECRET}=")) { "--discovery-password=…" } else { "" }
    };
    args.iter().map(show).zip(args).map(|(instead, arg)| if instead.is_empty() { arg } else { instead }).collect()
}

fn announce(args: &[String], given: &Given, options: &Options) {
    for (message, variable) in &given.env_warnings {
        log::warn(message, &[("environment-variable", json!(variable))]);
    }
    log::info("Running: ", &[("args", json!(harmless(args)))]);
    if let Some(path) = &given.file {
        log::info(
            "loaded server configuration, other configuration command line flags and environment variables will be \
             ignored if provided",
            &[("path", json!(path))],
        );
    }
    for key in &given.unknown_keys {
        log::warn("the configuration file has a key that is not known", &[("key", json!(key))]);
    }
    for (_, text) in DEPRECATED.iter().filter(|(name, _)| given.is_set(name)) {
        log::warn(text, &[]);
    }
    for (name, value, why) in &options.ignored {
        log::warn("flag has no effect", &[("flag", json!(name)), ("value", json!(value)), ("reason", json!(why))]);
    }
    if options.name == "default" {
        log::warn(
            "it isn't recommended to use default name, please set a value for --name",
            &[("name", json!("default"))],
        );
    }
    log::info(
        "starting an etcd server",
        &[
            ("etcd-version", json!(ETCD_LEVEL)),
            ("kvorum-version", json!(env!("CARGO_PKG_VERSION"))),
            ("name", json!(options.name)),
            ("data-dir", json!(options.data_dir)),
            ("listen-peer-urls", json!(texts(&options.listen_peer))),
            ("advertise-client-urls", json!(texts(&options.advertise_client))),
            ("listen-client-urls", json!(texts(&options.listen_client))),
            ("listen-metrics-urls", json!(texts(&options.listen_metrics))),
            ("initial-advertise-peer-urls", json!(texts(&options.advertise_peer))),
            ("heartbeat-interval", json!(format!("{}ms", options.settings.heartbeat.as_millis()))),
            ("election-timeout", json!(format!("{}ms", options.settings.election.as_millis()))),
            ("quota-backend-bytes", json!(quota(options))),
            ("max-request-bytes", json!(options.settings.max_request_bytes)),
            ("pre-vote", json!(true)),
        ],
    );
    log::info("memory budgets, in bytes", &options.settings.budgets.fields());
}

/// A panic anywhere ends the process, with one line that says where.
fn end_on_panic() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let text = info.payload_as_str().unwrap_or("no text");
        let stack = std::backtrace::Backtrace::force_capture().to_string();
        log::named("panic", log::Level::Panic, text, &[("at", json!(place)), ("stacktrace", json!(stack))]);
        std::process::exit(2);
    }));
}

/// A huge page is 2 MiB of memory however little of it is used, and a heap that clients shape uses
/// much of some and little of others. The allocator does not ask for them (its feature `no_thp`);
/// here the system is told not to give them unasked, as it does where `transparent_hugepage` is
/// `always`.
fn decline_huge_pages() {
    // A system that does not know the call has none to give.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

fn start(args: &[String], given: &Given, mut options: Options) -> Result<(), Failed> {
    log::start(options.log_level, options.log_format, &options.log_outputs, options.log_rotation)
        .map_err(|error| failed("cannot open the log")(error.to_string()))?;
    end_on_panic();
    let descriptors = Descriptors::of(descriptors::raise_limit());
    let wanted = options.settings.budgets.connections;
    options.settings.budgets.connections = wanted.min(descriptors.clients);
    decline_huge_pages();
    announce(args, given, &options);
    descriptors.tell(wanted);
    let io = |error: std::io::Error| failed("cannot start a thread")(error.to_string());
    let watchdog = Watchdog::start().map_err(io)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(io)?;
    match bootstrap::must_ask(&options) {
        Some(must) => runtime.block_on(discovery::fill(&mut options, must))?,
        None => discovery::passed_over(&options),
    }
    let bound = Bound::new(&options)?;
    let start = Start {
        options: &options,
        boot: random(),
        seed: random(),
        kept_files: descriptors.kept,
        peers: &bound.peer,
        dialler: bound.dialler.clone(),
        runtime: &runtime,
    };
    let Begun { files: real, identity, late, config, greeter, stops } = bootstrap::begin(&start)?;
    bound.keep_made()?;
    let (files, boot): (Arc<dyn Files>, u64) = (real.clone(), start.boot);
    let store_config = store::Config { segment_bytes: config.segment_bytes };
    let mut first = Vec::new();
    // On a thread that ends: the allocator gives what a living one does not use to nobody else.
    let recovered = std::thread::scope(|scope| scope.spawn(|| Node::recover(config, &files, &mut first)).join());
    let (node, wal) = recovered
        .expect("a panic ends the process")
        .map_err(|fault| failed("the data directory cannot be used")(refusal(&fault, &options)))?;
    tell_defragmentation(&node, &options);
    let (members, removed) = members(&first);
    log::info(
        "starting local etcd server",
        &[
            ("local-member-id", hex(identity.member)),
            ("cluster-id", hex(identity.cluster)),
            ("members", json!(members.len())),
        ],
    );

    let (waits, of_log) = (real.patience.waits.clone(), real.of_log.clone());
    let readers = Readers::start(files.clone(), Arc::new(PageCache(real))).map_err(io)?;
    let registry = prometheus::Registry::new();
    registry.register(Box::new(waits)).expect("nothing else has its name");
    of_log.register(&registry);
    let (core, end, mut deliveries) =
        Core::new(identity.cluster, identity.member, options.settings.clone(), registry, Some(readers), 2);
    let edge = Edge::new(core.on_runtime(CLIENTS));
    let to_peers = deliveries.remove(PEERS);
    let to_clients = deliveries.remove(CLIENTS);
    let workers = Workers::start(&edge, &end, files, Whose { id: identity, config: store_config }, wal).map_err(io)?;
    let max_request_bytes = options.settings.max_request_bytes;
    let (ports, dialler, strangers) = (bound.peer, bound.dialler, descriptors.strangers);
    let checks_origin = !options.peer_tls.skip_origin;
    let urls = texts(&options.advertise_peer);
    let setup = Setup { identity, boot, late, urls, ports, dialler, checks_origin, max_request_bytes, strangers };
    // The first hello says it.
    end.shared.founding.store(node.founding(), Ordering::Release);
    // From here on the member answers for itself.
    drop(greeter);
    let mut peers = Peers::start(setup, edge.on(core.on_runtime(PEERS)), to_peers).map_err(io)?;
    peers.follow(&members, &removed);
    let (ended, core_ended) = oneshot::channel();
    let driver = Driver::new(node, end, peers, workers, edge.clone());
    std::thread::Builder::new().name("core".into()).spawn(move || drop(ended.send(driver.run(first)))).map_err(io)?;
    runtime.block_on(async move {
        tokio::spawn(core::hand_out(to_clients));
        watchdog.follow(edge.core().turns());
        tokio::spawn(edge.core().budgets().clone().cut_stalled());
        live(edge, &options, (bound.client, bound.metrics), core_ended, stops).await
    });
    Ok(())
}

/// etcd's line: its tests wait for it. There is never anything to defragment.
fn tell_defragmentation(node: &Node, options: &Options) {
    if options.defrag_threshold_mib == 0 {
        return;
    }
    let now = node.status();
    let fields = [
        ("current-db-size-bytes", json!(db_size(&now))),
        ("current-db-size-in-use-bytes", json!(db_in_use(&now))),
        ("bootstrap-defrag-threshold-bytes", json!(options.defrag_threshold_mib.saturating_mul(1 << 20))),
    ];
    log::info("Skipping defragmentation", &fields);
}

/// What is said of a directory on which the member does not start.
fn refusal(fault: &disk::Fault, options: &Options) -> String {
    match fault {
        disk::Fault::Doubtful { .. } => {
            let dir = options.data_dir.display();
            format!("{fault}: to start without it, see `kvorum utl cut-tail --data-dir {dir}`")
        }
        // A member that knows its peers takes the others' copies instead.
        disk::Fault::Damaged { .. } => format!(
            "{fault}: nothing was changed, and no other member is known that has it; look at the disk, keep a copy of \
             the directory, and restore the newest snapshot (`kvorum utl snapshot restore`)"
        ),
        other => other.to_string(),
    }
}

/// The members that the recovered member knows, and those it knows to be removed.
fn members(first: &[Output]) -> (Vec<(Member, bool)>, BTreeSet<u64>) {
    let said = first.iter().rev().find_map(|output| match output {
        Output::Members { members, removed } => Some((members.clone(), removed.clone())),
        _ => None,
    });
    said.expect("a member says first who belongs to its cluster")
}

/// The member's life behind its start: publish, serve, stop.
async fn live(
    edge: Edge,
    options: &Options,
    (clients, metrics): (Vec<Listening>, Vec<Listening>),
    mut core_ended: oneshot::Receiver<End>,
    stops: Option<Stops>,
) {
    let listening = stops.map_or_else(Stops::listen, Ok);
    let mut stops = listening
        .unwrap_or_else(|error| log::fatal("cannot listen for signals", &[("error", json!(error.to_string()))]));
    tokio::spawn(levels());
    let serving = tokio::spawn(come_up(edge.clone(), options.clone(), clients, metrics));
    let number = tokio::select! {
        number = stops.next() => number,
        ended = &mut core_ended => {
            let ended = ended.unwrap_or(End::Fatal("the core thread ended".into()));
            if ended == End::Removed {
                leave(&edge).await;
            }
            die(ended)
        }
    };
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    let fields = [("name", json!(options.name)), ("data-dir", json!(options.data_dir))];
    log::info("closing etcd server", &fields);
    edge.core().stop();
    match tokio::time::timeout(STOP_WITHIN, core_ended).await {
        Ok(Ok(End::Stopped | End::Removed)) => {}
        Ok(Ok(End::Fatal(reason))) => die(End::Fatal(reason)),
        // The mark is on the disk: the next start starts over.
        Ok(Ok(End::Restart(_))) => {}
        Ok(Err(_)) | Err(_) => log::warn("the member did not stop in time", &fields),
    }
    serving.abort();
    log::info("closed etcd server", &fields);
    die_of(number)
}

fn die(end: End) -> ! {
    match end {
        End::Fatal(reason) => log::fatal("the member stopped", &[("error", json!(reason))]),
        End::Restart(reason) => restart(&reason),
        End::Stopped | End::Removed => {
            sockets::remove_files();
            std::process::exit(0)
        }
    }
}

/// The member was removed: in etcd's words, and clients that wait are told that it stops.
async fn leave(edge: &Edge) {
    log::warn("server error", &[("error", json!("the member has been permanently removed from the cluster"))]);
    log::warn("data-dir used by this member must be removed", &[]);
    edge.core().stop();
    tokio::time::sleep(LAST_ANSWERS).await;
}

/// Begins the same program anew in the place of this process: whoever looks after it sees no end.
/// Locks and sockets close with it.
fn restart(reason: &str) -> ! {
    use std::os::unix::process::CommandExt;
    log::warn("restarting the member", &[("reason", json!(reason))]);
    let mut args = std::env::args_os();
    // The program's file may have been replaced or removed since.
    let mut program = std::process::Command::new("/proc/self/exe");
    if let Some(name) = args.next() {
        program.arg0(name);
    }
    let error = program.args(args).exec();
    log::fatal("the member stopped", &[("error", json!(format!("{reason}; it does not start again: {error}")))])
}

/// Joins, then opens the doors.
async fn come_up(edge: Edge, options: Options, clients: Vec<Listening>, metrics: Vec<Listening>) {
    let joined = publish::publish(edge.core(), &texts(&options.advertise_client)).await;
    if !joined || !publish::doubt_over(edge.core()).await {
        return;
    }
    if let Some(mode) = options.auto_compaction {
        tokio::spawn(compactor::run(edge.core().clone(), mode));
    }
    for port in metrics {
        log::info("serving metrics", &[("address", json!(port.url))]);
        open(port.listener, &edge, port.door, port.security);
    }
    for Listening { address, listener, door, security, .. } in clients {
        let (plain, encrypted) = match security {
            Security::Plain => (true, false),
            Security::Tls(_) => (false, true),
            Security::Both(_) => (true, true),
        };
        open(listener, &edge, door, security);
        let traffic = match door {
            Door::Grpc => "grpc",
            Door::Http | Door::Metrics => "http",
            Door::All => "grpc+http",
        };
        log::info("ready to serve client requests", &[]);
        let fields = [("traffic", json!(traffic)), ("address", json!(address))];
        if plain {
            log::info("serving client traffic insecurely; this is strongly discouraged!", &fields);
        }
        if encrypted {
            log::info("serving client traffic securely", &fields);
        }
    }
    match sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
        Ok(()) if std::env::var_os("NOTIFY_SOCKET").is_some() => log::info("successfully notified init daemon", &[]),
        Ok(()) => {}
        Err(error) => log::error("failed to notify systemd for readiness", &[("error", json!(error.to_string()))]),
    }
}

fn open(listener: Listener, edge: &Edge, door: Door, security: Security) {
    match listener.accepting() {
        Ok(listener) => drop(tokio::spawn(transport::serve(listener, edge.clone(), door, security))),
        Err(error) => log::fatal("listener failed", &[("error", json!(error.to_string()))]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_shows_no_password() {
        let args = ["--name", "a", "--discovery-password", "x", "-discovery-password=x", "--discovery-user=u"];
        let shown = harmless(&args.map(str::to_string)).join(" ");
        assert_eq!(shown, "--name a --discovery-password … --discovery-password=… --discovery-user=u");
    }
}
