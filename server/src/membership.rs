//! Log lines about members that come, go, get a vote and move, in etcd's words.

use crate::log::{self, hex, json};
use std::collections::BTreeMap;
use store::Member;

/// The members as they were when they were last told of. True: a learner.
#[derive(Default)]
pub(crate) struct Membership(Option<BTreeMap<u64, (Member, bool)>>);

/// One line.
#[derive(Debug, PartialEq, Eq)]
enum Change<'a> {
    Added(&'a Member, bool),
    Removed(&'a Member, bool),
    Promoted(u64),
    Updated(&'a Member, bool),
}

impl Membership {
    /// Tells what is not as it was. The members of the start are no news.
    pub(crate) fn tell(&mut self, cluster: u64, ours: u64, members: Vec<(Member, bool)>) {
        let now: BTreeMap<u64, (Member, bool)> = members.into_iter().map(|it| (it.0.id, it)).collect();
        if let Some(before) = &self.0 {
            let of_all = [("cluster-id", hex(cluster)), ("local-member-id", hex(ours))];
            for change in changes(before, &now) {
                let (text, own) = change.line();
                log::info(text, &[&of_all[..], &own].concat());
            }
        }
        self.0 = Some(now);
    }
}

fn changes<'a>(before: &'a BTreeMap<u64, (Member, bool)>, now: &'a BTreeMap<u64, (Member, bool)>) -> Vec<Change<'a>> {
    let gone = before.iter().filter(|(id, _)| !now.contains_key(id));
    let mut changes: Vec<Change> = gone.map(|(_, (member, learner))| Change::Removed(member, *learner)).collect();
    for (id, (member, learner)) in now {
        let Some((known, learned)) = before.get(id) else {
            changes.push(Change::Added(member, *learner));
            continue;
        };
        if *learned && !learner {
            changes.push(Change::Promoted(*id));
        }
        if known.peer_urls != member.peer_urls {
            changes.push(Change::Updated(member, *learner));
        }
    }
    changes
}

impl Change<'_> {
    fn line(&self) -> (&'static str, Vec<(&'static str, serde_json::Value)>) {
        match self {
            Change::Added(member, learner) => (
                "added member",
                vec![
                    ("added-peer-id", hex(member.id)),
                    ("added-peer-peer-urls", json!(member.peer_urls)),
                    ("added-peer-is-learner", json!(learner)),
                ],
            ),
            Change::Removed(member, learner) => (
                "removed member",
                vec![
                    ("removed-remote-peer-id", hex(member.id)),
                    ("removed-remote-peer-urls", json!(member.peer_urls)),
                    ("removed-remote-peer-is-learner", json!(learner)),
                ],
            ),
            Change::Promoted(id) => ("promote member", vec![("promoted-member-id", hex(*id))]),
            Change::Updated(member, learner) => (
                "updated member",
                vec![
                    ("updated-remote-peer-id", hex(member.id)),
                    ("updated-remote-peer-urls", json!(member.peer_urls)),
                    ("updated-remote-peer-is-learner", json!(learner)),
                ],
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_one_line() {
        let member =
            |id, url: &str| Member { id, peer_urls: vec![url.to_string()], name: "m".into(), ..Member::default() };
        let list = |members: &[(Member, bool)]| members.iter().map(|it| (it.0.id, it.clone())).collect();
        let before: BTreeMap<_, _> = list(&[(member(1, "a"), false), (member(2, "b"), true), (member(3, "c"), false)]);
        assert!(changes(&before, &before).is_empty());
        let now = list(&[(member(1, "x"), false), (member(2, "b"), false), (member(4, "d"), true)]);
        let told = changes(&before, &now);
        let (third, first, fourth) = (member(3, "c"), member(1, "x"), member(4, "d"));
        let wanted = [
            Change::Removed(&third, false),
            Change::Updated(&first, false),
            Change::Promoted(2),
            Change::Added(&fourth, true),
        ];
        assert_eq!(told, wanted);
        let lines: Vec<&str> = told.iter().map(|change| change.line().0).collect();
        assert_eq!(lines, ["removed member", "updated member", "promote member", "added member"]);
    }
}
