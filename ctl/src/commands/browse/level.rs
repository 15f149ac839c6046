//! One level of the tree of keys: what lies directly below a prefix, found by
//! skipping. A read has a limit; once a key shows that there is a branch, the
//! next read begins behind it, so that what is in the branch is never walked.
//!
//! Sans-IO: [`Level::request`] says what to read, [`Level::take`] takes the
//! keys that came.

use client::wire::etcdserverpb::RangeRequest;

/// Keys in one read: enough for a screen of leaves, little to pass over in a
/// branch.
pub const PAGE: i64 = 100;

/// A key, or all keys that begin with one name up to a separator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The key; of a branch the prefix, with the separator at its end.
    pub key: Vec<u8>,
    /// Whether there are keys below it.
    pub branch: bool,
}

/// How far a level has been read.
#[derive(Clone, Debug)]
pub struct Level {
    separator: Vec<u8>,
    prefix: Vec<u8>,
    stem: usize,
    /// First key that has yet to be read; none if nothing has.
    next: Option<Vec<u8>>,
    /// First key after the level; `\0` if no key is.
    end: Vec<u8>,
}

impl Level {
    /// The level of all keys that begin with `prefix`. If the prefix ends in
    /// the middle of a name, these are the rows whose names begin like that.
    ///
    /// The separator must not be empty.
    pub fn new(prefix: &[u8], separator: &[u8]) -> Level {
        assert!(!separator.is_empty(), "a separator of nothing separates nothing");
        let range = client::prefix(prefix.to_vec());
        Level {
            separator: separator.to_vec(),
            prefix: prefix.to_vec(),
            stem: stem(prefix, separator),
            next: Some(range.key.to_vec()),
            end: range.range_end.to_vec(),
        }
    }

    /// What to read next; none once every row is known.
    pub fn request(&self, limit: i64, revision: i64) -> Option<RangeRequest> {
        let key = self.next.clone()?.into();
        let range_end = self.end.clone().into();
        Some(RangeRequest { key, range_end, limit, revision, keys_only: true, ..Default::default() })
    }

    /// Takes the keys that were read, in their order, and whether more are
    /// there; gives the rows they stand for. Keys that nobody asked for are
    /// passed over.
    pub fn take<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>, more: bool) -> Vec<Row> {
        let mut rows = Vec::new();
        let Some(begin) = self.next.take() else { return rows };
        let mut cursor = begin.clone();
        for key in keys {
            if key < &cursor[..] || !key.starts_with(&self.prefix) {
                continue;
            }
            match self.branch_of(key) {
                None => {
                    rows.push(Row { key: key.to_vec(), branch: false });
                    cursor = [key, b"\0"].concat();
                }
                Some(branch) => {
                    rows.push(Row { key: branch.to_vec(), branch: true });
                    match behind(branch) {
                        Some(next) => cursor = next,
                        // Nothing can come behind it.
                        None => return rows,
                    }
                }
            }
        }
        // An answer that says "more" and brings nothing would be asked for
        // for ever.
        if more && cursor > begin && self.is_inside(&cursor) {
            self.next = Some(cursor);
        }
        rows
    }

    /// Where the names of the rows begin: after the last separator of the
    /// prefix.
    pub fn stem(&self) -> usize {
        self.stem
    }

    /// Whether every row is known.
    pub fn is_whole(&self) -> bool {
        self.next.is_none()
    }

    /// The beginning of a key up to its first separator in this level.
    fn branch_of<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        find(&key[self.stem..], &self.separator).map(|at| &key[..self.stem + at + self.separator.len()])
    }

    fn is_inside(&self, key: &[u8]) -> bool {
        self.end == b"\0" || key < &self.end[..]
    }
}

/// Length of the whole names at the beginning of a key, with the separators
/// behind them.
pub fn stem(key: &[u8], separator: &[u8]) -> usize {
    let mut stem = 0;
    while let Some(at) = find(&key[stem..], separator) {
        stem += at + separator.len();
    }
    stem
}

/// The prefix one level up; none at the top.
pub fn parent(prefix: &[u8], separator: &[u8]) -> Option<Vec<u8>> {
    if prefix.is_empty() {
        return None;
    }
    let whole = stem(prefix, separator);
    // In the middle of a name: the level of that name.
    let up = if whole < prefix.len() { whole } else { stem(&prefix[..whole - separator.len()], separator) };
    Some(prefix[..up].to_vec())
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

/// The first key after all that begin like this.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let end = client::prefix(prefix.to_vec()).range_end;
    (&end[..] != b"\0").then(|| end.to_vec())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// All rows of a level, and how many keys were looked at.
    fn walk(keys: &BTreeSet<Vec<u8>>, prefix: &[u8], separator: &[u8], limit: usize) -> (Vec<Row>, usize) {
        let mut level = Level::new(prefix, separator);
        let (mut rows, mut seen) = (Vec::new(), 0);
        while let Some(request) = level.request(limit as i64, 7) {
            assert!(request.keys_only && request.revision == 7);
            let inside = |key: &&Vec<u8>| &request.range_end[..] == b"\0" || key[..] < request.range_end[..];
            let found: Vec<&[u8]> = keys.range(request.key.to_vec()..).take_while(inside).map(Vec::as_slice).collect();
            let more = found.len() > limit;
            let page = &found[..found.len().min(limit)];
            seen += page.len();
            rows.extend(level.take(page.iter().copied(), more));
        }
        assert!(level.is_whole());
        (rows, seen)
    }

    /// The rows, by looking at every key.
    fn dumb(keys: &BTreeSet<Vec<u8>>, prefix: &[u8], separator: &[u8]) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        for key in keys.iter().filter(|key| key.starts_with(prefix)) {
            let text: Vec<&[u8]> = split(key, separator);
            let depth = split(prefix, separator).len();
            let branch = text.len() > depth;
            let row = Row { key: if branch { text[..depth].concat() } else { key.clone() }, branch };
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        rows
    }

    /// Names with the separators behind them; the last has none.
    fn split<'k>(key: &'k [u8], separator: &[u8]) -> Vec<&'k [u8]> {
        let (mut names, mut begin, mut at) = (Vec::new(), 0, 0);
        while at < key.len() {
            if key[at..].starts_with(separator) {
                at += separator.len();
                names.push(&key[begin..at]);
                begin = at;
            } else {
                at += 1;
            }
        }
        names.push(&key[begin..]);
        names
    }

    #[test]
    fn rows_are_those_of_a_look_at_every_key() {
        let mut dice = testkit::Dice::new(1);
        let mut below = |bound: usize| dice.below(bound as u64) as usize;
        let alphabets: [&[u8]; 3] = [b"ab/", b"/\xff\x00", b"a::/"];
        for round in 0..3_000 {
            let alphabet = alphabets[below(alphabets.len())];
            let separator: &[u8] = if alphabet.contains(&b':') { b"::" } else { b"/" };
            let mut word = |most: usize| -> Vec<u8> {
                let length = below(most + 1);
                (0..length).map(|_| alphabet[below(alphabet.len())]).collect()
            };
            let keys: BTreeSet<Vec<u8>> = (0..30).map(|_| word(6)).filter(|key| !key.is_empty()).collect();
            let prefix = word(3);
            let limit = 1 + below(5);
            let (rows, _) = walk(&keys, &prefix, separator, limit);
            assert_eq!(rows, dumb(&keys, &prefix, separator), "{round}: {prefix:?} {separator:?} {limit} {keys:?}");
        }
    }

    #[test]
    fn what_is_in_a_branch_is_passed_over() {
        let branches = 5;
        let keys: BTreeSet<Vec<u8>> = (0..branches)
            .flat_map(|branch| (0..10_000).map(move |key| format!("/{branch}/{key}").into_bytes()))
            .collect();
        let (rows, seen) = walk(&keys, b"/", b"/", 10);
        assert_eq!(rows.len(), branches);
        assert!(seen <= branches * 10, "{seen} of {} keys were read", keys.len());
    }

    #[test]
    fn an_answer_that_makes_no_sense_ends_the_level() {
        for keys in [&[][..], &[&b"a/b"[..]], &[b"x/1", b"x/1"], &[b""]] {
            let mut level = Level::new(b"x/", b"/");
            let mut rounds = 0;
            while level.request(1, 0).is_some() {
                level.take(keys.iter().copied(), true);
                rounds += 1;
                assert!(rounds < 5, "{keys:?}");
            }
        }
    }

    #[test]
    fn one_level_up() {
        let cases: [(&str, &str, Option<&str>); 7] = [
            ("", "/", None),
            ("/", "/", Some("")),
            ("/a/", "/", Some("/")),
            ("/a/b", "/", Some("/a/")),
            ("a", "/", Some("")),
            ("a::b::", "::", Some("a::")),
            ("a::b:", "::", Some("a::")),
        ];
        for (prefix, separator, up) in cases {
            assert_eq!(parent(prefix.as_bytes(), separator.as_bytes()).as_deref(), up.map(str::as_bytes), "{prefix}");
        }
    }
}
