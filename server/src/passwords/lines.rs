//! Whose turn it is: a line for each source, and the lines take turns.

use crate::sockets::Origin;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::oneshot;

/// Too many wait, and whoever asks has at least as many of them as others.
#[derive(Debug)]
pub(super) struct Crowded;

/// When the work may begin.
pub(super) enum Turn {
    Now(Permit),
    /// An error: the place was wanted for a shorter line.
    Later(oneshot::Receiver<Permit>),
}

/// May work; passed on when it goes.
#[derive(Debug)]
pub(super) struct Permit(Arc<Lines>);

/// All that wait.
#[derive(Debug)]
pub(super) struct Lines {
    most: usize,
    state: Mutex<State>,
}

/// None: a source that nobody knows.
type Source = Option<Origin>;

#[derive(Debug, Default)]
struct State {
    free: usize,
    waiting: usize,
    lines: BTreeMap<Source, VecDeque<oneshot::Sender<Permit>>>,
    /// The lines that there are, in the order of their turns.
    turns: VecDeque<Source>,
}

impl Lines {
    /// So many work at once, and at most so many wait.
    pub(super) fn new(free: usize, most: usize) -> Arc<Lines> {
        Arc::new(Lines { most, state: Mutex::new(State { free, ..State::default() }) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits in the line of its source.
    ///
    /// # Errors
    /// See [`Crowded`].
    pub(super) fn enter(self: &Arc<Self>, from: Source) -> Result<Turn, Crowded> {
        let mut state = self.state();
        if state.free > 0 {
            state.free -= 1;
            return Ok(Turn::Now(Permit(self.clone())));
        }
        if state.waiting >= self.most {
            state.forget_who_left();
        }
        if state.waiting >= self.most {
            state.make_room(from)?;
        }
        Ok(Turn::Later(state.push(from)))
    }
}

impl State {
    fn push(&mut self, from: Source) -> oneshot::Receiver<Permit> {
        let (turn, waiting) = oneshot::channel();
        let line = self.lines.entry(from).or_default();
        if line.is_empty() {
            self.turns.push_back(from);
        }
        line.push_back(turn);
        self.waiting += 1;
        waiting
    }

    /// The first of the line whose turn it is.
    fn pop(&mut self) -> Option<oneshot::Sender<Permit>> {
        let from = self.turns.pop_front()?;
        let line = self.lines.get_mut(&from)?;
        let first = line.pop_front();
        if line.is_empty() {
            self.lines.remove(&from);
        } else {
            self.turns.push_back(from);
        }
        self.waiting -= usize::from(first.is_some());
        first
    }

    fn forget_who_left(&mut self) {
        self.lines.values_mut().for_each(|line| line.retain(|turn| !turn.is_closed()));
        self.lines.retain(|_, line| !line.is_empty());
        self.turns.retain(|from| self.lines.contains_key(from));
        self.waiting = self.lines.values().map(VecDeque::len).sum();
    }

    /// The last of the longest line goes.
    fn make_room(&mut self, from: Source) -> Result<(), Crowded> {
        let mine = self.lines.get(&from).map_or(0, VecDeque::len);
        let longest = self.lines.values_mut().max_by_key(|line| line.len());
        // Whoever waits there would be the next to go if the two were as long.
        let longest = longest.filter(|line| line.len() > mine + 1).ok_or(Crowded)?;
        longest.pop_back();
        self.waiting -= 1;
        Ok(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        loop {
            let next = {
                let mut state = self.0.state();
                let Some(next) = state.pop() else {
                    state.free += 1;
                    return;
                };
                next
            };
            // One that has left is passed over. If it leaves now, the permit comes back here.
            if !next.is_closed() {
                let _ = next.send(Permit(self.0.clone()));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(last: u8) -> Source {
        Some(Origin::Host([10, 0, 0, last].into()))
    }

    fn later(lines: &Arc<Lines>, last: u8) -> oneshot::Receiver<Permit> {
        match lines.enter(from(last)) {
            Ok(Turn::Later(turn)) => turn,
            Ok(Turn::Now(_)) => panic!("there is no room"),
            Err(Crowded) => panic!("{last} is refused"),
        }
    }

    fn now(lines: &Arc<Lines>) -> Permit {
        match lines.enter(None) {
            Ok(Turn::Now(permit)) => permit,
            _ => panic!("there is room"),
        }
    }

    #[test]
    fn lines_take_turns() {
        let lines = Lines::new(1, 8);
        let first = now(&lines);
        let mut waiting =
            [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (3, 0)].map(|(last, n)| (last, n, later(&lines, last)));
        drop(first);
        let mut order = Vec::new();
        for _ in 0..waiting.len() {
            for (last, n, turn) in &mut waiting {
                // The permit is passed on before the next look.
                if let Ok(permit) = turn.try_recv() {
                    order.push((*last, *n));
                    drop(permit);
                    break;
                }
            }
        }
        assert_eq!(order, [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (1, 2)]);
        assert_eq!(lines.state().free, 1);
        assert!(lines.state().lines.is_empty() && lines.state().turns.is_empty());
    }

    #[test]
    fn a_full_house_makes_room_for_the_shorter_line() {
        let lines = Lines::new(1, 4);
        let _first = now(&lines);
        let mut crowd: Vec<_> = (0..4).map(|_| later(&lines, 1)).collect();
        assert!(lines.enter(from(1)).is_err(), "the longest line grows no more");
        let _one = later(&lines, 2);
        let _other = later(&lines, 3);
        let gone =
            |turn: &mut oneshot::Receiver<Permit>| matches!(turn.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert_eq!(crowd.iter_mut().map(gone).collect::<Vec<_>>(), [false, false, true, true]);
        assert!(lines.enter(from(2)).is_err(), "two and one: nobody gains by it");
        let _last = later(&lines, 4);
        assert!(lines.enter(from(5)).is_err(), "all are as short");
    }

    #[test]
    fn who_leaves_is_passed_over_and_loses_no_permit() {
        let lines = Lines::new(1, 2);
        let first = now(&lines);
        drop((later(&lines, 1), later(&lines, 1)));
        let second = later(&lines, 1);
        assert_eq!(lines.state().waiting, 1);
        drop(first);
        // It was given the permit, and leaves without having looked.
        drop(second);
        assert_eq!(lines.state().free, 1);
        drop(now(&lines));
    }
}
