//! A plain HTTP/1.1 client that says exactly what it is told.

use std::io::{self, Read, Write};
use std::net::TcpStream;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// As sent, in lines.
    pub head: String,
    pub body: String,
}

impl Answer {
    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The value of a header; names are lower-case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

/// POST with the content type that `curl -d` sends.
pub fn post(port: u16, path: &str, body: &str) -> io::Result<Answer> {
    send(port, "POST", path, &[("Content-Type", "application/x-www-form-urlencoded")], body)
}

pub fn get(port: u16, path: &str) -> io::Result<Answer> {
    send(port, "GET", path, &[], "")
}

pub fn send(port: u16, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(super::PATIENCE))?;
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n");
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    request += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    read_answer(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("no HTTP answer: {text:?}")))
}

fn read_answer(text: &str) -> Option<Answer> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let answer = Answer { status, head: head.to_owned(), body: body.to_owned() };
    match answer.header("transfer-encoding") {
        Some("chunked") => Some(Answer { body: join_chunks(body)?, ..answer }),
        _ => Some(answer),
    }
}

fn join_chunks(mut rest: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (size, tail) = rest.split_once("\r\n")?;
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body += tail.get(..size)?;
        rest = tail.get(size..)?.strip_prefix("\r\n")?;
    }
}
