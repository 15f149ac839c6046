//! Requests as no good client sends them, and what is answered to each: over HTTP/2 to gRPC, and
//! over HTTP/1.1.
//!
//! The answers are golden files (`tests/forms/*.txt`) that a real etcd wrote:
//! `REWRITE=1 KVORUM_TEST_BIN=/path/to/etcd cargo test -p kvorum --test forms`.

#[path = "../live/mod.rs"]
mod live;

mod calls;
mod h1;
mod h2;

use live::Alone;
use testkit::golden;

/// Plays a file of forms against a new member.
fn play(name: &str, line: impl Fn(u16, &str) -> String) {
    let path = format!("{}/tests/forms/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    golden::file(path, |text| {
        let server = Alone::new(&[]);
        golden::lines(text, |command| line(server.port(), command))
    });
}

#[test]
fn calls_of_every_form() {
    play("calls", calls::line);
}

/// What differs on purpose: `docs/compat.md` says why.
#[test]
fn forms_that_are_refused_here() {
    if !live::is_other() {
        play("unlike", calls::line);
        play("unlike_pages", h1::line);
    }
}

#[test]
fn pages_of_every_form() {
    play("pages", h1::line);
}
