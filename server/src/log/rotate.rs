//! A log file that begins anew before it is too large (`--enable-log-rotation`), with the names and
//! the settings of lumberjack, which etcd uses: `name-2026-08-20T15-13-15.000.log` stands beside
//! `name.log`, as `.gz` if that is wanted, and goes when there are too many or when it is too old.

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::{Timestamp, tz::TimeZone};
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// What lumberjack takes for a size of 0. MiB.
const DEFAULT_MIB: u64 = 100;
const TIME: &str = "%Y-%m-%dT%H-%M-%S.%3f";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// `--log-rotation-config-json`. What it does not name is 0 or false.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Rules {
    /// MiB of a file; 0: 100.
    maxsize: i64,
    /// Days that an old file is kept; 0: for ever.
    maxage: i64,
    /// Old files kept; 0: all.
    maxbackups: i64,
    /// Names are of local time, not of UTC.
    localtime: bool,
    /// Old files are compressed.
    compress: bool,
}

/// Why there is no rotation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadRules {
    /// It is no JSON.
    #[error("improperly formatted log rotation config: {0}")]
    Format(String),
    /// A field has another type.
    #[error("invalid log rotation config: {0}")]
    Field(String),
    /// There is no file, or there is more than one.
    #[error("--log-outputs requires a single file path when --log-rotate-config-json is defined")]
    Outputs,
}

impl Rules {
    /// # Errors
    /// Etcd refuses it, too.
    pub(crate) fn new(json: &str, outputs: &[String]) -> Result<Rules, BadRules> {
        let files = outputs.iter().filter(|output| !is_stream(output)).count();
        if files > 1 || (files == 0 && outputs.len() == 1) {
            return Err(BadRules::Outputs);
        }
        serde_json::from_str(json).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => BadRules::Field(error.to_string()),
            _ => BadRules::Format(error.to_string()),
        })
    }

    fn most_bytes(&self) -> u64 {
        let mib = u64::try_from(self.maxsize).ok().filter(|mib| *mib > 0).unwrap_or(DEFAULT_MIB);
        mib.saturating_mul(1 << 20)
    }
}

/// It is no file.
pub(super) fn is_stream(output: &str) -> bool {
    matches!(output, "default" | "stderr" | "stdout" | "systemd/journal")
}

/// For those who may read what is in the log: keys and addresses.
pub(super) fn open(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).mode(0o600).open(path)
}

/// A file that is rotated.
pub(super) struct Rotating {
    path: PathBuf,
    rules: Rules,
    file: File,
    bytes: u64,
    /// Old files are looked after by one thread at a time.
    cleaning: Arc<Mutex<()>>,
}

impl Rotating {
    pub(super) fn new(path: &Path, rules: Rules) -> io::Result<Rotating> {
        let file = open(path)?;
        let bytes = file.metadata()?.len();
        let rotating = Rotating { path: path.to_path_buf(), rules, file, bytes, cleaning: Arc::default() };
        // What a life before left.
        rotating.clean_aside();
        Ok(rotating)
    }

    pub(super) fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.bytes > 0 && self.bytes + line.len() as u64 > self.rules.most_bytes() {
            // If there is no other file to be had, the lines go on where they are.
            if let Ok(file) = self.begin_anew() {
                (self.file, self.bytes) = (file, 0);
                self.clean_aside();
            }
        }
        self.file.write_all(line)?;
        self.bytes += line.len() as u64;
        Ok(())
    }

    fn begin_anew(&self) -> io::Result<File> {
        let mut aside = self.named(&now(self.rules.localtime));
        // Two in one millisecond: none may take the other's place.
        for again in 1.. {
            if !aside.exists() {
                break;
            }
            aside = self.named(&format!("{}-{again}", now(self.rules.localtime)));
        }
        fs::rename(&self.path, aside)?;
        open(&self.path)
    }

    fn named(&self, time: &str) -> PathBuf {
        let (stem, ending) = parts(&self.path);
        self.path.with_file_name(format!("{stem}-{time}{ending}"))
    }

    /// Compressing takes a while, and a line must not wait for it.
    fn clean_aside(&self) {
        let (path, rules, cleaning) = (self.path.clone(), self.rules, self.cleaning.clone());
        let work = move || {
            let _alone = cleaning.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            // What could not be removed or compressed is tried again at the next rotation.
            let _ = clean(&path, &rules, SystemTime::now());
        };
        let _ = std::thread::Builder::new().name("log-rotation".into()).spawn(work);
    }
}

fn now(local: bool) -> String {
    let zone = if local { TimeZone::system() } else { TimeZone::UTC };
    zone.to_datetime(Timestamp::now()).strftime(TIME).to_string()
}

/// Name without its ending, and the ending with its dot.
fn parts(path: &Path) -> (String, String) {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match name.rfind('.') {
        Some(dot) => (name[..dot].to_string(), name[dot..].to_string()),
        None => (name, String::new()),
    }
}

/// Files that were rotated away, the newest first.
fn old_files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (stem, ending) = parts(path);
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let plain = name.strip_suffix(".gz").unwrap_or(&name);
        let time = plain.strip_prefix(&format!("{stem}-")).and_then(|rest| rest.strip_suffix(&ending));
        // Others may have names that begin alike.
        if time.is_some_and(|time| time.get(..19).is_some_and(is_time)) {
            found.push(folder.join(name));
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    Ok(found)
}

fn is_time(text: &str) -> bool {
    jiff::civil::DateTime::strptime("%Y-%m-%dT%H-%M-%S", text).is_ok()
}

fn clean(path: &Path, rules: &Rules, now: SystemTime) -> io::Result<()> {
    let most = usize::try_from(rules.maxbackups).ok().filter(|most| *most > 0).unwrap_or(usize::MAX);
    let days = u32::try_from(rules.maxage).ok().filter(|days| *days > 0);
    for (place, old) in old_files(path)?.into_iter().enumerate() {
        let age = fs::metadata(&old)?.modified().ok().and_then(|changed| now.duration_since(changed).ok());
        let too_old = days.is_some_and(|days| age.is_some_and(|age| age > DAY * days));
        if place >= most || too_old {
            fs::remove_file(&old)?;
        } else if rules.compress && old.extension().is_none_or(|ending| ending != "gz") {
            compress(&old)?;
        }
    }
    Ok(())
}

/// The compressed file is as old as the plain one, and takes its place when it is whole.
fn compress(plain: &Path) -> io::Result<()> {
    let mut name = plain.as_os_str().to_owned();
    name.push(".gz");
    let (packed, unfinished) = (PathBuf::from(&name), plain.with_extension("part"));
    let mut from = File::open(plain)?;
    let into = File::options().create(true).write(true).truncate(true).mode(0o600).open(&unfinished)?;
    let mut encoder = GzEncoder::new(into, Compression::default());
    io::copy(&mut from, &mut encoder)?;
    let file = encoder.finish()?;
    file.set_modified(from.metadata()?.modified()?)?;
    fs::rename(unfinished, packed)?;
    fs::remove_file(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn outputs(all: &[&str]) -> Vec<String> {
        all.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rules_are_etcds() {
        let one = outputs(&["/x.log", "stderr"]);
        let rules = Rules::new(r#"{"maxsize": 3, "compress": true, "other": 1}"#, &one).expect("good");
        assert_eq!((rules.maxsize, rules.compress, rules.most_bytes()), (3, true, 3 << 20));
        assert_eq!(Rules::new("{}", &one).expect("good").most_bytes(), 100 << 20);
        assert!(matches!(Rules::new("{bad", &one), Err(BadRules::Format(_))));
        assert!(matches!(Rules::new(r#"{"maxsize": "x"}"#, &one), Err(BadRules::Field(_))));
        for wrong in [&["default"][..], &["a", "b"]] {
            assert_eq!(Rules::new("{}", &outputs(wrong)), Err(BadRules::Outputs), "{wrong:?}");
        }
        // etcd takes this, and rotates nothing.
        assert!(Rules::new("{}", &outputs(&["stderr", "stdout"])).is_ok());
    }

    #[test]
    fn a_full_file_steps_aside_and_no_line_is_lost_or_cut() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("member.log");
        let rules = Rules { maxsize: 1, ..Rules::default() };
        let mut log = Rotating::new(&path, rules).expect("opens");
        let line = [&[b'x'; 400 << 10][..], b"\n"].concat();
        for _ in 0..6 {
            log.write(&line).expect("writes");
        }
        let old = old_files(&path).expect("lists");
        assert_eq!(old.len(), 2, "two lines in each: {old:?}");
        for file in old.iter().chain([&path]) {
            assert_eq!(fs::metadata(file).expect("is there").len(), 2 * line.len() as u64, "{file:?}");
        }
        // A life that begins in a file goes on with it.
        drop(log);
        let mut log = Rotating::new(&path, rules).expect("opens");
        log.write(&line).expect("writes");
        assert_eq!(old_files(&path).expect("lists").len(), 3);
    }

    #[test]
    fn old_files_go_by_number_and_by_age_and_others_stay() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("m.log");
        let names = [
            "m-2026-01-03T00-00-00.000.log",
            "m-2026-01-02T00-00-00.000.log.gz",
            "m-2026-01-01T00-00-00.000.log",
            "m-other.log",
            "m-2026-01-01T00-00-00.000.txt",
        ];
        for name in names {
            fs::write(dir.path().join(name), name).expect("writes");
        }
        let left = || {
            let names = fs::read_dir(dir.path()).expect("lists").map(|entry| entry.expect("reads").file_name());
            let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
            names.sort();
            names
        };
        let now = SystemTime::now();
        clean(&path, &Rules { maxbackups: 2, compress: true, ..Rules::default() }, now).expect("cleans");
        let packed = "m-2026-01-03T00-00-00.000.log.gz";
        assert_eq!(left(), [names[4], names[1], packed, names[3]]);
        let mut text = String::new();
        let file = File::open(dir.path().join(packed)).expect("opens");
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("unpacks");
        assert_eq!(text, names[0]);
        clean(&path, &Rules { maxage: 1, ..Rules::default() }, now + 2 * DAY).expect("cleans");
        assert_eq!(left(), [names[4], names[3]]);
    }
}
