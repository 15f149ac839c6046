//! What the program prints, command by command: the scripts in `cases/` against files made here,
//! and, where the variable KVORUM_TEST_ETCD names a folder with the stock programs, the same
//! command lines given to the stock tool, and a real etcd's data taken over.
//!
//! This binary is also the program under test: with UTL_NAME set it runs as that.

#[path = "transcripts/fixtures.rs"]
mod fixtures;
#[path = "transcripts/live.rs"]
mod live;
#[path = "transcripts/people.rs"]
mod people;
#[path = "transcripts/script.rs"]
mod script;
#[path = "transcripts/sweep.rs"]
mod sweep;

fn main() {
    if let Ok(name) = std::env::var("UTL_NAME") {
        let args: Vec<String> = std::env::args().skip(1).collect();
        std::process::exit(utl::run(&name, &args));
    }
    let mut failed = Vec::new();
    let tests: [(&str, fn() -> Result<(), String>); 6] = [
        ("scripts", script::scripts),
        ("every flipped byte is found", sweep::flips),
        ("verify leaves all as it was", sweep::untouched),
        ("people are told more", people::told),
        ("as the stock tool", live::stock),
        ("a real etcd comes over", live::migration),
    ];
    let filter: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    for (name, test) in tests {
        if !filter.is_empty() && !filter.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        match test() {
            Ok(()) => println!("test {name} ... ok"),
            Err(why) => {
                println!("test {name} ... FAILED\n{why}");
                failed.push(name);
            }
        }
    }
    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
        std::process::exit(101);
    }
}
