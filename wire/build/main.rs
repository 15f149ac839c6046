//! Turns `proto/*.proto` into Rust: the messages, by prost, and one table of
//! methods, paths and fields, by `table`.
//!
//! Nothing is downloaded and no `protoc` is needed.

mod table;

use std::{
    env,
    error::Error,
    fs, io,
    path::{Path, PathBuf},
};

const FILES: [&str; 9] = [
    "auth.proto",
    "election.proto",
    "health.proto",
    "kv.proto",
    "lease.proto",
    "lock.proto",
    "membership.proto",
    "raft_internal.proto",
    "rpc.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    println!("cargo:rerun-if-changed=build");
    let out = PathBuf::from(env::var("OUT_DIR")?);

    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).include_source_info(true).open_files(FILES)?;

    // The compiler's own pool keeps our options, which the structures that
    // prost-build works on drop.
    fs::write(out.join("table.rs"), table::write(&compiler.descriptor_pool())?)?;

    let mut set = compiler.file_descriptor_set();
    // These two carry nothing that travels.
    set.file.retain(|f| !["gateway", "google.protobuf"].contains(&f.package()));
    prost_build::Config::new().bytes(["."]).compile_fds(set)?;
    spell_urls(&out.join("etcdserverpb.rs"))?;
    Ok(())
}

/// `peerURLs` comes out as `peer_ur_ls`, which nobody would look for.
fn spell_urls(file: &Path) -> io::Result<()> {
    fs::write(file, fs::read_to_string(file)?.replace("_ur_ls", "_urls"))
}
