use super::*;
use crate::digest::Digest;
use crate::image::ImageHead;
use crate::import::{AuthTables, Import, Tables};
use crate::state::{Config, Store};

fn apply(store: &mut Store, command: &AuthCommand<'_>) -> Result<Option<AuthChange>, Error> {
    let mut digest = Digest::default();
    store.auth.apply(7, command, &mut digest)
}

fn with_users() -> Store {
    let mut store = Store::new(Config::default());
    let permission = Permission { kind: READ, key: Bytes::from_static(b"a"), range_end: Bytes::from_static(b"\0") };
    for command in [
        AuthCommand::UserAdd { name: "root", hashed: "aGFzaA==", no_password: false },
        AuthCommand::UserAdd { name: "cert", hashed: "", no_password: true },
        AuthCommand::RoleAdd { name: "r" },
        AuthCommand::RoleGrantPermission { role: "r", permission: Some(permission) },
        AuthCommand::UserGrantRole { user: "root", role: "root" },
        AuthCommand::UserGrantRole { user: "cert", role: "r" },
        AuthCommand::Enable,
    ] {
        assert_eq!(apply(&mut store, &command), Ok(None), "{command:?}");
    }
    store
}

#[test]
fn commands_round_trip() {
    let permission = Permission { kind: 7, key: Bytes::from_static(b"k"), range_end: Bytes::new() };
    for command in [
        AuthCommand::Enable,
        AuthCommand::Disable,
        AuthCommand::Authenticate { name: "u", simple_token: "t" },
        AuthCommand::UserAdd { name: "u", hashed: "h", no_password: false },
        AuthCommand::UserAdd { name: "u", hashed: "", no_password: true },
        AuthCommand::UserDelete { name: "u" },
        AuthCommand::UserChangePassword { name: "u", hashed: "h" },
        AuthCommand::UserGrantRole { user: "u", role: "r" },
        AuthCommand::UserRevokeRole { user: "u", role: "r" },
        AuthCommand::RoleAdd { name: "r" },
        AuthCommand::RoleDelete { role: "r" },
        AuthCommand::RoleGrantPermission { role: "r", permission: None },
        AuthCommand::RoleGrantPermission { role: "r", permission: Some(permission) },
        AuthCommand::RoleRevokePermission { role: "r", key: b"k", range_end: b"l" },
    ] {
        let body = command.body();
        assert_eq!(crate::command::decode(&body).unwrap().command, crate::command::Command::Auth(command.clone()));
        for cut in 1..body.len() {
            assert!(crate::command::decode(&body[..cut]).is_err());
        }
        for shown in [format!("{command:?}"), format!("{:?}", crate::command::Command::Auth(command))] {
            assert!(!shown.contains('h') || shown.starts_with("Auth"), "no hash is shown: {shown}");
        }
    }
}

#[test]
fn users_survive_an_image_and_raise_its_level() {
    let plain = Store::new(Config::default()).image_head();
    assert_eq!(plain.encode()[7], 1, "the version before reads it");
    let store = with_users();
    let head = store.image_head();
    let encoded = head.encode();
    assert_eq!(encoded[7], 2);
    assert_eq!(ImageHead::decode(&encoded).unwrap(), head);
    let mut newer = encoded.clone();
    newer[7] = crate::image::FORMAT + 1;
    assert!(ImageHead::decode(&newer).unwrap_err().to_string().contains("newer than ours"));

    // Tables that are apart.
    let less = ImageHead::decode(&head.encode_without_tables()).unwrap();
    assert!(less.users.is_empty() && less.auth_enabled);
    let (_, mut cursor) = with_users().image();
    let mut rows = Vec::new();
    assert!(store.image_rows(&mut cursor, 10, &mut rows));
    let mut loader = Store::loader(Config::default(), less.clone());
    head.table_blocks(|block| loader.table(block)).unwrap();
    loader.block(&rows).unwrap();
    assert_eq!(loader.finish().unwrap().auth, store.auth, "with what the roles add up to");
    let mut short = Store::loader(Config::default(), less);
    short.block(&rows).unwrap();
    assert!(short.finish().is_err(), "users are missing");
}

#[test]
fn users_go_out_and_come_in_as_etcd_stores_them() {
    let store = with_users();
    let mut auth = AuthTables::default();
    for (bucket, pairs) in store.export().buckets() {
        for (key, value) in pairs {
            match (bucket, &key[..]) {
                ("auth", b"authEnabled") => auth.enabled = value == [1],
                ("auth", b"authRevision") => auth.revision = u64::from_be_bytes(value.try_into().unwrap()),
                ("authUsers", b"root") => {
                    assert_eq!(value, b"\x0a\x04root\x12\x04hash\x1a\x04root\x22\x00");
                    auth.user(&key, &value).unwrap();
                }
                ("authUsers", _) => auth.user(&key, &value).unwrap(),
                ("authRoles", _) => {
                    assert_eq!(value, b"\x0a\x01r\x12\x06\x12\x01a\x1a\x01\0");
                    auth.role(&key, &value).unwrap();
                }
                _ => {}
            }
        }
    }
    assert!(auth.clone().user(b"other", b"\x0a\x04root").is_err(), "under another name");
    let tables = Tables { compacted: -1, auth, ..Tables::default() };
    let imported = Import::new(Config::default()).finish(tables).unwrap().store;
    assert_eq!(imported.auth, store.auth);
    let open = Import::new(Config::default()).finish(Tables { compacted: -1, ..Tables::default() }).unwrap().store;
    assert!(open.auth.untouched());
    assert_ne!(imported.digest(), open.digest());
}

#[test]
fn no_need_at_all_is_denied() {
    let store = with_users();
    let root = Asker::User { name: "root", revision: store.auth.revision() };
    assert_eq!(store.permit(root, &[]), Err(Error::PermissionDenied));
    assert_eq!(store.permit(root, &[Need::Admin]), Ok(()));
    assert_eq!(store.permit(Asker::Nobody, &[Need::User]), Err(Error::UserEmpty));
    assert_eq!(store.permit(Asker::Member, &[]), Ok(()));
    assert_eq!(Store::new(Config::default()).permit(Asker::Nobody, &[]), Ok(()), "nobody is asked");
}

#[test]
fn nothing_secret_is_shown() {
    let shown = format!("{:?}", with_users());
    assert!(!shown.contains("hash") && !shown.contains("104, 97, 115, 104"), "{shown}");
    let change = AuthChange::LoggedIn { user: "u".into(), token: "secret.7".into() };
    assert!(!format!("{change:?}").contains("secret"));
}
