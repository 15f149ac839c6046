//! Completion as a person has it: a shell on a terminal, half a word, the tab
//! key. Shells that are not installed are passed over; names from the store
//! need `KVORUM_TEST_ETCD`.

mod live;

use std::{os::unix::fs::PermissionsExt, path::Path, process::Command, time::Instant};

use live::{PATIENCE, person::Person};
use portable_pty::CommandBuilder;

const PROMPT: &str = "ready> ";

/// A shell in which `kvorum ctl` is our program and `etcdctl` the stock one,
/// with their scripts loaded.
struct Shell {
    name: String,
    person: Person,
    _home: tempfile::TempDir,
}

/// Programs under the names that people type.
fn install(bin: &Path) {
    std::fs::create_dir(bin).expect("a folder");
    let ours = live::ours().with_file_name("kvorum-ctl");
    // The other program that can be asked is played by two lines.
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = utl ] && echo hashkv && exec echo :4\nshift\nexec '{}' \"$@\"\n",
        ours.display()
    );
    std::fs::write(bin.join("kvorum"), script).expect("written");
    std::fs::set_permissions(bin.join("kvorum"), PermissionsExt::from_mode(0o755)).expect("allowed");
    std::os::unix::fs::symlink(live::ours(), bin.join("etcdctl")).expect("linked");
}

impl Shell {
    /// None if it is not installed.
    fn start(name: &str, port: u16) -> Option<Shell> {
        Command::new(name).arg("--version").output().ok()?;
        let home = tempfile::tempdir().expect("a folder");
        let bin = home.path().join("bin");
        install(&bin);
        let load = |shell: &str| match shell {
            "fish" => "kvorum ctl completion fish | source; etcdctl completion fish | source".to_owned(),
            _ => format!("source <(kvorum ctl completion {shell}); source <(etcdctl completion {shell})"),
        };
        let (args, setup): (&[&str], String) = match name {
            "bash" => (&["--norc", "--noprofile", "-i"], format!("PS1='{PROMPT}'; {}", load("bash"))),
            "zsh" => {
                let setup = format!("PS1='{PROMPT}'; autoload -U compinit; compinit -u; {}", load("zsh"));
                (&["-f", "-i"], setup)
            }
            _ => {
                let prompt = format!("function fish_prompt; echo -n '{PROMPT}'; end");
                (
                    &["--private", "--no-config"],
                    format!("{prompt}; set -g fish_autosuggestion_enabled 0; {}", load("fish")),
                )
            }
        };
        let mut command = CommandBuilder::new(name);
        command.args(args);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", bin.display()));
        command.env("HOME", home.path());
        command.env("TERM", "xterm");
        command.env("ETCDCTL_ENDPOINTS", format!("127.0.0.1:{port}"));
        command.cwd(home.path());
        let person = Person::starts(command, 100);
        let mut shell = Shell { name: name.to_owned(), person, _home: home };
        shell.person.types(&format!("{setup}; clear; echo loaded\r"));
        shell.person.sees(&["loaded\nready>"]);
        shell.starts_anew();
        Some(shell)
    }

    /// Types half a line and a tab, and waits for the whole line. What comes
    /// behind it is typed, so that the end of the word is seen too.
    fn completes(&mut self, half: &str, whole: &str) {
        self.person.types(&format!("{half}\t"));
        self.person.sees(&[&format!("{PROMPT}{}", whole.trim_end())]);
        self.person.types("Z");
        self.person.sees(&[&format!("{PROMPT}{whole}Z")]);
        self.starts_anew();
    }

    /// Types a word that goes on in several ways, and waits until they are
    /// listed.
    fn offers(&mut self, half: &str, texts: &[&str]) {
        // bash lists at the second tab.
        let tabs = if self.name == "bash" { "\t\t" } else { "\t" };
        self.person.types(&format!("{half}{tabs}"));
        self.person.sees(texts);
        self.starts_anew();
    }

    /// Throws the line away and clears the screen.
    fn starts_anew(&mut self) {
        self.person.types("\x15\x0c");
        self.person.waits("an empty screen", |person| person.contents().trim() == PROMPT.trim());
    }
}

const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

#[test]
fn words_and_flags_are_completed_in_each_shell() {
    for name in SHELLS {
        // Nobody listens on this port.
        let Some(mut shell) = Shell::start(name, 1) else { continue };
        shell.completes("kvorum ctl lease gra", "kvorum ctl lease grant ");
        shell.completes("kvorum ct", "kvorum ctl ");
        shell.completes("kvorum b", "kvorum bench ");
        shell.completes("kvorum utl hash", "kvorum utl hashkv ");
        shell.completes("kvorum ctl get --write-out=j", "kvorum ctl get --write-out=json ");
        shell.completes("kvorum ctl get --print-v", "kvorum ctl get --print-value-only ");
        shell.completes("etcdctl lease gra", "etcdctl lease grant ");
        shell.completes("etcdctl -w ta", "etcdctl -w table ");
        shell.offers("kvorum ctl role grant-permission r read", &["readwrite"]);
    }
}

#[test]
fn the_scripts_know_the_programs_that_there_are() {
    let main = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kvorum/src/words.rs");
    let main = std::fs::read_to_string(main).expect("the words of the binary");
    let (_, list) = main.split_once("enum Program {").expect("a list of programs");
    let (list, _) = list.split_once("\n}").expect("its end");
    let name = |line: &str| {
        let variant = line.strip_prefix("    ")?;
        let end = variant.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(variant.len());
        variant.starts_with(|c: char| c.is_ascii_uppercase()).then(|| variant[..end].to_lowercase())
    };
    let mut programs: Vec<String> = list.lines().filter_map(name).collect();
    programs.sort();
    let program = live::ours().with_file_name("kvorum-ctl");
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let output = Command::new(&program).args(["completion", shell]).output().expect("it ends");
        let script = String::from_utf8_lossy(&output.stdout).into_owned();
        let programs = programs.join(" ");
        assert!(script.contains(&programs), "the script for {shell} does not offer {programs}");
        assert!(!script.contains("@BINARY@") && !script.contains("@SUBS@"), "{script}");
    }
}

#[test]
fn nobody_waits_for_a_server_that_does_not_answer_or_is_asked_for_a_password() {
    // It takes connections, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has room");
    let endpoint = format!("--endpoints={}", silent.local_addr().expect("bound"));
    let program = live::ours().with_file_name("kvorum-ctl");
    for words in
        [&["get", ""][..], &["member", "remove", ""], &["--user", "ann", "get", ""], &["--user", "ann:pw", "get", ""]]
    {
        let begin = Instant::now();
        let output = Command::new(&program).args(["__complete", &endpoint]).args(words).output().expect("it ends");
        assert_eq!(String::from_utf8_lossy(&output.stdout), ":4\n", "{words:?}");
        // The limit is half a second; the machine may be busy. Without it nothing would ever come.
        assert!(begin.elapsed() < PATIENCE, "{words:?} took {:?}", begin.elapsed());
    }
}

fn put(port: u16, words: &[&str]) {
    let mut command = Command::new(live::ours());
    let output = command.args(words).env("ETCDCTL_ENDPOINTS", format!("127.0.0.1:{port}")).output().expect("it ends");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn names_of_the_store_are_completed_in_each_shell() {
    let Some(folder) = live::programs() else { return };
    let server = live::start(&folder.join("etcd"), None);
    for key in ["/reg/pods/a", "/reg/pods/b", "/reg/pots/c", "col:one:x", "col:two:x", "two words", "it's", "a=b:c"] {
        put(server.port, &["put", key, "v"]);
    }
    put(server.port, &["user", "add", "annabel:pw"]);
    put(server.port, &["role", "add", "reader"]);
    for name in SHELLS {
        let Some(mut shell) = Shell::start(name, server.port) else { continue };
        shell.completes("kvorum ctl get /", "kvorum ctl get /reg/");
        shell.completes("kvorum ctl get /reg/pod", "kvorum ctl get /reg/pods/");
        shell.completes("kvorum ctl del /reg/pots/", "kvorum ctl del /reg/pots/c ");
        shell.offers("kvorum ctl watch /reg/pods/", &["reg/pods/a", "reg/pods/b"]);
        shell.completes("kvorum ctl user get ann", "kvorum ctl user get annabel ");
        shell.completes("kvorum ctl user grant-role annabel rea", "kvorum ctl user grant-role annabel reader ");
        shell.completes("kvorum ctl get col:o", "kvorum ctl get col:one:x ");
        shell.completes("kvorum ctl get a=b", "kvorum ctl get a=b:c ");
        shell.completes("kvorum ctl make-mirror --prefix=/reg/pot", "kvorum ctl make-mirror --prefix=/reg/pots/");
        let quoted = "kvorum ctl get two\\ words ";
        shell.completes("kvorum ctl get two", quoted);
        shell.completes("kvorum ctl get \"two", "kvorum ctl get \"two words\" ");
        // The stock tool asks nobody.
        shell.completes("etcdctl get /reg/pod", "etcdctl get /reg/pod");
    }
}
