//! Files as etcd leaves them, made here.

use sha2::{Digest, Sha256};
use std::fs;
use std::path::Path;
use store::record::KeyValueRef;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The history of a small cluster.
#[derive(Clone, Debug, Default)]
pub struct History {
    rows: Pairs,
    pub leases: Pairs,
    pub meta: Pairs,
    pub auth: Pairs,
    pub users: Pairs,
}

fn revision(main: i64, tail: &[u8]) -> Vec<u8> {
    [&main.to_be_bytes()[..], b"_", &0i64.to_be_bytes(), tail].concat()
}

impl History {
    pub fn put(&mut self, key: &str, value: &[u8], (create, main, version): (i64, i64, i64), lease: i64) {
        let mut body = Vec::new();
        KeyValueRef { key: key.as_bytes(), create, modified: main, version, value, lease }.encode(&mut body);
        self.rows.push((revision(main, b""), body));
    }

    pub fn delete(&mut self, key: &str, main: i64) {
        let mut body = Vec::new();
        KeyValueRef { key: key.as_bytes(), ..Default::default() }.encode(&mut body);
        self.rows.push((revision(main, b"t"), body));
    }

    /// 40 keys, one of them on a lease, some written twice, one deleted; compacted at 10.
    pub fn small() -> History {
        let mut history = History::default();
        for n in 0..40i64 {
            let value = vec![b'v'; 10 + n as usize * 13];
            history.put(&format!("key/{n:03}"), &value, (n + 2, n + 2, 1), if n == 7 { 0x1234 } else { 0 });
        }
        for n in 0..10i64 {
            history.put(&format!("key/{n:03}"), b"again", (n + 2, n + 42, 2), 0);
        }
        history.delete("key/039", 52);
        history.put("key/007", b"leased", (9, 53, 3), 0x1234);
        history.leases.push((0x1234i64.to_be_bytes().to_vec(), b"\x08\xb4\x24\x10\x3c\x18\x14".to_vec()));
        history.meta = vec![
            (b"confState".to_vec(), b"{\"voters\":[1],\"auto_leave\":false}".to_vec()),
            (b"consistent_index".to_vec(), 60u64.to_be_bytes().to_vec()),
            (b"finishedCompactRev".to_vec(), revision(10, b"")),
            (b"scheduledCompactRev".to_vec(), revision(10, b"")),
            (b"storageVersion".to_vec(), b"3.7.0".to_vec()),
            (b"term".to_vec(), 2u64.to_be_bytes().to_vec()),
        ];
        history
    }

    pub fn bytes(&self) -> Vec<u8> {
        let empty = Vec::new;
        let buckets: Vec<(&[u8], Pairs)> = vec![
            (b"alarm", empty()),
            (b"auth", self.auth.clone()),
            (b"authRoles", empty()),
            (b"authUsers", self.users.clone()),
            (b"cluster", vec![(b"clusterVersion".to_vec(), b"3.7.0".to_vec())]),
            (b"key", self.rows.clone()),
            (b"lease", self.leases.clone()),
            (b"members", empty()),
            (b"members_removed", empty()),
            (b"meta", self.meta.clone()),
        ];
        bolt::write_all(&buckets).expect("the buckets ascend")
    }
}

/// With the digest that `snapshot save` puts behind a file.
pub fn saved(mut bytes: Vec<u8>) -> Vec<u8> {
    let digest = Sha256::digest(&bytes);
    bytes.extend_from_slice(&digest);
    bytes
}

/// Writes all fixtures into `dir`.
pub fn write(dir: &Path) {
    let small = History::small();
    let bytes = small.bytes();
    let put = |name: &str, bytes: Vec<u8>| fs::write(dir.join(name), bytes).expect("a file in a folder of ours");
    put("saved.db", saved(bytes.clone()));
    put("copied.db", bytes.clone());
    let mut changed = saved(bytes.clone());
    changed[20_000] ^= 1;
    put("changed.db", changed);
    let mut broken = bytes.clone();
    // The number of elements of the page behind the metas.
    broken[2 * 4096..2 * 4096 + 8].fill(0xee);
    put("broken.db", broken);
    put("short.db", bytes[..9_000].to_vec());
    put("junk.db", vec![b'j'; 9_000]);
    put("tiny.db", b"tiny".to_vec());
    put("empty.db", saved(History { meta: small.meta[..2].to_vec(), ..History::default() }.bytes()));
    let mut users = small.clone();
    users.users.push((b"root".to_vec(), b"\x0a\x04root".to_vec()));
    users.auth.push((b"authEnabled".to_vec(), vec![1]));
    put("auth.db", saved(users.bytes()));
    let mut wrong = small.clone();
    wrong.put("late", b"v", (90, 91, 1), 0);
    wrong.rows.last_mut().expect("just put").0 = revision(90, b"");
    put("wrong.db", saved(wrong.bytes()));
    let backend = dir.join("etcd/member/snap");
    fs::create_dir_all(&backend).expect("a folder");
    fs::write(backend.join("db"), &bytes).expect("a file");
    fs::create_dir_all(dir.join("full")).expect("a folder");
    fs::write(dir.join("full/file"), b"x").expect("a file");
    fs::create_dir_all(dir.join("hollow")).expect("a folder");
}
