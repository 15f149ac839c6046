//! Who belongs to the cluster, as the committed entries say: the oracle's own reading of them.

use bytes::Bytes;
use consensus::ConfChange;
use std::collections::BTreeSet;
use store::MemberChange;
use store::command::MemberChangeKind;

#[derive(Debug, Default)]
pub(crate) struct Confs {
    voters: BTreeSet<u64>,
    /// Before the newest change: a leader may commit with them before it has applied that.
    before: BTreeSet<u64>,
    learners: BTreeSet<u64>,
    removed: BTreeSet<u64>,
    /// It decides by itself until the others are removed.
    sole: Option<u64>,
    /// Everybody, from each index on.
    lists: Vec<(u64, Vec<u64>)>,
}

impl Confs {
    pub(crate) fn new(founders: usize, genesis: u64) -> Confs {
        let voters: BTreeSet<u64> = (1..=founders as u64).collect();
        let lists = vec![(genesis, voters.iter().copied().collect())];
        Confs { before: voters.clone(), voters, lists, ..Confs::default() }
    }

    /// The committed config entry at `index`. What is not understood changes nothing.
    pub(crate) fn apply(&mut self, index: u64, data: &Bytes) {
        let Some(change) = ConfChange::decode(data).ok() else { return };
        let Some(member) = MemberChange::decode(&change.context).ok() else { return };
        let id = member.member.id;
        let known = self.voters.contains(&id) || self.learners.contains(&id);
        self.before = self.voters.clone();
        match member.kind {
            _ if self.removed.contains(&id) => {}
            MemberChangeKind::AddVoter if !known => drop(self.voters.insert(id)),
            MemberChangeKind::AddLearner if !known => drop(self.learners.insert(id)),
            MemberChangeKind::Promote if self.learners.remove(&id) => drop(self.voters.insert(id)),
            MemberChangeKind::Remove if known => {
                self.voters.remove(&id);
                self.learners.remove(&id);
                self.removed.insert(id);
            }
            _ => {}
        }
        if self.sole.is_some_and(|sole| self.voters == BTreeSet::from([sole])) {
            (self.sole, self.before) = (None, self.voters.clone());
        }
        self.lists.push((index, self.voters.union(&self.learners).copied().collect()));
    }

    pub(crate) fn decides_alone(&mut self, id: u64) {
        self.sole = Some(id).filter(|id| self.voters != BTreeSet::from([*id]));
    }

    pub(crate) fn was_removed(&self, id: u64) -> bool {
        self.removed.contains(&id)
    }

    /// Those who hold an entry are a majority.
    pub(crate) fn is_quorum(&self, holders: &BTreeSet<u64>) -> bool {
        let most = |voters: &BTreeSet<u64>| holders.intersection(voters).count() * 2 > voters.len();
        match &self.sole {
            Some(sole) => holders.contains(sole),
            None => most(&self.voters) || most(&self.before),
        }
    }

    pub(crate) fn voters(&self) -> &BTreeSet<u64> {
        &self.voters
    }

    /// Those who vote now, and those before the newest change.
    pub(crate) fn electorates(&self) -> [BTreeSet<u64>; 2] {
        [self.voters.clone(), self.before.clone()]
    }

    /// These were the members at some index from `from` to `upto`.
    pub(crate) fn was_list(&self, from: u64, upto: u64, ids: &[u64]) -> bool {
        let first = self.lists.partition_point(|(index, _)| *index <= from).saturating_sub(1);
        self.lists[first..].iter().any(|(index, list)| *index <= upto && list == ids)
    }
}
