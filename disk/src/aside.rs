//! The place `aside/`: files that a member with peers gave up because they are damaged. Nothing
//! reads them. They stay until the member has again what it lost, for the case that no other member
//! has it and an operator must look. A file is there under its name in the directory, with `-` for
//! `/`, and a number behind it if an earlier one has that name.

use crate::header::read_full;
use crate::holes::Holes;
use crate::{Fault, Files, How};
use std::io::ErrorKind;

const DIR: &str = "aside";
const CHUNK: usize = 1 << 20;
/// Bytes that stay free beside a copy.
const ROOM: u64 = 256 << 10;

fn place(path: &str) -> String {
    format!("{DIR}/{}", path.replace('/', "-"))
}

fn dir_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

fn make(files: &dyn Files) -> Result<(), Fault> {
    files.make_dir(DIR).and_then(|()| files.sync_dir("")).map_err(|e| Fault::io(DIR, 0, e))
}

/// Where a further file of that name goes: what is there already may be the only copy.
fn free_place(files: &dyn Files, path: &str) -> String {
    let first = place(path);
    let numbered = (1..).map(|number| format!("{first}.{number}"));
    std::iter::once(first.clone())
        .chain(numbered)
        .find(|name| matches!(files.open(name, How::Read), Err(error) if error.kind() == ErrorKind::NotFound))
        .expect("numbers do not end")
}

/// The file at `path` goes there, durably. It is no error if it went before.
pub(crate) fn take(files: &dyn Files, path: &str) -> Result<(), Fault> {
    make(files)?;
    match files.rename(path, &free_place(files, path)) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        other => other.map_err(|e| Fault::io(path, 0, e))?,
    }
    files.sync_dir(DIR).and_then(|()| files.sync_dir(dir_of(path))).map_err(|e| Fault::io(path, 0, e))
}

/// A copy of the file at `path` stays there, unless an earlier one does. False: there is no room
/// for it, and for what the start itself needs.
pub(crate) fn copy(files: &dyn Files, path: &str) -> Result<bool, Fault> {
    match copy_and_leave_room(files, path) {
        Err(fault) if fault.is_full() => Ok(false),
        other => other.map(|()| true),
    }
}

fn copy_and_leave_room(files: &dyn Files, path: &str) -> Result<(), Fault> {
    make(files)?;
    let to = place(path);
    if files.open(&to, How::Read).is_ok() {
        // A process that was killed may have named it and not flushed the name.
        return files.sync_dir(DIR).map_err(|e| Fault::io(DIR, 0, e));
    }
    let copied = copy_to(files, path, &format!("{to}.part")).and_then(|()| leave_room(files));
    if copied.is_err() {
        let _ = files.remove(&format!("{to}.part"));
    }
    copied?;
    let named = files.rename(&format!("{to}.part"), &to).and_then(|()| files.sync_dir(DIR));
    named.map_err(|e| Fault::io(&to, 0, e))
}

/// The cut itself, and the marks beside the log, need some room: what is damaged must not take the
/// last of it, or the member never starts.
fn leave_room(files: &dyn Files) -> Result<(), Fault> {
    let path = format!("{DIR}/room.part");
    let made = files.open(&path, How::Create).and_then(|file| file.allocate(ROOM));
    let removed = files.remove(&path);
    made.and(removed).map_err(|e| Fault::io(&path, 0, e))
}

fn copy_to(files: &dyn Files, path: &str, to: &str) -> Result<(), Fault> {
    let from = Holes::blank(files.open(path, How::Read).map_err(|e| Fault::io(path, 0, e))?);
    let into = files.open(to, How::Create).map_err(|e| Fault::io(to, 0, e))?;
    let (mut buffer, mut offset) = (vec![0; CHUNK], 0);
    loop {
        let got = read_full(&*from, path, offset, &mut buffer)?;
        if got == 0 {
            return into.sync().map_err(|e| Fault::io(to, 0, e));
        }
        into.write_at(offset, &[&buffer[..got]]).map_err(|e| Fault::io(to, offset, e))?;
        offset += got as u64;
    }
}

/// Everything there is removed: the member has again what it lost.
///
/// # Errors
/// What the operating system says.
pub fn clear(files: &dyn Files) -> Result<(), Fault> {
    clear_those(files, |_| true)
}

/// Files of a state are removed: a leader gives another one. Those of the log stay as long as the
/// doubt: until the new state is here, they may be the only copy of what was acknowledged.
pub(crate) fn clear_state(files: &dyn Files) -> Result<(), Fault> {
    clear_those(files, |name| !name.starts_with("log-"))
}

fn clear_those(files: &dyn Files, goes: impl Fn(&str) -> bool) -> Result<(), Fault> {
    let mut names = match files.list(DIR) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|e| Fault::io(DIR, 0, e))?,
    };
    names.retain(|name| goes(name));
    for name in &names {
        let path = format!("{DIR}/{name}");
        files.remove(&path).map_err(|e| Fault::io(&path, 0, e))?;
    }
    if names.is_empty() { Ok(()) } else { files.sync_dir(DIR).map_err(|e| Fault::io(DIR, 0, e)) }
}
