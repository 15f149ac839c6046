//! How far the log had come: two small files beside it.
//!
//! - `log/reached` is flushed. It is written when the log is opened, at each new segment, with each
//!   proof of an idle log and at a stop. A log that ends before it has lost its end.
//! - `log/tip` is written without a flush after each batch, before anybody is told of it. As long
//!   as the machine runs it says exactly what was acknowledged, whatever became of the process.
//!   After a power loss it says some batch that was acknowledged, as `reached` does, or nothing.

use super::seal::Seal;
use super::{Boot, DIR, Log, Torn};
use crate::header::{Fields, put_u32, put_u64};
use crate::{Fault, File, Files, How, Identity, small};
use consensus::{HardState, Position};
use std::sync::Arc;

pub(super) const REACHED: &str = "log/reached";
pub(super) const TIP: &str = "log/tip";
const REACHED_MAGIC: &[u8; 8] = b"kvreachd";
const TIP_MAGIC: &[u8; 8] = b"kvlogtip";
/// `tip` is one sector, so that no write of it is torn.
const SECTOR: usize = 512;
const HAS_BOOT: u32 = 1;
const CLEAN: u32 = 2;

/// The newest batch of the log at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The boot of the machine in which this was written.
    pub boot: Option<Boot>,
    /// The member stopped here and had nothing unproven.
    pub clean: bool,
    pub number: u64,
    pub segment: u64,
    /// From this offset on the segment holds zeros, unless a later batch was written there.
    pub blank_from: u64,
    /// The last entry.
    pub last: Position,
    pub hard: HardState,
    /// The log's salt, and the first segment that has it. None: a program of before wrote this.
    pub seal: Option<(u64, u64)>,
}

impl Mark {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        put_u32(&mut out, flag(self.boot.is_some(), HAS_BOOT) | flag(self.clean, CLEAN));
        out.extend_from_slice(&self.boot.unwrap_or_default());
        let HardState { term, vote, commit } = self.hard;
        let last = self.last;
        for value in [self.number, self.segment, self.blank_from, last.index, last.term, term, vote, commit] {
            put_u64(&mut out, value);
        }
        if let Some((salt, from)) = self.seal {
            put_u64(&mut out, salt);
            put_u64(&mut out, from);
        }
        out
    }

    fn decode(value: &[u8]) -> Option<Mark> {
        let mut fields = Fields::new(value);
        let flags = fields.u32()?;
        let boot: Boot = fields.bytes(size_of::<Boot>())?.try_into().ok()?;
        let mut mark = Mark {
            seal: None,
            boot: (flags & HAS_BOOT != 0).then_some(boot),
            clean: flags & CLEAN != 0,
            number: fields.u64()?,
            segment: fields.u64()?,
            blank_from: fields.u64()?,
            last: Position { index: fields.u64()?, term: fields.u64()? },
            hard: HardState { term: fields.u64()?, vote: fields.u64()?, commit: fields.u64()? },
        };
        if !fields.is_empty() {
            mark.seal = Some((fields.u64()?, fields.u64()?));
        }
        (flags & !(HAS_BOOT | CLEAN) == 0 && fields.is_empty()).then_some(mark)
    }
}

/// What both files said before the log was opened.
#[derive(Debug, Default)]
pub(super) struct Marks {
    reached: Option<Mark>,
    tip: Option<Mark>,
    /// This boot of the machine.
    boot: Option<Boot>,
    /// Files that are there and cannot be read.
    pub wrong: Vec<Torn>,
}

impl Marks {
    /// # Errors
    /// A file of a later format level or of another member.
    pub(super) fn read(files: &dyn Files, id: Identity, boot: Option<Boot>) -> Result<Marks, Fault> {
        let (reached, wrong_reached) = read(files, REACHED, REACHED_MAGIC, id)?;
        let (tip, wrong_tip) = read(files, TIP, TIP_MAGIC, id)?;
        // A power loss may leave a new file empty: it was not flushed.
        let wrong_tip = wrong_tip.filter(|_| small::holds_anything(files, TIP));
        Ok(Marks { reached, tip, boot, wrong: wrong_reached.into_iter().chain(wrong_tip).collect() })
    }

    /// The furthest batch that is known to have been durable, and the file that says so.
    pub(super) fn furthest(&self) -> Option<(&'static str, &Mark)> {
        let marks = [self.tip.as_ref().map(|mark| (TIP, mark)), self.reached.as_ref().map(|mark| (REACHED, mark))];
        marks.into_iter().flatten().max_by_key(|(_, mark)| mark.number)
    }

    /// As in [`Mark`], of the newest one that says it.
    pub(super) fn seal(&self) -> Option<(u64, u64)> {
        let marks = [&self.tip, &self.reached].into_iter().flatten();
        marks.filter(|mark| mark.seal.is_some()).max_by_key(|mark| mark.number)?.seal
    }

    /// The highest commit index that they tell.
    pub(super) fn committed(&self) -> u64 {
        [&self.reached, &self.tip].into_iter().flatten().map(|mark| mark.hard.commit).max().unwrap_or(0)
    }

    /// Since the log was last opened only processes ended: the page cache has lost nothing.
    pub(super) fn same_boot(&self) -> bool {
        [&self.reached, &self.tip].into_iter().flatten().any(|mark| self.is_now(mark))
    }

    /// The last batch that was acknowledged, if that is known exactly.
    pub(super) fn acknowledged(&self) -> Option<u64> {
        self.tip.as_ref().filter(|tip| self.is_now(tip)).map(|tip| tip.number)
    }

    /// No batch behind the one with this number was acknowledged. Each save writes `tip` before the
    /// next one begins, so a `tip` that is further behind is an older one.
    pub(super) fn is_exact(&self, number: u64) -> bool {
        self.acknowledged().is_some_and(|tip| tip == number || tip + 1 == number)
    }

    fn is_now(&self, mark: &Mark) -> bool {
        mark.boot.is_some() && mark.boot == self.boot
    }

    /// As in [`Mark`]; None: nothing is known of this segment.
    pub(super) fn blank_from(&self, segment: u64) -> Option<u64> {
        let known = [&self.reached, &self.tip].into_iter().flatten().filter(|mark| mark.segment == segment);
        known.map(|mark| mark.blank_from).max()
    }
}

fn read(files: &dyn Files, path: &str, magic: &[u8; 8], id: Identity) -> Result<(Option<Mark>, Option<Torn>), Fault> {
    let unreadable = || Torn { file: path.to_string(), offset: 0, what: "the file is not readable".to_string() };
    match small::read(files, path, magic, id) {
        Ok(None) => Ok((None, None)),
        Ok(Some(value)) => {
            let mark = Mark::decode(&value);
            Ok((mark, mark.is_none().then(unreadable)))
        }
        Err(fault) if fault.is_damage() => Ok((None, Some(unreadable()))),
        Err(fault) => Err(fault),
    }
}

/// The last entry that the log is known to have had.
///
/// # Errors
/// A file of a later format level or of another member.
pub(crate) fn told_last(files: &dyn Files, id: Identity) -> Result<u64, Fault> {
    let marks = Marks::read(files, id, None)?;
    Ok(marks.furthest().map_or(0, |(_, mark)| mark.last.index))
}

/// Forgets what an earlier log in the same directory had reached.
pub(super) fn forget(files: &dyn Files) -> Result<(), Fault> {
    for path in [REACHED, TIP, crate::doubt::PATH, crate::history::PATH] {
        small::remove(files, DIR, path)?;
    }
    Ok(())
}

/// Removes what a crash left of a small file that was being written.
pub(super) fn tidy(files: &dyn Files) -> Result<(), Fault> {
    for path in [REACHED, crate::doubt::PATH, crate::contradicted::PATH, crate::history::PATH] {
        small::remove(files, DIR, &small::part(path))?;
    }
    Ok(())
}

/// `log/tip`, open. None: there was no room for it.
pub(super) type TipFile = Option<Arc<dyn File>>;

/// Opens `tip`, or makes it. A full disk goes without.
pub(super) fn open_tip(files: &dyn Files) -> Result<TipFile, Fault> {
    let opened = match files.open(TIP, How::Write) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => files.open(TIP, How::Create),
        other => other,
    };
    match opened.map_err(|e| Fault::io(TIP, 0, e)) {
        Ok(file) => Ok(Some(file)),
        Err(fault) if fault.is_full() => Ok(None),
        Err(fault) => Err(fault),
    }
}

impl Log {
    fn mark(&self, clean: bool) -> Mark {
        let Seal { salt, from, .. } = self.seal;
        Mark {
            seal: (from != u64::MAX).then_some((salt, from)),
            boot: self.boot,
            clean,
            number: self.tip.number,
            segment: self.tip.end.segment,
            blank_from: self.tip.blank_from.max(self.tip.end.offset),
            last: self.last,
            hard: HardState { commit: self.hard.commit.max(self.committed), ..self.hard },
        }
    }

    /// Writes `reached`. Without room for it the older one stays, which is true as well, and the
    /// next new segment or proof tries again.
    pub(super) fn write_reached(&mut self, clean: bool) -> Result<(), Fault> {
        if self.tip_file.is_none() {
            // There was no room for it before.
            let opened = open_tip(&*self.files);
            self.tip_file = self.stop(opened)?;
            self.write_tip()?;
        }
        let bytes = small::encode(REACHED_MAGIC, self.seal.id, &self.mark(clean).encode());
        let written = small::write(&*self.files, DIR, REACHED, &bytes);
        if written.as_ref().is_err_and(Fault::is_full) {
            return Ok(());
        }
        self.stop(written)
    }

    /// Writes `tip`: the newest batch is durable, and nobody was told of it yet.
    pub(super) fn write_tip(&mut self) -> Result<(), Fault> {
        let Some(file) = &self.tip_file else { return Ok(()) };
        let mut bytes = small::encode(TIP_MAGIC, self.seal.id, &self.mark(false).encode());
        bytes.resize(SECTOR, 0);
        let mut written = file.write_at(0, &[&bytes]).map_err(|e| Fault::io(TIP, 0, e));
        if written.as_ref().is_err_and(Fault::is_full) {
            // Where each write takes new room it may find none. An older one would say that less
            // was acknowledged: none says nothing.
            self.tip_file = None;
            written = small::remove(&*self.files, DIR, TIP).map(drop);
        }
        self.stop(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_survives_encoding() {
        let hard = HardState { term: 3, vote: 4, commit: 5 };
        for boot in [None, Some([7; 16])] {
            for clean in [false, true] {
                let last = Position { index: 6, term: 3 };
                for seal in [None, Some((77, 3))] {
                    let mark = Mark { boot, clean, number: 9, segment: 2, blank_from: 4096, last, hard, seal };
                    assert_eq!(Mark::decode(&mark.encode()), Some(mark));
                    assert_eq!(Mark::decode(&[mark.encode(), vec![0]].concat()), None);
                    let id = Identity { cluster: 1, member: 2 };
                    assert!(small::encode(TIP_MAGIC, id, &mark.encode()).len() <= SECTOR);
                }
            }
        }
    }
}
