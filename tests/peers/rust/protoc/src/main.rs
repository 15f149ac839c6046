//! Prints where the `protoc` of a crate is: the stock client's build wants one.

fn main() {
    let path = protoc_bin_vendored::protoc_bin_path().expect("there is a protoc for this platform");
    println!("{}", path.display());
}
