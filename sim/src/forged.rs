//! Values that look like parts of the log: what a client can write that knows the format, the ids
//! that stand in every answer, and how files are used again (D-9). All it has to guess is where in
//! a file its value comes to lie, and the log's salt.

use crate::cluster::{CLUSTER, Sim};
use crate::ops::Blob;
use crate::planted::Planted;
use crate::rng::Rng;

const PAGE: usize = 4096;
const SECTOR: usize = 512;
/// Bytes of a header and of the salt, and of a row of the table.
const HEAD: usize = 168;
const ROW: usize = 28;
/// Of one record: index and term that no log comes to.
const FAR: (u64, u64) = (1 << 50, 1 << 40);

/// Whose log is meant.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    member: u64,
    /// Its newest file.
    segment: u64,
    file_len: u64,
    /// A guess.
    salt: u64,
}

fn header(target: Target, level: u32, segment: u64, offset: u64) -> Vec<u8> {
    let mut out = b"kvlogbat".to_vec();
    out.extend(level.to_le_bytes());
    out.extend(0_u32.to_le_bytes());
    let (index, term) = FAR;
    let before = [CLUSTER, target.member, segment, offset, 1 << 30, index, index, segment, offset];
    for value in before.into_iter().chain([term, target.member, 1, index, term, 0, target.file_len]) {
        out.extend(value.to_le_bytes());
    }
    out.extend([0; 12]);
    let crc = crc32c::crc32c(&out);
    out.extend(crc.to_le_bytes());
    out.extend(target.salt.to_le_bytes());
    out.truncate(if level == 1 { HEAD - 8 } else { HEAD });
    out
}

/// Says that nothing follows.
fn blank(target: Target, segment: u64, offset: u64) -> Vec<u8> {
    let words = [CLUSTER, target.member, segment, offset, target.salt].map(u64::to_le_bytes).concat();
    [&b"kvlogend"[..], &words].concat().into_iter().cycle().take(SECTOR).collect()
}

/// A value for `key` with some pages of it, for a batch of this one entry.
pub(crate) fn value(rng: &mut Rng, key: &[u8], target: Target) -> Blob {
    let pages = rng.between(16, 40) as usize;
    // Header, one row, and the command up to the value: two lengths of three bytes, and the key.
    let from = HEAD + ROW + 10 + key.len();
    let mut value = vec![b'v'; PAGE - from + pages * PAGE + 100];
    // What finds no room opens a file.
    let batch = if rng.percent(70) { 0 } else { rng.below(target.file_len / PAGE as u64) * PAGE as u64 };
    // The file of one segment is that of the next but one, when the log was cut.
    let segment = target.segment + *rng.pick(&[0, 1, 2, 2, 3, 3, 4]);
    let level = *rng.pick(&[1, 2, 2, 2, 9]);
    for page in 0..pages {
        let (at, offset) = (PAGE - from + page * PAGE, batch + ((page + 1) * PAGE) as u64);
        if rng.percent(10) {
            for sector in 0..PAGE / SECTOR {
                let from = at + sector * SECTOR;
                let blank = blank(target, segment, offset + (sector * SECTOR) as u64);
                value[from..from + SECTOR].copy_from_slice(&blank);
            }
            continue;
        }
        let front = header(target, level, segment, offset);
        value[at..at + front.len()].copy_from_slice(&front);
        value[at + PAGE - front.len()..at + PAGE].copy_from_slice(&front);
    }
    value
}

impl Sim {
    /// No member believes what a value says.
    pub(crate) fn check_forged(&mut self, who: usize, status: &node::Status) {
        let (index, term) = FAR;
        if status.term >= term || status.last >= index {
            let text = format!("m{} is at entry {} of term {}: values say so", who + 1, status.last, status.term);
            self.fail("D-9", text);
        }
    }

    /// Somebody's log, as far as a client knows it.
    pub(crate) fn forges(&mut self) -> Option<Target> {
        if self.plan.workload.forged == 0 {
            return None;
        }
        let who = self.work_rng.below(self.members.len() as u64) as usize;
        let disk = &self.members[who].disk;
        let newest =
            disk.paths().into_iter().filter(|path| path.starts_with("log/") && path.ends_with(".log")).max()?;
        let segment = u64::from_str_radix(newest.strip_prefix("log/")?.strip_suffix(".log")?, 16).ok()?;
        let salt = if self.is(Planted::SaltKnown) {
            u64::from_le_bytes(disk.peek(&newest)?.get(HEAD - 8..HEAD)?.try_into().ok()?)
        } else {
            self.work_rng.below(2)
        };
        Some(Target { member: self.members[who].id, segment, file_len: self.plan.log_segment_bytes, salt })
    }
}
