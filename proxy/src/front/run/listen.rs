//! Listeners: one task for each address, which a new file keeps if it names the address as well.

use super::session;
use super::{Front, http, say};
use crate::front::config::{Config, Mode};
use crate::front::state::Wait;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::AbortHandle;

/// Connections that the system takes before we do.
const BACKLOG: u32 = 1_024;
/// Until the next try when no descriptor is left.
const BREATH: Duration = Duration::from_millis(100);

/// Addresses that are open, each with its task.
#[derive(Debug, Default)]
pub(super) struct Listeners(BTreeMap<String, AbortHandle>);

impl Drop for Listeners {
    fn drop(&mut self) {
        self.0.values().for_each(AbortHandle::abort);
    }
}

/// Listeners for addresses that were not open.
pub(super) type Opened = BTreeMap<String, TcpListener>;

impl Listeners {
    pub(super) fn addresses(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// Opens what this file names and is not open.
    ///
    /// # Errors
    /// The text: an address cannot be had.
    pub(super) fn open(&self, config: &Config) -> Result<Opened, String> {
        let mut opened = Opened::new();
        let mut named: BTreeMap<&str, &str> = BTreeMap::new();
        for front in &config.frontends {
            for bind in &front.bind {
                if let Some(other) = named.insert(&bind.address, &front.name) {
                    return Err(format!("frontend {}: {} is {other}'s already", front.name, bind.address));
                }
                if self.0.contains_key(&bind.address) {
                    continue;
                }
                let problem = |error: io::Error| {
                    format!("frontend {}: {}: {}", front.name, bind.address, crate::relay::reason(&error))
                };
                opened.insert(bind.address.clone(), listener(&bind.address).map_err(problem)?);
            }
        }
        Ok(opened)
    }

    /// From now on these are open too, and those that the file does not name are closed.
    pub(super) fn use_these(&mut self, opened: Opened, front: &Rc<Front>) {
        let named: Vec<String> = {
            let state = front.state.borrow();
            state.config.frontends.iter().flat_map(|front| &front.bind).map(|bind| bind.address.clone()).collect()
        };
        self.0.retain(|address, task| {
            let stays = named.contains(address);
            if !stays {
                task.abort();
            }
            stays
        });
        for (address, listener) in opened {
            let task = tokio::task::spawn_local(accept(listener, address.clone(), front.clone()));
            self.0.insert(address, task.abort_handle());
        }
    }
}

/// A listener at `host:port`, `*:port` or `:port`.
fn listener(address: &str) -> io::Result<TcpListener> {
    let (host, port) = address.rsplit_once(':').ok_or(io::ErrorKind::InvalidInput)?;
    let places: Vec<SocketAddr> = match host {
        // Of both families where the system has both.
        "*" | "" => {
            [format!("[::]:{port}"), format!("0.0.0.0:{port}")].iter().filter_map(|place| place.parse().ok()).collect()
        }
        _ => address.to_socket_addrs()?.collect(),
    };
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for place in places {
        let opened = || -> io::Result<TcpListener> {
            let socket = if place.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            socket.set_reuseaddr(true)?;
            // Another front, as a new version of this one, may take the address over.
            socket.set_reuseport(true)?;
            socket.bind(place)?;
            socket.listen(BACKLOG)
        };
        match opened() {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Whose address it is by now, whether a header comes first, and what passes through.
fn owner(front: &Front, address: &str) -> Option<(String, bool, Mode)> {
    let state = front.state.borrow();
    let mut all = state.config.frontends.iter();
    all.find_map(|front| {
        let bind = front.bind.iter().find(|bind| bind.address == address)?;
        Some((front.name.clone(), bind.accept_proxy, front.mode))
    })
}

async fn accept(listener: TcpListener, address: String, front: Rc<Front>) {
    loop {
        let Some((name, accept_proxy, mode)) = owner(&front, &address) else { return };
        enter(&front, &name).await;
        match listener.accept().await {
            Ok((stream, client)) => take(stream, client, &name, accept_proxy, mode, &front),
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) => {
            }
            Err(error) => {
                let fields = [("address", Value::from(&address[..])), ("error", Value::from(error.to_string()))];
                say("warn", "cannot accept a connection", &fields);
                tokio::time::sleep(BREATH).await;
            }
        }
    }
}

/// Waits until the frontend may take one more.
async fn enter(front: &Rc<Front>, name: &str) {
    loop {
        let room = front.state.borrow().room.clone();
        let freed = room.notified();
        let may = front.state.borrow().may_enter(name, front.now());
        match may {
            Ok(()) => return,
            Err(Wait::For(time)) => tokio::time::sleep(time).await,
            // Several doors wait for one room: none is forgotten for long.
            Err(Wait::ForRoom) => drop(tokio::time::timeout(BREATH, freed).await),
        }
    }
}

fn take(stream: TcpStream, client: SocketAddr, name: &str, accept_proxy: bool, mode: Mode, front: &Rc<Front>) {
    let entered = front.state.borrow_mut().enters(name, client, front.now());
    // Its address comes too often.
    let Some((number, session)) = entered else { return };
    let front = front.clone();
    tokio::task::spawn_local(async move {
        crate::relay::ready_for_long(&stream);
        match mode {
            Mode::Tcp => session::run(stream, accept_proxy, &session, &front).await,
            Mode::Http => http::run(stream, &session, &front).await,
        }
        front.state.borrow_mut().leaves(number, front.now());
    });
}
