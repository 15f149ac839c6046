//! Connections to the other members, on a thread of their own, so that no client can delay
//! a heartbeat.
//!
//! Each member dials each other one three times, for what is urgent, for the log and for bulk, and
//! only sends on what it dialled; what it accepted it only reads. Everything goes to the advertised
//! peer URL.
//! A connection that breaks drops what was queued on it: consensus sends again, forwards fail.
//! Links come and go with the members that the core names (`roster`).

mod dial;
mod hello;
mod http;
mod inquiry;
mod listen;
mod patience;
mod places;
mod queue;
mod remote;
mod roster;
mod socket;
mod wire;

use crate::core::Core;
use crate::log;
use crate::metrics::Metrics;
use crate::sockets::Listener;
use crate::tls::{Dialler, Handshakes};
use crate::transport::Edge;
use disk::Identity;
pub(crate) use inquiry::{Asking, Elsewhere, Greeter, Greeting, Outcome};
use node::foundings::differ;
use node::frame::{self, Frame};
use node::lanes::Pushed;
use queue::Queue;
pub(crate) use remote::Remote;
use roster::{Link, Peer, Roster};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use store::Member;
use tokio::sync::mpsc;

/// Which connection of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Appends and forwards; also what is urgent, to a member that has no line for it.
    Log = 0,
    /// Pieces of checkpoints.
    Bulk = 1,
    /// The question of a founder, and one answer.
    Inquiry = 2,
    /// Heartbeats, votes and answers: a long append on a slow link does not hold them up.
    Urgent = 3,
}

/// A socket on which members are listened to, and who shakes hands there; None: it is not
/// encrypted.
pub(crate) struct PeerPort {
    /// Bound, and not yet served.
    pub(crate) listener: Listener,
    /// None: not encrypted.
    pub(crate) handshakes: Option<Handshakes>,
}

impl PeerPort {
    /// # Errors
    /// The system has no room for another handle.
    pub(crate) fn try_clone(&self) -> io::Result<PeerPort> {
        Ok(PeerPort { listener: self.listener.try_clone()?, handshakes: self.handshakes.clone() })
    }
}

/// What the peer thread needs to know.
pub(crate) struct Setup {
    pub(crate) identity: Identity,
    /// Drawn anew at each start.
    pub(crate) boot: u64,
    /// A late founder (`disk::late`).
    pub(crate) late: bool,
    /// Where other members call, as this one was told by its flags.
    pub(crate) urls: Vec<String>,
    /// The sockets of these.
    pub(crate) ports: Vec<PeerPort>,
    /// How https peers are dialled.
    pub(crate) dialler: Option<Dialler>,
    /// Whether a certificate must name a host of the member that shows it.
    pub(crate) checks_origin: bool,
    /// `--max-request-bytes`.
    pub(crate) max_request_bytes: u64,
    /// Most connections of those who are no members.
    pub(crate) strangers: usize,
}

/// Shared by all tasks of the peer thread.
struct Peering {
    identity: Identity,
    boot: u64,
    late: bool,
    urls: Vec<String>,
    roster: Arc<Roster>,
    edge: Edge,
    /// Our id as a label.
    label: String,
    max_frame: usize,
    said: log::Seldom,
    /// Of the peer thread.
    runtime: tokio::runtime::Handle,
    dialler: Option<Dialler>,
    checks_origin: bool,
    strangers: usize,
}

/// The largest command of another member that is taken, whatever the own flag says: while the flag
/// is being changed, one member after the other, an entry must reach all of them. Bytes.
const LARGEST_COMMAND: u64 = 16 << 20;

/// Longest frame taken or sent. Appends may be merged up to a few times the largest
/// message.
fn max_frame(max_request_bytes: u64) -> usize {
    let unit = max_request_bytes.clamp(LARGEST_COMMAND, 256 << 20) as usize;
    4 * unit + (64 << 10)
}

impl Peering {
    fn core(&self) -> &Core {
        self.edge.core()
    }

    fn metrics(&self) -> &Metrics {
        self.edge.metrics()
    }

    /// A connection to a peer said which founding that is of. What a guest says, the core is told
    /// when it is a member.
    ///
    /// # Errors
    /// It is not ours: the connection is of no use.
    fn met(&self, peer: u64, founding: Option<u64>) -> io::Result<()> {
        if self.roster.is_member(peer) {
            self.core().intake().met(peer, founding);
        }
        self.same_founding(founding)
    }

    /// Dials the lines to one that is new, for as long as it is spoken to.
    fn dial(self: &Arc<Self>, peer: &Peer) {
        for line in [Line::Urgent, Line::Log, Line::Bulk] {
            self.runtime.spawn(dial::keep_connected(self.clone(), peer.clone(), line));
        }
    }

    /// # Errors
    /// What a peer said is not our founding, as far as that is known by now.
    fn same_founding(&self, theirs: Option<u64>) -> io::Result<()> {
        let (ours, theirs) = (self.core().founding(), theirs.unwrap_or(0));
        if !differ(ours, theirs) {
            return Ok(());
        }
        self.metrics().peers.other_foundings.inc();
        let text = format!("founding mismatch: ours is {ours:016x}, the peer's {theirs:016x}");
        Err(io::Error::other(text))
    }

    /// At most one line a minute for each different text.
    fn say(&self, text: &str, fields: log::Fields) {
        if self.said.due(format!("{text} {fields:?}")) {
            log::warn(text, fields);
        }
    }
}

/// The core thread's end: frames go in here.
pub(crate) struct Peers {
    /// To all members but this one.
    links: BTreeMap<u64, Link>,
    peering: Arc<Peering>,
    dirty: Vec<Arc<Queue>>,
}

impl Peers {
    /// Starts the thread. The core of `edge` must answer on the runtime of `deliveries`. Nobody is
    /// dialled before [`Peers::follow`] names somebody.
    pub(crate) fn start(
        setup: Setup,
        edge: Edge,
        deliveries: mpsc::UnboundedReceiver<Vec<crate::core::Delivery>>,
    ) -> io::Result<Peers> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let ports = setup.ports;
        let peering = Arc::new(Peering {
            identity: setup.identity,
            boot: setup.boot,
            late: setup.late,
            urls: setup.urls,
            roster: Roster::new(setup.identity.member, edge.core().budgets()),
            edge,
            label: format!("{:x}", setup.identity.member),
            max_frame: max_frame(setup.max_request_bytes),
            said: log::Seldom::default(),
            runtime: runtime.handle().clone(),
            dialler: setup.dialler,
            checks_origin: setup.checks_origin,
            strangers: setup.strangers,
        });
        let served = peering.clone();
        std::thread::Builder::new().name("peers".into()).spawn(move || {
            runtime.block_on(async move {
                tokio::spawn(crate::core::hand_out(deliveries));
                for port in ports {
                    tokio::spawn(listen::serve(served.clone(), port));
                }
                // The thread lives as long as the process: peers are answered until the end.
                std::future::pending::<()>().await
            })
        })?;
        Ok(Peers { links: BTreeMap::new(), peering, dirty: Vec::new() })
    }

    /// Takes over who belongs to the cluster, and who was removed from it.
    pub(crate) fn follow(&mut self, members: &[(Member, bool)], removed: &BTreeSet<u64>) {
        let changed = self.peering.roster.follow(members, removed);
        for (guest, founding) in changed.named {
            self.peering.core().intake().met(guest, founding);
        }
        changed.new.iter().for_each(|peer| self.peering.dial(peer));
        self.links = self.peering.roster.links();
    }

    /// Queues a frame; [`Peers::wake`] lets it leave.
    pub(crate) fn send(&mut self, to: u64, frame: &Frame) {
        let guest;
        let link = match self.links.get(&to) {
            Some(link) => link,
            None => {
                guest = self.peering.roster.guest_link(to);
                let Some(link) = &guest else { return };
                link
            }
        };
        let lane = frame::lane(frame);
        let queue = link.queue(lane);
        let Some(bytes) = wire::encode(frame, self.peering.max_frame) else {
            log::error("dropped a frame that no peer would take", &[("to", log::hex(to))]);
            return;
        };
        let queued = queue.push(lane, bytes) == Pushed::Queued;
        if queued && !self.dirty.iter().any(|dirty| Arc::ptr_eq(dirty, queue)) {
            self.dirty.push(queue.clone());
        }
    }

    pub(crate) fn wake(&mut self) {
        for queue in self.dirty.drain(..) {
            queue.wake();
        }
    }
}
