//! `cargo xtask deploy`: the files below `deploy/`, judged by the tools that they are for.
//!
//! Not part of `ci`: the tools come from Debian's packages. That the series which the files ask for
//! exist is a test of its own (`kvorum/tests/metrics.rs`).

use crate::peers::workspace;
use anyhow::{Context, Result, ensure};
use std::process::Command;

/// Alerts, their unit tests, and the example of a configuration.
const PROMTOOL: [&[&str]; 3] = [
    &["check", "rules", "kvorum.rules.yml"],
    &["test", "rules", "kvorum.rules.test.yml"],
    &["check", "config", "prometheus.yml"],
];

/// Runs every check.
pub fn deploy() -> Result<()> {
    let folder = workspace().join("deploy/prometheus");
    let text = std::fs::read_to_string(folder.join("dashboard.json")).context("the dashboard")?;
    serde_json::from_str::<serde_json::Value>(&text).context("deploy/prometheus/dashboard.json")?;
    for args in PROMTOOL {
        let status = Command::new("promtool").args(args).current_dir(&folder).status();
        let status = status.context("promtool does not run: apt-get install prometheus")?;
        ensure!(status.success(), "promtool {} failed", args.join(" "));
    }
    Ok(())
}
