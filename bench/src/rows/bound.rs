//! What the machine can do at best: messages over loopback with nothing behind them, flushes of
//! an appended file. No server is faster than these.

use crate::args::Target;
use crate::drive::{Latencies, latencies};
use crate::failure::Failure;
use crate::report::{Latency, Report};
use crate::run::finish;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// About a small call and its answer, with their headers.
const MESSAGE: usize = 128;
const BLOCK: usize = 4096;

/// Half of the time each.
///
/// # Errors
/// If the disk or loopback refuses.
pub fn bound(target: &Target) -> Result<bool, Failure> {
    let each = target.run / 2;
    let echo = echoes(each).map_err(|e| Failure::of("loopback", e))?;
    let folder = target.disk.clone().unwrap_or_else(std::env::temp_dir);
    let flushes = flushes(&folder, each).map_err(|e| Failure::of(folder.display().to_string(), e))?;
    let mut report = Report {
        row: "bound".into(),
        what: format!(
            "{MESSAGE} B there and back over loopback; {BLOCK} B appended and flushed in {}",
            folder.display()
        ),
        seconds: target.run.as_secs_f64(),
        ..Report::default()
    };
    for (name, seen) in [("echo", &echo), ("fdatasync", &flushes)] {
        let latency = Latency::of(seen);
        report.figures.insert(format!("{name}/s"), seen.len() as f64 / each.as_secs_f64());
        report.figures.insert(format!("{name} p50 ms"), latency.p50_us as f64 / 1e3);
        report.figures.insert(format!("{name} p99 ms"), latency.p99_us as f64 / 1e3);
    }
    Ok(finish(target, &report))
}

fn echoes(time: Duration) -> std::io::Result<Latencies> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut socket, _) = listener.accept()?;
        socket.set_nodelay(true)?;
        let mut message = [0; MESSAGE];
        // It ends when the other side closes.
        while socket.read_exact(&mut message).is_ok() {
            socket.write_all(&message)?;
        }
        Ok(())
    });
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    let mut message = [0; MESSAGE];
    let seen = repeat(time, || {
        socket.write_all(&message)?;
        socket.read_exact(&mut message)
    })?;
    drop(socket);
    server.join().expect("the echo does not panic")?;
    Ok(seen)
}

fn flushes(folder: &std::path::Path, time: Duration) -> std::io::Result<Latencies> {
    let mut file: File = tempfile::tempfile_in(folder)?;
    let block = [0x5a; BLOCK];
    repeat(time, || {
        file.write_all(&block)?;
        file.sync_data()
    })
}

fn repeat(time: Duration, mut once: impl FnMut() -> std::io::Result<()>) -> std::io::Result<Latencies> {
    let mut seen = latencies();
    let begin = Instant::now();
    while begin.elapsed() < time {
        let since = Instant::now();
        once()?;
        seen.saturating_record((since.elapsed().as_micros() as u64).max(1));
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_bounds_are_measured() {
        let time = Duration::from_millis(50);
        assert!(!echoes(time).expect("loopback").is_empty());
        let folder = tempfile::tempdir().expect("a folder");
        assert!(!flushes(folder.path(), time).expect("a disk").is_empty());
    }
}
