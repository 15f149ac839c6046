//! The end of the log: torn or lost, told apart by evidence, and never by the member alone.

use bytes::Bytes;
use consensus::{Entry, EntryKind, HardState, Position};
use disk::{Boot, Doubt, Fault, Identity, Log, LogContent, LogOptions, OnDoubt, Tail, doubt};
use std::collections::BTreeMap;
use testkit::Dice;
use testkit::files::{Kept, MemFiles};

const ID: Identity = Identity { cluster: 0xc1, member: 0xa1 };
const BOOT: Option<Boot> = Some([1; 16]);
const NEXT_BOOT: Option<Boot> = Some([2; 16]);
const BOOTS: [Option<Boot>; 3] = [BOOT, NEXT_BOOT, None];
const SEGMENT: u64 = 64 << 10;

fn options(boot: Option<Boot>) -> LogOptions {
    LogOptions { segment_bytes: SEGMENT, boot, salt: 0x5a17 }
}

fn entry(index: u64, term: u64, len: usize) -> Entry {
    // No run of zeros: what is zero was not written.
    let data: Vec<u8> = (0..len).map(|i| (index * 31 + term * 7 + i as u64) as u8 | 1).collect();
    Entry { index, term, kind: EntryKind::Normal, data: Bytes::from(data) }
}

fn hard(term: u64, vote: u64, commit: u64) -> HardState {
    HardState { term, vote, commit }
}

fn recover(files: &MemFiles, boot: Option<Boot>, doubt: OnDoubt) -> Result<(Log, LogContent), Fault> {
    Log::recover(files.shared(), ID, options(boot), None, doubt)
}

fn keep(files: &MemFiles, boot: Option<Boot>) -> LogContent {
    recover(files, boot, OnDoubt::Keep).expect("opens").1
}

/// The file of the log with the highest number.
fn newest(files: &MemFiles) -> String {
    files.files().into_iter().rfind(|path| path.ends_with(".log")).expect("a log file")
}

/// A log of three batches and one more, of `lens`, which is entries 3, 4, … of term 2 with a vote.
struct Written {
    files: MemFiles,
    log: Log,
    path: String,
    /// Where the last batch begins and ends.
    last: (usize, usize),
    /// Index of the last entry.
    index: u64,
    /// The log file before the last batch.
    before: Vec<u8>,
}

fn written(recycled: bool, lens: &[usize]) -> Written {
    let files = MemFiles::new();
    let mut log = Log::create(files.shared(), ID, options(BOOT), Position::default()).expect("an empty disk");
    let mut index = 0;
    let mut save = |log: &mut Log, term, vote, lens: &[usize]| {
        let entries: Vec<Entry> = lens.iter().zip(index + 1..).map(|(len, index)| entry(index, term, *len)).collect();
        index += lens.len() as u64;
        log.save(hard(term, vote, index - lens.len() as u64), &entries).expect("saves");
        index
    };
    if recycled {
        for _ in 0..40 {
            let index = save(&mut log, 1, 0xa1, &[3000]);
            log.cut_below(index.saturating_sub(1)).expect("cuts");
        }
    }
    save(&mut log, 1, 0xa1, &[100]);
    save(&mut log, 1, 0xa1, &[3000]);
    let path = newest(&files);
    let before = files.bytes(&path);
    let index = save(&mut log, 2, 0xa3, lens);
    let after = files.bytes(&path);
    assert_eq!(newest(&files), path);
    let at = before.iter().zip(&after).position(|(a, b)| a != b).expect("something was written") / 4096 * 4096;
    let used = 2 * 160 + lens.len() * 28 + lens.iter().sum::<usize>();
    let last = (at, at + used.next_multiple_of(4096));
    assert!(last.1 + 4096 <= before.len(), "{last:?}");
    Written { files, log, path, last, index, before }
}

const SHAPES: [&[usize]; 3] = [&[200], &[6000, 1, 3000], &[1500, 0, 1500, 1500, 9000]];

/// Damages of the last batch alone, each with a name: flips, zeroed sectors and pages, garbage.
fn damages(last: (usize, usize)) -> Vec<(String, usize, usize, fn(u8, usize) -> u8)> {
    let mut all: Vec<(String, usize, usize, fn(u8, usize) -> u8)> = Vec::new();
    for at in (last.0..last.1).step_by(37).chain(last.0..last.0 + 220).chain(last.1 - 170..last.1) {
        all.push((format!("bit of byte {at} flipped"), at, 1, |byte, at| byte ^ 1 << (at % 8)));
    }
    for at in (last.0..last.1).step_by(512) {
        all.push((format!("sector at {at} zeroed"), at, 512, |_, _| 0));
        all.push((format!("sector at {at} is garbage"), at, 512, |byte, at| byte ^ at as u8 | 8));
    }
    for at in (last.0..last.1).step_by(4096) {
        all.push((format!("page at {at} zeroed"), at, 4096, |_, _| 0));
        all.push((format!("page at {at} is garbage"), at, 4096, |byte, at| byte ^ at as u8 | 8));
    }
    all
}

/// What may become of a damaged log. `acknowledged`: the last batch was, and `sure` is how that
/// must be seen.
#[derive(Debug, Default)]
struct Verdicts(BTreeMap<&'static str, usize>);

impl Verdicts {
    /// Recovers a damaged copy in `boot`. `torn_may_be`: evidence of a tear is allowed to be
    /// believed.
    fn judge(&mut self, files: &MemFiles, boot: Option<Boot>, index: u64, torn_may_be: bool, what: &str) {
        let damaged = files.contents();
        // A lone member first: it must refuse whatever a member with peers doubts, and change
        // nothing.
        let lone = files.copy();
        let alone = recover(&lone, boot, OnDoubt::Refuse);
        let (log, content) = match recover(files, boot, OnDoubt::Keep) {
            Ok(both) => both,
            Err(fault) => {
                assert!(matches!(&fault, Fault::Damaged { file, .. } if file.starts_with("log/")), "{what}: {fault}");
                assert!(alone.is_err(), "{what}");
                return self.count("refused", files, &damaged, what);
            }
        };
        let lost = log.last().index < index;
        match &content.tail {
            Tail::Doubtful(found) => {
                let Err(Fault::Doubtful { file, offset, promise, .. }) = alone else { panic!("{what}: {content:?}") };
                assert_eq!((file, offset, promise), (found.at.file.clone(), found.at.offset, found.promise), "{what}");
                self.count("in doubt", &lone, &damaged, what);
                assert!(
                    !lost || found.promise.is_none_or(|promise| promise >= Position { index, term: 2 }),
                    "{what}: {found:?}"
                );
            }
            Tail::Torn(_) => {
                assert!(torn_may_be, "{what}: acknowledged, and taken for a torn tail: {content:?}");
                *self.0.entry("torn").or_default() += 1;
            }
            Tail::Damaged(_) => panic!("{what}: only what is asked of the peers is cut below the proven end"),
            Tail::Whole => {
                assert!(!lost, "{what}: an acknowledged entry is missing without a word: {content:?}");
                *self.0.entry("whole").or_default() += 1;
            }
        }
        // The vote of the last batch is known from either of its headers, or from the files beside
        // the log.
        if boot == BOOT {
            assert_eq!((log.hard().term, log.hard().vote), (2, 0xa3), "{what}");
        }
        assert_eq!(doubt::find(files, ID).expect("reads"), content.doubt, "{what}");
        assert_eq!(content.doubt.is_some(), content.tail != Tail::Whole, "{what}");
    }

    fn count(&mut self, verdict: &'static str, files: &MemFiles, before: &BTreeMap<String, Vec<u8>>, what: &str) {
        assert_eq!((files.calls(), &files.contents()), (0, before), "{what}: a refusal changes nothing");
        *self.0.entry(verdict).or_default() += 1;
    }
}

/// The machine ran on: what was acknowledged is known exactly, so nothing of it is ever taken for a
/// tear.
#[test]
fn in_the_same_boot_no_damage_of_an_acknowledged_batch_goes_unseen() {
    let mut verdicts = Verdicts::default();
    for recycled in [false, true] {
        for lens in SHAPES {
            let Written { files, path, last, index, before, .. } = written(recycled, lens);
            for (what, at, len, change) in damages(last) {
                let copy = files.copy();
                copy.edit(&path, |bytes| {
                    for (at, byte) in bytes.iter_mut().enumerate().skip(at).take(len) {
                        *byte = change(*byte, at);
                    }
                });
                verdicts.judge(&copy, BOOT, index, false, &format!("recycled {recycled}, {lens:?}, {what}"));
            }
            let old = files.copy();
            old.edit(&path, |bytes| *bytes = before.clone());
            verdicts.judge(&old, BOOT, index, false, "an older copy of the file");
            for len in (0..last.1).rev().step_by(1024) {
                let short = files.copy();
                short.edit(&path, |bytes| bytes.truncate(len));
                verdicts.judge(&short, BOOT, index, false, &format!("cut to {len} bytes"));
            }
        }
    }
    for verdict in ["in doubt", "refused", "whole"] {
        assert!(verdicts.0.get(verdict).is_some_and(|count| *count > 10), "{verdicts:?}");
    }
    assert_eq!(verdicts.0.get("torn"), None);
}

/// After a power loss, or from a directory of unknown boot: once the log was idle for a moment, or
/// stopped, or went on in a new file, damage of what was acknowledged is seen whatever it is.
#[test]
fn what_was_acknowledged_before_an_idle_moment_is_never_cut_unseen() {
    let mut verdicts = Verdicts::default();
    for (recycled, lens) in [(false, SHAPES[0]), (true, SHAPES[1]), (false, SHAPES[2])] {
        let Written { files, mut log, path, last, index, before } = written(recycled, lens);
        let busy = files.contents();
        assert!(!log.proven());
        log.prove(index).expect("proves");
        assert!(log.proven());
        let calls = files.calls();
        log.prove(index).expect("there is nothing to prove");
        assert_eq!(files.calls(), calls, "an idle log is left alone");
        // As after a power loss that took what was not flushed.
        disk::Files::remove(&files, "log/tip").expect("there");
        let proof = (last.1, last.1 + 4096);
        for (what, at, len, change) in damages(last).into_iter().chain(damages(proof)) {
            let copy = files.copy();
            copy.edit(&path, |bytes| {
                for (at, byte) in bytes.iter_mut().enumerate().skip(at).take(len) {
                    *byte = change(*byte, at);
                }
            });
            for boot in BOOTS {
                verdicts.judge(&copy.copy(), boot, index, false, &format!("recycled {recycled}, {lens:?}, {what}"));
            }
        }
        for old in [&before, &busy[&path]] {
            let copy = files.copy();
            copy.edit(&path, |bytes| bytes.clone_from(old));
            verdicts.judge(&copy, NEXT_BOOT, index, false, "an older copy of the file");
        }
        let gone = files.copy();
        disk::Files::remove(&gone, &path).expect("there");
        if newest_left(&gone) {
            verdicts.judge(&gone, NEXT_BOOT, index, false, "the newest file is gone");
        }
    }
    for verdict in ["in doubt", "refused", "whole"] {
        assert!(verdicts.0.get(verdict).is_some_and(|count| *count > 10), "{verdicts:?}");
    }
}

/// The last batch, a page, is wholly zero, and the mark of what was acknowledged is not there any
/// more. It may not be taken for a log that ends before it: not by a member with peers, and not by
/// a lone one in the same boot.
#[test]
fn a_last_batch_that_is_wholly_zero_is_no_end() {
    for recycled in [false, true] {
        let Written { files, path, last, .. } = written(recycled, SHAPES[0]);
        for (mark, alone) in [("log/tip", false), ("log/reached", true)] {
            for boot in BOOTS {
                let copy = files.copy();
                copy.edit(&path, |bytes| bytes[last.0..last.1].fill(0));
                if alone {
                    copy.edit("log/tip", |bytes| bytes.fill(0));
                } else {
                    disk::Files::remove(&copy, mark).expect("there");
                }
                let content = keep(&copy, boot);
                assert!(content.doubt.is_some(), "{mark}, recycled {recycled}, boot {boot:?}: {:?}", content.tail);
            }
        }
    }
}

fn newest_left(files: &MemFiles) -> bool {
    files.files().iter().any(|path| path.ends_with(".log"))
}

/// After a power loss, while nothing is proven yet, a single flipped bit looks like no tear.
#[test]
fn a_flipped_bit_is_no_torn_write() {
    for recycled in [false, true] {
        for lens in SHAPES {
            let Written { files, path, last, index, .. } = written(recycled, lens);
            disk::Files::remove(&files, "log/tip").expect("there");
            for at in (last.0..last.1).step_by(29) {
                for boot in BOOTS {
                    let copy = files.copy();
                    copy.edit(&path, |bytes| bytes[at] ^= 1 << (at % 8));
                    Verdicts::default().judge(&copy, boot, index, false, &format!("byte {at} of {lens:?}"));
                }
            }
        }
    }
}

/// The last save as a power loss may leave it: any of its sectors. The batch before is always
/// there. Sectors that still say that nothing follows are proof, in a new file and in a used one.
#[test]
fn a_tear_is_proven_by_its_sectors() {
    let mut tails: BTreeMap<(bool, &str), usize> = BTreeMap::new();
    for recycled in [false, true] {
        for lens in SHAPES {
            let Written { files, path, last, index, before, .. } = written(recycled, lens);
            let after = files.bytes(&path);
            disk::Files::remove(&files, "log/tip").expect("there");
            let mut dice = Dice::new(7);
            for _ in 0..200 {
                let copy = files.copy();
                copy.edit(&path, |bytes| {
                    bytes.clone_from(&before);
                    for at in (last.0..last.1).step_by(512) {
                        if dice.below(2) == 0 {
                            bytes[at..at + 512].copy_from_slice(&after[at..at + 512]);
                        }
                    }
                });
                let content = keep(&copy, NEXT_BOOT);
                assert!(content.last.index == index || content.last.index == index - lens.len() as u64);
                let name = match content.tail {
                    Tail::Whole => "whole",
                    Tail::Torn(_) => "torn",
                    Tail::Doubtful(_) => "doubtful",
                    Tail::Damaged(_) => "damaged",
                };
                *tails.entry((recycled, name)).or_default() += 1;
            }
        }
    }
    for recycled in [false, true] {
        assert!(tails[&(recycled, "torn")] > 300 && !tails.contains_key(&(recycled, "doubtful")), "{tails:?}");
    }
}

/// A killed process leaves the front of a write, in the same boot.
#[test]
fn the_front_of_a_write_is_a_killed_process() {
    for tip in [true, false] {
        for recycled in [false, true] {
            for lens in SHAPES {
                let Written { files, log, path, last, index, before } = written(recycled, lens);
                drop(log);
                let after = files.bytes(&path);
                for upto in (last.0..last.1).step_by(512) {
                    let copy = files.copy();
                    copy.edit(&path, |bytes| {
                        bytes.clone_from(&before);
                        bytes[last.0..upto].copy_from_slice(&after[last.0..upto]);
                    });
                    if tip {
                        // As the process left it that did not get so far.
                        rewind_tip(&copy, &before, &path, recycled, lens);
                    } else {
                        disk::Files::remove(&copy, "log/tip").expect("there");
                    }
                    let content = recover(&copy, BOOT, OnDoubt::Refuse).unwrap_or_else(|fault| {
                        panic!("tip {tip}, recycled {recycled}, {lens:?}, {upto} of {last:?}: {fault}")
                    });
                    let content = content.1;
                    assert!(!matches!(content.tail, Tail::Doubtful(_)));
                    // All but the second copy of its header: that is a whole batch.
                    let whole = content.last.index == index && content.healed.len() == 1;
                    assert!(
                        whole || content.last.index == index - lens.len() as u64,
                        "{upto} of {last:?}: {content:?}"
                    );
                    assert!(whole || upto == last.0 || content.tail.cut().is_some(), "{upto} of {last:?}");
                }
            }
        }
    }
}

/// Puts the `tip` of the life before its last save beside the log.
fn rewind_tip(files: &MemFiles, before: &[u8], path: &str, recycled: bool, lens: &[usize]) {
    let Written { files: same, .. } = written(recycled, lens);
    // The same life is the same bytes; without its last save it ends where `before` does.
    let calls = (0..=same.calls()).rev().find(|calls| {
        let crashed = same.crash(*calls, Kept::Everything);
        crashed.files().contains(&path.to_string())
            && crashed.bytes(path) == before
            && crashed.files().contains(&"log/tip".to_string())
    });
    let tip = same.crash(calls.expect("it was so once"), Kept::Everything).bytes("log/tip");
    files.edit("log/tip", |bytes| *bytes = tip);
}

#[test]
fn a_doubt_stays_until_it_is_cleared() {
    let Written { files, path, last, index, log, .. } = written(false, SHAPES[1]);
    drop(log);
    files.edit(&path, |bytes| bytes[last.0 + 300] ^= 1);
    let (mut log, content) = recover(&files, NEXT_BOOT, OnDoubt::Keep).expect("opens");
    let Some(Doubt { promise, proven_tear, .. }) = content.doubt.clone() else { panic!("{content:?}") };
    assert_eq!((promise, proven_tear), (Some(Position { index, term: 2 }), false));
    assert_eq!((content.hard.term, content.hard.vote), (2, 0xa3), "its vote is not forgotten");
    let next = log.last().index + 1;
    for index in next..next + 30 {
        log.save(hard(3, 0, content.hard.commit), &[entry(index, 3, 3000)]).expect("saves");
    }
    drop(log);
    for boot in BOOTS {
        let content = keep(&files, boot);
        assert_eq!((&content.tail, content.doubt.as_ref().and_then(|doubt| doubt.promise)), (&Tail::Whole, promise));
        let alone = recover(&files, boot, OnDoubt::Refuse);
        assert!(matches!(alone, Err(Fault::Doubtful { .. })), "a member that is lone now knows no better");
    }
    let unreadable = files.copy();
    unreadable.edit("log/doubt", |bytes| bytes[50] ^= 1);
    let found = keep(&unreadable, BOOT).doubt.expect("a doubt that cannot be read is one");
    assert_eq!((found.promise, found.proven_tear), (None, false));
    assert!(doubt::clear(&files).expect("clears") && !doubt::clear(&files).expect("clears"));
    assert_eq!(keep(&files, BOOT).doubt, None);
    assert!(recover(&files, BOOT, OnDoubt::Refuse).is_ok());
}

/// A crash at any call of a recovery that cuts: the doubt is there before the cut is.
#[test]
fn no_crash_forgets_a_doubt() {
    let Written { files: damaged, path, last, index, .. } = written(false, SHAPES[1]);
    let recording = MemFiles::new();
    disk::Files::make_dir(&recording, "log").expect("makes");
    for (path, bytes) in damaged.contents() {
        let file = disk::Files::open(&recording, &path, disk::How::Create).expect("makes");
        file.write_at(0, &[&bytes]).and_then(|()| file.sync()).expect("writes");
    }
    disk::Files::sync_dir(&recording, "log").expect("flushes");
    recording.edit(&path, |bytes| bytes[last.0 + 300] ^= 1);
    // The flip is not in the history of calls: it is made again on each crashed disk, where the
    // batch still lies.
    let start = recording.calls();
    drop(recover(&recording, NEXT_BOOT, OnDoubt::Keep).expect("opens"));
    for calls in start..=recording.calls() {
        for kept in testkit::files::KEPT {
            let crashed = recording.crash(calls, kept);
            let bytes = crashed.bytes(&path);
            let there = bytes[last.0..last.0 + 160] == damaged.bytes(&path)[last.0..last.0 + 160];
            if there {
                crashed.edit(&path, |bytes| bytes[last.0 + 300] ^= 1);
            }
            let content = keep(&crashed, Some([3; 16]));
            let promise = content.doubt.and_then(|doubt| doubt.promise);
            assert_eq!(promise, Some(Position { index, term: 2 }), "crash after call {calls} with {kept:?}");
            assert_eq!((content.hard.term, content.hard.vote), (2, 0xa3));
        }
    }
}

/// The files beside the log: damaged they are written anew, of a later format they are refused.
#[test]
fn files_beside_the_log_are_nobodys_weak_spot() {
    let Written { files, mut log, index, .. } = written(false, SHAPES[0]);
    log.close(index).expect("stops");
    drop(log);
    for path in ["log/reached", "log/tip"] {
        let bytes = files.bytes(path);
        let used = bytes.iter().rposition(|byte| *byte != 0).expect("not empty") + 1;
        for at in 0..used {
            let copy = files.copy();
            copy.edit(path, |bytes| bytes[at] ^= 1 << (at % 8));
            let content = keep(&copy, BOOT);
            assert_eq!(
                (content.tail, content.last.index, content.healed.len()),
                (Tail::Whole, index, 1),
                "{path} {at}"
            );
            let again = keep(&copy, BOOT);
            assert_eq!((again.tail, again.healed.len()), (Tail::Whole, 0), "{path} {at}");
        }
        let newer = files.copy();
        newer.edit(path, |bytes| {
            bytes[8] = 9;
            let len = 32 + u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")) as usize;
            let crc = crc32c::crc32c(&bytes[..len]);
            bytes[len..len + 4].copy_from_slice(&crc.to_le_bytes());
        });
        let fault = recover(&newer, BOOT, OnDoubt::Keep).expect_err("refused").to_string();
        assert_eq!(fault, format!("{path} at byte 0: written in format level 9, this program knows up to 1"));
        assert_eq!(newer.calls(), 0);
        let gone = files.copy();
        disk::Files::remove(&gone, path).expect("there");
        assert_eq!(keep(&gone, BOOT).tail, Tail::Whole, "a directory of before has none");
    }
}

/// A new file is known beside the log before anybody is told of its first batch.
#[test]
fn a_newest_file_that_is_gone_is_missed() {
    let files = MemFiles::new();
    let mut log = Log::create(files.shared(), ID, options(BOOT), Position::default()).expect("an empty disk");
    for index in 1..=60 {
        log.save(hard(1, 0xa1, index - 1), &[entry(index, 1, 3000)]).expect("saves");
    }
    disk::Files::remove(&files, "log/tip").expect("there");
    let mut files = files.copy();
    for left in (1..3).rev() {
        let path = newest(&files);
        disk::Files::remove(&files, &path).expect("there");
        files = files.copy();
        let before = files.contents();
        let Err(Fault::Doubtful { file, promise, .. }) = recover(&files, NEXT_BOOT, OnDoubt::Refuse) else {
            panic!("{path} is gone, {left} files are left")
        };
        assert_eq!((file, files.contents()), (newest(&files), before));
        assert!(promise.is_some_and(|at| at.index > 20 && at.term == 1), "{promise:?}");
        let content = keep(&files.copy(), NEXT_BOOT);
        assert!(matches!(content.tail, Tail::Doubtful(_)), "{content:?}");
    }
}

/// A checkpoint's entries went through the log: one that ends below it is missing its end.
#[test]
fn a_log_below_its_checkpoint_is_missing_its_end() {
    let Written { files, log, index, .. } = written(false, SHAPES[0]);
    drop(log);
    let open = |files: &MemFiles, boot, state, doubt| {
        Log::recover(files.shared(), ID, options(boot), Some(state), doubt).map(|(_, content)| content)
    };
    for (index, term, missing) in [(index, 2, false), (index - 1, 1, false), (index, 1, true), (index + 1, 2, true)] {
        let state = Position { index, term };
        let alone = open(&files.copy(), NEXT_BOOT, state, OnDoubt::Refuse);
        assert_eq!(matches!(alone, Err(Fault::Doubtful { .. })), missing, "{state:?}: {alone:?}");
        let content = open(&files.copy(), NEXT_BOOT, state, OnDoubt::Keep).expect("opens");
        assert_eq!(content.doubt.map(|doubt| doubt.promise), missing.then_some(None), "{state:?}");
        // The machine ran on, and `tip` says that the log is all there is. It may be as old as the
        // log. An install that came to the state's end alone is known as such: its start gives no
        // state here.
        let content = open(&files.copy(), BOOT, state, OnDoubt::Keep).expect("opens");
        assert_eq!(content.doubt.map(|doubt| doubt.sure), missing.then_some(true), "{state:?}");
    }
}

#[test]
fn the_boot_is_read_as_linux_tells_it() {
    let text = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0\n";
    let boot = [0x0f, 0x1e, 0x2d, 0x3c, 0x4b, 0x5a, 0x69, 0x78, 0x87, 0x96, 0xa5, 0xb4, 0xc3, 0xd2, 0xe1, 0xf0];
    assert_eq!(disk::parse_boot(text), Some(boot));
    for wrong in ["", "0f1e2d3c", &text[..34], "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1fg", "é"] {
        assert_eq!(disk::parse_boot(wrong), None, "{wrong}");
    }
}
