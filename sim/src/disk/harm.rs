//! What a disk does behind the back of its process, and how it is undone.

use super::*;
use bytes::Bytes;

/// A disk as it was: its durable names and bytes.
pub type Image = BTreeMap<String, Vec<u8>>;

/// Trouble that lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Percent of the reads that fail.
    pub reads_fail: u64,
    /// What is said to writes that need room, and whether writes into allocated space do.
    pub no_room: Option<(io::ErrorKind, bool)>,
    /// Flushes of the log say that they are done and are not.
    pub loses_log: bool,
}

/// Bytes that were changed in a file.
#[derive(Clone, Debug)]
pub struct Rotten {
    pub path: String,
    pub offset: usize,
    right: Vec<u8>,
    wrong: Vec<u8>,
    /// Nothing was changed: the page at `offset` cannot be read.
    unreadable: bool,
}

impl Rotten {
    /// This byte of this file was changed, or cannot be read.
    pub fn covers(&self, path: &str, at: usize) -> bool {
        let len = if self.unreadable { PAGE } else { self.right.len() };
        self.path == path && (self.offset..self.offset + len).contains(&at)
    }

    /// Offset, right and wrong byte of each place that was changed.
    fn places(&self) -> impl Iterator<Item = (usize, u8, u8)> + '_ {
        let bytes = self.right.iter().zip(&self.wrong).enumerate().filter(|(_, (right, wrong))| right != wrong);
        bytes.map(|(i, (right, wrong))| (self.offset + i, *right, *wrong))
    }
}

pub(super) fn is_log(names: &BTreeMap<String, FileId>, file: FileId) -> bool {
    names.iter().any(|(path, id)| *id == file && path.starts_with("log/"))
}

pub(super) fn last_write(pending: &[Change]) -> Option<(usize, usize)> {
    pending.iter().rev().find_map(|change| match change {
        Change::Write { offset, bytes, lost: false } if bytes.iter().any(|b| *b != 0) => Some((*offset, bytes.len())),
        _ => None,
    })
}

impl Inner {
    fn data(&mut self, path: &str) -> Option<&mut Data> {
        let id = self.names.get(path)?;
        self.files.get_mut(id)
    }

    /// Log files that have a name, ascending.
    fn logs(&self) -> Vec<String> {
        self.names.keys().filter(|p| p.starts_with("log/") && p.ends_with(".log")).cloned().collect()
    }

    fn replace(&mut self, path: &str, offset: usize, wrong: Vec<u8>) -> Option<Rotten> {
        let data = self.data(path)?;
        let end = (offset + wrong.len()).min(data.view.len());
        let right = data.view.get(offset..end)?.to_vec();
        let wrong = wrong[..right.len()].to_vec();
        if right == wrong {
            return None;
        }
        put(&mut data.view, offset, &wrong);
        if data.durable.len() >= end {
            put(&mut data.durable, offset, &wrong);
        }
        for change in &mut data.pending {
            if let Change::Write { offset: at, bytes, .. } = change {
                for (i, byte) in wrong.iter().enumerate() {
                    if let Some(place) = (offset + i).checked_sub(*at).and_then(|i| bytes.get_mut(i)) {
                        *place = *byte;
                    }
                }
            }
        }
        Some(Rotten { path: path.to_string(), offset, right, wrong, unreadable: false })
    }

    fn spoil(&mut self, path: &str, at: usize, spot: crate::badday::Spot, draw: u64) -> Option<Rotten> {
        use crate::badday::Spot;
        let len = self.data(path)?.view.len();
        if at >= len {
            return None;
        }
        let (from, size) = match spot {
            Spot::Bit => (at, 1),
            Spot::Sector => (at / SECTOR * SECTOR, SECTOR),
            Spot::Page | Spot::ZeroPage => (at / PAGE * PAGE, PAGE),
        };
        let size = size.min(len - from);
        let view = &self.data(path)?.view[from..from + size];
        let mut draws = Rng::new(draw, "rot");
        let wrong = match spot {
            Spot::Bit => vec![view[0] ^ (1 << (draw % 8))],
            Spot::ZeroPage => vec![0; size],
            _ => (0..size).map(|_| draws.draw() as u8).collect(),
        };
        self.replace(path, from, wrong)
    }
}

/// A manifest of the same state, but for its digest. None: it is not readable.
fn with_another_digest(path: &str, manifest: &Bytes) -> Option<Bytes> {
    let mut manifest = disk::checkpoint::Manifest::decode(path, manifest).ok()?;
    let mut head = manifest.image_head().ok()?;
    head.digest ^= 1;
    manifest.head = Bytes::from(head.encode());
    Some(manifest.encode())
}

impl Disk {
    pub fn trouble(&self, change: impl FnOnce(&mut Trouble)) {
        change(&mut self.lock().trouble);
    }

    pub fn troubled(&self) -> Trouble {
        self.lock().trouble
    }

    /// True when writes, flushes and reads go their usual way at `now`. A call that began while the
    /// disk was slow takes its time behind that.
    pub fn is_well(&self, now: Time) -> bool {
        let inner = self.lock();
        let slow = inner.speed.percent > 100 || inner.slow_until > now;
        inner.trouble == Trouble::default() && !inner.full && !slow && inner.stalled_until <= now
    }

    /// What a power loss with all unflushed changes lost would leave at `now`.
    pub fn durable_image(&self, now: Time) -> Image {
        let mut inner = self.lock();
        inner.settle(now);
        inner.durable_names.iter().map(|(path, id)| (path.clone(), inner.files[id].durable.clone())).collect()
    }

    /// Nothing is left.
    pub fn empty(&self) {
        self.restore(&Image::new());
        self.lock().dirs = BTreeSet::from([String::new()]);
    }

    /// The newest log file becomes what it was in `image`; false when it is not there or the same.
    pub fn older_log(&self, image: &Image) -> bool {
        let mut inner = self.lock();
        let Some(newest) = inner.logs().pop() else { return false };
        let Some(before) = image.get(&newest) else { return false };
        let Some(data) = inner.data(&newest) else { return false };
        if data.view == *before {
            return false;
        }
        (data.view, data.durable) = (before.clone(), before.clone());
        true
    }

    /// The newest log file is removed, if another one is left.
    pub fn lose_newest_log(&self) -> bool {
        let logs = self.lock().logs();
        if logs.len() < 2 {
            return false;
        }
        self.lose_file(&logs[logs.len() - 1]);
        true
    }

    /// Other bytes stand over the last write to the newest log file and some pages behind it; false
    /// when there is none.
    pub fn lose_tail(&self, zeros: bool, draw: u64) -> bool {
        let mut inner = self.lock();
        let Some(newest) = inner.logs().pop() else { return false };
        let Some((offset, len)) = inner.data(&newest).and_then(|data| data.last_write) else { return false };
        let mut draws = Rng::new(draw, "tail");
        let len = len + draws.below(4) as usize * PAGE;
        let wrong = (0..len).map(|_| if zeros { 0 } else { draws.draw() as u8 }).collect();
        inner.replace(&newest, offset, wrong).is_some()
    }

    /// Changes bytes of the last write to the newest log file.
    pub fn rot_tail(&self, spot: crate::badday::Spot, draw: u64) -> Option<Rotten> {
        let mut inner = self.lock();
        let newest = inner.logs().pop()?;
        let (offset, len) = inner.data(&newest)?.last_write?;
        inner.spoil(&newest, offset + (draw >> 8) as usize % len.max(1), spot, draw)
    }

    /// Changes bytes of the log before the last write to its newest file.
    pub fn rot_log(&self, spot: crate::badday::Spot, draw: u64) -> Option<Rotten> {
        let mut inner = self.lock();
        let logs = inner.logs();
        let path = logs.get(draw as usize % logs.len().max(1))?.clone();
        let newest = logs.last() == Some(&path);
        let data = inner.data(&path)?;
        let used = data.view.iter().rposition(|b| *b != 0)? + 1;
        let end = if newest { data.last_write?.0.min(used) } else { used };
        inner.spoil(&path, (draw >> 16) as usize % end.max(1), spot, draw)
    }

    /// A folder is gone with all that is in it; false when there was none.
    pub fn lose_folder(&self, name: &str) -> bool {
        let inside: Vec<String> = self.paths().into_iter().filter(|path| super::dir_of(path) == name).collect();
        inside.iter().for_each(|path| self.lose_file(path));
        self.lock().dirs.remove(name)
    }

    /// No file of the log is left.
    pub fn lose_log(&self) {
        let logs: Vec<String> =
            self.lock().names.keys().filter(|p| p.starts_with("log/") && p.ends_with(".log")).cloned().collect();
        logs.iter().for_each(|path| self.lose_file(path));
    }

    /// No manifest is left; false when there was none.
    pub fn lose_checkpoints(&self) -> bool {
        let names: Vec<String> =
            self.lock().names.keys().filter(|p| p.starts_with("state/manifest-")).cloned().collect();
        names.iter().for_each(|path| self.lose_file(path));
        !names.is_empty()
    }

    /// The state of each checkpoint is one that other entries led to, as its digest says; all
    /// checksums are right. False when there is no checkpoint.
    pub fn differ(&self) -> bool {
        let mut inner = self.lock();
        let paths: Vec<String> = inner.names.keys().filter(|p| p.starts_with("state/manifest-")).cloned().collect();
        let mut done = false;
        for path in paths {
            let Some(data) = inner.data(&path) else { continue };
            let Some(bytes) = with_another_digest(&path, &Bytes::copy_from_slice(&data.view)) else { continue };
            (data.view, data.durable) = (bytes.to_vec(), bytes.to_vec());
            data.pending.clear();
            done = true;
        }
        done
    }

    /// Changes bytes anywhere, where there are any.
    pub fn rot_anywhere(&self, spot: crate::badday::Spot, draw: u64) -> Option<Rotten> {
        let mut inner = self.lock();
        let paths: Vec<String> = inner.names.keys().cloned().collect();
        let path = paths.get(draw as usize % paths.len().max(1))?.clone();
        let len = inner.data(&path)?.view.iter().rposition(|b| *b != 0)? + 1;
        inner.spoil(&path, (draw >> 16) as usize % len, spot, draw)
    }

    /// A page of the log or of an index cannot be read any more, until it is written.
    pub fn lose_sector(&self, draw: u64) -> Option<Rotten> {
        let mut inner = self.lock();
        let read = |path: &&String| path.ends_with(".log") || path.starts_with("state/index-");
        let paths: Vec<String> = inner.names.keys().filter(read).cloned().collect();
        let path = paths.get(draw as usize % paths.len().max(1))?.clone();
        let data = inner.data(&path)?;
        let used = data.view.iter().rposition(|b| *b != 0)? + 1;
        let page = (draw >> 16) as usize % used / PAGE;
        data.unreadable.insert(page);
        Some(Rotten { path, offset: page * PAGE, right: Vec::new(), wrong: Vec::new(), unreadable: true })
    }

    /// Changes one bit of a file.
    pub fn rot_bit(&self, path: &str, offset: usize) -> Option<Rotten> {
        self.lock().spoil(path, offset, crate::badday::Spot::Bit, offset as u64)
    }

    /// True while any byte is as it was spoilt.
    pub fn is_rotten(&self, rotten: &Rotten) -> bool {
        let mut inner = self.lock();
        let Some(data) = inner.data(&rotten.path) else { return false };
        if rotten.unreadable {
            return data.unreadable.contains(&(rotten.offset / PAGE));
        }
        rotten.places().any(|(at, _, wrong)| data.view.get(at) == Some(&wrong))
    }

    /// Puts the right bytes back where they are still wrong.
    pub fn unrot(&self, rotten: &Rotten) {
        if let Some(data) = self.lock().data(&rotten.path) {
            data.unreadable.remove(&(rotten.offset / PAGE));
        }
        for (at, right, wrong) in rotten.places() {
            let mut inner = self.lock();
            if inner.data(&rotten.path).is_some_and(|d| d.view.get(at) == Some(&wrong)) {
                inner.replace(&rotten.path, at, vec![right]);
            }
        }
    }

    /// Puts the wrong bytes back where they are right.
    pub fn rot_again(&self, rotten: &Rotten) {
        self.lock().replace(&rotten.path, rotten.offset, rotten.wrong.clone());
    }

    /// A page inside the newest log file holds what another page of that file has.
    pub fn misplace_page(&self, draw: u64) -> bool {
        let mut inner = self.lock();
        let Some(newest) = inner.logs().pop() else { return false };
        let Some(view) = inner.data(&newest).map(|data| data.view.clone()) else { return false };
        let pages = view.iter().rposition(|b| *b != 0).map_or(0, |last| last / PAGE + 1);
        if pages < 3 {
            return false;
        }
        let (from, to) = (1 + draw as usize % (pages - 1), 1 + (draw >> 16) as usize % (pages - 1));
        let end = (from * PAGE + PAGE).min(view.len());
        inner.replace(&newest, to * PAGE, view[from * PAGE..end].to_vec()).is_some()
    }

    /// The last write of the newest log file lies a page further on, over what was there.
    pub fn misdirect(&self, image: &Image) -> bool {
        let mut inner = self.lock();
        let Some(newest) = inner.logs().pop() else { return false };
        let Some(data) = inner.data(&newest) else { return false };
        let Some((offset, len)) = data.last_write else { return false };
        let end = (offset + len).min(data.view.len());
        if offset + PAGE >= data.view.len() || offset >= end {
            return false;
        }
        let bytes = data.view[offset..end].to_vec();
        // What stood there before: an older state of the file, or nothing yet.
        let mut before = image.get(&newest).and_then(|b| b.get(offset..end)).map(<[u8]>::to_vec).unwrap_or_default();
        before.resize(bytes.len(), 0);
        if before == bytes {
            return false;
        }
        let room = (data.view.len() - offset - PAGE).min(bytes.len());
        let Data { view, durable, .. } = data;
        for to in [view, durable] {
            put(to, offset, &before);
            put(to, offset + PAGE, &bytes[..room]);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::badday::Spot;

    fn disk() -> Disk {
        let disk = Disk::new(Rng::new(1, "disk"), Speed { flush: 1000, percent: 100 });
        disk.begin(0, None);
        disk.make_dir("log").expect("make_dir");
        let file = disk.open("log/01.log", How::Create).expect("create");
        file.allocate(4 * PAGE as u64).expect("allocate");
        file.write_at(PAGE as u64, &[&[7; 600]]).expect("write");
        file.sync().expect("sync");
        disk.sync_dir("log").expect("sync_dir");
        let end = disk.end().end;
        disk.power_loss(end, PowerLoss::Nothing);
        disk
    }

    #[test]
    fn an_emptied_disk_that_is_put_back_is_as_before() {
        let disk = disk();
        let image = disk.durable_image(1 << 40);
        disk.empty();
        assert!(disk.paths().is_empty() && disk.list("log").is_err());
        disk.restore(&image);
        assert_eq!(disk.list("log").expect("the directory is back"), ["01.log"]);
        assert_eq!(disk.durable_image(1 << 40), image);
    }

    #[test]
    fn rot_changes_the_last_batch_and_can_be_taken_back() {
        for spot in [Spot::Bit, Spot::Sector, Spot::Page, Spot::ZeroPage] {
            let disk = disk();
            let before = disk.durable_image(1 << 40);
            let rotten = disk.rot_tail(spot, 3).expect("something changes");
            assert!(rotten.offset >= PAGE && disk.is_rotten(&rotten));
            assert_ne!(disk.durable_image(1 << 40), before);
            disk.unrot(&rotten);
            assert!(!disk.is_rotten(&rotten));
            assert_eq!(disk.durable_image(1 << 40), before);
        }
    }

    #[test]
    fn a_bad_sector_is_refused_until_it_is_written() {
        let disk = disk();
        let rotten = disk.lose_sector(1 << 28).expect("there is a log");
        disk.begin(1 << 30, None);
        let file = disk.open("log/01.log", How::Write).expect("open");
        let read = |offset: usize| file.read_at(offset as u64, &mut [0; 8]);
        assert!(disk.is_rotten(&rotten) && read(rotten.offset).is_err());
        file.write_at(rotten.offset as u64, &[&[9; 600]]).expect("write");
        assert!(!disk.is_rotten(&rotten) && read(rotten.offset).is_ok());
    }

    #[test]
    fn a_disk_that_lies_about_the_log_forgets_it_at_a_power_loss() {
        let disk = disk();
        disk.trouble(|t| t.loses_log = true);
        disk.begin(1 << 30, None);
        let file = disk.open("log/01.log", How::Write).expect("open");
        file.write_at(2 * PAGE as u64, &[&[9; 600]]).expect("write");
        file.sync().expect("it says yes");
        let end = disk.end().end;
        assert_eq!(disk.peek("log/01.log").expect("there")[2 * PAGE], 9);
        disk.power_loss(end, PowerLoss::Nothing);
        assert_eq!(disk.peek("log/01.log").expect("there")[2 * PAGE], 0);
    }
}
