//! What people are told behind an error. Scripts never see it.

/// (a part of the error, what to do)
const HINTS: [(&str, &str); 11] = [
    ("is a directory", "give the file itself: of a stopped etcd it is member/snap/db, with --skip-hash-check"),
    ("timeout", "another process has the file open: stop it, or wait longer with --timeout"),
    (
        "snapshot missing hash",
        "the file was not written by `snapshot save`; if it is a member/snap/db of a stopped etcd, add --skip-hash-check",
    ),
    ("expected sha256", "the file changed since it was saved: copy it again, or take another snapshot"),
    ("not empty or could not be read", "give --data-dir a directory that does not exist yet"),
    ("invalid database", "this is no bbolt file: neither a snapshot nor a member/snap/db"),
    ("another process is using", "stop the member first; a running one is asked with `kvorum ctl`"),
    ("couldn't find local name", "--name must be one of the names in --initial-cluster"),
    (
        "missing from --initial-advertise-peer-urls",
        "give --initial-advertise-peer-urls this member's URLs of --initial-cluster",
    ),
    ("required revision has been compacted", "give --rev a revision from the compacted one on"),
    ("snapshot file integrity check failed", "take another snapshot; `bbolt check` names the pages"),
];

pub fn hint(error: &str) -> Option<&'static str> {
    HINTS.iter().find(|(part, _)| error.contains(part)).map(|(_, hint)| *hint)
}
