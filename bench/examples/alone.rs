//! The load generator without the rest of the program: built in seconds.

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    // `cargo xtask bench --generator` calls it as it would call the whole program.
    if words.first().is_some_and(|word| word == "bench") {
        words.remove(0);
    }
    std::process::exit(bench::run(&words));
}
