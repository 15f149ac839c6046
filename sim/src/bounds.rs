//! How much may be lost at a time: a majority of those who decide keeps all that it has, as the
//! membership stands now, stood before the newest change, and will stand behind the next one.

use crate::cluster::Sim;
use std::collections::BTreeSet;

impl Sim {
    /// Slots of those who vote.
    pub(crate) fn electorate(&self) -> Vec<usize> {
        let mut slots: Vec<usize> = self.oracle.voters().iter().filter_map(|id| self.position(*id)).collect();
        slots.sort_unstable();
        slots
    }

    /// Its disk has what was promised.
    fn is_whole(&self, who: usize) -> bool {
        !self.members[who].gone && !self.is_hurt(who) && !self.is_joining(who) && !self.is_late(who)
    }

    /// Its disk may be one that was emptied, as far as anybody can tell: it founded, or will found,
    /// when the others are beyond it, and has not caught up.
    pub(crate) fn is_late(&self, who: usize) -> bool {
        let disk = &self.members[who].disk;
        disk.has("log/late") || !disk.has("identity")
    }

    /// A majority of these is whole, even without one of them.
    fn is_kept(&self, voters: &BTreeSet<u64>, without: Option<usize>) -> bool {
        let slots = voters.iter().filter_map(|id| self.position(*id));
        let whole = slots.filter(|who| Some(*who) != without && self.is_whole(*who)).count();
        whole * 2 > voters.len()
    }

    /// Those who decide keep a majority without this one.
    fn may_do_without(&self, who: usize) -> bool {
        let now = self.oracle.electorates();
        let next = now.iter().map(|voters| self.behind_the_step(voters));
        now.iter().cloned().chain(next).all(|voters| self.is_kept(&voters, Some(who)))
    }

    /// A change that leads to these voters leaves a majority of them whole.
    pub(crate) fn may_become(&self, voters: &BTreeSet<u64>) -> bool {
        !self.is_quiet() && (!self.any_hurt() || self.is_kept(voters, None))
    }

    /// A disk that is gone for ever counts as a harmed one: the rest must hold what was promised.
    pub(crate) fn may_lose(&self, who: usize) -> bool {
        self.may_do_without(who)
    }

    /// One more disk may be harmed: a minority at most, with those that are lost for ever.
    pub(crate) fn may_hurt(&self, who: usize) -> bool {
        self.may_be_hurt(who) && self.may_do_without(who)
    }

    /// Its state may be lost, and nothing else: where nobody could give it another one it refuses
    /// to start, and an operator puts the state back.
    pub(crate) fn may_lose_state(&self, who: usize) -> bool {
        let lone = self.has_operator() && self.electorate() == [who] && self.operator_rests();
        self.may_hurt(who) || lone && self.may_be_hurt(who)
    }

    fn may_be_hurt(&self, who: usize) -> bool {
        let member = &self.members[who];
        member.up.is_some() && !self.is_hurt(who) && !self.is_joining(who) && !self.is_quiet()
    }

    /// Who falls behind: with the one that is hurt they are just a majority.
    pub(crate) fn behind(&self, who: usize) -> Vec<usize> {
        let voters = self.electorate();
        let n = voters.len();
        let later = voters.iter().copied().filter(|voter| *voter > who);
        let earlier = voters.iter().copied().filter(|voter| *voter < who);
        later.chain(earlier).filter(|&voter| !self.members[voter].gone).take(n / 2).collect()
    }
}
