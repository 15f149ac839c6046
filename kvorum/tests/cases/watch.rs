//! Watch streams: where they begin, what they tell, when they end.

use client::key;
use client::wire::etcdserverpb::WatchCreateRequest;
use rustix::process::Signal;

use crate::live::ops::{delete, put, txn};
use crate::live::watching::{Watching, briefly};
use crate::live::{self, Alone};
use crate::{COMPACTED, revision, shared, with_own, with_shared};

fn from(one: &str, start_revision: i64) -> WatchCreateRequest {
    WatchCreateRequest { start_revision, ..key(one.to_owned()).into() }
}

fn below(prefix: &'static str, start_revision: i64) -> WatchCreateRequest {
    WatchCreateRequest { start_revision, ..client::prefix(prefix).into() }
}

fn event(delete: bool, key: &str, revision: i64) -> (bool, String, i64) {
    (delete, key.to_owned(), revision)
}

/// a at 2, 3, 4, gone at 5, again at 6.
async fn a_that_went_and_came(client: &client::Client) {
    for value in ["2", "3", "4"] {
        client.put("a", value).await.unwrap();
    }
    client.delete(key("a")).await.unwrap();
    assert_eq!(revision(client.put("a", "6").await.unwrap().header), 6);
}

#[test]
fn a_watch_from_the_compaction_revision_sees_the_delete_made_there() {
    with_own(|client, endpoint| async move {
        a_that_went_and_came(&client).await;
        client.compact(5).await.unwrap();
        let mut watch = Watching::open(&endpoint, from("a", 5)).await;
        assert!(watch.next().await.created);
        assert_eq!(watch.events(2).await, [event(true, "a", 5), event(false, "a", 6)]);
        // Once more, with the whole key space and the values before.
        watch.create(WatchCreateRequest { prev_kv: true, ..below("", 5) });
        assert!(watch.next().await.created);
        assert_eq!(watch.events(2).await, [event(true, "a", 5), event(false, "a", 6)]);
    });
}

#[test]
fn a_watch_from_the_compaction_revision_outlives_a_kill_in_the_compaction() {
    let mut own = Alone::new(&[]);
    live::block_on(async { a_that_went_and_came(&own.client()).await });
    live::block_on(async { own.client().compact(5).await.unwrap() });
    own.member.stop(Signal::KILL);
    own.member.respawn();
    own.member.ready();
    live::block_on(async {
        let mut watch = Watching::open(&own.member.endpoint(), from("a", 5)).await;
        assert!(watch.next().await.created);
        assert_eq!(watch.events(2).await, [event(true, "a", 5), event(false, "a", 6)]);
        live::refused(own.client().compact(5).await, client::wire::Code::OutOfRange, COMPACTED);
    });
}

#[test]
fn a_watch_from_before_the_compaction_ends_and_says_where_to_begin() {
    with_own(|client, endpoint| async move {
        a_that_went_and_came(&client).await;
        client.compact(5).await.unwrap();
        for start in [1, 4] {
            let mut watch = Watching::open(&endpoint, from("a", start)).await;
            let created = watch.next().await;
            assert!(created.created && !created.canceled, "{created:?}");
            let ended = watch.next().await;
            assert!(ended.canceled, "{ended:?}");
            assert_eq!((ended.compact_revision, ended.watch_id), (5, created.watch_id));
            // The revision is the reason; in words it is given only for one below zero.
            assert_eq!(ended.cancel_reason, "");
            // The stream goes on.
            watch.create(from("a", 6));
            assert!(watch.next().await.created);
            assert_eq!(watch.events(1).await, [event(false, "a", 6)]);
        }
    });
}

#[test]
fn history_and_now_are_joined_without_a_gap() {
    with_own(|client, endpoint| async move {
        for n in 0..100 {
            client.put(format!("k{}", n % 7), "x").await.unwrap();
        }
        let mut watch = Watching::open(&endpoint, below("k", 2)).await;
        for n in 0..100 {
            client.put(format!("k{}", n % 7), "y").await.unwrap();
        }
        assert!(watch.next().await.created);
        let revisions: Vec<i64> = watch.events(200).await.iter().map(|(_, _, at)| *at).collect();
        assert_eq!(revisions, (2..=201).collect::<Vec<i64>>());
        watch.silent().await;
    });
}

#[test]
fn a_watch_of_the_future_waits_for_it() {
    with_own(|client, endpoint| async move {
        let mut watch = Watching::open(&endpoint, from("a", 4)).await;
        assert!(watch.next().await.created);
        for value in ["2", "3", "4"] {
            client.put("a", value).await.unwrap();
        }
        assert_eq!(watch.events(1).await, [event(false, "a", 4)]);
        watch.silent().await;
    });
}

#[test]
fn one_answer_to_a_progress_request_of_a_quiet_stream() {
    with_shared(|client| async move {
        let mut watch = Watching::open(&shared().member.endpoint(), from("quiet/a", 0)).await;
        watch.create(from("quiet/b", 0));
        for _ in 0..2 {
            assert!(watch.next().await.created);
        }
        let before = revision(client.put("quiet/elsewhere", "x").await.unwrap().header);
        watch.ask_progress();
        let progress = watch.next().await;
        assert_eq!((progress.watch_id, progress.events.len(), progress.created), (-1, 0, false));
        let told = revision(progress.header);
        let after = revision(client.range(key("quiet/a")).await.unwrap().header);
        assert!((before..=after).contains(&told), "{before} <= {told} <= {after}");
        watch.silent().await;
    });
}

#[test]
fn progress_is_exactly_the_revision_of_the_store_and_not_above_an_event() {
    with_own(|client, endpoint| async move {
        client.put("a", "2").await.unwrap();
        let mut watch = Watching::open(&endpoint, from("a", 0)).await;
        assert!(watch.next().await.created);
        watch.ask_progress();
        assert_eq!(revision(watch.next().await.header), 2);
        for at in 3..30 {
            client.put("a", "x").await.unwrap();
            watch.ask_progress();
            let mut events = 0;
            // The event first, or no progress yet: a progress of `at` must not come before it.
            loop {
                let response = watch.next().await;
                events += response.events.len();
                if response.watch_id == -1 {
                    let told = revision(response.header);
                    assert!(told < at || events == 1, "progress {told} before the event of {at}");
                    if told == at {
                        break;
                    }
                }
                if events == 1 {
                    watch.ask_progress();
                }
            }
            // Answers to what was asked twice.
            while let Some(response) = watch.soon().await {
                assert_eq!((response.watch_id, revision(response.header)), (-1, at));
            }
        }
    });
}

#[test]
fn no_progress_while_a_watch_waits_for_the_future() {
    with_own(|client, endpoint| async move {
        let mut watch = Watching::open(&endpoint, from("a", 0)).await;
        watch.create(from("b", 5));
        for _ in 0..2 {
            assert!(watch.next().await.created);
        }
        watch.ask_progress();
        watch.silent().await;
        for name in ["a", "a", "c", "b"] {
            client.put(name, "x").await.unwrap();
        }
        assert_eq!(watch.events(3).await.len(), 3);
        watch.ask_progress();
        // An answer to the first request may come late; it counts only what was delivered.
        loop {
            let progress = watch.next().await;
            assert_eq!(progress.watch_id, -1);
            if revision(progress.header) == 5 {
                break;
            }
        }
    });
}

#[test]
fn a_stream_without_watches_has_no_progress() {
    with_shared(|_| async move {
        let mut watch = Watching::open(&shared().member.endpoint(), from("nothing/a", 0)).await;
        let id = watch.next().await.watch_id;
        watch.cancel(id);
        assert!(watch.next().await.canceled);
        watch.ask_progress();
        watch.silent().await;
    });
}

#[test]
fn a_watch_from_below_zero_is_refused_in_words() {
    with_shared(|_| async move {
        let mut watch = Watching::open(&shared().member.endpoint(), from("below/a", -1)).await;
        let refused = watch.next().await;
        assert_eq!((refused.created, refused.canceled, refused.compact_revision), (true, true, 0));
        assert_eq!((refused.watch_id, refused.cancel_reason.as_str()), (-1, COMPACTED));
    });
}

#[test]
fn watch_ids_are_chosen_once() {
    with_shared(|_| async move {
        let asked = |watch_id| WatchCreateRequest { watch_id, ..from("ids/a", 0) };
        let mut watch = Watching::open(&shared().member.endpoint(), asked(0)).await;
        assert_eq!(watch.next().await.watch_id, 0);
        watch.create(asked(2));
        assert_eq!(watch.next().await.watch_id, 2);
        // The server's own ids go around those of the client.
        for wanted in [1, 3] {
            watch.create(asked(0));
            assert_eq!(watch.next().await.watch_id, wanted);
        }
        watch.create(asked(2));
        let twice = watch.next().await;
        assert!(twice.created && twice.canceled, "{twice:?}");
        assert_eq!(twice.cancel_reason, "mvcc: duplicate watch ID provided on the WatchStream");
        assert_eq!(twice.watch_id, -1);
    });
}

#[test]
fn a_cancelled_watch_is_confirmed_and_silent_and_its_id_is_free() {
    with_shared(|client| async move {
        let mut watch =
            Watching::open(&shared().member.endpoint(), WatchCreateRequest { watch_id: 7, ..from("gone/a", 0) }).await;
        assert!(watch.next().await.created);
        watch.cancel(7);
        let ended = watch.next().await;
        assert_eq!((ended.watch_id, ended.canceled, ended.compact_revision), (7, true, 0));
        // Unknown and cancelled ones are not worth a word.
        watch.cancel(7);
        watch.cancel(99);
        client.put("gone/a", "x").await.unwrap();
        watch.silent().await;
        watch.create(WatchCreateRequest { watch_id: 7, ..from("gone/a", 0) });
        assert_eq!(watch.next().await.watch_id, 7);
        client.put("gone/a", "y").await.unwrap();
        assert_eq!(watch.events(1).await.len(), 1);
    });
}

#[test]
fn a_watch_of_an_empty_range_is_refused() {
    with_shared(|client| async move {
        let range = |key: &str, end: &str| WatchCreateRequest {
            key: key.to_owned().into(),
            range_end: end.to_owned().into(),
            ..WatchCreateRequest::default()
        };
        let mut watch = Watching::open(&shared().member.endpoint(), range("b", "a")).await;
        for next in [None, Some(range("b", "b"))] {
            if let Some(next) = next {
                watch.create(next);
            }
            let refused = watch.next().await;
            assert!(refused.created && refused.canceled, "{refused:?}");
            assert_eq!((refused.watch_id, refused.cancel_reason.as_str()), (-1, "mvcc: watcher range is empty"));
        }
        // No key at all is the whole key space from the first byte on.
        watch.create(range("", "\0"));
        assert!(watch.next().await.created);
        client.put("empty/range", "x").await.unwrap();
        while !watch.events(1).await.iter().any(|(_, key, _)| key == "empty/range") {}
    });
}

#[test]
fn filters_and_previous_values() {
    with_shared(|client| async move {
        let endpoint = shared().member.endpoint();
        let begin = revision(client.put("filter/a", "1").await.unwrap().header);
        let with = |filters: &[i32]| WatchCreateRequest {
            filters: filters.to_vec(),
            prev_kv: true,
            ..from("filter/a", begin)
        };
        let last = revision(client.put("filter/a", "2").await.unwrap().header);
        let gone = revision(client.delete(key("filter/a")).await.unwrap().header);
        let again = revision(client.put("filter/a", "3").await.unwrap().header);
        let table: [(&[i32], Vec<i64>); 3] =
            [(&[], vec![begin, last, gone, again]), (&[0], vec![gone]), (&[1], vec![begin, last, again])];
        for (filters, wanted) in table {
            let mut watch = Watching::open(&endpoint, with(filters)).await;
            assert!(watch.next().await.created);
            let seen: Vec<i64> = watch.events(wanted.len()).await.iter().map(|(_, _, at)| *at).collect();
            assert_eq!(seen, wanted, "filters {filters:?}");
            watch.silent().await;
        }
        let mut watch = Watching::open(&endpoint, with(&[])).await;
        assert!(watch.next().await.created);
        let mut before = Vec::new();
        while before.len() < 4 {
            for event in watch.next().await.events {
                before.push(event.prev_kv.map(|kv| String::from_utf8_lossy(&kv.value).into_owned()));
            }
        }
        let said = |text: &str| Some(text.to_owned());
        assert_eq!(before, [None, said("1"), said("2"), None]);
    });
}

#[test]
fn a_transaction_is_told_as_a_whole() {
    with_shared(|client| async move {
        let mut watch = Watching::open(&shared().member.endpoint(), below("whole/", 0)).await;
        assert!(watch.next().await.created);
        client.put("whole/a", "0").await.unwrap();
        let both = vec![delete("whole/a", ""), put("whole/b", "1"), put("whole/c", "2")];
        let at = revision(client.txn(txn(both)).await.unwrap().header);
        assert_eq!(watch.events(1).await.len(), 1);
        let response = watch.next().await;
        assert_eq!(
            briefly(&response),
            [event(true, "whole/a", at), event(false, "whole/b", at), event(false, "whole/c", at)]
        );
    });
}

#[test]
fn large_responses_come_in_pieces_if_that_was_asked_for() {
    with_own(|client, endpoint| async move {
        let value = vec![b'v'; 900_000];
        for n in 0..4 {
            client.put(format!("big{n}"), value.clone()).await.unwrap();
        }
        for fragment in [true, false] {
            let create = WatchCreateRequest { fragment, ..below("big", 2) };
            let mut watch = Watching::open(&endpoint, create).await;
            assert!(watch.next().await.created);
            let mut revisions = Vec::new();
            while revisions.len() < 4 {
                let response = watch.next().await;
                assert!(fragment || !response.fragment, "a piece that was not asked for");
                // The last piece is known by not being one.
                revisions.extend(briefly(&response).iter().map(|(_, _, at)| *at));
                assert!(revisions.len() < 4 || !response.fragment);
            }
            assert_eq!(revisions, [2, 3, 4, 5]);
        }
    });
}
