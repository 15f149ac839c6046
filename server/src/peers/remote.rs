//! Asks a cluster that runs for its members, as one that joins it: `GET /members` on their peer
//! ports.

use super::dial::reach;
use super::socket::Socket;
use crate::tls::Dialler;
use bytes::Bytes;
use disk::urls::Url;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use std::io;
use std::time::Duration;
use store::Member;

/// One member answers within this time.
const ANSWER: Duration = Duration::from_secs(10);
/// Longest list that is read. Bytes.
const LONGEST: usize = 1 << 20;

/// A cluster as one of its members sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) cluster: u64,
    /// True: a learner. Ascending by id.
    pub(crate) members: Vec<(Member, bool)>,
}

impl Remote {
    /// Asks at one peer URL.
    ///
    /// # Errors
    /// Nobody answers there, or what comes is no list of members.
    pub(crate) async fn at(url: &Url, dialler: Option<&Dialler>) -> io::Result<Remote> {
        let timed_out = |_| io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
        let asked = async { ask(url, reach(url, dialler).await?).await };
        tokio::time::timeout(ANSWER, asked).await.map_err(timed_out)?
    }
}

async fn ask(url: &Url, stream: Socket) -> io::Result<Remote> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let request = Request::get("/members")
        .header(header::HOST, if url.is_unix() { "localhost".into() } else { url.address() })
        .body(Empty::<Bytes>::new())
        .map_err(io::Error::other)?;
    // The connection is driven here, and ends with the answer.
    tokio::pin!(connection);
    let answer = async {
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, LONGEST).collect().await.map_err(io::Error::other)?.to_bytes();
        let cluster = head.headers.get("x-etcd-cluster-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
        read(head.status, cluster.as_deref(), &body)
    };
    tokio::pin!(answer);
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        ended = &mut connection => match ended {
            // All of it has come: it is taken from what is there.
            Ok(()) => answer.await,
            Err(error) => Err(io::Error::other(error)),
        },
    }
}

/// `cluster`: the header that names it.
fn read(status: StatusCode, cluster: Option<&str>, body: &[u8]) -> io::Result<Remote> {
    if status != StatusCode::OK {
        return Err(io::Error::other(format!("{status}: {}", String::from_utf8_lossy(body).trim())));
    }
    let cluster = cluster.and_then(|id| u64::from_str_radix(id, 16).ok());
    let cluster = cluster.ok_or_else(|| io::Error::other("the answer does not name the cluster"))?;
    let list: Vec<Listed> = serde_json::from_slice(body).map_err(io::Error::other)?;
    if list.is_empty() {
        return Err(io::Error::other("failed to get raft cluster member(s) from the given URLs"));
    }
    let mut members: Vec<(Member, bool)> = list.into_iter().map(Listed::member).collect();
    members.sort_unstable_by_key(|(member, _)| member.id);
    Ok(Remote { cluster, members })
}

/// A member as etcd writes it.
#[derive(serde::Deserialize)]
struct Listed {
    id: u64,
    #[serde(rename = "peerURLs", default)]
    peer_urls: Vec<String>,
    #[serde(rename = "isLearner", default)]
    learner: bool,
    #[serde(default)]
    name: String,
    #[serde(rename = "clientURLs", default)]
    client_urls: Vec<String>,
}

impl Listed {
    fn member(self) -> (Member, bool) {
        let Listed { id, peer_urls, learner, name, client_urls } = self;
        (Member { id, name, peer_urls, client_urls }, learner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_as_etcd_writes_them() {
        let body = br#"[{"id":10276657743932975437,"peerURLs":["http://localhost:2380"],"name":"default",
            "clientURLs":["http://localhost:2379"]},{"id":7,"peerURLs":["http://a:1"],"isLearner":true}]
"#;
        let remote = read(StatusCode::OK, Some("cdf818194e3a8c32"), body).expect("good");
        assert_eq!(remote.cluster, 0xcdf8_1819_4e3a_8c32);
        let seen: Vec<_> =
            remote.members.iter().map(|(member, learner)| (member.id, &member.name[..], *learner)).collect();
        assert_eq!(seen, [(7, "", true), (10_276_657_743_932_975_437, "default", false)]);
        let table = [
            (StatusCode::NOT_FOUND, Some("1"), &b"404 page not found\n"[..], "404 Not Found: 404 page not found"),
            (StatusCode::OK, None, b"[]", "the answer does not name the cluster"),
            (StatusCode::OK, Some("x"), b"[]", "the answer does not name the cluster"),
            (StatusCode::OK, Some("1"), b"[]", "failed to get raft cluster member(s) from the given URLs"),
        ];
        for (status, cluster, body, text) in table {
            assert_eq!(read(status, cluster, body).expect_err(text).to_string(), text);
        }
        read(StatusCode::OK, Some("1"), b"nonsense").expect_err("no list");
    }
}
