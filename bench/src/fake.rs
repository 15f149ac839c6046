//! A server of a hundred lines for the tests of the generator: it answers each call with one
//! message, and can be slow, failing, or narrow on request.

use std::collections::{BTreeMap, HashMap};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What is planted into it.
#[derive(Clone, Debug, Default)]
pub struct Plant {
    /// This long after the first call it sleeps this long, once.
    pub stall: Option<(Duration, Duration)>,
    /// Every such call gets status 14.
    pub fail_every: u64,
    /// This call of a connection, counted from 1, never gets an answer.
    pub swallow: u64,
    /// Every connection is closed after so many calls.
    pub close_after: u64,
    /// Streams at once; 0: as many as the client likes.
    pub streams: u32,
    /// Bytes of an answer's value.
    pub answer: usize,
}

/// What it has seen.
#[derive(Debug, Default)]
pub struct Count {
    pub calls: AtomicU64,
    pub bytes: AtomicU64,
    /// Most streams at once on a connection.
    pub at_once: AtomicU64,
    /// Most bytes that came beyond what had been allowed, of a connection or a stream.
    pub owed: AtomicU64,
}

/// Starts it; it ends with the test process.
pub fn serve(plant: Plant) -> (SocketAddr, Arc<Count>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("bound");
    let count = Arc::new(Count::default());
    let shared = count.clone();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let (plant, count) = (plant.clone(), shared.clone());
            std::thread::spawn(move || connection(socket.expect("a connection"), &plant, &count));
        }
    });
    (address, count)
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// It ends when the client goes away.
fn connection(mut socket: TcpStream, plant: &Plant, count: &Count) -> Option<()> {
    socket.set_nodelay(true).ok()?;
    let mut preface = [0; 24];
    socket.read_exact(&mut preface).ok()?;
    let mut out = Vec::new();
    let mut settings = Vec::new();
    if plant.streams > 0 {
        settings.extend_from_slice(&[0, 3]);
        settings.extend_from_slice(&plant.streams.to_be_bytes());
    }
    frame(&mut out, 4, 0, 0, &settings);
    socket.write_all(&out).ok()?;
    let mut bodies: HashMap<u32, usize> = HashMap::new();
    let (mut first, mut stalled, mut calls) = (None, false, 0);
    // Received and not given back: by connection (0) and stream.
    let mut owed: BTreeMap<u32, u64> = BTreeMap::new();
    socket.set_read_timeout(Some(Duration::from_millis(2))).ok()?;
    loop {
        // Windows are given back only when the client has nothing more to say: one that does not
        // keep them is found out.
        if let Err(error) = socket.peek(&mut [0]) {
            if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) {
                return None;
            }
            out.clear();
            for (id, bytes) in std::mem::take(&mut owed) {
                frame(&mut out, 8, 0, id, &(bytes as u32).to_be_bytes());
            }
            socket.write_all(&out).ok()?;
            continue;
        }
        let mut head = [0; 9];
        socket.read_exact(&mut head).ok()?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        socket.read_exact(&mut payload).ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        out.clear();
        match head[3] {
            1 => {
                bodies.insert(stream, 0);
                count.at_once.fetch_max(bodies.len() as u64, Ordering::Relaxed);
            }
            0 => {
                *bodies.get_mut(&stream).expect("a stream with headers") += payload.len();
                for id in [0, stream] {
                    let owed = owed.entry(id).or_default();
                    *owed += payload.len() as u64;
                    count.owed.fetch_max(*owed, Ordering::Relaxed);
                }
                if head[4] & 1 != 0 {
                    let begin = *first.get_or_insert_with(Instant::now);
                    if let Some((after, sleep)) = plant.stall
                        && !stalled
                        && begin.elapsed() >= after
                    {
                        stalled = true;
                        std::thread::sleep(sleep);
                    }
                    calls += 1;
                    count.calls.fetch_add(1, Ordering::Relaxed);
                    owed.remove(&stream);
                    count.bytes.fetch_add(bodies.remove(&stream)? as u64, Ordering::Relaxed);
                    if calls != plant.swallow {
                        answer(&mut out, stream, plant, calls);
                    }
                }
            }
            _ => {}
        }
        socket.write_all(&out).ok()?;
        if plant.close_after > 0 && calls >= plant.close_after {
            return None;
        }
    }
}

fn answer(out: &mut Vec<u8>, stream: u32, plant: &Plant, calls: u64) {
    let failed = plant.fail_every > 0 && calls.is_multiple_of(plant.fail_every);
    frame(out, 1, 4, stream, &[0x88]);
    if !failed {
        // A header with revision 7, and a field of padding.
        let mut message = vec![0x0a, 2, 0x18, 7];
        if plant.answer > 0 {
            crate::message::bytes(&mut message, 2, &vec![0x61; plant.answer]);
        }
        let mut body = vec![0];
        body.extend_from_slice(&(message.len() as u32).to_be_bytes());
        body.extend_from_slice(&message);
        body.chunks(10_000).for_each(|chunk| frame(out, 0, 0, stream, chunk));
    }
    let mut trailer = vec![0, 11];
    trailer.extend_from_slice(b"grpc-status");
    trailer.extend_from_slice(if failed { b"\x0214" } else { b"\x010" });
    frame(out, 1, 5, stream, &trailer);
}
