//! The socket of a file.
//!
//! As with etcd the file that an earlier process left is removed at the start, and the own one at
//! the end. Not as with etcd: a file that is no socket stays, and so does a socket on which a
//! process listens. Both are somebody's.

use rustix::fs::{Stat, stat};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

/// The files of this process's sockets. A process ends by a signal or by `exit`, where nothing is
/// dropped.
static FILES: Mutex<Vec<Ours>> = Mutex::new(Vec::new());

/// A file that this process made. Another process may have put its own there since.
struct Ours {
    path: PathBuf,
    made: Stat,
}

fn files() -> MutexGuard<'static, Vec<Ours>> {
    FILES.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Removes the files of all sockets of this process: before it ends.
pub(crate) fn remove_files() {
    for Ours { path, made } in files().drain(..) {
        let is_ours = stat(&path).is_ok_and(|now| (now.st_dev, now.st_ino) == (made.st_dev, made.st_ino));
        if is_ours {
            // What stays is removed by the next start.
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Listens on a path.
///
/// # Errors
/// In etcd's words, where it has some.
pub(super) fn listen(path: &str) -> io::Result<UnixListener> {
    let said = |error: io::Error| {
        // The library's own word for a path of 108 bytes and more.
        let invalid = error.kind() == io::ErrorKind::InvalidInput;
        let why = if invalid { "invalid argument".to_string() } else { super::reason(&error) };
        io::Error::new(error.kind(), format!("listen unix {path}: bind: {why}"))
    };
    let place = Path::new(path);
    make_room(place, &said)?;
    let listener = UnixListener::bind(place).map_err(&said)?;
    // The standard library listens with a queue of 128.
    rustix::net::listen(&listener, super::bind::BACKLOG)?;
    let place = std::path::absolute(place)?;
    let made = stat(&place)?;
    files().push(Ours { path: place, made });
    Ok(listener)
}

/// Takes a socket away that nobody listens on any more.
fn make_room(path: &Path, said: &impl Fn(io::Error) -> io::Error) -> io::Result<()> {
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        // What else is wrong is said when the path is bound.
        Err(_) => return Ok(()),
    };
    if !found.file_type().is_socket() {
        let text = format!("{}: there is a file that is no socket", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            let failed = |error| io::Error::other(format!("remove {}: {}", path.display(), super::reason(&error)));
            std::fs::remove_file(path).map_err(failed)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // It answers, or may.
        _ => Err(said(io::Error::from(rustix::io::Errno::ADDRINUSE))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &Path) -> String {
        listen(path.to_str().expect("UTF-8")).expect_err("refused").to_string()
    }

    #[test]
    fn what_an_earlier_process_left_makes_room_and_nothing_else_does() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| dir.path().join(name);
        let path = at("left");
        drop(UnixListener::bind(&path).expect("binds"));
        let listener = listen(path.to_str().expect("UTF-8")).expect("listens where nobody does");
        assert_eq!(refused(&path), format!("listen unix {}: bind: address already in use", path.display()));
        drop(listener);
        let file = at("file");
        std::fs::write(&file, "kept").expect("writes");
        assert_eq!(refused(&file), format!("{}: there is a file that is no socket", file.display()));
        assert_eq!(std::fs::read_to_string(&file).expect("reads"), "kept");
        // etcd 3.7.3 says the same of these two.
        let nowhere = at("no/such");
        assert_eq!(refused(&nowhere), format!("listen unix {}: bind: no such file or directory", nowhere.display()));
        let long = at(&"x".repeat(108));
        assert_eq!(refused(&long), format!("listen unix {}: bind: invalid argument", long.display()));
        // At the end of a process its files go, and no others.
        let taken = at("taken");
        drop(listen(taken.to_str().expect("UTF-8")).expect("listens"));
        std::fs::rename(&taken, at("other")).expect("renames");
        let _theirs = UnixListener::bind(&taken).expect("binds");
        remove_files();
        assert!(!path.exists() && taken.exists());
    }
}
