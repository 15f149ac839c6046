//! One HTTP/1.1 request on a connection of its own, with nothing added that a
//! gateway could stumble on.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub content_type: String,
    pub body: Vec<u8>,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The method.
    pub verb: &'a str,
    /// Path and query.
    pub path: &'a str,
    /// The content type.
    pub kind: &'a str,
    /// The caller's token, if it has one.
    pub token: Option<&'a str>,
    /// What is sent.
    pub body: &'a [u8],
}

/// Sends a request and reads the whole answer.
///
/// # Errors
/// If the server cannot be reached, does not answer within ten seconds, or
/// does not speak HTTP/1.1.
pub async fn request(endpoint: &str, ask: Ask<'_>) -> Result<Reply> {
    let Ask { verb, path, kind, token, body } = ask;
    let work = async {
        let mut socket = TcpStream::connect(endpoint).await?;
        let token = token.map(|token| format!("Authorization: {token}\r\n")).unwrap_or_default();
        let head = format!(
            "{verb} {path} HTTP/1.1\r\nHost: {endpoint}\r\nContent-Type: {kind}\r\n{token}\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        socket.write_all(head.as_bytes()).await?;
        socket.write_all(body).await?;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await?;
        parse(&answer)
    };
    timeout(Duration::from_secs(10), work).await.with_context(|| format!("{verb} {path}: no answer from {endpoint}"))?
}

fn parse(answer: &[u8]) -> Result<Reply> {
    let Some(end) = answer.windows(4).position(|w| w == b"\r\n\r\n") else {
        bail!("not an HTTP answer: {:?}", String::from_utf8_lossy(answer));
    };
    let head = String::from_utf8_lossy(&answer[..end]);
    let mut lines = head.lines();
    let status =
        lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok()).context("no status")?;
    let mut reply = Reply { status, content_type: String::new(), body: answer[end + 4..].to_vec() };
    let mut chunked = false;
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { continue };
        match name.to_ascii_lowercase().as_str() {
            "content-type" => reply.content_type = value.trim().to_owned(),
            "transfer-encoding" => chunked = value.trim().eq_ignore_ascii_case("chunked"),
            _ => {}
        }
    }
    if chunked {
        reply.body = unchunk(&reply.body)?;
    }
    Ok(reply)
}

fn unchunk(mut rest: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|w| w == b"\r\n").context("a chunk without a length")?;
        let length = std::str::from_utf8(&rest[..end])?;
        let length = usize::from_str_radix(length.split(';').next().unwrap_or_default().trim(), 16)?;
        if length == 0 {
            return Ok(body);
        }
        let chunk = rest.get(end + 2..end + 2 + length).context("a chunk is cut short")?;
        body.extend_from_slice(chunk);
        rest = rest.get(end + 4 + length..).context("a chunk without an end")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_and_chunked_answers() {
        let reply = parse(b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\n\r\nno").unwrap();
        assert_eq!((reply.status, reply.content_type.as_str(), &reply.body[..]), (404, "text/plain", &b"no"[..]));
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        assert_eq!(parse(chunked).unwrap().body, b"abcde");
        assert!(parse(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc").is_err());
    }
}
