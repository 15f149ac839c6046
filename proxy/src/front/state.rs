//! All that a running front knows, and how a new file takes the place of an old one. Time comes as
//! an argument.

use super::config::{Backend, Config, Frontend};
use super::counters::{Counters, Rate};
use super::pool::{Asker, Place, Pool, Ticket};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// Addresses whose rate is remembered at once. More are not limited: memory is.
const SOURCES: usize = 100_000;

/// One frontend.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) config: Frontend,
    pub(crate) counters: Counters,
    /// `disable frontend`, or so in the file.
    pub(crate) paused: bool,
}

/// One connection of a client under way.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: SocketAddr,
    pub(crate) frontend: String,
    pub(crate) since: Duration,
    /// Bytes from the client and to it.
    pub(crate) bytes: [Cell<u64>; 2],
    /// So many of them are in the counters.
    counted: [Cell<u64>; 2],
    /// The backend and the server that it is at.
    pub(crate) at: std::cell::RefCell<Option<(String, String)>>,
    /// Ends it.
    pub(crate) end: Notify,
    /// Why it was ended.
    pub(crate) ended: Cell<bool>,
}

/// A running front.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) doors: BTreeMap<String, Door>,
    pub(crate) pools: BTreeMap<String, Pool>,
    /// Who waits for a place, and how it is told of one.
    waiters: HashMap<(String, Ticket), oneshot::Sender<String>>,
    pub(crate) sessions: BTreeMap<u64, Rc<Session>>,
    next: u64,
    /// Of all frontends.
    pub(crate) connections: Counters,
    /// Somebody left, or a limit is another: who waits at a door looks again.
    pub(crate) room: Rc<Notify>,
    /// Descriptors allow so many connections of clients.
    pub(crate) most: u32,
    sources: HashMap<IpAddr, Rate>,
    /// Chance.
    draws: u64,
    /// Of a reload: how often a file was taken.
    pub(crate) reloads: u64,
}

impl State {
    /// `most`: connections of clients that descriptors allow; `seed`: of all chance.
    pub(crate) fn new(config: Config, most: u32, seed: u64, now: Duration) -> State {
        let mut state = State {
            config: Config::default(),
            doors: BTreeMap::new(),
            pools: BTreeMap::new(),
            waiters: HashMap::new(),
            sessions: BTreeMap::new(),
            next: 0,
            connections: Counters::default(),
            room: Rc::new(Notify::new()),
            most,
            sources: HashMap::new(),
            draws: seed,
            reloads: 0,
        };
        state.take(config, now);
        state
    }

    /// A file takes the place of the one before. What is under way goes on.
    pub(crate) fn take(&mut self, config: Config, now: Duration) {
        let doors = config.frontends.iter().map(|front| {
            let before = self.doors.remove(&front.name);
            let paused = match &before {
                Some(before) if before.config.disabled == front.disabled => before.paused,
                _ => front.disabled,
            };
            let counters = before.map_or_else(Counters::default, |before| before.counters);
            (front.name.clone(), Door { config: front.clone(), counters, paused })
        });
        let doors = doors.collect();
        let pools = config.backends.iter().map(|back| {
            let mut pool = Pool::new(back, now);
            if let Some(before) = self.pools.get(&back.name) {
                pool.inherits(before, now);
            }
            (back.name.clone(), pool)
        });
        let pools = pools.collect();
        (self.doors, self.pools, self.config) = (doors, pools, config);
        self.reloads += 1;
        // Tickets were of the pools before: whoever waits asks again.
        self.waiters.clear();
        self.room.notify_waiters();
    }

    pub(crate) fn maxconn(&self) -> u32 {
        self.config.global.maxconn.unwrap_or(self.most).min(self.most)
    }

    pub(crate) fn backend(&self, name: &str) -> Option<&Backend> {
        self.config.backends.iter().find(|back| back.name == name)
    }

    /// A frontend may take one more.
    pub(crate) fn may_enter(&self, frontend: &str, now: Duration) -> Result<(), Wait> {
        let Some(door) = self.doors.get(frontend) else { return Err(Wait::ForRoom) };
        let full = door.config.maxconn.is_some_and(|most| door.counters.current >= most);
        if door.paused || full || self.connections.current >= self.maxconn() {
            return Err(Wait::ForRoom);
        }
        let rate = door.config.rate_limit_sessions.map(|most| door.counters.rate.wait(most, now));
        match rate {
            Some(wait) if !wait.is_zero() => Err(Wait::For(wait)),
            _ => Ok(()),
        }
    }

    /// A client came in. None: its address comes too often.
    pub(crate) fn enters(&mut self, frontend: &str, client: SocketAddr, now: Duration) -> Option<(u64, Rc<Session>)> {
        let door = self.doors.get_mut(frontend)?;
        if let Some(most) = door.config.rate_limit_source {
            if self.sources.len() >= SOURCES {
                self.sources.retain(|_, rate| rate.read(now) > 0);
            }
            if self.sources.len() < SOURCES {
                let rate = self.sources.entry(client.ip()).or_default();
                if rate.read(now) >= most {
                    door.counters.denied += 1;
                    return None;
                }
                rate.happens(now);
            }
        }
        door.counters.begins(now);
        self.connections.begins(now);
        self.next += 1;
        let session = Rc::new(Session {
            client,
            frontend: frontend.to_owned(),
            since: now,
            bytes: Default::default(),
            counted: Default::default(),
            at: Default::default(),
            end: Notify::new(),
            ended: Cell::new(false),
        });
        self.sessions.insert(self.next, session.clone());
        Some((self.next, session))
    }

    /// A client has left.
    pub(crate) fn leaves(&mut self, number: u64, now: Duration) {
        let Some(session) = self.sessions.remove(&number) else { return };
        self.count(&session);
        if let Some(door) = self.doors.get_mut(&session.frontend) {
            door.counters.ends();
            door.counters.total_time.add(now.saturating_sub(session.since));
        }
        self.connections.ends();
        self.room.notify_one();
    }

    /// What went through since the last time is put into the counters.
    fn count(&mut self, session: &Session) {
        let [input, output] = [0, 1].map(|way: usize| {
            let all = session.bytes[way].get();
            all - session.counted[way].replace(all)
        });
        let add = |counters: &mut Counters| {
            counters.bytes_in += input;
            counters.bytes_out += output;
        };
        add(&mut self.connections);
        if let Some(door) = self.doors.get_mut(&session.frontend) {
            add(&mut door.counters);
        }
        if let Some((backend, server)) = session.at.borrow().as_ref()
            && let Some(pool) = self.pools.get_mut(backend)
        {
            add(&mut pool.counters);
            if let Some(at) = pool.position(server) {
                add(&mut pool.members[at].counters);
            }
        }
    }

    /// The same of all.
    pub(crate) fn count_all(&mut self) {
        let all: Vec<Rc<Session>> = self.sessions.values().cloned().collect();
        all.iter().for_each(|session| self.count(session));
    }

    fn draw(&mut self) -> u64 {
        self.draws = self.draws.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.draws ^ (self.draws >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A place at a server, or a way to hear of one.
    pub(crate) fn place(&mut self, backend: &str, client: IpAddr, not: Option<&str>, now: Duration) -> Placed {
        let draws = [self.draw(), self.draw()];
        let Some(pool) = self.pools.get_mut(backend) else { return Placed::Nobody };
        let asker = Asker { hash: hash(client), draws, not: not.and_then(|name| pool.position(name)) };
        match pool.assign(asker, now) {
            Place::Server(at) => Placed::Server(pool.members[at].config.name.clone()),
            Place::Nobody => Placed::Nobody,
            Place::Waits => {
                let Some(ticket) = pool.wait(asker) else { return Placed::Full };
                let (tell, heard) = oneshot::channel();
                self.waiters.insert((backend.to_owned(), ticket), tell);
                Placed::Waits(ticket, heard)
            }
        }
    }

    /// It waits no longer. A place that it was given meanwhile is another's.
    pub(crate) fn gives_up(&mut self, backend: &str, ticket: Ticket) {
        self.waiters.remove(&(backend.to_owned(), ticket));
        if let Some(pool) = self.pools.get_mut(backend) {
            pool.leaves(ticket);
        }
    }

    /// A connection of this server has ended, or never stood.
    pub(crate) fn frees(&mut self, backend: &str, server: &str, now: Duration) {
        if let Some(pool) = self.pools.get_mut(backend)
            && let Some(at) = pool.position(server)
        {
            pool.ends(at);
        }
        self.admit(backend, now);
    }

    /// Places that became free are given to those that wait.
    pub(crate) fn admit(&mut self, backend: &str, now: Duration) {
        let Some(pool) = self.pools.get_mut(backend) else { return };
        let mut lost = Vec::new();
        for (ticket, at) in pool.admitted(now) {
            let server = pool.members[at].config.name.clone();
            let told = self.waiters.remove(&(backend.to_owned(), ticket)).map(|tell| tell.send(server));
            if !matches!(told, Some(Ok(()))) {
                lost.push(at);
            }
        }
        for at in lost {
            pool.ends(at);
        }
    }

    /// Ends the connections of a server. How many.
    pub(crate) fn shut(&mut self, backend: &str, server: &str) -> usize {
        let of = |session: &&Rc<Session>| {
            session.at.borrow().as_ref().is_some_and(|(back, name)| back == backend && name == server)
        };
        let all: Vec<&Rc<Session>> = self.sessions.values().filter(of).collect();
        for session in &all {
            session.ended.set(true);
            session.end.notify_one();
        }
        all.len()
    }
}

/// Why a client waits at the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Until somebody leaves.
    ForRoom,
    For(Duration),
}

/// What became of the wish for a server.
#[derive(Debug)]
pub(crate) enum Placed {
    Server(String),
    Waits(Ticket, oneshot::Receiver<String>),
    /// Its queue is full.
    Full,
    /// No server is up.
    Nobody,
}

/// The same for one client at all times, in all processes.
fn hash(client: IpAddr) -> u64 {
    let bytes = match client {
        IpAddr::V4(four) => four.octets().to_vec(),
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or_else(|| six.octets().to_vec(), |four| four.octets().to_vec()),
    };
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
