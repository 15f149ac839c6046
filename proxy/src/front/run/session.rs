//! One connection of a client: which backend, which server, tries, and what passes.

use super::relay::{self, End};
use super::{Front, say};
use crate::front::config::{Backend, Balance, Frontend, SendProxy, Server};
use crate::front::opening;
use crate::front::state::{Placed, Session};
use serde_json::Value;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// How long a client may take for its opening, where the file does not say.
const OPENING: Duration = Duration::from_secs(5);
/// Between two tries at one server, as HAProxy has it.
const TURN: Duration = Duration::from_secs(1);

/// Serves a client until either side is through.
pub(super) async fn run(mut stream: TcpStream, accept_proxy: bool, session: &Rc<Session>, front: &Rc<Front>) {
    let Some(config) = front.state.borrow().doors.get(&session.frontend).map(|door| door.config.clone()) else {
        return;
    };
    let mut taken = Vec::new();
    let limit = config.inspect_delay.map_or(OPENING, |span| span.0);
    let opening = tokio::time::timeout(limit, open(&mut stream, accept_proxy, session, &config, &mut taken));
    let opened = match opening.await {
        Ok(Ok(opened)) => opened,
        // Too late to say a name: it goes where those without one go.
        Err(_) if !accept_proxy => {
            Opened { client: session.client, here: None, backend: config.default_backend.clone() }
        }
        Ok(Err(_)) | Err(_) => {
            if let Some(door) = front.state.borrow_mut().doors.get_mut(&session.frontend) {
                door.counters.request_errors += 1;
            }
            return;
        }
    };
    // A name that no backend has, and no other backend.
    let Some(name) = opened.backend.clone() else { return };
    let Some(backend) = front.state.borrow().backend(&name).cloned() else { return };
    if let Some(pool) = front.state.borrow_mut().pools.get_mut(&name) {
        pool.counters.begins(front.now());
    }
    let ended = async {
        session.end.notified().await;
    };
    tokio::select! {
        () = pass(&mut stream, &opened, &taken, &config, &backend, session, front) => {}
        () = ended => {}
    }
    let mut state = front.state.borrow_mut();
    if let Some(pool) = state.pools.get_mut(&name) {
        pool.counters.ends();
        pool.counters.total_time.add(front.now().saturating_sub(session.since));
    }
}

/// What the opening said.
struct Opened {
    client: SocketAddr,
    /// Where the client came in, if a front before this one says it.
    here: Option<SocketAddr>,
    backend: Option<String>,
}

/// Reads what comes before the bytes that are passed on; `taken` gets those of them that were read.
async fn open(
    stream: &mut TcpStream,
    accept_proxy: bool,
    session: &Session,
    config: &Frontend,
    taken: &mut Vec<u8>,
) -> io::Result<Opened> {
    let mut opened = Opened { client: session.client, here: None, backend: config.default_backend.clone() };
    if accept_proxy && let Some((client, here)) = opening::proxied(stream, taken).await? {
        (opened.client, opened.here) = (client, Some(here));
    }
    if !config.use_backend.is_empty()
        && let Some(name) = opening::name(stream, taken).await?
    {
        let fits = |pattern: &String| opening::fits(pattern, &name);
        if let Some(route) = config.use_backend.iter().find(|route| route.sni.iter().any(fits)) {
            opened.backend = Some(route.backend.clone());
        }
    }
    Ok(opened)
}

/// A place at a server, which ends with it.
struct Placement<'a> {
    front: &'a Rc<Front>,
    backend: &'a str,
    server: String,
}

impl Drop for Placement<'_> {
    fn drop(&mut self) {
        self.front.state.borrow_mut().frees(self.backend, &self.server, self.front.now());
    }
}

/// A place in the queue, given up when nobody waits for it any more.
struct Queued<'a> {
    front: &'a Rc<Front>,
    backend: &'a str,
    ticket: u64,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.front.state.borrow_mut().gives_up(self.backend, self.ticket);
    }
}

async fn pass(
    stream: &mut TcpStream,
    opened: &Opened,
    taken: &[u8],
    config: &Frontend,
    backend: &Backend,
    session: &Rc<Session>,
    front: &Rc<Front>,
) {
    let Some((mut server, place)) = connect(opened, backend, front).await else { return };
    *session.at.borrow_mut() = Some((backend.name.clone(), place.server.clone()));
    let Some(told) = backend.servers.iter().find(|server| server.name == place.server) else { return };
    let here = opened.here.or_else(|| stream.local_addr().ok());
    let header = here.map_or(Ok(Vec::new()), |here| header(told, opened.client, here));
    let first = header.map(|header| [&header[..], taken].concat());
    let sent = match first {
        Ok(first) if first.is_empty() => Ok(()),
        Ok(first) => relay::write(&mut server, &first).await,
        Err(error) => Err(error),
    };
    if sent.is_err() {
        return;
    }
    session.bytes[0].set(session.bytes[0].get() + taken.len() as u64);
    let idle = backend.timeout.tunnel.or(match (config.timeout_client, backend.timeout.server) {
        (Some(client), Some(server)) => Some(client.min(server)),
        (client, server) => client.or(server),
    });
    let idle = idle.filter(|span| !span.0.is_zero()).map(|span| span.0);
    let end = relay::both_ways(stream, &mut server, &session.bytes, idle).await;
    let mut state = front.state.borrow_mut();
    if let Some(pool) = state.pools.get_mut(&backend.name) {
        let at = pool.position(&place.server);
        let mut counters: Vec<_> = vec![&mut pool.counters];
        counters.extend(at.map(|at| &mut pool.members[at].counters));
        for counters in counters {
            match end {
                End::Client => counters.client_aborts += 1,
                End::Server => counters.server_aborts += 1,
                End::Whole | End::Idle => {}
            }
        }
    }
    drop(state);
}

fn header(server: &Server, client: SocketAddr, here: SocketAddr) -> io::Result<Vec<u8>> {
    match server.send_proxy {
        SendProxy::No => Ok(Vec::new()),
        SendProxy::V1 => Ok(opening::header_v1(client, here)),
        SendProxy::V2 => opening::header_v2(client, here),
    }
}

/// A connection to a server, after as many tries as the file allows.
async fn connect<'a>(
    opened: &Opened,
    backend: &'a Backend,
    front: &'a Rc<Front>,
) -> Option<(TcpStream, Placement<'a>)> {
    let mut tries = 0;
    let mut place = wait_for_place(opened, backend, None, front).await?;
    loop {
        let server = backend.servers.iter().find(|server| server.name == place.server)?;
        let began = Instant::now();
        let result = tokio::time::timeout(backend.timeout.connect.0, TcpStream::connect(&server.address)).await;
        let result = result.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let good = result.is_ok();
        let down = count_try(front, backend, &place.server, good, began.elapsed());
        if down {
            marked_down(front, backend, server, "connections of clients fail");
        }
        match result {
            Ok(stream) => {
                crate::relay::ready_for_long(&stream);
                return Some((stream, place));
            }
            Err(_) if tries >= backend.retries => return None,
            Err(_) => tries += 1,
        }
        let elsewhere = is_redispatched(backend, tries);
        let failed = place.server.clone();
        count_retry(front, backend, &failed, elsewhere);
        if elsewhere {
            drop(place);
            place = wait_for_place(opened, backend, Some(&failed), front).await?;
        }
        if place.server == failed {
            // It gets a moment; but a moment is never longer than what a connection may take.
            tokio::time::sleep(TURN.min(backend.timeout.connect.0)).await;
        }
    }
}

/// Whether the try of this number (from 1 on) goes to another server. As HAProxy: where servers
/// take turns every try does, if any may.
fn is_redispatched(backend: &Backend, tries: u32) -> bool {
    let turns = matches!(backend.balance, Balance::Roundrobin | Balance::Random) && backend.servers.len() > 1;
    match backend.redispatch {
        0 => false,
        _ if turns => true,
        every if every > 0 => tries.is_multiple_of(every as u32),
        // -1 is the last one.
        back => {
            let every = i64::from(backend.retries) + 1 + i64::from(back);
            every > 0 && i64::from(tries) % every == 0
        }
    }
}

fn count_try(front: &Front, backend: &Backend, server: &str, good: bool, took: Duration) -> bool {
    let now = front.now();
    let mut state = front.state.borrow_mut();
    let Some(pool) = state.pools.get_mut(&backend.name) else { return false };
    pool.counters.attempts += 1;
    let Some(at) = pool.position(server) else { return false };
    pool.members[at].counters.attempts += 1;
    if good {
        pool.counters.connect_time.add(took);
        pool.members[at].counters.connect_time.add(took);
    }
    pool.observed(at, good, now)
}

fn count_retry(front: &Front, backend: &Backend, server: &str, elsewhere: bool) {
    let mut state = front.state.borrow_mut();
    let Some(pool) = state.pools.get_mut(&backend.name) else { return };
    let at = pool.position(server);
    let mut all: Vec<_> = vec![&mut pool.counters];
    all.extend(at.map(|at| &mut pool.members[at].counters));
    for counters in all {
        if elsewhere {
            counters.redispatches += 1;
        } else {
            counters.retries += 1;
        }
    }
}

/// A server was found down: what its configuration wants for the connections that it has.
pub(super) fn marked_down(front: &Front, backend: &Backend, server: &Server, why: &str) {
    let ended = if server.shutdown_sessions { front.state.borrow_mut().shut(&backend.name, &server.name) } else { 0 };
    let active = front.state.borrow().pools.get(&backend.name).map_or(0, |pool| pool.usable().len());
    let fields = [
        ("server", Value::from(format!("{}/{}", backend.name, server.name))),
        ("reason", Value::from(why)),
        ("usable", Value::from(active)),
        ("ended", Value::from(ended)),
    ];
    say("warn", "server is down", &fields);
}

/// A place, at once or after a wait.
async fn wait_for_place<'a>(
    opened: &Opened,
    backend: &'a Backend,
    not: Option<&str>,
    front: &'a Rc<Front>,
) -> Option<Placement<'a>> {
    let began = front.now();
    let limit = backend.timeout.queue.unwrap_or(backend.timeout.connect).0;
    loop {
        let placed = front.state.borrow_mut().place(&backend.name, opened.client.ip(), not, front.now());
        let (ticket, heard) = match placed {
            Placed::Server(server) => return Some(Placement { front, backend: &backend.name, server }),
            Placed::Full | Placed::Nobody => return None,
            Placed::Waits(ticket, heard) => (ticket, heard),
        };
        let queued = Queued { front, backend: &backend.name, ticket };
        let rest = limit.saturating_sub(front.now().saturating_sub(began));
        match tokio::time::timeout(rest, heard).await {
            Ok(Ok(server)) => {
                let placement = Placement { front, backend: &backend.name, server };
                drop(queued);
                let waited = front.now().saturating_sub(began);
                if let Some(pool) = front.state.borrow_mut().pools.get_mut(&backend.name) {
                    pool.counters.queue_time.add(waited);
                }
                return Some(placement);
            }
            // A new file was taken: it asks again.
            Ok(Err(_)) => drop(queued),
            Err(_) => return None,
        }
    }
}
