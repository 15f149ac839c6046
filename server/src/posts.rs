//! What the core tells one watch stream: a queue without bound of its own, charged to the budgets.
//!
//! A stream at rest shall cost next to nothing, and most messages are taken one by one: one has its
//! place in the queue itself, the list for more is there only while it is needed. (A channel of
//! the runtime keeps room for 32 messages, two thousand bytes a stream.)

use crate::budgets::Budgets;
use node::ToStream;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

/// What a message to a watch stream keeps alive until it is taken, in bytes; the least is
/// such that 65,536 small ones make 64 MiB.
fn weight(message: &ToStream) -> u64 {
    const LEAST: u64 = 1024;
    let of = |events: &store::RevisionEvents| events.events.iter().map(|event| event.record.len() as u64).sum::<u64>();
    match message {
        ToStream::Events { events, .. } => of(events).max(LEAST),
        ToStream::Joined { missed, .. } => missed.iter().map(|events| of(events)).sum::<u64>().max(LEAST),
        _ => LEAST,
    }
}

#[derive(Default)]
struct Queue {
    /// The oldest; None: there is none.
    first: Option<ToStream>,
    more: VecDeque<ToStream>,
    waiting: Option<Waker>,
    /// The stream is gone.
    left: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Charged and not taken.
    weight: AtomicU64,
    posts: AtomicU32,
    budgets: Arc<Budgets>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn give(&self, message: &ToStream) {
        let weight = weight(message);
        self.weight.fetch_sub(weight, Ordering::Relaxed);
        self.budgets.posts.give(weight);
    }
}

/// A new queue: the core's end and the stream's.
pub(crate) fn queue(budgets: &Arc<Budgets>) -> (Post, Inbox) {
    let shared = Shared {
        queue: Mutex::default(),
        weight: AtomicU64::new(0),
        posts: AtomicU32::new(1),
        budgets: budgets.clone(),
    };
    let shared = Arc::new(shared);
    (Post(shared.clone()), Inbox(shared))
}

/// The core's end. The queue ends when the last one is gone.
pub(crate) struct Post(Arc<Shared>);

impl Post {
    /// Charges a message that is to be sent. False: the stream holds all that is free already.
    ///
    /// One stream may hold what is free, so that one that hangs leaves room for the others.
    #[must_use]
    pub(crate) fn charge(&self, message: &ToStream) -> bool {
        let weight = weight(message);
        let posts = &self.0.budgets.posts;
        let free = posts.limit().saturating_sub(posts.used());
        if self.0.weight.load(Ordering::Relaxed).saturating_add(weight) > free {
            posts.count_full();
            return false;
        }
        self.0.weight.fetch_add(weight, Ordering::Relaxed);
        posts.take(weight);
        true
    }

    /// Sends a message that was charged. A stream that went away wants none any more.
    pub(crate) fn send(self, message: ToStream) {
        let mut queue = self.0.lock();
        if queue.left {
            drop(queue);
            return self.0.give(&message);
        }
        match queue.first {
            None => queue.first = Some(message),
            Some(_) => queue.more.push_back(message),
        }
        let waiting = queue.waiting.take();
        drop(queue);
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

impl Clone for Post {
    fn clone(&self) -> Post {
        self.0.posts.fetch_add(1, Ordering::Relaxed);
        Post(self.0.clone())
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        if self.0.posts.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        // The stream looks at the count under the lock: it sees the end, or its waker is here.
        let mut queue = self.0.lock();
        let waiting = queue.waiting.take();
        drop(queue);
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

/// The stream's end. What is not taken when it goes is given back to the budgets.
pub(crate) struct Inbox(Arc<Shared>);

impl Inbox {
    fn take(&self, queue: &mut Queue) -> Option<ToStream> {
        let message = queue.first.take()?;
        queue.first = queue.more.pop_front();
        if queue.more.is_empty() {
            queue.more = VecDeque::new();
        }
        self.0.give(&message);
        Some(message)
    }

    /// The next message, if there is one already.
    pub(crate) fn try_recv(&mut self) -> Option<ToStream> {
        self.take(&mut self.0.lock())
    }

    /// The next message; None: there will be no more. Dropped, it has taken none.
    pub(crate) async fn recv(&mut self) -> Option<ToStream> {
        poll_fn(|cx| {
            let mut queue = self.0.lock();
            if let Some(message) = self.take(&mut queue) {
                return Poll::Ready(Some(message));
            }
            if self.0.posts.load(Ordering::Acquire) == 0 {
                return Poll::Ready(None);
            }
            match &mut queue.waiting {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
        .await
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.left = true;
        let Queue { first, more, .. } = std::mem::take(&mut *queue);
        queue.left = true;
        drop(queue);
        for message in first.iter().chain(&more) {
            self.0.give(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budgets::Limits;

    fn progress(token: u64) -> ToStream {
        ToStream::Progress { token, revision: 1 }
    }

    fn post(post: &Post, token: u64) {
        let message = progress(token);
        assert!(post.charge(&message));
        post.clone().send(message);
    }

    fn token(message: Option<ToStream>) -> Option<u64> {
        match message {
            Some(ToStream::Progress { token, .. }) => Some(token),
            Some(other) => panic!("{other:?}"),
            None => None,
        }
    }

    #[tokio::test]
    async fn messages_come_in_order_and_nothing_is_kept_behind_them() {
        let budgets = Budgets::new(Limits::default());
        let (to, mut inbox) = queue(&budgets);
        for round in 0..3 {
            for n in 0..5 {
                post(&to, round * 5 + n);
            }
            assert_eq!(budgets.posts.used(), 5 * 1024);
            assert_eq!(token(inbox.recv().await), Some(round * 5));
            for n in 1..5 {
                assert_eq!(token(inbox.try_recv()), Some(round * 5 + n));
            }
            assert!(inbox.try_recv().is_none());
            assert_eq!((budgets.posts.used(), inbox.0.lock().more.capacity()), (0, 0));
        }
    }

    #[tokio::test]
    async fn a_waiting_stream_is_woken_by_a_message_and_by_the_end() {
        let budgets = Budgets::new(Limits::default());
        let (to, mut inbox) = queue(&budgets);
        let stream = tokio::spawn(async move { (token(inbox.recv().await), token(inbox.recv().await)) });
        tokio::task::yield_now().await;
        post(&to, 7);
        tokio::task::yield_now().await;
        drop(to);
        assert_eq!(stream.await.expect("it ends"), (Some(7), None));
    }

    #[test]
    fn what_no_stream_takes_is_given_back() {
        let budgets = Budgets::new(Limits::default());
        let (to, inbox) = queue(&budgets);
        post(&to, 1);
        post(&to, 2);
        let late = progress(3);
        assert!(to.charge(&late));
        drop(inbox);
        to.send(late);
        assert_eq!(budgets.posts.used(), 0);
    }

    #[test]
    fn one_stream_may_hold_what_is_free() {
        let budgets = Budgets::new(Limits { posts: 4 * 1024, ..Limits::default() });
        let ((hung, inbox), (other, _other)) = (queue(&budgets), queue(&budgets));
        post(&hung, 1);
        post(&hung, 2);
        assert!(!hung.charge(&progress(3)), "two of four are free, and it holds two");
        post(&other, 1);
        drop(inbox);
        assert_eq!(budgets.posts.used(), 1024);
    }
}
