//! What a server says over plain HTTP on the port of its clients, such as its
//! metrics.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use crate::{Client, Error, Result};

/// No page of a server is longer, in bytes.
const MAX_PAGE: u64 = 64 << 20;

impl Client {
    /// What the first endpoint answers to a GET of this path over HTTP/1.1: the
    /// head, from the line with the status on, and the page. A connection is made
    /// for it, with the client's certificates.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if there is no connection, [`Error::Lost`] if it
    /// fails, [`Error::Malformed`] if the answer is not a page.
    pub async fn page(&self, path: &str) -> Result<(String, String)> {
        let dialer = self.endpoints.dialer();
        let endpoint = &dialer.address.text;
        let unreachable = |reason: String| Error::Unreachable { reason: format!("{endpoint}: {reason}") };
        let lost = |e: std::io::Error| Error::Lost { endpoint: endpoint.clone(), reason: e.to_string() };
        let late = |_| unreachable(format!("no connection within {:?}", dialer.dial_timeout));
        let wire = timeout(dialer.dial_timeout, dialer.socket("http/1.1")).await.map_err(late)?;
        let mut wire = wire.map_err(|e| unreachable(e.to_string()))?;
        let host = dialer.address.origin();
        let host = host.authority().map_or("localhost", |authority| authority.as_str());
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        wire.write_all(request.as_bytes()).await.map_err(lost)?;
        wire.flush().await.map_err(lost)?;
        let mut answer = Vec::new();
        match wire.take(MAX_PAGE).read_to_end(&mut answer).await {
            // Some servers end without taking leave of the encryption.
            Err(e) if e.kind() != std::io::ErrorKind::UnexpectedEof => return Err(lost(e)),
            _ => {}
        }
        read(&answer).map_err(|reason| Error::Malformed { endpoint: endpoint.clone(), reason })
    }
}

/// Head and page of an answer with status 200.
fn read(answer: &[u8]) -> std::result::Result<(String, String), String> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n").ok_or("the answer has no end")?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(status.to_owned());
    }
    let named =
        |line: &str| line.split_once(':').map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()));
    let headers: Vec<(String, String)> = head.lines().filter_map(named).collect();
    let header = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
    if header("transfer-encoding") == Some("chunked") {
        return Ok((head.to_owned(), joined(body)?));
    }
    // A page that was cut off is none.
    match header("content-length").and_then(|length| length.parse().ok()) {
        Some(length) if body.len() < length => Err(format!("{} bytes of {length}", body.len())),
        _ => Ok((head.to_owned(), body.to_owned())),
    }
}

/// The pieces of a page that came in pieces.
fn joined(mut body: &str) -> std::result::Result<String, String> {
    let mut page = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n").ok_or("a piece has no end")?;
        let size = size.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| format!("no size of a piece: {size:?}"))?;
        if size == 0 {
            return Ok(page);
        }
        page.push_str(rest.get(..size).ok_or("a piece is cut off")?);
        body = rest.get(size..).and_then(|rest| rest.strip_prefix("\r\n")).ok_or("a piece has no end")?;
    }
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn pages_are_whole_or_none() {
        let page = |answer: &str| read(answer.as_bytes()).map(|(_, page)| page);
        let good = [
            ("HTTP/1.1 200 OK\r\nA: b\r\n\r\na 1\n", "a 1\n"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na 1\n", "a 1\n"),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\na \r\n2;x=y\r\n1\n\r\n0\r\n\r\n", "a 1\n"),
        ];
        for (answer, wanted) in good {
            assert_eq!(page(answer).as_deref(), Ok(wanted));
        }
        let bad = [
            ("HTTP/1.1 404 Not Found\r\n\r\n", "HTTP/1.1 404 Not Found"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\na 1\n", "4 bytes of 5"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\na \r\n", "a piece is cut off"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", "no size of a piece: \"x\""),
            ("nothing", "the answer has no end"),
        ];
        for (answer, reason) in bad {
            assert_eq!(page(answer), Err(reason.to_owned()));
        }
    }
}
