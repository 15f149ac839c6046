//! Lines of case files, what a program says to them, and what of it differs
//! from run to run. The language is told of in `stock.rs`.

// Not every test uses everything.
#![allow(dead_code)]

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{Read, Write},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How long a command may take, and a patient one until it is done.
const LIMIT: Duration = Duration::from_secs(60);

/// One line of a case file.
#[derive(Clone, Debug, Default)]
pub struct Case {
    /// As it stands there.
    pub text: String,
    words: Vec<OsString>,
    input: Vec<u8>,
    env: Vec<(String, String)>,
    keep: Option<String>,
    /// Not for our own server.
    pub waits: bool,
    help: bool,
    /// Lines come in any order.
    unordered: bool,
    /// Said again until it is done.
    patient: bool,
    /// Not a command: something that the test does.
    pub deed: Option<String>,
}

pub fn parse(line: &str) -> Case {
    let mut rest = line.trim();
    let mut case = Case { text: rest.to_owned(), ..Case::default() };
    if let Some(deed) = rest.strip_prefix("% ") {
        case.deed = Some(deed.to_owned());
        return case;
    }
    loop {
        if let Some(after) = rest.strip_prefix("! ") {
            (case.waits, rest) = (true, after);
        } else if let Some(after) = rest.strip_prefix("~ ") {
            (case.help, rest) = (true, after);
        } else if let Some(after) = rest.strip_prefix("= ") {
            (case.unordered, rest) = (true, after);
        } else if let Some(after) = rest.strip_prefix("* ") {
            (case.patient, rest) = (true, after);
        } else if rest.starts_with('@') {
            let (pair, after) = rest[1..].split_once(' ').expect("@NAME=value words");
            let (name, value) = pair.split_once('=').expect("@NAME=value");
            case.env.push((name.to_owned(), value.to_owned()));
            rest = after;
        } else if rest.starts_with('$') && rest.contains(" = ") {
            let (name, after) = rest.split_once(" = ").expect("looked");
            case.keep = Some(name.to_owned());
            rest = after;
        } else {
            break;
        }
    }
    if let Some((words, input)) = rest.split_once(" < ") {
        case.input = raw(input);
        rest = words;
    }
    case.words = shell_words(rest).iter().map(|word| OsString::from_vec(raw(word))).collect();
    case
}

/// The bytes of a text in which `\xff` is one of them, `\n` ends a line and
/// `\\` is a backslash.
fn raw(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        bytes.extend_from_slice(before.as_bytes());
        let taken = match after.as_bytes().first() {
            Some(b'x') => {
                bytes.push(u8::from_str_radix(&after[1..3], 16).expect("two digits behind x"));
                3
            }
            Some(b'n') => {
                bytes.push(b'\n');
                1
            }
            Some(b'\\') => {
                bytes.push(b'\\');
                1
            }
            _ => {
                bytes.push(b'\\');
                0
            }
        };
        rest = &after[taken..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// What a command said, without what differs from run to run.
#[derive(Debug, PartialEq, Eq)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// A program under test, where its requests go, and what it has said.
pub struct Run {
    program: PathBuf,
    endpoints: String,
    /// Texts of this run alone, and what stands for them.
    masks: Vec<(String, String)>,
    /// Where `%FILE%` lies.
    folder: tempfile::TempDir,
    /// Names of the case file and what they stand for.
    pub kept: BTreeMap<String, String>,
}

impl Run {
    /// Of a server on loopback.
    pub fn on_port(program: &Path, port: u16) -> Run {
        let masks = vec![(port.to_string(), "PORT".to_owned())];
        let kept = BTreeMap::from([("$PORT".to_owned(), port.to_string())]);
        Run { masks, kept, ..Run::at(program, &format!("127.0.0.1:{port}")) }
    }

    /// Of these endpoints.
    pub fn at(program: &Path, endpoints: &str) -> Run {
        let folder = tempfile::tempdir().expect("a folder for files");
        let (program, endpoints) = (program.to_owned(), endpoints.to_owned());
        Run { program, endpoints, masks: Vec::new(), folder, kept: BTreeMap::new() }
    }

    /// What the program says to a case. A patient one is said again until it is
    /// done, or for some time.
    pub fn say(&mut self, case: &Case) -> Said {
        let deadline = Instant::now() + LIMIT;
        loop {
            let said = self.say_once(case);
            if !case.patient || said.code == Some(0) || Instant::now() > deadline {
                return said;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn say_once(&mut self, case: &Case) -> Said {
        let file = self.folder.path().join("file").to_string_lossy().into_owned();
        let words: Vec<OsString> = case.words.iter().map(|word| self.named(word, &file)).collect();
        let output = self.output(case, &words);
        if words.iter().any(|w| w == "save") {
            let _ = std::fs::remove_file(&file);
        }
        let protobuf = words.iter().any(|w| w == "protobuf") && output.status.success() && case.unordered;
        let out = if protobuf { message(&output.stdout, 0).unwrap_or_default() } else { visible(&output.stdout) };
        if let Some(name) = &case.keep {
            self.kept.insert(name.clone(), kept_value(&out));
        }
        let err = visible(&output.stderr);
        // Lines of the client's log are for people; only that there was a fatal one
        // and a warning of the environment matters.
        let err = err.lines().filter(|l| !l.starts_with("stty: "));
        let err = err.filter(|l| !l.starts_with("{\"level\":\"warn\"") || l.contains("environment variable"));
        let err: String = err.map(|l| masked_log(l) + "\n").collect();
        let (out, err) = (self.mask_member(&out, &file), self.mask_member(&err, &file));
        let (out, err) = if case.help {
            (skeleton(&out), skeleton(&err))
        } else {
            (masked(&out, &self.kept), masked(&err, &self.kept))
        };
        let (out, err) = if case.unordered { (sorted(&out), sorted(&err)) } else { (out, err) };
        Said { code: output.status.code(), out, err }
    }

    fn output(&self, case: &Case, words: &[OsString]) -> Output {
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ETCDCTL_") {
                command.env_remove(name);
            }
        }
        let named = |w: &OsString| w.to_string_lossy().starts_with("--endpoints");
        if !case.env.iter().any(|(name, _)| name == "ETCDCTL_ENDPOINTS") && !words.iter().any(named) {
            command.env("ETCDCTL_ENDPOINTS", &self.endpoints);
        }
        let mut child = command
            .args(words)
            .envs(case.env.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut input = child.stdin.take().expect("piped");
        // A program that does not read its input closes it: no failure of ours.
        let _ = input.write_all(&case.input);
        drop(input);
        finished(child)
    }

    /// A word with the values of its names.
    fn named(&self, word: &OsString, file: &str) -> OsString {
        let Some(text) = word.to_str() else {
            // Names are for text; a file may have any name.
            let bytes = word.as_bytes();
            let ours = bytes.strip_prefix(b"%FILE%").map(|rest| [file.as_bytes(), rest].concat());
            return OsString::from_vec(ours.unwrap_or_else(|| bytes.to_vec()));
        };
        let text = text.replace("%FILE%", file);
        self.kept.iter().fold(text, |text, (name, value)| text.replace(name, value)).into()
    }

    /// What is a member's own: its port, its sizes, its times.
    fn mask_member(&self, text: &str, file: &str) -> String {
        let text = self
            .masks
            .iter()
            .fold(text.replace(file, "FILE"), |text, (own, name)| testkit::masks::alone(&text, own, name));
        let mut masked: String = text.lines().map(|line| mask_times(line) + "\n").collect();
        for name in [
            "raftIndex",
            "raftTerm",
            "raftAppliedIndex",
            "dbSize",
            "dbSizeInUse",
            "hash",
            "\"RaftIndex\" : ",
            "\"RaftAppliedIndex\" : ",
            "\"DBSize\" : ",
            "\"DBSizeInUse\" : ",
        ] {
            masked = mask_number(&masked, name);
        }
        masked
    }
}

/// What a program leaves behind. One that does not end is killed.
fn finished(mut child: Child) -> Output {
    let (out, err) = (gathered(child.stdout.take()), gathered(child.stderr.take()));
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().expect("it can be asked") {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let text = |reader: JoinHandle<Vec<u8>>| reader.join().expect("a reader does not fail");
    Output { status, stdout: text(out), stderr: text(err) }
}

fn gathered(from: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    let mut from = from.expect("piped");
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        bytes
    })
}

/// Of a line of the log: level, message and variable.
fn masked_log(line: &str) -> String {
    if !line.starts_with("{\"level\"") {
        return line.to_owned();
    }
    let field = |name: &str| {
        let start = line.find(&format!("\"{name}\":\""))? + name.len() + 4;
        line[start..].split("\",\"").next().map(|value| value.trim_end_matches("\"}").to_owned())
    };
    [field("level"), field("msg"), field("environment-variable")].into_iter().flatten().collect::<Vec<_>>().join(" | ")
}

/// Ids, ports and remaining times become the same in every run.
pub fn masked(text: &str, kept: &BTreeMap<String, String>) -> String {
    let mut text = kept.iter().fold(text.to_owned(), |t, (name, value)| {
        let decimal = u64::from_str_radix(value, 16).map_or_else(|_| value.clone(), |id| id.to_string());
        // Some lines make room for sixteen digits, on the left; columns of a table do on the right.
        let cell = format!("│ {value:<16} │");
        let t = t.replace(&cell, &format!("│ {name} │"));
        let t = testkit::masks::alone(&t, &format!("{value:>16}"), name);
        testkit::masks::alone(&testkit::masks::alone(&t, value, name), &decimal, name)
    });
    for name in ["cluster_id", "member_id", "raft_term", "ID", "\"ClusterID\" : ", "\"MemberID\" : ", "\"RaftTerm\" : "]
    {
        text = mask_number(&text, name);
    }
    text.lines().map(|line| mask_hex(line) + "\n").collect()
}

/// Words that are a time, a size or a share, behind `took` and in columns.
fn mask_times(line: &str) -> String {
    let is_time = |w: &str| w.starts_with(|c: char| c.is_ascii_digit()) && w.trim_end_matches('.').ends_with('s');
    let word = |w: &str| {
        let bare = w.trim_end_matches([',', '.']);
        let masks = is_time(w) || bare.ends_with('%') && bare.len() < 5;
        if masks { format!("#{}", if w.ends_with(',') { "," } else { "" }) } else { w.to_owned() }
    };
    let mut words: Vec<String> = line.split(' ').map(word).collect();
    for at in 1..words.len() {
        if words[at].starts_with("kB") {
            words[at - 1] = "#".to_owned();
        }
    }
    let mut columns: Vec<String> = words.join(" ").split(", ").map(str::to_owned).collect();
    if line.starts_with('│') {
        return mask_row(line);
    }
    // A status: term and indices.
    if columns.len() == 16 {
        columns[10..13].fill("#".to_owned());
    }
    let line = columns.join(", ");
    // In JSON, times are texts.
    let mut pieces = line.split("\"took\":\"");
    let mut masked = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        masked += &format!("\"took\":#{}", piece.split_once('"').map_or("", |(_, rest)| rest));
    }
    masked
}

/// Of the row of a status in a table: sizes, term and indices.
fn mask_row(line: &str) -> String {
    let mut cells: Vec<String> = line.split('│').map(str::to_owned).collect();
    if cells.len() == 18 && !line.contains("ENDPOINT") {
        for at in [5, 6, 7, 11, 12, 13] {
            cells[at] = format!("{:>width$} ", "#", width = cells[at].chars().count() - 1);
        }
    }
    cells.join("│")
}

/// A number behind a name of JSON or of a line.
fn mask_number(text: &str, name: &str) -> String {
    let before = if name.contains(" : ") { name.to_owned() } else { format!("\"{name}\":") };
    let mut pieces = text.split(before.as_str());
    let mut masked = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let rest = piece.trim_start_matches(|c: char| c.is_ascii_hexdigit() || c == '"');
        masked += &format!("{before}#{rest}");
    }
    masked
}

/// So many digits in a row are an id, in hexadecimal or decimal digits.
fn mask_hex(line: &str) -> String {
    let mut masked = String::new();
    let mut run = String::new();
    for c in line.chars().chain(['\n']) {
        if c.is_ascii_hexdigit() {
            run.push(c);
            continue;
        }
        // One id of a million has fewer than eleven.
        if run.len() >= 11 {
            // A shorter id is padded with blanks.
            let padded = " ".repeat(1 + 16_usize.saturating_sub(run.len()));
            if masked.ends_with(&padded) {
                masked.truncate(masked.len() - padded.len() + 1);
            }
            masked.push('#')
        } else {
            masked.push_str(&run)
        }
        run.clear();
        if c != '\n' {
            masked.push(c);
        }
    }
    masked
}

/// Of a help page: headings, usage lines, names of commands, names, types and
/// defaults of flags. The descriptions are our own.
pub fn skeleton(text: &str) -> String {
    let mut lines = Vec::new();
    let (mut inside, mut examples) = (false, false);
    for line in text.lines() {
        inside |= line.starts_with("Usage:") || line.starts_with("Error") || line.starts_with("The following");
        // Examples are words of our own: that there are some is what counts.
        examples =
            line.starts_with("Examples:") || (examples && !line.ends_with("ommands:") && !line.ends_with("lags:"));
        if !inside || line.is_empty() || (examples && !line.starts_with("Examples:")) {
            continue;
        }
        let flag = line.trim_start().starts_with('-');
        let kept = if flag || (line.starts_with("  ") && !line.trim_start().starts_with("etcdctl")) {
            let default = line.rfind("(default ").filter(|_| line.ends_with(')')).map_or("", |at| &line[at..]);
            let name = line.trim_start().split("  ").next().unwrap_or_default();
            let name = if flag { name } else { name.split(' ').next().unwrap_or_default() };
            format!("{name} {default}").trim_end().to_owned()
        } else {
            line.to_owned()
        };
        lines.push(kept);
    }
    lines.join("\n") + "\n"
}

/// The case files of a folder under `tests`.
pub fn files(folder: &str) -> Vec<(String, Vec<Case>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("a folder of cases").map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    let only = std::env::var("KVORUM_TEST_CASES").unwrap_or_default();
    files.retain(|file| file.to_string_lossy().contains(&only));
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("readable");
        let lines = text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#'));
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        (name, lines.map(parse).collect())
    };
    files.into_iter().map(read).collect()
}

/// Runs both tools and tells where they differ.
pub fn compare(cases: &[Case], mut stock: Run, mut own: Run, skip_waiting: bool) -> Vec<String> {
    let asked = cases.iter().filter(|case| !(skip_waiting && case.waits));
    asked
        .filter_map(|case| {
            if std::env::var_os("KVORUM_TEST_SHOW").is_some() {
                println!("{}", case.text);
            }
            difference(case, &stock.say(case), &own.say(case))
        })
        .collect()
}

/// What is to be told if two answers are not the same.
pub fn difference(case: &Case, expected: &Said, said: &Said) -> Option<String> {
    let show = |s: &Said| format!("  exit {:?}\n  out {:?}\n  err {:?}", s.code, s.out, s.err);
    (said != expected).then(|| format!("{}\n stock\n{}\n ours\n{}", case.text, show(expected), show(said)))
}

/// Word 2 of an answer; of JSON the id of its member, in hexadecimal digits.
fn kept_value(out: &str) -> String {
    let json = out.split("\"member\":{\"ID\":").nth(1).and_then(|rest| rest.split(',').next()?.parse::<u64>().ok());
    match json {
        Some(id) => format!("{id:x}"),
        None => out.split_whitespace().nth(1).unwrap_or("none").to_owned(),
    }
}

/// A text; bytes that are none as `\xff`.
fn visible(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

/// The lines of a text, the objects of an array, and the founders of a cluster,
/// in an order of their own.
fn sorted(text: &str) -> String {
    let text = text.replace("},{", "}\n{").replace("[{", "\n{").replace("}]", "}\n");
    let line = |line: &str| match line.strip_prefix("ETCD_INITIAL_CLUSTER=\"") {
        Some(members) => {
            let mut members: Vec<&str> = members.trim_end_matches('"').split(',').collect();
            members.sort_unstable();
            members.join(",")
        }
        None => line.to_owned(),
    };
    let mut lines: Vec<String> = text.lines().map(line).collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// A protobuf message field by field, without the header, and without numbers
/// that are as large as an id.
fn message(bytes: &[u8], depth: usize) -> Option<String> {
    let mut text = String::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        let value = match key & 7 {
            0 => varint(&mut rest).map(|n| if n >> 40 == 0 { n.to_string() } else { "#".to_owned() })?,
            2 => {
                let length = usize::try_from(varint(&mut rest)?).ok().filter(|length| *length <= rest.len())?;
                let (inside, after) = rest.split_at(length);
                rest = after;
                if depth == 0 && key >> 3 == 1 { "header".to_owned() } else { inner(inside, depth) }
            }
            _ => return None,
        };
        text += &format!("{}={value}\n", key >> 3);
    }
    Some(text)
}

fn inner(bytes: &[u8], depth: usize) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.bytes().all(|b| b.is_ascii_graphic()) => text.to_owned(),
        _ => message(bytes, depth + 1).map_or_else(|| visible(bytes), |inside| format!("{{{inside}}}")),
    }
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
