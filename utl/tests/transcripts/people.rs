//! What somebody at a terminal sees, and that `etcdutl` stays plain there too.

use crate::fixtures;
use crate::script::words;
use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use std::io::Read;
use std::path::Path;

/// All that a command writes to its terminal.
fn at_terminal(dir: &Path, name: &str, line: &str) -> String {
    let pty = native_pty_system()
        .openpty(PtySize { rows: 24, cols: 100, pixel_width: 0, pixel_height: 0 })
        .expect("a pseudo terminal");
    let mut command = CommandBuilder::new(std::env::current_exe().expect("this program"));
    command.args(words(line));
    command.env("UTL_NAME", name);
    command.cwd(dir);
    let mut child = pty.slave.spawn_command(command).expect("the program starts");
    drop(pty.slave);
    let mut reader = pty.master.try_clone_reader().expect("a reader");
    let mut bytes = Vec::new();
    // The terminal ends with an error when its last writer is gone.
    let mut buffer = [0; 4096];
    while let Ok(got @ 1..) = reader.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..got]);
    }
    child.wait().expect("the program ends");
    String::from_utf8_lossy(&bytes).replace('\r', "")
}

pub fn told() -> Result<(), String> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    fixtures::write(dir.path());
    let table: [(&str, &str, &[&str], &[&str]); 7] = [
        (
            "kvorum utl",
            "snapshot restore saved.db --data-dir d",
            &["checking", "restoring", "Restored saved.db: revision 53, 39 keys, 1 leases", "kvorum server --name"],
            &["info"],
        ),
        ("kvorum utl", "snapshot restore saved.db --data-dir d", &["Error: data-dir", "Hint: give --data-dir"], &[]),
        ("kvorum utl", "snapshot restore copied.db --data-dir e", &["Hint:", "--skip-hash-check"], &[]),
        ("kvorum utl", "verify d", &["state/seg-00000001", "OK d\n"], &[]),
        ("kvorum utl", "defrag --data-dir d", &["d: nothing to do."], &["info"]),
        ("etcdutl", "snapshot restore saved.db --data-dir f", &["restored snapshot"], &["Restored", "checking"]),
        ("etcdutl", "snapshot restore saved.db --data-dir f", &["Error: data-dir"], &["Hint"]),
    ];
    for (name, line, shown, hidden) in table {
        let text = at_terminal(dir.path(), name, line);
        if let Some(missing) = shown.iter().find(|part| !text.contains(**part)) {
            return Err(format!("{name} {line}: {missing:?} is missing in {text}"));
        }
        if let Some(extra) = hidden.iter().find(|part| text.contains(**part)) {
            return Err(format!("{name} {line}: {extra:?} is shown in {text}"));
        }
    }
    Ok(())
}
