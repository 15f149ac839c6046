//! Transcripts: the same commands with the stock tool and with ours, each
//! against a real etcd of its own, must say the same on standard output, on
//! standard error as far as scripts read it, and with the exit code.
//!
//! The cases are in `cases/*.txt`, one command on a line:
//!
//! ```text
//! # a comment
//! put a b                      the words after the program's name, in shell quotes
//! txn < compare\n\nput a b\n\n\n      with standard input
//! ! lease list                 waits for our own server (the rest runs there too)
//! ~ put --help                 help: names, types and defaults only
//! @ETCDCTL_HEX=true get a      with a variable
//! $L = lease grant 60          word 2 of the output is $L from here on
//! ```
//!
//! `KVORUM_TEST_ETCD` is the folder of the real programs; without it nothing is
//! run. `KVORUM_TEST_SERVER` is our own program: then the cases run against it
//! too, except for those that wait.

mod live;

use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use live::{Server, ours, programs, start};

/// One line of a case file.
#[derive(Clone, Debug)]
struct Case {
    text: String,
    words: Vec<String>,
    input: String,
    env: Vec<(String, String)>,
    keep: Option<String>,
    waits: bool,
    help: bool,
}

fn parse(line: &str) -> Case {
    let mut rest = line.trim();
    let mut case = Case {
        text: rest.to_owned(),
        words: Vec::new(),
        input: String::new(),
        env: Vec::new(),
        keep: None,
        waits: false,
        help: false,
    };
    loop {
        if let Some(after) = rest.strip_prefix("! ") {
            (case.waits, rest) = (true, after);
        } else if let Some(after) = rest.strip_prefix("~ ") {
            (case.help, rest) = (true, after);
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
        case.input = input.replace("\\n", "\n");
        rest = words;
    }
    case.words = shell_words(rest);
    case
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
#[derive(PartialEq, Eq)]
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

fn say(program: &Path, port: u16, case: &Case, kept: &mut BTreeMap<String, String>) -> Said {
    let file = std::env::temp_dir().join(format!("kvorum-stock-{}", std::process::id()));
    let file = file.to_string_lossy();
    let words: Vec<String> = case
        .words
        .iter()
        .map(|w| w.replace("%FILE%", &file))
        .map(|w| kept.iter().fold(w, |w, (name, value)| w.replace(name, value)))
        .collect();
    let mut command = Command::new(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ETCDCTL_")) {
        command.env_remove(name);
    }
    if !case.env.iter().any(|(name, _)| name == "ETCDCTL_ENDPOINTS")
        && !words.iter().any(|w| w.starts_with("--endpoints"))
    {
        command.env("ETCDCTL_ENDPOINTS", format!("127.0.0.1:{port}"));
    }
    let mut child = command
        .args(&words)
        .envs(case.env.iter().cloned())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut input = child.stdin.take().expect("piped");
    // A program that does not read its input closes it: no failure of ours.
    let _ = input.write_all(case.input.as_bytes());
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    if let Some(name) = &case.keep {
        let value = out.split_whitespace().nth(1).unwrap_or("none").to_owned();
        kept.insert(name.clone(), value);
    }
    let err = String::from_utf8_lossy(&output.stderr);
    // Lines of the client's log are for people; only that there was a fatal one
    // and a warning of the environment matters.
    let err = err.lines().filter(|l| !l.starts_with("stty: "));
    let err = err.filter(|l| !l.starts_with("{\"level\":\"warn\"") || l.contains("environment variable"));
    let err: String = err.map(|l| masked_log(l) + "\n").collect();
    let (out, err) = (mask_member(&out, port, &file), mask_member(&err, port, &file));
    if words.iter().any(|w| w == "save") {
        let _ = std::fs::remove_file(&*file);
    }
    let (out, err) =
        if case.help { (skeleton(&out), skeleton(&err)) } else { (masked(&out, kept), masked(&err, kept)) };
    Said { code: output.status.code(), out, err }
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
fn masked(text: &str, kept: &BTreeMap<String, String>) -> String {
    let mut text = kept.iter().fold(text.to_owned(), |t, (name, value)| {
        let decimal = i64::from_str_radix(value, 16).map_or_else(|_| value.clone(), |id| id.to_string());
        t.replace(value.as_str(), name).replace(&decimal, name)
    });
    for name in ["cluster_id", "member_id", "raft_term", "ID", "\"ClusterID\" : ", "\"MemberID\" : ", "\"RaftTerm\" : "]
    {
        text = mask_number(&text, name);
    }
    text.lines().map(|line| mask_hex(line) + "\n").collect()
}

/// What is a member's own: its port, its sizes, its times.
fn mask_member(text: &str, port: u16, file: &str) -> String {
    let text = text.replace(&port.to_string(), "PORT").replace(file, "FILE");
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

/// Words that are a time, a size or a share, behind `took` and in columns.
fn mask_times(line: &str) -> String {
    let is_time = |w: &str| w.starts_with(|c: char| c.is_ascii_digit()) && w.trim_end_matches('.').ends_with('s');
    let word = |w: &str| {
        let bare = w.trim_end_matches([',', '.']);
        if is_time(w) || bare.ends_with('%') && bare.len() < 5 { "#".to_owned() } else { w.to_owned() }
    };
    let mut words: Vec<String> = line.split(' ').map(word).collect();
    for at in 1..words.len() {
        if words[at].starts_with("kB") {
            words[at - 1] = "#".to_owned();
        }
    }
    let mut columns: Vec<String> = words.join(" ").split(", ").map(str::to_owned).collect();
    // A status: term and indices.
    if columns.len() == 16 {
        columns[10..13].fill("#".to_owned());
    }
    let line = columns.join(", ");
    match line.split_once("\"took\":\"") {
        Some((before, after)) => format!("{before}\"took\":#{}", after.split_once('"').map_or("", |(_, rest)| rest)),
        None => line,
    }
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
        if run.len() >= 14 {
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
fn skeleton(text: &str) -> String {
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

fn files() -> Vec<(String, Vec<Case>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("tests/cases").map(|entry| entry.expect("readable").path()).collect();
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
fn compare(cases: &[Case], stock: (&Path, &Server), own: (&Path, &Server), skip_waiting: bool) -> Vec<String> {
    let mut differences = Vec::new();
    let (mut stock_kept, mut own_kept) = (BTreeMap::new(), BTreeMap::new());
    for case in cases.iter().filter(|case| !(skip_waiting && case.waits)) {
        let expected = say(stock.0, stock.1.port, case, &mut stock_kept);
        let said = say(own.0, own.1.port, case, &mut own_kept);
        if said != expected {
            let show = |s: &Said| format!("  exit {:?}\n  out {:?}\n  err {:?}", s.code, s.out, s.err);
            differences.push(format!("{}\n stock\n{}\n ours\n{}", case.text, show(&expected), show(&said)));
        }
    }
    differences
}

#[test]
fn our_tool_says_what_the_stock_tool_says() {
    let Some(folder) = programs() else { return };
    let (etcd, etcdctl) = (folder.join("etcd"), folder.join("etcdctl"));
    let mut differences = Vec::new();
    for (file, cases) in files() {
        let (one, other) = (start(&etcd, None), start(&etcd, None));
        let found = compare(&cases, (&etcdctl, &one), (&ours(), &other), false);
        differences.extend(found.into_iter().map(|text| format!("{file}: {text}")));
    }
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn our_server_makes_no_difference() {
    let Some(folder) = programs() else { return };
    let Some(server) = std::env::var_os("KVORUM_TEST_SERVER").map(PathBuf::from) else { return };
    let mut differences = Vec::new();
    for (file, cases) in files() {
        let (one, other) = (start(&folder.join("etcd"), None), start(&server, Some("server")));
        let found = compare(&cases, (&folder.join("etcdctl"), &one), (&ours(), &other), true);
        differences.extend(found.into_iter().map(|text| format!("{file}: {text}")));
    }
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
}

/// Every command of the stock tool, by its own completion, has a case with its
/// help in it, and the pages have the same shape.
#[test]
fn no_command_is_missing() {
    let Some(folder) = programs() else { return };
    let stock = folder.join("etcdctl");
    let mut paths = vec![Vec::new()];
    let mut missing = Vec::new();
    while let Some(path) = paths.pop() {
        let ask = |program: &Path, last: &str| {
            let mut words: Vec<&str> = path.iter().map(String::as_str).collect();
            if last.is_empty() {
                words.insert(0, "__complete");
                words.push("");
            } else {
                words.push(last);
            }
            let output = Command::new(program).args(&words).output().expect("it ends");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let (help, own_help) = (ask(&stock, "--help"), ask(&ours(), "--help"));
        if skeleton(&help) != skeleton(&own_help) {
            missing.push(format!("{path:?}\n{}---\n{}", skeleton(&help), skeleton(&own_help)));
        }
        let stop = matches!(path.first().map(String::as_str), Some("help" | "completion"));
        let below = ask(&stock, "");
        for line in below.lines().filter(|line| !stop && !line.starts_with(':') && line.contains('\t')) {
            let mut longer = path.clone();
            longer.push(line.split('\t').next().unwrap_or_default().to_owned());
            paths.push(longer);
        }
    }
    assert!(missing.is_empty(), "{} pages differ\n{}", missing.len(), missing.join("\n"));
}
