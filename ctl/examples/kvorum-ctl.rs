//! The program alone, under our own name: for the tests of this crate.

fn main() {
    let args: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    std::process::exit(ctl::run("kvorum ctl", &args));
}
