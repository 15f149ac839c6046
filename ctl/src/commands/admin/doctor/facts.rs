//! What is known of a cluster once everybody has been asked. Nothing here asks.

use std::{collections::BTreeMap, time::Duration};

use client::wire::etcdserverpb::{AlarmMember, HashKvResponse, Member, StatusResponse};

/// Everything that was seen at about one time.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Who is in the cluster; why that is not known.
    pub members: Result<Vec<Member>, String>,
    /// One for each address that was asked: those that were typed, then those
    /// that members advertise.
    pub answers: Vec<Answer>,
    /// The alarms that are raised; why they are not known.
    pub alarms: Result<Vec<AlarmMember>, String>,
    /// Whether hashes were asked for.
    pub hashed: bool,
    /// How a command line to this cluster begins, without endpoints.
    pub program: String,
}

/// What came from one address.
#[derive(Clone, Debug)]
pub struct Answer {
    /// With its scheme.
    pub endpoint: String,
    /// What the member there says of itself, or why it says nothing.
    pub status: Result<StatusResponse, Silence>,
    /// How long that took.
    pub took: Duration,
    /// Whether a linearisable read came back. A learner is not asked.
    pub read: Option<Result<(), Refusal>>,
    /// The hash of the keys at the revision that all have; nobody is asked
    /// twice.
    pub hash: Option<Result<HashKvResponse, String>>,
    /// How far its clock is ahead of ours, in milliseconds, give or take one
    /// second.
    pub clock: Option<i64>,
    /// What its metrics say, or why they cannot be read.
    pub metrics: Result<Metrics, String>,
}

/// Why a member says nothing of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    /// For a person.
    pub why: String,
    /// The server wants to know who asks.
    pub asks_user: bool,
}

impl std::fmt::Display for Silence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

/// Why a read did not come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The server wants to know who asks.
    Unknown,
    /// In the server's words.
    Failed(String),
}

/// Of the metrics of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metrics {
    /// Whether it is kvorum.
    pub kvorum: bool,
    /// How long a flush of the log takes on average, in seconds.
    pub flush: Option<f64>,
    /// How often the leader changed, and in how many seconds.
    pub leader_changes: Option<(f64, f64)>,
    /// Open file descriptors, and how many there may be.
    pub descriptors: Option<(f64, f64)>,
}

impl Answer {
    /// Who answered.
    pub fn id(&self) -> Option<u64> {
        Some(self.status.as_ref().ok()?.header.as_ref()?.member_id)
    }

    /// Whether the server is known to be ours.
    pub fn is_kvorum(&self) -> bool {
        self.metrics.as_ref().is_ok_and(|metrics| metrics.kvorum)
    }
}

impl Facts {
    /// The members; if nobody knows them, those who answered.
    pub fn members(&self) -> Vec<Member> {
        match &self.members {
            Ok(members) => members.clone(),
            Err(_) => {
                let mut seen = BTreeMap::new();
                for answer in &self.answers {
                    let Some(id) = answer.id() else { continue };
                    let is_learner = answer.status.as_ref().is_ok_and(|s| s.is_learner);
                    let name = format!("{id:x}");
                    let client_urls = vec![answer.endpoint.clone()];
                    seen.entry(id).or_insert(Member { id, name, client_urls, is_learner, ..Member::default() });
                }
                seen.into_values().collect()
            }
        }
    }

    /// The best answer that a member gave.
    pub fn of(&self, id: u64) -> Option<&Answer> {
        self.answers.iter().filter(|a| a.id() == Some(id)).min_by_key(|a| a.took)
    }

    /// The members that answered, with their answers.
    pub fn up(&self) -> Vec<(Member, &Answer, &StatusResponse)> {
        let all = self.members().into_iter();
        all.filter_map(|member| {
            let answer = self.of(member.id)?;
            Some((member, answer, answer.status.as_ref().ok()?))
        })
        .collect()
    }

    /// Whether a linearisable read came back from anywhere: then there is a
    /// quorum, whoever can be reached from here.
    pub fn agrees(&self) -> bool {
        self.answers.iter().any(|a| a.read == Some(Ok(())))
    }

    /// The votes.
    pub fn votes(&self) -> Votes {
        let voters: Vec<Member> = self.members().into_iter().filter(|m| !m.is_learner).collect();
        let up = voters.iter().filter(|m| self.of(m.id).is_some()).count();
        let unknown = voters.iter().filter(|m| self.of(m.id).is_none() && !self.missing(m)).count();
        Votes { all: voters.len(), up, unknown, needed: voters.len() / 2 + 1 }
    }

    /// Whether a member does not run, as far as can be seen: it never started,
    /// or nothing comes from its own addresses. (If it has none, or somebody
    /// else is there, nothing is known.)
    pub fn missing(&self, member: &Member) -> bool {
        let silent = |url: &String| self.answers.iter().any(|a| same(url, &a.endpoint) && a.status.is_err());
        self.of(member.id).is_none() && (unstarted(member) || member.client_urls.iter().any(silent))
    }

    /// Whether too few can be alive for a quorum.
    pub fn no_quorum(&self) -> bool {
        let votes = self.votes();
        self.members.is_ok() && votes.up + votes.unknown < votes.needed && !self.agrees()
    }

    /// The revision that every member has reached.
    pub fn common_revision(&self) -> Option<i64> {
        self.up().iter().filter_map(|(.., s)| s.header.as_ref()).map(|h| h.revision).min().filter(|r| *r > 0)
    }

    /// The newest revision.
    pub fn revision(&self) -> i64 {
        self.up().iter().filter_map(|(.., s)| s.header.as_ref()).map(|h| h.revision).max().unwrap_or(0)
    }

    /// The leader that most members name.
    pub fn leader(&self) -> Option<u64> {
        let mut named = BTreeMap::new();
        for (.., status) in self.up() {
            if status.leader != 0 {
                *named.entry(status.leader).or_insert(0_usize) += 1;
            }
        }
        named.into_iter().max_by_key(|(_, times)| *times).map(|(id, _)| id)
    }

    /// Whether this may be no more than a moment, such as an election: then it
    /// is better to look again.
    pub fn unsettled(&self) -> bool {
        // Waiting brings nobody back.
        if self.no_quorum() {
            return false;
        }
        let up = self.up();
        let first = up.first().map(|(.., s)| (s.leader, s.raft_term));
        up.iter().any(|(.., s)| Some((s.leader, s.raft_term)) != first || s.leader == 0)
    }

    /// A command line to these endpoints.
    pub fn command(&self, endpoints: &[&str], words: &str) -> String {
        let endpoints =
            if endpoints.is_empty() { String::new() } else { format!(" --endpoints={}", endpoints.join(",")) };
        format!("{}{endpoints} {words}", self.program)
    }

    /// A command line to all members that answer.
    pub fn command_to_all(&self, words: &str) -> String {
        let endpoints: Vec<&str> = self.up().iter().map(|(_, answer, _)| answer.endpoint.as_str()).collect();
        self.command(&endpoints, words)
    }

    /// A command line to one member that is well.
    pub fn command_to_one(&self, words: &str) -> String {
        let up = self.up();
        let well = up.iter().find(|(_, a, _)| a.read == Some(Ok(()))).or(up.first());
        let endpoint: Vec<&str> = well.iter().map(|(_, answer, _)| answer.endpoint.as_str()).collect();
        self.command(&endpoint, words)
    }
}

/// Who can vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Votes {
    /// How many there are.
    pub all: usize,
    /// How many answer.
    pub up: usize,
    /// Of how many it cannot be said whether they run.
    pub unknown: usize,
    /// How many a quorum has.
    pub needed: usize,
}

/// Why a member does not answer, at each of its URLs.
pub fn reasons(facts: &Facts, member: &Member) -> String {
    let mut why: Vec<&str> = facts
        .answers
        .iter()
        .filter(|a| member.client_urls.iter().any(|url| same(url, &a.endpoint)))
        .map(|a| a.status.as_ref().map_or_else(|silence| &silence.why[..], |_| "another member answers there"))
        .collect();
    why.dedup();
    if why.is_empty() { "it advertises no address for clients".to_owned() } else { why.join("; ") }
}

/// The name of a member; its id if it has none yet.
pub fn name(member: &Member) -> String {
    if member.name.is_empty() { format!("{:x}", member.id) } else { member.name.clone() }
}

/// A member that was added and has never been there.
pub fn unstarted(member: &Member) -> bool {
    member.name.is_empty() && member.client_urls.is_empty()
}

/// Whether a URL of a member and an endpoint are one.
pub fn same(url: &str, endpoint: &str) -> bool {
    url.trim_end_matches('/') == endpoint.trim_end_matches('/')
}

/// The host in a URL or an address, without port and brackets.
pub fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    }
}

/// Whether nobody but the machine itself is reached there.
pub fn only_local(url: &str) -> bool {
    let host = host(url);
    let address = host.parse::<std::net::IpAddr>();
    url.starts_with("unix") || host == "localhost" || address.is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_in_urls() {
        for (url, expected, local) in [
            ("http://127.0.0.1:2379", "127.0.0.1", true),
            ("https://[::1]:2379", "::1", true),
            ("http://0.0.0.0:2379", "0.0.0.0", true),
            ("localhost:2379", "localhost", true),
            ("http://db1.example:2379/", "db1.example", false),
            ("http://10.0.0.1:2379", "10.0.0.1", false),
            ("unix:///run/x", "", true),
        ] {
            assert_eq!((host(url), only_local(url)), (expected, local), "{url}");
        }
    }
}
