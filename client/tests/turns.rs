//! Locks and elections against a store in memory, whose watches break all the
//! time and which, if a test says so, loses answers.

mod fake;
mod store;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use client::{
    Client, Error, Options,
    concurrency::{Election, Mutex, Session},
};
use store::Served;
use tokio::time::timeout;

fn client(served: &Served) -> Client {
    let backoff = Duration::from_millis(1);
    Client::connect(Options { backoff, ..Options::of([served.fake.endpoint.clone()]) }).unwrap()
}

fn keys(served: &Served) -> Vec<String> {
    served.store().keys.keys().map(|key| String::from_utf8(key.to_vec()).unwrap()).collect()
}

/// Waits until the store looks like this.
async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let until = tokio::time::Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(tokio::time::Instant::now() < until, "{what} does not come to be");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn the_keys_are_those_of_other_clients_and_turns_are_in_order() {
    let served = Served::new().await;
    let client = client(&served);
    let (a, b) = (Session::new(&client, 60).await.unwrap(), Session::new(&client, 60).await.unwrap());
    let first = Mutex::new(&a, "job").lock().await.unwrap();
    assert_eq!(keys(&served), ["job/11"]);
    assert_eq!((&first.key()[..], first.revision()), (&b"job/11"[..], 2));
    // The same session has it already.
    assert_eq!(Mutex::new(&a, "job").try_lock().await.unwrap().revision(), 2);
    assert!(matches!(Mutex::new(&b, "job").try_lock().await, Err(Error::Locked)));
    assert_eq!(keys(&served), ["job/11"]);

    let second = tokio::spawn(async move { Mutex::new(&b, "job").lock().await });
    until("the second place", || keys(&served).len() == 2).await;
    assert!(!second.is_finished());
    first.unlock().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert!(second.revision() > 2);
    assert_eq!(keys(&served), ["job/12"]);
    // The end of the session is the end of the lock.
    second.session().clone().close().await.unwrap();
    assert_eq!(keys(&served), Vec::<String>::new());
}

#[tokio::test]
async fn who_gives_up_leaves_the_line_before_coming_again() {
    let served = Served::new().await;
    let client = client(&served);
    let (a, b) = (Session::new(&client, 60).await.unwrap(), Session::new(&client, 60).await.unwrap());
    let first = Mutex::new(&a, "job").lock().await.unwrap();
    let mutex = Mutex::new(&b, "job");
    let mut last = 0;
    for round in 0..20 {
        let given_up = timeout(Duration::from_millis(5), mutex.lock()).await;
        assert!(given_up.is_err(), "{round}");
        let second = tokio::spawn({
            let mutex = mutex.clone();
            async move { mutex.lock().await }
        });
        // A place of its own, not the one that is being left.
        until("a new place", || {
            let store = served.store();
            let place = store.keys.get(&b"job/12"[..]).map_or(0, |kv| kv.create_revision);
            let new = place > last;
            last = last.max(place);
            new
        })
        .await;
        second.abort();
        let _ = second.await;
    }
    first.unlock().await.unwrap();
    let held = mutex.lock().await.unwrap();
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert_eq!(keys(&served), ["job/12"]);
    assert_eq!(served.store().keys[&b"job/12"[..]].create_revision, held.revision());
}

#[tokio::test]
async fn a_lock_is_lost_with_its_lease() {
    let served = Served::new().await;
    let client = client(&served);
    let (a, b) = (Session::new(&client, 60).await.unwrap(), Session::new(&client, 60).await.unwrap());
    let _first = Mutex::new(&a, "job").lock().await.unwrap();
    let second = tokio::spawn({
        let b = b.clone();
        async move { Mutex::new(&b, "job").lock().await }
    });
    until("the second place", || keys(&served).len() == 2).await;
    // Its lease goes while it waits; then the first one's.
    served.store().revoke(b.lease());
    served.store().revoke(a.lease());
    assert!(matches!(second.await.unwrap(), Err(Error::SessionExpired)));
}

/// Sessions in turn, while answers are lost: each knows what it has.
#[tokio::test]
async fn answers_that_are_lost_change_nothing() {
    let served = Served::new().await;
    served.store().loses_each = Some(3);
    let client = client(&served);
    let (inside, fence) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let (client, inside, fence) = (client.clone(), Arc::clone(&inside), Arc::clone(&fence));
        tasks.push(tokio::spawn(async move {
            let session = Session::new(&client, 60).await.unwrap();
            for _ in 0..5 {
                let held = Mutex::new(&session, "job").lock().await.unwrap();
                assert!(!inside.swap(true, Ordering::SeqCst), "two at a time");
                assert!(fence.swap(held.revision(), Ordering::SeqCst) < held.revision());
                tokio::time::sleep(Duration::from_millis(1)).await;
                inside.store(false, Ordering::SeqCst);
                held.unlock().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(keys(&served), Vec::<String>::new());
}

#[tokio::test]
async fn a_leader_is_heard_once_however_often_it_has_to_speak() {
    let served = Served::new().await;
    let client = client(&served);
    assert_eq!(client.election_leader("chair").await, Err(Error::NoLeader));
    let mut observer = client.election_observe("chair");
    assert!(timeout(Duration::from_millis(20), observer.next()).await.is_err());
    let (a, b) = (Session::new(&client, 60).await.unwrap(), Session::new(&client, 60).await.unwrap());
    let leadership = Election::new(&a, "chair").campaign("a0").await.unwrap();
    let mut heard = vec![observer.next().await.unwrap().value];
    served.store().loses_each = Some(2);
    let next = tokio::spawn(async move { Election::new(&b, "chair").campaign("b0").await });
    until("the second place", || keys(&served).len() == 2).await;
    for n in 1..10 {
        leadership.proclaim(format!("a{n}")).await.unwrap();
        if n % 3 == 0 {
            heard.push(observer.next().await.unwrap().value);
        }
    }
    // Whoever campaigns again says its new value.
    let again = Election::new(&a, "chair").campaign("a10").await.unwrap();
    assert_eq!(again.revision(), leadership.revision());
    while heard.len() < 11 {
        heard.push(observer.next().await.unwrap().value);
    }
    assert_eq!(heard, (0..=10).map(|n| format!("a{n}")).collect::<Vec<_>>());
    leadership.resign().await.unwrap();
    let next = next.await.unwrap().unwrap();
    assert_eq!(observer.next().await.unwrap().value, "b0");
    assert_eq!(next.leader_key().key, "chair/12");
    assert_eq!(again.proclaim("late").await, Err(Error::NotLeader));
    // Each was put once.
    let puts = served.store().history.iter().filter(|e| e.kv.as_ref().is_some_and(|kv| kv.create_revision > 0)).count();
    assert_eq!(puts, 12);
}
