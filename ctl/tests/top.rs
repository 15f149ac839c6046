//! `kvorum ctl top` under a terminal of 80 by 24: what a person sees, and that
//! the terminal is given back. With `KVORUM_TEST_ETCD` a real etcd behind TLS is
//! looked at, too.

mod live;

use std::{
    io::{Read, Write},
    path::{Path, PathBuf},
    sync::mpsc,
    time::{Duration, Instant},
};

use live::{PATIENCE, certs::Authority, programs, start_encrypted};
use portable_pty::{CommandBuilder, PtySize, native_pty_system};

/// Our program under its own name, which cargo has built beside us.
fn ours() -> PathBuf {
    let me = std::env::current_exe().expect("this test is a file");
    let example = me.parent().and_then(Path::parent).expect("target/<profile>/deps").join("examples/kvorum-ctl");
    assert!(example.exists(), "{} is not built", example.display());
    example
}

#[test]
fn a_member_that_is_down_is_shown_and_q_ends_it() {
    let size = PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 };
    let pair = native_pty_system().openpty(size).expect("a terminal");
    let mut command = CommandBuilder::new(ours());
    // Nobody listens on this port.
    command.args(["top", "--endpoints", "127.0.0.1:1", "--command-timeout", "200ms", "--interval", "200ms"]);
    let mut child = pair.slave.spawn_command(command).expect("it starts");
    drop(pair.slave);
    let mut reader = pair.master.try_clone_reader().expect("a reader");
    let mut writer = pair.master.take_writer().expect("a writer");
    let (send, pieces) = mpsc::channel();
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(read @ 1..) = reader.read(&mut piece) {
            if send.send(piece[..read].to_vec()).is_err() {
                return;
            }
        }
    });
    let mut screen = vt100::Parser::new(24, 80, 0);
    let deadline = Instant::now() + PATIENCE;
    // One round of drawing may come in several pieces, and the row above its end.
    let drawn = |contents: &str| contents.contains("down") && contents.contains("Enter look into");
    while !drawn(&screen.screen().contents()) {
        assert!(Instant::now() < deadline, "{}", screen.screen().contents());
        if let Ok(piece) = pieces.recv_timeout(Duration::from_millis(100)) {
            screen.process(&piece);
        }
    }
    let contents = screen.screen().contents();
    assert!(contents.starts_with("0/1 up  leader nobody  term 0"), "{contents}");
    assert!(contents.contains("NAME         ROLE      LAG      LATENCY    WRITES/S  READS/S"), "{contents}");
    assert!(contents.trim_end().ends_with("q quit  s sort:NAME  r reverse  Enter look into"), "{contents}");
    assert!(screen.screen().alternate_screen());
    writer.write_all(b"q").expect("it reads keys");
    let status = child.wait().expect("it ends");
    assert!(status.success(), "{status:?}");
    // The terminal ends with the program.
    while let Ok(piece) = pieces.recv_timeout(PATIENCE) {
        screen.process(&piece);
    }
    assert!(!screen.screen().alternate_screen(), "the terminal is as it was");
}

#[test]
fn metrics_are_read_with_the_certificates_of_the_flags() {
    let Some(folder) = programs() else { return };
    let authority = Authority::new();
    authority.issue("server", &["127.0.0.1"]);
    authority.issue("client", &["ann"]);
    let server = start_encrypted(&folder.join("etcd"), &authority);
    let size = PtySize { rows: 24, cols: 160, pixel_width: 0, pixel_height: 0 };
    let pair = native_pty_system().openpty(size).expect("a terminal");
    let mut command = CommandBuilder::new(ours());
    command.args(["top", "--interval", "200ms", "--endpoints", &format!("127.0.0.1:{}", server.port)]);
    for (flag, file) in [("--cacert", "ca.pem"), ("--cert", "client.pem"), ("--key", "client.key")] {
        command.args([flag, &authority.file(file).to_string_lossy()]);
    }
    let mut child = pair.slave.spawn_command(command).expect("it starts");
    drop(pair.slave);
    let mut reader = pair.master.try_clone_reader().expect("a reader");
    let mut writer = pair.master.take_writer().expect("a writer");
    let (send, pieces) = mpsc::channel();
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(read @ 1..) = reader.read(&mut piece) {
            if send.send(piece[..read].to_vec()).is_err() {
                return;
            }
        }
    });
    let mut screen = vt100::Parser::new(24, 160, 0);
    let deadline = Instant::now() + PATIENCE;
    // The whole row, memory and all, is there once two rounds have been made.
    let whole = |contents: &str| {
        let row = contents.lines().find(|line| line.starts_with("m1 ")).unwrap_or_default();
        row.contains("leader") && row.contains("MB") && !row.split_whitespace().any(|cell| cell == "-")
    };
    while !whole(&screen.screen().contents()) {
        assert!(Instant::now() < deadline, "{}", screen.screen().contents());
        if let Ok(piece) = pieces.recv_timeout(Duration::from_millis(100)) {
            screen.process(&piece);
        }
    }
    writer.write_all(b"q").expect("it reads keys");
    assert!(child.wait().expect("it ends").success());
}
