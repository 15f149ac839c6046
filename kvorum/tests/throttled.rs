//! A member that gets little time measures a lease by the clock, not by the time that it got.

mod live;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::wire::etcdserverpb::PutRequest;
use live::{Alone, Member, block_on};
use rustix::process::Signal;

const STOPPED: Duration = Duration::from_millis(300);
const RUNNING: Duration = Duration::from_millis(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Whole seconds.
const TTL: i64 = 5;

/// Stops the process for 300 of every 330 ms until `done`.
fn throttle(member: &Member, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        member.signal(Signal::STOP);
        std::thread::sleep(STOPPED);
        member.signal(Signal::CONT);
        std::thread::sleep(RUNNING);
    }
}

/// How long the key of a lease lived at least and at most: until it was first seen gone, counted
/// from the answer of the grant and from before it was asked for.
fn life_of_a_lease(alone: &Alone) -> (Duration, Duration) {
    block_on(async {
        let client = alone.client();
        let asked = Instant::now();
        let lease = client.lease_grant(TTL, 0).await.expect("granted").id;
        let granted = Instant::now();
        let put = PutRequest { key: "mortal".into(), value: "x".into(), lease, ..PutRequest::default() };
        client.put_with(put).await.expect("puts");
        while client.get("mortal").await.expect("answers").is_some() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        (granted.elapsed(), asked.elapsed())
    })
}

#[test]
fn a_lease_of_a_throttled_member_ends_in_time() {
    let alone = Alone::new(&[]);
    let done = AtomicBool::new(false);
    let lived = std::thread::scope(|scope| {
        scope.spawn(|| throttle(&alone.member, &done));
        let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| life_of_a_lease(&alone)));
        done.store(true, Ordering::Relaxed);
        lived
    });
    let (least, most) = lived.expect("the lease ends");
    let ttl = Duration::from_secs(TTL as u64);
    assert!(most >= ttl, "a lease of {TTL} s ended after {most:?}");
    assert!(least <= ttl + Duration::from_secs(2), "a lease of {TTL} s ended after {least:?}");
}
