//! `kvorum ctl`: the command line of a running cluster.

/// Runs the program with the words after its name; the exit code is etcdctl's.
pub fn run(_name: &str, _args: &[String]) -> i32 {
    eprintln!("Error: not built yet");
    1
}
