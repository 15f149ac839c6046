//! What is attacked, and what an attacker sees of it.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// An attacked member, shared by all who attack it.
#[derive(Debug, Default)]
pub(super) struct Target {
    pub(super) client_port: u16,
    /// Clients are served there over TLS; 0: nowhere.
    pub(super) tls_port: u16,
    pub(super) peer_ports: Vec<u16>,
    pub(super) stop: AtomicBool,
    /// Connections that could not be made, or that the member closed.
    pub(super) closed: AtomicU64,
    /// Things done: frames, calls, connections.
    pub(super) done: AtomicU64,
    /// What a member must never do, and how often it did.
    pub(super) breaches: Mutex<BTreeMap<String, u64>>,
}

impl Target {
    pub(super) fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn count(&self, things: u64) {
        self.done.fetch_add(things, Ordering::Relaxed);
    }

    /// The member did what it must not.
    pub(super) fn breach(&self, what: &str) {
        let mut breaches = self.breaches.lock().unwrap_or_else(PoisonError::into_inner);
        *breaches.entry(what.to_owned()).or_default() += 1;
    }

    /// What it did that it must not, and how often.
    pub(super) fn told(&self) -> Vec<String> {
        let breaches = self.breaches.lock().unwrap_or_else(PoisonError::into_inner);
        breaches.iter().map(|(what, times)| format!("{what} ({times} times)")).collect()
    }

    /// A connection to the client port; None is counted, and waits a little.
    pub(super) fn connect(&self) -> Option<TcpStream> {
        self.connect_to(self.client_port)
    }

    pub(super) fn connect_to(&self, port: u16) -> Option<TcpStream> {
        let address = ([127, 0, 0, 1], port).into();
        let socket = TcpStream::connect_timeout(&address, Duration::from_secs(1)).and_then(|socket| {
            socket.set_write_timeout(Some(Duration::from_millis(200)))?;
            socket.set_read_timeout(Some(Duration::from_millis(50)))?;
            Ok(socket)
        });
        if socket.is_err() {
            self.refused();
        }
        socket.ok()
    }

    /// So many connections to the client port, or as many as can be made.
    pub(super) fn connect_many(&self, count: usize) -> Vec<TcpStream> {
        (0..count).take_while(|_| self.goes_on()).filter_map(|_| self.connect()).collect()
    }

    pub(super) fn refused(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(5));
    }

    /// Writes the same again and again, on one connection after the other, and reads nothing.
    pub(super) fn flood(&self, hello: &[u8], mut more: impl FnMut(u64) -> Vec<u8>) {
        while self.goes_on() {
            let Some(mut socket) = self.connect() else { continue };
            if self.write(&mut socket, hello).is_err() {
                continue;
            }
            let mut turn = 0;
            while self.goes_on() && self.write(&mut socket, &more(turn)).is_ok() {
                turn += 1;
                self.count(1);
            }
        }
    }

    /// A full socket is waited for; an error is a connection that the member closed.
    pub(super) fn write(&self, socket: &mut TcpStream, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match socket.write(bytes) {
                Ok(0) => break,
                Ok(wrote) => bytes = &bytes[wrote..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.goes_on() => {}
                Err(error) => {
                    if self.goes_on() {
                        self.refused();
                    }
                    return Err(error);
                }
            }
        }
        if bytes.is_empty() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Takes what is there, for a moment. False: the member closed it.
    pub(super) fn drain(&self, socket: &mut TcpStream, most: usize) -> bool {
        self.take(socket, &mut Vec::new(), most)
    }

    /// The same, and keeps what was taken.
    pub(super) fn take(&self, socket: &mut TcpStream, taken: &mut Vec<u8>, most: usize) -> bool {
        let mut buffer = vec![0; 64 << 10];
        while taken.len() < most {
            match socket.read(&mut buffer) {
                Ok(0) => return false,
                Ok(got) => taken.extend_from_slice(&buffer[..got]),
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    /// Until the attack is over.
    pub(super) fn hold<T>(&self, held: T) {
        while self.goes_on() {
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(held);
    }

    /// For so long, or until the attack is over.
    pub(super) fn rest(&self, time: Duration) {
        let until = std::time::Instant::now() + time;
        while self.goes_on() && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5).min(time));
        }
    }
}
