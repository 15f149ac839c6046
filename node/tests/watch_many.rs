//! One stream with very many watches: what it does at once stays short, so that the others of its
//! thread have their turn. And it loses nothing.

use bytes::Bytes;
use node::watch::{CreateRequest, FromClient, Limits, StreamOut, WatchStream};
use node::{History, ToStream, WatchOp};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Event, Rev, RevisionEvents};

const LIMITS: Limits = Limits { buffer_bytes: 1 << 20, fragment_bytes: 2 << 20, progress_interval_ticks: 60_000 };
const EVENTS: i64 = 5_000;

fn piece(from: i64, last: i64) -> Vec<Arc<RevisionEvents>> {
    let event = |main| Event {
        tombstone: false,
        key: format!("k{main:06}").as_bytes().into(),
        record: Bytes::from_static(&[0; 60]),
        revision: Rev { main, sub: 0 },
        create: main,
        prev: None,
    };
    (from..=last).map(|main| Arc::new(RevisionEvents { revision: main, events: vec![event(main)] })).collect()
}

/// Each piece of history was held against every watch that was behind, in one go.
#[test]
fn history_for_many_watches_is_given_in_parts() {
    const WATCHES: i64 = 2_000;
    let mut stream = WatchStream::new(LIMITS, EVENTS + 1);
    let (mut out, mut events, mut longest) = (Vec::new(), 0, Duration::ZERO);
    for n in 0..WATCHES {
        // One of them hears of something.
        let key = if n == WATCHES - 1 { "k000100".to_owned() } else { format!("other{n}") };
        let create = CreateRequest { key: key.into(), start_revision: 2, ..CreateRequest::default() };
        stream.client(FromClient::Create(create), EVENTS + 1, &mut out);
    }
    let (all, mut parts) = (piece(2, EVENTS + 1), 0);
    while !out.is_empty() {
        for what in std::mem::take(&mut out) {
            match what {
                StreamOut::Ask(WatchOp::Join { id, next, .. }) => {
                    let revision = EVENTS + 1;
                    let message = match next > revision {
                        true => ToStream::Joined { id, revision, missed: Vec::new() },
                        false => ToStream::Behind { id, revision, ring: 0 },
                    };
                    stream.core(message, &mut out);
                }
                StreamOut::AskHistory { from, .. } => {
                    parts += 1;
                    let revisions = all[all.partition_point(|one| one.revision < from)..].to_vec();
                    let history = History { revisions, next: EVENTS + 2, compacted: -1 };
                    let begun = Instant::now();
                    stream.history(Ok(history), &mut out);
                    longest = longest.max(begun.elapsed());
                }
                StreamOut::Respond(response) => {
                    events += response.events.len();
                    stream.sent(response.bytes, &mut out);
                }
                StreamOut::Ask(_) => {}
                StreamOut::End(refusal) => panic!("{refusal:?}"),
            }
        }
    }
    assert_eq!((events, stream.behind(), stream.count() as i64), (1, 0, WATCHES));
    println!("{parts} parts, the longest took {longest:?}");
    assert!(parts >= WATCHES * EVENTS / 200_000, "{parts} parts");
    assert!(longest < Duration::from_secs(1), "{parts} parts, the longest took {longest:?}");
}
