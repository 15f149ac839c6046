//! Links between members: what one member is sent goes through a proxy in front of its peer port,
//! which holds it to a bandwidth, delays it, and cuts it. It runs on a thread of its own, so that
//! the clients' work does not slow the links.

use std::{
    net::{SocketAddr, TcpListener as StdListener},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    time::{sleep, sleep_until},
};

use crate::server::{Ports, free_port};

/// What is read at once. Small, so that several connections share a link.
const PIECE: usize = 8 << 10;
/// Pieces on their way: what a router would keep.
const QUEUE: usize = 16;
/// How often a connection looks whether its link is cut.
const LOOK: Duration = Duration::from_millis(20);

/// What a link does to what it carries.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Bytes a second in each direction; 0: any number.
    pub rate: u64,
    pub delay: Duration,
}

/// One member's link.
#[derive(Debug)]
pub struct Link {
    target: SocketAddr,
    rate: AtomicU64,
    delay: Duration,
    cut: AtomicBool,
    /// When the wire is free again, to the member and back.
    free: [Mutex<Instant>; 2],
    carried: AtomicU64,
}

impl Link {
    /// Ends all connections and takes no new ones until it is mended.
    pub fn cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::Relaxed);
    }

    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    /// Bytes a second from now on; 0: any number.
    pub fn set_rate(&self, rate: u64) {
        self.rate.store(rate, Ordering::Relaxed);
    }

    /// Bytes that went through, both ways.
    pub fn carried(&self) -> u64 {
        self.carried.load(Ordering::Relaxed)
    }

    /// When these bytes have left the wire, which nobody else uses until then.
    fn leaves(&self, way: usize, bytes: usize) -> Instant {
        let now = Instant::now();
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == 0 {
            return now + self.delay;
        }
        let mut free = self.free[way].lock().expect("nothing panics under this lock");
        *free = (*free).max(now) + Duration::from_nanos(bytes as u64 * 1_000_000_000 / rate);
        *free + self.delay
    }
}

/// Puts a link in front of each member; the ports then name it.
///
/// # Errors
/// If no port is free.
pub fn links(ports: &mut [Ports], limits: Limits) -> Result<Vec<Arc<Link>>> {
    let mut made = Vec::new();
    let mut listeners = Vec::new();
    for ports in ports {
        ports.advertised = free_port()?;
        let listener = StdListener::bind(("127.0.0.1", ports.advertised)).context("a link's port")?;
        listener.set_nonblocking(true)?;
        let link = Arc::new(Link {
            target: SocketAddr::from(([127, 0, 0, 1], ports.peer)),
            rate: AtomicU64::new(limits.rate),
            delay: limits.delay,
            cut: AtomicBool::new(false),
            free: [Mutex::new(Instant::now()), Mutex::new(Instant::now())],
            carried: AtomicU64::new(0),
        });
        made.push(Arc::clone(&link));
        listeners.push((listener, link));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // It ends with the process.
    std::thread::Builder::new().name("links".into()).spawn(move || {
        runtime.block_on(async {
            for (listener, link) in listeners {
                tokio::spawn(accept(listener, link));
            }
            std::future::pending::<()>().await;
        });
    })?;
    Ok(made)
}

async fn accept(listener: StdListener, link: Arc<Link>) {
    let listener = TcpListener::from_std(listener).expect("a listener that does not block");
    loop {
        match listener.accept().await {
            Ok((near, _)) if !link.is_cut() => drop(tokio::spawn(carry(near, Arc::clone(&link)))),
            // Who is not let through sees the connection end.
            Ok(_) => {}
            Err(_) => sleep(LOOK).await,
        }
    }
}

async fn carry(near: TcpStream, link: Arc<Link>) {
    let Ok(far) = TcpStream::connect(link.target).await else { return };
    // A link that cannot be set so is only slower.
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    let cut = async {
        while !link.is_cut() {
            sleep(LOOK).await;
        }
    };
    tokio::select! {
        () = one_way(near_read, far_write, Arc::clone(&link), 0) => {}
        () = one_way(far_read, near_write, Arc::clone(&link), 1) => {}
        () = cut => {}
    }
}

/// Bytes as they come, each piece when the wire has carried it. It ends when either side does.
async fn one_way(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, link: Arc<Link>, way: usize) {
    let (send, mut queue) = mpsc::channel::<(Instant, Vec<u8>)>(QUEUE);
    let on_the_wire = Arc::clone(&link);
    let read = async move {
        let mut buffer = vec![0; PIECE];
        while let Ok(count) = from.read(&mut buffer).await {
            let due = on_the_wire.leaves(way, count);
            if count == 0 || send.send((due, buffer[..count].to_vec())).await.is_err() {
                return;
            }
            // The next piece is taken when this one has left: others' pieces come in between.
            sleep_until((due - on_the_wire.delay).into()).await;
        }
    };
    let write = async move {
        while let Some((due, bytes)) = queue.recv().await {
            sleep_until(due.into()).await;
            link.carried.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(read, write);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_link_holds_to_its_rate_and_can_be_cut() {
        let server = StdListener::bind("127.0.0.1:0").unwrap();
        let peer = server.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in server.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut all = Vec::new();
                    let _ = stream.read_to_end(&mut all);
                });
            }
        });
        let mut ports = [Ports { client: 0, peer, advertised: peer }];
        let link = links(&mut ports, Limits { rate: 1 << 20, delay: Duration::ZERO }).unwrap().remove(0);
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", ports[0].advertised)).unwrap();
        stream.write_all(&vec![7; 300 << 10]).unwrap();
        let begin = Instant::now();
        while link.carried() < 300 << 10 {
            assert!(begin.elapsed() < Duration::from_secs(20), "nothing arrives");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(begin.elapsed() > Duration::from_millis(200), "{:?} for 300 KiB at 1 MiB/s", begin.elapsed());
        link.cut(true);
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0, "a cut link ends its connections");
    }
}
