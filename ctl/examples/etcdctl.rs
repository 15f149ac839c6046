//! The program alone, under the name of the stock tool: for the tests of this
//! crate, and for whoever wants to try a change without building the server.

fn main() {
    let args: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    std::process::exit(ctl::run(ctl::STOCK, &args));
}
