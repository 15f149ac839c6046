//! Many connections behind one epoll, on one thread.
//!
//! A connection that is lost is made again, to the next endpoint; what was under way on it ends
//! with [`LOST`], what is begun meanwhile waits.

use crate::failure::Failure;
use crate::h2::{Event, H2, LOST, Tx};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Read at once; the kernel's loopback buffers hold more.
const READ: usize = 1 << 18;
const RETRY: Duration = Duration::from_millis(10);

/// How connections are made.
#[derive(Clone, Debug)]
pub struct Dial {
    pub endpoints: Vec<SocketAddr>,
    /// What the server may send on one stream before it is asked for more, in bytes.
    pub stream_window: u32,
}

#[derive(Debug)]
struct Conn {
    h2: H2,
    socket: Option<TcpStream>,
    endpoint: usize,
    retry_at: Instant,
    waits_to_write: bool,
    dirty: bool,
}

/// Connections of one thread.
#[derive(Debug)]
pub struct Net {
    epoll: OwnedFd,
    conns: Vec<Conn>,
    dirty: Vec<usize>,
    down: Vec<usize>,
    dial: Dial,
    /// Why connections were lost, newest last; at most ten are kept.
    pub losses: Vec<String>,
    pub lost: u64,
}

impl Net {
    /// Makes `count` connections, spread over the endpoints.
    ///
    /// # Errors
    /// If one of them cannot be made now.
    pub fn connect(dial: Dial, count: usize) -> Result<Net, Failure> {
        assert!(count > 0 && !dial.endpoints.is_empty(), "somewhere to connect to");
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| Failure::of("epoll", e))?;
        let mut net = Net { epoll, conns: Vec::new(), dirty: vec![], down: vec![], dial, losses: vec![], lost: 0 };
        for index in 0..count {
            let endpoint = index % net.dial.endpoints.len();
            let address = net.dial.endpoints[endpoint];
            let socket = dialled(address).map_err(|e| Failure::of(format!("connecting to {address}"), e))?;
            net.conns.push(Conn {
                h2: H2::new(&address.to_string(), net.dial.stream_window),
                socket: None,
                endpoint,
                retry_at: Instant::now(),
                waits_to_write: false,
                dirty: false,
            });
            net.adopt(index, socket);
        }
        Ok(net)
    }

    pub fn len(&self) -> usize {
        self.conns.len()
    }

    /// The sending half of a connection; what is put into it goes out with the next flush.
    pub fn tx(&mut self, index: usize) -> &mut Tx {
        let conn = &mut self.conns[index];
        if !conn.dirty {
            conn.dirty = true;
            self.dirty.push(index);
        }
        &mut conn.h2.tx
    }

    /// Writes what was begun from outside.
    pub fn flush(&mut self, on: &mut impl FnMut(usize, Instant, &mut Tx, Event<'_>)) {
        while let Some(index) = self.dirty.pop() {
            self.conns[index].dirty = false;
            if let Err(reason) = self.write(index) {
                self.lose(index, &reason.to_string(), on);
            }
        }
    }

    /// Waits at most `timeout` for the sockets; `on` gets the connection, when the bytes had been
    /// read, and what they say. What it begins is written before this returns.
    pub fn poll(&mut self, timeout: Duration, on: &mut impl FnMut(usize, Instant, &mut Tx, Event<'_>)) {
        self.flush(on);
        let timeout = if self.down.is_empty() { timeout } else { timeout.min(RETRY) };
        let wait = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        let mut events = Vec::with_capacity(256);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&wait)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => panic!("epoll_wait: {errno}"),
        }
        for event in events {
            let index = event.data.u64() as usize;
            let flags = event.flags;
            if let Err(reason) = self.ready(index, flags, on) {
                self.lose(index, &reason.to_string(), on);
            }
        }
        self.redial();
    }

    fn ready(
        &mut self,
        index: usize,
        flags: epoll::EventFlags,
        on: &mut impl FnMut(usize, Instant, &mut Tx, Event<'_>),
    ) -> Result<(), Failure> {
        let conn = &mut self.conns[index];
        let Some(socket) = &conn.socket else { return Ok(()) };
        if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
            conn.h2.input.reserve(READ);
            match rustix::io::read(socket, spare_capacity(&mut conn.h2.input)) {
                Ok(0) => return Err("the server closed the connection".into()),
                Ok(_) => {
                    let now = Instant::now();
                    conn.h2.take(&mut |tx, event| on(index, now, tx, event)).map_err(|e| e.to_string())?;
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno.to_string().into()),
            }
        }
        self.write(index)
    }

    fn write(&mut self, index: usize) -> Result<(), Failure> {
        let conn = &mut self.conns[index];
        let Some(socket) = &conn.socket else { return Ok(()) };
        let out = &mut conn.h2.tx.out;
        let mut sent = 0;
        while sent < out.len() {
            match rustix::net::send(socket, &out[sent..], rustix::net::SendFlags::NOSIGNAL) {
                Ok(n) => sent += n,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.to_string().into()),
            }
        }
        out.drain(..sent);
        let waits = !out.is_empty();
        if waits != conn.waits_to_write {
            conn.waits_to_write = waits;
            self.register(index);
        }
        Ok(())
    }

    fn register(&mut self, index: usize) {
        let conn = &self.conns[index];
        let Some(socket) = &conn.socket else { return };
        let mut flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::OUT, conn.waits_to_write);
        let data = epoll::EventData::new_u64(index as u64);
        epoll::modify(&self.epoll, socket, data, flags).expect("a socket of ours");
    }

    fn adopt(&mut self, index: usize, socket: TcpStream) {
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN).expect("a new socket");
        self.conns[index].socket = Some(socket);
        self.tx(index);
    }

    fn lose(&mut self, index: usize, reason: &str, on: &mut impl FnMut(usize, Instant, &mut Tx, Event<'_>)) {
        self.lost += 1;
        let conn = &mut self.conns[index];
        let address = self.dial.endpoints[conn.endpoint];
        if self.losses.len() < 10 {
            self.losses.push(format!("{address}: {reason}"));
        }
        // Closing takes it out of the epoll set.
        conn.socket = None;
        conn.waits_to_write = false;
        conn.endpoint = (conn.endpoint + 1) % self.dial.endpoints.len();
        conn.retry_at = Instant::now();
        let authority = self.dial.endpoints[conn.endpoint].to_string();
        let mut old = std::mem::replace(&mut conn.h2, H2::new(&authority, self.dial.stream_window));
        self.down.push(index);
        let now = Instant::now();
        for tag in old.tx.forget() {
            on(index, now, &mut self.conns[index].h2.tx, Event::End { tag, code: LOST, text: reason });
        }
    }

    fn redial(&mut self) {
        for index in std::mem::take(&mut self.down) {
            let conn = &mut self.conns[index];
            let now = Instant::now();
            if now < conn.retry_at {
                self.down.push(index);
                continue;
            }
            match dialled(self.dial.endpoints[conn.endpoint]) {
                Ok(socket) => self.adopt(index, socket),
                Err(_) => {
                    conn.endpoint = (conn.endpoint + 1) % self.dial.endpoints.len();
                    conn.retry_at = now + RETRY;
                    self.down.push(index);
                }
            }
        }
    }
}

fn dialled(address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    socket.set_nodelay(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
