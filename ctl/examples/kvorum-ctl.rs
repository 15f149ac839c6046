//! The program alone, under our own name: for the tests of this crate.

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    std::process::exit(ctl::run("kvorum ctl", &args));
}
