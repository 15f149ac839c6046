//! Damage below the proven end of the log of a member with peers: the log is cut there, and the
//! doubt that is left knows how far it went. A lone member refuses the same damage.

use bytes::Bytes;
use consensus::{Entry, EntryKind, HardState, Position};
use disk::{Boot, Doubt, Fault, Files, How, Identity, Log, LogContent, LogOptions, OnDoubt, Tail, doubt};
use std::collections::BTreeMap;
use testkit::Dice;
use testkit::files::{KEPT, Kept, MemFiles};

const ID: Identity = Identity { cluster: 0xc1, member: 0xa1 };
const BOOT: Option<Boot> = Some([1; 16]);
const NEXT_BOOT: Option<Boot> = Some([2; 16]);
const LAST: u64 = 30;
/// A checkpoint that every part of the log can be cut to.
const STATE: Position = Position { index: 4, term: 1 };

fn options(boot: Option<Boot>) -> LogOptions {
    LogOptions { segment_bytes: 24 << 10, boot, salt: 0x5a17 }
}

fn entry(index: u64) -> Entry {
    let data: Vec<u8> = (0..200 + index * 97 % 5000).map(|i| (index * 31 + i) as u8 | 1).collect();
    Entry { index, term: term(index), kind: EntryKind::Normal, data: Bytes::from(data) }
}

fn term(index: u64) -> u64 {
    1 + index / 12
}

/// Entries 1 to [`LAST`] in a few files; the last vote was for 0xa3 in term 3.
fn written(stops: bool) -> MemFiles {
    let files = MemFiles::new();
    let mut log = Log::create(files.shared(), ID, options(BOOT), Position::default()).expect("an empty disk");
    for index in 1..=LAST {
        let hard = HardState { term: term(index), vote: 0xa0 + term(index), commit: index - 1 };
        log.save(hard, &[entry(index)]).expect("saves");
    }
    if stops {
        log.close(LAST).expect("stops");
    }
    files
}

fn logs(files: &MemFiles) -> Vec<String> {
    files.files().into_iter().filter(|path| path.ends_with(".log") && path.starts_with("log/")).collect()
}

fn open(files: &MemFiles, boot: Option<Boot>, on_doubt: OnDoubt) -> Result<(Log, LogContent), Fault> {
    open_at(files, boot, Some(STATE), on_doubt)
}

fn open_at(
    files: &MemFiles,
    boot: Option<Boot>,
    state: Option<Position>,
    on_doubt: OnDoubt,
) -> Result<(Log, LogContent), Fault> {
    Log::recover(files.shared(), ID, options(boot), state, on_doubt)
}

fn read(log: &Log) -> Vec<Entry> {
    let mut entries = Vec::new();
    log.each(0, u64::MAX, |entry| {
        entries.push(entry);
        Ok(())
    })
    .expect("reads");
    entries
}

/// The bytes of one file change.
type Change = Box<dyn Fn(&MemFiles)>;

fn change(path: &str, at: usize, len: usize, edit: fn(u8) -> u8) -> Change {
    let path = path.to_string();
    Box::new(move |files| {
        files.edit(&path, |bytes| bytes[at..].iter_mut().take(len).for_each(|byte| *byte = edit(*byte)));
    })
}

/// Every kind of damage, in every file.
fn damages(files: &MemFiles) -> Vec<(String, Change)> {
    let mut all: Vec<(String, Change)> = Vec::new();
    let logs = logs(files);
    assert!(logs.len() > 3, "{logs:?}");
    for (number, path) in logs.iter().enumerate() {
        let bytes = files.bytes(path);
        let used = bytes.iter().rposition(|byte| *byte != 0).expect("not empty");
        for at in (0..used).step_by(1201).chain((0..used).step_by(4096)).chain((3940..used).step_by(4096)) {
            all.push((format!("{path}: bit at {at}"), change(path, at, 1, |byte| byte ^ 4)));
        }
        for at in (0..used).step_by(4096) {
            all.push((format!("{path}: page at {at} zeroed"), change(path, at, 4096, |_| 0)));
            all.push((format!("{path}: page at {at} garbage"), change(path, at, 4096, |byte| byte ^ 0x5a)));
            all.push((format!("{path}: zeroed from {at}"), change(path, at, usize::MAX, |_| 0)));
            let cut = path.clone();
            all.push((
                format!("{path}: ends at {at}"),
                Box::new(move |files| files.edit(&cut, |bytes| bytes.truncate(at))),
            ));
        }
        let gone = path.clone();
        all.push((format!("{path}: gone"), Box::new(move |files| Files::remove(files, &gone).expect("there"))));
        if number > 0 {
            let (one, other) = (path.clone(), logs[number - 1].clone());
            let before = files.bytes(&other);
            all.push((
                format!("{path}: as the file before"),
                Box::new(move |files| files.edit(&one, |bytes| *bytes = before.clone())),
            ));
        }
    }
    let (first, second) = (logs[1].clone(), logs[2].clone());
    let (one, two) = (files.bytes(&first), files.bytes(&second));
    all.push((
        "two files swapped".to_string(),
        Box::new(move |files| {
            files.edit(&first, |bytes| *bytes = two.clone());
            files.edit(&second, |bytes| *bytes = one.clone());
        }),
    ));
    all.push((
        "no file left".to_string(),
        Box::new(move |files| logs.iter().for_each(|path| Files::remove(files, path).expect("there"))),
    ));
    all
}

/// What a cut log must be: a part of the right one, with a doubt about all that is missing.
fn check(log: &Log, content: &LogContent, files: &MemFiles, what: &str) {
    let entries = read(log);
    let last = entries.last().map_or(content.boundary.index, |entry| entry.index);
    let first = content.boundary.index + 1;
    assert_eq!(entries, (first..=last).map(entry).collect::<Vec<_>>(), "{what}");
    assert!(last <= LAST && content.boundary.index <= STATE.index, "{what}: {content:?}");
    assert_eq!(doubt::find(files, ID).expect("reads"), content.doubt, "{what}");
    let promised = match &content.doubt {
        None => Some(last),
        Some(Doubt { at_least: true, .. } | Doubt { promise: None, .. }) => None,
        Some(Doubt { promise: Some(Position { index, term }), .. }) => {
            assert_eq!(*term, self::term(*index), "{what}");
            Some(*index)
        }
    };
    assert!(promised.is_none_or(|promised| promised >= LAST), "{what}: less is promised than was: {content:?}");
    if promised.is_some() {
        assert_eq!((log.hard().term, log.hard().vote), (3, 0xa3), "{what}: a vote is forgotten");
    }
}

/// The beginning of the log is gone, and what is left begins behind the state, at an entry that is
/// known to be committed: others have all before it. What is left may be the last copy, and none of
/// it is lost.
fn gives_the_state_up(files: &MemFiles, boot: Option<Boot>, what: &str) {
    let left = logs(files);
    let (log, content) = open_at(files, boot, None, OnDoubt::Peers).unwrap_or_else(|fault| panic!("{what}: {fault}"));
    let entries = read(&log);
    assert!(content.boundary.index > STATE.index && content.boundary.index <= log.hard().commit, "{what}: {content:?}");
    assert_eq!(entries, (content.boundary.index + 1..=LAST).map(entry).collect::<Vec<_>>(), "{what}");
    assert_eq!(logs(files), left, "{what}");
}

#[test]
fn every_damage_is_cut_and_what_is_lost_is_known() {
    let mut verdicts: BTreeMap<&str, usize> = BTreeMap::new();
    for stops in [false, true] {
        let files = written(stops);
        for (what, damage) in damages(&files) {
            for boot in [BOOT, NEXT_BOOT] {
                let copy = files.copy();
                damage(&copy);
                let (copy, what) = (copy.copy(), format!("{what}, stopped {stops}, {boot:?}"));
                let alone = open(&copy.copy(), boot, OnDoubt::Refuse);
                let (mut log, content) = match open(&copy, boot, OnDoubt::Peers) {
                    Err(fault) if fault.file() == "state" => {
                        gives_the_state_up(&copy, boot, &what);
                        *verdicts.entry("the state is given up").or_default() += 1;
                        continue;
                    }
                    other => other.unwrap_or_else(|fault| panic!("{what}: {fault}")),
                };
                check(&log, &content, &copy, &what);
                let verdict = match (&content.tail, &alone) {
                    (Tail::Damaged(found), Err(fault)) => {
                        let place = (found.at.file.as_str(), Some(found.at.offset));
                        assert!(found.sure && fault.is_damage() && place == (fault.file(), fault.offset()), "{what}");
                        assert!(content.doubt.as_ref().is_some_and(|doubt| doubt.sure), "{what}");
                        if found.at_least { "cut, end unknown" } else { "cut" }
                    }
                    // A lone member is told of it by the node, which compares it with the
                    // checkpoint.
                    (Tail::Damaged(_), Ok((_, content))) => {
                        assert!(content.boundary.index > STATE.index, "{what}: {content:?}");
                        "cut"
                    }
                    (Tail::Doubtful(_), Err(Fault::Doubtful { .. })) => "in doubt",
                    (Tail::Torn(_), Ok(_)) => "torn",
                    (Tail::Whole, Ok(_)) => "whole",
                    (tail, alone) => panic!("{what}: {tail:?}, alone {alone:?}"),
                };
                *verdicts.entry(verdict).or_default() += 1;
                // The member goes on, and no later start sees the damage again.
                let known = content.doubt.clone();
                let next = log.last().index + 1;
                let hard = HardState { term: 4, vote: 0, commit: log.hard().commit };
                for index in next..next + 9 {
                    log.save(hard, &[Entry { term: 4, ..entry(index) }]).expect("saves");
                }
                drop(log);
                let (log, content) =
                    open(&copy, boot, OnDoubt::Peers).unwrap_or_else(|fault| panic!("{what}, again: {fault}"));
                assert_eq!((log.last().index, &content.tail, content.doubt), (next + 8, &Tail::Whole, known), "{what}");
            }
        }
    }
    for (verdict, least) in
        [("cut", 300), ("cut, end unknown", 5), ("in doubt", 5), ("whole", 100), ("the state is given up", 1)]
    {
        assert!(verdicts.get(verdict).is_some_and(|&count| count > least), "{verdict}: {verdicts:?}");
    }
}

/// The same files on a disk that remembers its calls, so that it can crash.
fn recorded(files: &MemFiles) -> MemFiles {
    let recording = MemFiles::new();
    recording.make_dir("log").expect("makes");
    for (path, bytes) in files.contents() {
        let file = Files::open(&recording, &path, How::Create).expect("makes");
        file.write_at(0, &[&bytes]).and_then(|()| file.sync()).expect("writes");
    }
    Files::sync_dir(&recording, "log").expect("flushes");
    recording
}

/// A crash at any call of a cut: no promise is forgotten, and the next start cuts again.
#[test]
fn no_crash_in_a_cut_forgets_what_is_lost() {
    let files = written(true);
    let all = damages(&files);
    let mut dice = Dice::new(7);
    for (number, (what, damage)) in all.iter().enumerate() {
        if number % 41 != 0 && !what.contains("gone") && !what.contains("swapped") && !what.contains("no file") {
            continue;
        }
        let copy = files.copy();
        damage(&copy);
        let recording = recorded(&copy);
        let start = recording.calls();
        let (_, content) = match open(&recording, NEXT_BOOT, OnDoubt::Peers) {
            // Nothing is cut, and nothing was changed.
            Err(fault) if fault.file() == "state" => {
                assert_eq!(recording.calls(), start, "{what}");
                continue;
            }
            other => other.expect("cuts"),
        };
        let promise = content.doubt.as_ref().map(|doubt| (doubt.promise, doubt.at_least));
        for calls in start..=recording.calls() {
            if calls - start > 12 && dice.below(6) > 0 {
                continue;
            }
            for kept in [KEPT[calls % KEPT.len()], KEPT[(calls + 2) % KEPT.len()]] {
                let crashed = recording.crash(calls, kept);
                let here = format!("{what}, crash after call {} with {kept:?}", calls - start);
                let (log, content) =
                    open(&crashed, Some([3; 16]), OnDoubt::Peers).unwrap_or_else(|fault| panic!("{here}: {fault}"));
                check(&log, &content, &crashed, &here);
                let again = content.doubt.as_ref().map(|doubt| (doubt.promise, doubt.at_least));
                // The batch that the recovery wrote may be whole while the page behind it is not.
                let unmarked = content.doubt.as_ref().is_some_and(|doubt| doubt.proven_tear && doubt.promise.is_none());
                assert!(
                    again == promise || (unmarked && promise.is_none()),
                    "{here}: {:?}, before {promise:?}",
                    content.doubt
                );
                drop(log);
                let (_, content) = open(&crashed, Some([3; 16]), OnDoubt::Peers).expect("opens");
                assert_eq!(content.tail, Tail::Whole, "{here}");
            }
        }
    }
}

/// What is given up stays until the doubt is over.
#[test]
fn damaged_files_stay_aside_until_nothing_is_missing() {
    let files = written(true);
    let all = logs(&files);
    let damaged = files.bytes(&all[1]);
    files.edit(&all[1], |bytes| bytes[5000] ^= 1);
    let (mut log, content) = open(&files, BOOT, OnDoubt::Peers).expect("cuts");
    assert_eq!(content.doubt.map(|doubt| doubt.promise), Some(Some(Position { index: LAST, term: 3 })));
    let aside: Vec<String> = files.files().into_iter().filter(|path| path.starts_with("aside/")).collect();
    assert_eq!(aside.len(), all.len() - 1, "{aside:?}");
    let place = format!("aside/{}", all[1].replace('/', "-"));
    assert_eq!(files.bytes(&place)[5001..], damaged[5001..]);
    log.keep_doubt(None, log.hard()).expect("clears");
    assert!(!files.files().iter().any(|path| path.starts_with("aside/")));
    assert_eq!(doubt::find(&files, ID).expect("reads"), None);
}

/// A log that begins again numbers its files anew. Spare files hold batches of the log before, some
/// under the same numbers: none of them may ever stand for a batch of the new log.
#[test]
fn a_log_that_begins_again_does_not_take_old_batches_for_its_own() {
    let options = LogOptions { segment_bytes: 64 << 10, boot: BOOT, salt: 0x5a17 };
    let of_bytes = |index, len| Entry { index, term: 1, kind: EntryKind::Normal, data: Bytes::from(vec![7; len]) };
    let hard = |commit| HardState { term: 1, vote: 0, commit };
    for newest in 3..9 {
        let files = MemFiles::new();
        let mut log = Log::create(files.shared(), ID, options, Position::default()).expect("an empty disk");
        let mut last = 0;
        while logs(&files).last().is_none_or(|path| *path < format!("log/{newest:016x}.log")) {
            last += 1;
            log.save(hard(last), &[of_bytes(last, 100)]).expect("saves");
            log.cut_below(last).expect("cuts");
        }
        drop(log);
        logs(&files).iter().for_each(|path| Files::remove(&files, path).expect("there"));
        // One batch in each file, which leaves the end of the file as it was.
        for next in last + 1..last + 12 {
            let state = Some(Position { index: next - 1, term: 1 });
            let (mut log, content) =
                Log::recover(files.shared(), ID, options, state, OnDoubt::Peers).expect("has a state");
            let right = next == last + 1 || content.tail == Tail::Whole;
            assert!(right, "entry {next}, files up to {newest}: {:?}", content.tail);
            log.save(hard(next - 1), &[of_bytes(next, 36 << 10)]).expect("saves");
            log.cut_below(next).expect("cuts");
        }
    }
}

/// A start that is killed leaves changes that its successor sees, and that are not on the disk. A
/// cut that is finished then has all of them there.
#[test]
fn a_power_loss_behind_a_killed_start_takes_nothing_that_the_next_one_relied_on() {
    let whole = written(true);
    let damaged = logs(&whole)[1].clone();
    whole.edit(&damaged, |bytes| bytes[5000] ^= 1);
    let place = format!("aside/{}", damaged.replace('/', "-"));
    let mut killed = 0;
    for calls in 0.. {
        let files = recorded(&whole);
        files.fail_after(calls, std::io::ErrorKind::Other);
        let first = open(&files, BOOT, OnDoubt::Peers).map(drop);
        files.heal();
        drop(open(&files, BOOT, OnDoubt::Peers).unwrap_or_else(|fault| panic!("after call {calls}: {fault}")));
        let crashed = files.crash(files.calls(), Kept::Nothing);
        let kept = crashed.contents().get(&place) == Some(&whole.bytes(&damaged));
        assert!(kept, "killed after call {calls}: the damaged file is not aside");
        let (log, content) = open(&crashed, NEXT_BOOT, OnDoubt::Peers).expect("opens");
        check(&log, &content, &crashed, &format!("killed after call {calls}"));
        if first.is_ok() {
            break;
        }
        killed += 1;
    }
    assert!(killed > 20, "{killed}");
}

/// With nothing that it could begin with, the log is refused.
#[test]
fn without_a_state_a_log_that_is_gone_is_refused() {
    let files = written(true);
    files.edit(&logs(&files)[0], |bytes| bytes[..4096].fill(0));
    let fault = Log::recover(files.shared(), ID, options(BOOT), None, OnDoubt::Peers).expect_err("refused");
    assert!(fault.is_damage(), "{fault}");
    let calls = files.copy();
    assert!(Log::recover(calls.shared(), ID, options(BOOT), None, OnDoubt::Keep).is_err() && calls.calls() == 0);
}
