//! The simple tokens that clients of this cluster have been given, each with its user.
//!
//! A token is made by an entry of the log and named after its index, so every member knows it once
//! it has applied that entry. Who shows one of an entry that is not applied here yet waits for it,
//! but no longer than until all that is committed is applied: anybody can name an entry. It ends
//! when it was not used for a while, and with its user's password. Tokens are not part of the
//! state: a start, or a state that came from another member, begins without any.

use crate::config::TICK_MS;
use crate::ground::Ground;
use crate::io::{Refusal, Request, Waiter, Who};
use crate::permit::Identity;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use store::auth::AuthChange;

/// Tokens that were not used in time are looked for once in so many ticks.
const SWEEP: u64 = 1_000 / TICK_MS;
/// Requests that wait for the entry that makes their token, and bytes of them. More are refused.
const WAITING: usize = 256;
const WAITING_BYTES: usize = 8 << 20;

struct Token {
    user: Arc<str>,
    /// In ticks of the ground's clock.
    ends: u64,
}

/// A request whose token this member does not know yet.
pub(crate) struct Waiting {
    pub(crate) waiter: Waiter,
    pub(crate) who: Who,
    pub(crate) request: Request,
    index: u64,
    bytes: usize,
    /// Counts them.
    number: u64,
}

#[derive(Default)]
pub(crate) struct Tokens {
    tokens: BTreeMap<Box<str>, Token>,
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// Number of the last one that waited.
    newest: u64,
    /// Up to this one it is being found out, and was found out, what the cluster has: a token that
    /// is not known by then was never given.
    asked: u64,
    known: u64,
}

/// What a token says of the one who shows it.
pub(crate) enum Known {
    Identity(Identity),
    /// Nothing, before the entry of this index is applied.
    From(u64),
    Invalid,
}

impl Tokens {
    /// Who asks. While users are not asked for, tokens are not looked at.
    pub(crate) fn identify(&mut self, g: &Ground, who: &Who) -> Known {
        match who {
            Who::Member => Known::Identity(Identity::Member),
            _ if !g.store.auth().enabled() => Known::Identity(Identity::Nobody),
            Who::Nobody => Known::Identity(Identity::Nobody),
            Who::Invalid => Known::Invalid,
            Who::Certified { user } => Known::Identity(Identity::User { name: user.clone(), revision: None }),
            Who::Signed { user, revision } => {
                Known::Identity(Identity::User { name: user.clone(), revision: Some(*revision) })
            }
            Who::Token(token) => self.look_up(g, token.shown()),
        }
    }

    fn look_up(&mut self, g: &Ground, shown: &str) -> Known {
        let now = g.clock();
        if let Some(token) = self.tokens.get_mut(shown).filter(|token| token.ends > now) {
            token.ends = now + ticks(g);
            return Known::Identity(Identity::User { name: token.user.clone(), revision: None });
        }
        let index = shown.split_once('.').and_then(|(_, index)| index.parse::<u64>().ok());
        let ahead = g.store.applied().index..=g.store.applied().index.saturating_add(g.config.budgets.backlog);
        match index {
            Some(index) if index > *ahead.start() && ahead.contains(&index) => Known::From(index),
            _ => Known::Invalid,
        }
    }

    /// The request is looked at again when the entry is applied. False: too many wait.
    pub(crate) fn wait(&mut self, waiter: Waiter, who: Who, request: Request, index: u64) -> bool {
        let bytes = match &request {
            Request::Propose { body, .. } | Request::ReadTxn { body, .. } => body.len(),
            _ => 0,
        };
        if self.waiting.len() >= WAITING || self.bytes + bytes > WAITING_BYTES {
            return false;
        }
        self.bytes += bytes;
        self.newest += 1;
        self.waiting.push_back(Waiting { waiter, who, request, index, bytes, number: self.newest });
        true
    }

    /// Some wait, and what the cluster has is to be found out for them: up to this number. One
    /// round at a time.
    pub(crate) fn asks(&mut self) -> Option<u64> {
        let more = self.waiting.back().is_some_and(|last| last.number > self.asked);
        if !more || self.asked != self.known {
            return None;
        }
        self.asked = self.newest;
        Some(self.asked)
    }

    /// All that was committed when it was asked for up to this number is applied here.
    pub(crate) fn caught_up(&mut self, upto: u64) {
        self.known = self.known.max(upto);
    }

    /// Requests whose entry is applied, or never came, in their order.
    pub(crate) fn due(&mut self, g: &Ground) -> Vec<Waiting> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let (applied, known) = (g.store.applied().index, self.known);
        let all = std::mem::take(&mut self.waiting).into_iter();
        let (due, waiting): (Vec<Waiting>, Vec<Waiting>) =
            all.partition(|one| one.index <= applied || one.number <= known);
        self.waiting = waiting.into();
        self.bytes -= due.iter().map(|one| one.bytes).sum::<usize>();
        due
    }

    pub(crate) fn cancel(&mut self, g: &mut Ground, waiter: Waiter, timed_out: bool) -> bool {
        let Some(at) = self.waiting.iter().position(|one| one.waiter == waiter) else { return false };
        let gone = self.waiting.remove(at).expect("just found");
        self.bytes -= gone.bytes;
        if timed_out {
            g.refuse(waiter, Refusal::User(store::Error::InvalidAuthToken));
        }
        true
    }

    pub(crate) fn applied(&mut self, g: &Ground, change: AuthChange) {
        match change {
            AuthChange::LoggedIn { user, token } => {
                let ends = g.clock() + ticks(g);
                self.tokens.insert(token.into(), Token { user: user.into(), ends });
            }
            AuthChange::Ended { user } => self.tokens.retain(|_, token| *token.user != *user),
            AuthChange::Disabled => self.tokens.clear(),
        }
    }

    /// Another state took the place of ours: nobody knows here which tokens ended meanwhile.
    pub(crate) fn forget(&mut self) {
        self.tokens.clear();
    }

    pub(crate) fn tick(&mut self, g: &Ground) {
        if g.now.is_multiple_of(SWEEP) {
            let now = g.clock();
            self.tokens.retain(|_, token| token.ends > now);
        }
    }
}

/// How long a token lives without use.
fn ticks(g: &Ground) -> u64 {
    g.config.token_seconds.saturating_mul(1_000 / TICK_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Secret;
    use store::auth::AuthCommand;

    fn enabled() -> Ground {
        let mut g = Ground::alone(7);
        let commands = [
            AuthCommand::UserAdd { name: "root", hashed: "aGFzaA==", no_password: false },
            AuthCommand::UserGrantRole { user: "root", role: "root" },
            AuthCommand::Enable,
        ];
        for (at, command) in (8..).zip(&commands) {
            let at = store::Position { index: at, term: 1 };
            g.store.apply(at, &command.body(), None).expect("an entry");
        }
        g
    }

    fn known(tokens: &mut Tokens, g: &Ground, shown: &str) -> String {
        match tokens.identify(g, &Who::Token(Secret::new(shown))) {
            Known::Identity(Identity::User { name, .. }) => name.to_string(),
            Known::Identity(other) => format!("{other:?}"),
            Known::From(index) => format!("from {index}"),
            Known::Invalid => "invalid".into(),
        }
    }

    #[test]
    fn a_token_lives_while_it_is_used() {
        let (mut g, mut tokens) = (enabled(), Tokens::default());
        g.config.token_seconds = 1;
        tokens.applied(&g, AuthChange::LoggedIn { user: "root".into(), token: "abc.9".into() });
        assert_eq!(known(&mut tokens, &g, "abc.9"), "root");
        assert_eq!(known(&mut tokens, &g, "abd.9"), "invalid");
        g.now += 99;
        assert_eq!(known(&mut tokens, &g, "abc.9"), "root");
        g.now += 99;
        assert_eq!(known(&mut tokens, &g, "abc.9"), "root", "use makes it live longer");
        g.now += 100;
        assert_eq!(known(&mut tokens, &g, "abc.9"), "invalid");
        g.now = 1_000;
        tokens.tick(&g);
        assert!(tokens.tokens.is_empty());
    }

    #[test]
    fn a_token_ends_with_its_user_and_with_all_others() {
        let (g, mut tokens) = (enabled(), Tokens::default());
        let log_in = |tokens: &mut Tokens| {
            for (user, token) in [("root", "a.8"), ("other", "b.9")] {
                tokens.applied(&g, AuthChange::LoggedIn { user: user.into(), token: token.into() });
            }
        };
        log_in(&mut tokens);
        tokens.applied(&g, AuthChange::Ended { user: "root".into() });
        assert_eq!(known(&mut tokens, &g, "a.8"), "invalid");
        assert_eq!(known(&mut tokens, &g, "b.9"), "other");
        tokens.applied(&g, AuthChange::Disabled);
        assert_eq!(known(&mut tokens, &g, "b.9"), "invalid");
        log_in(&mut tokens);
        tokens.forget();
        assert_eq!(known(&mut tokens, &g, "b.9"), "invalid");
    }

    #[test]
    fn a_token_of_a_later_entry_is_waited_for_and_not_for_ever() {
        let (mut g, mut tokens) = (enabled(), Tokens::default());
        assert_eq!(known(&mut tokens, &g, "abc.11"), "from 11");
        assert_eq!(known(&mut tokens, &g, "abc.99999999"), "invalid");
        assert_eq!(known(&mut tokens, &g, "abc.x"), "invalid");
        let who = || Who::Token(Secret::new("abc.11"));
        assert!(tokens.wait(1, who(), Request::Leases, 11) && tokens.wait(2, who(), Request::Leases, 12));
        assert!(tokens.due(&g).is_empty());
        assert_eq!((tokens.asks(), tokens.asks()), (Some(2), None), "one round for both");
        assert!(tokens.wait(5, who(), Request::Leases, 13));
        tokens.caught_up(2);
        assert_eq!(tokens.due(&g).iter().map(|one| one.waiter).collect::<Vec<_>>(), [1, 2], "they never come");
        assert_eq!(tokens.asks(), Some(3));
        assert!(tokens.cancel(&mut g, 5, false));
        tokens.caught_up(3);
        assert_eq!(tokens.asks(), None);
        assert!(tokens.wait(1, who(), Request::Leases, 11) && tokens.wait(2, who(), Request::Leases, 12));
        g.store.apply(store::Position { index: 11, term: 1 }, &bytes::Bytes::new(), None).expect("an entry");
        assert_eq!(tokens.due(&g).iter().map(|one| one.waiter).collect::<Vec<_>>(), [1]);
        assert!(tokens.cancel(&mut g, 2, false) && !tokens.cancel(&mut g, 2, false));
        let mut put = Vec::new();
        let value = vec![0; WAITING_BYTES - 16];
        store::command::PutRequest { key: b"k", value: &value, ..Default::default() }.encode(&mut put);
        let body = store::command::encode_put(&put).expect("a put");
        assert!(body.len() <= WAITING_BYTES, "{}", body.len());
        assert!(tokens.wait(3, who(), Request::Propose { body, cost: 0 }, 12));
        let body = store::command::encode_lease_grant(1 << 60, 1 << 60, 0);
        assert!(!tokens.wait(4, who(), Request::Propose { body, cost: 0 }, 12));
        tokens.cancel(&mut g, 3, false);
        for waiter in 0..WAITING as u64 {
            assert!(tokens.wait(waiter, who(), Request::Leases, 12));
        }
        assert!(!tokens.wait(999, who(), Request::Leases, 12));
    }

    #[test]
    fn without_users_nobody_looks_at_tokens() {
        let (g, mut tokens) = (Ground::alone(7), Tokens::default());
        assert_eq!(known(&mut tokens, &g, "what.ever"), "Nobody");
    }
}
