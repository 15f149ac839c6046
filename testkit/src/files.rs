//! A disk in memory that remembers every call, and can be rebuilt as a crash after any of them
//! might have left it.

use crate::Dice;
use disk::{File, Files, How};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

const SECTOR: usize = 512;
const PAGE: usize = 4096;
/// What a drive answers that cannot read.
const EIO: i32 = 5;

#[derive(Clone, Debug)]
enum Op {
    Link {
        path: String,
        node: usize,
    },
    Rename {
        from: String,
        to: String,
        node: usize,
    },
    Remove {
        path: String,
    },
    SyncDir {
        dir: String,
    },
    Write {
        node: usize,
        offset: usize,
        bytes: Vec<u8>,
    },
    SetLen {
        node: usize,
        len: usize,
    },
    Sync {
        node: usize,
    },
    /// A flush that failed: the system calls the written pages clean and never writes them again.
    FailedSync {
        node: usize,
    },
}

#[derive(Default)]
struct Disk {
    names: BTreeMap<String, usize>,
    nodes: Vec<Vec<u8>>,
    dirs: Vec<String>,
    ops: Vec<Op>,
    /// Calls that change something until one fails; None: never.
    fail_after: Option<usize>,
    fail_kind: Option<io::ErrorKind>,
    /// Nothing that needs more room succeeds. Half of it is written.
    full: bool,
    /// Bytes that files may still grow by; what shrinks or goes gives some back. None: no bound.
    space: Option<u64>,
    /// Reads that fail next.
    unread: usize,
    /// Pages that the disk cannot read: file and number. Writing one makes it readable, as a drive
    /// does.
    bad: BTreeSet<(usize, usize)>,
    /// Pages that it cannot write either.
    stuck: BTreeSet<(usize, usize)>,
}

/// What of the calls that no flush covers is on the disk after a crash.
#[derive(Clone, Copy, Debug)]
pub enum Kept {
    Nothing,
    Everything,
    /// Each directory change and each sector by the toss of a coin.
    Some(u64),
}

pub const KEPT: [Kept; 5] = [Kept::Nothing, Kept::Everything, Kept::Some(1), Kept::Some(2), Kept::Some(3)];

#[derive(Clone, Default)]
pub struct MemFiles(Arc<Mutex<Disk>>);

struct MemFile {
    disk: MemFiles,
    node: usize,
}

/// Numbers of the pages that these bytes lie on.
fn pages(offset: usize, len: usize) -> std::ops::Range<usize> {
    offset / PAGE..(offset + len).div_ceil(PAGE)
}

fn dir_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

fn not_found(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, path.to_string())
}

impl MemFiles {
    pub fn new() -> MemFiles {
        MemFiles::default()
    }

    pub fn shared(&self) -> Arc<dyn Files> {
        Arc::new(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap()
    }

    /// Number of changing calls so far.
    pub fn calls(&self) -> usize {
        self.lock().ops.len()
    }

    /// The changing call after `calls` further ones fails, and all later ones too.
    pub fn fail_after(&self, calls: usize, kind: io::ErrorKind) {
        let mut disk = self.lock();
        disk.fail_after = Some(calls);
        disk.fail_kind = Some(kind);
    }

    pub fn set_full(&self, full: bool) {
        self.lock().full = full;
    }

    /// Files may grow by so many bytes together from now on.
    pub fn set_space(&self, bytes: u64) {
        self.lock().space = Some(bytes);
    }

    /// Bytes that are left of that.
    pub fn space(&self) -> Option<u64> {
        self.lock().space
    }

    /// A folder is gone, with every file in it.
    pub fn lose_dir(&self, dir: &str) {
        let mut disk = self.lock();
        disk.names.retain(|path, _| dir_of(path) != dir);
        disk.dirs.retain(|known| known != dir);
    }

    /// The next `count` reads fail.
    pub fn fail_reads(&self, count: usize) {
        self.lock().unread = count;
    }

    /// The disk cannot read this page of a file any more, until it is written.
    pub fn spoil_page(&self, path: &str, page: usize) {
        let mut disk = self.lock();
        let node = disk.names[path];
        disk.bad.insert((node, page));
    }

    /// Nor can it write the page.
    pub fn stick_page(&self, path: &str, page: usize) {
        self.spoil_page(path, page);
        let mut disk = self.lock();
        let node = disk.names[path];
        disk.stuck.insert((node, page));
    }

    pub fn heal(&self) {
        self.lock().fail_after = None;
    }

    pub fn files(&self) -> Vec<String> {
        self.lock().names.keys().cloned().collect()
    }

    pub fn bytes(&self, path: &str) -> Vec<u8> {
        let disk = self.lock();
        disk.nodes[disk.names[path]].clone()
    }

    /// Changes bytes behind everybody's back.
    pub fn edit(&self, path: &str, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut disk = self.lock();
        let node = disk.names[path];
        edit(&mut disk.nodes[node]);
    }

    pub fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let disk = self.lock();
        disk.names.iter().map(|(path, node)| (path.clone(), disk.nodes[*node].clone())).collect()
    }

    /// A disk with the same files and no history.
    pub fn copy(&self) -> MemFiles {
        MemFiles::with(self.contents(), self.lock().dirs.clone())
    }

    fn with(contents: BTreeMap<String, Vec<u8>>, dirs: Vec<String>) -> MemFiles {
        let mut disk = Disk { dirs, ..Disk::default() };
        for (path, bytes) in contents {
            disk.names.insert(path, disk.nodes.len());
            disk.nodes.push(bytes);
        }
        MemFiles(Arc::new(Mutex::new(disk)))
    }

    /// The disk after a crash behind the first `calls` calls. Only for a disk whose history began
    /// empty.
    pub fn crash(&self, calls: usize, kept: Kept) -> MemFiles {
        let disk = self.lock();
        let mut durable = Durable { names: BTreeMap::new(), nodes: vec![Vec::new(); disk.nodes.len()] };
        let mut pending: Vec<&Op> = Vec::new();
        for op in &disk.ops[..calls] {
            match op {
                Op::Sync { node } => pending.retain(|op| {
                    let mine = matches!(op, Op::Write { node: n, .. } | Op::SetLen { node: n, .. } if n == node);
                    if mine {
                        durable.apply(op, &mut |_| true);
                    }
                    !mine
                }),
                Op::FailedSync { node } => pending.retain(|op| !matches!(op, Op::Write { node: n, .. } if n == node)),
                Op::SyncDir { dir } => pending.retain(|op| {
                    let mine = match op {
                        Op::Link { path, .. } | Op::Remove { path } => dir_of(path) == dir,
                        Op::Rename { from, to, .. } => dir_of(from) == dir || dir_of(to) == dir,
                        _ => false,
                    };
                    if mine {
                        durable.apply(op, &mut |_| true);
                    }
                    !mine
                }),
                other => pending.push(other),
            }
        }
        let mut dice = match kept {
            Kept::Some(seed) => Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ calls as u64),
            _ => Dice::new(0),
        };
        let mut toss = move |_: usize| match kept {
            Kept::Nothing => false,
            Kept::Everything => true,
            Kept::Some(_) => dice.one_in(2),
        };
        for op in pending {
            durable.apply(op, &mut toss);
        }
        let contents = durable.names.iter().map(|(path, node)| (path.clone(), durable.nodes[*node].clone())).collect();
        MemFiles::with(contents, disk.dirs.clone())
    }
}

struct Durable {
    names: BTreeMap<String, usize>,
    nodes: Vec<Vec<u8>>,
}

impl Durable {
    fn apply(&mut self, op: &Op, toss: &mut dyn FnMut(usize) -> bool) {
        match op {
            Op::Write { node, offset, bytes } => {
                let target = &mut self.nodes[*node];
                let end = offset + bytes.len();
                let mut at = *offset;
                while at < end {
                    let next = ((at / SECTOR + 1) * SECTOR).min(end);
                    if toss(at) {
                        if target.len() < next {
                            target.resize(next, 0);
                        }
                        target[at..next].copy_from_slice(&bytes[at - offset..next - offset]);
                    }
                    at = next;
                }
            }
            Op::SetLen { node, len } if toss(*len) => self.nodes[*node].resize(*len, 0),
            Op::Link { path, node } if toss(*node) => {
                self.names.insert(path.clone(), *node);
            }
            Op::Rename { from, to, node } if toss(*node) => {
                if self.names.get(from) == Some(node) {
                    self.names.remove(from);
                }
                self.names.insert(to.clone(), *node);
            }
            Op::Remove { path } if toss(0) => {
                self.names.remove(path);
            }
            _ => {}
        }
    }
}

impl Disk {
    fn needs_room(&self, op: &Op) -> bool {
        match op {
            Op::Link { .. } => true,
            Op::Write { node, offset, bytes } => offset + bytes.len() > self.nodes[*node].len(),
            Op::SetLen { node, len } => *len > self.nodes[*node].len(),
            _ => false,
        }
    }

    /// By how many bytes the files grow, and by how many they shrink.
    fn grows(&self, op: &Op) -> (u64, u64) {
        let named = |path: &String| self.names.get(path).map_or(0, |node| self.nodes[*node].len());
        let (now, then) = match op {
            Op::Write { node, offset, bytes } => {
                let len = self.nodes[*node].len();
                (len, len.max(offset + bytes.len()))
            }
            Op::SetLen { node, len } => (self.nodes[*node].len(), *len),
            Op::Rename { to: path, .. } | Op::Remove { path } => (named(path), 0),
            _ => (0, 0),
        };
        (then.saturating_sub(now) as u64, now.saturating_sub(then) as u64)
    }

    fn change(&mut self, op: Op) -> io::Result<()> {
        let (more, less) = self.grows(&op);
        match self.space {
            Some(space) if more > space => {
                let full = std::mem::replace(&mut self.full, true);
                let refused = self.change_in(op);
                self.full = full;
                return refused;
            }
            _ => {}
        }
        self.change_in(op)?;
        self.space = self.space.map(|space| (space + less).saturating_sub(more));
        Ok(())
    }

    /// A page that it writes to takes no write.
    fn is_stuck(&self, op: &Op) -> bool {
        let Op::Write { node, offset, bytes } = op else { return false };
        let (first, last) = (offset / 4096, (offset + bytes.len().max(1) - 1) / 4096);
        self.stuck.range((*node, first)..=(*node, last)).next().is_some()
    }

    fn change_in(&mut self, op: Op) -> io::Result<()> {
        if self.is_stuck(&op) {
            return Err(io::Error::from_raw_os_error(5));
        }
        if self.full && self.needs_room(&op) {
            if let Op::Write { node, offset, bytes } = op {
                let bytes = bytes[..bytes.len() / 2].to_vec();
                self.full = false;
                let written = if bytes.is_empty() { Ok(()) } else { self.change(Op::Write { node, offset, bytes }) };
                self.full = true;
                written?;
            }
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        match &mut self.fail_after {
            Some(0) => {
                if let Op::Sync { node } = op {
                    self.ops.push(Op::FailedSync { node });
                }
                return Err(io::Error::new(self.fail_kind.unwrap_or(io::ErrorKind::Other), "planted failure"));
            }
            Some(left) => *left -= 1,
            None => {}
        }
        match &op {
            Op::Link { path, node } => {
                self.names.insert(path.clone(), *node);
            }
            Op::Rename { from, to, node } => {
                self.names.remove(from);
                self.names.insert(to.clone(), *node);
            }
            Op::Remove { path } => {
                self.names.remove(path);
            }
            Op::Write { node, offset, bytes } => {
                let target = &mut self.nodes[*node];
                if target.len() < offset + bytes.len() {
                    target.resize(offset + bytes.len(), 0);
                }
                target[*offset..offset + bytes.len()].copy_from_slice(bytes);
                let written = pages(*offset, bytes.len());
                self.bad.retain(|(bad, page)| bad != node || !written.contains(page));
            }
            Op::SetLen { node, len } => self.nodes[*node].resize(*len, 0),
            Op::Sync { .. } | Op::FailedSync { .. } | Op::SyncDir { .. } => {}
        }
        self.ops.push(op);
        Ok(())
    }
}

impl Files for MemFiles {
    fn open(&self, path: &str, how: How) -> io::Result<Arc<dyn File>> {
        let mut disk = self.lock();
        let node = match (disk.names.get(path).copied(), how) {
            (Some(node), How::Create) => {
                disk.change(Op::SetLen { node, len: 0 })?;
                node
            }
            (Some(node), _) => node,
            (None, How::Create) => {
                if !disk.dirs.iter().any(|dir| dir == dir_of(path)) {
                    return Err(not_found(path));
                }
                let node = disk.nodes.len();
                disk.nodes.push(Vec::new());
                disk.change(Op::Link { path: path.to_string(), node })?;
                node
            }
            (None, _) => return Err(not_found(path)),
        };
        Ok(Arc::new(MemFile { disk: self.clone(), node }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut disk = self.lock();
        let node = disk.names.get(from).copied().ok_or_else(|| not_found(from))?;
        disk.change(Op::Rename { from: from.to_string(), to: to.to_string(), node })
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut disk = self.lock();
        disk.names.get(path).ok_or_else(|| not_found(path))?;
        disk.change(Op::Remove { path: path.to_string() })
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let disk = self.lock();
        if !disk.dirs.iter().any(|known| known == dir) {
            return Err(not_found(dir));
        }
        let inside = disk.names.keys().filter(|path| dir_of(path) == dir);
        Ok(inside.map(|path| path[dir.len() + 1..].to_string()).collect())
    }

    fn make_dir(&self, dir: &str) -> io::Result<()> {
        let mut disk = self.lock();
        if !disk.dirs.iter().any(|known| known == dir) {
            disk.dirs.push(dir.to_string());
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.lock().change(Op::SyncDir { dir: dir.to_string() })
    }
}

impl File for MemFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut disk = self.disk.lock();
        if disk.unread > 0 {
            disk.unread -= 1;
            return Err(io::Error::other("planted failure"));
        }
        let bytes = disk.nodes[self.node].get(offset as usize..).unwrap_or(&[]);
        let len = bytes.len().min(into.len());
        if pages(offset as usize, len).any(|page| disk.bad.contains(&(self.node, page))) {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        into[..len].copy_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        self.disk.lock().change(Op::Write { node: self.node, offset: offset as usize, bytes: parts.concat() })
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.lock().change(Op::Sync { node: self.node })
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.lock().nodes[self.node].len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.lock().change(Op::SetLen { node: self.node, len: len as usize })
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        if self.len()? < len { self.set_len(len) } else { Ok(()) }
    }
}
