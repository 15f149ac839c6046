//! One HTTP/1.1 request of a line: `METHOD PATH VERSION | NAME: VALUE | … || BODY`, sent as it is.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Fields that say the same on both sides.
const SHOWN: [&str; 9] = [
    "content-type",
    "content-encoding",
    "grpc-metadata-content-type",
    "allow",
    "location",
    "connection",
    "x-content-type-options",
    "www-authenticate",
    "access-control-allow-origin",
];

fn request(line: &str, port: u16) -> Vec<u8> {
    let (head, body) = line.split_once(" || ").unwrap_or((line, ""));
    let mut out = String::new();
    for part in head.split(" | ") {
        out += &part.replace("PORT", &port.to_string()).replace("\\t", "\t");
        out += "\r\n";
    }
    let mut bytes = (out + "\r\n").into_bytes();
    match body.strip_prefix("hex ") {
        Some(hex) => {
            bytes.extend((0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..][..2], 16).expect("hex")))
        }
        None => bytes.extend(body.replace("\\r\\n", "\r\n").bytes()),
    }
    bytes
}

/// Ids, revisions and terms are numbers of each member's own.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    let mut digits = String::new();
    for letter in text.chars().chain(['\n']) {
        if letter.is_ascii_digit() {
            digits.push(letter);
            continue;
        }
        out += if digits.len() > 8 { "N" } else { &digits };
        digits.clear();
        out.push(letter);
    }
    // Blanks between the members of an object are Go's whim.
    out.trim_end().replace(", \"", ",\"")
}

/// One answer, as far as it comes; of a connection that stays open, what its length says.
fn heard(socket: &mut TcpStream, with_body: bool) -> Vec<u8> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    while !is_whole(&bytes, with_body) {
        match socket.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(more) => bytes.extend_from_slice(&piece[..more]),
        }
    }
    bytes
}

fn is_whole(bytes: &[u8], with_body: bool) -> bool {
    let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    let text = text.strip_prefix("http/1.1 100 continue\r\n\r\n").unwrap_or(&text);
    let Some((head, _)) = text.split_once("\r\n\r\n") else { return false };
    let body = text.len() - head.len() - 4;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    match length.and_then(|length| length.trim().parse::<usize>().ok()) {
        _ if !with_body => true,
        Some(length) => body >= length,
        None => text.ends_with("\r\n0\r\n\r\n"),
    }
}

/// What comes of one line.
pub fn line(port: u16, line: &str) -> String {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("connects");
    socket.set_read_timeout(Some(Duration::from_millis(1500))).expect("a socket");
    let _ = socket.write_all(&request(line, port));
    let bytes = heard(&mut socket, !line.starts_with("HEAD "));
    let text = String::from_utf8_lossy(&bytes);
    let text = text.strip_prefix("HTTP/1.1 100 Continue\r\n\r\n").unwrap_or(&text);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return format!("no answer {text:?}\n") };
    let mut lines = head.lines();
    let mut out = format!("{}\n", lines.next().unwrap_or_default());
    let mut fields: Vec<String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .filter(|(name, _)| SHOWN.contains(&name.as_str()))
        .map(|(name, value)| format!("{name}: {value}\n"))
        .collect();
    fields.sort();
    out += &fields.concat();
    // Of a page in gzip, that it is one is enough.
    let packed = head.to_ascii_lowercase().contains("content-encoding");
    let long = body.len() > 2000 || body.contains("cmdline");
    match body.is_empty() {
        true => {}
        false if packed || long => out += "…\n",
        false => {
            // Checks stand in no order.
            let mut lines: Vec<&str> = body.split_inclusive('\n').collect();
            lines.sort_by_key(|line| if line.starts_with('[') { *line } else { "~" });
            out += &format!("{:?}\n", without_numbers(&lines.concat()));
        }
    }
    out
}
