//! Places on the peer port: members have their own, and strangers share a few.
//!
//! Whoever connects is a stranger until its hello was found good. When the places of strangers are
//! taken, the newcomer gets that of the oldest one, of the address that holds most of them: a
//! member says hello at once, and is a stranger only for as long as that takes. A member has places
//! for several connections, since a broken one is noticed late; the newest ones count.

use crate::sockets::Origin;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::oneshot;

/// Connections of one member: three lines and the question of a founder, and what is left of
/// earlier ones.
const OF_A_MEMBER: usize = 16;

/// One connection that holds a place. Its sender, dropped, cuts it.
struct Holder {
    id: u64,
    from: Origin,
    _cut: oneshot::Sender<()>,
}

#[derive(Default)]
struct Taken {
    next: u64,
    /// Oldest first.
    strangers: VecDeque<Holder>,
    members: BTreeMap<u64, VecDeque<Holder>>,
}

/// All of them on one port.
pub(super) struct Places {
    most_strangers: usize,
    taken: Mutex<Taken>,
}

/// One place; free again when this goes.
pub(super) struct Place {
    places: Arc<Places>,
    id: u64,
    member: Option<u64>,
}

impl Places {
    pub(super) fn new(most_strangers: usize) -> Arc<Places> {
        Arc::new(Places { most_strangers, taken: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A place for a stranger. The receiver ends when it is wanted for another one. True: another
    /// one lost its place for this.
    pub(super) fn enter(self: &Arc<Self>, from: Origin) -> (Place, oneshot::Receiver<()>, bool) {
        let (cut, wanted) = oneshot::channel();
        let mut taken = self.taken();
        let full = taken.strangers.len() >= self.most_strangers;
        if full {
            taken.drop_a_stranger();
        }
        taken.next += 1;
        let id = taken.next;
        taken.strangers.push_back(Holder { id, from: from.source(), _cut: cut });
        drop(taken);
        (Place { places: self.clone(), id, member: None }, wanted, full)
    }
}

impl Taken {
    /// The oldest one of the address that holds most places.
    fn drop_a_stranger(&mut self) {
        let mut held: BTreeMap<Origin, usize> = BTreeMap::new();
        for holder in &self.strangers {
            *held.entry(holder.from).or_default() += 1;
        }
        let greedy = held.into_iter().max_by_key(|(_, count)| *count).map(|(from, _)| from);
        let at = self.strangers.iter().position(|holder| Some(holder.from) == greedy);
        at.and_then(|at| self.strangers.remove(at));
    }
}

impl Place {
    /// It is a member's from now on.
    pub(super) fn of_member(&mut self, member: u64) {
        let mut taken = self.places.taken();
        let at = taken.strangers.iter().position(|holder| holder.id == self.id);
        // Another one may have got it in this moment: then this connection is cut already.
        let Some(holder) = at.and_then(|at| taken.strangers.remove(at)) else { return };
        let of_member = taken.members.entry(member).or_default();
        if of_member.len() >= OF_A_MEMBER {
            of_member.pop_front();
        }
        of_member.push_back(holder);
        self.member = Some(member);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        let holders = match self.member {
            None => Some(&mut taken.strangers),
            Some(member) => taken.members.get_mut(&member),
        };
        if let Some(holders) = holders {
            holders.retain(|holder| holder.id != self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn from(last: u8) -> Origin {
        Origin::Host(Ipv4Addr::new(10, 0, 0, last).into())
    }

    fn is_cut(wanted: &mut oneshot::Receiver<()>) -> bool {
        !matches!(wanted.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    #[test]
    fn a_newcomer_takes_the_place_of_the_oldest_of_the_greediest() {
        let places = Places::new(4);
        let mut crowd: Vec<_> = [1, 2, 2, 2].into_iter().map(|last| places.enter(from(last))).collect();
        let (_place, mut wanted, displaced) = places.enter(from(3));
        assert!(displaced && !is_cut(&mut wanted));
        let cut: Vec<bool> = crowd.iter_mut().map(|(_, wanted, _)| is_cut(wanted)).collect();
        assert_eq!(cut, [false, true, false, false]);
    }

    #[test]
    fn strangers_do_not_touch_members_and_the_newest_lines_of_a_member_count() {
        let places = Places::new(2);
        let mut lines: Vec<_> = (0..=OF_A_MEMBER)
            .map(|_| {
                let (mut place, wanted, _) = places.enter(from(1));
                place.of_member(7);
                (place, wanted)
            })
            .collect();
        let _strangers: Vec<_> = (0..10).map(|_| places.enter(from(1))).collect();
        let cut: Vec<bool> = lines.iter_mut().map(|(_, wanted)| is_cut(wanted)).collect();
        assert_eq!(cut.iter().filter(|cut| **cut).count(), 1);
        assert!(cut[0], "the oldest one");
        lines.clear();
        assert!(places.taken().members[&7].is_empty());
    }
}
