//! Who belongs to the cluster, and what changes that.

use crate::transport::call::Call;
use crate::transport::status::{self, Status};
use bytes::Bytes;
use disk::identity::member_id;
use disk::urls::Url;
use node::{Answer, Request};
use std::time::{SystemTime, UNIX_EPOCH};
use store::protobuf::{self, Fields, Malformed, Value};
use store::{Member, MemberChange, MemberChangeKind};

/// Peer URLs of one member, and bytes of each: they stand in the log, and every member compares
/// them with those of all others.
const MOST_URLS: usize = 32;
const LONGEST_URL: usize = 256;

/// What the requests of this service say. A field that one of them does not have keeps its default.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    id: u64,
    peer_urls: Vec<String>,
    learner: bool,
}

fn text(value: Value<'_>) -> Result<String, Malformed> {
    let text = std::str::from_utf8(value.bytes()).map_err(|_| Malformed::new("text is not UTF-8"))?;
    Ok(text.to_owned())
}

/// `{peerURLs=1, isLearner=2}`.
fn read_add(request: &Bytes) -> Result<Said, Status> {
    let mut said = Said::default();
    let mut fields = Fields::new(request);
    while let Some(field) = fields.next_field()? {
        match field {
            (1, value) => said.peer_urls.push(text(value)?),
            (2, value) => said.learner = value.flag(),
            _ => {}
        }
    }
    Ok(said)
}

/// `{ID=1, peerURLs=2}`.
fn read_change(request: &Bytes) -> Result<Said, Status> {
    let mut said = Said::default();
    let mut fields = Fields::new(request);
    while let Some(field) = fields.next_field()? {
        match field {
            (1, value) => said.id = value.uint(),
            (2, value) => said.peer_urls.push(text(value)?),
            _ => {}
        }
    }
    Ok(said)
}

/// Checks peer URLs as etcd does, and sorts them.
fn peer_urls(texts: &[String]) -> Result<Vec<String>, Status> {
    if texts.len() > MOST_URLS || texts.iter().any(|text| text.len() > LONGEST_URL) {
        return Err(status::MEMBER_URLS);
    }
    let mut urls = Vec::with_capacity(texts.len());
    for text in texts {
        let url = Url::parse(text).map_err(|_| status::MEMBER_URLS)?;
        // `Url` takes a slash behind the port.
        if text.trim() != url.text {
            return Err(status::MEMBER_URLS);
        }
        urls.push(url.text);
    }
    urls.sort_unstable();
    if urls.is_empty() { Err(status::MEMBER_URLS) } else { Ok(urls) }
}

/// As etcd computes it: the same URLs give another id a second later.
fn id_of_new(peer_urls: &[String], now: SystemTime) -> u64 {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    member_id(peer_urls, &seconds.to_string())
}

/// `etcdserverpb.Member`.
fn put_member(out: &mut Vec<u8>, number: u32, member: &Member, learner: bool) {
    let mut message = Vec::new();
    protobuf::write_varint(&mut message, 1, member.id);
    protobuf::write_bytes(&mut message, 2, member.name.as_bytes());
    for url in &member.peer_urls {
        protobuf::write_message(&mut message, 3, url.as_bytes());
    }
    for url in &member.client_urls {
        protobuf::write_message(&mut message, 4, url.as_bytes());
    }
    protobuf::write_bool(&mut message, 5, learner);
    protobuf::write_message(out, number, &message);
}

fn put_members(out: &mut Vec<u8>, number: u32, mut members: Vec<(Member, bool)>) {
    members.sort_by_key(|(member, _)| member.id);
    for (member, learner) in &members {
        put_member(out, number, member, *learner);
    }
}

/// Headers of the Cluster service carry no revision.
pub(crate) async fn member_list(call: &mut Call) -> Result<(), Status> {
    let request = call.request().await?;
    let mut linearizable = false;
    let mut fields = Fields::new(&request);
    while let Some(field) = fields.next_field()? {
        if let (1, value) = field {
            linearizable = value.flag();
        }
    }
    let asked = call.read(Request::Members { linearizable }).await?;
    let Answer::Members { members } = asked.answer else { return Err(Status::unexpected("members")) };
    let mut rest = Vec::new();
    put_members(&mut rest, 2, members);
    call.answer(0, asked.term, &rest)
}

/// Changes the membership; the members behind the change, and the term.
async fn change(call: &Call, kind: MemberChangeKind, member: Member) -> Result<(Vec<(Member, bool)>, u64), Status> {
    let change = MemberChange { origin: None, kind, member };
    let asked = call.write(Request::ChangeMember { change }).await?;
    match asked.answer {
        Answer::Members { members } => Ok((members, asked.term)),
        _ => Err(Status::unexpected("a change of members")),
    }
}

pub(crate) async fn member_add(call: &mut Call) -> Result<(), Status> {
    let said = read_add(&call.request().await?)?;
    let peer_urls = peer_urls(&said.peer_urls)?;
    let member = Member { id: id_of_new(&peer_urls, SystemTime::now()), peer_urls, ..Member::default() };
    let kind = if said.learner { MemberChangeKind::AddLearner } else { MemberChangeKind::AddVoter };
    let (members, term) = change(call, kind, member.clone()).await?;
    let mut rest = Vec::new();
    put_member(&mut rest, 2, &member, said.learner);
    put_members(&mut rest, 3, members);
    call.answer(0, term, &rest)
}

async fn changed(call: &mut Call, kind: MemberChangeKind, member: Member) -> Result<(), Status> {
    let (members, term) = change(call, kind, member).await?;
    let mut rest = Vec::new();
    put_members(&mut rest, 2, members);
    call.answer(0, term, &rest)
}

pub(crate) async fn member_remove(call: &mut Call) -> Result<(), Status> {
    let said = read_change(&call.request().await?)?;
    changed(call, MemberChangeKind::Remove, Member { id: said.id, ..Member::default() }).await
}

/// etcd takes whatever text there is, and every member of it ends if one is no URL.
pub(crate) async fn member_update(call: &mut Call) -> Result<(), Status> {
    let said = read_change(&call.request().await?)?;
    let peer_urls = peer_urls(&said.peer_urls)?;
    changed(call, MemberChangeKind::Update, Member { id: said.id, peer_urls, ..Member::default() }).await
}

pub(crate) async fn member_promote(call: &mut Call) -> Result<(), Status> {
    let said = read_change(&call.request().await?)?;
    let promoted = changed(call, MemberChangeKind::Promote, Member { id: said.id, ..Member::default() }).await;
    if call.core().leader() == call.core().member() {
        // As etcd counts: where it was decided.
        let learners = &call.edge.metrics().learners;
        match &promoted {
            Ok(()) => learners.promoted.inc(),
            Err(status) => learners.not_promoted.with_label_values(&[reason(status)]).inc(),
        }
    }
    promoted
}

/// As etcd counts it.
fn reason(status: &Status) -> &str {
    match &status.message[..] {
        "etcdserver: member not found" => "membership: ID not found",
        "etcdserver: can only promote a learner member" => "membership: can only promote a learner member",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn texts(urls: &[&str]) -> Vec<String> {
        urls.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn peer_urls_are_checked_and_sorted() {
        let good = peer_urls(&texts(&["http://b:2", " http://a:1 ", "https://[::1]:3"])).expect("good");
        assert_eq!(good, ["http://a:1", "http://b:2", "https://[::1]:3"]);
        for bad in [&[][..], &[""], &["a:1"], &["http://a"], &["http://a:1/"], &["http://a:1/x"]] {
            assert_eq!(peer_urls(&texts(bad)), Err(status::MEMBER_URLS), "{bad:?}");
        }
    }

    #[test]
    fn requests_are_read() {
        let mut add = Vec::new();
        protobuf::write_message(&mut add, 1, b"http://a:1");
        protobuf::write_message(&mut add, 1, b"http://b:1");
        protobuf::write_bool(&mut add, 2, true);
        let said = Said { id: 0, peer_urls: texts(&["http://a:1", "http://b:1"]), learner: true };
        assert_eq!(read_add(&add.into()), Ok(said));
        let mut update = Vec::new();
        protobuf::write_varint(&mut update, 1, u64::MAX);
        protobuf::write_message(&mut update, 2, b"x");
        let said = Said { id: u64::MAX, peer_urls: texts(&["x"]), learner: false };
        assert_eq!(read_change(&update.into()), Ok(said));
    }

    /// The sum over URLs and seconds.
    #[test]
    fn an_id_depends_on_the_second() {
        let at = |seconds| id_of_new(&texts(&["http://a:1"]), UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(1_700_000_000), member_id(&texts(&["http://a:1"]), "1700000000"));
        assert_ne!(at(1_700_000_000), at(1_700_000_001));
    }
}
