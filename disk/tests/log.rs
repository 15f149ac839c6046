//! The log against crashes at every call, damage at every byte, and failing calls.

use bytes::Bytes;
use consensus::{Entry, EntryKind, HardState, Position};
use disk::{Boot, Doubt, Fault, Files, Identity, Log, LogOptions, OnDoubt, Tail, Torn};
use std::collections::BTreeMap;
use std::sync::Arc;
use testkit::Dice;
use testkit::files::{KEPT, Kept, MemFiles};

const ID: Identity = Identity { cluster: 0xc1, member: 0xa1 };
/// The boot in which all lives go on, and the one after a power loss.
const BOOT: Option<Boot> = Some([1; 16]);
const NEXT_BOOT: Option<Boot> = Some([2; 16]);
const OPTIONS: LogOptions = LogOptions { segment_bytes: 16 << 10, boot: BOOT, salt: 0x5a17 };
const SMALL: LogOptions = LogOptions { segment_bytes: 12 << 10, boot: BOOT, salt: 0x5a17 };

fn entry(index: u64, term: u64, len: usize) -> Entry {
    let kind = if index.is_multiple_of(7) { EntryKind::Config } else { EntryKind::Normal };
    let data: Vec<u8> = (0..len).map(|i| (index * 31 + term * 7 + i as u64) as u8).collect();
    Entry { index, term, kind, data: Bytes::from(data) }
}

fn entries(range: std::ops::RangeInclusive<u64>, term: u64, len: usize) -> Vec<Entry> {
    range.map(|index| entry(index, term, len)).collect()
}

fn at(index: u64, term: u64) -> Position {
    Position { index, term }
}

fn hard(term: u64, vote: u64, commit: u64) -> HardState {
    HardState { term, vote, commit }
}

/// What an opened log holds, all of it.
#[derive(Debug)]
struct Content {
    hard: HardState,
    entries: Vec<Entry>,
    boundary: Position,
    tail: Tail,
    doubt: Option<Doubt>,
    healed: Vec<Torn>,
}

fn recover(files: &MemFiles) -> Result<(Log, Content), Fault> {
    open(files.shared(), OPTIONS)
}

/// Opens it after a power loss.
fn recover_later(files: &MemFiles) -> Result<(Log, Content), Fault> {
    open(files.shared(), LogOptions { boot: NEXT_BOOT, ..OPTIONS })
}

/// Opens the log and reads its entries; what recovery said of them must be so.
fn open(files: Arc<dyn Files>, options: LogOptions) -> Result<(Log, Content), Fault> {
    let (log, found) = Log::recover(files, ID, options, None, OnDoubt::Keep)?;
    let mut entries = Vec::new();
    log.each(0, u64::MAX, |entry| {
        entries.push(entry);
        Ok(())
    })?;
    let mut last = found.boundary;
    for entry in &entries {
        assert_eq!((entry.index, found.term_of(entry.index)), (last.index + 1, Some(entry.term)), "{found:?}");
        assert_eq!(found.terms.contains(&entry.position()), entry.term > last.term, "{found:?}");
        last = entry.position();
    }
    assert_eq!((found.last, log.last()), (last, last));
    assert_eq!(found.term_of(found.boundary.index), Some(found.boundary.term));
    assert_eq!(found.term_of(last.index + 1), None);
    assert!(found.terms.is_sorted() && found.terms.iter().all(|run| run.index > found.boundary.index), "{found:?}");
    assert!(log.proven(), "recovery proves what it found");
    let disk::LogContent { hard, boundary, tail, doubt, healed, .. } = found;
    Ok((log, Content { hard, entries, boundary, tail, doubt, healed }))
}

/// What the log must hold: the dumbest thing that could work.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    hard: HardState,
    entries: BTreeMap<u64, Entry>,
    last: Position,
    /// Entries at or above this must be there; older ones may be.
    needed: u64,
}

impl Model {
    fn check(&self, content: &Content) -> Result<(), String> {
        if content.hard != self.hard {
            return Err(format!("hard state {:?}, not {:?}", content.hard, self.hard));
        }
        for (expected, entry) in (content.boundary.index + 1..).zip(&content.entries) {
            if entry.index != expected {
                return Err(format!("entry {} where {expected} belongs", entry.index));
            }
        }
        let last = content.entries.last().map_or(content.boundary, Entry::position);
        if last != self.last {
            return Err(format!("last entry {last:?}, not {:?}", self.last));
        }
        let found: Vec<&Entry> = content.entries.iter().filter(|entry| entry.index >= self.needed).collect();
        let wanted: Vec<&Entry> = self.entries.range(self.needed..).map(|(_, entry)| entry).collect();
        if found != wanted {
            return Err("other entries".to_string());
        }
        Ok(())
    }
}

enum Step {
    Save(HardState, Vec<Entry>),
    Cut(u64),
    RestartAt(HardState, Position),
    Reopen,
}

/// A life with everything in it: small and many-page batches, hard states alone, replaced tails,
/// rolls, cuts that recycle, a batch larger than a segment, restarts, an installed snapshot.
fn script() -> Vec<Step> {
    use Step::*;
    let mut steps = vec![Save(hard(1, 0xa1, 0), vec![])];
    for index in 1..=4 {
        steps.push(Save(hard(1, 0xa1, index - 1), vec![entry(index, 1, 100)]));
    }
    steps.push(Save(hard(1, 0xa1, 4), entries(5..=9, 1, 1500)));
    steps.push(Save(hard(2, 0, 4), vec![]));
    steps.push(Save(hard(2, 0, 5), entries(7..=8, 2, 10)));
    steps.push(Reopen);
    steps.push(Save(hard(2, 0, 8), entries(9..=12, 2, 3000)));
    steps.push(Save(hard(2, 0, 12), entries(13..=14, 2, 9000)));
    steps.push(Cut(11));
    steps.push(Save(hard(3, 0xa2, 13), entries(14..=20, 3, 700)));
    steps.push(Save(hard(3, 0xa2, 20), vec![entry(21, 3, 40_000)]));
    for index in 22..=27 {
        steps.push(Save(hard(3, 0xa2, index - 1), vec![entry(index, 3, 3700)]));
    }
    steps.push(Cut(22));
    steps.push(Reopen);
    for index in 28..=31 {
        steps.push(Save(hard(3, 0xa2, index - 1), vec![entry(index, 3, 5000), entry(index + 1, 3, 0)]));
    }
    steps.push(Save(hard(4, 0, 31), vec![]));
    steps.push(RestartAt(hard(4, 0, 50), at(50, 4)));
    for index in 51..=55 {
        steps.push(Save(hard(4, 0, 50), vec![entry(index, 4, 20)]));
    }
    steps.push(Reopen);
    steps.push(Save(hard(5, 0xa1, 53), entries(54..=56, 5, 2000)));
    steps
}

/// Runs the script. Returns, for each step done, the number of calls after it and what must be
/// there then.
fn run(files: &MemFiles, steps: Vec<Step>) -> Vec<(usize, Model)> {
    let mut log = Log::create(files.shared(), ID, OPTIONS, Position::default()).unwrap();
    let mut model = Model { hard: hard(0, 0, 0), entries: BTreeMap::new(), last: Position::default(), needed: 1 };
    let mut marks = vec![(files.calls(), model.clone())];
    for step in steps {
        match step {
            Step::Save(hard, entries) => {
                log.save(hard, &entries).unwrap();
                model.hard = hard;
                if let Some(first) = entries.first() {
                    model.entries.split_off(&first.index);
                }
                for entry in entries {
                    model.last = entry.position();
                    model.entries.insert(entry.index, entry);
                }
            }
            Step::Cut(index) => {
                log.cut_below(index).unwrap();
                model.needed = index;
            }
            Step::RestartAt(hard, at) => {
                log.restart_at(hard, at).unwrap();
                model = Model { hard, entries: BTreeMap::new(), last: at, needed: at.index + 1 };
            }
            Step::Reopen => {
                let (opened, content) = recover(files).unwrap();
                model.check(&content).unwrap();
                log = opened;
            }
        }
        assert_eq!(log.last(), model.last);
        let read = log.read(model.needed, u64::MAX).unwrap();
        assert_eq!(read, model.entries.range(model.needed..).map(|(_, entry)| entry.clone()).collect::<Vec<_>>());
        marks.push((files.calls(), model.clone()));
    }
    marks
}

#[test]
fn a_crash_after_any_call_loses_nothing_acknowledged() {
    let files = MemFiles::new();
    let marks = run(&files, script());
    let mut tails: BTreeMap<&str, usize> = BTreeMap::new();
    for calls in 0..=files.calls() {
        let done = marks.iter().rposition(|(at, _)| *at <= calls);
        for kept in KEPT.into_iter().chain([4, 5, 6].map(Kept::Some)) {
            let crashed = files.crash(calls, kept);
            let here = || format!("crash after call {calls} with {kept:?}");
            let Some(done) = done else {
                // Not yet created: nothing, or a whole new log.
                if Log::exists(&*crashed.shared()).unwrap() {
                    marks[0].1.check(&recover_later(&crashed).unwrap().1).unwrap();
                }
                continue;
            };
            let (_, content) = recover_later(&crashed).unwrap_or_else(|fault| panic!("{}: {fault}", here()));
            *tails.entry(name_of(&content.tail)).or_default() += 1;
            check_after_crash(&marks, done, &content).unwrap_or_else(|what| panic!("{}: {what}", here()));
            assert_eq!(content.doubt.is_some(), content.tail != Tail::Whole, "{}", here());
            let (mut log, again) = recover_later(&crashed).unwrap();
            assert_eq!(
                (again.hard, &again.entries, again.boundary),
                (content.hard, &content.entries, content.boundary),
                "{}",
                here()
            );
            assert!(again.tail == Tail::Whole && again.healed.is_empty(), "{}: {again:?}", here());
            assert_eq!(again.doubt, content.doubt, "{}", here());
            // Life goes on.
            let next = entry(log.last().index + 1, log.last().term.max(9), 5000);
            let on = hard(9.max(again.hard.term), 0, again.hard.commit);
            log.save(on, std::slice::from_ref(&next)).unwrap();
            let (_, after) = recover_later(&crashed).unwrap();
            assert_eq!((after.hard, after.entries.last()), (on, Some(&next)), "{}", here());
            assert_eq!(after.doubt, content.doubt, "{}", here());
        }
    }
    // What a crash leaves is always known for what it is: a lone member comes back from all of it.
    assert!(tails["torn"] > 10 && !tails.contains_key("doubtful"), "{tails:?}");
}

fn name_of(tail: &Tail) -> &'static str {
    match tail {
        Tail::Whole => "whole",
        Tail::Torn(_) => "torn",
        Tail::Doubtful(_) => "doubtful",
        Tail::Damaged(_) => "damaged",
    }
}

/// What was acknowledged is there, or what was under way as a whole. Of a batch that was cut, term
/// and vote may stay: a promise that was perhaps given is kept.
fn check_after_crash(marks: &[(usize, Model)], done: usize, content: &Content) -> Result<(), String> {
    let acknowledged = &marks[done].1;
    let Err(what) = acknowledged.check(content) else { return Ok(()) };
    let Some((_, under_way)) = marks.get(done + 1) else { return Err(what) };
    let Err(other) = under_way.check(content) else { return Ok(()) };
    let promised = HardState { commit: acknowledged.hard.commit, ..under_way.hard };
    let kept = Model { hard: promised, ..acknowledged.clone() };
    match kept.check(content) {
        Ok(()) if content.tail != Tail::Whole => Ok(()),
        _ => Err(format!("{what}; {other}")),
    }
}

/// A vote is durable before it counts: one that was flushed is recovered, wherever a later call is
/// cut off. Until the next one is flushed, a start finds the old one or the new one, and no other.
#[test]
fn a_flushed_vote_is_recovered_after_a_crash_at_any_call() {
    let files = MemFiles::new();
    let mut log = Log::create(files.shared(), ID, OPTIONS, Position::default()).unwrap();
    let mut marks = Vec::new();
    for term in 1..=6 {
        // A vote alone, and one beside entries, as a follower saves them.
        let beside = if term % 2 == 0 { vec![entry(term / 2, term, 5000)] } else { vec![] };
        let ballot = hard(term, 0xa0 + term, 0);
        log.save(ballot, &beside).unwrap();
        marks.push((files.calls(), ballot));
    }
    let mut cases = 0;
    for calls in marks[0].0..=files.calls() {
        let flushed = marks.iter().filter(|(upto, _)| *upto <= calls).count();
        for kept in KEPT {
            let (_, content) = recover_later(&files.crash(calls, kept)).unwrap();
            let (old, new) = (marks[flushed - 1].1, marks.get(flushed).map(|(_, ballot)| *ballot));
            assert!(content.hard == old || Some(content.hard) == new, "{calls} {kept:?}: {:?}", content.hard);
            cases += 1;
        }
    }
    assert!(cases > 50, "{cases} crashes");
}

#[test]
fn a_crash_during_recovery_changes_nothing() {
    let files = MemFiles::new();
    let marks = run(&files, script());
    // The last step is a Save; crash in its middle with torn sectors, then crash during recovery.
    let middle = marks[marks.len() - 2].0 + 1;
    for seed in 1..20 {
        let torn = files.crash(middle, Kept::Some(seed));
        let recording = MemFiles::new();
        for (path, bytes) in torn.contents() {
            use disk::{Files, How};
            recording.make_dir("log").unwrap();
            let file = recording.open(&path, How::Create).unwrap();
            file.write_at(0, &[&bytes]).unwrap();
            file.sync().unwrap();
        }
        disk::Files::sync_dir(&recording, "log").unwrap();
        let start = recording.calls();
        let (_, content) = recover_later(&recording).unwrap();
        for calls in start..=recording.calls() {
            for kept in KEPT {
                let crashed = recording.crash(calls, kept);
                let (_, again) = open(crashed.shared(), LogOptions { boot: Some([3; 16]), ..OPTIONS }).unwrap();
                assert_eq!((again.hard, &again.entries), (content.hard, &content.entries));
                // The batch of the recovery may be whole while the page behind it is not.
                let unmarked = again.doubt.as_ref().is_some_and(|doubt| doubt.proven_tear && doubt.promise.is_none());
                assert!(unmarked || again.doubt.is_some() == content.doubt.is_some(), "{again:?}");
                let promise = |doubt: Option<Doubt>| doubt.and_then(|doubt| doubt.promise);
                assert_eq!(promise(again.doubt), promise(content.doubt.clone()));
            }
        }
    }
}

/// A small log in recycled files, so that stale pages follow the end.
fn recycled_log(files: &MemFiles) -> Vec<Content> {
    let mut log = Log::create(files.shared(), ID, SMALL, Position::default()).unwrap();
    for index in 1..=12 {
        log.save(hard(1, 0xa1, index - 1), &[entry(index, 1, 3000)]).unwrap();
        log.cut_below(index.saturating_sub(2)).unwrap();
    }
    log.save(hard(1, 0xa1, 12), &entries(13..=14, 1, 300)).unwrap();
    let before = open(files.copy().shared(), SMALL).unwrap().1;
    log.save(hard(2, 0xa3, 13), &[entry(15, 2, 300)]).unwrap();
    let after = open(files.copy().shared(), SMALL).unwrap().1;
    assert_eq!(after.entries.len(), before.entries.len() + 1);
    vec![after, before]
}

/// Recovers a damaged copy: the same content, or the same less the last batch with a doubt that
/// knows what is missing, or a fault with the file's name that changed nothing.
fn judge(files: &MemFiles, allowed: &[Content], what: &str) -> &'static str {
    let damaged = files.contents();
    match open(files.shared(), SMALL) {
        Ok((_, content)) => {
            let same = |other: &Content| (&content.entries, content.boundary) == (&other.entries, other.boundary);
            let found = allowed.iter().position(same);
            assert!(found.is_some(), "{what}: {content:?}");
            // A vote that was given is not forgotten, whatever is cut.
            assert_eq!((content.hard.term, content.hard.vote), (2, 0xa3), "{what}");
            match (&content.tail, found) {
                (Tail::Doubtful(doubt), Some(1)) => {
                    assert_eq!((doubt.promise, doubt.proven_tear), (Some(at(15, 2)), false), "{what}");
                    "in doubt"
                }
                (_, Some(1)) => panic!("{what}: an acknowledged batch is cut without a doubt: {content:?}"),
                _ if content.healed.is_empty() => "harmless",
                _ => "healed",
            }
        }
        Err(Fault::Damaged { file, .. }) => {
            assert!(file.starts_with("log/"), "{what}: {file}");
            assert_eq!(files.calls(), 0, "{what}: a refusal changes nothing");
            assert_eq!(files.contents(), damaged);
            "refused"
        }
        Err(fault) => panic!("{what}: {fault}"),
    }
}

#[test]
fn damage_at_any_byte_is_seen_or_harmless() {
    let files = MemFiles::new();
    let allowed = recycled_log(&files);
    let mut verdicts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut try_edit = |path: &str, at: usize, len: usize, edit: &dyn Fn(u8) -> u8| {
        let bytes = files.bytes(path);
        let until = (at + len).min(bytes.len());
        if bytes[at..until].iter().all(|&byte| edit(byte) == byte) {
            return;
        }
        let copy = files.copy();
        copy.edit(path, |bytes| bytes[at..until].iter_mut().for_each(|byte| *byte = edit(*byte)));
        *verdicts.entry(judge(&copy, &allowed, &format!("{path} {at}+{len}"))).or_default() += 1;
    };
    for path in files.files() {
        let len = files.bytes(&path).len();
        let bytes = files.bytes(&path);
        for at in 0..len {
            // Long runs of zeros are padding: a sample of them will do.
            if at % 16 != 0 && bytes[at.saturating_sub(16)..(at + 16).min(len)].iter().all(|&byte| byte == 0) {
                continue;
            }
            try_edit(&path, at, 1, &|byte| byte ^ (1 << (at % 8)));
            if at % 5 == 0 {
                try_edit(&path, at, 8, &|_| 0);
            }
        }
        for at in (0..len).step_by(512) {
            try_edit(&path, at, 512, &|_| 0);
            try_edit(&path, at, 4096, &|_| 0);
            try_edit(&path, at, 4096, &|byte| byte ^ 0xff);
        }
    }
    for verdict in ["healed", "harmless", "in doubt", "refused"] {
        assert!(verdicts.get(verdict).is_some_and(|&count| count > 10), "{verdict}: {verdicts:?}");
    }
}

#[test]
fn a_proven_log_has_no_tail_to_lose() {
    let files = MemFiles::new();
    let mut allowed = recycled_log(&files);
    // Recovery proves what it found; afterwards damage of the last acknowledged batch is refused.
    drop(open(files.shared(), SMALL).unwrap());
    allowed.truncate(1);
    for path in files.files() {
        for at in (0..files.bytes(&path).len()).step_by(128) {
            let copy = files.copy();
            copy.edit(&path, |bytes| {
                let until = (at + 4096).min(bytes.len());
                bytes[at..until].fill(0);
            });
            judge(&copy, &allowed, &format!("{path} {at}"));
        }
    }
}

#[test]
fn one_of_the_two_headers_is_enough() {
    let files = MemFiles::new();
    let mut log = Log::create(files.shared(), ID, OPTIONS, Position::default()).unwrap();
    for index in 1..=3 {
        log.save(hard(index, 0xa1, 0), &[entry(index, 1, 100)]).unwrap();
    }
    // Four batches of a page each fill the first file.
    let path = files.files().remove(0);
    let good = files.bytes(&path);
    for at in (0..good.len()).step_by(4096).flat_map(|page| [page, page + 4096 - 160]) {
        let copy = files.copy();
        copy.edit(&path, |bytes| bytes[at..at + 160].fill(0));
        let (_, content) = recover(&copy).unwrap();
        assert_eq!((content.entries, content.hard.term), (entries(1..=3, 1, 100), 3), "{at}");
        assert_eq!((content.healed.len(), content.tail), (1, Tail::Whole), "{at}");
        assert_eq!(copy.bytes(&path), good, "{at}");
    }
}

/// Files are made at their full length before the first batch: one that is shorter has lost
/// something that was durable, even when it ends between two batches.
#[test]
fn a_file_that_lost_its_end_is_damage() {
    let files = MemFiles::new();
    let mut log = Log::create(files.shared(), ID, OPTIONS, Position::default()).unwrap();
    for index in 1..=2 {
        log.save(hard(1, 0, 0), &[entry(index, 1, 100)]).unwrap();
    }
    let path = files.files().remove(0);
    let made = files.bytes(&path).len();
    for len in (0..made).step_by(2048) {
        let copy = files.copy();
        copy.edit(&path, |bytes| bytes.truncate(len));
        let fault = recover(&copy).unwrap_err();
        assert!(fault.is_damage() && fault.to_string().contains(&path), "{len}: {fault}");
        assert_eq!(copy.calls(), 0, "{len}: {fault}");
        if len >= 4096 {
            let text = format!(
                "{path} at byte {len}: damaged: the file ends here and was made with {made} bytes: batches may be missing"
            );
            assert_eq!(fault.to_string(), text);
        }
    }
}

/// A file as it was once, put back: each of its batches is valid, but the chain is broken.
#[test]
fn an_old_copy_of_a_file_is_damage() {
    let files = MemFiles::new();
    let mut log = Log::create(files.shared(), ID, OPTIONS, Position::default()).unwrap();
    log.save(hard(1, 0, 0), &[entry(1, 1, 100)]).unwrap();
    let path = files.files().remove(0);
    let old = files.bytes(&path);
    for index in 2..=8 {
        log.save(hard(1, 0, 0), &[entry(index, 1, 100)]).unwrap();
    }
    files.edit(&path, |bytes| *bytes = old);
    match recover(&files).unwrap_err() {
        Fault::Damaged { file, offset, entries, .. } => {
            assert_eq!((file, offset), (path, 8192));
            assert_eq!(entries.iter().map(|id| id.index).collect::<Vec<_>>(), [2, 3]);
        }
        other => panic!("{other}"),
    }
    // The same with votes: no entry is missing, and yet a promise would be.
    let files = MemFiles::new();
    let mut log = Log::create(files.shared(), ID, OPTIONS, Position::default()).unwrap();
    log.save(hard(1, 0, 0), &[entry(1, 1, 100)]).unwrap();
    let path = files.files().remove(0);
    let old = files.bytes(&path);
    for term in 2..=5 {
        log.save(hard(term, 0xa1, 0), &[]).unwrap();
    }
    files.edit(&path, |bytes| *bytes = old);
    match recover(&files).unwrap_err() {
        Fault::Damaged { file, offset, .. } => assert_eq!((file, offset), (path, 8192)),
        other => panic!("{other}"),
    }
}

#[test]
fn missing_entries_are_named() {
    let files = MemFiles::new();
    let mut log = Log::create(files.shared(), ID, OPTIONS, Position::default()).unwrap();
    log.save(hard(1, 0, 0), &entries(1..=3, 1, 10)).unwrap();
    log.save(hard(1, 0, 3), &entries(4..=5, 1, 10)).unwrap();
    log.save(hard(1, 0, 5), &entries(6..=6, 1, 10)).unwrap();
    let path = files.files().into_iter().find(|path| path.ends_with(".log")).unwrap();
    // Page 0 holds the first batch (no entries), page 1 entries 1 to 3: body of entry 2.
    let body = files.copy();
    body.edit(&path, |bytes| bytes[4096 + 168 + 3 * 28 + 10] ^= 1);
    let page = files.copy();
    page.edit(&path, |bytes| bytes[4096..8192].fill(0));
    let fault = recover(&body).unwrap_err();
    assert_eq!(
        fault.to_string(),
        format!(
            "{path} at byte 4096: damaged: the data of log entries is wrong; batch 3 at byte 8192 of log file 1 \
                 proves that it was durable (log entries 2 to 2: 1 missing)"
        )
    );
    match fault {
        Fault::Damaged { entries, .. } => {
            assert_eq!(
                (entries[0].index, entries[0].term, entries[0].crc),
                (2, 1, crc32c::crc32c(&entry(2, 1, 10).data))
            );
        }
        other => panic!("{other}"),
    }
    match recover(&page).unwrap_err() {
        Fault::Damaged { entries, .. } => assert_eq!(entries.iter().map(|id| id.index).collect::<Vec<_>>(), [1, 2, 3]),
        other => panic!("{other}"),
    }
}

#[test]
fn a_missing_or_misplaced_file_is_damage() {
    let files = MemFiles::new();
    let mut log = Log::create(files.shared(), ID, OPTIONS, Position::default()).unwrap();
    for index in 1..=12 {
        log.save(hard(1, 0, 0), &[entry(index, 1, 6000)]).unwrap();
    }
    let names: Vec<String> = files.files().into_iter().filter(|path| path.ends_with(".log")).collect();
    assert!(names.len() >= 4);
    for missing in &names[1..names.len() - 1] {
        let copy = files.copy();
        disk::Files::remove(&copy, missing).unwrap();
        assert!(recover(&copy).unwrap_err().is_damage(), "{missing}");
        // Another file's contents in its place, or in the place of the first.
        for place in [missing, &names[0]] {
            let copy = files.copy();
            let contents = copy.bytes(&names[names.len() - 1]);
            copy.edit(place, |bytes| *bytes = contents);
            assert!(recover(&copy).unwrap_err().is_damage(), "{place}");
        }
    }
}

#[test]
fn others_logs_and_later_formats_are_refused() {
    let files = MemFiles::new();
    Log::create(files.shared(), ID, OPTIONS, Position::default())
        .unwrap()
        .save(hard(1, 0, 0), &entries(1..=2, 1, 10))
        .unwrap();
    let path = files.files().into_iter().find(|path| path.ends_with(".log")).unwrap();
    let calls = files.calls();
    for id in [Identity { cluster: 1, ..ID }, Identity { member: 1, ..ID }] {
        let fault = Log::recover(files.shared(), id, OPTIONS, None, OnDoubt::Keep).unwrap_err();
        assert!(matches!(fault, Fault::Foreign { .. }), "{fault}");
    }
    let newer = files.copy();
    newer.edit(&path, |bytes| {
        bytes[4096 + 8] = 3;
        let crc = crc32c::crc32c(&bytes[4096..4096 + 156]);
        bytes[4096 + 156..4096 + 160].copy_from_slice(&crc.to_le_bytes());
    });
    let fault = recover(&newer).unwrap_err();
    assert_eq!(fault.to_string(), format!("{path} at byte 0: written in format level 3, this program knows up to 2"));
    assert!(matches!(Log::create(files.shared(), ID, OPTIONS, Position::default()), Err(Fault::Refused { .. })));
    let unused = MemFiles::new();
    Log::create(unused.shared(), ID, OPTIONS, at(3, 1)).unwrap();
    Log::create(unused.shared(), ID, OPTIONS, at(3, 1)).unwrap();
    assert!(matches!(Log::create(unused.shared(), ID, OPTIONS, at(4, 1)), Err(Fault::Refused { .. })));
    assert_eq!(newer.calls(), 0);
    assert_eq!(files.calls(), calls + 1, "only the directory was flushed by the refused create");
}

#[test]
fn a_failed_call_is_final_but_a_full_disk_before_the_flush_is_not() {
    let save = |log: &mut Log, index: u64| log.save(hard(1, 0, 0), &[entry(index, 1, 6000)]);
    let (mut new_file, mut in_place, mut ended) = (0, 0, 0);
    for calls in 0..12 {
        for kind in [std::io::ErrorKind::Other, std::io::ErrorKind::StorageFull] {
            let files = MemFiles::new();
            let mut log = Log::create(files.shared(), ID, OPTIONS, Position::default()).unwrap();
            files.fail_after(calls, kind);
            let mut index = 1;
            let fault = loop {
                match save(&mut log, index) {
                    Ok(()) => index += 1,
                    Err(fault) => break fault,
                }
            };
            files.heal();
            // A file that could not be made is no part of the log yet.
            let spare = matches!(&fault, Fault::Io { file, .. } if file.contains("spare"));
            let full = kind == std::io::ErrorKind::StorageFull;
            if (spare || full) && save(&mut log, index).is_ok() {
                *if spare { &mut new_file } else { &mut in_place } += 1;
                index += 1;
                // Saves are queued: the one behind a refused one has a gap, and that is final.
                let files = MemFiles::new();
                let mut log = Log::create(files.shared(), ID, OPTIONS, Position::default()).unwrap();
                files.fail_after(calls, kind);
                let refused = (1..).find(|&index| save(&mut log, index).is_err()).unwrap();
                files.heal();
                assert!(matches!(save(&mut log, refused + 1), Err(Fault::Refused { .. })));
                assert!(matches!(save(&mut log, refused), Err(Fault::Stopped { .. })));
            } else {
                ended += u32::from(full);
                assert!(matches!(save(&mut log, index), Err(Fault::Stopped { .. })), "{fault}");
                assert!(matches!(log.read(1, 1), Err(Fault::Stopped { .. })));
                assert!(matches!(log.cut_below(1), Err(Fault::Stopped { .. })));
            }
            let (_, content) = recover(&files).unwrap();
            assert!(content.entries.len() as u64 >= index - 1);
        }
    }
    assert!(new_file > 0 && in_place > 0, "{new_file} {in_place}");
    assert!(ended > 0, "a flush that finds no room is final");
}

/// A killed process leaves names that can be seen but may not be durable: what is saved behind
/// them after a restart must not go with them.
#[test]
fn a_name_that_was_not_flushed_is_flushed_before_it_counts() {
    let save = |log: &mut Log, index: u64| log.save(hard(1, 0, 0), &[entry(index, 1, 6000)]);
    for calls in 0..16 {
        let files = MemFiles::new();
        let mut log = Log::create(files.shared(), ID, OPTIONS, Position::default()).unwrap();
        files.fail_after(calls, std::io::ErrorKind::Other);
        let failed = (1..).find(|&index| save(&mut log, index).is_err()).unwrap();
        files.heal();
        let (mut log, content) = recover(&files).unwrap();
        let next = content.entries.len() as u64 + 1;
        assert!(next == failed || next == failed + 1);
        log.save(hard(2, 3, 0), &[entry(next, 2, 10)]).unwrap();
        let (_, after) = recover_later(&files.crash(files.calls(), Kept::Nothing)).unwrap();
        assert_eq!((after.entries.len() as u64, after.hard.vote), (next, 3), "failure of call {calls}");
    }
}

/// After a failed flush the bytes can be read, but may not be on the disk: what recovery reports
/// must survive the next crash.
#[test]
fn what_a_failed_flush_left_is_written_again() {
    let mut read_back = 0;
    for calls in 0..6 {
        let files = MemFiles::new();
        let mut log = Log::create(files.shared(), ID, OPTIONS, Position::default()).unwrap();
        log.save(hard(1, 0, 0), &[entry(1, 1, 300)]).unwrap();
        files.fail_after(calls, std::io::ErrorKind::Other);
        let mut index = 2;
        while log.save(hard(1, 0, 0), &[entry(index, 1, 300)]).is_ok() {
            index += 1;
        }
        files.heal();
        let (_, content) = recover(&files).unwrap();
        read_back += usize::from(content.entries.len() as u64 == index);
        let (_, after) = recover_later(&files.crash(files.calls(), Kept::Nothing)).unwrap();
        assert_eq!(after.entries, content.entries, "failure of call {calls}");
    }
    assert!(read_back > 0, "some failed batch could be read");
}

#[test]
fn each_gives_what_is_asked_for_and_stops_when_told() {
    let files = MemFiles::new();
    let mut log = Log::create(files.shared(), ID, OPTIONS, at(10, 1)).unwrap();
    log.save(hard(1, 0, 10), &entries(11..=14, 1, 300)).unwrap();
    log.save(hard(2, 0, 11), &entries(13..=20, 2, 300)).unwrap();
    log.save(hard(2, 0, 12), &entries(21..=22, 2, 9000)).unwrap();
    let expected = [entries(11..=12, 1, 300), entries(13..=20, 2, 300), entries(21..=22, 2, 9000)].concat();
    for from in 0..25 {
        for upto in 0..25 {
            let mut found = Vec::new();
            log.each(from, upto, |entry| {
                found.push(entry);
                Ok(())
            })
            .unwrap();
            let wanted: Vec<Entry> =
                expected.iter().filter(|entry| from <= entry.index && entry.index <= upto).cloned().collect();
            assert_eq!(found, wanted, "{from}..={upto}");
        }
    }
    let mut seen = 0;
    let fault = log.each(0, u64::MAX, |_| {
        seen += 1;
        if seen < 4 { Ok(()) } else { Err(Fault::Refused { file: "f".to_string(), what: "enough".to_string() }) }
    });
    assert_eq!((fault.unwrap_err().to_string().contains("enough"), seen), (true, 4));
}

#[test]
#[should_panic(expected = "committed entries never change")]
fn the_committed_part_is_never_replaced() {
    let files = MemFiles::new();
    let mut log = Log::create(files.shared(), ID, OPTIONS, Position::default()).unwrap();
    log.save(hard(1, 0, 2), &entries(1..=3, 1, 10)).unwrap();
    let _ = log.save(hard(2, 0, 2), &entries(2..=2, 2, 10));
}

#[test]
fn reading_stops_at_the_bound_and_at_the_ends() {
    let files = MemFiles::new();
    let mut log = Log::create(files.shared(), ID, OPTIONS, at(10, 3)).unwrap();
    log.save(hard(4, 0, 10), &entries(11..=14, 4, 100)).unwrap();
    log.save(hard(5, 0, 12), &entries(13..=16, 5, 100)).unwrap();
    let read = |from, most| log.read(from, most).unwrap().iter().map(|e| (e.index, e.term)).collect::<Vec<_>>();
    assert_eq!(read(10, 1000), []);
    assert_eq!(read(17, 1000), []);
    assert_eq!(read(12, 0), [(12, 4)]);
    assert_eq!(read(11, 300), [(11, 4), (12, 4), (13, 5)]);
    assert_eq!(read(16, 1000), [(16, 5)]);
    assert_eq!(log.boundary(), at(10, 3));
}

/// Random lives against the model, each ended by a crash at a random call.
#[test]
fn random_lives() {
    for seed in 0..60u64 {
        let mut dice = Dice::new(seed + 1);
        let mut steps = Vec::new();
        let (mut term, mut last, mut commit, mut cut) = (1, 0u64, 0u64, 1u64);
        for _ in 0..dice.below(25) + 5 {
            match dice.below(10) {
                0 => steps.push(Step::Reopen),
                1 => {
                    cut = cut.max(dice.below(commit + 1) + 1);
                    steps.push(Step::Cut(cut));
                }
                2 => {
                    term += 1;
                    steps.push(Step::Save(hard(term, 0, commit), vec![]));
                }
                kind => {
                    let mut first = last + 1;
                    if kind == 3 && last > commit {
                        term += 1;
                        first = commit + 1 + dice.below(last - commit);
                    }
                    last = first + dice.below(4);
                    let len = [0, 10, 1000, 3788, 3789, 9000][dice.below(6) as usize];
                    steps.push(Step::Save(hard(term, 0, commit), entries(first..=last, term, len)));
                    commit += dice.below(last - commit + 1);
                }
            }
        }
        let files = MemFiles::new();
        let marks = run(&files, steps);
        for _ in 0..12 {
            let calls = marks[0].0 + dice.below((files.calls() - marks[0].0) as u64 + 1) as usize;
            let crashed = files.crash(calls, Kept::Some(dice.roll()));
            let done = marks.iter().rposition(|(at, _)| *at <= calls).unwrap();
            let (_, content) =
                recover_later(&crashed).unwrap_or_else(|fault| panic!("seed {seed} call {calls}: {fault}"));
            check_after_crash(&marks, done, &content).unwrap_or_else(|what| panic!("seed {seed} call {calls}: {what}"));
        }
    }
}

/// Whatever a crash leaves of files on their way to becoming log files, no name is used twice. A
/// batch larger than a segment takes a new file beside the spare ones.
#[test]
fn a_spare_file_that_a_crash_left_is_used_once() {
    let mut larger = 0;
    for reuse in [false, true] {
        let files = MemFiles::new();
        let mut log = Log::create(files.shared(), ID, SMALL, Position::default()).unwrap();
        for index in 1..=8 {
            log.save(hard(1, 0, index - 1), &[entry(index, 1, 5000)]).unwrap();
            if reuse {
                log.cut_below(index.saturating_sub(1)).unwrap();
            }
        }
        for calls in 1..=files.calls() {
            for kept in KEPT {
                let crashed = files.crash(calls, kept);
                if !Log::exists(&*crashed.shared()).unwrap() {
                    continue;
                }
                let here = || format!("crash after call {calls} with {kept:?}");
                let (mut log, content) = open(crashed.shared(), LogOptions { boot: NEXT_BOOT, ..SMALL })
                    .unwrap_or_else(|fault| panic!("{}: {fault}", here()));
                let mut index = content.entries.last().map_or(content.boundary.index, |last| last.index);
                for len in [40_000].into_iter().chain([3000; 12]).chain([40_000, 3000]) {
                    index += 1;
                    log.save(hard(1, 0, content.hard.commit), &[entry(index, 1, len)])
                        .unwrap_or_else(|fault| panic!("{}: entry {index}: {fault}", here()));
                    log.cut_below(index - 1).unwrap();
                    larger += usize::from(len > 12 << 10);
                }
                let kept = |path: &&String| path.contains("spare") || path.ends_with(".log");
                let on_disk: usize = crashed.files().iter().filter(kept).map(|path| crashed.bytes(path).len()).sum();
                assert_eq!(log.disk_bytes(), on_disk as u64, "{}: no file is forgotten", here());
                let (_, after) = open(crashed.shared(), LogOptions { boot: NEXT_BOOT, ..SMALL }).unwrap();
                assert_eq!(after.entries.last(), Some(&entry(index, 1, 3000)), "{}", here());
            }
        }
    }
    assert!(larger > 100);
}
