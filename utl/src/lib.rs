//! `kvorum utl`: work on data directories and snapshot files, without a server.

/// Runs the program with the words after its name; the exit code is etcdutl's.
pub fn run(_name: &str, _args: &[String]) -> i32 {
    eprintln!("Error: not built yet");
    1
}
