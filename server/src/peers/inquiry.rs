//! The inquiry of a founder: it asks the other initial members how they stand, before it writes
//! anything. What follows from the answers is decided in `disk::inquiry`.
//!
//! Until the member itself runs, a [`Greeter`] answers on its peer port.

use super::dial::{NoLine, greet};
use super::hello::{self, Hello, Standing, Verdict};
use super::{Line, PeerPort, Peering, Remote, listen};
use crate::log::{self, hex, json};
use crate::settings::ETCD_LEVEL;
use crate::sockets::Stream;
use crate::tls::{Dialler, Handshakes};
use disk::Identity;
use disk::inquiry::{Decision, Running, Stage, decide};
use disk::urls::Url;
use futures_util::future::join_all;
use node::{Answer, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::Member;
use tokio::sync::{Notify, oneshot};

/// A member that was reached answers within this time.
const ANSWER: Duration = Duration::from_secs(5);
const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// Most connections at once.
const STRANGERS: usize = 32;
/// The first line about members that do not answer, and how often there is another.
const SAY_AFTER: Duration = Duration::from_secs(1);
const SAY_EVERY: Duration = Duration::from_secs(5);

/// How this member stands, as the core knows it.
pub(super) async fn stage(peering: &Peering, asker: u64) -> io::Result<Stage> {
    let none = || io::Error::other("the member does not say how it stands");
    let core = peering.core();
    let Answer::Status(status) = core.ask(node::Who::Member, Request::Status, ANSWER).await.answer else {
        return Err(none());
    };
    let request = Request::Members { linearizable: false };
    let Answer::Members { members } = core.ask(node::Who::Member, request, ANSWER).await.answer else {
        return Err(none());
    };
    let acknowledged = status.followers.iter().find(|follower| follower.member == asker).map_or(0, |it| it.matched);
    Ok(Stage::Running(Running {
        term: status.term,
        commit: status.committed,
        last: status.last,
        late: peering.late,
        published: members.iter().any(|(member, _)| member.id == asker && !member.client_urls.is_empty()),
        acknowledged,
        founding: core.founding(),
    }))
}

/// What the greeter and the asker share.
struct Shared {
    identity: Identity,
    stage: Stage,
    /// Members that gave no answer the last time.
    silent: Mutex<BTreeSet<u64>>,
    /// One of them has just asked us: it is there now.
    heard: Notify,
    said: log::Seldom,
}

impl Shared {
    fn silent(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.silent.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Answers inquiries for a member that does not run yet, on a thread that ends with this.
pub(crate) struct Greeter {
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Greeter {
    /// `stage`: what is answered. The listeners stay open for the member behind it.
    pub(crate) fn start(identity: Identity, stage: Stage, ports: &[PeerPort]) -> io::Result<Greeter> {
        let shared = Arc::new(Shared {
            identity,
            stage,
            silent: Mutex::default(),
            heard: Notify::new(),
            said: log::Seldom::default(),
        });
        let ports = ports.iter().map(PeerPort::try_clone).collect::<io::Result<Vec<_>>>()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let ours = shared.clone();
        let thread = std::thread::Builder::new().name("greeter".into()).spawn(move || {
            runtime.block_on(async move {
                for port in ports {
                    tokio::spawn(accept(ours.clone(), port));
                }
                let _ = stopped.await;
            });
        })?;
        Ok(Greeter { shared, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Greeter {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(shared: Arc<Shared>, port: PeerPort) {
    let PeerPort { listener, handshakes } = port;
    let meet = |stream, _, place| {
        let (shared, handshakes) = (shared.clone(), handshakes.clone());
        async move {
            // Whoever asked asks again.
            let _ = meet(&shared, stream, handshakes.as_ref()).await;
            drop(place);
        }
    };
    let failed = |error: io::Error| {
        if shared.said.due(error.to_string()) {
            log::warn("accept failed", &[("error", json!(error.to_string()))]);
        }
    };
    listen::accept(listener, STRANGERS, meet, failed, || {}).await;
}

async fn meet(shared: &Shared, stream: Stream, handshakes: Option<&Handshakes>) -> io::Result<()> {
    let Some((mut stream, _)) = listen::secure(stream, handshakes).await? else { return Ok(()) };
    let Some(hello) = listen::first_words(&mut stream).await? else { return Ok(()) };
    // The cluster's id says that its initial members are ours.
    let verdict = match hello.judge(shared.identity.cluster, shared.identity.member, Standing::Member, 0) {
        Verdict::Ok { .. } if hello.line != Line::Inquiry => Verdict::Refused("this member does not run yet".into()),
        verdict => verdict,
    };
    if !matches!(verdict, Verdict::Ok { .. }) {
        return listen::answer(&mut stream, &verdict, None).await;
    }
    if shared.silent().remove(&hello.from) {
        shared.heard.notify_one();
    }
    listen::answer(&mut stream, &verdict, Some((shared.identity, shared.stage))).await
}

/// Who asks, and whom.
pub(crate) struct Asking {
    pub(crate) identity: Identity,
    pub(crate) boot: u64,
    /// All initial members, this one included.
    pub(crate) members: Vec<Member>,
    /// Of which founding the asker is. Who is of another one is not heard. 0: of none.
    pub(crate) founding: u64,
    /// How https peers are dialled.
    pub(crate) dialler: Option<Dialler>,
}

/// What one member answered, or why it did not.
type Heard = Result<Stage, NoLine>;

/// What the answers came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Found {
        late: bool,
    },
    Refuse {
        member: u64,
        running: Running,
    },
    Apart {
        one: (u64, Running),
        other: (u64, Running),
    },
    /// `member` says that the asker was removed from the cluster.
    Removed {
        member: u64,
    },
    /// So many are of another cluster that there is no majority for this founding, and that one
    /// has the asker.
    Elsewhere(Elsewhere),
}

/// Another cluster runs where the other initial members should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    /// The peer URL at which it was asked.
    pub(crate) by: String,
    pub(crate) cluster: u64,
    /// The asker, as that cluster has it: with the same peer URLs.
    pub(crate) own: Member,
}

/// What the members of a cluster say to one that joins it.
#[derive(Debug)]
pub(crate) enum Greeting {
    /// It is a member that was never heard of before.
    Welcome,
    /// `member` has heard of the asker already.
    Known { member: u64 },
    /// `member` says that the asker was removed.
    Removed { member: u64 },
    /// Nobody answers, and why.
    Nobody(String),
}

impl Asking {
    fn others(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.id != self.identity.member)
    }

    /// Asks all others again and again until it is decided; for ever, if it must be.
    pub(crate) async fn until_decided(&self, greeter: &Greeter) -> Outcome {
        let shared = &greeter.shared;
        shared.silent().extend(self.others().map(|member| member.id));
        let mut wait = FIRST_WAIT;
        let mut say_at = Instant::now() + SAY_AFTER;
        loop {
            // All have answered or failed before anything is decided: the slowest one may be the
            // one that knows us.
            let heard: Vec<(&Member, Heard)> = join_all(self.others().map(|member| self.ask(member))).await;
            let ours = |stage: &Stage| !matches!(stage, Stage::Running(it) if self.is_apart(it.founding));
            let answers: BTreeMap<u64, Option<Stage>> =
                heard.iter().map(|(member, heard)| (member.id, heard.as_ref().ok().copied().filter(ours))).collect();
            if let Some(member) = removed_by(&heard) {
                return Outcome::Removed { member };
            }
            match decide(&answers) {
                Decision::Found { late } => return Outcome::Found { late },
                Decision::Refuse { member, running } => return Outcome::Refuse { member, running },
                Decision::Apart { one, other } => return Outcome::Apart { one, other },
                Decision::Wait => {}
            }
            *shared.silent() = answers.iter().filter(|(_, heard)| heard.is_none()).map(|(member, _)| *member).collect();
            if Instant::now() >= say_at {
                say_at = Instant::now() + SAY_EVERY;
                let elsewhere = self.elsewhere(&heard).await;
                let fields = self.waiting_for(&heard, elsewhere.as_ref());
                log::warn("waiting for the other initial members to found the cluster", &fields);
                if let Some(known) = elsewhere.filter(|_| self.is_hopeless(&heard)) {
                    return Outcome::Elsewhere(known);
                }
            }
            let _ = tokio::time::timeout(wait, shared.heard.notified()).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    fn is_apart(&self, founding: u64) -> bool {
        self.founding != 0 && founding != 0 && founding != self.founding
    }

    /// Asks all others once, for one that joins a cluster that runs.
    pub(crate) async fn greeting(&self) -> Greeting {
        let heard: Vec<(&Member, Heard)> = join_all(self.others().map(|member| self.ask(member))).await;
        if let Some(member) = removed_by(&heard) {
            return Greeting::Removed { member };
        }
        let knows = |heard: &Heard| matches!(heard, Ok(Stage::Running(running)) if running.knows_a_joiner());
        if let Some((member, _)) = heard.iter().find(|(_, heard)| knows(heard)) {
            return Greeting::Known { member: member.id };
        }
        if heard.iter().any(|(_, heard)| matches!(heard, Ok(Stage::Running(_)))) {
            return Greeting::Welcome;
        }
        let why = heard.iter().map(|(member, heard)| match heard {
            Err(why) => format!("member {:x}: {why}", member.id),
            Ok(stage) => format!("member {:x}: {stage:?}", member.id),
        });
        Greeting::Nobody(why.collect::<Vec<_>>().join("; "))
    }

    /// So many refuse the asker that those who are left are no majority.
    fn is_hopeless(&self, heard: &[(&Member, Heard)]) -> bool {
        let refused = heard.iter().filter(|(_, heard)| matches!(heard, Err(NoLine::Refused(_)))).count();
        (self.members.len() - refused) * 2 <= self.members.len()
    }

    /// Asks those who refuse for their cluster, and looks for the asker in it.
    async fn elsewhere(&self, heard: &[(&Member, Heard)]) -> Option<Elsewhere> {
        let ours = self.members.iter().find(|member| member.id == self.identity.member)?;
        let refusing = heard.iter().filter(|(_, heard)| matches!(heard, Err(NoLine::Refused(_))));
        for by in refusing.flat_map(|(member, _)| &member.peer_urls) {
            let Ok(url) = Url::parse(by) else { continue };
            let Ok(remote) = Remote::at(&url, self.dialler.as_ref()).await else { continue };
            let own = remote.members.into_iter().map(|(member, _)| member).find(|member| {
                member.peer_urls.len() == ours.peer_urls.len()
                    && member.peer_urls.iter().all(|url| ours.peer_urls.contains(url))
            });
            if let Some(own) = own.filter(|_| remote.cluster != self.identity.cluster) {
                return Some(Elsewhere { by: by.clone(), cluster: remote.cluster, own });
            }
        }
        None
    }

    async fn ask<'a>(&self, member: &'a Member) -> (&'a Member, Heard) {
        let hello = Hello {
            level: hello::WIRE_LEVEL,
            cluster: self.identity.cluster,
            from: self.identity.member,
            to: member.id,
            boot: self.boot,
            line: Line::Inquiry,
            etcd_level: ETCD_LEVEL.into(),
            founding: Some(self.founding),
            urls: Vec::new(),
        };
        let theirs = Identity { member: member.id, ..self.identity };
        let mut failures = Vec::new();
        for url in &member.peer_urls {
            match ask_at(url, &hello, theirs, self.dialler.as_ref()).await {
                Err(NoLine::Io(error)) => failures.push(format!("{url}: {error}")),
                said => return (member, said),
            }
        }
        (member, Err(io::Error::other(failures.join("; ")).into()))
    }

    fn waiting_for(
        &self,
        heard: &[(&Member, Heard)],
        elsewhere: Option<&Elsewhere>,
    ) -> Vec<(&'static str, serde_json::Value)> {
        let name = |member: &Member| format!("{} ({:x})", member.name, member.id);
        let silent = heard.iter().filter_map(|(member, heard)| {
            let error = heard.as_ref().err()?.to_string();
            Some(json!({ "member": name(member), "peer-urls": member.peer_urls, "error": error }))
        });
        let answered = heard
            .iter()
            .filter_map(|(member, heard)| Some(json!(format!("{}: {:?}", name(member), heard.as_ref().ok()?))));
        let mut fields = vec![
            ("local-member-id", hex(self.identity.member)),
            ("no-answer", silent.collect()),
            ("answered", answered.collect()),
        ];
        if let Some(Elsewhere { by, cluster, own }) = elsewhere {
            let text = format!(
                "the member at {by} is of cluster {cluster:x}, which has this member as {:x}: if it is to be one of \
                 that, start it with --initial-cluster-state existing",
                own.id
            );
            fields.push(("another-cluster", json!(text)));
        }
        fields
    }
}

/// Who says that the asker was removed.
fn removed_by(heard: &[(&Member, Heard)]) -> Option<u64> {
    heard.iter().find(|(_, heard)| matches!(heard, Err(NoLine::Removed))).map(|(member, _)| member.id)
}

async fn ask_at(url: &str, hello: &Hello, theirs: Identity, dialler: Option<&Dialler>) -> Heard {
    let (mut stream, _) = greet(url, hello, dialler).await?;
    let timed_out = |_| io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
    let stage = tokio::time::timeout(ANSWER, hello::read_stage(&mut stream, theirs)).await.map_err(timed_out)??;
    Ok(stage)
}
