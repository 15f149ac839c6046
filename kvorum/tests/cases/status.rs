//! What a member says about itself and its cluster.

use client::wire::Code;

use crate::live::{http, refused};
use crate::{shared, with_own, with_shared};

#[test]
fn a_member_knows_itself_and_its_leader() {
    with_shared(|client| async move {
        let status = client.status().await.unwrap();
        let header = status.header.unwrap();
        assert_eq!((status.version.as_str(), status.storage_version.as_str()), ("3.7.3", "3.7.0"));
        assert_eq!((status.leader, status.raft_term), (header.member_id, header.raft_term));
        assert!(status.raft_applied_index > 0 && status.raft_index >= status.raft_applied_index);
        assert!(status.db_size > 0 && status.db_size_in_use > 0 && !status.is_learner);
        assert_eq!(status.errors.len(), 0);
        assert!(header.raft_term > 0 && header.cluster_id > 0);

        let list = client.member_list().await.unwrap();
        assert_eq!(list.members.len(), 1);
        let member = &list.members[0];
        assert_eq!((member.id, member.name.as_str(), member.is_learner), (header.member_id, "m1", false));
        let port = shared().port();
        assert_eq!(member.client_urls, [format!("http://127.0.0.1:{port}")]);
        // One header for all answers of one member.
        let put = client.put("status/a", "x").await.unwrap().header.unwrap();
        assert_eq!((put.cluster_id, put.member_id), (header.cluster_id, header.member_id));
        let listed = list.header.unwrap();
        assert_eq!((listed.cluster_id, listed.member_id), (header.cluster_id, header.member_id));
    });
}

#[test]
fn leadership_goes_to_a_member_alone() {
    with_shared(|client| async move {
        let me = client.status().await.unwrap().leader;
        client.move_leader(me).await.unwrap();
        refused(client.move_leader(0x1234).await, Code::FailedPrecondition, "etcdserver: bad leader transferee");
    });
}

#[test]
fn a_method_that_does_not_exist_is_unimplemented() {
    with_shared(|client| async move {
        for (path, text) in [
            ("/etcdserverpb.KV/Nope", "unknown method Nope for service etcdserverpb.KV"),
            ("/etcdserverpb.Nope/Put", "unknown service etcdserverpb.Nope"),
        ] {
            refused(client.raw(path, bytes::Bytes::new()).await, Code::Unimplemented, text);
        }
    });
}

#[test]
fn a_message_that_is_none_is_refused_and_the_connection_stays() {
    with_shared(|client| async move {
        match client.raw("/etcdserverpb.KV/Put", bytes::Bytes::from_static(b"\x0a\xff")).await {
            Err(client::Error::Server { code: Code::Internal, .. }) => {}
            other => panic!("{other:?}"),
        }
        // Fields that nobody knows are skipped.
        let unknown = bytes::Bytes::from_static(b"\x0a\x0cstatus/field\x12\x01x\x98\x06\x07");
        client.raw("/etcdserverpb.KV/Put", unknown).await.unwrap();
        assert_eq!(&client.get("status/field").await.unwrap().unwrap().value[..], b"x");
    });
}

#[test]
fn plain_pages_answer_what_monitors_ask() {
    let port = shared().port();
    let version = http::get(port, "/version").unwrap();
    assert_eq!(version.status, 200);
    assert_eq!(version.json()["etcdserver"], "3.7.3");
    assert_eq!(version.json()["etcdcluster"], "3.7.0");
    let health = http::get(port, "/health").unwrap();
    assert_eq!((health.status, health.json()["health"].as_str()), (200, Some("true")));
    for page in ["/livez", "/readyz", "/health?serializable=true"] {
        assert_eq!(http::get(port, page).unwrap().status, 200, "{page}");
    }
    let metrics = http::get(port, "/metrics").unwrap();
    assert_eq!(metrics.status, 200);
    for name in
        ["etcd_server_has_leader 1", "etcd_server_is_leader 1", "etcd_server_version{server_version=\"3.7.3\"} 1"]
    {
        assert!(metrics.body.contains(name), "{name}");
    }
    let nowhere = http::get(port, "/nowhere").unwrap();
    assert_eq!((nowhere.status, nowhere.body.trim_end()), (404, "404 page not found"));
}

/// Tools take 0, which JSON leaves out, for a member that does not say.
#[test]
fn a_new_member_has_something_in_use() {
    with_own(|client, endpoint| async move {
        let status = client.status().await.unwrap();
        assert!(status.db_size_in_use > 0 && status.db_size >= status.db_size_in_use, "{status:?}");
        let port = endpoint.rsplit_once(':').unwrap().1.parse().unwrap();
        let shown = http::post(port, "/v3/maintenance/status", "{}").unwrap().json();
        let in_use: i64 = shown["dbSizeInUse"].as_str().expect("it is shown").parse().unwrap();
        assert!(in_use > 0, "{shown}");
    });
}

#[test]
fn downgrades_are_checked() {
    let ask = |body: &str| {
        let answer = http::post(shared().port(), "/v3/maintenance/downgrade", body).unwrap().json();
        let text = answer["message"].as_str().or(answer["version"].as_str()).unwrap_or_default().to_owned();
        (answer["code"].as_u64().unwrap_or(0), text)
    };
    let told = |code: u64, text: &str| (code, text.to_owned());
    const FORMAT: &str = "etcdserver: wrong downgrade target version format";
    const TARGET: &str = "etcdserver: invalid downgrade target version";
    for (version, expected) in [
        ("x", told(3, FORMAT)),
        ("", told(3, FORMAT)),
        ("3", told(3, FORMAT)),
        ("v3.6", told(3, FORMAT)),
        ("3.6-rc", told(3, FORMAT)),
        ("3.6.0.1", told(3, FORMAT)),
        ("3.5", told(3, TARGET)),
        ("3.7", told(3, TARGET)),
        ("4.0", told(3, TARGET)),
        ("3.6", told(0, "3.7")),
        ("3.6.5", told(0, "3.7")),
    ] {
        assert_eq!(ask(&format!(r#"{{"action":"VALIDATE","version":"{version}"}}"#)), expected, "{version}");
        if expected.0 != 0 {
            assert_eq!(ask(&format!(r#"{{"action":"ENABLE","version":"{version}"}}"#)), expected, "{version}");
        }
    }
    assert_eq!(ask("{}"), told(3, FORMAT));
    assert_eq!(ask(r#"{"action":"CANCEL"}"#), told(0, "3.7"));
    assert_eq!(ask(r#"{"action":7}"#), told(2, "etcdserver: unknown method"));
}
