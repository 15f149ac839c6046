//! The endpoints of a cluster, their connections, and which one is in use.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use tonic::transport::{Channel, Endpoint};

use crate::{Error, Result, Settings, error::deepest};

#[derive(Debug)]
pub(crate) struct Endpoints {
    list: Vec<One>,
    /// Place of the endpoint in use.
    current: AtomicUsize,
}

#[derive(Debug)]
struct One {
    address: String,
    endpoint: Endpoint,
    channel: Mutex<Option<Channel>>,
}

/// A connection, and the place of its endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub at: usize,
    pub address: String,
    pub channel: Channel,
}

impl Endpoints {
    pub fn new<E: AsRef<str>>(endpoints: impl IntoIterator<Item = E>, settings: &Settings) -> Result<Endpoints> {
        let list: Vec<One> = endpoints.into_iter().map(|e| one(e.as_ref(), settings)).collect::<Result<_>>()?;
        if list.is_empty() {
            return Err(Error::Endpoint { endpoint: String::new(), reason: "none was given".to_owned() });
        }
        Ok(Endpoints { list, current: AtomicUsize::new(0) })
    }

    pub fn addresses(&self) -> Vec<String> {
        self.list.iter().map(|one| one.address.clone()).collect()
    }

    /// A connection to the endpoint in use, or to the next one that can be
    /// reached, which then is the one in use. One round, without waiting.
    pub async fn connect(&self) -> Result<Connection> {
        let first = self.current.load(Ordering::Relaxed);
        let mut failure = String::new();
        for step in 0..self.list.len() {
            let at = (first + step) % self.list.len();
            let one = &self.list[at];
            match one.channel().await {
                Ok(channel) => {
                    self.current.store(at, Ordering::Relaxed);
                    return Ok(Connection { at, address: one.address.clone(), channel });
                }
                Err(reason) => failure = format!("{}: {reason}", one.address),
            }
        }
        Err(Error::Unreachable { reason: failure })
    }

    /// The connection failed: the next use makes a new one, elsewhere.
    pub fn broken(&self, connection: &Connection) {
        *self.list[connection.at].lock() = None;
        self.avoid(connection);
    }

    /// The endpoint answers but is of no use now: try the next one.
    pub fn avoid(&self, connection: &Connection) {
        let next = (connection.at + 1) % self.list.len();
        // Only if nobody has moved on already.
        let _ = self.current.compare_exchange(connection.at, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl One {
    async fn channel(&self) -> std::result::Result<Channel, String> {
        if let Some(channel) = self.lock().clone() {
            return Ok(channel);
        }
        let channel = self.endpoint.connect().await.map_err(|e| deepest(&e))?;
        *self.lock() = Some(channel.clone());
        Ok(channel)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Channel>> {
        // Nothing that can panic runs under this lock.
        self.channel.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn one(given: &str, settings: &Settings) -> Result<One> {
    let bad = |reason: String| Error::Endpoint { endpoint: given.to_owned(), reason };
    let address = if given.contains("://") { given.to_owned() } else { format!("http://{given}") };
    let uri: http::Uri = address.parse().map_err(|e: http::uri::InvalidUri| bad(e.to_string()))?;
    if uri.scheme_str() != Some("http") {
        return Err(bad("only http is spoken".to_owned()));
    }
    if uri.host().is_none_or(str::is_empty) || uri.port_u16().is_none() {
        return Err(bad("host and port are needed".to_owned()));
    }
    let endpoint = Endpoint::from(uri)
        .connect_timeout(settings.connect_timeout)
        // A server may close connections that ping more often than each five
        // seconds or without a call under way.
        .http2_keep_alive_interval(settings.ping_interval)
        .keep_alive_timeout(settings.ping_timeout)
        .keep_alive_while_idle(false)
        .tcp_nodelay(true);
    Ok(One { address, endpoint, channel: Mutex::new(None) })
}
