//! Accepts connections, connects each to a member, and copies what comes both ways.

use crate::endpoints::Endpoints;
use crate::log;
use serde_json::Value;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};

const CALLER: &str = "tcpproxy/userspace.go";
/// A member that takes longer to answer the first packet is passed over.
const CONNECT: Duration = Duration::from_secs(5);
/// Until the next try when no descriptor is left for a connection.
const BREATH: Duration = Duration::from_millis(100);
/// Between two looks at members that failed.
const LOOK: Duration = Duration::from_millis(100);

struct Shared {
    endpoints: RefCell<Endpoints>,
    start: Instant,
}

impl Shared {
    fn address(&self, at: usize) -> String {
        self.endpoints.borrow().address(at).to_string()
    }

    fn failed(&self, at: usize, error: &io::Error, probed: bool) {
        let first = self.endpoints.borrow_mut().failed(at, self.start.elapsed());
        let message = match (first, probed) {
            (true, _) => "deactivated endpoint",
            (false, true) => "failed to activate endpoint (stay inactive for another interval)",
            // A client was sent on to the next one; that it is down was said.
            (false, false) => return,
        };
        let delay = self.endpoints.borrow().delay();
        let fields = [
            ("address", Value::from(self.address(at))),
            ("interval", Value::from(cobra::go::duration(delay))),
            ("error", Value::from(error.to_string())),
        ];
        log::line("warn", CALLER, message, &fields);
    }

    fn reached(&self, at: usize) {
        if self.endpoints.borrow_mut().reached(at) {
            log::line("info", CALLER, "activated", &[("address", Value::from(self.address(at)))]);
        }
    }
}

/// Serves until the listener breaks.
///
/// # Errors
/// It cannot be used.
pub(crate) async fn run(listener: std::net::TcpListener, endpoints: Endpoints) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let shared = Rc::new(Shared { endpoints: RefCell::new(endpoints), start: Instant::now() });
    let tasks = tokio::task::LocalSet::new();
    tasks.spawn_local(watch_the_failed(shared.clone()));
    tasks
        .run_until(async {
            loop {
                match listener.accept().await {
                    Ok((client, _)) => drop(tokio::task::spawn_local(serve(client, shared.clone()))),
                    Err(error) if is_of_one_connection(&error) => {}
                    Err(error) => {
                        let fields = [("error", Value::from(error.to_string()))];
                        log::line("warn", CALLER, "cannot accept a connection", &fields);
                        tokio::time::sleep(BREATH).await;
                    }
                }
            }
        })
        .await
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}

async fn serve(mut client: TcpStream, shared: Rc<Shared>) {
    let order = shared.endpoints.borrow_mut().order();
    for at in order {
        match connect(&shared.address(at)).await {
            Ok(mut member) => {
                shared.reached(at);
                ready_for_long(&client);
                // However it ends, both sides are closed; who cut it off is no news here.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut member).await;
                return;
            }
            Err(error) => shared.failed(at, &error, false),
        }
    }
}

async fn connect(address: &str) -> io::Result<TcpStream> {
    let reach = tokio::time::timeout(CONNECT, TcpStream::connect(address));
    let timed_out = |_| io::Error::new(io::ErrorKind::TimedOut, format!("dial tcp {address}: i/o timeout"));
    let stream = reach
        .await
        .map_err(timed_out)?
        .map_err(|error| io::Error::new(error.kind(), format!("dial tcp {address}: connect: {}", reason(&error))))?;
    ready_for_long(&stream);
    Ok(stream)
}

/// The system's words as Go has them: without the number, and small.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string().to_lowercase();
    text.split(" (os error").next().unwrap_or(&text).to_string()
}

/// Nothing waits for more to come, and a side that vanished is found out.
pub(crate) fn ready_for_long(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_socket_keepalive(stream, true);
    let _ = rustix::net::sockopt::set_tcp_keepidle(stream, Duration::from_secs(30));
}

async fn watch_the_failed(shared: Rc<Shared>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let due = shared.endpoints.borrow().due(shared.start.elapsed());
        for at in due {
            match connect(&shared.address(at)).await {
                Ok(_) => shared.reached(at),
                Err(error) => shared.failed(at, &error, true),
            }
        }
    }
}
