//! `kvorum bench`: a load generator that measures a server from outside.

/// Runs the program with the words after its name.
pub fn run(_args: &[String]) -> i32 {
    eprintln!("Error: not built yet");
    1
}
