//! The endpoints of a cluster, their connections, how they are, and which one
//! is next.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::{Channel, Endpoint};

use crate::{Error, Options, Result, Spread, Tls, address::Address, connector::Dialer, error::deepest, tls::Handshake};

/// An endpoint that does not answer at once is not waited for alone.
const STAGGER: Duration = Duration::from_millis(250);
/// For how long an endpoint that failed is not the first choice, the first
/// time and at most.
const REST: Duration = Duration::from_millis(100);
const REST_MOST: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Endpoints {
    list: Vec<Arc<One>>,
    /// Place of the endpoint in use, or of the next one.
    current: AtomicUsize,
    spread: Spread,
}

#[derive(Debug)]
struct One {
    address: String,
    endpoint: Endpoint,
    dialer: Dialer,
    state: Mutex<State>,
    /// Held while a connection is made, so that it is made once.
    dialing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    channel: Option<Channel>,
    /// How many connections there were.
    life: u64,
    /// How often it has failed since it last did well.
    failures: u32,
    /// Why the last connection could not be made.
    why: String,
    /// Until then others are better.
    rests: Option<Instant>,
}

/// A connection, and the place of its endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub at: usize,
    /// Which of the connections to it.
    life: u64,
    pub address: String,
    pub channel: Channel,
}

impl Endpoints {
    pub(crate) fn new(options: &Options) -> Result<Endpoints> {
        let tls = options.tls.as_ref();
        let read = |given: &String| match options.any_endpoint {
            true => Ok(Address::any(given, tls.is_some())),
            false => Address::parse(given.trim(), tls.is_some()),
        };
        let addresses: Vec<Address> = options.endpoints.iter().map(read).collect::<Result<_>>()?;
        if addresses.is_empty() {
            return Err(Error::Endpoint { endpoint: String::new(), reason: "none was given".to_owned() });
        }
        let needed = addresses.iter().any(|a| a.encrypted);
        let handshake = match tls {
            Some(tls) => Some(Arc::new(Handshake::new(tls)?)),
            None if needed => Some(Arc::new(Handshake::new(&Tls::default())?)),
            None => None,
        };
        let list = addresses.into_iter().map(|a| Arc::new(One::new(a, handshake.clone(), options))).collect();
        Ok(Endpoints { list, current: AtomicUsize::new(0), spread: options.spread })
    }

    pub(crate) fn addresses(&self) -> Vec<String> {
        self.list.iter().map(|one| one.address.clone()).collect()
    }

    /// How connections to the first endpoint are made.
    pub(crate) fn dialer(&self) -> &Dialer {
        &self.list[0].dialer
    }

    /// Why there is no connection after all this time.
    pub(crate) fn why(&self) -> String {
        let why = |one: &Arc<One>| match one.lock().why.as_str() {
            "" => format!("{}: no connection in time", one.address),
            why => format!("{}: {why}", one.address),
        };
        self.list.iter().map(why).collect::<Vec<_>>().join("; ")
    }

    /// A connection to the endpoint whose turn it is, or to the first one that
    /// can be reached. One round, without waiting in between.
    pub(crate) async fn connect(&self) -> Result<Connection> {
        let (well, resting) = self.order();
        // The usual case: nothing is to be made.
        if let Some(ready) = well.iter().find_map(|&at| self.list[at].ready().map(|c| self.connection(at, c))) {
            if self.spread == Spread::RoundRobin {
                self.wake();
            }
            return Ok(self.chosen(ready));
        }
        self.race(&[well, resting].concat()).await
    }

    /// Connects one after the other, each [`STAGGER`] after the one before or
    /// as soon as that has failed.
    async fn race(&self, turn: &[usize]) -> Result<Connection> {
        let mut failure = String::new();
        let mut left = turn.iter();
        let mut dials = FuturesUnordered::new();
        loop {
            if let Some(&at) = left.next() {
                dials.push(async move { (at, self.list[at].dial().await) });
            }
            let more = !left.as_slice().is_empty();
            tokio::select! {
                Some((at, dialed)) = dials.next() => match dialed {
                    Ok(dialed) => return Ok(self.chosen(self.connection(at, dialed))),
                    Err(reason) => {
                        failure = format!("{}: {reason}", self.list[at].address);
                        if dials.is_empty() && !more {
                            return Err(Error::Unreachable { reason: failure });
                        }
                    }
                },
                () = sleep(STAGGER), if more => {}
                else => return Err(Error::Unreachable { reason: failure }),
            }
        }
    }

    /// The connection failed: the next use makes a new one, elsewhere.
    pub(crate) fn broken(&self, connection: &Connection) {
        // Many calls tell of the end of one connection; there may be a new one.
        if self.list[connection.at].lost(connection.life) {
            self.avoid(connection);
        }
    }

    /// The endpoint answers but is of no use now: try another.
    pub(crate) fn avoid(&self, connection: &Connection) {
        self.list[connection.at].rest();
        let next = (connection.at + 1) % self.list.len();
        // Only if nobody has moved on already.
        let _ = self.current.compare_exchange(connection.at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The endpoint in use did not answer in time.
    pub(crate) fn avoid_current(&self) {
        if self.spread == Spread::Stay {
            let at = self.current.load(Ordering::Relaxed) % self.list.len();
            self.list[at].rest();
        }
    }

    /// The endpoint has answered.
    pub(crate) fn well(&self, connection: &Connection) {
        self.list[connection.at].well();
    }

    /// Places in the order in which they are tried: those that are well, and
    /// those that are better left alone for a while.
    fn order(&self) -> (Vec<usize>, Vec<usize>) {
        let first = match self.spread {
            Spread::Stay => self.current.load(Ordering::Relaxed),
            Spread::RoundRobin => self.current.fetch_add(1, Ordering::Relaxed),
        };
        let now = Instant::now();
        let count = self.list.len();
        let round = (0..count).map(|step| first.wrapping_add(step) % count);
        round.partition(|&at| !self.list[at].rests(now))
    }

    /// Makes the connections that are missing, beside the request.
    fn wake(&self) {
        let now = Instant::now();
        for one in &self.list {
            let missing = one.lock().channel.is_none();
            if missing && !one.rests(now) && one.dialing.try_lock().is_ok() {
                let one = Arc::clone(one);
                tokio::spawn(async move { one.dial().await });
            }
        }
    }

    fn connection(&self, at: usize, (channel, life): (Channel, u64)) -> Connection {
        Connection { at, life, address: self.list[at].address.clone(), channel }
    }

    fn chosen(&self, connection: Connection) -> Connection {
        if self.spread == Spread::Stay {
            self.current.store(connection.at, Ordering::Relaxed);
        }
        connection
    }
}

impl One {
    fn new(address: Address, handshake: Option<Arc<Handshake>>, options: &Options) -> One {
        let endpoint = Endpoint::from(address.origin())
            .http2_keep_alive_interval(options.ping_interval())
            .keep_alive_timeout(options.keepalive_timeout)
            // A server may close connections that ping without a call under way.
            .keep_alive_while_idle(false);
        let text = address.text.clone();
        let handshake = handshake.filter(|_| address.encrypted);
        let dialer = Dialer { address, handshake, dial_timeout: options.dial_timeout };
        One {
            address: text,
            endpoint,
            dialer,
            state: Mutex::new(State::default()),
            dialing: tokio::sync::Mutex::new(()),
        }
    }

    /// The connection, and which it is.
    fn ready(&self) -> Option<(Channel, u64)> {
        let state = self.lock();
        state.channel.clone().map(|channel| (channel, state.life))
    }

    async fn dial(&self) -> std::result::Result<(Channel, u64), String> {
        let _once = self.dialing.lock().await;
        if let Some(ready) = self.ready() {
            return Ok(ready);
        }
        match self.connect().await {
            Ok(channel) => {
                let mut state = self.lock();
                state.why.clear();
                state.life += 1;
                state.channel = Some(channel.clone());
                Ok((channel, state.life))
            }
            Err(why) => {
                self.rest();
                self.lock().why.clone_from(&why);
                Err(why)
            }
        }
    }

    /// A connection over which the server has spoken.
    async fn connect(&self) -> std::result::Result<Channel, String> {
        let (connector, heard) = self.dialer.connector();
        let channel = self.endpoint.connect_with_connector(connector).await.map_err(|e| deepest(&e))?;
        match timeout(self.dialer.dial_timeout, heard).await {
            Ok(Ok(Ok(()))) => Ok(channel),
            Ok(Ok(Err(error))) => Err(error.to_string()),
            Ok(Err(_)) => Err("the connection has ended".to_owned()),
            Err(_) => Err(format!("the server says nothing within {:?}", self.dialer.dial_timeout)),
        }
    }

    /// Gives up a connection; says whether it was the one there is.
    fn lost(&self, life: u64) -> bool {
        let mut state = self.lock();
        let current = state.life == life;
        if current {
            state.channel = None;
        }
        current
    }

    fn rest(&self) {
        let mut state = self.lock();
        let rest = (REST * 2u32.pow(state.failures.min(10))).min(REST_MOST);
        state.failures = state.failures.saturating_add(1);
        state.rests = Some(Instant::now() + rest);
    }

    fn rests(&self, now: Instant) -> bool {
        self.lock().rests.is_some_and(|until| now < until)
    }

    fn well(&self) {
        let mut state = self.lock();
        state.failures = 0;
        state.rests = None;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
