//! The byte budgets: everything that may grow with what clients do, by name.
//!
//! Each budget has an owner, a bound, a gauge, a counter of how often it was full, and one
//! answer to "what when full": reads wait, writes are told "too many requests", watches are
//! fed from history. The table for operators is in `docs/operations/memory.md`; [`Limits`] says how
//! the bounds follow from the memory of the machine.

mod sources;

pub(crate) use sources::{Part, SHARE};

use crate::log::json;
use crate::sockets::Origin;
use node::lanes::Lost;
use sources::{Source, Sources};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

const MIB: u64 = 1 << 20;
/// With so much memory every budget has its full size. Bytes.
const FULL_MEMORY: u64 = 4096 * MIB;
/// A process that is given less is served as if it had this. Bytes.
const LEAST_MEMORY: u64 = 128 * MIB;
/// Budgets grow beyond their full size only when `--memory-budget` asks for it.
const MOST_SCALE: u64 = 16;
/// What is read at once for a connection when the budget of unsent bytes is short. Bytes.
const PRESSED_PIECE: u64 = 16 << 10;

/// While half of the budget of unsent bytes is held, a connection that holds some of it and has
/// taken nothing for so long is cut.
const STALL: Duration = Duration::from_secs(10);
/// How often stalled connections are looked for.
const LOOK: Duration = Duration::from_secs(1);

/// The bounds, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// What all of them follow from.
    pub(crate) memory: u64,
    pub(crate) queue: u64,
    pub(crate) peer_frames: u64,
    pub(crate) inbound: u64,
    /// Calls that are open, whatever they hold beside.
    pub(crate) calls: u64,
    pub(crate) json_requests: u64,
    pub(crate) json_answers: u64,
    pub(crate) unsent: u64,
    /// Of `unsent`, what one connection may hold.
    pub(crate) unsent_each: u64,
    pub(crate) watch: u64,
    /// Of `watch`, what one stream may hold.
    pub(crate) watch_each: u64,
    /// Watches that exist, with their keys.
    pub(crate) watches: u64,
    pub(crate) posts: u64,
    pub(crate) sorts: u64,
    /// For each peer, without forwards.
    pub(crate) peer_send: u64,
    /// Forwards, for each peer.
    pub(crate) peer_forwards: u64,
    pub(crate) entry_cache: u64,
    pub(crate) uncommitted: u64,
    pub(crate) commands: u64,
    pub(crate) unapplied: u64,
    pub(crate) event_ring: u64,
    pub(crate) unwritten: u64,
    pub(crate) txn_answers: u64,
    /// Connections of clients: a count.
    pub(crate) connections: u64,
}

impl Limits {
    /// Every budget is its full size times `memory` / 4 GiB, and never so small that two of
    /// the largest requests do not fit.
    pub(crate) fn new(memory: u64, max_request: u64) -> Limits {
        let memory = memory.clamp(LEAST_MEMORY, FULL_MEMORY * MOST_SCALE);
        let request = max_request.clamp(MIB, 256 * MIB);
        let part = |mib: u64, least: u64| {
            let scaled = u128::from(mib * MIB) * u128::from(memory) / u128::from(FULL_MEMORY);
            u64::try_from(scaled).unwrap_or(u64::MAX).max(least)
        };
        let two = 2 * request + MIB;
        Limits {
            memory,
            queue: part(32, two),
            peer_frames: part(32, two),
            inbound: part(64, two),
            calls: part(768, 24 * MIB),
            json_requests: part(32, 2 * two),
            json_answers: part(64, 4 * two),
            unsent: part(64, 4 * MIB),
            unsent_each: part(2, MIB / 2),
            watch: part(128, 8 * MIB),
            watch_each: MIB,
            watches: part(128, 16 * MIB),
            posts: part(64, 4 * MIB),
            sorts: part(128, 8 * MIB),
            peer_send: part(16, two),
            peer_forwards: part(8, two),
            entry_cache: part(64, 2 * MIB),
            uncommitted: part(64, two),
            commands: part(64, two),
            unapplied: part(64, two),
            event_ring: part(8, 2 * MIB),
            unwritten: part(64, 4 * MIB),
            txn_answers: part(128, 8 * MIB),
            connections: (10_000 * (memory / MIB) / 4096).clamp(1_000, 10_000),
        }
    }

    /// What the budgets are inside the core of the member.
    pub(crate) fn node(&self) -> node::Budgets {
        node::Budgets {
            entry_cache: self.entry_cache,
            uncommitted: self.uncommitted,
            commands: self.commands,
            unapplied: self.unapplied,
            event_ring: usize::try_from(self.event_ring).unwrap_or(usize::MAX),
            unwritten_most: self.unwritten,
            txn_answer: self.txn_answers,
            ..node::Budgets::default()
        }
    }

    /// For the line at start.
    pub(crate) fn fields(&self) -> Vec<(&'static str, crate::log::Value)> {
        vec![
            ("memory", json!(self.memory)),
            ("queue", json!(self.queue)),
            ("unsent", json!(self.unsent)),
            ("unsent-per-connection", json!(self.unsent_each)),
            ("sorts", json!(self.sorts)),
            ("watch", json!(self.watch)),
            ("watches", json!(self.watches)),
            ("commands", json!(self.commands)),
            ("entry-cache", json!(self.entry_cache)),
            ("connections", json!(self.connections)),
        ]
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::new(FULL_MEMORY, 1_572_864)
    }
}

/// Bytes of memory this process may use, at most: the smallest of the limits of its control
/// groups (both versions) and the memory of the machine. The full size when nothing is told.
pub(crate) fn memory_of_this_process() -> u64 {
    memory(|path| std::fs::read_to_string(path).ok())
}

fn memory(read: impl Fn(&str) -> Option<String>) -> u64 {
    let mut least = FULL_MEMORY;
    let mut below = |limit: Option<u64>| least = least.min(limit.filter(|limit| *limit > 0).unwrap_or(u64::MAX));
    let number = |path: String| read(&path)?.trim().parse::<u64>().ok();
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(kinds), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let (root, file) = match kinds {
            "" => ("/sys/fs/cgroup", "memory.max"),
            kinds if kinds.split(',').any(|kind| kind == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // A container may see its own group as the root although its path says otherwise.
        let mut path = path.trim_end_matches('/');
        loop {
            below(number(format!("{root}{path}/{file}")));
            let Some((above, _)) = path.rsplit_once('/') else { break };
            path = above;
        }
    }
    let total = read("/proc/meminfo").unwrap_or_default();
    let kib =
        total.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    below(kib.and_then(|kib: u64| kib.checked_mul(1024)));
    least
}

/// `512MiB`, `2G`, `1073741824`: bytes, with the units of 1024 (`Ki`, `K`, `KiB`, …).
pub(crate) fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let power = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "ki" | "kb" | "kib" => 1,
        "m" | "mi" | "mb" | "mib" => 2,
        "g" | "gi" | "gb" | "gib" => 3,
        "t" | "ti" | "tb" | "tib" => 4,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1024_u64.checked_pow(power)?)
}

/// One bound and what is held against it.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) name: &'static str,
    limit: u64,
    used: AtomicU64,
    full: AtomicU64,
}

impl Budget {
    pub(crate) fn new(name: &'static str, limit: u64) -> Budget {
        Budget { name, limit, used: AtomicU64::new(0), full: AtomicU64::new(0) }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// How often somebody had to wait or was refused.
    pub(crate) fn times_full(&self) -> u64 {
        self.full.load(Ordering::Relaxed)
    }

    pub(crate) fn count_full(&self) {
        self.full.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes if it fits; a refusal is counted.
    pub(crate) fn try_take(&self, bytes: u64) -> bool {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) <= self.limit {
            return true;
        }
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.count_full();
        false
    }

    /// Takes what exists already, or passes on the reserve: may go over the bound.
    pub(crate) fn take(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn give(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "{}: more was given back than taken", self.name);
    }
}

/// How many things stand in a queue.
#[derive(Debug, Default)]
pub(crate) struct Depth(AtomicU64);

impl Depth {
    pub(crate) fn enter(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// There were `before`, and there are `after`.
    pub(crate) fn moved(&self, before: u64, after: u64) {
        self.0.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Every budget outside the core thread; those inside are told by `node::Status`.
#[derive(Debug)]
pub(crate) struct Budgets {
    pub(crate) limits: Limits,
    /// Requests of clients on their way to the core thread.
    pub(crate) queue: Budget,
    /// Frames of peers on their way to the core thread.
    pub(crate) peer_frames: Budget,
    /// gRPC requests that are not whole yet.
    pub(crate) inbound: Budget,
    pub(crate) calls: Budget,
    pub(crate) json_requests: Budget,
    pub(crate) json_answers: Budget,
    /// Answers read and not yet sent.
    pub(crate) unsent: Budget,
    /// Responses held for watch streams.
    pub(crate) watch: Budget,
    /// Watches that exist, with their keys.
    pub(crate) watches: Budget,
    /// Events posted to watch streams that have not taken them.
    pub(crate) posts: Budget,
    pub(crate) sorts: Budget,
    /// Frames waiting for all peers, without forwards.
    pub(crate) peer_send: Budget,
    /// Forwards waiting for all peers.
    pub(crate) peer_forwards: Budget,
    pub(crate) jobs_log: Depth,
    pub(crate) jobs_reader: Depth,
    pub(crate) jobs_background: Depth,
    pub(crate) peer_send_frames: Depth,
    peer_lost: Mutex<Lost>,
    json_room: Arc<Semaphore>,
    sort_room: Arc<Semaphore>,
    room: Notify,
    waiting: AtomicU64,
    sources: Sources,
    /// Of the connections that are open.
    accounts: Mutex<Vec<Weak<Account>>>,
    /// Connections cut because they stalled while others waited.
    cut: AtomicU64,
    began: Instant,
    /// Reads that wait for room in the queue to the core.
    queue_room: Notify,
    queue_waiting: AtomicU64,
}

impl Budgets {
    pub(crate) fn new(limits: Limits) -> Arc<Budgets> {
        let kib = |bytes: u64| Arc::new(Semaphore::new(usize::try_from(bytes / 1024).unwrap_or(usize::MAX >> 4)));
        Arc::new(Budgets {
            queue: Budget::new("queue", limits.queue),
            peer_frames: Budget::new("peer_frames", limits.peer_frames),
            inbound: Budget::new("inbound", limits.inbound),
            calls: Budget::new("calls", limits.calls),
            json_requests: Budget::new("json_requests", limits.json_requests),
            json_answers: Budget::new("json_answers", limits.json_answers),
            unsent: Budget::new("unsent", limits.unsent),
            watch: Budget::new("watch", limits.watch),
            watches: Budget::new("watches", limits.watches),
            posts: Budget::new("posts", limits.posts),
            sorts: Budget::new("sorts", limits.sorts),
            peer_send: Budget::new("peer_send", limits.peer_send),
            peer_forwards: Budget::new("peer_forwards", limits.peer_forwards),
            jobs_log: Depth::default(),
            jobs_reader: Depth::default(),
            jobs_background: Depth::default(),
            peer_send_frames: Depth::default(),
            peer_lost: Mutex::default(),
            json_room: kib(limits.json_answers),
            sort_room: kib(limits.sorts),
            room: Notify::new(),
            waiting: AtomicU64::new(0),
            sources: Sources::default(),
            accounts: Mutex::default(),
            cut: AtomicU64::new(0),
            began: Instant::now(),
            queue_room: Notify::new(),
            queue_waiting: AtomicU64::new(0),
            limits,
        })
    }

    /// Cuts connections that do not read while others need the room; runs as long as the server.
    pub(crate) async fn cut_stalled(self: Arc<Self>) {
        let mut look = tokio::time::interval(LOOK);
        let mut told: Option<Instant> = None;
        loop {
            look.tick().await;
            let cut = self.cut_those_stalled(self.millis());
            if cut > 0 && told.is_none_or(|told| told.elapsed() >= Duration::from_secs(60)) {
                told = Some(Instant::now());
                let fields = [("connections", json!(cut)), ("unsent", json!(self.unsent.used()))];
                crate::log::warn("cut connections whose clients read nothing of large answers", &fields);
            }
        }
    }

    /// Milliseconds since it began.
    fn millis(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn cut_those_stalled(&self, now: u64) -> u64 {
        if !self.is_pressed() {
            return 0;
        }
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        accounts.retain(|account| account.strong_count() > 0);
        let stalled = accounts.iter().filter_map(Weak::upgrade).filter(|account| account.is_stalled(now));
        let cut = stalled.map(|account| account.cut.notify_one()).count() as u64;
        self.cut.fetch_add(cut, Ordering::Relaxed);
        cut
    }

    /// Connections cut so far because they stalled.
    pub(crate) fn times_cut(&self) -> u64 {
        self.cut.load(Ordering::Relaxed)
    }

    /// Half of the budget of unsent bytes is held.
    pub(crate) fn is_pressed(&self) -> bool {
        self.unsent.used() >= self.limits.unsent / 2
    }

    /// Counts frames that were given up on the way to a peer.
    pub(crate) fn lose_frames(&self, more: Lost) {
        let mut lost = self.peer_lost.lock().unwrap_or_else(PoisonError::into_inner);
        *lost = lost.and(more);
    }

    /// Frames given up on the way to all peers.
    pub(crate) fn lost_frames(&self) -> Lost {
        *self.peer_lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn all(&self) -> [&Budget; 13] {
        [
            &self.queue,
            &self.peer_frames,
            &self.inbound,
            &self.calls,
            &self.json_requests,
            &self.json_answers,
            &self.unsent,
            &self.watch,
            &self.watches,
            &self.posts,
            &self.sorts,
            &self.peer_send,
            &self.peer_forwards,
        ]
    }

    pub(crate) fn depths(&self) -> [(&'static str, u64); 4] {
        [
            ("jobs_log", self.jobs_log.get()),
            ("jobs_reader", self.jobs_reader.get()),
            ("jobs_background", self.jobs_background.get()),
            ("peer_send", self.peer_send_frames.get()),
        ]
    }

    /// Room for sorting `bytes`; waits its turn. None: more than there will ever be.
    pub(crate) async fn sort(self: &Arc<Self>, bytes: u64) -> Option<Share> {
        Share::wait(self, &self.sort_room, |budgets| &budgets.sorts, bytes).await
    }

    /// Room for an answer of `bytes` in JSON; waits its turn. None: more than there will ever be.
    pub(crate) async fn json_answer(self: &Arc<Self>, bytes: u64) -> Option<Share> {
        Share::wait(self, &self.json_room, |budgets| &budgets.json_answers, bytes).await
    }

    /// The core took what was queued.
    pub(crate) fn queue_drained(&self) {
        if self.queue_waiting.load(Ordering::Acquire) > 0 {
            self.queue_room.notify_waiters();
        }
    }

    /// Waits until the queue to the core has room.
    pub(crate) async fn queue_room(&self, has_room: impl Fn() -> bool) {
        if !has_room() {
            self.queue.count_full();
            wait_until(&self.queue_room, &self.queue_waiting, has_room).await;
        }
    }

    fn wake(&self) {
        if self.waiting.load(Ordering::Acquire) > 0 {
            self.room.notify_waiters();
        }
    }
}

/// A share of a budget whose askers wait in line, so that a large one is not starved.
#[derive(Debug)]
pub(crate) struct Share {
    budgets: Arc<Budgets>,
    of: fn(&Budgets) -> &Budget,
    permit: OwnedSemaphorePermit,
    bytes: u64,
}

impl Share {
    async fn wait(
        budgets: &Arc<Budgets>,
        room: &Arc<Semaphore>,
        of: fn(&Budgets) -> &Budget,
        bytes: u64,
    ) -> Option<Share> {
        let budget = of(budgets);
        let kib = u32::try_from(bytes.div_ceil(1024)).ok().filter(|_| bytes <= budget.limit());
        let Some(kib) = kib else {
            budget.count_full();
            return None;
        };
        let permit = match room.clone().try_acquire_many_owned(kib) {
            Ok(permit) => permit,
            Err(_) => {
                budget.count_full();
                room.clone().acquire_many_owned(kib).await.ok()?
            }
        };
        budget.take(bytes);
        Some(Share { budgets: budgets.clone(), of, permit, bytes })
    }

    /// Gives back what is above `bytes`.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        if bytes >= self.bytes {
            return;
        }
        let keep = usize::try_from(bytes.div_ceil(1024)).unwrap_or(usize::MAX);
        drop(self.permit.split(self.permit.num_permits().saturating_sub(keep)));
        (self.of)(&self.budgets).give(self.bytes - bytes);
        self.bytes = bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        (self.of)(&self.budgets).give(self.bytes);
    }
}

/// What one connection holds of the bytes read and not yet sent.
///
/// The share of a connection is what is free at the moment, [`Limits::unsent_each`] at most.
/// So N connections that read nothing leave an N-th part free for one that does, and a
/// connection that holds nothing may always hold one piece: nobody is starved.
#[derive(Debug)]
pub(crate) struct Account {
    budgets: Arc<Budgets>,
    /// Of its source's connections.
    source: Arc<Source>,
    /// In queues, and read for them: goes away as the client reads.
    unsent: AtomicU64,
    /// Held by handlers: the places of records that are still to be read.
    places: AtomicU64,
    /// When the client last took something, or had nothing to take. Milliseconds.
    progress: AtomicU64,
    cut: Notify,
}

/// What a [`Hold`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Unsent,
    Places,
}

impl Account {
    pub(crate) fn new(budgets: &Arc<Budgets>) -> Arc<Account> {
        Account::of_source(budgets, None)
    }

    /// That of a connection from there.
    pub(crate) fn of_source(budgets: &Arc<Budgets>, from: Option<Origin>) -> Arc<Account> {
        let account = Arc::new(Account {
            budgets: budgets.clone(),
            source: budgets.sources.of(from),
            unsent: AtomicU64::new(0),
            places: AtomicU64::new(0),
            progress: AtomicU64::new(budgets.millis()),
            cut: Notify::new(),
        });
        let mut accounts = budgets.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if accounts.len() == accounts.capacity() {
            accounts.retain(|account| account.strong_count() > 0);
        }
        accounts.push(Arc::downgrade(&account));
        account
    }

    /// Waits until this connection is to be cut: see [`Budgets::cut_stalled`].
    pub(crate) async fn cut(&self) {
        self.cut.notified().await;
    }

    fn is_stalled(&self, now: u64) -> bool {
        let since = now.saturating_sub(self.progress.load(Ordering::Relaxed));
        self.unsent.load(Ordering::Relaxed) > 0 && u128::from(since) >= STALL.as_millis()
    }

    pub(crate) fn budgets(&self) -> &Arc<Budgets> {
        &self.budgets
    }

    /// What all connections of the same source hold.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    fn of(&self, what: What) -> &AtomicU64 {
        match what {
            What::Unsent => &self.unsent,
            What::Places => &self.places,
        }
    }

    fn held(&self) -> u64 {
        self.unsent.load(Ordering::Relaxed) + self.places.load(Ordering::Relaxed)
    }

    fn share(&self) -> u64 {
        let free = self.budgets.limits.unsent.saturating_sub(self.budgets.unsent.used());
        free.min(self.budgets.limits.unsent_each)
    }

    /// Whether a read may be asked for now.
    pub(crate) fn may_ask(&self) -> bool {
        let held = self.held();
        held == 0 || held < self.share()
    }

    /// Whether records of `bytes` may be read now. What handlers hold does not count against
    /// a connection whose client has taken everything: they end only by going on.
    pub(crate) fn may_read(&self, bytes: u64) -> bool {
        self.unsent.load(Ordering::Relaxed) == 0 || self.held().saturating_add(bytes) <= self.share()
    }

    /// How many bytes to read at once where `usual` is right when there is room: little once
    /// half of the budget is held, because every connection may always hold one piece.
    pub(crate) fn piece(&self, usual: u64) -> u64 {
        if self.budgets.is_pressed() { usual.min(PRESSED_PIECE) } else { usual }
    }

    async fn until(&self, enough: impl Fn() -> bool) {
        if enough() {
            return;
        }
        self.budgets.unsent.count_full();
        wait_until(&self.budgets.room, &self.budgets.waiting, enough).await;
    }

    /// Waits until a read may be asked for.
    pub(crate) async fn ask(&self) {
        self.until(|| self.may_ask()).await;
    }

    /// Waits until records of `bytes` may be read, and holds them.
    pub(crate) async fn read(self: &Arc<Self>, bytes: u64) -> Hold {
        self.until(|| self.may_read(bytes)).await;
        self.hold(What::Unsent, bytes)
    }

    /// Holds what is there already.
    pub(crate) fn hold(self: &Arc<Self>, what: What, bytes: u64) -> Hold {
        self.take(what, bytes);
        Hold { account: self.clone(), what, bytes }
    }

    /// A hold on what was taken before.
    pub(crate) fn adopt(self: &Arc<Self>, what: What, bytes: u64) -> Hold {
        Hold { account: self.clone(), what, bytes }
    }

    pub(crate) fn take(&self, what: What, bytes: u64) {
        let before = self.of(what).fetch_add(bytes, Ordering::Relaxed);
        if what == What::Unsent && before == 0 {
            self.progress.store(self.budgets.millis(), Ordering::Relaxed);
        }
        self.budgets.unsent.take(bytes);
    }

    pub(crate) fn give(&self, what: What, bytes: u64) {
        let before = self.of(what).fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "a connection gave back more than it held");
        if what == What::Unsent && bytes > 0 {
            self.progress.store(self.budgets.millis(), Ordering::Relaxed);
        }
        self.budgets.unsent.give(bytes);
        self.budgets.wake();
    }
}

struct Waiting<'a>(&'a AtomicU64);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Looks each time that `room` says something was given back.
async fn wait_until(room: &Notify, waiting: &AtomicU64, enough: impl Fn() -> bool) {
    waiting.fetch_add(1, Ordering::AcqRel);
    let _waiting = Waiting(waiting);
    loop {
        let given = room.notified();
        tokio::pin!(given);
        given.as_mut().enable();
        if enough() {
            return;
        }
        given.await;
    }
}

/// Bytes held by something; given back when it goes.
#[derive(Debug)]
pub(crate) struct Hold {
    account: Arc<Account>,
    what: What,
    bytes: u64,
}

impl Hold {
    /// Some of it is gone, or was charged elsewhere.
    pub(crate) fn less(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        if bytes == 0 {
            return;
        }
        self.bytes -= bytes;
        self.account.give(self.what, bytes);
    }

    /// One hold of both, which are of one kind.
    pub(crate) fn add(&mut self, mut other: Hold) {
        assert!(Arc::ptr_eq(&self.account, &other.account) && self.what == other.what, "holds of one kind");
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.account.give(self.what, self.bytes);
    }
}

/// Bytes that keep something until the last of them is gone.
pub(crate) struct Kept<T>(pub(crate) bytes::Bytes, pub(crate) T);

impl<T> AsRef<[u8]> for Kept<T> {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests;
