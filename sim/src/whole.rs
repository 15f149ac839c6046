//! What a member that lost nothing keeps: its voice and its bytes.
//!
//! V-6: it is not in doubt for long, and does not keep silent. D-8: bytes that a checkpoint names
//! and that were right are still right behind whatever the member writes itself: a start, a mend, a
//! rewrite.

use crate::cluster::Sim;
use crate::plan::{MS, SECOND};
use crate::trace::Time;
use bytes::Bytes;
use disk::checkpoint::Manifest;
use node::{BackgroundJob, Job};
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of a file's header page, which may be written anew.
const HEADER: usize = 4096;

/// Bytes of one file.
type Place = (String, Range<usize>);

/// What the newest checkpoint names, and the bytes of it.
#[derive(Debug)]
pub(crate) struct Kept {
    deed: &'static str,
    files: BTreeMap<String, Named>,
    /// What is written on purpose.
    meant: Option<Place>,
}

#[derive(Debug)]
struct Named {
    len: u64,
    crc: u32,
    bytes: Vec<u8>,
}

/// Name, length and checksum of each file.
fn named(manifest: &Manifest) -> Vec<(String, u64, u32)> {
    let segments = manifest.segments.iter().map(|file| (file.name(), u64::from(file.len), file.crc));
    let indexes = manifest.index_files.iter().map(|file| (file.name(), file.len, file.crc));
    let tables = manifest.tables.iter().map(|file| (file.name(), file.len, file.crc));
    segments.chain(indexes).chain(tables).collect()
}

impl Sim {
    /// A member in doubt, or one that answers nothing, had time enough to be neither: nobody lost
    /// anything, and all are up, connected and well.
    pub(crate) fn watch_doubts(&mut self) {
        let holds = self.who_holds();
        if holds.is_empty() || !self.all_are_well() {
            return self.vigil.held.clear();
        }
        let slow = if self.plan.bandwidth > 0 { 20 * SECOND } else { 5 * SECOND };
        let patience = self.patience() + slow;
        self.vigil.held.retain(|who, _| holds.iter().any(|(held, _)| held == who));
        for (who, how) in holds {
            let life = self.members[who].life;
            let since = self.vigil.held.entry(who).or_insert((life, self.now));
            if since.0 != life {
                *since = (life, self.now);
            }
            let waited: Time = self.now - since.1;
            if waited > patience {
                let text = format!("m{} {how} for {} ms, though nobody lost anything", who + 1, waited / MS);
                return self.fail("V-6", text);
            }
        }
    }

    /// Members that are in doubt or answer nothing, and which of both.
    fn who_holds(&self) -> Vec<(usize, &'static str)> {
        let how = |who: usize| {
            let life = self.members[who].up.as_ref()?;
            let doubts = life.status.doubt.then_some("is in doubt");
            life.barred.then_some("answers nothing").or(doubts).map(|how| (who, how))
        };
        (0..self.members.len()).filter_map(how).collect()
    }

    /// In peace. `late`: by now nobody may. Where somebody is gone for ever a doubt may last.
    pub(crate) fn nobody_holds(&mut self, late: bool) -> bool {
        if self.members.iter().any(|member| member.gone) {
            return true;
        }
        let Some(&(who, how)) = self.who_holds().first() else { return true };
        if late {
            self.fail("V-6", format!("m{} {how} in peace, and does not end", who + 1));
        }
        false
    }

    /// As the newest checkpoint names it; None: there is none, or another state is being put in
    /// place.
    fn kept(&self, who: usize, deed: &'static str, meant: Option<Place>) -> Option<Kept> {
        let disk = &self.members[who].disk;
        let manifest = self.newest_manifest(who)?;
        let files = named(&manifest).into_iter().filter_map(|(name, len, crc)| {
            let first = |bytes: &[u8]| bytes[..bytes.len().min(len as usize)].to_vec();
            let bytes = disk.look(&format!("state/{name}"), first)?;
            Some((name, Named { len, crc, bytes }))
        });
        Some(Kept { deed, files: files.collect(), meant })
    }

    fn newest_manifest(&self, who: usize) -> Option<Manifest> {
        let disk = &self.members[who].disk;
        if disk.has("incoming/ready") {
            return None;
        }
        let paths = disk.paths();
        let is_manifest = |path: &&String| path.starts_with("state/manifest-") && !path.ends_with(".part");
        let newest = paths.iter().rfind(is_manifest)?;
        Manifest::decode(newest, &Bytes::from(disk.peek(newest)?)).ok()
    }

    /// A file that the newest checkpoint names, and how many bytes of it.
    pub(crate) fn first_named(&self, who: usize) -> Option<(String, u64)> {
        let files = named(&self.newest_manifest(who)?);
        files.into_iter().map(|(name, len, _)| (name, len)).find(|(_, len)| *len > HEADER as u64)
    }

    /// Before a start.
    pub(crate) fn all_kept(&self, who: usize) -> Option<Kept> {
        self.kept(who, "a start", None)
    }

    /// Before a job that writes among what checkpoints name.
    pub(crate) fn own_write(&self, who: usize, work: &Job) -> Option<Kept> {
        let Job::Background(work) = work else { return None };
        match work {
            BackgroundJob::Mend { segment, at, parts } => {
                let (at, len) = (*at as usize, parts.iter().map(|part| part.len()).sum::<usize>());
                self.kept(who, "a mend", Some((disk::records::path(*segment), at..at + len)))
            }
            BackgroundJob::Mended { .. } => self.kept(who, "a mend", None),
            BackgroundJob::Reclaim(_) => self.kept(who, "a rewrite", None),
            _ => None,
        }
    }

    /// Behind it. A file that the newest checkpoint still names as before has the bytes that it
    /// had, but for those that were damaged.
    pub(crate) fn check_own_write(&mut self, who: usize, before: Option<Kept>) {
        let Some(before) = before else { return };
        let Some(manifest) = self.newest_manifest(who) else { return };
        let rotten = self.rotten_of(who);
        for (name, len, crc) in named(&manifest) {
            let Some(was) = before.files.get(&name).filter(|was| (was.len, was.crc) == (len, crc)) else { continue };
            let path = format!("state/{name}");
            let spared = |at: &usize| {
                let meant = before.meant.as_ref().is_some_and(|(of, place)| *of == path && place.contains(at));
                meant || rotten.iter().any(|rotten| rotten.covers(&path, *at))
            };
            let first_change = |now: &[u8]| {
                if now.get(..was.bytes.len()) == Some(&was.bytes[..]) {
                    return None;
                }
                let changed = |at: &usize| now.get(*at) != Some(&was.bytes[*at]);
                (HEADER..was.bytes.len()).filter(changed).find(|at| !spared(at))
            };
            let disk = &self.members[who].disk;
            if let Some(at) = disk.look(&path, first_change).unwrap_or_else(|| first_change(&[])) {
                let text = format!("m{} changed {path} at {at} in {}: it was right before", who + 1, before.deed);
                return self.fail("D-8", text);
            }
        }
    }
}
