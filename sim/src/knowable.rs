//! Whether the members could know what a harmed disk lost, when all of them died with it.
//!
//! A disk that lost flushed writes leaves no trace, and after a power loss of all nobody remembers
//! what it acknowledged. An entry is saved if a quorum of the others has it, or if one of them
//! knows, durably, that it was committed. Where neither is so, the entry looks like one that was
//! never acknowledged: no store that survives the loss of a minority of its members can tell the
//! two apart.

use crate::cluster::Sim;
use crate::disk::{Disk, Speed};
use crate::rng::Rng;
use disk::{Log, LogOptions, OnDoubt};

impl Sim {
    /// Called when all are dead and the disk of `who` is harmed: an entry that may have been
    /// acknowledged is missing at a majority, and one of those may be elected.
    pub(crate) fn nobody_could_know(&self, who: usize) -> bool {
        let electorate = self.electorate();
        let quorum = electorate.len() / 2 + 1;
        let voters: Vec<usize> = electorate.into_iter().filter(|one| !self.members[*one].gone).collect();
        let mut ends: Vec<u64> = voters.iter().map(|&one| self.oracle.flushed(one).0).collect();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        let Some(&acknowledged) = ends.get(quorum - 1) else { return false };
        let others: Vec<(u64, u64)> =
            voters.iter().copied().filter(|&one| one != who).map(|one| self.oracle.flushed(one)).collect();
        let lacking: Vec<u64> = others.iter().map(|(end, _)| *end).filter(|end| *end < acknowledged).collect();
        if lacking.len() + 1 < quorum {
            return false;
        }
        let Some((end, commit)) = self.left_of_log(who) else { return false };
        let known = others.iter().map(|(_, commit)| *commit).chain([commit]).max().expect("its own");
        known < acknowledged && lacking.iter().chain([&end]).any(|end| (known..acknowledged).contains(end))
    }

    /// Last entry and commit index that a start from this disk would find, tried on a copy of it.
    /// None: the start itself sees that something is missing.
    fn left_of_log(&self, who: usize) -> Option<(u64, u64)> {
        let copy = Disk::new(Rng::new(1, "copy"), Speed { flush: 1, percent: 100 });
        copy.restore(&self.members[who].disk.durable_image(self.now));
        copy.begin(0, None);
        let config = self.config(who);
        let options =
            LogOptions { segment_bytes: config.log_segment_bytes, boot: config.kernel_boot, salt: config.log_salt };
        let (_, found) = Log::recover(copy.files(), self.identity(who), options, None, OnDoubt::Peers).ok()?;
        found.doubt.is_none().then_some((found.last.index, found.hard.commit))
    }
}
