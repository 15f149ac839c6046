//! The load generator without the rest of the program: built in seconds.

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    std::process::exit(bench::run(&words));
}
