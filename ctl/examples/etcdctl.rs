//! The program alone, under the name of the stock tool: for the tests of this
//! crate, and for whoever wants to try a change without building the server.

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    std::process::exit(ctl::run(ctl::STOCK, &args));
}
