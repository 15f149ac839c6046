//! Who this member is: ids from the initial cluster as etcd computes them, or from the data
//! directory's `identity` file (`disk::identity`) when there is one; and the founding of a cluster.

mod join;
mod known;

use crate::driver::tell;
use crate::files::{self, RealFiles};
use crate::log::{self, hex, json};
use crate::options::Options;
use crate::peers::{Asking, Greeter, Outcome, PeerPort};
use crate::signals::{Stops, die_of};
use crate::tls::Dialler;
pub(crate) use disk::founding::Founding;
use disk::founding::Mismatch;
use disk::identity::{self, Found, Unknown};
use disk::inquiry::{Running, Stage};
use disk::startover::known_head;
use disk::urls::texts;
use disk::{Files, Identity, late, restored};
use std::hash::BuildHasher;
use std::path::Path;
use std::sync::Arc;
use store::Member;
use tokio::runtime::Runtime;

/// A start that did not succeed; the directory is as it was.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) message: &'static str,
    pub(crate) error: String,
}

/// A failure with this message, of whatever error says more.
pub(crate) fn failed<E: ToString>(message: &'static str) -> impl Fn(E) -> Failed {
    move |error| Failed { message, error: error.to_string() }
}

const UNUSABLE: &str = "the data directory cannot be used";
const UNFOUNDED: &str = "cannot found the cluster";
const NOT_OURS: &str = "discovery failed";

/// What a member begins with.
pub(crate) struct Start<'a> {
    pub(crate) options: &'a Options,
    /// Drawn anew at each start.
    pub(crate) boot: u64,
    pub(crate) seed: u64,
    /// Files of the state that stay open between reads.
    pub(crate) kept_files: usize,
    /// Bound, and not yet served.
    pub(crate) peers: &'a [PeerPort],
    /// How https peers are dialled.
    pub(crate) dialler: Option<Dialler>,
    /// Where a founder waits, and later the member lives.
    pub(crate) runtime: &'a Runtime,
}

/// Whether this start has made the data directory.
#[derive(Clone, Copy)]
struct Created(bool);

/// A data directory that holds a member.
pub(crate) struct Begun {
    pub(crate) files: Arc<RealFiles>,
    pub(crate) identity: Identity,
    /// It must not vote before it has caught up.
    pub(crate) late: bool,
    pub(crate) config: node::Config,
    /// Answers on the peer port until the member does.
    pub(crate) greeter: Option<Greeter>,
    /// Signals that were listened to while it waited.
    pub(crate) stops: Option<Stops>,
}

/// Opens the data directory, and founds the cluster in an empty one: alone at once, else when the
/// other initial members have said that it may.
///
/// # Errors
/// The directory is of no use, or this member must not found; nothing was written then.
pub(crate) fn begin(start: &Start) -> Result<Begun, Failed> {
    let options = start.options;
    let created = Created(!options.data_dir.exists());
    if created.0 {
        // A wrong initial cluster shall not even leave an empty directory.
        check_flags(options).map_err(failed(NOT_OURS))?;
    }
    let opened = RealFiles::open(&options.data_dir, start.kept_files);
    let real = opened.map(Arc::new).map_err(|error| start.failed("cannot open the data directory", error))?;
    files::tell_modes(&options.data_dir);
    let files: Arc<dyn Files> = real.clone();
    let found = match identity::find(&*files) {
        Ok(found) => found,
        Err(why) => start.names_itself(&files, why)?,
    };
    let member = match found {
        Found::Ready(identity) => start.goes_on(&files, identity),
        _ if options.alone => Err(start.has_nothing(created)),
        found if options.existing => start.joins(&files, &found, created),
        found => start.founds(&files, &found, created),
    }?;
    let Known { identity, late, greeter, stops } = member;
    let config = start.config(identity, late);
    Ok(Begun { files: real, identity, late, config, greeter, stops })
}

/// As in [`Begun`].
struct Known {
    identity: Identity,
    late: bool,
    greeter: Option<Greeter>,
    stops: Option<Stops>,
}

impl Start<'_> {
    fn failed(&self, message: &'static str, error: impl std::fmt::Display) -> Failed {
        failed(message)(place(&self.options.data_dir, &error.to_string()))
    }

    /// Takes an empty directory away that this start has made.
    fn leave(&self, created: Created) {
        if created.0 {
            // What is not empty stays.
            let _ = std::fs::remove_dir(&self.options.data_dir);
        }
    }

    fn config(&self, identity: Identity, late: bool) -> node::Config {
        let settings = &self.options.settings;
        node::Config {
            election_ms: settings.election.as_millis() as u64,
            heartbeat_ms: settings.heartbeat.as_millis() as u64,
            quota_bytes: quota(self.options),
            budgets: settings.budgets.node(),
            late_founder: late,
            scrub_seconds: settings.scrub_interval.as_secs_f64().ceil() as u64,
            founders: self.founders(identity),
            kernel_boot: kernel_boot(),
            // The standard library's hasher is seeded by the system.
            log_salt: std::hash::RandomState::new().hash_one(self.boot),
            token_seconds: settings.token_seconds,
            strict_reconfig: settings.strict_reconfig,
            max_learners: settings.max_learners,
            ..node::Config::new(identity.cluster, identity.member, self.boot, self.seed)
        }
    }

    /// The identity cannot be read, because of `why`. With peers it is written anew, if the flags
    /// and all other files say the same; for a member that joined, if the cluster says so.
    fn names_itself(&self, files: &Arc<dyn Files>, why: Unknown) -> Result<Found, Failed> {
        let by_flags = members_of(self.options).ok();
        let lone = by_flags.as_ref().is_some_and(|founding| founding.members.len() == 1);
        let Some(identity) = identity::from_other_files(&**files).filter(|_| !lone) else {
            return Err(self.failed(UNUSABLE, why));
        };
        if let known::Word::Not(text) = self.word_of(identity, by_flags.as_ref())? {
            return Err(self.failed(UNUSABLE, format!("{why}; {text}")));
        }
        log::error(
            "the identity is written anew, as the other files and the flags or the cluster say",
            &[("error", json!(why.to_string()))],
        );
        identity::write(&**files, identity, true).map_err(|error| self.failed(UNUSABLE, error))?;
        Ok(Found::Ready(identity))
    }

    /// The members of the flags, if they are those that founded this cluster.
    fn founders(&self, identity: Identity) -> Vec<Member> {
        let ours = members_of(self.options).ok().filter(|founding| founding.identity == identity);
        ours.map_or_else(Vec::new, |founding| founding.members)
    }

    fn greeter(&self, identity: Identity, stage: Stage) -> Result<Greeter, Failed> {
        let io = |error: std::io::Error| failed("cannot start a thread")(error.to_string());
        Greeter::start(identity, stage, self.peers).map_err(io)
    }

    /// The directory holds a member.
    fn goes_on(&self, files: &Arc<dyn Files>, identity: Identity) -> Result<Known, Failed> {
        log::info(
            "restarting local member",
            &[("local-member-id", hex(identity.member)), ("cluster-id", hex(identity.cluster))],
        );
        if self.options.alone {
            self.goes_on_alone(files, identity)?;
        }
        let unusable = |fault| self.failed(UNUSABLE, fault);
        if restored::marked(&**files, identity).map_err(unusable)? {
            let known = self.begins_restored(files, identity)?;
            restored::clear(&**files).map_err(unusable)?;
            if let Some(known) = known {
                return Ok(known);
            }
        }
        let late = late::marked(&**files, identity).map_err(unusable)?;
        // It may take a while to read the directory. A founder shall not take that for absence.
        let greeter = match self.options.initial_cluster.len() {
            0 | 1 if self.options.discovery.is_none() => None,
            _ => Some(self.greeter(identity, Stage::Recovering)?),
        };
        Ok(Known { identity, late, greeter, stops: None })
    }

    /// The first start of a directory that was made of a backup. One of the same backup may have
    /// been here before: this one asks, as a founder does. None: there is nobody to ask.
    fn begins_restored(&self, files: &Arc<dyn Files>, identity: Identity) -> Result<Option<Known>, Failed> {
        let unusable = |fault| self.failed(UNUSABLE, fault);
        let head = known_head(&**files, identity).map_err(unusable)?;
        let Some(head) = head.filter(|head| head.members.len() > 1) else { return Ok(None) };
        let at = Running { term: 1, commit: head.applied.index, last: head.applied.index, ..Running::default() };
        let running = Running { founding: head.founding, ..at };
        let asking = self.asking(identity, &head.members, head.founding);
        let known = self.ask(asking, Stage::Running(running), Created(false))?;
        if known.late {
            late::mark(&**files, identity).map_err(unusable)?;
        }
        Ok(Some(known))
    }

    fn asking(&self, identity: Identity, members: &[Member], founding: u64) -> Asking {
        Asking { identity, boot: self.boot, members: members.to_vec(), founding, dialler: self.dialler.clone() }
    }

    /// `--force-new-cluster`: the others are gone for good.
    fn goes_on_alone(&self, files: &Arc<dyn Files>, identity: Identity) -> Result<(), Failed> {
        let mut said = Vec::new();
        let done = node::alone(&self.config(identity, false), files, &mut said);
        for output in said {
            if let node::Output::Note { level, text } = output {
                tell(level, &text);
            }
        }
        let done = done.and_then(|()| restored::clear(&**files));
        done.map_err(|fault| self.failed("cannot go on alone", fault))
    }

    /// An operator who forces a cluster has data. This is not where it is.
    fn has_nothing(&self, created: Created) -> Failed {
        self.leave(created);
        self.failed("cannot go on alone", "--force-new-cluster: no member has ever started here; correct --data-dir")
    }

    /// The directory is empty, or holds a founding that was interrupted.
    fn founds(&self, files: &Arc<dyn Files>, found: &Found, created: Created) -> Result<Known, Failed> {
        let Founding { identity, members } = members_of(self.options).map_err(failed(NOT_OURS))?;
        if let Found::Founding(before) = found
            && *before != identity
        {
            let text =
                "the founding that was interrupted had another initial cluster; remove the directory to found anew";
            return Err(self.failed(UNUSABLE, text));
        }
        let known = match members.len() {
            1 => Known { identity, late: false, greeter: None, stops: None },
            _ => self.ask(self.asking(identity, &members, 0), Stage::Founding, created)?,
        };
        let write = |ready| identity::write(&**files, identity, ready).map_err(|error| self.failed(UNFOUNDED, error));
        write(false)?;
        node::genesis(files, identity, &self.config(identity, known.late), members)
            .map_err(|fault| self.failed(UNFOUNDED, fault))?;
        if known.late {
            late::mark(&**files, identity).map_err(|fault| self.failed(UNFOUNDED, fault))?;
        }
        write(true)?;
        Ok(known)
    }

    /// Asks the others whether this member may found; who asks it meanwhile hears `stage`. A signal
    /// to stop ends the process here.
    fn ask(&self, asking: Asking, stage: Stage, created: Created) -> Result<Known, Failed> {
        let (identity, members) = (asking.identity, &asking.members);
        let mut greeter = self.greeter(identity, stage)?;
        let (stops, asked) = self.runtime.block_on(async {
            let mut stops = Stops::listen().map_err(|error| failed("cannot listen for signals")(error.to_string()))?;
            let asked = tokio::select! {
                outcome = asking.until_decided(&greeter) => Ok(outcome),
                number = stops.next() => Err(number),
            };
            Ok((stops, asked))
        })?;
        match asked {
            Ok(Outcome::Found { late }) => {
                log::info(
                    if late { "founding, late: the others have begun already" } else { "founding the cluster" },
                    &[("local-member-id", hex(identity.member)), ("cluster-id", hex(identity.cluster))],
                );
                if late {
                    // What it says from now on must not help another founder.
                    drop(greeter);
                    greeter = self.greeter(identity, Stage::Recovering)?;
                }
                Ok(Known { identity, late, greeter: Some(greeter), stops: Some(stops) })
            }
            Ok(Outcome::Refuse { member, running }) => {
                self.leave(created);
                let named = |id| members.iter().find(|other| other.id == id);
                Err(failed(NOT_OURS)(refusal(self.options, named(identity.member), (member, named(member)), running)))
            }
            Ok(Outcome::Apart { one, other }) => {
                self.leave(created);
                Err(failed(NOT_OURS)(two_foundings(members, one, other)))
            }
            Ok(Outcome::Elsewhere(known)) => {
                self.leave(created);
                Err(failed(NOT_OURS)(known::elsewhere(self.options, &known)))
            }
            Ok(Outcome::Removed { member }) => {
                self.leave(created);
                Err(failed(NOT_OURS)(was_removed(identity.member, member)))
            }
            Err(signal) => {
                self.leave(created);
                die_of(signal)
            }
        }
    }
}

/// etcd's words first, then what it means here and the ways out.
fn refusal(options: &Options, own: Option<&Member>, (id, by): (u64, Option<&Member>), running: Running) -> String {
    let Running { term, commit, founding, .. } = running;
    let name = by.map_or("", |member| &member.name[..]);
    let (ours, urls) = own.map_or((0, &[][..]), |member| (member.id, &member.peer_urls[..]));
    format!(
        "member {ours:x} has already been bootstrapped: member {id:x} ({name}) is at term {term}, entry {commit}, \
         of founding {founding:016x}, and knows this member, but the data directory {} is empty, or was made of a \
         backup since. This member would forget what it has acknowledged. Put its directory back, or correct --data-dir. If it is lost: {}",
        options.data_dir.display(),
        way_out(ours, &options.name, urls),
    )
}

/// How a member whose directory is lost comes back under a new id.
fn way_out(id: u64, name: &str, peer_urls: &[String]) -> String {
    format!(
        "while the others are a majority, remove this member and add it anew (`etcdctl member remove {id:x}`, then \
         `etcdctl member add {name} --peer-urls={}`), and start it with `--initial-cluster-state existing` and the \
         `--initial-cluster` that is printed; without a majority, see what is left (`kvorum ctl recover`), or \
         restore a backup for all members",
        peer_urls.join(",")
    )
}

/// The cluster has removed this member, and an id does not come back.
fn was_removed(ours: u64, by: u64) -> String {
    format!(
        "member {ours:x} was removed from the cluster, says member {by:x}. To have it back, add it anew \
         (`etcdctl member add`), and start it with `--initial-cluster-state existing`"
    )
}

/// Two members run whose directories are of different clusters with the same flags.
fn two_foundings(members: &[Member], one: (u64, Running), other: (u64, Running)) -> String {
    let named = |(id, running): (u64, Running)| {
        let name = members.iter().find(|member| member.id == id).map_or("", |member| &member.name[..]);
        format!("member {id:x} ({name}) is of founding {:016x}, entry {}", running.founding, running.commit)
    };
    format!(
        "{}, and {}: the data directory of one of them is of a cluster that was founded before or beside the other \
         with the same flags. Stop the one whose keys are not wanted, and move its directory aside",
        named(one),
        named(other),
    )
}

/// Whether it has to be asked who founds the cluster (`--discovery-srv`); None: the data directory
/// says it, and no name service that is down shall keep a member from its restart. False: the file
/// that says it is damaged, and others may do.
pub(crate) fn must_ask(options: &Options) -> Option<bool> {
    options.discovery.as_ref()?;
    if options.alone {
        return None;
    }
    if !options.data_dir.exists() {
        return Some(true);
    }
    // A directory that cannot be opened is told of by whoever needs it.
    let files = RealFiles::open(&options.data_dir, 1).ok()?;
    match identity::find(&files) {
        Ok(Found::Ready(_)) => None,
        Ok(_) => Some(true),
        Err(_) => Some(false),
    }
}

/// What Linux calls this boot of the machine.
fn kernel_boot() -> Option<disk::Boot> {
    disk::parse_boot(&std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?)
}

fn place(dir: &Path, text: &str) -> String {
    format!("{}: {text}", dir.display())
}

/// Bytes; negative = no quota.
pub(crate) fn quota(options: &Options) -> i64 {
    const DEFAULT: i64 = 2 << 30;
    if options.settings.quota_bytes == 0 { DEFAULT } else { options.settings.quota_bytes }
}

fn members_of(options: &Options) -> Result<Founding, Mismatch> {
    let cluster = options.initial_cluster.iter().map(|(name, url)| (&name[..], &url.text[..]));
    let founding = disk::founding::founding(&options.name, cluster, &options.token, &texts(&options.advertise_peer));
    founding.map(|mut founding| {
        if options.discovery.is_some() {
            // By DNS each founder numbers the others in its own way, and all begin with the same
            // state. The names come when the members publish them.
            founding.members.iter_mut().for_each(|member| member.name.clear());
        }
        founding
    })
}

/// Checks the initial cluster of the flags.
fn check_flags(options: &Options) -> Result<(), Mismatch> {
    if options.alone && options.discovery.is_some() {
        // Nobody was asked for one.
        return Ok(());
    }
    match options.existing {
        true => join::named(options).map(drop),
        false => members_of(options).map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::parse;
    use crate::options::options;
    use std::net::TcpListener;

    fn plain(listener: TcpListener) -> PeerPort {
        PeerPort { listener: listener.into(), handshakes: None }
    }

    fn found(line: &str) -> Result<Founding, Mismatch> {
        let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        members_of(&options(&parse(&args, &[]).expect("parses"), 1).expect("valid"))
    }

    #[test]
    fn the_flags_found_a_cluster() {
        let one = found("").expect("good");
        assert_eq!(one.identity, Identity { cluster: 0xcdf8_1819_4e3a_8c32, member: 0x8e9e_05c5_2164_694d });
    }

    #[test]
    fn a_wrong_initial_cluster_is_refused_in_etcds_words() {
        let text = "couldn't find local name \"default\" in the initial cluster configuration";
        let error = found("--initial-cluster a=http://localhost:2380").expect_err("names another");
        assert_eq!(error.to_string(), text);
    }

    fn bound() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        let port = listener.local_addr().expect("bound").port();
        (listener, port)
    }

    /// Members `a`, `b` and `c`, of which only `b` answers; with the peer ports of the first two.
    struct Three {
        ports: [u16; 3],
        ours: TcpListener,
        theirs: TcpListener,
    }

    impl Three {
        fn new() -> Three {
            let ((ours, a), (theirs, b), (_, c)) = (bound(), bound(), bound());
            Three { ports: [a, b, c], ours, theirs }
        }

        fn options(&self, member: usize) -> Options {
            let [a, b, c] = self.ports.map(|port| format!("http://127.0.0.1:{port}"));
            let (name, url) = [("a", &a), ("b", &b), ("c", &c)][member];
            let cluster = format!("a={a},b={b},c={c}");
            let args = ["--name", name, "--initial-advertise-peer-urls", url, "--initial-cluster", &cluster];
            options(&parse(&args.map(str::to_string), &[]).expect("parses"), 1).expect("valid")
        }

        fn identity(&self, member: usize) -> Identity {
            members_of(&self.options(member)).expect("good").identity
        }

        /// Starts `a` in `dir` while `b` answers `stage`.
        fn begins(self, dir: &Path, stage: Stage) -> Result<Begun, Failed> {
            let options = Options { data_dir: dir.to_path_buf(), ..self.options(0) };
            let identity = self.identity(1);
            let _greeter = Greeter::start(identity, stage, &[plain(self.theirs)]).expect("greets");
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            begin(&Start {
                kept_files: 256,
                options: &options,
                boot: 1,
                seed: 1,
                peers: &[plain(self.ours)],
                dialler: None,
                runtime: &runtime,
            })
        }
    }

    fn begins(dir: &Path, stage: Stage) -> Result<Begun, Failed> {
        Three::new().begins(dir, stage)
    }

    /// With peers the name of a directory is not lost with its file.
    #[test]
    fn a_damaged_identity_is_written_anew_if_all_else_agrees() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("a");
        let three = Three::new();
        let [options, other] = [three.options(0), three.options(1)].map(|o| Options { data_dir: path.clone(), ..o });
        let identity = three.identity(0);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let begins = |options: &Options| {
            let peers = [plain(bound().0)];
            begin(&Start {
                options,
                boot: 1,
                seed: 1,
                kept_files: 256,
                peers: &peers,
                dialler: None,
                runtime: &runtime,
            })
            .map(|begun| begun.identity)
        };
        let asked = Greeter::start(three.identity(1), Stage::Founding, &[plain(three.theirs)]).expect("greets");
        assert_eq!(begins(&options).expect("founds"), identity);
        drop(asked);
        let file = path.join("identity");
        let right = std::fs::read(&file).expect("reads");
        for damage in [Some(&right[..9]), Some(&b"garbage"[..]), None] {
            match damage {
                Some(bytes) => std::fs::write(&file, bytes).expect("writes"),
                None => std::fs::remove_file(&file).expect("removes"),
            }
            assert!(begins(&other).is_err(), "another member's flags");
            assert_eq!(begins(&options).expect("begins"), identity);
            assert_eq!(std::fs::read(&file).expect("reads"), right);
        }
        std::fs::write(&file, String::from_utf8_lossy(&right).replace("kvorum 1", "kvorum 9")).expect("writes");
        assert!(begins(&options).is_err(), "a later format is not damage");
        std::fs::write(&file, &right[..9]).expect("writes");
        std::fs::remove_dir_all(path.join("state")).expect("removes");
        assert!(begins(&options).is_err(), "nothing says whose it is");
    }

    fn beyond() -> Running {
        Running { term: 2, commit: 9, last: 9, ..Running::default() }
    }

    #[test]
    fn two_of_three_found() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let begun = begins(&dir.path().join("a"), Stage::Founding).expect("founds");
        assert!(!begun.late && !begun.config.late_founder);
        assert_eq!(identity::find(&*begun.files).expect("an identity"), Found::Ready(begun.identity));
        assert!(!late::marked(&*begun.files, begun.identity).expect("reads"));
    }

    #[test]
    fn a_late_founder_remembers_it() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let begun = begins(&dir.path().join("a"), Stage::Running(beyond())).expect("founds");
        assert!(begun.late && begun.config.late_founder);
        assert_eq!(identity::find(&*begun.files).expect("an identity"), Found::Ready(begun.identity));
        assert!(late::marked(&*begun.files, begun.identity).expect("reads"));
        drop(begun);
        let again = begins(&dir.path().join("a"), Stage::Founding).expect("goes on");
        assert!(again.late && again.config.late_founder);
    }

    #[test]
    fn a_member_that_is_known_writes_nothing() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let knows = Stage::Running(Running { published: true, ..beyond() });
        let path = dir.path().join("a");
        let failed = begins(&path, knows).err().expect("refused");
        assert_eq!(failed.message, "discovery failed");
        let parts = ["has already been bootstrapped", "(b) is at term 2, entry 9", "--data-dir", "member remove"];
        for part in parts.into_iter().chain(["member add a --peer-urls=", "--initial-cluster-state existing"]) {
            assert!(failed.error.contains(part), "{failed:?}");
        }
        assert!(!path.exists());
        // A directory that was there before stays.
        std::fs::create_dir(&path).expect("creates");
        begins(&path, knows).err().expect("refused");
        assert_eq!(std::fs::read_dir(&path).expect("is there").count(), 0);
    }

    #[test]
    fn a_founding_that_was_interrupted_asks_again() {
        let knows = Stage::Running(Running { acknowledged: 4, ..beyond() });
        for (stage, founds) in [(Stage::Founding, true), (knows, false)] {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let (three, path) = (Three::new(), dir.path().join("a"));
            identity::write(&RealFiles::open(&path, 256).expect("opens"), three.identity(0), false).expect("writes");
            let read = || std::fs::read(path.join(identity::FILE)).expect("is there");
            let before = read();
            assert_eq!(three.begins(&path, stage).is_ok(), founds);
            assert_eq!(before == read(), !founds, "a refusal changes nothing");
        }
    }
}
