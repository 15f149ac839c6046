//! Which founding the states of the members are of.
//!
//! The id of a cluster is computed from its flags, so a cluster that is founded again with the same
//! flags has the same id. Its first leader names the founding
//! (`store::command::encode_cluster_version`), and every connection tells the other side that name.
//! Members of different foundings do not hear each other: index and term of an entry mean the same
//! on two members only within one history.

use crate::ground::Ground;
use crate::io::*;
use crate::jobs::Task;
use std::collections::BTreeMap;

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

    /// The state may be of a founding that was not known before.
    pub(crate) fn turn(&mut self, g: &mut Ground) {
        let founding = g.store.founding();
        if founding != self.ours {
            self.compare(g);
        }
        if founding != 0 && founding != self.kept {
            // The state may be lost, and the log is then of this founding still.
            self.kept = founding;
            g.start(Task::Remember, BackgroundJob::Remember(Remembered::Founding(founding)));
        }
    }

    fn compare(&mut self, g: &mut Ground) {
        self.ours = g.store.founding();
        for (peer, theirs) in &self.heard {
            let theirs = theirs.unwrap_or(0);
            let apart = differ(self.ours, theirs);
            g.set_apart(*peer, apart);
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

    /// A majority of the voters is of another founding: nothing that happens here can make this
    /// state theirs.
    fn stop_if_alone(&self, g: &mut Ground) {
        let voters = &g.store.conf().voters;
        let of = |founding: u64| -> Vec<String> {
            let is_of = |voter: &&u64| self.heard.get(voter).copied().flatten() == Some(founding);
            voters.iter().filter(is_of).map(|voter| format!("{voter:x}")).collect()
        };
        let others = self.heard.values().flatten().filter(|founding| differ(self.ours, **founding));
        let mut majorities = others.map(|founding| (*founding, of(*founding)));
        let Some((founding, members)) = majorities.find(|(_, members)| members.len() * 2 > voters.len()) else {
            return;
        };
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
