//! Connections to the other members, on a thread of their own, so that no client can delay
//! a heartbeat.
//!
//! Each member dials each other one twice, for the log and for bulk, and only sends on what
//! it dialled; what it accepted it only reads. Everything goes to the advertised peer URL.
//! A connection that breaks drops what was queued on it: consensus sends again, forwards fail.

mod dial;
mod hello;
mod http;
mod inquiry;
mod listen;
mod places;
mod queue;
mod socket;
mod wire;

use crate::core::Core;
use crate::log;
use crate::metrics::Metrics;
use crate::tls::{Dialler, Handshakes};
use crate::transport::Edge;
use disk::Identity;
pub(crate) use inquiry::{Asking, Greeter, Outcome};
use node::foundings::differ;
use node::frame::{self, Frame, Lane};
use node::lanes::Pushed;
use queue::Queue;
use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use store::Member;
use tokio::sync::mpsc;

/// Which connection of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Everything but bulk.
    Log,
    /// Pieces of checkpoints.
    Bulk,
    /// The question of a founder, and one answer.
    Inquiry,
}

/// A socket on which members are listened to, and who shakes hands there; None: it is not
/// encrypted.
pub(crate) struct PeerPort {
    /// Bound, and not yet served.
    pub(crate) listener: TcpListener,
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
    /// All members of the cluster, this one included.
    pub(crate) members: Vec<Member>,
    /// Where other members call.
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
    members: BTreeMap<u64, Member>,
    edge: Edge,
    /// Ours and the others' ids as labels.
    names: BTreeMap<u64, String>,
    max_frame: usize,
    /// Wakes the dialler of a member that has just dialled us.
    nudge: BTreeMap<u64, Arc<tokio::sync::Notify>>,
    said: log::Seldom,
    dialler: Option<Dialler>,
    checks_origin: bool,
    strangers: usize,
}

/// Longest frame taken or sent. Appends may be merged up to a few times the largest
/// message.
fn max_frame(max_request_bytes: u64) -> usize {
    let unit = max_request_bytes.clamp(1 << 20, 256 << 20) as usize;
    4 * unit + (64 << 10)
}

impl Peering {
    fn core(&self) -> &Core {
        self.edge.core()
    }

    fn metrics(&self) -> &Metrics {
        self.edge.metrics()
    }

    /// A connection to a peer said which founding that is of.
    ///
    /// # Errors
    /// It is not ours: the connection is of no use.
    fn met(&self, peer: u64, founding: Option<u64>) -> io::Result<()> {
        self.core().intake().met(peer, founding);
        self.same_founding(founding)
    }

    /// # Errors
    /// What a peer said is not our founding, as far as that is known by now.
    fn same_founding(&self, theirs: Option<u64>) -> io::Result<()> {
        let (ours, theirs) = (self.core().founding(), theirs.unwrap_or(0));
        if !differ(ours, theirs) {
            return Ok(());
        }
        self.metrics().other_foundings.inc();
        let text = format!("founding mismatch: ours is {ours:016x}, the peer's {theirs:016x}");
        Err(io::Error::other(text))
    }

    fn name(&self, member: u64) -> &str {
        self.names.get(&member).map_or("", String::as_str)
    }

    /// At most one line a minute for each different text.
    fn say(&self, text: &str, fields: log::Fields) {
        if self.said.due(format!("{text} {fields:?}")) {
            log::warn(text, fields);
        }
    }
}

struct Link {
    log: Arc<Queue>,
    bulk: Arc<Queue>,
}

/// The core thread's end: frames go in here.
pub(crate) struct Peers {
    links: BTreeMap<u64, Link>,
    max_frame: usize,
    dirty: Vec<Arc<Queue>>,
}

impl Peers {
    /// Starts the thread. The core of `edge` must answer on the runtime of `deliveries`.
    pub(crate) fn start(
        setup: Setup,
        edge: Edge,
        deliveries: mpsc::UnboundedReceiver<Vec<crate::core::Delivery>>,
    ) -> io::Result<Peers> {
        let max_frame = max_frame(setup.max_request_bytes);
        let budgets = edge.core().budgets().clone();
        let queue = || Arc::new(Queue::new(&budgets));
        let others = setup.members.iter().filter(|member| member.id != setup.identity.member);
        let links: BTreeMap<u64, Link> =
            others.map(|member| (member.id, Link { log: queue(), bulk: queue() })).collect();
        let peering = Arc::new(Peering {
            identity: setup.identity,
            boot: setup.boot,
            late: setup.late,
            nudge: links.keys().map(|id| (*id, Arc::default())).collect(),
            names: setup.members.iter().map(|member| (member.id, format!("{:x}", member.id))).collect(),
            members: setup.members.into_iter().map(|member| (member.id, member)).collect(),
            edge,
            max_frame,
            said: log::Seldom::default(),
            dialler: setup.dialler,
            checks_origin: setup.checks_origin,
            strangers: setup.strangers,
        });
        let lines: Vec<(u64, Line, Arc<Queue>)> = links
            .iter()
            .flat_map(|(id, link)| [(*id, Line::Log, link.log.clone()), (*id, Line::Bulk, link.bulk.clone())])
            .collect();
        let ports = setup.ports;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("peers".into()).spawn(move || {
            runtime.block_on(async move {
                tokio::spawn(crate::core::hand_out(deliveries));
                for (id, line, queue) in lines {
                    tokio::spawn(dial::keep_connected(peering.clone(), id, line, queue));
                }
                for port in ports {
                    tokio::spawn(listen::serve(peering.clone(), port));
                }
                // The thread lives as long as the process: peers are answered until the end.
                std::future::pending::<()>().await
            })
        })?;
        Ok(Peers { links, max_frame, dirty: Vec::new() })
    }

    /// Queues a frame; [`Peers::wake`] lets it leave.
    pub(crate) fn send(&mut self, to: u64, frame: &Frame) {
        let Some(link) = self.links.get(&to) else { return };
        let lane = frame::lane(frame);
        let queue = if lane == Lane::Bulk { &link.bulk } else { &link.log };
        let Some(bytes) = wire::encode(frame, self.max_frame) else {
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
