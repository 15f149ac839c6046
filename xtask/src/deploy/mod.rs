//! `cargo xtask deploy`: the files below `deploy/`, judged by the tools that they are for, and run
//! as far as this machine can.
//!
//! | part | what is done |
//! |---|---|
//! | `prometheus` | promtool: rules, their unit tests, the configuration; the dashboard is JSON |
//! | `systemd` | `systemd-analyze verify` and the security score; `howto systemd` boots the unit |
//! | `docker` | buildah makes the last stage of the image; it runs in its own tree as its own user |
//! | `compose` | the command lines and health checks on three machines, behind the real HAProxy |
//! | `kubernetes` | an API server's own rules; kubeadm's; the command lines of the StatefulSet |
//!
//! Not part of `ci`: the tools come from Debian's packages and from Go modules (`tests/peers`).
//! That the series which the rules ask for exist is a test of its own (`kvorum/tests/metrics.rs`).

mod fleet;
mod image;
mod kubernetes;
mod place;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::machines::{self, Machine};
use crate::peers::workspace;
use crate::{inside, peers};
use place::{Place, does, files};

/// Every file of `deploy/`, and the part that judges it.
const FILES: [(&str, &str); 17] = [
    ("compose/compose.yaml", "compose"),
    ("compose/haproxy.cfg", "compose"),
    ("docker/Dockerfile", "docker"),
    ("docker/Dockerfile.dockerignore", "docker"),
    ("kubernetes/kubeadm-external.yaml", "kubernetes"),
    ("kubernetes/kubeadm-stacked.yaml", "kubernetes"),
    ("kubernetes/statefulset.yaml", "kubernetes"),
    ("kubernetes/static-pod.yaml", "kubernetes"),
    ("prometheus/dashboard.json", "prometheus"),
    ("prometheus/kvorum.rules.test.yml", "prometheus"),
    ("prometheus/kvorum.rules.yml", "prometheus"),
    ("prometheus/mixin.txt", "prometheus"),
    ("prometheus/prometheus.yml", "prometheus"),
    ("systemd/kvorum-backup.service", "systemd"),
    ("systemd/kvorum.env", "systemd"),
    ("systemd/kvorum.service", "systemd"),
    ("systemd/kvorum.sysusers", "systemd"),
];

/// The parts, in order.
const PARTS: [&str; 5] = ["prometheus", "systemd", "docker", "compose", "kubernetes"];

/// Alerts, their unit tests, and the example of a configuration.
const PROMTOOL: [&[&str]; 3] = [
    &["check", "rules", "kvorum.rules.yml"],
    &["test", "rules", "kvorum.rules.test.yml"],
    &["check", "config", "prometheus.yml"],
];

/// The units must not be more exposed than this (tenths of systemd's score).
const MOST_EXPOSED: &str = "15";

/// What `xtask deploy` takes. It needs root, for namespaces.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// prometheus, systemd, docker, compose, kubernetes [default: all].
    pub parts: Vec<String>,
    /// The kvorum to run [default: the release build, brought up to date].
    #[arg(long)]
    pub program: Option<PathBuf>,
}

/// Runs the checks that are named.
///
/// # Errors
/// With what is wrong.
pub async fn deploy(args: &Args) -> Result<()> {
    if let Some(part) = args.parts.iter().find(|part| !PARTS.contains(&&part[..])) {
        bail!("no part {part}; there are: {}", PARTS.join(", "));
    }
    let wanted = |part: &str| args.parts.is_empty() || args.parts.iter().any(|named| named == part);
    let Some(folder) = inside::folder() else {
        if wanted("kubernetes") {
            kubernetes::build()?;
        }
        if args.program.is_none() {
            peers::kvorum()?;
        }
        let tools = [&machines::TOOLS[..], &["promtool", "systemd-analyze", "buildah", "haproxy", "setpriv"]].concat();
        let status = inside::enter(&tools).await?;
        ensure!(status.success(), "a file of deploy/ is not right");
        return Ok(());
    };
    inside::end_with_the_outer();
    let program = args.program.clone().unwrap_or_else(|| workspace().join("target/release/kvorum"));
    let place = Place { folder, program: std::path::absolute(program)? };
    for part in PARTS.into_iter().filter(|part| wanted(part)) {
        judge(part, &place).with_context(|| part.to_owned())?;
        println!("{part}: {} files are right", FILES.iter().filter(|(_, of)| *of == part).count());
    }
    Ok(())
}

fn judge(part: &str, place: &Place) -> Result<()> {
    match part {
        "prometheus" => prometheus(&files().join("prometheus")),
        "systemd" => systemd(place),
        "docker" => image::check(place),
        "compose" => fleet::compose(place),
        _ => kubernetes::check(place),
    }
}

fn prometheus(folder: &Path) -> Result<()> {
    let text = std::fs::read_to_string(folder.join("dashboard.json")).context("the dashboard")?;
    serde_json::from_str::<serde_json::Value>(&text).context("deploy/prometheus/dashboard.json")?;
    for args in PROMTOOL {
        let status = Command::new("promtool").args(args).current_dir(folder).status();
        let status = status.context("promtool does not run: apt-get install prometheus")?;
        ensure!(status.success(), "promtool {} failed", args.join(" "));
    }
    Ok(())
}

/// On a machine that has the program and the user: the files as they are.
fn systemd(place: &Place) -> Result<()> {
    let shelf = place.shelf("systemd")?;
    let machine = Machine::boot(&shelf, "m1")?;
    does(&machine, "install -D -m 644 deploy/systemd/kvorum.sysusers /usr/lib/sysusers.d/kvorum.conf")?;
    does(&machine, "systemd-sysusers && id kvorum && mkdir -p /etc/kvorum && touch /etc/kvorum/ctl.env")?;
    does(&machine, "install -m 644 deploy/systemd/kvorum.env /etc/kvorum/ && bash -n /etc/kvorum/kvorum.env")?;
    for unit in ["kvorum.service", "kvorum-backup.service"] {
        does(&machine, &format!("systemd-analyze verify --man=no deploy/systemd/{unit}"))?;
        let score = format!("systemd-analyze security --offline=true --threshold={MOST_EXPOSED} deploy/systemd/{unit}");
        let said = does(&machine, &score)?;
        println!("{}", said.lines().find(|line| line.contains("Overall")).unwrap_or_default());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below(folder: &Path, all: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                below(&path, all);
            } else {
                let name = path.strip_prefix(files()).expect("below deploy/");
                all.push(name.to_string_lossy().into_owned());
            }
        }
    }

    #[test]
    fn every_file_has_its_check() {
        let mut all = Vec::new();
        below(&files(), &mut all);
        all.sort();
        assert_eq!(all, FILES.map(|(file, _)| file));
        assert!(FILES.iter().all(|(_, part)| PARTS.contains(part)));
    }

    #[test]
    fn what_is_run_can_be_read() {
        let services = fleet::services().expect("compose.yaml");
        assert_eq!(services.iter().map(|service| &service.name[..]).collect::<Vec<_>>(), ["etcd1", "etcd2", "etcd3"]);
        assert!(services.iter().all(|service| service.command[0] == "etcd" && service.check[0] == "etcdctl"));
        assert_eq!(kubernetes::members().expect("statefulset.yaml").len(), 3);
        assert!(image::last_stage().expect("Dockerfile").starts_with("FROM scratch\n"));
    }
}
