//! The manifests and kubeadm's configurations, judged by Kubernetes' own code; the command lines of
//! the StatefulSet, run.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::fleet::{self, Service, words};
use super::place::{Place, does, files};
use crate::peers::workspace;

/// Built from the Go module `tests/peers/kube`.
const PROGRAMS: [(&str, &str); 2] = [("kubeadm", "k8s.io/kubernetes/cmd/kubeadm"), ("kube-strict", "./strict")];
const VERSION: &str = "k8s.io/component-base/version.gitVersion=v1.37.2";

fn bin() -> PathBuf {
    workspace().join("tests/peers/.cache/bin")
}

/// Builds kubeadm, and the program that reads manifests as an API server does.
///
/// # Errors
/// If go is not installed, or a build fails.
pub fn build() -> Result<()> {
    std::fs::create_dir_all(bin())?;
    for (name, package) in PROGRAMS.into_iter().filter(|(name, _)| !bin().join(name).is_file()) {
        println!("building {name} (once; some minutes)");
        let mut go = Command::new("go");
        go.args(["build", "-trimpath", "-buildvcs=false", "-ldflags", &format!("-s -w -X {VERSION}"), "-o"]);
        go.arg(bin().join(name)).arg(package).env("CGO_ENABLED", "0");
        let status = go.current_dir(workspace().join("tests/peers/kube")).status();
        let status = status.context("go is needed to build the programs of Kubernetes")?;
        ensure!(status.success(), "go build {package}: {status}");
    }
    Ok(())
}

/// Asks Kubernetes' own code, and runs the members of the StatefulSet.
///
/// # Errors
/// With what is wrong.
pub fn check(place: &Place) -> Result<()> {
    let folder = files().join("kubernetes");
    let status = Command::new(bin().join("kube-strict"))
        .args([folder.join("static-pod.yaml"), folder.join("statefulset.yaml")])
        .status()?;
    ensure!(status.success(), "an API server would refuse a manifest");
    for name in ["kubeadm-stacked.yaml", "kubeadm-external.yaml"] {
        let mut kubeadm = Command::new(bin().join("kubeadm"));
        let status = kubeadm.args(["config", "validate", "--config"]).arg(folder.join(name)).status()?;
        ensure!(status.success(), "kubeadm refuses {name}");
    }
    let shelf = place.shelf("kubernetes")?;
    let machines = fleet::start(&shelf, &members()?)?;
    for probe in probes()? {
        does(&machines[0], &format!("curl --silent --fail http://127.0.0.1:2381{probe}"))?;
    }
    does(&machines[2], "kvorum ctl --endpoints http://kvorum-0.kvorum-peers:2379 put k v").map(drop)
}

fn container() -> Result<Value> {
    let text = std::fs::read_to_string(files().join("kubernetes/statefulset.yaml"))?;
    let all: Vec<Value> = serde_saphyr::from_multiple(&text).context("statefulset.yaml")?;
    let set = all.into_iter().find(|one| one["kind"] == "StatefulSet").context("there is no StatefulSet")?;
    Ok(set["spec"]["template"]["spec"]["containers"][0].clone())
}

/// The paths that the kubelet asks of the metrics port.
fn probes() -> Result<Vec<String>> {
    let container = container()?;
    let path = |name: &str| {
        let get = &container[name]["httpGet"];
        ensure!(get["port"] == "metrics", "{name} asks another port");
        Ok(get["path"].as_str().with_context(|| format!("{name} has no path"))?.to_owned())
    };
    ["startupProbe", "readinessProbe", "livenessProbe"].into_iter().map(path).collect()
}

/// The pods of the StatefulSet.
///
/// # Errors
/// If it is not as it is written here.
pub fn members() -> Result<Vec<Service>> {
    let command = words(&container()?["command"])?;
    let check = ["etcdctl", "endpoint", "health"].map(str::to_owned).to_vec();
    let member = |at: usize| {
        let name = format!("kvorum-{at}");
        let command = command.iter().map(|word| word.replace("$(NAME)", &name)).collect();
        Service { name, command, check: check.clone() }
    };
    Ok((0..3).map(member).collect())
}
