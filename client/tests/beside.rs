//! The client beside etcd's own tools, on the real server: users, certificates,
//! locks, elections, snapshots, and what is said when nobody is there.

mod real;

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
    time::Duration,
};

use client::{
    Client, Credentials, Error, Options, PermissionType, Tls,
    concurrency::{Election, Mutex, Session},
    key, prefix,
    wire::{Code, etcdserverpb::AlarmType},
};
use real::{Cluster, PATIENCE, programs, said};
use tokio::time::timeout;

fn user(name: &str, password: &str) -> Option<Credentials> {
    Some(Credentials { name: name.to_owned(), password: password.to_owned() })
}

async fn one(programs: &Path) -> (Cluster, Client) {
    let cluster = Cluster::start(programs, 1, "http", &[]);
    let client = Client::connect(cluster.options()).unwrap();
    cluster.ready(&client).await;
    (cluster, client)
}

#[tokio::test]
async fn users_and_their_tokens() {
    let Some(programs) = programs("users") else { return };
    let (mut cluster, anyone) = one(&programs).await;
    assert!(!anyone.auth_status().await.unwrap().enabled);
    let early = Client::connect(Options { user: user("root", "r"), ..cluster.options() }).unwrap();
    early.put("early", "1").await.unwrap();

    anyone.user_add("root", "r").await.unwrap();
    anyone.user_grant_role("root", "root").await.unwrap();
    anyone.role_add("readers").await.unwrap();
    anyone.role_grant_permission("readers", PermissionType::Read, prefix("open/")).await.unwrap();
    anyone.user_add("ann", "a").await.unwrap();
    anyone.user_grant_role("ann", "readers").await.unwrap();
    anyone.auth_enable().await.unwrap();

    let refused = anyone.get("open/a").await.unwrap_err();
    assert_eq!(refused.etcd_text(), "etcdserver: user name is empty");
    // One that was there before users were asked for gets its token now.
    early.put("open/a", "1").await.unwrap();
    let options = cluster.options();
    let as_ann = |password: &str| Client::connect(Options { user: user("ann", password), ..options.clone() }).unwrap();
    let ann = as_ann("a");
    assert_eq!(&ann.get("open/a").await.unwrap().unwrap().value[..], b"1");
    assert_eq!(ann.put("open/a", "2").await.unwrap_err().etcd_text(), "etcdserver: permission denied");
    let wrong = as_ann("b").get("open/a").await.unwrap_err();
    assert_eq!(wrong.etcd_text(), "etcdserver: authentication failed, invalid user ID or password");
    let mut watcher = ann.watch(prefix("open/"));
    watcher.ready().await.unwrap();
    let hidden = ann.watch(prefix("closed/")).next().await.unwrap_err();
    assert_eq!(hidden.etcd_text(), "rpc error: code = PermissionDenied desc = etcdserver: permission denied");

    // A member forgets its tokens when it starts again.
    cluster.kill(0);
    cluster.run(0);
    cluster.ready(&early).await;
    assert_eq!(&ann.get("open/a").await.unwrap().unwrap().value[..], b"1");
    early.put("open/b", "3").await.unwrap();
    let batch = timeout(PATIENCE, watcher.next()).await.unwrap().unwrap();
    assert_eq!(&batch.events[0].kv.as_ref().unwrap().key[..], b"open/b");

    // Another password ends the token; the client has only the old one.
    early.user_change_password("ann", "c").await.unwrap();
    let late = ann.get("open/a").await.unwrap_err();
    assert_eq!(late.etcd_text(), "etcdserver: authentication failed, invalid user ID or password");
    assert_eq!(&as_ann("c").get("open/a").await.unwrap().unwrap().value[..], b"1");

    // The same, through the lists.
    assert_eq!(early.user_list().await.unwrap().users, ["ann", "root"]);
    assert_eq!(early.user_get("ann").await.unwrap().roles, ["readers"]);
    assert_eq!(early.role_list().await.unwrap().roles, ["readers"]);
    assert_eq!(early.role_get("readers").await.unwrap().perm.len(), 1);
    early.role_revoke_permission("readers", prefix("open/")).await.unwrap();
    assert!(early.role_get("readers").await.unwrap().perm.is_empty());
    early.user_revoke_role("ann", "readers").await.unwrap();
    early.role_delete("readers").await.unwrap();
    early.user_delete("ann").await.unwrap();
    early.auth_disable().await.unwrap();
    early.put("late", "1").await.unwrap();
    anyone.put("late", "2").await.unwrap();
}

#[tokio::test]
async fn certificates_and_the_name_in_them() {
    let Some(programs) = programs("certificates") else { return };
    let folder = tempfile::TempDir::new().unwrap();
    let file = |name: &str| folder.path().join(name);
    certificates(folder.path());
    let flag = |flag: &str, name: &str| format!("--{flag}={}", file(name).display());
    let more = [
        flag("cert-file", "server.pem"),
        flag("key-file", "server.key"),
        flag("trusted-ca-file", "ca.pem"),
        "--client-cert-auth".to_owned(),
    ];
    let cluster = Cluster::start(&programs, 1, "https", &more);
    let tls = Tls { ca: Some(file("ca.pem")), ..Tls::default() };
    let shown = Tls { cert: Some(file("root.pem")), key: Some(file("root.key")), ..tls.clone() };
    let root = Client::connect(Options { tls: Some(shown), ..cluster.options() }).unwrap();
    cluster.ready(&root).await;
    root.put("a", "1").await.unwrap();
    // Nobody without a certificate; etcd's own tool says the same.
    let hasty = Some(Duration::from_secs(1));
    let nobody = Client::connect(Options { tls: Some(tls), request_timeout: hasty, ..cluster.options() }).unwrap();
    let refused = nobody.put("a", "2").await.unwrap_err();
    assert_eq!((refused.etcd_text().as_str(), refused.maybe_done()), ("context deadline exceeded", false), "{refused}");
    // The name in the certificate is the user.
    root.user_add("root", "r").await.unwrap();
    root.user_grant_role("root", "root").await.unwrap();
    root.auth_enable().await.unwrap();
    root.put("a", "3").await.unwrap();
    assert_eq!(root.user_list().await.unwrap().users, ["root"]);
}

fn certificates(folder: &Path) {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(folder.join("ca.pem"), issuer.pem()).unwrap();
    for (name, names) in [("server", vec!["127.0.0.1".to_owned(), "localhost".to_owned()]), ("root", Vec::new())] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &issuer).unwrap();
        std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

#[tokio::test]
async fn locks_and_elections_with_the_stock_tool_and_the_services() {
    let Some(programs) = programs("locks") else { return };
    if !programs.join("etcdctl").exists() {
        return eprintln!("locks: there is no etcdctl in the folder");
    }
    let (cluster, client) = one(&programs).await;
    let session = Session::new(&client, 60).await.unwrap();
    let mutex = Mutex::new(&session, "job");

    // The tool has it: we wait; it goes, we have it.
    let mut tool = cluster.command("etcdctl", &["lock", "job"]).spawn().unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(tool.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let its = client.get(line.trim().to_owned()).await.unwrap().unwrap();
    assert!(matches!(mutex.try_lock().await, Err(Error::Locked)));
    assert_eq!(client.range(prefix("job/")).await.unwrap().count, 1);
    assert!(timeout(Duration::from_millis(200), mutex.lock()).await.is_err());
    let waiting = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.lock().await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waiting.is_finished());
    interrupt(&tool);
    let held = timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap();
    assert!(held.revision() > its.create_revision);
    assert_eq!(&held.key()[..], format!("job/{:x}", session.lease()).as_bytes());
    tool.wait().unwrap();

    // We have it: the tool waits, and so does the server's own service.
    let tool = cluster.command("etcdctl", &["lock", "job", "echo", "in", "turn"]).spawn().unwrap();
    queued(&client, 2).await;
    let lease = client.lease_grant(60, 0).await.unwrap().id;
    let served = tokio::spawn({
        let client = client.clone();
        async move { client.lock("job", lease).await }
    });
    queued(&client, 3).await;
    assert!(!served.is_finished());
    held.unlock().await.unwrap();
    assert!(said(&tokio::task::spawn_blocking(|| tool.wait_with_output()).await.unwrap().unwrap()).contains("in turn"));
    let key_of_lock = served.await.unwrap().unwrap().key;
    assert_eq!(&key_of_lock[..], format!("job/{lease:x}").as_bytes());
    client.unlock(key_of_lock).await.unwrap();

    // An election: the tool listens to us.
    let leadership = Election::new(&session, "chair").campaign("first").await.unwrap();
    let mut listener = cluster.command("etcdctl", &["elect", "-l", "chair"]).stderr(Stdio::null()).spawn().unwrap();
    let mut heard = BufReader::new(listener.stdout.take().unwrap()).lines().map(Result::unwrap);
    let own = String::from_utf8(leadership.key().to_vec()).unwrap();
    assert_eq!((heard.next(), heard.next()), (Some(own.clone()), Some("first".to_owned())));
    leadership.proclaim("second").await.unwrap();
    assert_eq!((heard.next(), heard.next()), (Some(own), Some("second".to_owned())));
    listener.kill().unwrap();
    listener.wait().unwrap();
    // And the services know it as we do.
    assert_eq!(&client.leader("chair").await.unwrap().kv.unwrap().value[..], b"second");
    client.proclaim(leadership.leader_key(), "third").await.unwrap();
    leadership.proclaim("fourth").await.unwrap();
    assert_eq!(&client.election_leader("chair").await.unwrap().value[..], b"fourth");
    let mut observed = client.observe("chair").await.unwrap();
    assert_eq!(&observed.next().await.unwrap().unwrap().kv.unwrap().value[..], b"fourth");
    leadership.resign().await.unwrap();
    let none = client.leader("chair").await.unwrap_err();
    assert_eq!(none.etcd_text(), "rpc error: code = Unknown desc = election: no leader");
    let won = client.campaign("chair", lease, "served").await.unwrap().leader.unwrap();
    client.resign(won).await.unwrap();
    session.close().await.unwrap();
}

/// Waits until so many stand in line for the lock.
async fn queued(client: &Client, count: i64) {
    while client.range(prefix("job/")).await.unwrap().count != count {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn interrupt(child: &std::process::Child) {
    let status = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

#[tokio::test]
async fn snapshots_upkeep_and_members() {
    let Some(programs) = programs("upkeep") else { return };
    let (cluster, client) = one(&programs).await;
    for n in 0..100 {
        client.put(format!("{n}"), vec![b'v'; 2000]).await.unwrap();
    }
    let mut snapshot = client.snapshot().await.unwrap();
    let mut bytes = Vec::new();
    while let Some(piece) = snapshot.next().await.unwrap() {
        bytes.extend_from_slice(&piece);
    }
    assert_eq!((bytes.len() % 512, snapshot.remaining()), (32, 0));
    let file = cluster.file("snapshot.db");
    std::fs::write(&file, bytes).unwrap();
    if programs.join("etcdutl").exists() {
        let status = cluster.command("etcdutl", &["snapshot", "status", file.to_str().unwrap()]).output().unwrap();
        assert!(said(&status).contains("100"), "{status:?}");
    }

    assert!(client.alarm_list().await.unwrap().alarms.is_empty());
    assert!(client.alarm_disarm(0, AlarmType::None).await.unwrap().alarms.is_empty());
    client.defragment().await.unwrap();
    assert!(client.hash().await.unwrap().hash != 0);
    let downgraded = client
        .downgrade(client::wire::etcdserverpb::downgrade_request::DowngradeAction::Validate, "9.9")
        .await
        .unwrap_err();
    assert_eq!(downgraded.etcd_text(), "etcdserver: invalid downgrade target version");
    let status = client.status().await.unwrap();
    assert_eq!(
        client.move_leader(status.leader + 1).await.unwrap_err().etcd_text(),
        "etcdserver: bad leader transferee"
    );
    assert_eq!(client.cluster_endpoints().await.unwrap(), cluster.endpoints());
    assert_eq!(client.member_list_with(false).await.unwrap().members.len(), 1);
    let added = client.member_add(vec!["http://127.0.0.1:1".to_owned()], true).await.unwrap().member.unwrap();
    assert!(added.is_learner);
    let unready = client.member_promote(added.id).await.unwrap_err();
    assert_eq!(unready.etcd_text(), "etcdserver: can only promote a learner member which is in sync with leader");
    client.member_update(added.id, vec!["http://127.0.0.1:2".to_owned()]).await.unwrap();
    assert_eq!(client.member_remove(added.id).await.unwrap().members.len(), 1);
    assert_eq!(client.member_remove(7).await.unwrap_err().etcd_text(), "etcdserver: member not found");
    assert!(matches!(client.get("").await.unwrap_err(), Error::Server { code: Code::InvalidArgument, .. }));
    assert!(client.range(key("0")).await.unwrap().count == 1);
}

#[tokio::test]
async fn what_is_said_when_nobody_is_there_is_what_the_stock_tool_says() {
    let Some(programs) = programs("nobody") else { return };
    let tool = std::process::Command::new(programs.join("etcdctl"))
        .args(["--endpoints=127.0.0.1:1", "--command-timeout=300ms", "put", "a", "b"])
        .output();
    let Ok(tool) = tool else {
        return eprintln!("nobody: there is no etcdctl in the folder");
    };
    let theirs = String::from_utf8(tool.stderr).unwrap();
    let options = Options { request_timeout: Some(Duration::from_millis(300)), ..Options::of(["127.0.0.1:1"]) };
    let ours = Client::connect(options).unwrap().put("a", "b").await.unwrap_err();
    assert_eq!(theirs.lines().last(), Some(format!("Error: {}", ours.etcd_text()).as_str()));
}
