//! What two healthy servers may answer differently is made equal here; nothing
//! else is.

use bytes::Bytes;
use prost::Message;
use wire::{
    etcdserverpb::{self as pb, request_op, response_op},
    mvccpb,
};

use crate::raw::Failure;

/// A server's own names for things.
#[derive(Clone, Debug, Default)]
pub struct Own {
    pub cluster: u64,
    pub member: u64,
    pub term: u64,
    /// Ids of members that the server chose, the last one last.
    pub members: Vec<u64>,
    /// Ids of leases that the server chose, in the order of the grants.
    pub leases: Vec<i64>,
    /// Its ports, as they stand in addresses.
    pub ports: Vec<(String, &'static str)>,
}

/// Stands for the n-th id of a lease that the server chose.
fn chosen(n: usize) -> i64 {
    super::marks::LEASE + n as i64
}

impl Own {
    pub fn header(&self, header: &mut Option<pb::ResponseHeader>) {
        if let Some(header) = header {
            header.cluster_id = same(header.cluster_id, self.cluster);
            header.member_id = same(header.member_id, self.member);
            header.raft_term = same(header.raft_term, self.term);
        }
    }

    pub fn lease(&self, id: &mut i64) {
        if let Some(n) = self.leases.iter().position(|lease| lease == id) {
            *id = chosen(n);
        }
    }

    pub fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (port, name) in &self.ports {
            text = text.replace(port, name);
        }
        text
    }

    pub fn range(&self, r: &mut pb::RangeResponse) {
        self.header(&mut r.header);
        r.kvs.iter_mut().for_each(shorten);
    }

    pub fn put(&self, r: &mut pb::PutResponse) {
        self.header(&mut r.header);
        r.prev_kv.iter_mut().for_each(shorten);
    }

    pub fn delete(&self, r: &mut pb::DeleteRangeResponse) {
        self.header(&mut r.header);
        r.prev_kvs.iter_mut().for_each(shorten);
    }

    /// An answer to that request: Go's sort leaves the order of equal keys open
    /// as soon as there are more than twelve.
    pub fn sorted(&self, request: &pb::RangeRequest, r: &mut pb::RangeResponse) {
        self.range(r);
        if request.sort_target != 0 && r.count > 12 {
            ties(request.sort_target, request.limit, &mut r.kvs);
        }
    }

    /// The same for the ranges in the branch that was taken.
    pub fn sorted_in_txn(&self, request: &pb::TxnRequest, r: &mut pb::TxnResponse) {
        let branch = if r.succeeded { &request.success } else { &request.failure };
        for (op, answer) in branch.iter().zip(&mut r.responses) {
            match (&op.request, &mut answer.response) {
                (Some(request_op::Request::RequestRange(q)), Some(response_op::Response::ResponseRange(r))) => {
                    self.sorted(q, r);
                }
                (Some(request_op::Request::RequestTxn(q)), Some(response_op::Response::ResponseTxn(r))) => {
                    self.sorted_in_txn(q, r);
                }
                _ => {}
            }
        }
    }

    pub fn txn(&self, r: &mut pb::TxnResponse) {
        self.header(&mut r.header);
        for op in &mut r.responses {
            match &mut op.response {
                Some(response_op::Response::ResponseRange(r)) => self.range(r),
                Some(response_op::Response::ResponsePut(r)) => self.put(r),
                Some(response_op::Response::ResponseDeleteRange(r)) => self.delete(r),
                Some(response_op::Response::ResponseTxn(r)) => self.txn(r),
                None => {}
            }
        }
    }

    pub fn leases(&self, r: &mut pb::LeaseLeasesResponse) {
        self.header(&mut r.header);
        r.leases.iter_mut().for_each(|lease| self.lease(&mut lease.id));
        // Ordered by the remaining time, to the nanosecond of the grant.
        r.leases.sort_by_key(|lease| lease.id);
    }

    pub fn time_to_live(&self, r: &mut pb::LeaseTimeToLiveResponse) {
        self.header(&mut r.header);
        self.lease(&mut r.id);
        r.keys.sort();
        // Whole seconds that are left: the clocks of two runs.
        if r.ttl > 0 && r.ttl <= r.granted_ttl && r.granted_ttl - r.ttl < 600 {
            r.ttl = r.granted_ttl;
        }
    }

    pub fn status(&self, r: &mut pb::StatusResponse) {
        self.header(&mut r.header);
        r.leader = same(r.leader, self.member);
        r.raft_term = same(r.raft_term, self.term);
        r.db_size = r.db_size.signum();
        r.db_size_in_use = r.db_size_in_use.signum();
        for index in [&mut r.raft_index, &mut r.raft_applied_index] {
            *index = (*index).min(1);
        }
        // In the order of a Go map.
        let own = self.member.to_string();
        r.errors.iter_mut().for_each(|error| *error = error.replace(&own, "own"));
        r.errors.sort();
        r.storage_version = grown(&r.storage_version);
    }

    pub fn members(&self, r: &mut pb::MemberListResponse) {
        self.header(&mut r.header);
        self.listed(&mut r.members);
    }

    /// Members, in an order that does not depend on their ids.
    pub fn listed(&self, members: &mut [pb::Member]) {
        members.iter_mut().for_each(|member| self.member(member));
        members.sort_by(|a, b| a.peer_urls.cmp(&b.peer_urls));
    }

    /// A member, whatever its id.
    pub fn member(&self, member: &mut pb::Member) {
        member.id = self.id(member.id);
        for url in member.peer_urls.iter_mut().chain(&mut member.client_urls) {
            *url = self.text(url);
        }
    }

    /// The id of a member, as both sides name it.
    pub fn id(&self, id: u64) -> u64 {
        match self.members.iter().position(|known| *known == id) {
            Some(n) => super::marks::MEMBER + n as u64,
            None => same(id, self.member),
        }
    }

    /// A key that ends with the id of a lease.
    pub fn place(&self, key: &[u8]) -> Bytes {
        let text = String::from_utf8_lossy(key);
        let named = text.rsplit_once('/').and_then(|(name, id)| {
            let n = self.leases.iter().position(|lease| format!("{lease:x}") == id)?;
            Some(format!("{name}/LEASE{n}"))
        });
        named.map_or_else(|| key.to_vec().into(), Bytes::from)
    }

    /// A page or an answer of the JSON gateway.
    pub fn body(&self, body: &[u8]) -> String {
        let text = String::from_utf8_lossy(body);
        if text.starts_with("[+]") || text.starts_with("[-]") {
            // The checks of /readyz, in the order of a Go map.
            let mut lines: Vec<&str> = text.lines().collect();
            lines.sort_unstable();
            return lines.join("\n");
        }
        let mut text = self.text(&squeeze(&text));
        let names = [
            ("cluster_id", self.cluster.to_string()),
            ("member_id", self.member.to_string()),
            ("memberID", self.member.to_string()),
            ("leader", self.member.to_string()),
            ("ID", self.member.to_string()),
            ("raft_term", self.term.to_string()),
            ("raftTerm", self.term.to_string()),
        ];
        for (name, value) in names {
            text = text.replace(&format!("\"{name}\":\"{value}\""), &format!("\"{name}\":\"own\""));
        }
        for (n, id) in self.members.iter().enumerate() {
            text = text.replace(&format!("\"ID\":\"{id}\""), &format!("\"ID\":\"member {n}\""));
        }
        text = text.replace(&format!("memberID:{}", self.member), "memberID:own");
        for (n, id) in self.leases.iter().enumerate() {
            text = text.replace(&format!("\"ID\":\"{id}\""), &format!("\"ID\":\"lease {n}\""));
        }
        if let Some(ordered) = in_order(&text) {
            text = ordered;
        }
        text = text.replace("\"storageVersion\":\"3.5.0\"", &format!("\"storageVersion\":\"{}\"", grown("3.5.0")));
        for name in ["dbSize", "dbSizeInUse", "raftIndex", "raftAppliedIndex"] {
            text = without_number(&text, name);
        }
        text
    }
}

/// A new store of etcd says for some seconds that it is of an older version.
fn grown(version: &str) -> String {
    match version {
        "" | "3.5.0" | "3.6.0" => "3.7.0".to_owned(),
        other => other.to_owned(),
    }
}

fn same(id: u64, own: u64) -> u64 {
    if id == own && id != 0 { 1 } else { id }
}

/// Orders equal keys; where a limit cut among them, it leaves of each key only
/// what it was sorted by.
fn ties(target: i32, limit: i64, kvs: &mut [mvccpb::KeyValue]) {
    let value = |kv: &mvccpb::KeyValue| match target {
        1 => (kv.version, Default::default()),
        2 => (kv.create_revision, Default::default()),
        3 => (kv.mod_revision, Default::default()),
        _ => (0, kv.value.clone()),
    };
    if limit > 0 {
        for kv in kvs {
            let (number, bytes) = value(kv);
            *kv = mvccpb::KeyValue { version: number, value: bytes, ..Default::default() };
        }
        return;
    }
    for group in kvs.chunk_by_mut(|a, b| value(a) == value(b)) {
        group.sort_by(|a, b| a.key.cmp(&b.key));
    }
}

/// Long values by length and sum, so that a report stays readable.
pub fn shorten(kv: &mut mvccpb::KeyValue) {
    if kv.value.len() > 64 {
        let sum = kv.value.iter().fold(17u64, |sum, b| sum.wrapping_mul(31).wrapping_add(u64::from(*b)));
        kv.value = format!("<{} bytes, sum {sum:x}>", kv.value.len()).into();
    }
}

/// JSON without the space between its tokens, which Go's encoder varies from
/// build to build; so does it the space behind `proto:`.
fn squeeze(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut quoted, mut escaped) = (false, false);
    for c in text.chars() {
        if quoted {
            quoted = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if c == '"' {
            quoted = true;
        } else if c == ' ' {
            continue;
        }
        out.push(if c == '\u{a0}' { ' ' } else { c });
    }
    out
}

/// `"name":"123"` with its number replaced.
fn without_number(text: &str, name: &str) -> String {
    let start = format!("\"{name}\":\"");
    let Some(at) = text.find(&start) else {
        return text.to_owned();
    };
    let rest = &text[at + start.len()..];
    let end = rest.find('"').unwrap_or(rest.len());
    format!("{}{start}some{}", &text[..at], &rest[end..])
}

/// The message of an answer.
pub fn decode<M: Message + Default>(bytes: Bytes) -> Result<M, Failure> {
    M::decode(bytes).map_err(|e| Failure { code: -2, text: format!("the answer cannot be read: {e}") })
}

/// The members, alarms and errors of an answer in an order that does not depend on ids; `None` if
/// it has not two of them.
fn in_order(text: &str) -> Option<String> {
    let lists = ["members", "alarms", "errors"];
    let name = lists.iter().find(|name| text.contains(&format!("\"{name}\":[")))?;
    let mut json: serde_json::Value = serde_json::from_str(text).ok()?;
    let list = json.get_mut(*name)?.as_array_mut().filter(|list| list.len() > 1)?;
    list.sort_by_key(|one| one.get("peerURLs").unwrap_or(one).to_string());
    Some(json.to_string())
}

/// An answer as text, once it has been made equal.
pub fn show<M: Message + Default + std::fmt::Debug>(answer: Result<M, Failure>, equal: impl FnOnce(&mut M)) -> String {
    match answer {
        Ok(mut message) => {
            equal(&mut message);
            format!("{message:?}")
        }
        Err(failure) => failure.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_counts_only_inside_strings() {
        assert_eq!(squeeze(r#"{"a": "b \" c", "d":1}"#), r#"{"a":"b \" c","d":1}"#);
        assert_eq!(squeeze("{\"m\":\"proto:\u{a0}x\"}"), "{\"m\":\"proto: x\"}");
    }

    #[test]
    fn lists_of_a_go_map_have_an_order() {
        let text = r#"{"alarms":[{"memberID":"own"},{"alarm":"NOSPACE"}]}"#;
        assert_eq!(in_order(text).as_deref(), Some(r#"{"alarms":[{"alarm":"NOSPACE"},{"memberID":"own"}]}"#));
        assert_eq!(in_order(r#"{"alarms":[{"memberID":"own"}]}"#), None);
    }

    #[test]
    fn only_own_ids_become_equal() {
        let own = Own { cluster: 5, member: 6, term: 2, ..Own::default() };
        let header = |cluster_id, member_id, raft_term| {
            let mut h = Some(pb::ResponseHeader { cluster_id, member_id, revision: 9, raft_term });
            own.header(&mut h);
            let h = h.unwrap();
            (h.cluster_id, h.member_id, h.revision, h.raft_term)
        };
        assert_eq!(header(5, 6, 2), (1, 1, 9, 1));
        assert_eq!(header(0, 7, 3), (0, 7, 9, 3));
        assert_eq!(
            own.body(br#"{"header":{"cluster_id":"5","member_id":"7"}}"#),
            r#"{"header":{"cluster_id":"own","member_id":"7"}}"#
        );
    }
}
