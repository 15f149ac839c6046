//! Which founding the states of the members are of.
//!
//! The id of a cluster is computed from its flags, so a cluster that is founded again with the same
//! flags has the same id. Its first leader names the founding
//! (`store::command::encode_cluster_version`), and every connection tells the other side that name.
//! Members of different foundings do not hear each other: index and term of an entry mean the same
//! on two members only within one history.
//!
//! A member without a name is of the founding that a majority names, or the leader that it follows.
//! If it meets two foundings before it knows, it hears neither: it would decide between them.

use crate::ground::Ground;
use crate::io::*;
use crate::jobs::Task;
use std::collections::{BTreeMap, BTreeSet};

/// True: both are known, and they are not the same. 0: not known.
pub fn differ(one: u64, other: u64) -> bool {
    one != 0 && other != 0 && one != other
}

#[derive(Default)]
pub(crate) struct Foundings {
    /// What each peer said when the last connection was made. None: its version knows of no
    /// founding.
    heard: BTreeMap<u64, Option<u64>>,
    /// Of this member, when it was last compared with the others'.
    ours: u64,
    /// Of the leader that this member followed without a name of its own; 0: of none.
    followed: u64,
    /// The foundings between which it was told that this member stands.
    between: BTreeSet<u64>,
    /// Peers of which it was said that they are of another one, and of which.
    told: BTreeMap<u64, u64>,
    /// The term in which this member as leader has named the founding.
    named: u64,
    /// What is remembered beside the log.
    kept: u64,
}

impl Foundings {
    /// `kept`: what is remembered beside the log; 0: nothing.
    pub(crate) fn new(kept: u64) -> Foundings {
        Foundings { kept, ..Foundings::default() }
    }

    /// A connection was made, or was refused because of what was said on it.
    pub(crate) fn met(&mut self, g: &mut Ground, peer: u64, founding: Option<u64>) {
        if self.heard.insert(peer, founding) != Some(founding) {
            self.compare(g);
        }
    }

    /// The connection to a peer broke. As long as this member knows no name, a peer that is gone
    /// does not stand in the way of the others.
    pub(crate) fn lost(&mut self, g: &mut Ground, peer: u64) {
        if self.ours == 0 && self.heard.remove(&peer).is_some() {
            g.set_apart(peer, false);
            self.compare(g);
        }
    }

    /// The state may be of a founding that was not known before, or a leader is followed.
    pub(crate) fn turn(&mut self, g: &mut Ground) {
        let founding = g.store.founding();
        if founding == 0 && g.leader != g.config.member && !g.is_apart(g.leader) {
            let followed = self.heard.get(&g.leader).copied().flatten().unwrap_or(0);
            self.followed = if followed == 0 { self.followed } else { followed };
        }
        if self.known(g) != self.ours {
            self.compare(g);
        }
        if founding != 0 && founding != self.kept {
            // The state may be lost, and the log is then of this founding still.
            self.kept = founding;
            g.start(Task::Remember, BackgroundJob::Remember(Remembered::Founding(founding)));
        }
    }

    /// Which founding this member is of, as far as that is known. 0: not.
    fn known(&self, g: &Ground) -> u64 {
        match g.store.founding() {
            0 => self.majority(g, 0).map_or(self.followed, |(founding, _)| founding),
            founding => founding,
        }
    }

    fn compare(&mut self, g: &mut Ground) {
        self.ours = self.known(g);
        let between = self.stands_between(g);
        for (peer, theirs) in &self.heard {
            let theirs = theirs.unwrap_or(0);
            let apart = differ(self.ours, theirs);
            g.set_apart(*peer, apart || between && theirs != 0);
            if apart && self.told.insert(*peer, theirs) != Some(theirs) {
                let text = format!(
                    "member {peer:x} is of another founding, {theirs:016x}; the data directory of this member is of \
                     founding {:016x}: they do not hear each other. One of the two directories is of a cluster that \
                     was founded before or beside this one with the same flags, or that went on without the other \
                     one (--force-new-cluster): stop the member that the others do not agree with, and put its \
                     own directory back, or start it with an empty one",
                    self.ours
                );
                g.note(Level::Error, text);
            }
        }
        self.stop_if_alone(g);
    }

    /// Whether this member meets two foundings and does not know of which one it is.
    fn stands_between(&mut self, g: &mut Ground) -> bool {
        let names: BTreeSet<u64> = self.heard.values().flatten().copied().filter(|name| *name != 0).collect();
        if self.ours != 0 || names.len() < 2 {
            self.between.clear();
            return false;
        }
        let members = |name: &u64| {
            let of = self.heard.iter().filter(|(_, theirs)| **theirs == Some(*name));
            let ids: Vec<String> = of.map(|(peer, _)| format!("{peer:x}")).collect();
            format!("{} of founding {name:016x}", ids.join(", "))
        };
        let text = format!(
            "members are of different foundings: {}. The data directory of this member does not say of which one it \
             is, and it would decide between them: it hears none of them. Stop the member whose directory is the \
             wrong one, and put its own directory back, or start it with an empty one; this member then goes on with \
             the others",
            names.iter().map(members).collect::<Vec<_>>().join(", ")
        );
        if self.between != names {
            self.between = names;
            g.note(Level::Error, text);
        }
        true
    }

    /// The founding, other than `than`, that a majority of the voters is of, and those members.
    fn majority(&self, g: &Ground, than: u64) -> Option<(u64, Vec<u64>)> {
        let voters = &g.store.conf().voters;
        let named = self.heard.values().flatten().filter(|founding| **founding != 0 && **founding != than);
        let of = |founding: u64| -> Vec<u64> {
            let is_of = |voter: &u64| self.heard.get(voter).copied().flatten() == Some(founding);
            voters.iter().copied().filter(is_of).collect()
        };
        named.map(|founding| (*founding, of(*founding))).find(|(_, members)| members.len() * 2 > voters.len())
    }

    /// A majority of the voters is of another founding: nothing that happens here can make this
    /// state theirs.
    fn stop_if_alone(&self, g: &mut Ground) {
        if g.store.founding() == 0 {
            return;
        }
        let Some((founding, members)) = self.majority(g, self.ours) else { return };
        let members: Vec<String> = members.iter().map(|member| format!("{member:x}")).collect();
        g.fatal(format!(
            "the data directory of this member is of founding {:016x}; members {}, a majority, are of founding \
             {founding:016x}: the cluster was founded again, or the directory is another cluster's. Nothing is \
             changed. Put the directory of founding {founding:016x} back; or move this one aside and start with an \
             empty one",
            self.ours,
            members.join(", ")
        ));
    }

    /// The name that this member, which leads, is to propose with the cluster's version. 0: none.
    ///
    /// A cluster without a version is being founded. Any other was founded before foundings had
    /// names; it gets one when all its voters know of them, as a member that does not would have
    /// another state.
    pub(crate) fn names(&mut self, g: &Ground) -> u64 {
        let knows = |voter: &u64| matches!(self.heard.get(voter), Some(Some(_)));
        let new = g.store.cluster_version().is_empty();
        let may = g.is_leader() && g.store.applied().term == g.term && g.store.founding() == 0;
        if !may || self.named == g.term || !(new || g.voters().iter().all(knows)) {
            return 0;
        }
        self.named = g.term;
        g.config.founding
    }
}
