//! Which backups stay. The newest good one always does.

use crate::manifest::{Manifest, list};
use crate::{Result, Shelf};
use std::collections::BTreeSet;

/// What is to stay. Without a rule everything does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// So many of the newest.
    pub count: Option<usize>,
    /// Those that are no older, in milliseconds.
    pub age: Option<i64>,
}

/// What was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Names of backups.
    pub backups: Vec<String>,
    /// Pieces that no backup names any more.
    pub pieces: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Keep {
    /// Those that go, of backups with these times, the newest first. A rule that says "stay" wins.
    fn gone<'m>(&self, newest_first: &[&'m Manifest], now: i64) -> Vec<&'m Manifest> {
        let stays = |(at, manifest): &(usize, &&'m Manifest)| {
            let counted = self.count.is_some_and(|count| *at < count);
            let young = self.age.is_some_and(|age| now - manifest.time <= age);
            *at == 0 || counted || young || *self == Keep::default()
        };
        newest_first.iter().enumerate().filter(|pair| !stays(pair)).map(|(_, manifest)| *manifest).collect()
    }
}

/// Removes what need not stay at this time, and then the pieces that no backup names. Nobody may
/// save to this shelf meanwhile. Pieces stay if a backup cannot be read: it may need them.
///
/// # Errors
/// What the shelf says.
pub async fn prune(shelf: &Shelf, keep: Keep, now: i64) -> Result<Pruned> {
    let mut pruned = Pruned::default();
    let saved = list(shelf).await?;
    let mut good: Vec<&Manifest> = saved.iter().filter_map(|saved| saved.manifest.as_ref().ok()).collect();
    good.sort_by_key(|manifest| std::cmp::Reverse((manifest.time, manifest.revision)));
    let gone: BTreeSet<String> = keep.gone(&good, now).into_iter().map(Manifest::name).collect();
    for name in &gone {
        shelf.remove(name).await?;
    }
    pruned.backups = gone.iter().cloned().collect();
    if saved.iter().any(|saved| saved.manifest.is_err()) {
        return Ok(pruned);
    }
    let stay = good.into_iter().filter(|manifest| !gone.contains(&manifest.name()));
    let named: BTreeSet<String> = stay.flat_map(|manifest| manifest.pieces.iter().map(crate::Piece::name)).collect();
    for (name, bytes) in shelf.list("pieces").await? {
        if !named.contains(&name) {
            shelf.remove(&name).await?;
            pruned.pieces += 1;
            pruned.bytes += bytes;
        }
    }
    Ok(pruned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_add_up_and_the_newest_stays() {
        let of = |time| Manifest {
            time,
            endpoint: String::new(),
            version: String::new(),
            cluster: String::new(),
            revision: time,
            oldest: 1,
            keys: 0,
            hash: 0,
            bytes: 0,
            rows: String::new(),
            pieces: Vec::new(),
        };
        let all = [90, 80, 70, 60].map(of);
        let all: Vec<&Manifest> = all.iter().collect();
        let gone = |count, age| -> Vec<i64> {
            Keep { count, age }.gone(&all, 100).into_iter().map(|manifest| manifest.time).collect()
        };
        assert_eq!(gone(None, None), Vec::<i64>::new());
        assert_eq!(gone(Some(2), None), [70, 60]);
        assert_eq!(gone(Some(1), Some(20)), [70, 60]);
        assert_eq!(gone(Some(0), Some(0)), [80, 70, 60]);
    }
}
