//! Data directories that must not be used: damaged, newer, foreign, locked.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::process::Signal;

use crate::live::{Alone, Spec, block_on, http, is_other};
use crate::{contents, same, unchanged};

/// A stopped member with some data.
struct Stopped {
    alone: Alone,
    good: BTreeMap<PathBuf, Vec<u8>>,
}

impl Stopped {
    fn new() -> Stopped {
        let mut alone = Alone::new(&[]);
        block_on(async {
            for n in 0..20 {
                alone.client().put(format!("k{n}"), format!("v{n}")).await.expect("puts");
            }
        });
        alone.member.stop(Signal::TERM);
        let good = contents(&alone.member.spec.dir);
        Stopped { alone, good }
    }

    fn spec(&self) -> &Spec {
        &self.alone.member.spec
    }

    /// The newest file whose path contains this.
    fn file(&self, part: &str) -> PathBuf {
        let found = self.good.keys().rev().find(|path| path.to_string_lossy().contains(part));
        found.unwrap_or_else(|| panic!("no file {part}")).clone()
    }

    /// Starts on a changed file, which must be refused by name and left alone, and puts the
    /// good bytes back.
    #[track_caller]
    fn refuses(&self, part: &str, change: impl FnOnce(&mut Vec<u8>), text: &str) {
        let path = self.file(part);
        let mut bytes = self.good[&path].clone();
        change(&mut bytes);
        assert!(bytes != self.good[&path], "{part}: nothing was changed");
        fs::write(&path, &bytes).expect("writes");
        let before = contents(&self.spec().dir);
        let ended = self.spec().run_to_end();
        let name = path.file_name().expect("a name").to_string_lossy();
        assert_eq!(ended.code, Some(1), "{part}: {ended:?}");
        assert!(ended.stderr.contains(&*name) && ended.stderr.contains(text), "{part}, {text}: {}", ended.stderr);
        assert!(ended.stderr.contains("at byte"), "{part}: {}", ended.stderr);
        same(&before, &contents(&self.spec().dir));
        fs::write(&path, &self.good[&path]).expect("writes");
    }

    /// The member serves all that was put.
    fn serves(mut self) {
        self.alone.member.respawn();
        self.alone.member.ready();
        block_on(async {
            for n in 0..20 {
                let pair = self.alone.client().get(format!("k{n}")).await.expect("reads").expect("is there");
                assert_eq!(pair.value, format!("v{n}"));
            }
        });
    }
}

/// The page of the last batch of the log.
fn last_page(bytes: &mut [u8]) -> &mut [u8] {
    bytes.chunks_mut(4096).rfind(|page| page.starts_with(b"kvlogbat")).expect("a log")
}

/// Raises the format level behind the magic and makes the checksum at `sum` true again.
fn newer(bytes: &mut [u8], sum: usize) {
    bytes[8..12].copy_from_slice(&9_u32.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..sum]);
    bytes[sum..sum + 4].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn damaged_files_are_refused_by_name_and_left_as_they_are() {
    if is_other() {
        return;
    }
    let stopped = Stopped::new();
    stopped.refuses("/identity", |bytes| bytes[20] ^= 1, "damaged");
    stopped.refuses("/identity", |bytes| bytes.truncate(10), "damaged");
    stopped.refuses("/identity", Vec::clear, "identity");
    // Acknowledged batches in the middle of the log, with others behind them.
    stopped.refuses(".log", |bytes| bytes[8192..12288].fill(0), "damaged");
    stopped.refuses(".log", |bytes| bytes[8192..12288].fill(0xff), "damaged");
    stopped.refuses(".log", |bytes| bytes[..4096].fill(0), "damaged");
    // The last acknowledged batch: nothing behind it says that it was there.
    stopped.refuses(".log", |bytes| last_page(bytes).fill(0), "kvorum utl cut-tail --data-dir");
    stopped.refuses(".log", |bytes| last_page(bytes).fill(0xff), "kvorum utl cut-tail --data-dir");
    stopped.serves();
}

#[test]
fn files_of_a_newer_format_are_refused_by_name_and_left_as_they_are() {
    if is_other() {
        return;
    }
    let stopped = Stopped::new();
    let text = "written in format level 9, this program knows up to 1";
    let identity = |bytes: &mut Vec<u8>| {
        let new = String::from_utf8_lossy(bytes).replace("kvorum 1", "kvorum 9");
        *bytes = new.into_bytes();
    };
    stopped.refuses("/identity", identity, text);
    let manifest = |bytes: &mut Vec<u8>| {
        let sum = bytes.len() - 4;
        newer(bytes, sum);
    };
    // The log and manifests have levels of their own.
    let second = text.replace("up to 1", "up to 2");
    stopped.refuses(".log", |bytes| newer(bytes, LOG_HEADER - 4), &second);
    stopped.refuses("/state/manifest-", manifest, &second);
    stopped.refuses("/state/index-", |bytes| newer(bytes, STATE_HEADER - 4), text);
    stopped.refuses("/state/seg-", |bytes| newer(bytes, STATE_HEADER - 4), text);
    stopped.serves();
}

#[test]
fn a_record_that_goes_bad_under_a_member_is_told_once_with_its_place() {
    if is_other() {
        return;
    }
    let mut stopped = Stopped::new();
    stopped.alone.member.respawn();
    stopped.alone.member.ready();
    let path = stopped.file("/state/seg-");
    let bytes = &stopped.good[&path];
    let value = bytes.windows(3).position(|three| three == b"v13").expect("the value is in the segment");
    let file = fs::File::options().write(true).open(&path).expect("opens");
    file.write_all_at(b"w", value as u64).expect("writes");
    block_on(async {
        let client = stopped.alone.client();
        for _ in 0..2 {
            let error = client.get("k13").await.expect_err("a damaged record is not given").to_string();
            assert!(error.contains("at byte") && error.contains("checksum"), "{error}");
        }
        assert_eq!(client.get("k12").await.expect("the others are whole").expect("is there").value, "v12");
    });
    let log = stopped.alone.member.log();
    let told: Vec<&str> = log.lines().filter(|line| line.contains("a record cannot be read from the disk")).collect();
    let [told] = told[..] else { panic!("told once a minute, not {told:?}") };
    let name = format!("state/{}", path.file_name().expect("a name").to_string_lossy());
    let offset = told.split("\"offset\":").nth(1).and_then(|rest| rest.split(',').next()).expect("an offset");
    let offset: usize = offset.parse().expect("a number");
    assert!(told.contains(&name) && told.contains("checksum") && told.contains("kvorum utl verify"), "{told}");
    assert!(offset < value && value < offset + 100, "{offset} is not where the record of byte {value} begins");
    let metrics = http::get(stopped.alone.port(), "/metrics").expect("answers").body;
    assert!(metrics.contains("\nkvorum_record_reads_failed_total 2\n"), "{metrics}");
}

/// Length of the header of a batch in the log, checksum last.
const LOG_HEADER: usize = 160;
/// Length of the header of a file in `state/`, checksum last.
const STATE_HEADER: usize = 44;

#[test]
fn a_flipped_byte_is_healed_or_passed_over_but_never_believed() {
    if is_other() {
        return;
    }
    for (part, offset) in [
        (".log", 20),
        (".log", 8200),
        ("/log/reached", 40),
        ("/log/tip", 40),
        ("/state/manifest-", 30),
        ("/state/index-", 4100),
        ("/state/seg-", 20),
    ] {
        let stopped = Stopped::new();
        let path = stopped.file(part);
        let mut bytes = stopped.good[&path].clone();
        bytes[offset] ^= 1;
        fs::write(&path, &bytes).expect("writes");
        stopped.serves();
    }
}

#[test]
fn files_that_are_missing_are_missed() {
    if is_other() {
        return;
    }
    let stopped = Stopped::new();
    for (part, text) in [("/identity", "identity"), (".log", "there is no log file")] {
        let path = stopped.file(part);
        fs::remove_file(&path).expect("removes");
        let before = contents(&stopped.spec().dir);
        let ended = stopped.spec().run_to_end();
        assert_eq!(ended.code, Some(1), "{part}: {ended:?}");
        assert!(ended.stderr.contains(text), "{part}: {}", ended.stderr);
        unchanged(&before, &stopped.spec().dir);
        fs::write(&path, &stopped.good[&path]).expect("writes");
    }
    stopped.serves();
}

#[test]
fn foreign_directories_are_refused_and_left_as_they_are() {
    if is_other() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (file, text) in [("member/snap/db", "this is a data directory of etcd"), ("notes.txt", "notes.txt")] {
        let spec = Spec::alone(&dir.path().join(text.len().to_string()), &[]);
        let path = spec.dir.join(file);
        fs::create_dir_all(path.parent().expect("a directory")).expect("makes");
        fs::write(&path, "something").expect("writes");
        let before = contents(&spec.dir);
        let ended = spec.run_to_end();
        assert_eq!(ended.code, Some(1), "{file}: {ended:?}");
        assert!(ended.stderr.contains(text), "{file}: {}", ended.stderr);
        unchanged(&before, &spec.dir);
    }
}

#[test]
fn a_directory_that_is_a_file_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let spec = Spec::alone(dir.path(), &[]);
    fs::write(&spec.dir, "a file").expect("writes");
    let ended = spec.run_to_end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("not a directory"), "{}", ended.stderr);
    assert_eq!(fs::read(&spec.dir).expect("reads"), b"a file");
}

#[test]
fn a_directory_in_use_is_refused_and_its_owner_goes_on() {
    if is_other() {
        // It waits for the lock.
        return;
    }
    let alone = Alone::new(&[]);
    let mut second = Spec::alone(alone.member.spec.dir.parent().expect("a directory"), &[]);
    second.dir.clone_from(&alone.member.spec.dir);
    let ended = second.run_to_end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let dir = second.dir.to_string_lossy().into_owned();
    assert!(ended.stderr.contains("another process is using this data directory"), "{}", ended.stderr);
    assert!(ended.stderr.contains(&dir), "{}", ended.stderr);
    block_on(async { alone.client().put("a", "x").await.expect("goes on") });
}

#[test]
fn directories_of_another_cluster_do_not_mix() {
    if is_other() {
        return;
    }
    // The files of one member under the identity of another.
    let (one, two) = (Stopped::new(), Stopped::new());
    let path = one.file("/identity");
    fs::write(&path, &two.good[&two.file("/identity")]).expect("writes");
    let before = contents(&one.spec().dir);
    let ended = one.spec().run_to_end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("not ours"), "{}", ended.stderr);
    unchanged(&before, &one.spec().dir);
}
