//! What can be seen of the client without a server.

use std::time::{Duration, Instant};

use client::{Client, Error, Options};
use tokio::net::TcpListener;

/// Nobody listens on these ports, nor are they given to who asks for any.
const CLOSED: [&str; 2] = ["127.0.0.1:1", "127.0.0.1:2"];

fn hasty<const N: usize>(endpoints: [String; N]) -> Options {
    Options { request_timeout: Some(Duration::from_millis(300)), ..Options::of(endpoints) }
}

#[tokio::test(flavor = "current_thread")]
async fn what_was_not_sent_says_so_when_time_is_up() {
    let client = Client::connect(hasty(CLOSED.map(str::to_owned))).unwrap();
    let start = Instant::now();
    let error = client.put("a", "b").await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(!error.maybe_done());
    assert!(error.to_string().contains("refused"), "{error}");
    let took = start.elapsed();
    assert!(took > Duration::from_millis(200) && took < Duration::from_secs(60), "{took:?}");
    assert!(matches!(client.keep_alive(5).renew().await, Err(Error::Unreachable { .. })));
    assert!(matches!(client.range_stream(client::key("a")).await, Err(Error::Unreachable { .. })));
}

#[tokio::test(flavor = "current_thread")]
async fn a_server_that_does_not_answer_is_left() {
    // It accepts and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::connect(hasty([silent.local_addr().unwrap().to_string()])).unwrap();
    let error = client.put("a", "b").await.unwrap_err();
    // It is not sent to a server that has not said a word.
    assert!(matches!(error, Error::Unreachable { .. }) && !error.maybe_done(), "{error}");
}

#[test]
fn endpoints_are_checked_and_completed() {
    let client = Client::new(["127.0.0.1:1", "http://[::1]:2"]).unwrap();
    assert_eq!(client.endpoints(), ["http://127.0.0.1:1", "http://[::1]:2"]);
    assert_eq!(client.single("localhost:3").unwrap().endpoints(), ["http://localhost:3"]);
    for bad in ["", "host", "http://host", "ftp://host:1", "http://:1", "a b:1", "http://host:99999"] {
        assert!(matches!(Client::new([bad]), Err(Error::Endpoint { .. })), "{bad:?}");
    }
    assert!(matches!(Client::new(Vec::<String>::new()), Err(Error::Endpoint { .. })));
}

#[tokio::test(flavor = "current_thread")]
async fn metadata_is_checked() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    let options = Options { metadata: vec![("to ken".to_owned(), "x".to_owned())], ..hasty([endpoint]) };
    let client = Client::connect(options).unwrap();
    assert!(matches!(client.get("a").await, Err(Error::Endpoint { .. })));
}
