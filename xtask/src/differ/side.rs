//! One of the two servers, and how a step is carried out on it.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Context, Result};
use bytes::Bytes;
use prost::Message;
use wire::{
    Method, Rpc,
    etcdserverpb::{self as pb},
};

use super::{
    calls::Call,
    normal::{Own, decode, shorten, show},
    plant::{Plant, Planted},
    step::{Meaning, Step},
    watches::WatchStream,
};
use crate::{
    plain,
    raw::{Failure, Raw},
    server::{self, Program, Server},
};

/// A server that has just been created, with one connection.
#[derive(Debug)]
pub struct Side {
    pub server: Server,
    raw: Raw,
    /// The token of whoever asks.
    pub caller: Option<String>,
    /// Tokens by user, the last one last.
    pub tokens: BTreeMap<&'static str, Vec<String>>,
    /// Root's token, for what the run itself asks.
    pub trusted: Option<String>,
    pub own: Own,
    /// Changes of the store that this side has told of.
    pub current: i64,
    pub compacted: i64,
    pub streams: BTreeMap<usize, WatchStream>,
    pub planted: Planted,
}

impl Side {
    /// Starts a server of one member in an empty folder.
    pub async fn start(program: &Program, dir: &Path, extra: &[String]) -> Result<Side> {
        std::fs::create_dir_all(dir)?;
        let mut server = server::cluster(program, 1, dir, extra)?.remove(0);
        server.ready(Duration::from_secs(60)).await?;
        let raw = Raw::connect(&server.endpoint()).await?;
        let status: pb::StatusResponse =
            raw.call(Rpc::Status, &pb::StatusRequest {}).await.context("asking for the status")?;
        let header = status.header.context("a status without a header")?;
        let own = Own {
            cluster: header.cluster_id,
            member: header.member_id,
            term: header.raft_term,
            members: vec![],
            leases: vec![],
            ports: vec![
                (server.spec.client_port.to_string(), "client-port"),
                (server.spec.peer_port.to_string(), "peer-port"),
            ],
        };
        Ok(Side {
            server,
            raw,
            caller: None,
            tokens: BTreeMap::new(),
            trusted: None,
            own,
            current: header.revision,
            compacted: 0,
            streams: BTreeMap::new(),
            planted: Planted::default(),
        })
    }

    /// What marks stand for on this side. Revisions are the caller's: both
    /// sides are asked for the same.
    pub fn meaning(&self, current: i64, compacted: i64) -> Meaning {
        let (leases, members) = (self.own.leases.clone(), self.own.members.clone());
        let peer = format!("http://{}:{}", self.server.spec.host, self.server.spec.peer_port);
        Meaning { current, compacted, leases, member: self.own.member, members, peer }
    }

    /// The connection, for whoever asks.
    pub fn raw(&self) -> Raw {
        self.raw_with(self.caller.as_deref())
    }

    /// The connection, for the holder of a token.
    pub fn raw_with(&self, token: Option<&str>) -> Raw {
        self.raw.with_token(token)
    }

    /// Goes on with another connection.
    pub fn connected(&mut self, raw: Raw) {
        self.raw = raw;
    }

    /// Everything up to a revision is compacted.
    pub fn compacted_to(&mut self, revision: i64) {
        self.compacted = revision;
        self.streams.values().for_each(|stream| stream.story().compacted = revision);
    }

    /// Carries a step out and tells the answer.
    pub async fn run(&mut self, step: &Step) -> String {
        match step {
            Step::Range(r) => {
                let mut answer = self.call::<_, pb::RangeResponse>(Rpc::Range, r).await;
                if let Ok(answer) = &mut answer {
                    if self.planted.take(Plant::Count) {
                        answer.count += 1;
                    }
                    if !answer.kvs.is_empty() && self.planted.take(Plant::Version) {
                        answer.kvs[0].version += 1;
                    }
                }
                show(answer, |m| self.own.sorted(r, m))
            }
            Step::RangeStream(r) => self.range_stream(r).await,
            Step::Put(r) => {
                let mut answer = self.call::<_, pb::PutResponse>(Rpc::Put, r).await;
                self.saw(&answer, |m| m.header.as_ref());
                if let Ok(pb::PutResponse { header: Some(header), .. }) = &mut answer
                    && self.planted.take(Plant::Revision)
                {
                    header.revision += 1;
                }
                show(answer, |m| self.own.put(m))
            }
            Step::Delete(r) => {
                let answer = self.call(Rpc::DeleteRange, r).await;
                self.saw(&answer, |m: &pb::DeleteRangeResponse| m.header.as_ref());
                show(answer, |m| self.own.delete(m))
            }
            Step::Txn(r) => {
                let answer = self.call(Rpc::Txn, r).await;
                self.saw(&answer, |m: &pb::TxnResponse| m.header.as_ref());
                show(answer, |m| {
                    self.own.txn(m);
                    self.own.sorted_in_txn(r, m);
                })
            }
            Step::Compact(r) => {
                let answer = self.call::<_, pb::CompactionResponse>(Rpc::Compact, r).await;
                if answer.is_ok() {
                    self.compacted_to(r.revision);
                }
                show(answer, |m| self.own.header(&mut m.header))
            }
            Step::HashKv(r) => {
                let answer = self.call::<_, pb::HashKvResponse>(Rpc::HashKV, r).await;
                show(answer, |m| self.own.header(&mut m.header))
            }
            Step::Page { verb, path, kind, body } => self.page(verb, path, kind, body).await,
            Step::Bytes { path, request } => match self.raw().unary(path, request.clone()).await {
                Ok(bytes) => format!("an answer of {} bytes", bytes.len().min(1)),
                Err(failure) => self.failed(failure).to_string(),
            },
            Step::Watch { .. } | Step::WatchBytes { .. } | Step::Close { .. } | Step::Settle => String::new(),
            Step::Restart { .. } => String::new(),
            other => self.run_rest(other).await,
        }
    }

    /// Leases, and what is asked of the member.
    async fn run_rest(&mut self, step: &Step) -> String {
        match step {
            Step::Grant(r) => self.grant(r).await,
            Step::Brief(r) => {
                let granted = self.grant(r).await;
                let revoke = pb::LeaseRevokeRequest { id: r.id };
                let revoked = self.call::<_, pb::LeaseRevokeResponse>(Rpc::LeaseRevoke, &revoke).await;
                format!("{granted}; {}", show(revoked, |m| self.own.header(&mut m.header)))
            }
            Step::Revoke(r) => {
                let answer = self.call(Rpc::LeaseRevoke, r).await;
                self.saw(&answer, |m: &pb::LeaseRevokeResponse| m.header.as_ref());
                show(answer, |m| self.own.header(&mut m.header))
            }
            Step::TimeToLive(r) => show(self.call(Rpc::LeaseTimeToLive, r).await, |m| self.own.time_to_live(m)),
            Step::Leases => {
                let answer = self.call(Rpc::LeaseLeases, &pb::LeaseLeasesRequest {}).await;
                show(answer, |m| self.own.leases(m))
            }
            Step::KeepAlive(r) => self.keep_alive(r).await,
            Step::Hash => {
                // Over pages that only etcd has: compared is that there is one.
                let answer = self.call::<_, pb::HashResponse>(Rpc::Hash, &pb::HashRequest {}).await;
                show(answer, |m| {
                    self.own.header(&mut m.header);
                    m.hash = m.hash.min(1);
                })
            }
            Step::Status => show(self.call(Rpc::Status, &pb::StatusRequest {}).await, |m| self.own.status(m)),
            Step::Alarms(r) => {
                let answer = self.call::<_, pb::AlarmResponse>(Rpc::Alarm, r).await;
                show(answer, |m| {
                    self.own.header(&mut m.header);
                    for alarm in &mut m.alarms {
                        alarm.member_id = self.own.id(alarm.member_id);
                    }
                    // In the order of a Go map.
                    m.alarms.sort_by_key(|alarm| (alarm.alarm, alarm.member_id));
                })
            }
            Step::Members(r) => show(self.call(Rpc::MemberList, r).await, |m| self.own.members(m)),
            Step::Defragment => {
                let answer = self.call::<_, pb::DefragmentResponse>(Rpc::Defragment, &pb::DefragmentRequest {}).await;
                show(answer, |m| self.own.header(&mut m.header))
            }
            Step::MoveLeader(r) => {
                let answer = self.call::<_, pb::MoveLeaderResponse>(Rpc::MoveLeader, r).await;
                show(answer, |m| self.own.header(&mut m.header))
            }
            other => self.run_recipe(other).await,
        }
    }

    /// Who asks, what waits, and the same over the gateway.
    async fn run_recipe(&mut self, step: &Step) -> String {
        match step {
            Step::Call(call) => self.known_call(call).await,
            Step::Lock(r) => self.lock(r).await,
            Step::Campaign(r) => self.campaign(r).await,
            Step::Observe(r) => self.observe(r).await,
            Step::Login { user, password } => self.login(user, password).await,
            Step::Json(step) => self.post(step).await,
            Step::HowManyLeases => {
                let answer =
                    self.call::<_, pb::LeaseLeasesResponse>(Rpc::LeaseLeases, &pb::LeaseLeasesRequest {}).await;
                answer.map_or_else(|failure| failure.to_string(), |m| format!("{} leases", m.leases.len()))
            }
            other => unreachable!("carried out elsewhere: {other:?}"),
        }
    }

    /// Carries such a call out and tells the answer.
    async fn known_call(&mut self, call: &Call) -> String {
        let mut call = call.clone();
        self.prove(&mut call).await;
        let (rpc, bytes) = call.request();
        let answer = self.raw().unary(Method::of(rpc).path, bytes).await;
        if let (Rpc::MemberAdd, Ok(bytes)) = (rpc, &answer)
            && let Ok(pb::MemberAddResponse { member: Some(member), .. }) = decode(bytes.clone())
        {
            self.own.members.push(member.id);
        }
        if let Ok(bytes) = &answer
            && let Ok(pb::PutResponse { header: Some(header), .. }) = decode(bytes.slice(..header_end(bytes)))
        {
            self.current = self.current.max(header.revision);
        }
        let answer = answer.map_err(|failure| self.failed(failure));
        call.show(&self.own, answer)
    }

    /// The stream of that number, opened if need be.
    pub async fn stream(&mut self, number: usize) -> &WatchStream {
        if !self.streams.contains_key(&number) {
            let stream = WatchStream::open(&self.raw(), &self.own, self.compacted, &self.planted).await;
            self.streams.insert(number, stream);
        }
        &self.streams[&number]
    }

    /// A call by whoever asks.
    pub async fn call<Req: Message, Resp: Message + Default>(&self, rpc: Rpc, request: &Req) -> Result<Resp, Failure> {
        let answer = self.raw().call(rpc, request).await;
        answer.map_err(|failure| self.failed(failure))
    }

    /// An error as it is compared.
    pub fn failed(&self, mut failure: Failure) -> Failure {
        if self.planted.take(Plant::Text) {
            failure.text.pop();
        }
        // Go's runtime varies this space from build to build.
        failure.text = self.own.text(&failure.text).replace('\u{a0}', " ");
        failure
    }

    /// Remembers the revision of a change.
    pub fn saw<M>(&mut self, answer: &Result<M, Failure>, header: impl Fn(&M) -> Option<&pb::ResponseHeader>) {
        if let Ok(Some(header)) = answer.as_ref().map(header) {
            self.current = self.current.max(header.revision);
        }
    }

    async fn grant(&mut self, r: &pb::LeaseGrantRequest) -> String {
        let answer = self.call::<_, pb::LeaseGrantResponse>(Rpc::LeaseGrant, r).await;
        if let (Ok(granted), 0) = (&answer, r.id) {
            assert!(granted.id > 0, "the server chose the lease id {}", granted.id);
            self.own.leases.push(granted.id);
        }
        show(answer, |m| {
            self.own.header(&mut m.header);
            self.own.lease(&mut m.id);
        })
    }

    async fn keep_alive(&self, r: &pb::LeaseKeepAliveRequest) -> String {
        let path = Method::of(Rpc::LeaseKeepAlive).path;
        let (answers, end) = self.raw().collect(path, r.encode_to_vec().into()).await;
        let answers: Vec<String> = answers
            .into_iter()
            .map(|bytes| {
                show(decode::<pb::LeaseKeepAliveResponse>(bytes), |m| {
                    self.own.header(&mut m.header);
                    self.own.lease(&mut m.id);
                })
            })
            .collect();
        format!("{answers:?} {end:?}")
    }

    /// The chunks together: where a server cuts is its own affair. Only the
    /// last may say more than keys.
    async fn range_stream(&self, r: &pb::RangeRequest) -> String {
        let path = Method::of(Rpc::RangeStream).path;
        let (answers, end) = self.raw().collect(path, r.encode_to_vec().into()).await;
        let (mut kvs, mut rest) = (Vec::new(), Vec::new());
        let many = answers.len();
        for (at, bytes) in answers.into_iter().enumerate() {
            match decode::<pb::RangeStreamResponse>(bytes) {
                Ok(chunk) => {
                    let mut range = chunk.range_response.unwrap_or_default();
                    kvs.append(&mut range.kvs);
                    if at + 1 == many || range != pb::RangeResponse::default() {
                        self.own.header(&mut range.header);
                        rest.push(range);
                    }
                }
                Err(failure) => return failure.to_string(),
            }
        }
        kvs.iter_mut().for_each(shorten);
        let end = end.map(|failure| self.failed(failure));
        format!("{kvs:?} {rest:?} {end:?}")
    }

    async fn page(&mut self, verb: &str, path: &str, kind: &str, body: &str) -> String {
        match self.fetch(verb, path, kind, body).await {
            Ok(reply) => format!("{} {} {}", reply.status, reply.content_type, self.own.body(&reply.body)),
            Err(error) => format!("{error:#}"),
        }
    }

    /// The answer to a request of HTTP/1.1.
    pub async fn fetch(&mut self, verb: &str, path: &str, kind: &str, body: &str) -> Result<plain::Reply> {
        let token = self.caller.as_deref();
        let ask = plain::Ask { verb, path, kind, token, body: body.as_bytes() };
        let mut reply = plain::request(&self.server.endpoint(), ask).await?;
        if !reply.body.is_empty() && self.planted.take(Plant::Page) {
            reply.body[0] ^= 1;
        }
        let text = self.own.body(&reply.body);
        if let Some(revision) = number_behind(&text, "\"revision\":\"") {
            self.current = self.current.max(revision);
        }
        Ok(reply)
    }
}

fn number_behind(text: &str, name: &str) -> Option<i64> {
    let rest = &text[text.find(name)? + name.len()..];
    rest[..rest.find('"')?].parse().ok()
}

/// Where the header ends, the first field of every answer.
fn header_end(answer: &Bytes) -> usize {
    match answer[..] {
        // Headers are short: their length is one byte.
        [0x0a, length, ..] if length < 0x80 => (2 + usize::from(length)).min(answer.len()),
        _ => 0,
    }
}
