//! The incoming side of the peer port: members that dialled us, and HTTP/1.1.

use super::hello::{self, Hello, MAGIC, Standing, Verdict};
use super::patience::{Came, Counted, a_second, patiently, tell};
use super::places::{Place, Places};
use super::roster::{Entered, MOST_GUESTS, Peer, Seat};
use super::socket::Socket;
use super::wire::{self, Got};
use super::{Line, PeerPort, Peering, http, inquiry};
use crate::log::{self, hex, json};
use crate::sockets::{Listener, OtherEnd, Stream};
use crate::tls::{self, Caller, Handshakes, Met};
use disk::Identity;
use disk::inquiry::Stage;
use node::frame::{self, Lane};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::BufReader;

/// A peer says who it is within this time.
const FIRST_WORDS: Duration = Duration::from_secs(5);
/// A connection that is no member's, and asks over HTTP, ends after this.
const CURIOUS: Duration = Duration::from_secs(30);
const READ_BUFFER: usize = 64 << 10;

/// Serves the peer port of a member that runs.
pub(super) async fn serve(peering: Arc<Peering>, port: PeerPort) {
    let PeerPort { listener, handshakes } = port;
    let meet = |stream, from, mut place: Place| {
        let (peering, handshakes) = (peering.clone(), handshakes.clone());
        async move {
            if let Err(error) = connection(&peering, stream, handshakes.as_ref(), &mut place).await {
                report(&peering, from, &error);
            }
        }
    };
    let failed = |error: io::Error| peering.say("accept failed", &[("error", json!(error.to_string()))]);
    let displaced = || {
        peering.metrics().turned_away.strangers.inc();
        let most = [("strangers", json!(peering.strangers))];
        peering.say("too many connections on the peer port: closed one that is no member's", &most);
    };
    accept(listener, peering.strangers, meet, failed, displaced).await;
}

/// Takes connections for ever, a bounded number at once. `meet` makes the task of one of them;
/// `displaced` is called when one loses its place to another.
pub(super) async fn accept<T: Future<Output = ()> + Send + 'static>(
    listener: Listener,
    most_strangers: usize,
    meet: impl Fn(Stream, OtherEnd, Place) -> T,
    failed: impl Fn(io::Error),
    displaced: impl Fn(),
) {
    let listener = match listener.accepting() {
        Ok(listener) => listener,
        Err(error) => log::fatal("listener failed", &[("error", json!(error.to_string()))]),
    };
    let places = Places::new(most_strangers);
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let (place, wanted, full) = places.enter(from.origin());
                if full {
                    displaced();
                }
                stream.prepare();
                let task = meet(stream, from, place);
                tokio::spawn(async move {
                    tokio::select! {
                        () = task => {}
                        _ = wanted => {}
                    }
                });
            }
            Err(error) => {
                // Out of file handles, most likely: others must end first.
                failed(error);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

fn report(peering: &Peering, from: OtherEnd, error: &io::Error) {
    let gone = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
    if !gone.contains(&error.kind()) {
        peering.say(
            "rejected connection on peer endpoint",
            &[("remote-addr", json!(from.origin().to_string())), ("error", json!(error.to_string()))],
        );
    }
}

/// Shakes hands where the port is encrypted. None: the caller was turned away.
pub(super) async fn secure(
    stream: Stream,
    handshakes: Option<&Handshakes>,
) -> io::Result<Option<(Socket, Option<Caller>)>> {
    let met = match handshakes {
        None => Some(Met::Plain(stream)),
        Some(handshakes) => handshakes.meet(stream, false).await?,
    };
    Ok(met.map(|met| match met {
        Met::Plain(stream) => (stream.into(), None),
        Met::Tls(stream, caller) => (stream.into(), Some(caller)),
    }))
}

/// The first words of one that connected; None: it is no peer, and none of its bytes were taken.
pub(super) async fn first_words(stream: &mut Socket) -> io::Result<Option<Hello>> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no first words in time");
    let first = tokio::time::timeout(FIRST_WORDS, stream.first_byte()).await.map_err(late)??;
    if first != MAGIC[0] {
        return Ok(None);
    }
    tokio::time::timeout(FIRST_WORDS, hello::read_hello(stream)).await.map_err(late)?.map(Some)
}

/// Tells a peer the verdict, and in answer to an inquiry our stage.
pub(super) async fn answer(stream: &mut Socket, verdict: &Verdict, stage: Option<(Identity, Stage)>) -> io::Result<()> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the peer does not take our answer");
    let talk = async {
        hello::write_verdict(stream, verdict).await?;
        match &stage {
            Some((ours, stage)) => hello::write_stage(stream, *ours, stage).await,
            None => Ok(()),
        }
    };
    tokio::time::timeout(FIRST_WORDS, talk).await.map_err(late)?
}

fn judge(peering: &Peering, hello: &Hello, caller: Option<&Caller>) -> Verdict {
    let (ours, founding) = (peering.identity, peering.core().founding());
    let standing = peering.roster.standing(hello.from);
    let verdict = hello.judge(ours.cluster, ours.member, standing, founding);
    if matches!(verdict, Verdict::Refused(_)) || !peering.checks_origin {
        return verdict;
    }
    let shown = caller.and_then(|caller| caller.certificate.as_ref());
    let (agreed, others) = peering.roster.urls(hello.from);
    match shown.is_none_or(|shown| may_speak(standing, |urls| tls::speaks_for(shown, urls), &agreed, hello, &others)) {
        true => verdict,
        false => Verdict::Refused(format!(
            "the certificate names no host of the peer URLs of member {:x}, {:?}",
            hello.from,
            if standing == Standing::Stranger { &hello.urls } else { &agreed },
        )),
    }
}

/// A member may speak for itself alone: the certificate it shows names a host of its peer URLs
/// (`names` says so of some URLs). A guest's names a host of the URLs where it wants to be called;
/// so does that of a member that has moved, and then no host of another member.
fn may_speak(
    standing: Standing,
    names: impl Fn(&[String]) -> bool,
    agreed: &[String],
    hello: &Hello,
    others: &[String],
) -> bool {
    match standing {
        Standing::Removed => true,
        Standing::Stranger => names(&hello.urls),
        Standing::Member => names(agreed) || (names(&hello.urls) && !names(others)),
    }
}

async fn connection(
    peering: &Arc<Peering>,
    stream: Stream,
    handshakes: Option<&Handshakes>,
    place: &mut Place,
) -> io::Result<()> {
    let Some((mut stream, caller)) = secure(stream, handshakes).await? else {
        peering.metrics().turned_away.peers.inc();
        return Ok(());
    };
    let Some(hello) = first_words(&mut stream).await? else {
        // Whoever reads nothing is no reason to stay.
        let served = tokio::time::timeout(CURIOUS, http::serve(peering.clone(), stream)).await;
        return served.unwrap_or(Ok(()));
    };
    let verdict = judge(peering, &hello, caller.as_ref());
    if let Some(why) = no(&verdict) {
        return refuse(peering, &mut stream, &hello, &verdict, why).await;
    }
    if hello.line == Line::Inquiry {
        let stage = inquiry::stage(peering, hello.from).await?;
        return answer(&mut stream, &verdict, Some((peering.identity, stage))).await;
    }
    if matches!(verdict, Verdict::Apart { .. }) && !peering.roster.is_member(hello.from) {
        return answer(&mut stream, &verdict, None).await;
    }
    let Some((peer, _seat)) = enter(peering, &hello) else {
        let verdict = Verdict::Refused(format!("{MOST_GUESTS} members that are not known here yet are connected"));
        return refuse(peering, &mut stream, &hello, &verdict, no(&verdict).unwrap_or_default()).await;
    };
    place.of_member(hello.from);
    // Also if it is of another founding: the member is told of that.
    let met = peering.met(hello.from, hello.founding);
    answer(&mut stream, &verdict, None).await?;
    met?;
    // It lives: dial it now, not at the end of the wait.
    peer.nudge.notify_waiters();
    let ended = tokio::select! {
        ended = receive(peering, &hello, &peer, stream) => ended,
        () = peer.gone() => Ok(()),
    };
    if ended.is_err() {
        peering.metrics().peers.received_failures.with_label_values(&[&peer.label]).inc();
    }
    peering.core().intake().lost(hello.from);
    ended
}

/// The reason of a verdict that ends the connection, and is no matter of two foundings.
fn no(verdict: &Verdict) -> Option<&str> {
    match verdict {
        Verdict::Refused(why) => Some(why),
        Verdict::Removed => Some("it was removed from the cluster"),
        Verdict::Ok { .. } | Verdict::Apart { .. } => None,
    }
}

async fn refuse(peering: &Peering, stream: &mut Socket, hello: &Hello, verdict: &Verdict, why: &str) -> io::Result<()> {
    answer(stream, verdict, None).await?;
    peering.say("refused a peer", &[("remote-peer-id", hex(hello.from)), ("reason", json!(why))]);
    Ok(())
}

/// None: there are too many that are no members.
fn enter(peering: &Arc<Peering>, hello: &Hello) -> Option<(Peer, Option<Seat>)> {
    match peering.roster.enter(hello) {
        Entered::Peer { peer, seat } => Some((peer, seat)),
        Entered::New { peer, seat } => {
            peering.say(
                "a peer that is no member here, or not yet",
                &[("remote-peer-id", hex(peer.id)), ("remote-peer-urls", json!(hello.urls))],
            );
            peering.dial(&peer);
            Some((peer, Some(seat)))
        }
        Entered::Full => None,
    }
}

async fn receive(peering: &Peering, hello: &Hello, peer: &Peer, stream: Socket) -> io::Result<()> {
    let (reader, mut writer) = tokio::io::split(stream);
    let came = Came::default();
    let reader = Counted { inner: reader, came: came.clone() };
    let mut reader = BufReader::with_capacity(READ_BUFFER, reader);
    let received = peering.metrics().peers.received_bytes.with_label_values(&[&peer.label]);
    loop {
        let got = {
            let budgets = peering.core().budgets();
            let read = wire::read(&mut reader, peering.max_frame, budgets);
            patiently(read, &came, &mut writer, a_second).await?
        };
        // Ours may have become known since.
        peering.same_founding(hello.founding)?;
        match got {
            Got::Frame { frame, bytes } => {
                received.inc_by(bytes);
                let urgent = frame::lane(&frame) == Lane::Urgent;
                while !urgent && peering.core().intake().peers_full() {
                    // The core is behind: the peer waits in its own socket.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                if peering.core().intake().frame(hello.from, frame, bytes, urgent).is_err() {
                    return Ok(());
                }
            }
            Got::Ping(number) => tell(&mut writer, &wire::pong(number)).await?,
            Got::Pong(_) => return Err(io::Error::new(io::ErrorKind::InvalidData, "a pong without a ping")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_speaks_for_its_own_member() {
        let urls = |hosts: &[&str]| hosts.iter().map(|host| format!("https://{host}:1")).collect::<Vec<_>>();
        let (agreed, others) = (urls(&["a"]), urls(&["b", "c"]));
        // Standing, host of the certificate, hosts of the hello, whether it may speak.
        let table = [
            (Standing::Member, "a", &[][..], true),
            (Standing::Member, "b", &[], false),
            (Standing::Member, "d", &[], false),
            // It has moved.
            (Standing::Member, "d", &["d"], true),
            // Another member that says it has.
            (Standing::Member, "b", &["b"], false),
            (Standing::Stranger, "d", &["d"], true),
            (Standing::Stranger, "d", &["e"], false),
            (Standing::Removed, "x", &[], true),
        ];
        for (standing, host, said, may) in table {
            let names = |urls: &[String]| urls.contains(&format!("https://{host}:1"));
            let hello = Hello {
                level: hello::WIRE_LEVEL,
                cluster: 1,
                from: 2,
                to: 3,
                boot: 4,
                line: Line::Log,
                etcd_level: String::new(),
                founding: None,
                urls: urls(said),
            };
            assert_eq!(may_speak(standing, names, &agreed, &hello, &others), may, "{standing:?} {host} {said:?}");
        }
    }
}
