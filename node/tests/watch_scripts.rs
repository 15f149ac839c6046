//! Watch streams as scripts: `watch_scripts/*.txt`. The outcome of a command is what the client was
//! sent.
//!
//! ```text
//! create KEY [END] [rev=N] [id=N] [prev] [noput] [nodelete] [notify] [fragment]
//! cancel ID | progress | refuse TEXT | put K V | big K BYTES | delete K | txn K=V -K .. | compact N
//! stall | flow          the client stops, goes on reading
//! hold | settle         messages stop moving; move them all
//! install N             a snapshot brings N puts of key `s`
//! damage | heal         history cannot be read, can again
//! tick N | leader yes|no | care
//! ```

mod watch_world;

use bytes::Bytes;
use node::ToStream;
use node::watch::{CreateRequest, FromClient, Limits, Response};
use std::fmt::Write;
use testkit::golden;
use watch_world::{World, show_event};

const LIMITS: Limits = Limits { buffer_bytes: 4000, fragment_bytes: 600, progress_interval_ticks: 10 };

#[test]
fn scripts() {
    golden::folder(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/watch_scripts"), run);
}

/// Long values make the ring short. A watch on its way through history is near the newest revision
/// all the while, and the core does not have the rest until the very end.
#[test]
fn a_watch_in_history_asks_to_join_when_the_ring_may_reach_back_to_it() {
    let mut world = World::new(1500, &[LIMITS]);
    world.history_chunk = 2;
    for n in 0..100 {
        assert!(world.change(&[("a".into(), Some(format!("{n:0500}")))]));
    }
    for _ in 0..10 {
        world.client(0, FromClient::Create(create(&["a", "rev=1"])));
    }
    world.settle();
    let events: usize = world.clients[0].received.iter().map(|response| response.events.len()).sum();
    assert_eq!(events, 1_000);
    let joins = world.clients[0].joins;
    assert!(joins <= 40, "{joins} joins of 10 watches");
}

/// A drained outbox takes any batch: it must not be one of the buffer that the stream had before.
#[test]
fn what_a_stream_takes_of_history_follows_from_the_buffer_that_it_has_now() {
    let mut world = World::new(1500, &[Limits { buffer_bytes: 1 << 20, ..LIMITS }]);
    world.history_chunk = 100;
    for n in 0..100 {
        assert!(world.change(&[("a".into(), Some(format!("{n:0500}")))]));
    }
    world.clients[0].stalled = true;
    assert!(world.clients[0].stream.set_buffer(4000));
    world.client(0, FromClient::Create(create(&["a", "rev=1"])));
    world.settle();
    let held = world.clients[0].stream.held();
    assert!(held > 0 && held <= 4000, "{held} bytes are held");
    world.clients[0].stalled = false;
    world.settle();
    let events: usize = world.clients[0].received.iter().map(|response| response.events.len()).sum();
    assert_eq!(events, 100);
}

fn run(script: &str) -> String {
    let mut world = World::new(1500, &[LIMITS]);
    let mut hold = false;
    let mut seen = 0;
    golden::lines(script, |command| {
        command_line(&mut world, command, &mut hold);
        if !hold {
            world.settle();
        }
        let mut shown: Vec<String> = world.clients[0].received[seen..].iter().map(show_response).collect();
        seen = world.clients[0].received.len();
        if let Some(refusal) = world.clients[0].ended.take() {
            shown.push(format!("ended {refusal:?}"));
        }
        shown.join("\n")
    })
}

fn command_line(world: &mut World, command: &str, hold: &mut bool) {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words[..] {
        ["create", ref rest @ ..] => world.client(0, FromClient::Create(create(rest))),
        ["cancel", id] => world.client(0, FromClient::Cancel { id: id.parse().unwrap() }),
        ["progress"] => world.client(0, FromClient::Progress),
        ["refuse", ref rest @ ..] => world.client(0, FromClient::Refuse { reason: rest.join(" ") }),
        ["put", key, value] => assert!(world.change(&[(key.into(), Some(value.into()))])),
        ["big", key, bytes] => assert!(world.change(&[(key.into(), Some("x".repeat(bytes.parse().unwrap())))])),
        ["delete", key] => assert!(world.change(&[(key.into(), None)])),
        ["txn", ref rest @ ..] => {
            let change = |word: &&str| match word.split_once('=') {
                Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
                None => (word.trim_start_matches('-').to_owned(), None),
            };
            assert!(world.change(&rest.iter().map(change).collect::<Vec<_>>()));
        }
        ["compact", revision] => world.compacted = revision.parse().unwrap(),
        ["stall"] => world.clients[0].stalled = true,
        ["flow"] => world.clients[0].stalled = false,
        ["damage"] => world.damaged = true,
        ["heal"] => world.damaged = false,
        ["hold"] => *hold = true,
        ["settle"] => *hold = false,
        ["install", puts] => {
            let put = |n: u32| vec![("s".to_owned(), Some(n.to_string()))];
            world.install(&(0..puts.parse().unwrap()).map(put).collect::<Vec<_>>());
        }
        ["tick", ticks] => {
            for _ in 0..ticks.parse().unwrap() {
                world.tick(0);
                world.settle();
            }
        }
        ["leader", known] => world.tell(0, ToStream::Leader { known: known == "yes" }),
        ["care"] => world.clients[0].stream.require_leader(100),
        _ => panic!("no such command: {command}"),
    }
}

fn create(words: &[&str]) -> CreateRequest {
    let bytes = |word: &str| Bytes::from(word.replace("\\0", "\0").replace("''", "").into_bytes());
    let mut request = CreateRequest { key: bytes(words[0]), ..CreateRequest::default() };
    for word in &words[1..] {
        match word.split_once('=') {
            Some(("rev", revision)) => request.start_revision = revision.parse().unwrap(),
            Some(("id", id)) => request.watch_id = id.parse().unwrap(),
            _ => match *word {
                "prev" => request.prev_kv = true,
                "noput" => request.no_put = true,
                "nodelete" => request.no_delete = true,
                "notify" => request.progress_notify = true,
                "fragment" => request.fragment = true,
                end => request.range_end = bytes(end),
            },
        }
    }
    request
}

fn show_response(response: &Response) -> String {
    let mut line = format!("watch {} rev {}", response.watch_id, response.header_revision);
    for (flag, name) in
        [(response.created, " created"), (response.canceled, " canceled"), (response.fragment, " fragment")]
    {
        line += if flag { name } else { "" };
    }
    if response.compact_revision != 0 {
        write!(line, " compacted {}", response.compact_revision).unwrap();
    }
    if !response.cancel_reason.is_empty() {
        write!(line, ": {}", response.cancel_reason).unwrap();
    }
    if response.events.is_empty() && !response.created && !response.canceled {
        line += " progress";
    }
    for event in &response.events {
        write!(line, "\n  {}", show_event(event)).unwrap();
    }
    line
}
