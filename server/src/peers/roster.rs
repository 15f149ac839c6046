//! Who is spoken to: the members that the core names, and guests.
//!
//! The core names the members and the removed ones (`node::Output::Members`), and whoever is here
//! follows: links begin, change their URLs, and end. A member whose addition is not applied here
//! yet is a guest: it says hello with the URLs where it is called, and is answered there. Which of
//! its frames are heard is for the core to say. A guest stays until the core names it, or until it
//! has no connection to this member any more.

use super::hello::{Hello, Standing};
use super::queue::Queue;
use crate::budgets::Budgets;
use disk::urls::Url;
use node::frame::{Connection, Lane};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use store::Member;
use tokio::sync::{Notify, watch};

/// Most guests at once. A cluster changes by one member at a time, and a member that was away for
/// long may miss a few changes.
pub(super) const MOST_GUESTS: usize = 16;

/// How long connections outlive the word that one is spoken to no more. A removed member that
/// applies its removal in this time answers the client who asked it.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Where one is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Addresses {
    /// As the cluster has them; none of a guest.
    agreed: Vec<String>,
    /// Those that its own hello named beside them: it may have moved, and that is not applied here.
    named: Vec<String>,
    /// What the member calls itself; empty: that is not known here.
    name: String,
}

impl Addresses {
    /// The one to try behind `failures` others. None: there is none at all.
    pub(super) fn nth(&self, failures: usize) -> Option<String> {
        let all = self.agreed.len() + self.named.len();
        let at = failures.checked_rem(all)?;
        self.agreed.iter().chain(&self.named).nth(at).cloned()
    }

    /// The one that [`Addresses::nth`] gives is the cluster's.
    pub(super) fn is_agreed(&self, failures: usize) -> bool {
        failures.checked_rem(self.count()).is_some_and(|at| at < self.agreed.len())
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.agreed.len() + self.named.len()
    }

    fn add(&mut self, urls: &[String]) -> bool {
        let named: Vec<String> = urls.iter().filter(|url| !self.agreed.contains(url)).cloned().collect();
        std::mem::replace(&mut self.named, named) != self.named
    }
}

/// The queues of the lines to one that is spoken to.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) urgent: Arc<Queue>,
    pub(super) log: Arc<Queue>,
    pub(super) bulk: Arc<Queue>,
}

impl Link {
    /// Where a frame of this lane waits. A member of an earlier version takes no line for what is
    /// urgent, and gets it with the log.
    pub(super) fn queue(&self, lane: Lane) -> &Arc<Queue> {
        match lane.connection() {
            Connection::Urgent if self.urgent.is_open() => &self.urgent,
            Connection::Urgent | Connection::Log => &self.log,
            Connection::Bulk => &self.bulk,
        }
    }
}

/// One that is spoken to, as its connections see it.
#[derive(Clone)]
pub(super) struct Peer {
    pub(super) id: u64,
    /// Its id as a label of metrics.
    pub(super) label: Arc<str>,
    pub(super) link: Link,
    /// Wakes the dialler when it has just dialled us.
    pub(super) nudge: Arc<Notify>,
    addresses: watch::Receiver<Addresses>,
}

impl Peer {
    pub(super) fn addresses(&self) -> Addresses {
        self.addresses.borrow().clone()
    }

    /// What it calls itself, as far as that is known here.
    pub(super) fn name(&self) -> String {
        self.addresses.borrow().name.clone()
    }

    /// Until it is neither a member nor a guest any more, and a moment longer: what was sent to it
    /// before tells it so.
    pub(super) async fn gone(&self) {
        let mut addresses = self.addresses.clone();
        while addresses.changed().await.is_ok() {}
        tokio::time::sleep(LAST_WORDS).await;
    }
}

/// One that is spoken to, as the roster keeps it. Its connections end with it.
struct Known {
    peer: Peer,
    addresses: watch::Sender<Addresses>,
}

impl Known {
    fn new(id: u64, addresses: Addresses, budgets: &Arc<Budgets>) -> Known {
        let queue = || Arc::new(Queue::new(budgets));
        let (sender, receiver) = watch::channel(addresses);
        let peer = Peer {
            id,
            label: format!("{id:x}").into(),
            link: Link { urgent: queue(), log: queue(), bulk: queue() },
            nudge: Arc::default(),
            addresses: receiver,
        };
        Known { peer, addresses: sender }
    }
}

struct Guest {
    known: Known,
    /// Those that it has dialled.
    connections: usize,
    /// What its hello said.
    founding: Option<u64>,
}

#[derive(Default)]
struct Lists {
    members: BTreeMap<u64, Known>,
    removed: BTreeSet<u64>,
    guests: BTreeMap<u64, Guest>,
}

/// See the module.
pub(super) struct Roster {
    ours: u64,
    budgets: Arc<Budgets>,
    lists: Mutex<Lists>,
}

/// A connection of a guest. The guest goes with its last one.
pub(super) struct Seat {
    roster: Arc<Roster>,
    guest: u64,
}

/// What a hello came to.
pub(super) enum Entered {
    /// `seat` None: it is a member.
    Peer { peer: Peer, seat: Option<Seat> },
    /// A guest that was not there before: its lines are to be dialled.
    New { peer: Peer, seat: Seat },
    /// There are too many guests.
    Full,
}

/// What the core's word changed.
#[derive(Default)]
pub(super) struct Changed {
    /// Their lines are to be dialled.
    pub(super) new: Vec<Peer>,
    /// Guests that are members now, and the foundings that they said.
    pub(super) named: Vec<(u64, Option<u64>)>,
}

impl Roster {
    pub(super) fn new(ours: u64, budgets: &Arc<Budgets>) -> Arc<Roster> {
        Arc::new(Roster { ours, budgets: budgets.clone(), lists: Mutex::default() })
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes over who belongs to the cluster.
    pub(super) fn follow(&self, members: &[(Member, bool)], removed: &BTreeSet<u64>) -> Changed {
        let mut changed = Changed::default();
        let mut lists = self.lists();
        lists.removed.clone_from(removed);
        lists.guests.retain(|id, _| !removed.contains(id));
        lists.members.retain(|id, _| members.iter().any(|(member, _)| member.id == *id));
        for (member, _) in members.iter().filter(|(member, _)| member.id != self.ours) {
            let guest = lists.guests.remove(&member.id);
            if let Some(guest) = &guest {
                changed.named.push((member.id, guest.founding));
            }
            let known = lists.members.entry(member.id).or_insert_with(|| match guest {
                Some(guest) => guest.known,
                None => {
                    let known = Known::new(member.id, Addresses::default(), &self.budgets);
                    changed.new.push(known.peer.clone());
                    known
                }
            });
            known.addresses.send_if_modified(|addresses| {
                let differs = addresses.agreed != member.peer_urls || addresses.name != member.name;
                addresses.agreed.clone_from(&member.peer_urls);
                addresses.name.clone_from(&member.name);
                let named = std::mem::take(&mut addresses.named);
                addresses.add(&named);
                differs
            });
        }
        changed
    }

    /// All members but this one.
    pub(super) fn links(&self) -> BTreeMap<u64, Link> {
        self.lists().members.iter().map(|(id, known)| (*id, known.peer.link.clone())).collect()
    }

    /// Of one that is no member.
    pub(super) fn guest_link(&self, id: u64) -> Option<Link> {
        self.lists().guests.get(&id).map(|guest| guest.known.peer.link.clone())
    }

    pub(super) fn standing(&self, id: u64) -> Standing {
        let lists = self.lists();
        match (lists.members.contains_key(&id), lists.removed.contains(&id)) {
            (true, _) => Standing::Member,
            (false, true) => Standing::Removed,
            (false, false) => Standing::Stranger,
        }
    }

    pub(super) fn is_member(&self, id: u64) -> bool {
        self.standing(id) == Standing::Member
    }

    /// The peer URLs of a member as the cluster has them, and those of all other members.
    pub(super) fn urls(&self, id: u64) -> (Vec<String>, Vec<String>) {
        let lists = self.lists();
        let agreed = |known: &Known| known.peer.addresses().agreed;
        let others = lists.members.iter().filter(|(other, _)| **other != id);
        (lists.members.get(&id).map(agreed).unwrap_or_default(), others.flat_map(|(_, known)| agreed(known)).collect())
    }

    /// One whose hello was found good connects.
    pub(super) fn enter(self: &Arc<Self>, hello: &Hello) -> Entered {
        let urls: Vec<String> = hello.urls.iter().filter(|url| Url::parse(url).is_ok()).cloned().collect();
        let mut lists = self.lists();
        if let Some(known) = lists.members.get(&hello.from) {
            known.addresses.send_if_modified(|addresses| addresses.add(&urls));
            return Entered::Peer { peer: known.peer.clone(), seat: None };
        }
        let seat = || Seat { roster: self.clone(), guest: hello.from };
        if let Some(guest) = lists.guests.get_mut(&hello.from) {
            guest.connections += 1;
            guest.founding = hello.founding;
            guest.known.addresses.send_if_modified(|addresses| addresses.add(&urls));
            return Entered::Peer { peer: guest.known.peer.clone(), seat: Some(seat()) };
        }
        if lists.guests.len() >= MOST_GUESTS {
            return Entered::Full;
        }
        let addresses = Addresses { named: urls, ..Addresses::default() };
        let known = Known::new(hello.from, addresses, &self.budgets);
        let peer = known.peer.clone();
        lists.guests.insert(hello.from, Guest { known, connections: 1, founding: hello.founding });
        Entered::New { peer, seat: seat() }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut lists = self.roster.lists();
        let Some(guest) = lists.guests.get_mut(&self.guest) else { return };
        guest.connections = guest.connections.saturating_sub(1);
        if guest.connections == 0 {
            lists.guests.remove(&self.guest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::{Line, hello};

    fn member(id: u64, port: u16) -> (Member, bool) {
        (Member { id, peer_urls: vec![format!("http://127.0.0.1:{port}")], ..Member::default() }, false)
    }

    fn hello(from: u64, urls: &[&str]) -> Hello {
        Hello {
            level: hello::WIRE_LEVEL,
            cluster: 1,
            from,
            to: 1,
            boot: 1,
            line: Line::Log,
            etcd_level: String::new(),
            founding: Some(5),
            urls: urls.iter().map(ToString::to_string).collect(),
        }
    }

    fn roster() -> Arc<Roster> {
        Roster::new(1, &Budgets::new(crate::budgets::Limits::default()))
    }

    fn ids(changed: &Changed) -> Vec<u64> {
        changed.new.iter().map(|peer| peer.id).collect()
    }

    #[tokio::test]
    async fn links_follow_the_members() {
        let roster = roster();
        let changed = roster.follow(&[member(1, 1), member(2, 2), member(3, 3)], &BTreeSet::new());
        assert_eq!(ids(&changed), [2, 3]);
        let [two, three] = &changed.new[..] else { panic!("two of them") };
        assert_eq!(two.addresses().nth(5), Some("http://127.0.0.1:2".into()));
        let again = roster.follow(&[member(1, 1), member(2, 7)], &[3].into());
        assert!(ids(&again).is_empty());
        assert_eq!(two.addresses().nth(0), Some("http://127.0.0.1:7".into()), "it moved");
        three.gone().await;
        let here = tokio::time::timeout(std::time::Duration::from_millis(10), two.gone()).await;
        assert!(here.is_err(), "it is a member still");
        assert_eq!(roster.links().keys().copied().collect::<Vec<_>>(), [2]);
        let standings = [2, 3, 4].map(|id| roster.standing(id));
        assert_eq!(standings, [Standing::Member, Standing::Removed, Standing::Stranger]);
    }

    #[test]
    fn a_member_is_called_where_it_says_after_where_the_cluster_says() {
        let roster = roster();
        let changed = roster.follow(&[member(2, 2)], &BTreeSet::new());
        let moved = hello(2, &["http://127.0.0.1:2", "http://127.0.0.1:7", "nonsense"]);
        assert!(matches!(roster.enter(&moved), Entered::Peer { seat: None, .. }));
        let tried: Vec<String> = (0..3).filter_map(|n| changed.new[0].addresses().nth(n)).collect();
        assert_eq!(tried, ["http://127.0.0.1:2", "http://127.0.0.1:7", "http://127.0.0.1:2"]);
        roster.follow(&[member(2, 7)], &BTreeSet::new());
        assert_eq!(
            changed.new[0].addresses(),
            Addresses { agreed: vec!["http://127.0.0.1:7".into()], ..Addresses::default() }
        );
    }

    #[tokio::test]
    async fn a_guest_becomes_a_member_or_goes_with_its_last_connection() {
        let roster = roster();
        let Entered::New { peer, seat } = roster.enter(&hello(7, &["http://127.0.0.1:7"])) else { panic!("new") };
        let Entered::Peer { seat: Some(second), .. } = roster.enter(&hello(7, &["http://127.0.0.1:8"])) else {
            panic!("known")
        };
        assert_eq!(peer.addresses().nth(0), Some("http://127.0.0.1:8".into()));
        drop(seat);
        let link = roster.guest_link(7).expect("still a guest");
        assert!(!roster.is_member(7));
        // Its queues and connections stay when the core names it.
        let changed = roster.follow(&[member(7, 8)], &BTreeSet::new());
        assert_eq!((ids(&changed), &changed.named[..]), (vec![], &[(7, Some(5))][..]));
        assert!(Arc::ptr_eq(&link.log, &roster.links()[&7].log));
        drop(second);
        assert!(roster.is_member(7));

        let Entered::New { peer, seat } = roster.enter(&hello(8, &["http://127.0.0.1:9"])) else { panic!("new") };
        drop(seat);
        peer.gone().await;
        assert!(roster.guest_link(8).is_none());
        // One that was removed meanwhile is a guest no more.
        let Entered::New { peer, .. } = roster.enter(&hello(9, &["http://127.0.0.1:9"])) else { panic!("new") };
        roster.follow(&[], &[9].into());
        peer.gone().await;
        assert_eq!(roster.standing(9), Standing::Removed);
    }

    #[test]
    fn guests_are_few() {
        let roster = roster();
        let entered: Vec<Entered> =
            (100..100 + MOST_GUESTS as u64).map(|id| roster.enter(&hello(id, &["http://127.0.0.1:9"]))).collect();
        assert!(entered.iter().all(|entered| matches!(entered, Entered::New { .. })));
        assert!(matches!(roster.enter(&hello(99, &["http://127.0.0.1:9"])), Entered::Full));
        drop(entered);
        assert!(matches!(roster.enter(&hello(99, &["http://127.0.0.1:9"])), Entered::New { .. }));
    }
}
