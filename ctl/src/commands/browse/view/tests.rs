//! The screen in front of a store that is a map.

use std::collections::BTreeMap;

use client::wire::{Code, etcdserverpb::ResponseHeader};
use ratatui::{Terminal, backend::TestBackend};

use super::*;

/// A store that answers as one would, and keeps what it was asked.
struct Store {
    keys: BTreeMap<Vec<u8>, Vec<u8>>,
    revision: i64,
    compacted: i64,
    read: usize,
}

impl Store {
    fn of(pairs: &[(&str, &str)]) -> Store {
        let keys = pairs.iter().map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec())).collect();
        Store { keys, revision: 7, compacted: 0, read: 0 }
    }

    fn range(&mut self, request: &RangeRequest) -> Result<RangeResponse, Error> {
        if request.revision != 0 && request.revision < self.compacted {
            let message = "etcdserver: mvcc: required revision has been compacted".to_owned();
            return Err(Error::Server { code: Code::OutOfRange, message });
        }
        let end = &request.range_end[..];
        let inside = |key: &[u8]| match end {
            b"" => key == &request.key[..],
            b"\0" => key >= &request.key[..],
            end => key >= &request.key[..] && key < end,
        };
        let found: Vec<_> = self.keys.iter().filter(|(key, _)| inside(key)).collect();
        let count = found.len();
        let limit = match (request.count_only, usize::try_from(request.limit)) {
            (true, _) => 0,
            (false, Ok(0) | Err(_)) => count,
            (false, Ok(limit)) => limit,
        };
        let kvs: Vec<KeyValue> = found
            .iter()
            .take(limit)
            .map(|(key, value)| KeyValue {
                key: (*key).clone().into(),
                value: if request.keys_only { Vec::new() } else { (*value).clone() }.into(),
                create_revision: 2,
                mod_revision: 3,
                version: 2,
                lease: 0,
            })
            .collect();
        self.read += kvs.len();
        Ok(RangeResponse {
            header: Some(ResponseHeader { revision: self.revision, ..Default::default() }),
            more: kvs.len() < count,
            kvs,
            count: count as i64,
        })
    }
}

fn browser(prefix: &str) -> Browser {
    Browser::new(Plan { prefix: prefix.into(), separator: b"/".to_vec(), serializable: false })
}

/// Draws, and answers everything that is wanted, until nothing is.
fn settle(browser: &mut Browser, store: &mut Store, width: u16, height: u16) -> String {
    for _ in 0..1_000 {
        let screen = screen(browser, width, height);
        let mut asks: Vec<Ask> = std::iter::from_fn(|| browser.wants()).collect();
        assert!(asks.len() <= AT_ONCE);
        if asks.is_empty() {
            return screen;
        }
        // The order of answers is nobody's.
        asks.reverse();
        for ask in asks {
            let answer = store.range(&ask.request);
            browser.take(ask.life, ask.about, answer);
        }
    }
    panic!("it never has enough");
}

fn screen(browser: &mut Browser, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| browser.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let line = |row: &[ratatui::buffer::Cell]| {
        row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned() + "\n"
    };
    buffer.content().chunks(usize::from(width)).map(line).collect()
}

fn press(browser: &mut Browser, keys: &str) {
    for key in keys.chars() {
        let key = match key {
            '⏎' => KeyCode::Enter,
            '⌫' => KeyCode::Backspace,
            '⎋' => KeyCode::Esc,
            key => KeyCode::Char(key),
        };
        assert!(browser.key(key));
    }
}

const PAIRS: &[(&str, &str)] = &[
    ("app", "x"),
    ("app/Blue/one", "1"),
    ("app/Blue/two", "2"),
    ("app/green", r#"{"a":[1]}"#),
    ("app/red", ""),
    ("zoo", "lion"),
];

#[test]
fn down_into_a_value_and_up_again() {
    let (mut store, mut browser) = (Store::of(PAIRS), browser(""));
    assert_eq!(
        settle(&mut browser, &mut store, 72, 6),
        "\
all keys  3 rows  revision 7
app                          │text, 1 B
app/                        4│created 2  changed 3  version 2
zoo                          │
                             │x
q quit  Enter open  Backspace up  / filter  x bytes  r reload
"
    );
    press(&mut browser, "j⏎");
    settle(&mut browser, &mut store, 72, 6);
    press(&mut browser, "jl");
    let value = settle(&mut browser, &mut store, 40, 9);
    assert!(value.starts_with("app/green  3 rows  revision 7\nJSON, 9 B\n"), "{value}");
    assert!(value.contains("\n{\n  \"a\": [\n    1\n"), "{value}");
    press(&mut browser, "x");
    assert!(settle(&mut browser, &mut store, 72, 9).contains("\n00000000  7b 22 61 22"));
    press(&mut browser, "⌫");
    assert!(settle(&mut browser, &mut store, 40, 5).starts_with("app/  3 rows"));
    press(&mut browser, "h");
    assert!(settle(&mut browser, &mut store, 40, 5).starts_with("all keys"));
    assert_eq!(browser.here.chosen().unwrap().key, b"app/", "where it was left");
}

#[test]
fn up_from_where_it_began() {
    let (mut store, mut browser) = (Store::of(PAIRS), browser("app/Bl"));
    assert!(settle(&mut browser, &mut store, 40, 5).starts_with("app/Bl  1 row  revision 7\nBlue/"));
    press(&mut browser, "⌫");
    assert!(settle(&mut browser, &mut store, 40, 5).starts_with("app/  3 rows"));
    press(&mut browser, "⌫");
    settle(&mut browser, &mut store, 40, 5);
    assert_eq!(browser.here.chosen().unwrap().key, b"app/", "where it came from");
    press(&mut browser, "⌫⌫");
    assert!(settle(&mut browser, &mut store, 40, 5).starts_with("all keys"));
}

#[test]
fn a_filter_finds_names_and_is_dropped_again() {
    let (mut store, mut browser) = (Store::of(PAIRS), browser("app/"));
    settle(&mut browser, &mut store, 60, 5);
    press(&mut browser, "/Rbl⌫⌫");
    let typed = settle(&mut browser, &mut store, 60, 5);
    assert!(typed.contains("\ngreen\nred\n"), "{typed}");
    assert!(typed.contains("filter: R_  2 found"), "{typed}");
    press(&mut browser, "e⏎j");
    assert_eq!(browser.here.chosen().unwrap().key, b"app/red");
    press(&mut browser, "⎋");
    assert_eq!(browser.here.chosen().unwrap().key, b"app/red");
    assert!(settle(&mut browser, &mut store, 60, 5).contains("Blue/"));
    press(&mut browser, "/nobody");
    assert!(settle(&mut browser, &mut store, 60, 5).contains("no name has this in it"));
}

#[test]
fn a_level_is_read_as_far_as_it_is_seen_and_a_branch_not_at_all() {
    let mut store = Store::of(&[]);
    for branch in 0..3 {
        for key in 0..5_000 {
            store.keys.insert(format!("/{branch}/{key:05}").into_bytes(), b"v".to_vec());
        }
    }
    let mut browser = browser("/");
    let top = settle(&mut browser, &mut store, 40, 10);
    assert!(top.contains("0/                                  5000"), "{top}");
    assert!(store.read <= 3 * 100, "{} keys were read", store.read);
    press(&mut browser, "⏎");
    settle(&mut browser, &mut store, 40, 10);
    assert!(store.read <= 5 * 100, "{} keys were read", store.read);
    press(&mut browser, "G");
    let end = settle(&mut browser, &mut store, 40, 10);
    assert!(end.contains("00099"), "{end}");
    assert!(end.starts_with("/0/  200 rows and more"), "{end}");
    // A filter that little fits reads on.
    press(&mut browser, "/04999");
    assert!(settle(&mut browser, &mut store, 40, 10).contains("\n04999"));
}

#[test]
fn a_revision_that_is_compacted_away_is_told_and_r_reads_the_newest() {
    let (mut store, mut browser) = (Store::of(PAIRS), browser(""));
    settle(&mut browser, &mut store, 80, 6);
    (store.revision, store.compacted) = (20, 15);
    store.keys.insert(b"new".to_vec(), b"n".to_vec());
    press(&mut browser, "j⏎");
    let told = settle(&mut browser, &mut store, 80, 6);
    assert!(told.contains("revision 7 has been compacted away: press r to read the newest"), "{told}");
    assert_eq!(browser.wants(), None, "nothing more is asked for");
    press(&mut browser, "r");
    let fresh = settle(&mut browser, &mut store, 80, 6);
    assert!(fresh.starts_with("app/  3 rows  revision 20"), "{fresh}");
    press(&mut browser, "⌫");
    assert!(settle(&mut browser, &mut store, 80, 6).contains("new"));
}

#[test]
fn every_read_is_of_the_first_one_s_revision() {
    let (mut store, mut browser) = (Store::of(PAIRS), browser(""));
    let first = browser.wants().expect("rows");
    assert_eq!((first.request.revision, browser.wants()), (0, None), "nothing before the revision is known");
    browser.take(first.life, first.about, store.range(&first.request));
    store.revision = 9;
    screen(&mut browser, 80, 10);
    let asks: Vec<Ask> = std::iter::from_fn(|| browser.wants()).collect();
    assert_eq!(asks.len(), 2, "{asks:?}");
    assert!(asks.iter().all(|ask| ask.request.revision == 7), "{asks:?}");
}

#[test]
fn answers_for_another_level_are_passed_over() {
    let (mut store, mut browser) = (Store::of(PAIRS), browser(""));
    settle(&mut browser, &mut store, 80, 6);
    press(&mut browser, "j⏎");
    let late = browser.wants().expect("rows");
    press(&mut browser, "⌫");
    browser.take(late.life, late.about, store.range(&late.request));
    assert!(settle(&mut browser, &mut store, 80, 6).starts_with("all keys  3 rows"));
}

#[test]
fn no_screen_is_too_small() {
    let (mut store, mut browser) = (Store::of(PAIRS), browser(""));
    for _ in 0..2 {
        for width in (1..100).step_by(3) {
            for height in 1..6 {
                settle(&mut browser, &mut store, width, height);
                press(&mut browser, "Gg");
            }
        }
        browser.alone = true;
    }
}

#[test]
fn names_as_long_as_a_request_are_cut() {
    let long = "k".repeat(1 << 20);
    let below = format!("{long}/x");
    let (mut store, mut browser) = (Store::of(&[(&long, "v"), (&below, "w")]), browser(""));
    settle(&mut browser, &mut store, 80, 6);
    press(&mut browser, "j⏎");
    assert!(settle(&mut browser, &mut store, 2_000, 6).starts_with(&format!("{}…  1 row", "k".repeat(NAME_MAX))));
}
