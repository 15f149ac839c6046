//! What a process has little of: places, processors, descriptors, memory.

use super::super::frames::{HANDSHAKE, client_hello};
use super::super::target::Target;
use super::{calls, storms};

pub(super) fn half_handshakes(target: &Target, _: usize) {
    let mut open = Vec::new();
    while target.goes_on() {
        if let Some(mut socket) = target.connect_to(target.tls_port) {
            // The head of a ClientHello.
            let _ = target.write(&mut socket, &[HANDSHAKE, 3, 1, 2, 0, 1, 0, 1]);
            target.count(1);
            open.push(socket);
        }
        if open.len() >= 2_000 {
            open.clear();
        }
    }
}

pub(super) fn hellos(target: &Target, thread: usize) {
    let mut turn = thread as u8;
    while target.goes_on() {
        let open: Vec<_> = (0..16)
            .filter_map(|_| {
                let mut socket = target.connect_to(target.tls_port)?;
                turn = turn.wrapping_add(4);
                target.write(&mut socket, &client_hello(turn)).ok()?;
                Some(socket)
            })
            .collect();
        for mut socket in open {
            let mut answer = Vec::new();
            target.take(&mut socket, &mut answer, 1);
            if answer.first() == Some(&HANDSHAKE) {
                target.count(1);
            }
        }
    }
}

pub(super) fn descriptors(target: &Target, _: usize) {
    let open = target.connect_many(1_500);
    target.count(open.len() as u64);
    target.hold(open);
}

pub(super) fn memory(target: &Target, thread: usize) {
    match thread {
        0 => storms::large_puts(target, thread),
        1 => calls::stalled_bodies(target, thread),
        2 => calls::unread_ranges(target, thread),
        _ => calls::unread_watches(target, thread),
    }
}
