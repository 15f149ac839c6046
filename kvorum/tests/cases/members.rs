//! Changes of the members of a cluster of one, and how they are refused.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use client::wire::Code;

use crate::live::refused;
use crate::with_own;

const INVALID: &str = "etcdserver: given member URLs are invalid";
const NOT_FOUND: &str = "etcdserver: member not found";
const TAKEN: &str = "etcdserver: Peer URLs already exists";

fn second() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock that goes").as_secs()
}

#[test]
fn what_no_member_can_be_is_refused() {
    with_own(|client, _| async move {
        let own = client.member_list().await.unwrap().members.remove(0);
        for bad in ["127.0.0.1:1", "x", "http://127.0.0.1", "http://127.0.0.1:1/path", "ftp://127.0.0.1:1"] {
            for learner in [false, true] {
                refused(client.member_add(vec![bad.into()], learner).await, Code::InvalidArgument, INVALID);
            }
        }
        refused(client.member_add(vec![], false).await, Code::InvalidArgument, INVALID);
        for learner in [false, true] {
            let urls = own.peer_urls.clone();
            refused(client.member_add(urls, learner).await, Code::FailedPrecondition, TAKEN);
        }
        let free = || vec!["http://127.0.0.1:1".to_owned()];
        refused(client.member_remove(5).await, Code::NotFound, NOT_FOUND);
        refused(client.member_update(5, free()).await, Code::NotFound, NOT_FOUND);
        refused(client.member_promote(5).await, Code::NotFound, NOT_FOUND);
        let voter = "etcdserver: can only promote a learner member";
        refused(client.member_promote(own.id).await, Code::FailedPrecondition, voter);
        // The last one stays. etcd has no code for this.
        let last = "etcdserver: re-configuration failed due to not enough started members";
        refused(client.member_remove(own.id).await, Code::Unknown, last);
    });
}

/// An id is made of the URLs and the second.
#[test]
fn the_same_member_twice_within_a_second() {
    with_own(|client, _| async move {
        for attempt in 0..20 {
            // The rest of a second that has just begun is longer than what follows.
            while SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_millis() > 100 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let begun = second();
            let urls = || vec![format!("http://127.0.1.{attempt}:1")];
            let id = client.member_add(urls(), true).await.unwrap().member.expect("a member").id;
            let again = client.member_add(urls(), true).await;
            client.member_remove(id).await.unwrap();
            let removed = client.member_add(urls(), true).await;
            if second() != begun {
                client.member_remove(removed.unwrap().member.expect("a member").id).await.unwrap();
                continue;
            }
            refused(again, Code::FailedPrecondition, "etcdserver: member ID already exist");
            refused(removed, Code::NotFound, NOT_FOUND);
            // In another second it is another member; of learners there is one.
            while second() == begun {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let id = client.member_add(urls(), true).await.unwrap().member.expect("a member").id;
            let behind = "etcdserver: can only promote a learner member which is in sync with leader";
            refused(client.member_promote(id).await, Code::FailedPrecondition, behind);
            let many = "etcdserver: too many learner members in cluster";
            let other = vec!["http://127.0.2.1:1".to_owned()];
            refused(client.member_add(other, true).await, Code::FailedPrecondition, many);
            client.member_remove(id).await.unwrap();
            refused(client.member_remove(id).await, Code::NotFound, NOT_FOUND);
            return;
        }
        panic!("no second was long enough");
    });
}
