//! One call at a time, for what a row does beside its load.

use crate::failure::Failure;
use crate::h2::{Begin, Event};
use crate::net::{Dial, Net};
use std::time::{Duration, Instant};
use wire::Rpc;

/// A compaction or a list may take its time.
const PATIENCE: Duration = Duration::from_secs(120);

/// A connection for single calls.
#[derive(Debug)]
pub struct Caller {
    net: Net,
}

impl Caller {
    /// Says who it is at once: a server cuts whoever connects and is silent for some seconds, and
    /// the first call may come minutes later.
    ///
    /// # Errors
    /// If nobody listens.
    pub fn connect(dial: Dial) -> Result<Caller, Failure> {
        let mut net = Net::connect(dial, 1)?;
        net.poll(Duration::ZERO, &mut |_, _, _, _| {});
        Ok(Caller { net })
    }

    /// The answer to one request.
    ///
    /// # Errors
    /// The status of the server, or that it does not answer.
    pub fn ask(&mut self, rpc: Rpc, request: &[u8]) -> Result<Vec<u8>, Failure> {
        self.net.tx(0).start(Begin::unary(rpc, 0), request);
        let (mut answer, mut end) = (Vec::new(), None);
        let deadline = Instant::now() + PATIENCE;
        while end.is_none() {
            if Instant::now() > deadline {
                return Err(format!("{rpc:?}: no answer within {} s", PATIENCE.as_secs()).into());
            }
            self.net.poll(Duration::from_millis(100), &mut |_, _, _, event| match event {
                Event::Message { bytes, .. } => answer = bytes.to_vec(),
                Event::End { code, text, .. } => end = Some((code, text.to_owned())),
            });
        }
        match end {
            Some((0, _)) => Ok(answer),
            Some((code, text)) => Err(format!("{rpc:?}: code {code}: {text}").into()),
            None => unreachable!("the loop ends with an end"),
        }
    }

    /// The revision of the store.
    ///
    /// # Errors
    /// As [`Caller::ask`].
    pub fn revision(&mut self) -> Result<i64, Failure> {
        let mut request = Vec::new();
        crate::message::range(&mut request, &crate::message::Range { key: b"\0", ..Default::default() });
        Ok(crate::message::revision(&self.ask(Rpc::Range, &request)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    #[test]
    fn a_connection_says_who_it_is_before_its_first_call() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let endpoints = vec![listener.local_addr().expect("bound")];
        let caller = Caller::connect(Dial { endpoints, stream_window: 1 << 20 }).expect("somebody listens");
        let (mut socket, _) = listener.accept().expect("it has come");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
        let mut first = [0; 24];
        socket.read_exact(&mut first).expect("it speaks, though its caller waits");
        assert_eq!(&first, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        drop(caller);
    }
}
