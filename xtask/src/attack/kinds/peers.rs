//! The port where members meet.

use std::time::Duration;

use super::super::frames::PREFACE;
use super::super::target::Target;
use crate::rng::Rng;

/// The first words of a member.
const HELLO: &[u8] = b"\xf5kvorum\n";

pub(super) fn garbage(target: &Target, thread: usize) {
    let mut ports = vec![target.client_port];
    ports.extend(&target.peer_ports);
    let mut rng = Rng::new(thread as u64);
    while target.goes_on() {
        let Some(mut socket) = target.connect_to(ports[thread % ports.len()]) else { continue };
        let begin: &[u8] = match rng.below(4) {
            0 => PREFACE,
            1 => HELLO,
            2 => b"POST /v3/kv/put HTTP/1.1\r\n",
            _ => b"",
        };
        let _ = target.write(&mut socket, begin);
        let _ = target.write(&mut socket, &rng.bytes(4096));
        target.count(1);
    }
}

/// Lengths of all sizes, and too little behind them. A real etcd reads the same as HTTP.
pub(super) fn frames(target: &Target, thread: usize) {
    let mut rng = Rng::new(thread as u64);
    for port in target.peer_ports.iter().cycle() {
        if !target.goes_on() {
            break;
        }
        let Some(mut socket) = target.connect_to(*port) else { continue };
        let drawn = rng.next();
        let length = (drawn as u32) >> (drawn >> 32 & 31);
        let mut out = HELLO.to_vec();
        out.extend(if drawn >> 40 & 1 == 0 { length.to_be_bytes() } else { length.to_le_bytes() });
        out.extend(rng.bytes(1 << 10));
        let _ = target.write(&mut socket, &out);
        target.drain(&mut socket, 4 << 10);
        target.count(1);
    }
}

pub(super) fn silent(target: &Target, _: usize) {
    let mut open = Vec::new();
    for _ in 0..600 {
        open.extend(target.peer_ports.iter().filter_map(|port| target.connect_to(*port)));
        target.count(target.peer_ports.len() as u64);
        if !target.goes_on() {
            break;
        }
    }
    // Who is sent away comes again.
    while target.goes_on() {
        target.rest(Duration::from_millis(100));
        let mut again = Vec::new();
        open.retain_mut(|socket| {
            let stays = target.goes_on() && !has_gone(socket);
            if !stays {
                again.extend(socket.peer_addr().ok().map(|address| address.port()));
            }
            stays
        });
        open.extend(again.into_iter().filter_map(|port| target.connect_to(port)));
    }
}

fn has_gone(socket: &mut std::net::TcpStream) -> bool {
    let _ = socket.set_nonblocking(true);
    let gone = !matches!(socket.peek(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
    let _ = socket.set_nonblocking(false);
    gone
}

/// Each asks for a page again and again.
pub(super) fn unread(target: &Target, _: usize) {
    let ask = b"GET /members HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1_000);
    let mut open = Vec::new();
    for n in 0..300 {
        let port = target.peer_ports[n % target.peer_ports.len()];
        let Some(mut socket) = target.connect_to(port) else { continue };
        let _ = socket.set_nonblocking(true);
        // As much as the socket takes.
        let _ = std::io::Write::write(&mut socket, &ask);
        target.count(1);
        open.push(socket);
        if !target.goes_on() {
            break;
        }
    }
    target.hold(open);
}
