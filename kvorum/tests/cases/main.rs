//! What etcd answers, case by case, asked of the real program through real sockets.
//!
//! Every expectation here was seen on etcd 3.7.3; with `KVORUM_TEST_BIN=/path/to/etcd` the
//! same tests ask it again. Tests whose revisions or quota matter have a member of their
//! own, all others share one and keep to keys of their own.

#[path = "../live/mod.rs"]
mod live;

mod compaction;
mod json;
mod leases;
mod members;
mod puts;
mod quota;
mod reads;
mod status;
mod txn;
mod watch;

use std::sync::OnceLock;

use client::Client;
use live::Alone;

/// The member that tests share. It is never dropped: its guard ends it with the tests.
fn shared() -> &'static Alone {
    static SHARED: OnceLock<Alone> = OnceLock::new();
    SHARED.get_or_init(|| Alone::new(&[]))
}

/// Runs a test against the shared member.
fn with_shared<F: Future<Output = ()>>(test: impl FnOnce(Client) -> F) {
    let shared = shared();
    live::block_on(async { test(shared.client()).await });
}

/// Runs a test against a new member.
fn with_own<F: Future<Output = ()>>(test: impl FnOnce(Client, String) -> F) {
    let own = Alone::new(&[]);
    live::block_on(async { test(own.client(), own.member.endpoint()).await });
}

const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";
const FUTURE: &str = "etcdserver: mvcc: required revision is a future revision";
const NO_KEY: &str = "etcdserver: key is not provided";

fn revision(header: Option<client::wire::etcdserverpb::ResponseHeader>) -> i64 {
    header.expect("a header").revision
}
