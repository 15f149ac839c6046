//! What a new member is started with, and the URLs that it may have.

use client::wire::etcdserverpb::Member;

use super::auth;
use crate::{
    call::Call,
    exit::{ERROR, Failure, Outcome},
};

/// What the new member's process is to be started with.
pub fn settings(name: &str, member: &Member, members: &[Member]) -> [String; 5] {
    [
        String::new(),
        format!("ETCD_NAME={}", cobra::quote(name)),
        format!("ETCD_INITIAL_CLUSTER={}", cobra::quote(&initial_cluster(name, member, members))),
        format!("ETCD_INITIAL_ADVERTISE_PEER_URLS=\"{}\"", member.peer_urls.join(",")),
        "ETCD_INITIAL_CLUSTER_STATE=\"existing\"".to_owned(),
    ]
}

/// Everybody with a name and the peer URLs, in the order of the members.
pub fn initial_cluster(name: &str, member: &Member, members: &[Member]) -> String {
    let mut founders = Vec::new();
    for other in members {
        let name = if other.id == member.id { name } else { &other.name };
        founders.extend(other.peer_urls.iter().map(|url| format!("{name}={url}")));
    }
    founders.join(",")
}

/// The value of `--peer-urls`.
///
/// # Errors
/// If it was not given.
pub fn peer_urls(call: &Call) -> Outcome<Vec<String>> {
    match call.text("peer-urls") {
        "" => Err(Failure::bad_args("member peer urls not provided")),
        urls => Ok(urls.split(',').map(str::to_owned).collect()),
    }
}

/// What the stock client refuses before it asks a server.
///
/// # Errors
/// A text that is no URL of a member.
pub fn check_urls(urls: &[String]) -> Outcome {
    let wrong = |text: String| Err(Failure::new(ERROR, text));
    for url in urls {
        let url = url.trim();
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        match scheme {
            "http" | "https" => {
                let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
                if !has_port(authority) {
                    return wrong(format!("URL address does not have the form \"host:port\": {url}"));
                }
                if !path.is_empty() {
                    return wrong(format!("URL must not contain a path: {url}"));
                }
            }
            "unix" | "unixs" => {}
            _ => return wrong(format!("URL scheme must be http, https, unix, or unixs: {url}")),
        }
    }
    urls.iter().try_for_each(|url| auth::text(url))
}

fn has_port(authority: &str) -> bool {
    match authority.rsplit_once(':') {
        Some((host, _)) => host.starts_with('[') && host.ends_with(']') || !host.contains(':'),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learner() -> Member {
        Member {
            id: 0x3e6a_2744,
            peer_urls: vec!["http://127.0.0.1:7001".to_owned(), "http://127.0.0.1:7002".to_owned()],
            is_learner: true,
            ..Member::default()
        }
    }

    #[test]
    fn the_settings_name_everybody_in_the_order_of_the_members() {
        let other = Member { id: 1, name: "m0".to_owned(), peer_urls: vec!["http://a:1".to_owned()], ..learner() };
        let lines = settings("nm", &learner(), &[other, learner()]);
        assert_eq!(
            lines.join("\n") + "\n",
            "
ETCD_NAME=\"nm\"
ETCD_INITIAL_CLUSTER=\"m0=http://a:1,nm=http://127.0.0.1:7001,nm=http://127.0.0.1:7002\"
ETCD_INITIAL_ADVERTISE_PEER_URLS=\"http://127.0.0.1:7001,http://127.0.0.1:7002\"
ETCD_INITIAL_CLUSTER_STATE=\"existing\"
"
        );
    }

    #[test]
    fn urls_that_are_none_are_refused_before_a_server_is_asked() {
        let check = |url: &str| match check_urls(&[url.to_owned()]) {
            Ok(()) => String::new(),
            Err(Failure::Text { text, .. }) => text,
            Err(other) => panic!("{other:?}"),
        };
        for good in ["http://127.0.0.1:1", "https://[::1]:1", "unix://x", " http://a:1 "] {
            assert_eq!(check(good), "", "{good}");
        }
        assert_eq!(check("bogus"), "URL scheme must be http, https, unix, or unixs: bogus");
        assert_eq!(check(""), "URL scheme must be http, https, unix, or unixs: ");
        assert_eq!(check("http://a"), "URL address does not have the form \"host:port\": http://a");
        assert_eq!(check("http://a:1/b"), "URL must not contain a path: http://a:1/b");
    }
}
