//! The calls of a process on the simulated disk.

use super::*;

/// What a drive answers that cannot read.
const EIO: i32 = 5;

impl Files for Disk {
    fn open(&self, path: &str, how: How) -> io::Result<Arc<dyn File>> {
        let mut inner = self.lock();
        let existing = inner.names.get(path).copied();
        let file = match (how, existing) {
            (How::Read | How::Write, None) => return Err(gone(path)),
            (How::Read | How::Write, Some(file)) => file,
            (How::Create, Some(file)) => {
                let time = inner.call(30, false).map_err(|_| broken())?;
                inner.change(file, Change::SetLen(0), time);
                file
            }
            (How::Create, None) => {
                let dir = dir_of(path);
                if !inner.dirs.contains(&dir) {
                    return Err(gone(path));
                }
                let time = inner.call(30, false).map_err(|_| broken())?;
                if let Some((kind, _)) = inner.trouble.no_room {
                    return Err(io::Error::from(kind));
                }
                if inner.full {
                    return Err(io::Error::from(io::ErrorKind::StorageFull));
                }
                let file = inner.next_file;
                inner.next_file += 1;
                inner.files.insert(file, Data::default());
                inner.set_names(dir, vec![(path.to_string(), Some(file))], time);
                file
            }
        };
        inner.files.get_mut(&file).expect("named files exist").handles += 1;
        Ok(Arc::new(Handle { disk: self.clone(), file, writable: how != How::Read }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.lock();
        let file = inner.names.get(from).copied().ok_or_else(|| gone(from))?;
        let dir = dir_of(to);
        if !inner.dirs.contains(&dir) {
            return Err(gone(to));
        }
        let time = inner.call(30, false).map_err(|_| broken())?;
        if inner.lies.keeps_reached && to == "log/reached" {
            return Ok(());
        }
        let kept = inner.lies.keeps_spares && from.contains("/spare-") && to.ends_with(".log");
        let old = if kept { Some(file) } else { None };
        inner.set_names(dir, vec![(from.to_string(), old), (to.to_string(), Some(file))], time);
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut inner = self.lock();
        if !inner.names.contains_key(path) {
            return Err(gone(path));
        }
        let time = inner.call(30, false).map_err(|_| broken())?;
        if inner.lies.keeps_corrupt && path == "log/corrupt" {
            return Ok(());
        }
        inner.set_names(dir_of(path), vec![(path.to_string(), None)], time);
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut inner = self.lock();
        inner.spend(10);
        if !inner.dirs.contains(dir) {
            return Err(gone(dir));
        }
        Ok(inner
            .names
            .keys()
            .filter(|path| dir_of(path) == dir)
            .map(|path| path.rsplit('/').next().unwrap_or(path).to_string())
            .collect())
    }

    fn make_dir(&self, dir: &str) -> io::Result<()> {
        let mut inner = self.lock();
        if inner.dirs.contains(dir) {
            return Ok(());
        }
        let time = inner.call(30, false).map_err(|_| broken())?;
        inner.dirs.insert(dir.to_string());
        inner.note(time, Act::MakeDir, Undo::Dir(dir.to_string()));
        Ok(())
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let mut inner = self.lock();
        if !inner.dirs.contains(dir) {
            return Err(gone(dir));
        }
        let mean = inner.speed.flush / 2;
        let time = inner.call(mean, true).map_err(|_| broken())?;
        if inner.lies.ignores_root && dir.is_empty() || inner.lies.ignores_state && dir == "state" {
            return Ok(());
        }
        inner.note(time, Act::FlushNames { dir: dir.to_string() }, Undo::Nothing);
        Ok(())
    }
}

impl Handle {
    fn writable(&self) -> io::Result<()> {
        match self.writable {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::PermissionDenied, "opened for reading")),
        }
    }

    fn resize(&self, len: u64, shrink: bool) -> io::Result<()> {
        self.writable()?;
        let mut inner = self.disk.lock();
        let len = usize::try_from(len).map_err(|_| broken())?;
        let time = inner.call(40, false).map_err(|_| broken())?;
        let now = inner.files[&self.file].view.len();
        if let Some((kind, _)) = inner.trouble.no_room.filter(|_| len > now) {
            return Err(io::Error::from(kind));
        }
        if len > now && inner.full {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        if len > now || (shrink && len < now) {
            inner.change(self.file, Change::SetLen(len), time);
        }
        Ok(())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(data) = self.disk.lock().files.get_mut(&self.file) {
            data.handles = data.handles.saturating_sub(1);
        }
    }
}

impl File for Handle {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut inner = self.disk.lock();
        inner.spend(15);
        let failing = inner.trouble.reads_fail;
        if failing > 0 && inner.rng.percent(failing) {
            inner.failed = true;
            return Err(broken());
        }
        let Some(data) = inner.files.get(&self.file) else { return Err(broken()) };
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(data.view.len());
        let len = into.len().min(data.view.len() - from);
        if data.unreadable.range(from / PAGE..(from + len).div_ceil(PAGE)).next().is_some() {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        into[..len].copy_from_slice(&data.view[from..from + len]);
        Ok(len)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        self.writable()?;
        let offset = usize::try_from(offset).map_err(|_| broken())?;
        let bytes = parts.concat();
        let mut inner = self.disk.lock();
        if !inner.files.contains_key(&self.file) {
            return Err(broken());
        }
        let grows = offset + bytes.len() > inner.files[&self.file].view.len();
        if let Some((kind, inside)) = inner.trouble.no_room.filter(|(_, inside)| *inside || grows) {
            inner.spend(60);
            if inside && !grows {
                // Some of it found room.
                let keep = inner.rng.below(bytes.len() as u64 + 1) as usize;
                let (time, bytes) = (inner.clock, bytes[..keep].to_vec());
                inner.change(self.file, Change::Write { offset, bytes, lost: false }, time);
            }
            return Err(io::Error::from(kind));
        }
        if inner.full && offset + bytes.len() > inner.files[&self.file].view.len() {
            inner.spend(60);
            // Some of it found room.
            let keep = inner.rng.below(bytes.len() as u64 + 1) as usize;
            let time = inner.clock;
            let bytes = bytes[..keep].to_vec();
            inner.change(self.file, Change::Write { offset, bytes, lost: false }, time);
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        match inner.call(60 + bytes.len() as u64 / 500, false) {
            Ok(time) => {
                inner.change(self.file, Change::Write { offset, bytes, lost: false }, time);
                Ok(())
            }
            Err(_) => {
                // Some of it may have been written.
                let keep = inner.rng.below(bytes.len() as u64 + 1) as usize;
                let time = inner.clock;
                let bytes = bytes[..keep].to_vec();
                inner.change(self.file, Change::Write { offset, bytes, lost: false }, time);
                Err(broken())
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = self.disk.lock();
        let mean = inner.speed.flush;
        let (time, fails) = match inner.call(mean, true) {
            Ok(time) => (time, None),
            Err(how) => (inner.clock, Some(how)),
        };
        inner.note(time, Act::Flush { file: self.file, fails }, Undo::Nothing);
        if fails.is_some() { Err(broken()) } else { Ok(()) }
    }

    fn len(&self) -> io::Result<u64> {
        let inner = self.disk.lock();
        inner.files.get(&self.file).map(|d| d.view.len() as u64).ok_or_else(broken)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.resize(len, true)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.resize(len, false)
    }
}
