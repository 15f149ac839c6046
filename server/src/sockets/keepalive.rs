//! Peers that are gone without a word are found out by the system, in about two minutes.

use rustix::net::sockopt;
use std::time::Duration;
use tokio::net::TcpStream;

const IDLE: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_secs(15);
const TIMES: u32 = 4;
/// What was sent and is not acknowledged for so long ends a connection.
const UNACKNOWLEDGED: u32 = 120_000;

/// A socket on which this fails is broken, which reading it will tell.
pub(super) fn enable(socket: &TcpStream) {
    let _ = sockopt::set_socket_keepalive(socket, true);
    let _ = sockopt::set_tcp_keepidle(socket, IDLE);
    let _ = sockopt::set_tcp_keepintvl(socket, EVERY);
    let _ = sockopt::set_tcp_keepcnt(socket, TIMES);
    let _ = sockopt::set_tcp_user_timeout(socket, UNACKNOWLEDGED);
}
