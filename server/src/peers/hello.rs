//! The first words on a peer connection: who speaks, to whom, in which format.
//!
//! Dialler:
//! `magic (8), length u16, level u32, cluster u64, from u64, to u64, boot u64,
//! line u8, etcd level, 0 u8, founding u64`, and its peer URLs, a byte 0 behind each.
//! Listener: `magic (8), length u16, level u32, code u8`, and behind it the founding (u64) if the
//! code says yes, the reason as text if it says no, and the founding if it is another one. The
//! code for a member that was removed is a no with a reason to whoever does not know it. A version
//! before foundings had names says none and reads past it, and one before peers named their URLs
//! reads past these. On the line of inquiries the listener goes on with its stage:
//! `magic (8), length u16, level u32, cluster u64, member u64, kind u8, flags u8,
//! term u64, commit u64, last u64, acknowledged u64, founding u64`.
//! Little-endian; the length counts what follows it.

use super::Line;
use disk::Identity;
use disk::inquiry::{Running, Stage};
use node::foundings::differ;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Level of the frames between members. 2: they carry a checksum. A member of another level is
/// refused: neither would read what the other says.
pub(crate) const WIRE_LEVEL: u32 = 2;

/// Begins with a byte that no HTTP request begins with.
pub(crate) const MAGIC: [u8; 8] = *b"\xf5kvorum\n";
/// Longest hello or verdict, in bytes behind the length.
const LONGEST: usize = 512;
const FIXED: usize = 4 + 8 * 4 + 1;
/// The reason for a reader that does not know the code.
const REMOVED: &str = "the member has been permanently removed from the cluster";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) level: u32,
    pub(crate) cluster: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Tells two lives of the same member apart.
    pub(crate) boot: u64,
    pub(crate) line: Line,
    pub(crate) etcd_level: String,
    /// Which founding the dialler's state is of; 0: it knows none yet. None: its version knows of
    /// none.
    pub(crate) founding: Option<u64>,
    /// Where the dialler is called itself, as it was started. A listener that does not know it yet,
    /// or knows other places, finds it there. As many as fit.
    pub(crate) urls: Vec<String>,
}

/// What the dialler is to the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// A member of its cluster.
    Member,
    /// One that was removed from it.
    Removed,
    /// Neither: maybe a member whose addition the listener has not applied yet.
    Stranger,
}

/// The listener's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Frames may follow. The listener's founding, as in [`Hello`].
    Ok { founding: Option<u64> },
    /// The text says why; the connection is closed behind it.
    Refused(String),
    /// The listener's state is of another founding; the connection is closed behind it.
    Apart { founding: u64 },
    /// The dialler was removed from the cluster, of this same founding.
    Removed,
}

impl Hello {
    /// What the listener thinks of it. `standing`: of `from`; `founding`: the listener's.
    pub(crate) fn judge(&self, cluster: u64, member: u64, standing: Standing, founding: u64) -> Verdict {
        let refused = |text: String| Verdict::Refused(text);
        if self.level != WIRE_LEVEL {
            let than = if self.level > WIRE_LEVEL { "higher" } else { "lower" };
            return refused(format!("format level {} is {than} than ours, {WIRE_LEVEL}", self.level));
        }
        if self.cluster != cluster {
            return refused(format!("cluster ID mismatch: ours is {cluster:x}, yours {:x}", self.cluster));
        }
        if self.to != member {
            return refused(format!("to field mismatch: this is member {member:x}, not {:x}", self.to));
        }
        if self.from == member {
            return refused("a member does not dial itself".into());
        }
        // Whoever says where it is called can be answered, and may be a member before the listener
        // has heard of it. Nothing is told to it that a founder asks.
        if standing == Standing::Stranger && (self.urls.is_empty() || self.line == Line::Inquiry) {
            return refused(format!("member {:x} is not in the cluster", self.from));
        }
        if differ(founding, self.founding.unwrap_or(0)) {
            return Verdict::Apart { founding };
        }
        match standing {
            Standing::Removed => Verdict::Removed,
            Standing::Member | Standing::Stranger => Verdict::Ok { founding: Some(founding) },
        }
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

async fn write(to: &mut (impl AsyncWrite + Unpin), body: &[u8]) -> io::Result<()> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&(body.len() as u16).to_le_bytes());
    bytes.extend_from_slice(body);
    to.write_all(&bytes).await?;
    to.flush().await
}

async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut magic = [0; MAGIC.len()];
    from.read_exact(&mut magic).await?;
    if magic != MAGIC {
        return Err(bad("not a peer of ours: the magic is wrong"));
    }
    let len = usize::from(from.read_u16_le().await?);
    if len > LONGEST {
        return Err(bad("a hello longer than allowed"));
    }
    let mut body = vec![0; len];
    from.read_exact(&mut body).await?;
    Ok(body)
}

fn u32_at(body: &[u8], at: usize) -> u32 {
    body[at..at + 4].iter().rev().fold(0, |n, byte| n << 8 | u32::from(*byte))
}

/// None: the body ends before it.
fn number_at(body: &[u8], at: usize) -> Option<u64> {
    (body.len() >= at + 8).then(|| u64_at(body, at))
}

fn u64_at(body: &[u8], at: usize) -> u64 {
    body[at..at + 8].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

pub(crate) async fn write_hello(to: &mut (impl AsyncWrite + Unpin), hello: &Hello) -> io::Result<()> {
    let mut body = hello.level.to_le_bytes().to_vec();
    for number in [hello.cluster, hello.from, hello.to, hello.boot] {
        body.extend_from_slice(&number.to_le_bytes());
    }
    body.push(hello.line as u8);
    body.extend_from_slice(hello.etcd_level.as_bytes());
    if let Some(founding) = hello.founding {
        body.push(0);
        body.extend_from_slice(&founding.to_le_bytes());
        for url in &hello.urls {
            if body.len() + url.len() < LONGEST {
                body.extend_from_slice(url.as_bytes());
                body.push(0);
            }
        }
    }
    write(to, &body).await
}

/// The peer URLs at the end of a hello.
fn read_urls(bytes: &[u8]) -> Vec<String> {
    let texts = bytes.split(|byte| *byte == 0).filter(|text| !text.is_empty());
    texts.map(|text| String::from_utf8_lossy(text).into_owned()).collect()
}

pub(crate) async fn read_hello(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Hello> {
    let body = read(from).await?;
    if body.len() < FIXED {
        return Err(bad("a hello cut short"));
    }
    let (text, founding, urls) = match body[FIXED..].iter().position(|byte| *byte == 0) {
        None => (&body[FIXED..], None, &[][..]),
        Some(at) => {
            let founding = FIXED + at + 1;
            let urls = body.get(founding + 8..).unwrap_or_default();
            (&body[FIXED..FIXED + at], number_at(&body, founding), urls)
        }
    };
    Ok(Hello {
        level: u32_at(&body, 0),
        cluster: u64_at(&body, 4),
        from: u64_at(&body, 12),
        to: u64_at(&body, 20),
        boot: u64_at(&body, 28),
        line: match body[36] {
            0 => Line::Log,
            1 => Line::Bulk,
            2 => Line::Inquiry,
            3 => Line::Urgent,
            _ => return Err(bad("a hello for an unknown line")),
        },
        etcd_level: String::from_utf8_lossy(text).into_owned(),
        founding,
        urls: read_urls(urls),
    })
}

pub(crate) async fn write_verdict(to: &mut (impl AsyncWrite + Unpin), verdict: &Verdict) -> io::Result<()> {
    let mut body = WIRE_LEVEL.to_le_bytes().to_vec();
    match verdict {
        Verdict::Ok { founding } => {
            body.push(0);
            founding.iter().for_each(|founding| body.extend_from_slice(&founding.to_le_bytes()));
        }
        Verdict::Refused(text) => {
            body.push(1);
            body.extend_from_slice(text.as_bytes());
        }
        Verdict::Apart { founding } => {
            body.push(2);
            body.extend_from_slice(&founding.to_le_bytes());
        }
        Verdict::Removed => {
            body.push(3);
            body.extend_from_slice(REMOVED.as_bytes());
        }
    }
    body.truncate(LONGEST);
    write(to, &body).await
}

pub(crate) async fn read_verdict(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Verdict> {
    let body = read(from).await?;
    match body.get(4) {
        Some(0) => Ok(Verdict::Ok { founding: number_at(&body, 5) }),
        Some(2) => {
            number_at(&body, 5).map(|founding| Verdict::Apart { founding }).ok_or_else(|| bad("a verdict cut short"))
        }
        Some(3) => Ok(Verdict::Removed),
        Some(_) => Ok(Verdict::Refused(String::from_utf8_lossy(&body[5..]).into_owned())),
        None => Err(bad("a verdict cut short")),
    }
}

const FOUNDING: u8 = 0;
const RECOVERING: u8 = 1;
const RUNNING: u8 = 2;
const LATE: u8 = 1;
const PUBLISHED: u8 = 2;
const STAGE: usize = 4 + 8 * 2 + 2 + 8 * 4;

/// The answer to an inquiry, behind a good verdict.
pub(crate) async fn write_stage(to: &mut (impl AsyncWrite + Unpin), ours: Identity, stage: &Stage) -> io::Result<()> {
    let (kind, running) = match stage {
        Stage::Founding => (FOUNDING, Running::default()),
        Stage::Recovering => (RECOVERING, Running::default()),
        Stage::Running(running) => (RUNNING, *running),
    };
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let mut body = WIRE_LEVEL.to_le_bytes().to_vec();
    body.extend_from_slice(&ours.cluster.to_le_bytes());
    body.extend_from_slice(&ours.member.to_le_bytes());
    body.push(kind);
    body.push(flag(running.late, LATE) | flag(running.published, PUBLISHED));
    for number in [running.term, running.commit, running.last, running.acknowledged, running.founding] {
        body.extend_from_slice(&number.to_le_bytes());
    }
    write(to, &body).await
}

/// Reads the answer of the member `theirs`.
pub(crate) async fn read_stage(from: &mut (impl AsyncRead + Unpin), theirs: Identity) -> io::Result<Stage> {
    let body = read(from).await?;
    if body.len() < STAGE {
        return Err(bad("a stage cut short"));
    }
    let says = Identity { cluster: u64_at(&body, 4), member: u64_at(&body, 12) };
    if says != theirs {
        return Err(bad(&format!("member {:x} of cluster {:x} answered", says.member, says.cluster)));
    }
    let flags = body[21];
    match body[20] {
        FOUNDING => Ok(Stage::Founding),
        RECOVERING => Ok(Stage::Recovering),
        RUNNING => Ok(Stage::Running(Running {
            term: u64_at(&body, 22),
            commit: u64_at(&body, 30),
            last: u64_at(&body, 38),
            acknowledged: u64_at(&body, 46),
            founding: number_at(&body, STAGE).unwrap_or(0),
            late: flags & LATE != 0,
            published: flags & PUBLISHED != 0,
        })),
        _ => Err(bad("a stage of unknown kind")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            level: WIRE_LEVEL,
            cluster: 10,
            from: 2,
            to: 3,
            boot: 99,
            line: Line::Bulk,
            etcd_level: "3.7.3".into(),
            founding: Some(77),
            urls: vec!["http://a:1".into(), "https://[::1]:2".into()],
        }
    }

    #[tokio::test]
    async fn hello_and_verdict_come_back() {
        let mut bytes = Vec::new();
        write_hello(&mut bytes, &hello()).await.expect("written");
        assert_eq!(read_hello(&mut &bytes[..]).await.expect("read"), hello());
        let before = [Hello { founding: None, urls: Vec::new(), ..hello() }, Hello { urls: Vec::new(), ..hello() }];
        for before in before {
            let mut bytes = Vec::new();
            write_hello(&mut bytes, &before).await.expect("written");
            assert_eq!(read_hello(&mut &bytes[..]).await.expect("read"), before);
        }
        let good = [None, Some(0), Some(u64::MAX)].map(|founding| Verdict::Ok { founding });
        let bad = [Verdict::Refused("no".into()), Verdict::Apart { founding: 5 }, Verdict::Removed];
        for verdict in good.into_iter().chain(bad) {
            let mut bytes = Vec::new();
            write_verdict(&mut bytes, &verdict).await.expect("written");
            assert_eq!(read_verdict(&mut &bytes[..]).await.expect("read"), verdict);
        }
    }

    #[tokio::test]
    async fn standings_come_back_and_nonsense_does_not() {
        let ours = Identity { cluster: 7, member: 8 };
        let running =
            Running { term: 3, commit: 4, last: 5, acknowledged: 6, founding: 7, late: true, published: false };
        for stage in [
            Stage::Founding,
            Stage::Recovering,
            Stage::Running(running),
            Stage::Running(Running { late: false, published: true, ..running }),
        ] {
            let mut bytes = Vec::new();
            write_stage(&mut bytes, ours, &stage).await.expect("written");
            assert_eq!(read_stage(&mut &bytes[..], ours).await.expect("read"), stage);
            for cut in 0..bytes.len() {
                assert!(read_stage(&mut &bytes[..cut], ours).await.is_err(), "cut at {cut}");
            }
            let error = read_stage(&mut &bytes[..], Identity { member: 9, ..ours }).await.expect_err("another");
            assert_eq!(error.to_string(), "member 8 of cluster 7 answered");
            bytes[MAGIC.len() + 2 + 20] = 3;
            let error = read_stage(&mut &bytes[..], ours).await.expect_err("unknown");
            assert_eq!(error.to_string(), "a stage of unknown kind");
        }
        let asks = Hello { line: Line::Inquiry, ..hello() };
        let mut bytes = Vec::new();
        write_hello(&mut bytes, &asks).await.expect("written");
        assert_eq!(read_hello(&mut &bytes[..]).await.expect("read"), asks);
    }

    #[test]
    fn mismatches_are_refused_with_the_reason() {
        for (ours, theirs) in [(77, Some(77)), (0, Some(77)), (77, Some(0)), (77, None), (0, None)] {
            let hello = Hello { founding: theirs, ..hello() };
            for standing in [Standing::Member, Standing::Stranger] {
                assert_eq!(hello.judge(10, 3, standing, ours), Verdict::Ok { founding: Some(ours) });
            }
            assert_eq!(hello.judge(10, 3, Standing::Removed, ours), Verdict::Removed);
        }
        for standing in [Standing::Member, Standing::Removed, Standing::Stranger] {
            assert_eq!(hello().judge(10, 3, standing, 78), Verdict::Apart { founding: 78 });
        }
        let table = [
            (Hello { level: 3, ..hello() }, "format level 3 is higher than ours, 2"),
            (Hello { level: 1, ..hello() }, "format level 1 is lower than ours, 2"),
            (Hello { cluster: 11, ..hello() }, "cluster ID mismatch: ours is a, yours b"),
            (Hello { to: 4, ..hello() }, "to field mismatch: this is member 3, not 4"),
            (Hello { from: 3, ..hello() }, "a member does not dial itself"),
        ];
        for (hello, text) in table {
            assert_eq!(hello.judge(10, 3, Standing::Member, 77), Verdict::Refused(text.into()));
        }
        // Nobody could answer the one, and the other asks what only a member is told.
        for stranger in [Hello { urls: Vec::new(), ..hello() }, Hello { line: Line::Inquiry, ..hello() }] {
            let refused = Verdict::Refused("member 2 is not in the cluster".into());
            assert_eq!(stranger.judge(10, 3, Standing::Stranger, 78), refused);
        }
    }

    #[tokio::test]
    async fn as_many_urls_are_said_as_fit() {
        let urls: Vec<String> = (0..40).map(|n| format!("http://member-{n:02}.example:2380")).collect();
        let long = Hello { urls: urls.clone(), ..hello() };
        let mut bytes = Vec::new();
        write_hello(&mut bytes, &long).await.expect("written");
        assert!(bytes.len() <= MAGIC.len() + 2 + LONGEST);
        let read = read_hello(&mut &bytes[..]).await.expect("read");
        assert!(read.urls.len() > 10 && urls.starts_with(&read.urls), "{:?}", read.urls);
    }

    /// As a version of before reads it.
    #[tokio::test]
    async fn a_removed_member_is_told_a_reason_by_any_version() {
        let mut bytes = Vec::new();
        write_verdict(&mut bytes, &Verdict::Removed).await.expect("written");
        let text = String::from_utf8_lossy(&bytes[MAGIC.len() + 2 + 5..]).into_owned();
        assert_eq!(text, "the member has been permanently removed from the cluster");
    }

    #[tokio::test]
    async fn nonsense_is_refused() {
        let mut good = Vec::new();
        write_hello(&mut good, &hello()).await.expect("written");
        for cut in 0..good.len() {
            assert!(read_hello(&mut &good[..cut]).await.is_err(), "cut at {cut}");
        }
        let mut long = MAGIC.to_vec();
        long.extend_from_slice(&[0xff, 0xff]);
        let error = read_hello(&mut &long[..]).await.expect_err("too long");
        assert_eq!(error.to_string(), "a hello longer than allowed");
        let mut short = MAGIC.to_vec();
        short.extend_from_slice(&[3, 0, 1, 2, 3]);
        assert_eq!(read_hello(&mut &short[..]).await.expect_err("short").to_string(), "a hello cut short");
        assert!(read_hello(&mut &b"GET /members HTTP/1.1"[..]).await.is_err());
    }
}
