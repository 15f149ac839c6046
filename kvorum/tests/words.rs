//! The words that the binary is called with: a wrong one never ends well, one of another program is
//! shown the way, every command has its manual page, and every word can be completed.

use std::process::{Command, Output};

fn kvorum(line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvorum"));
    command.args(line.split_whitespace()).env_clear();
    command.output().unwrap_or_else(|error| panic!("kvorum {line}: {error}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Standard output of a call that ends well.
fn says(line: &str) -> String {
    let output = kvorum(line);
    assert!(output.status.success(), "kvorum {line}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn words_of_another_program_are_shown_the_way() {
    let cases = [
        ("put a b", 2, "`put` is a command of `kvorum ctl`: kvorum ctl put"),
        ("member list", 2, "`member list` is a command of `kvorum ctl`: kvorum ctl member list"),
        ("snapshot restore a.db", 2, "`snapshot restore` is a command of `kvorum utl`: kvorum utl snapshot restore"),
        ("bbolt check a.db", 2, "`bbolt check` is a command of `kvorum utl`: kvorum utl bbolt check"),
        ("etcdctl get", 2, "`etcdctl` is here `kvorum ctl`"),
        ("ctl bbolt check a.db", 1, "`bbolt check` is a command of `kvorum utl`: kvorum utl bbolt check"),
        ("ctl --endpoints get migrate", 1, "`migrate` is a command of `kvorum utl`: kvorum utl migrate"),
        (
            "ctl snapshot restore a.db",
            1,
            "`snapshot restore` is a command of `kvorum utl`: kvorum utl snapshot restore",
        ),
        ("ctl fill", 1, "`fill` is a command of `kvorum bench`: kvorum bench fill"),
        ("utl put a b", 1, "`put` is a command of `kvorum ctl`: kvorum ctl put"),
        ("utl snapshot save a.db", 1, "`snapshot save` is a command of `kvorum ctl`: kvorum ctl snapshot save"),
        ("gateway endpoint health", 1, "`endpoint health` is a command of `kvorum ctl`: kvorum ctl endpoint health"),
        ("server put a b", 1, "`put` is a command of `kvorum ctl`: kvorum ctl put"),
        ("bench doctor", 2, "`doctor` is a command of `kvorum ctl`: kvorum ctl doctor"),
        ("dev get a", 2, "`get` is a command of `kvorum ctl`: kvorum ctl get"),
    ];
    for (line, code, hint) in cases {
        let output = kvorum(line);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "kvorum {line}: {stderr}");
        assert!(stderr.ends_with(&format!("\nhint: {hint}\n")), "kvorum {line}: {stderr}");
        assert_eq!(text(&output.stdout), "", "kvorum {line}");
    }
}

#[test]
fn a_wrong_word_never_ends_well() {
    for program in ["", "ctl", "utl", "gateway", "proxy", "bench", "dev", "server", "help", "man", "completion"] {
        let line = format!("{program} nosuchword");
        let output = kvorum(&line);
        let stderr = text(&output.stderr);
        assert!(!output.status.success(), "kvorum {line} ends well");
        assert!(stderr.contains("nosuchword"), "kvorum {line}: {stderr}");
    }
    for line in [
        "ctl lease nosuchword",
        "ctl snapshot nosuchword",
        "ctl help nosuchword",
        "ctl help lease nosuchword",
        "ctl man nosuchword",
        "utl snapshot nosuchword",
        "utl help nosuchword",
        "utl man nosuchword",
        "gateway start nosuchword",
        "man ctl nosuchword",
        "man nosuchword",
        "dev status nosuchword",
        "version nosuchword",
    ] {
        assert!(!kvorum(line).status.success(), "kvorum {line} ends well");
    }
}

#[test]
fn the_whole_has_manual_pages() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = says(&format!("man --out {}", folder.path().display()));
    let mut names: Vec<String> = std::fs::read_dir(folder.path())
        .expect("the folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(said, format!("{} pages in {}\n", names.len(), folder.path().display()));
    for name in [
        "kvorum.1",
        "kvorum-server.1",
        "kvorum-ctl-lease-grant.1",
        "kvorum-utl-snapshot-restore.1",
        "kvorum-gateway-start.1",
        "kvorum-bench-put.1",
        "kvorum-dev-status.1",
        "kvorum-completion.1",
    ] {
        assert!(names.iter().any(|there| there == name), "{name} is not in {names:?}");
    }
    for name in &names {
        let page = std::fs::read_to_string(folder.path().join(name)).expect("a page");
        for heading in [".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS", ".SH \"SEE ALSO\""] {
            assert!(page.contains(heading), "{name} has no {heading}\n{page}");
        }
        // A name, a dash, and what it is for.
        let (_, head) = page.split_once(".SH NAME\n").expect("a name");
        let about = head.lines().next().unwrap_or_default().split_once(" \\- ").unwrap_or_default().1;
        assert!(about.len() > 5, "{name} does not say what it is for: {head}");
    }
}

#[test]
fn a_page_of_each_program() {
    let cases = [
        ("man", "kvorum\\-ctl(1)"),
        ("man server", "\\fBETCD_DATA_DIR\\fR\n\\-\\-data\\-dir"),
        ("man ctl lease grant", "\\fBkvorum ctl lease grant\\fR <ttl>"),
        ("man utl hashkv", "\\fBkvorum utl hashkv\\fR <filename>"),
        ("man gateway start", "\\-\\-listen\\-addr"),
        ("man bench put", "\\-\\-clients"),
        ("man dev", "\\fB\\-\\-members\\fR\\fI uint\\fR"),
        ("man dev status", "are in kvorum\\-dev(1)."),
    ];
    for (line, part) in cases {
        let page = says(line);
        assert!(page.contains(part), "kvorum {line}: {page}");
    }
}

#[test]
fn every_word_is_completed() {
    let cases = [
        ("", "bench completion ctl dev gateway help man proxy server utl version"),
        ("ser", "server"),
        ("server --auto-c", "--auto-compaction-mode --auto-compaction-retention"),
        ("server --auto-compaction-mode ", "periodic revision"),
        ("bench ", "bound compact expire fill get idle keep-alive list pods put rest resume soak swap watch"),
        ("dev ", "status stop"),
        ("dev status --", "--data-dir --help --json"),
        ("gateway start --listen", "--listen-addr"),
        ("completion ", "bash zsh fish powershell"),
        ("man ctl lease g", "grant"),
        ("help ", "bench completion ctl dev gateway help man proxy server utl version"),
        ("ctl lease g", "grant"),
        ("utl snapshot r", "restore"),
    ];
    for (line, expected) in cases {
        let (before, last) = line.rsplit_once(' ').unwrap_or(("", line));
        // As the shells' scripts ask: the program's own word stands before the question.
        let (program, rest) = before.split_once(' ').unwrap_or((before, ""));
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvorum"));
        command.args(program.split_whitespace()).arg("__completeNoDesc").args(rest.split_whitespace()).arg(last);
        let output = command.output().expect("it ends");
        let stdout = text(&output.stdout);
        let words: Vec<&str> = stdout.lines().filter(|line| !line.starts_with(':')).collect();
        assert_eq!(words.join(" "), expected, "kvorum {line}: {}", text(&output.stderr));
    }
    for shell in ["bash", "zsh", "fish", "powershell"] {
        assert_eq!(says(&format!("completion {shell}")), says(&format!("ctl completion {shell}")), "{shell}");
    }
}
