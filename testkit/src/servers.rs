//! What every test needs that starts servers: a port for each, patience, and an end whatever
//! happens.

use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// No start, stop, election or answer of a healthy server takes longer, even on a machine that
/// does much else. What must come is waited for this long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Ports that one program takes at once. A test program that needs more takes more blocks.
const BLOCK: u16 = 200;

/// A port of loopback that nobody listens on, out of the `count` from `low` on, each of them once.
/// Each crate has its own range, below the ports of outgoing connections: until the server is
/// there, and while it is down, no connection and no other test may take it.
///
/// Several test programs run at a time, so each holds blocks of ports: a lock on a file that ends
/// with the program, whichever way that ends.
pub fn free_port(low: u16, count: u16) -> u16 {
    static HELD: Mutex<Vec<(File, u16)>> = Mutex::new(Vec::new());
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // A test that failed with the lock in its hand leaves a list that is still true.
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let block = usize::from(step / BLOCK);
        if block == held.len() {
            held.push(free_block(low, count));
        }
        let port = held[block].1 + step % BLOCK;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// The first port of a block that no other program holds, and what holds it.
fn free_block(low: u16, count: u16) -> (File, u16) {
    let blocks = count / BLOCK;
    let first = u16::try_from(std::process::id() % u32::from(blocks)).expect("below the count");
    let block = (0..blocks).map(|step| low + (first + step) % blocks * BLOCK).find_map(|port| {
        let path = std::env::temp_dir().join(format!("kvorum-test-ports-{port}"));
        let file = File::options().create(true).truncate(false).write(true).open(path).ok()?;
        file.try_lock().ok()?;
        Some((file, port))
    });
    block.unwrap_or_else(|| panic!("no free block of ports on 127.0.0.1 from {low} on"))
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
