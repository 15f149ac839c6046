//! A member that joins a cluster that runs (`--initial-cluster-state existing`): it asks the others
//! who belongs to it, and begins with nothing. The leader's snapshot gives it all the rest.
//!
//! The checks are etcd's, in its order and words. One more is ours: whoever has started before and
//! comes with an empty directory would forget what it has acknowledged.

use super::{Created, Failed, Known, NOT_OURS, Start, UNFOUNDED, failed};
use crate::log::{self, hex, json};
use crate::options::Options;
use crate::peers::{Asking, Greeting, Remote};
use crate::signals::{Stops, die_of};
use crate::tls::Dialler;
use disk::founding::{Mismatch, difference};
use disk::identity::{self, Found};
use disk::urls::Url;
use disk::{Files, Identity};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Member;

/// How long the others are asked, as etcd has it.
const PATIENCE: Duration = Duration::from_secs(10);
const ASK_AGAIN: Duration = Duration::from_millis(500);
const LOOK_UP: Duration = Duration::from_secs(5);

/// Why a member does not join. The text is etcd's where etcd has one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unjoined {
    /// The initial cluster does not fit.
    #[error(transparent)]
    Flags(#[from] Mismatch),
    /// Nobody says who belongs to the cluster.
    #[error("cannot fetch cluster info from peer urls: could not retrieve cluster information from the given URLs")]
    Nobody,
    /// The initial cluster is not as long as the list of members.
    #[error("error validating peerURLs {cluster}: member count is unequal")]
    Count { cluster: String },
    /// The initial cluster does not name a member.
    #[error(
        "error validating peerURLs {cluster}: PeerURLs: no match found for existing member ({member:x}, [{urls}]), \
         last resolver error ({last})"
    )]
    NoMatch { cluster: String, member: u64, urls: String, last: String },
    /// This member was not added.
    #[error("error validating peerURLs {cluster}: no member of the cluster has the peer URLs of {name:?}")]
    NotAdded { cluster: String, name: String },
    #[error("membership: too many learner members in cluster")]
    TooManyLearners,
    /// It has been a member before, and has no data.
    #[error("{0}")]
    Before(String),
    /// Members are there, and none of them speaks with this one.
    #[error("incompatible with current running cluster: {0}")]
    Incompatible(String),
}

/// Names, and the peer URLs of each.
pub(super) type Named = BTreeMap<String, Vec<String>>;

/// The initial cluster of the flags.
///
/// # Errors
/// It does not name this member, or a URL stands there twice.
pub(super) fn named(options: &Options) -> Result<Named, Mismatch> {
    let mut named = Named::new();
    for (name, url) in &options.initial_cluster {
        named.entry(name.clone()).or_default().push(url.text.clone());
    }
    named.values_mut().for_each(|urls| urls.sort_unstable());
    if !named.contains_key(&options.name) {
        return Err(Mismatch::Nameless(options.name.clone()));
    }
    let mut seen = BTreeSet::new();
    if named.values().flatten().all(|url| seen.insert(url)) {
        return Ok(named);
    }
    let list = named.iter().flat_map(|(name, urls)| urls.iter().map(move |url| format!("{name}={url}")));
    Err(Mismatch::Duplicate(list.collect::<Vec<_>>().join(",")))
}

/// What the names in URLs stand for, as far as the name service knows it.
#[derive(Default)]
struct Resolved(BTreeMap<String, BTreeSet<IpAddr>>);

impl Resolved {
    /// Looks everything up that is not an address.
    async fn of(urls: impl Iterator<Item = &String>) -> Resolved {
        let mut found = BTreeMap::new();
        for url in urls.filter_map(|url| Url::parse(url).ok()) {
            if url.is_unix() || found.contains_key(&url.host) || url.host.parse::<IpAddr>().is_ok() {
                continue;
            }
            let looked_up = tokio::time::timeout(LOOK_UP, tokio::net::lookup_host((&url.host[..], url.port))).await;
            let addresses = looked_up.ok().and_then(Result::ok).into_iter().flatten();
            let addresses = addresses.map(|address| address.ip().to_canonical()).collect();
            found.insert(url.host, addresses);
        }
        Resolved(found)
    }

    fn addresses(&self, url: &Url) -> BTreeSet<IpAddr> {
        match url.host.parse::<IpAddr>() {
            Ok(address) => [address.to_canonical()].into(),
            Err(_) => self.0.get(&url.host).cloned().unwrap_or_default(),
        }
    }

    /// Whether two URLs lead to one place.
    fn are_one(&self, a: &str, b: &str) -> bool {
        let (Ok(one), Ok(other)) = (Url::parse(a), Url::parse(b)) else { return a == b };
        let alike = one.scheme == other.scheme && one.port == other.port;
        one.text == other.text || (alike && !self.addresses(&one).is_disjoint(&self.addresses(&other)))
    }

    /// Whether two lists lead to the same places, in any order.
    fn are_same(&self, a: &[String], b: &[String]) -> bool {
        let covers = |a: &[String], b: &[String]| a.iter().all(|one| b.iter().any(|other| self.are_one(one, other)));
        a.len() == b.len() && covers(a, b) && covers(b, a)
    }
}

/// Finds each member of the cluster in the flags, by its URLs, and this member among them.
fn own_member(ours: &str, named: &Named, remote: &Remote, resolved: &Resolved) -> Result<Member, Unjoined> {
    let cluster = in_gos_words(remote);
    if remote.members.len() != named.len() {
        return Err(Unjoined::Count { cluster });
    }
    let mut own = None;
    for (member, _) in &remote.members {
        match named.iter().find(|(_, urls)| resolved.are_same(&member.peer_urls, urls)) {
            Some((name, _)) if name == ours => own = Some(member.clone()),
            Some(_) => {}
            None => {
                let last = named.values().last().map_or_else(String::new, |urls| difference(&member.peer_urls, urls));
                return Err(Unjoined::NoMatch { cluster, member: member.id, urls: member.peer_urls.join(" "), last });
            }
        }
    }
    own.ok_or_else(|| Unjoined::NotAdded { cluster, name: ours.into() })
}

/// A cluster as etcd prints it.
fn in_gos_words(remote: &Remote) -> String {
    let list = |texts: &[String]| format!("[{}]", texts.join(" "));
    let member = |(member, learner): &(Member, bool)| {
        format!(
            "&{{ID:{:x} RaftAttributes:{{PeerURLs:{} IsLearner:{learner}}} Attributes:{{Name:{} ClientURLs:{}}}}}",
            member.id,
            list(&member.peer_urls),
            member.name,
            list(&member.client_urls)
        )
    };
    let members: Vec<String> = remote.members.iter().map(member).collect();
    format!("{{ClusterID:{:x} Members:[{}] RemovedMemberIDs:[]}}", remote.cluster, members.join(" "))
}

/// Asks at the URLs of all others, until one answers.
///
/// # Errors
/// Nobody did for ten seconds.
pub(super) async fn fetch(ours: &str, named: &Named, dialler: Option<&Dialler>) -> Result<Remote, Unjoined> {
    let mut urls: Vec<&String> = named.iter().filter(|(name, _)| *name != ours).flat_map(|(_, urls)| urls).collect();
    urls.sort_unstable();
    let until = Instant::now() + PATIENCE;
    let said = log::Seldom::default();
    loop {
        for url in urls.iter().filter_map(|url| Url::parse(url).ok()) {
            match Remote::at(&url, dialler).await {
                Ok(remote) => return Ok(remote),
                Err(error) if said.due(format!("{url} {error}")) => {
                    let fields = [("address", json!(format!("{url}/members"))), ("error", json!(error.to_string()))];
                    log::warn("failed to get cluster response", &fields);
                }
                Err(_) => {}
            }
        }
        if urls.is_empty() || Instant::now() + ASK_AGAIN >= until {
            return Err(Unjoined::Nobody);
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Who this member is, and all members as they were told.
struct Joining {
    identity: Identity,
    remote: Remote,
}

impl Start<'_> {
    /// The directory is empty, or joining was interrupted before anything was known.
    pub(super) fn joins(&self, files: &Arc<dyn Files>, found: &Found, created: Created) -> Result<Known, Failed> {
        let asked = self.runtime.block_on(async {
            let mut stops = Stops::listen().map_err(|error| failed("cannot listen for signals")(error.to_string()))?;
            let asked = tokio::select! {
                joining = self.finds_itself() => Ok(joining),
                number = stops.next() => Err(number),
            };
            Ok((stops, asked))
        })?;
        let (stops, joining) = match asked {
            (stops, Ok(Ok(joining))) => (stops, joining),
            (_, Ok(Err(error))) => {
                self.leave(created);
                return Err(failed(NOT_OURS)(error.to_string()));
            }
            (_, Err(signal)) => {
                self.leave(created);
                die_of(signal)
            }
        };
        let Joining { identity, remote } = joining;
        if let Found::Founding(before) = found
            && *before != identity
        {
            let text = format!(
                "a start that was interrupted was of member {:x} of cluster {:x}; remove the directory to join as \
                 member {:x} of cluster {:x}",
                before.member, before.cluster, identity.member, identity.cluster
            );
            return Err(self.failed(super::UNUSABLE, text));
        }
        log::info(
            "joining a cluster that runs",
            &[
                ("local-member-id", hex(identity.member)),
                ("cluster-id", hex(identity.cluster)),
                ("members", json!(remote.members.len())),
            ],
        );
        let write = |ready| identity::write(&**files, identity, ready).map_err(|error| self.failed(UNFOUNDED, error));
        write(false)?;
        node::join(files, identity, &self.config(identity, false), remote.members)
            .map_err(|fault| self.failed(UNFOUNDED, fault))?;
        write(true)?;
        Ok(Known { identity, late: false, greeter: None, stops: Some(stops) })
    }

    async fn finds_itself(&self) -> Result<Joining, Unjoined> {
        let options = self.options;
        let named = named(options)?;
        let remote = fetch(&options.name, &named, self.dialler.as_ref()).await?;
        let listed = remote.members.iter().flat_map(|(member, _)| &member.peer_urls);
        let resolved = Resolved::of(listed.chain(named.values().flatten())).await;
        let own = own_member(&options.name, &named, &remote, &resolved)?;
        let learners = remote.members.iter().filter(|(_, learner)| *learner).count();
        if learners > options.settings.max_learners {
            return Err(Unjoined::TooManyLearners);
        }
        let identity = Identity { cluster: remote.cluster, member: own.id };
        if !own.name.is_empty() || !own.client_urls.is_empty() {
            return Err(again(options, &own, "the cluster knows its name"));
        }
        let members: Vec<Member> = remote.members.iter().map(|(member, _)| member.clone()).collect();
        let asking = Asking { identity, boot: self.boot, members, founding: 0, dialler: self.dialler.clone() };
        match asking.greeting().await {
            Greeting::Welcome => Ok(Joining { identity, remote }),
            Greeting::Known { member } => Err(again(options, &own, &format!("member {member:x} has heard of it"))),
            Greeting::Removed { member } => Err(Unjoined::Before(super::was_removed(identity.member, member))),
            Greeting::Nobody(why) => Err(Unjoined::Incompatible(why)),
        }
    }
}

/// A member that has started before, and whose directory is empty now.
fn again(options: &Options, own: &Member, why: &str) -> Unjoined {
    Unjoined::Before(format!(
        "member {:x} has already been bootstrapped: {why}, and the data directory {} is empty. It would \
         forget what it has acknowledged. Put its directory back, or correct --data-dir. If it is lost: {}",
        own.id,
        options.data_dir.display(),
        super::way_out(own.id, &options.name, &own.peer_urls),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::parse;
    use crate::options::options;

    fn read(line: &str) -> Options {
        let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        options(&parse(&args, &[]).expect("parses"), 1).expect("valid")
    }

    fn remote(members: &[(u64, &str)]) -> Remote {
        let member = |(id, url): &(u64, &str)| {
            (Member { id: *id, peer_urls: vec![url.to_string()], ..Member::default() }, false)
        };
        Remote { cluster: 0xc, members: members.iter().map(member).collect() }
    }

    fn finds(cluster: &str, members: &[(u64, &str)]) -> Result<u64, Unjoined> {
        let options = read(&format!("--name b --initial-cluster {cluster}"));
        let named = named(&options)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let resolved = runtime.block_on(Resolved::of(named.values().flatten()));
        own_member("b", &named, &remote(members), &resolved).map(|member| member.id)
    }

    #[test]
    fn a_joiner_finds_itself_by_its_urls() {
        let members = [(7, "http://127.0.0.1:1"), (9, "http://127.0.0.1:2")];
        assert_eq!(finds("a=http://127.0.0.1:1,b=http://127.0.0.1:2", &members), Ok(9));
        assert_eq!(finds("a=http://127.0.0.1:1,b=http://localhost:2", &members), Ok(9), "names are looked up");
        let table = [
            ("a=http://127.0.0.1:1", "couldn't find local name \"b\" in the initial cluster configuration"),
            (
                "a=http://127.0.0.1:1,b=http://127.0.0.1:1",
                "initial cluster a=http://127.0.0.1:1,b=http://127.0.0.1:1 has duplicate url",
            ),
            (
                "b=http://127.0.0.1:2",
                "error validating peerURLs {ClusterID:c Members:[&{ID:7 RaftAttributes:{PeerURLs:[http://127.0.0.1:1] \
                 IsLearner:false} Attributes:{Name: ClientURLs:[]}} &{ID:9 RaftAttributes:{PeerURLs:[http://127.0.0.1:2] \
                 IsLearner:false} Attributes:{Name: ClientURLs:[]}}] RemovedMemberIDs:[]}: member count is unequal",
            ),
        ];
        for (cluster, text) in table {
            assert_eq!(finds(cluster, &members).expect_err(cluster).to_string(), text);
        }
        let other = finds("a=http://127.0.0.1:1,b=http://127.0.0.1:3", &members).expect_err("not it").to_string();
        let text = "PeerURLs: no match found for existing member (9, [http://127.0.0.1:2]), last resolver error \
                    (resolved urls: \"http://127.0.0.1:2\" != \"http://127.0.0.1:3\")";
        assert!(other.ends_with(text), "{other}");
    }
}
