//! A person at a pseudo terminal, in front of one program.

use std::{
    io::{Read, Write},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

use super::PATIENCE;
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

const ROWS: u16 = 24;

/// The program is killed when nobody looks any more.
pub struct Person {
    screen: vt100::Parser,
    said: Vec<u8>,
    pieces: Receiver<Vec<u8>>,
    keyboard: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Person {
    /// Starts the program in a terminal of 24 rows.
    pub fn starts(command: CommandBuilder, columns: u16) -> Person {
        let size = PtySize { rows: ROWS, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).expect("a terminal");
        let child = pair.slave.spawn_command(command).expect("it starts");
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader().expect("a reader");
        let keyboard = pair.master.take_writer().expect("a writer");
        let (send, pieces) = channel();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            // The end of a terminal is an error on some systems.
            while let Ok(read @ 1..) = reader.read(&mut piece) {
                if send.send(piece[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        let screen = vt100::Parser::new(ROWS, columns, 0);
        Person { screen, said: Vec::new(), pieces, keyboard, child, master: pair.master }
    }

    /// Waits until it is done; what is on the screen changes meanwhile.
    pub fn waits(&mut self, what: &str, mut done: impl FnMut(&mut Person) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < deadline, "waited in vain for {what} on\n{}", self.contents());
            self.hears();
        }
    }

    /// Takes what the program writes in the next moment; whether more may come.
    fn hears(&mut self) -> bool {
        match self.pieces.recv_timeout(Duration::from_millis(50)) {
            Ok(piece) => {
                self.screen.process(&piece);
                self.said.extend_from_slice(&piece);
                true
            }
            Err(end) => end == RecvTimeoutError::Timeout,
        }
    }

    /// Waits until each of the texts is on the screen.
    pub fn sees(&mut self, texts: &[&str]) {
        self.waits(&format!("{texts:?}"), |person| {
            let contents = person.contents();
            texts.iter().all(|text| contents.contains(text))
        });
    }

    /// Waits until the program has written this, wherever it is now.
    pub fn was_told(&mut self, text: &str) {
        self.waits(&format!("{text:?}"), |person| person.said().contains(text));
    }

    pub fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).and_then(|()| self.keyboard.flush()).expect("typed");
    }

    /// Waits for the end, and for all that was written before it; the exit code.
    pub fn ends(&mut self) -> u32 {
        self.waits("its last words", |person| !person.hears());
        self.child.wait().expect("it ends").exit_code()
    }

    /// What is on the screen, as text.
    pub fn contents(&self) -> String {
        self.screen.screen().contents()
    }

    /// Whether the program has the whole screen, and reads keys one by one.
    pub fn has_given_screen(&self) -> bool {
        self.screen.screen().alternate_screen() && self.screen.screen().hide_cursor() && !self.echoes()
    }

    /// Whether the terminal is as it was before the program.
    pub fn has_terminal_back(&self) -> bool {
        !self.screen.screen().alternate_screen() && !self.screen.screen().hide_cursor() && self.echoes()
    }

    /// All that the program has written.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&self.said).into_owned()
    }

    /// Whether what is typed is shown.
    pub fn echoes(&self) -> bool {
        const ECHO: u32 = 0o10;
        self.master.get_termios().is_some_and(|modes| modes.local_flags.bits() & ECHO != 0)
    }

    /// Sends a signal to the program: `TERM`.
    pub fn signals(&self, name: &str) {
        let id = self.child.process_id().expect("it runs").to_string();
        let status = std::process::Command::new("kill").args(["-s", name, &id]).status().expect("it starts");
        assert!(status.success(), "kill -s {name} {id}");
    }
}
