//! The kinds of damage, and how each is done to a file.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{copy::copy_file, places::Place};
use crate::rng::Rng;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Bit,
    Sector,
    Page,
    Block,
    Truncate,
    SwapBlocks,
    SwapFiles,
    Stale,
    Missing,
}

pub const KINDS: [Kind; 9] = [
    Kind::Bit,
    Kind::Sector,
    Kind::Page,
    Kind::Block,
    Kind::Truncate,
    Kind::SwapBlocks,
    Kind::SwapFiles,
    Kind::Stale,
    Kind::Missing,
];

impl Kind {
    /// As in the table.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Bit => "bit",
            Kind::Sector => "sector",
            Kind::Page => "page",
            Kind::Block => "block",
            Kind::Truncate => "truncated",
            Kind::SwapBlocks => "blocks swapped",
            Kind::SwapFiles => "files swapped",
            Kind::Stale => "older copy",
            Kind::Missing => "missing",
        }
    }
}

/// What was done.
#[derive(Clone, Debug)]
pub struct Damage {
    pub kind: Kind,
    /// In words: where and how.
    pub what: String,
    /// The files that changed, relative to the directory.
    pub files: Vec<String>,
}

/// What a damage may draw on.
#[derive(Debug)]
pub struct Scene<'a> {
    /// The directory that is damaged.
    pub dir: &'a Path,
    /// All files of it.
    pub places: &'a [Place],
    /// Earlier states of it, the oldest first.
    pub older: &'a [PathBuf],
}

/// Does it. None: this kind changes nothing here, or cannot be done to this file.
///
/// # Errors
/// If a file cannot be read or written.
pub fn apply(kind: Kind, place: &Place, scene: &Scene<'_>, rng: &mut Rng) -> Result<Option<Damage>> {
    let path = scene.dir.join(&place.path);
    let done = match kind {
        Kind::Bit => flip(&path, place, rng),
        Kind::Sector => overwrite(&path, place, 512, rng),
        Kind::Page => overwrite(&path, place, 4096, rng),
        Kind::Block => overwrite(&path, place, 64 << 10, rng),
        Kind::Truncate => truncate(&path, place, rng),
        Kind::SwapBlocks => swap_blocks(&path, place, rng),
        Kind::SwapFiles => return swap_files(place, scene, rng),
        Kind::Stale => return stale(place, scene, rng),
        Kind::Missing => fs::remove_file(&path).map(|()| Some(String::new())),
    };
    let what = done.with_context(|| format!("damaging {}", path.display()))?;
    Ok(what.map(|what| Damage { kind, what, files: vec![place.path.clone()] }))
}

/// An offset: the head, the end of what is used, anywhere in it, and now and then behind it.
fn somewhere(place: &Place, rng: &mut Rng) -> Option<u64> {
    const HEAD: u64 = 4096;
    const END: u64 = 8192;
    let (used, len) = (place.used.max(1), place.len);
    if len == 0 {
        return None;
    }
    Some(match rng.below(100) {
        0..20 => rng.below(used.min(HEAD)),
        20..55 => used - 1 - rng.below(used.min(END)),
        55..95 => rng.below(used),
        _ if len > used => used + rng.below(len - used),
        _ => rng.below(used),
    })
}

fn writable(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(path)
}

fn flip(path: &Path, place: &Place, rng: &mut Rng) -> io::Result<Option<String>> {
    let Some(at) = somewhere(place, rng) else { return Ok(None) };
    let file = writable(path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    let bit = rng.below(8);
    byte[0] ^= 1 << bit;
    file.write_all_at(&byte, at)?;
    Ok(Some(format!("bit {bit} of byte {at} of {}", place.used)))
}

/// A block of so many bytes, on its boundary, becomes zeros or noise.
fn overwrite(path: &Path, place: &Place, size: u64, rng: &mut Rng) -> io::Result<Option<String>> {
    let Some(at) = somewhere(place, rng) else { return Ok(None) };
    let from = at / size * size;
    let count = size.min(place.len - from) as usize;
    let file = writable(path)?;
    let mut before = vec![0; count];
    file.read_exact_at(&mut before, from)?;
    let zeros = rng.percent(50);
    let after: Vec<u8> = (0..count).map(|_| if zeros { 0 } else { rng.next() as u8 }).collect();
    if before == after {
        return Ok(None);
    }
    file.write_all_at(&after, from)?;
    let how = if zeros { "zeros" } else { "noise" };
    Ok(Some(format!("{count} bytes of {how} at {from} of {}", place.used)))
}

fn truncate(path: &Path, place: &Place, rng: &mut Rng) -> io::Result<Option<String>> {
    let Some(at) = somewhere(place, rng) else { return Ok(None) };
    let to = if rng.percent(15) { 0 } else { at };
    writable(path)?.set_len(to)?;
    Ok(Some(format!("to {to} of {} bytes, of which {} are used", place.len, place.used)))
}

/// Two pages of the used part change places.
fn swap_blocks(path: &Path, place: &Place, rng: &mut Rng) -> io::Result<Option<String>> {
    const SIZE: u64 = 4096;
    let blocks = place.used / SIZE;
    if blocks < 2 {
        return Ok(None);
    }
    let draw = |rng: &mut Rng| somewhere(place, rng).map_or(0, |at| at.min(place.used - 1) / SIZE).min(blocks - 1);
    let (one, other) = (draw(rng), draw(rng));
    let file = writable(path)?;
    let (mut a, mut b) = (vec![0; SIZE as usize], vec![0; SIZE as usize]);
    file.read_exact_at(&mut a, one * SIZE)?;
    file.read_exact_at(&mut b, other * SIZE)?;
    if a == b {
        return Ok(None);
    }
    file.write_all_at(&b, one * SIZE)?;
    file.write_all_at(&a, other * SIZE)?;
    Ok(Some(format!("pages at {} and {} of {}", one * SIZE, other * SIZE, place.used)))
}

/// A file and another of its folder, of the same kind if there is one, change places.
fn swap_files(place: &Place, scene: &Scene<'_>, rng: &mut Rng) -> Result<Option<Damage>> {
    let folder = |path: &str| path.rsplit_once('/').map_or(String::new(), |(dir, _)| dir.to_string());
    let kind = |place: &Place| place.structure.split(':').next().unwrap_or_default();
    let others: Vec<&Place> = scene.places.iter().filter(|other| other.path != place.path).collect();
    let same: Vec<&Place> = others.iter().copied().filter(|other| kind(other) == kind(place)).collect();
    let near: Vec<&Place> = others.into_iter().filter(|other| folder(&other.path) == folder(&place.path)).collect();
    let from = if same.is_empty() { near } else { same };
    if from.is_empty() {
        return Ok(None);
    }
    let other = rng.pick(&from);
    let (one, two) = (scene.dir.join(&place.path), scene.dir.join(&other.path));
    let between = scene.dir.join("swapping");
    let moved =
        fs::rename(&one, &between).and_then(|()| fs::rename(&two, &one)).and_then(|()| fs::rename(&between, &two));
    moved.with_context(|| format!("swapping {} and {}", place.path, other.path))?;
    let files = vec![place.path.clone(), other.path.clone()];
    Ok(Some(Damage { kind: Kind::SwapFiles, what: format!("with {}", other.path), files }))
}

/// The file as it was earlier; if it was not there then, the newest of its kind of that time.
fn stale(place: &Place, scene: &Scene<'_>, rng: &mut Rng) -> Result<Option<Damage>> {
    let now = fs::read(scene.dir.join(&place.path)).with_context(|| place.path.clone())?;
    let mut choices = Vec::new();
    for older in scene.older {
        let same = older.join(&place.path);
        let candidate = if same.is_file() { Some(same) } else { last_of_kind(older, &place.path)? };
        if let Some(candidate) = candidate
            && fs::read(&candidate).with_context(|| candidate.display().to_string())? != now
        {
            choices.push(candidate);
        }
    }
    if choices.is_empty() {
        return Ok(None);
    }
    let chosen = rng.pick(&choices);
    copy_file(&chosen, &scene.dir.join(&place.path))?;
    let from = chosen.strip_prefix(chosen.ancestors().nth(4).unwrap_or(&chosen)).unwrap_or(&chosen);
    let what = format!("from {}", from.display());
    Ok(Some(Damage { kind: Kind::Stale, what, files: vec![place.path.clone()] }))
}

/// The last file in the same folder whose name begins alike.
fn last_of_kind(dir: &Path, path: &str) -> Result<Option<PathBuf>> {
    let path = Path::new(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let Some((stem, _)) = name.split_once('-') else { return Ok(None) };
    let folder = dir.join(path.parent().unwrap_or(Path::new("")));
    let Ok(entries) = fs::read_dir(&folder) else { return Ok(None) };
    let names = entries.flatten().map(|entry| entry.path());
    let alike = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().split_once('-').is_some_and(|(s, _)| s == stem))
    };
    Ok(names.filter(alike).max())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_changes_the_file_it_names() {
        let dir = tempfile::tempdir().unwrap();
        let (now, older) = (dir.path().join("now/a"), dir.path().join("older/a"));
        for (folder, seed) in [(&now, 1), (&older, 2)] {
            fs::create_dir_all(folder).unwrap();
            let mut rng = Rng::new(seed);
            for name in ["x-1", "x-2"] {
                let noise: Vec<u8> = (0..40_000).map(|_| rng.next() as u8 | 1).collect();
                fs::write(folder.join(name), noise).unwrap();
            }
        }
        let place = |name: &str| Place { structure: "x: newest", path: name.into(), len: 40_000, used: 40_000 };
        let places = [place("x-1"), place("x-2")];
        let before = fs::read(now.join("x-1")).unwrap();
        for (seed, kind) in KINDS.into_iter().enumerate() {
            let scene = Scene { dir: &now, places: &places, older: std::slice::from_ref(&older) };
            let done =
                (0..20).find_map(|n| apply(kind, &places[0], &scene, &mut Rng::new(seed as u64 * 100 + n)).unwrap());
            let damage = done.unwrap_or_else(|| panic!("{kind:?} does nothing"));
            assert!(damage.files.contains(&"x-1".to_string()));
            assert_ne!(fs::read(now.join("x-1")).ok(), Some(before.clone()), "{kind:?}");
            fs::write(now.join("x-1"), &before).unwrap();
        }
    }
}
