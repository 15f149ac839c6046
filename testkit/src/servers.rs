//! What every test needs that starts servers: a port for each, patience, and an end whatever
//! happens.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// No start, stop, election or answer of a healthy server takes longer, even on a machine that
/// does much else. What must come is waited for this long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A port of loopback that nobody listens on, out of the `count` from `low` on. Each crate has its
/// own range, below the ports of outgoing connections: until the server is there, and while it is
/// down, no connection and no other test may take it.
pub fn free_port(low: u16, count: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id().wrapping_mul(7919) % u32::from(count)).expect("below the count");
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(step < count, "no free port on 127.0.0.1 from {low} on");
        let port = low + (first + step) % count;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A server that ends with its owner, and with this program whichever way that ends; then its
/// folder is removed, too.
#[derive(Debug)]
pub struct Guarded {
    pub server: Child,
    /// A shell whose input is closed by the end of this program, and by nothing else.
    shell: Child,
}

impl Guarded {
    pub fn new(server: Child, folder: &Path) -> Guarded {
        let script = "trap '' INT; read _; kill -9 \"$1\"; sleep 0.1; rm -rf \"$2\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "guard"]).arg(server.id().to_string()).arg(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let shell = command.spawn().expect("there is a shell");
        Guarded { server, shell }
    }

    /// Kills the server as a crash would, the shell before it, and waits until both are gone. The
    /// folder stays.
    pub fn end(&mut self) {
        for child in [&mut self.shell, &mut self.server] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.end();
    }
}
