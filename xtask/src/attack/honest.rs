//! What a client that does no harm notices.
//!
//! Each kind of call has a beat. A call that was due while another one hung has waited as well, and
//! counts: a member that hangs for a second of four is not fine at the 99th percentile because few
//! calls came to their turn.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::sync::mpsc;
use tokio::time::timeout;
use wire::{Method, Rpc, etcdserverpb as pb};

use super::frames::{HANDSHAKE, client_hello};
use crate::raw::{Bidi, Failure, PATIENCE, Raw};

/// Another machine than the attackers': they come from 127.0.0.1.
const HOME: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// How often each kind of call is due.
const BEAT: Duration = Duration::from_millis(5);
const BEAT_OF_RENEWALS: Duration = Duration::from_millis(50);
const BEAT_OF_CONNECTIONS: Duration = Duration::from_millis(100);
const BEAT_OF_LOGINS: Duration = Duration::from_millis(500);
/// Bytes of values; each tenth is large, and comes in several frames.
const SMALL: usize = 256;
const LARGE: usize = 40 << 10;
/// Calls that are made at once to fill the member.
const ABREAST: u32 = 64;
/// Of the user that the honest client is, and that an attacker tries.
pub(super) const USER: &str = "root";
const PASSWORD: &str = "not-to-be-guessed";

/// Latencies of one kind of call.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    took: Vec<Duration>,
    pub(super) failed: usize,
}

impl Times {
    /// A call took so long; those that were due meanwhile waited for it.
    pub(super) fn add(&mut self, mut took: Duration, beat: Duration) {
        loop {
            self.took.push(took);
            match took.checked_sub(beat) {
                Some(rest) if rest > beat => took = rest,
                _ => return,
            }
        }
    }

    fn ended<T, E>(&mut self, since: Instant, beat: Duration, result: &Result<T, E>) {
        match result {
            Ok(_) => self.add(since.elapsed(), beat),
            Err(_) => self.failed += 1,
        }
    }

    /// The latency below which `part` of a hundred lie; 100: the longest.
    pub(super) fn at(&self, part: usize) -> Duration {
        let mut sorted = self.took.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * part / 100).min(sorted.len().saturating_sub(1));
        sorted.get(at).copied().unwrap_or(Duration::ZERO)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.took.is_empty() && self.failed == 0
    }
}

/// One stretch of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Noticed {
    pub(super) puts: Times,
    pub(super) gets: Times,
    pub(super) renewals: Times,
    pub(super) connections: Times,
    /// Only where there are users.
    pub(super) logins: Times,
    /// Only where TLS is served: until the member's first words.
    pub(super) handshakes: Times,
}

impl Noticed {
    pub(super) fn kinds(&self) -> [(&'static str, &Times); 6] {
        [
            ("puts", &self.puts),
            ("reads", &self.gets),
            ("keep-alives", &self.renewals),
            ("new connections", &self.connections),
            ("logins", &self.logins),
            ("handshakes", &self.handshakes),
        ]
    }

    pub(super) fn failed(&self) -> usize {
        self.kinds().iter().map(|(_, times)| times.failed).sum()
    }
}

/// A client.
pub(super) struct Honest {
    raw: Raw,
    endpoint: String,
    /// Where TLS is served; 0: nowhere.
    tls_port: u16,
    lease: i64,
    token: Option<String>,
}

impl Honest {
    /// `users`: the member is to have users, and this one is root.
    pub(super) async fn new(endpoint: &str, users: bool, tls_port: u16) -> Result<Honest> {
        let raw = Raw::connect_from(endpoint, HOME).await?;
        let mut honest = Honest { raw, endpoint: endpoint.to_owned(), tls_port, lease: 0, token: None };
        honest.fill().await?;
        if users {
            honest.found_users().await?;
        }
        let grant = pb::LeaseGrantRequest { ttl: 60, id: 0 };
        let granted: pb::LeaseGrantResponse = honest.raw.call(Rpc::LeaseGrant, &grant).await.context("a lease")?;
        honest.lease = granted.id;
        Ok(honest)
    }

    async fn found_users(&mut self) -> Result<()> {
        let raw = &self.raw;
        let user = pb::AuthUserAddRequest { name: USER.into(), password: PASSWORD.into(), ..Default::default() };
        raw.call::<_, pb::AuthUserAddResponse>(Rpc::UserAdd, &user).await.context("a user")?;
        let grant = pb::AuthUserGrantRoleRequest { user: USER.into(), role: "root".into() };
        raw.call::<_, pb::AuthUserGrantRoleResponse>(Rpc::UserGrantRole, &grant).await.context("a role")?;
        let enable = pb::AuthEnableRequest {};
        raw.call::<_, pb::AuthEnableResponse>(Rpc::AuthEnable, &enable).await.context("users")?;
        let token = login(raw).await.context("a login")?;
        self.raw = raw.with_token(Some(&token));
        self.token = Some(token);
        Ok(())
    }

    /// What attacks read: 2,000 keys of 4 KiB.
    async fn fill(&self) -> Result<()> {
        for first in (0..2_000).step_by(ABREAST as usize) {
            let put = |n: u32| self.put(format!("data/{n:05}"), 4096);
            let puts = (first..(first + ABREAST).min(2_000)).map(put);
            futures_util::future::try_join_all(puts).await.context("a put")?;
        }
        Ok(())
    }

    async fn put(&self, key: String, bytes: usize) -> Result<(), Failure> {
        let (key, value) = (key.into_bytes().into(), vec![b'h'; bytes].into());
        let put = pb::PutRequest { key, value, ..Default::default() };
        self.raw.call::<_, pb::PutResponse>(Rpc::Put, &put).await.map(drop)
    }

    /// Works for so long, on the clock of a client that does not hurry.
    pub(super) async fn work(&self, lasting: Duration) -> Noticed {
        let until = Instant::now() + lasting;
        let (puts, gets, renewals, connections, logins, handshakes) = tokio::join!(
            self.puts(until),
            self.gets(until),
            self.renew(until),
            self.connect(until),
            self.log_in(until),
            self.shake_hands(until)
        );
        Noticed { puts, gets, renewals, connections, logins, handshakes }
    }

    async fn puts(&self, until: Instant) -> Times {
        let mut times = Times::default();
        let mut turn = 0_u32;
        while Instant::now() < until {
            let since = Instant::now();
            let bytes = if turn % 10 == 9 { LARGE } else { SMALL };
            times.ended(since, BEAT, &self.put(format!("honest/{}", turn % 100), bytes).await);
            turn += 1;
            pause(since, BEAT).await;
        }
        times
    }

    async fn gets(&self, until: Instant) -> Times {
        let mut times = Times::default();
        while Instant::now() < until {
            let since = Instant::now();
            times.ended(since, BEAT, &get(&self.raw).await);
            pause(since, BEAT).await;
        }
        times
    }

    async fn renew(&self, until: Instant) -> Times {
        let mut times = Times::default();
        let mut renewing = Renewing::new(&self.raw);
        while Instant::now() < until {
            let since = Instant::now();
            let renewed = renewing.renew(self.lease).await;
            times.ended(since, BEAT_OF_RENEWALS, &renewed);
            if renewed.is_err() {
                renewing = Renewing::new(&self.raw);
            }
            pause(since, BEAT_OF_RENEWALS).await;
        }
        times
    }

    /// New clients, and their first answers.
    async fn connect(&self, until: Instant) -> Times {
        let mut times = Times::default();
        while Instant::now() < until {
            let since = Instant::now();
            let answered = async {
                let raw = Raw::connect_from(&self.endpoint, HOME).await?;
                get(&raw.with_token(self.token.as_deref())).await?;
                anyhow::Ok(())
            };
            times.ended(since, BEAT_OF_CONNECTIONS, &answered.await);
            pause(since, BEAT_OF_CONNECTIONS).await;
        }
        times
    }

    async fn log_in(&self, until: Instant) -> Times {
        let mut times = Times::default();
        while self.token.is_some() && Instant::now() < until {
            let since = Instant::now();
            times.ended(since, BEAT_OF_LOGINS, &login(&self.raw).await);
            pause(since, BEAT_OF_LOGINS).await;
        }
        times
    }

    async fn shake_hands(&self, until: Instant) -> Times {
        let mut times = Times::default();
        while self.tls_port > 0 && Instant::now() < until {
            let since = Instant::now();
            let answered = timeout(PATIENCE, first_words(self.tls_port)).await.context("no answer").flatten();
            times.ended(since, BEAT_OF_CONNECTIONS, &answered);
            pause(since, BEAT_OF_CONNECTIONS).await;
        }
        times
    }
}

/// Begins TLS, and waits for the member's part.
async fn first_words(port: u16) -> Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((HOME, 0).into())?;
    let mut socket = socket.connect((Ipv4Addr::LOCALHOST, port).into()).await?;
    socket.write_all(&client_hello(1)).await?;
    ensure!(socket.read_u8().await? == HANDSHAKE, "the hello was refused");
    Ok(())
}

async fn pause(since: Instant, beat: Duration) {
    tokio::time::sleep(beat.saturating_sub(since.elapsed())).await;
}

async fn get(raw: &Raw) -> Result<(), Failure> {
    let read = pb::RangeRequest { key: b"honest/0".to_vec().into(), ..Default::default() };
    raw.call::<_, pb::RangeResponse>(Rpc::Range, &read).await.map(drop)
}

async fn login(raw: &Raw) -> Result<String, Failure> {
    let ask = pb::AuthenticateRequest { name: USER.into(), password: PASSWORD.into() };
    let answer: pb::AuthenticateResponse = raw.call(Rpc::Authenticate, &ask).await?;
    Ok(answer.token)
}

/// A stream of keep-alives.
struct Renewing {
    stream: Bidi,
    answers: mpsc::UnboundedReceiver<Option<Result<Bytes, Failure>>>,
}

impl Renewing {
    fn new(raw: &Raw) -> Renewing {
        let (send, answers) = mpsc::unbounded_channel();
        let stream = raw.bidi(Method::of(Rpc::LeaseKeepAlive).path, move |answer| {
            // Nobody waits for it any more.
            let _ = send.send(answer);
        });
        Renewing { stream, answers }
    }

    async fn renew(&mut self, lease: i64) -> Result<()> {
        self.stream.send(pb::LeaseKeepAliveRequest { id: lease }.encode_to_vec().into());
        let answer = timeout(PATIENCE, self.answers.recv()).await.context("no answer")?;
        let answer = answer.flatten().context("the stream ended")??;
        ensure!(pb::LeaseKeepAliveResponse::decode(answer)?.ttl > 0, "the lease ended");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_due_while_a_call_hung_has_waited_too() {
        let mut times = Times::default();
        (0..98).for_each(|_| times.add(Duration::from_millis(1), BEAT));
        times.add(Duration::from_millis(100), BEAT);
        assert!(times.at(50) == Duration::from_millis(1));
        assert!(times.at(99) > Duration::from_millis(90), "{:?}", times.at(99));
        assert_eq!(times.at(100), Duration::from_millis(100));
        assert_eq!(Times::default().at(99), Duration::ZERO);
    }
}
