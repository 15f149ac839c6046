//! Talks to a member's peer port as another member would, or as one that wants it harm.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use super::{Member, PATIENCE, http};

const MAGIC: &[u8; 8] = b"\xf5kvorum\n";
/// The level of the frames on the wire.
pub const LEVEL: u32 = 2;

/// What every member knows of its cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub id: u64,
    /// Ids of the members, by their name.
    pub members: Vec<(String, u64)>,
}

impl Cluster {
    pub fn of(member: &Member) -> Cluster {
        let answer = http::get(member.spec.peer_port, "/members").expect("the peer port answers");
        let id = u64::from_str_radix(answer.header("x-etcd-cluster-id").expect("it names the cluster"), 16);
        let list = answer.json();
        let named = |member: &serde_json::Value| {
            (member["name"].as_str().unwrap_or_default().to_owned(), member["id"].as_u64().expect("an id"))
        };
        Cluster { id: id.expect("a number"), members: list.as_array().expect("a list").iter().map(named).collect() }
    }

    pub fn member(&self, name: &str) -> u64 {
        self.members.iter().find(|(known, _)| known == name).expect("a member of that name").1
    }
}

/// A connection that said hello.
pub struct Line {
    pub socket: TcpStream,
}

impl Line {
    /// Says hello to `to` in the name of the member `from`.
    pub fn hello(to: &Member, cluster: &Cluster, from: &str) -> io::Result<Line> {
        Line::at_level(to, cluster, from, LEVEL)
    }

    pub fn at_level(to: &Member, cluster: &Cluster, from: &str, level: u32) -> io::Result<Line> {
        Line::with(to, cluster, cluster.member(from), level, None)
    }

    /// Says hello as one that is called at `url`.
    pub fn called_at(to: &Member, cluster: &Cluster, from: u64, url: &str) -> io::Result<Line> {
        Line::with(to, cluster, from, LEVEL, Some(url))
    }

    fn with(to: &Member, cluster: &Cluster, from: u64, level: u32, url: Option<&str>) -> io::Result<Line> {
        let mut socket = TcpStream::connect(("127.0.0.1", to.spec.peer_port))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut body = level.to_le_bytes().to_vec();
        for number in [cluster.id, from, cluster.member(&to.spec.name), 77] {
            body.extend(number.to_le_bytes());
        }
        body.push(0);
        body.extend(b"3.7.3");
        if let Some(url) = url {
            body.extend([0; 9]);
            body.extend(url.as_bytes());
            body.push(0);
        }
        let mut hello = MAGIC.to_vec();
        hello.extend((body.len() as u16).to_le_bytes());
        hello.extend(body);
        socket.write_all(&hello)?;
        let mut head = [0; 10];
        socket.read_exact(&mut head)?;
        let mut verdict = vec![0; usize::from(u16::from_le_bytes([head[8], head[9]]))];
        socket.read_exact(&mut verdict)?;
        match verdict.get(4) {
            Some(0) => Ok(Line { socket }),
            _ => Err(io::Error::other(String::from_utf8_lossy(&verdict[5..]).into_owned())),
        }
    }

    /// A frame of the member: its kind and what follows.
    pub fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        self.socket.write_all(&whole(frame))
    }
}

/// A frame of a member as it goes over the wire.
pub fn whole(frame: &[u8]) -> Vec<u8> {
    let mut body = vec![0];
    body.extend(frame);
    let mut out = (body.len() as u32).to_le_bytes().to_vec();
    out.extend(crc32c::crc32c(&body).to_le_bytes());
    out.extend(body);
    out
}

/// One forwarded command, for the leader of `term`.
pub fn forward(term: u64, seq: u64, body: &[u8]) -> Vec<u8> {
    let mut out = vec![2];
    out.extend(term.to_le_bytes());
    out.extend(99_u64.to_le_bytes());
    out.extend(1_u32.to_le_bytes());
    out.extend(seq.to_le_bytes());
    out.extend((body.len() as u32).to_le_bytes());
    out.extend(body);
    out
}

/// A message of consensus without entries. `numbers`: term, term and index of the entry before,
/// commit.
pub fn raft(kind: u8, to: u64, from: u64, numbers: [u64; 4]) -> Vec<u8> {
    let [term, log_term, index, commit] = numbers;
    let mut out = vec![1, 1, kind, 0, 0];
    for number in [to, from, term, log_term, index, commit, 0, 0] {
        out.extend(number.to_le_bytes());
    }
    out.extend(0_u16.to_le_bytes());
    out.extend(0_u32.to_le_bytes());
    out
}
