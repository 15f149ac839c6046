//! Members that come and go: what the scripts ask for, and how a joiner begins.

use super::{CLUSTER, Cluster};
use disk::{Files, Identity};
use node::{Output, Request, alone, join};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use store::command::MemberChangeKind;
use store::{Member, MemberChange};
use testkit::files::MemFiles;

#[derive(Default)]
pub struct Members {
    /// Who belongs to the cluster, as each member last said.
    said: BTreeMap<u64, (Vec<u64>, BTreeSet<u64>)>,
}

fn member(id: u64, name: &str) -> Member {
    Member { id, name: name.into(), peer_urls: vec![format!("http://m{id}")], client_urls: vec![] }
}

/// A member as it is told: one without a name has not started yet.
pub fn named(member: &Member, learner: bool) -> String {
    let name = if member.name.is_empty() { format!("#{}", member.id) } else { member.name.clone() };
    let at = member.peer_urls.iter().find(|url| **url != format!("http://m{}", member.id));
    let at = at.map_or(String::new(), |url| format!(" at {url}"));
    format!("{name}{}{at}", if learner { " (learner)" } else { "" })
}

/// A request for a membership change; None: the words ask for none.
pub fn change(words: &[&str]) -> Option<Request> {
    let id = |word: &str| word.parse::<u64>().expect("an id");
    let (kind, member) = match words {
        ["add", who] => (MemberChangeKind::AddVoter, member(id(who), "")),
        ["add", who, "at", url] => {
            (MemberChangeKind::AddVoter, Member { peer_urls: vec![url.to_string()], ..member(id(who), "") })
        }
        ["learner", who] => (MemberChangeKind::AddLearner, member(id(who), "")),
        ["promote", who] => (MemberChangeKind::Promote, Member { id: id(who), ..Member::default() }),
        ["remove", who] => (MemberChangeKind::Remove, Member { id: id(who), ..Member::default() }),
        ["update", who, url] => {
            (MemberChangeKind::Update, Member { peer_urls: vec![url.to_string()], ..member(id(who), "") })
        }
        _ => return None,
    };
    Some(Request::ChangeMember { change: MemberChange { origin: None, kind, member } })
}

impl Cluster {
    /// Commands about members. False: it is none of them.
    pub fn member_command(&mut self, words: &[&str]) -> bool {
        match words {
            // An empty directory, and what the member before it in the list says of the others.
            ["join", id, "by", other] => self.join(id.parse().expect("id"), other.parse().expect("id")),
            // Its process is down; it is started afterwards.
            ["alone", id] => self.alone(id.parse().expect("id")),
            // The word of its operator, as `kvorum utl cut-tail --yes`.
            ["cut-tail", id] => self.cut_tail(id.parse().expect("id")),
            ["known", id] => {
                let (members, removed) = &self.members.said[&id.parse().expect("id")];
                let _ = writeln!(self.told, "{id}: knows {members:?}, removed {removed:?}");
            }
            // The port of another member refuses connections.
            ["gone", id, peer] => {
                let peer = peer.parse().expect("id");
                self.input(id.parse().expect("id"), node::Input::Gone { peer });
            }
            // As the hello of a member that does not know it any more.
            ["told-gone", id, "by", other] => {
                let by = other.parse().expect("id");
                self.input(id.parse().expect("id"), node::Input::Removed { by });
            }
            _ => return false,
        }
        true
    }

    pub fn who_belongs(&mut self, id: u64, members: &[(Member, bool)], removed: BTreeSet<u64>) {
        self.members.said.insert(id, (members.iter().map(|(member, _)| member.id).collect(), removed));
    }

    fn alone(&mut self, id: u64) {
        let (files, config) = (self.machines[&id].files.shared(), self.config(id));
        let mut said = Vec::new();
        if let Err(fault) = alone(&config, &files, &mut said) {
            let _ = writeln!(self.told, "{id}: does not go on alone: {fault}");
        }
        for output in said {
            if let Output::Note { level, text } = output {
                let _ = writeln!(self.told, "  {id}: {level:?}: {text}");
            }
        }
    }

    fn cut_tail(&mut self, id: u64) {
        let (files, config) = (self.machines[&id].files.shared(), self.config(id));
        let options = disk::LogOptions {
            segment_bytes: config.log_segment_bytes,
            boot: config.kernel_boot,
            salt: config.log_salt,
        };
        let _ = match node::offline::cut_tail(&files, Identity { cluster: CLUSTER, member: id }, options) {
            Ok(doubt) => writeln!(self.told, "{id}: cut {:?}", doubt.map(|doubt| doubt.at.what)),
            Err(fault) => writeln!(self.told, "{id}: nothing is cut: {fault}"),
        };
    }

    fn join(&mut self, id: u64, by: u64) {
        let ids = self.members.said[&by].0.clone();
        let members = ids.into_iter().map(|id| (member(id, ""), false)).collect();
        let files = MemFiles::new();
        let config = self.config(id);
        let shared: Arc<dyn Files> = files.shared();
        join(&shared, Identity { cluster: CLUSTER, member: id }, &config, members).expect("an empty disk");
        self.open(id, files, config);
    }

    pub fn ends_removed(&mut self, id: u64) {
        let _ = writeln!(self.told, "{id}: removed, ends");
        self.machines.get_mut(&id).expect("member").down = true;
    }
}
