//! The real etcd, etcdctl and etcdutl, built once into a cache that git does
//! not see.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

/// Where the tool module's programs come from, by the name they get here.
const PROGRAMS: [(&str, &str); 3] = [
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("etcdctl", "go.etcd.io/etcd/etcdctl/v3"),
    ("etcdutl", "go.etcd.io/etcd/etcdutl/v3"),
];

/// The folder of the workspace.
pub fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("this crate lies in the workspace").to_owned()
}

/// Builds what is missing.
///
/// # Errors
/// If go is not installed or a build fails.
pub fn build() -> Result<()> {
    let bin = workspace().join("tests/peers/.cache/bin");
    std::fs::create_dir_all(&bin).with_context(|| bin.display().to_string())?;
    for (name, package) in PROGRAMS {
        let program = bin.join(name);
        if program.is_file() {
            continue;
        }
        println!("building {name} (once; a few minutes)");
        let status = Command::new("go")
            .args(["build", "-trimpath", "-o"])
            .arg(&program)
            .arg(package)
            .current_dir(workspace().join("tests/peers/tools"))
            .env("CGO_ENABLED", "0")
            .status()
            .context("go is needed to build the real etcd: install it, or put etcd, etcdctl and etcdutl 3.7.3 into tests/peers/.cache/bin")?;
        if !status.success() {
            bail!("go build {package}: {status}");
        }
    }
    Ok(())
}

/// One of the real programs, built if need be.
pub fn program(name: &str) -> Result<PathBuf> {
    build()?;
    Ok(workspace().join("tests/peers/.cache/bin").join(name))
}

/// The release build of this workspace's own program, brought up to date.
pub fn kvorum() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--release", "--package", "kvorum", "--message-format", "json-render-diagnostics"])
        .current_dir(workspace())
        .stderr(std::process::Stdio::inherit())
        .output()?;
    if !output.status.success() {
        bail!("kvorum does not build");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    for line in text.lines().rev() {
        let message: serde_json::Value = serde_json::from_str(line)?;
        let name = message["target"]["name"].as_str();
        if let (Some("kvorum"), Some(path)) = (name, message["executable"].as_str()) {
            return Ok(path.into());
        }
    }
    bail!("cargo did not name the program it built")
}
