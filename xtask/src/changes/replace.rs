//! One replacement by `kvorum ctl member replace`, which is killed now and then and run again.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use tokio::{process::Child, time::sleep};

use super::{
    Run,
    say::{at_url, listed},
};

/// How long one replacement may take, kills and all.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Run<'_> {
    /// Replaces a voter; in a part of the cases it is dead before, the command is killed and run
    /// again, or a member is killed meanwhile.
    pub(super) async fn replace(&mut self, round: u64) -> Result<()> {
        let old = if self.rng.percent(40) { self.stage.leader().await? } else { self.rng.pick(&self.stage.voters()) };
        let dead = self.rng.percent(25);
        if dead {
            self.stage.end(old);
            self.done.kills += 1;
            self.done.dead += 1;
        }
        let (at, url) = self.stage.vacant(&mut self.rng)?;
        // Who removes a dead member by its name and is killed then does not know its name again.
        let typed = if dead { format!("{:x}", self.stage.id(old)) } else { self.stage.name(old) };
        let mut kills = if self.rng.percent(50) { 1 + self.rng.below(3) } else { 0 };
        let mut victim = (!dead && self.rng.percent(40)).then(|| self.rng.pick(&self.stage.voters()));
        let mut command = self.command(&typed, &url)?;
        let mut kill_at = Instant::now() + Duration::from_millis(self.rng.below(4_000));
        let strike_at = Instant::now() + Duration::from_millis(self.rng.below(4_000));
        let (until, mut joined) = (Instant::now() + PATIENCE, false);
        loop {
            if command.try_wait()?.is_some() {
                let (good, told) = outcome(command).await?;
                if !good || !joined {
                    bail!("replacement {round} of {typed} by {url} {told}");
                }
                break;
            }
            if Instant::now() > until {
                command.start_kill()?;
                let (_, told) = outcome(command).await?;
                bail!("replacement {round} of {typed} by {url} takes longer than {PATIENCE:?}: it {told}");
            }
            if kills > 0 && Instant::now() > kill_at {
                kills -= 1;
                self.done.again += 1;
                command.kill().await?;
                command = self.command(&typed, &url)?;
                kill_at = Instant::now() + Duration::from_millis(self.rng.below(4_000));
            }
            if let Some(hit) = victim.filter(|_| Instant::now() > strike_at) {
                victim = None;
                if self.stage.kill(hit) {
                    self.done.kills += 1;
                    sleep(Duration::from_millis(50 + self.rng.below(1_000))).await;
                    self.stage.restart(hit)?;
                }
            }
            if !joined {
                joined = self.joins(at, &url).await?;
            }
            sleep(LOOK_EVERY).await;
        }
        self.stage.votes(at);
        self.done.replaced += 1;
        self.clears(old, dead).await
    }

    /// The old member has gone.
    async fn clears(&mut self, old: usize, dead: bool) -> Result<()> {
        match dead {
            true => self.stage.clears(old),
            false => {
                let comes_back = self.rng.percent(30);
                self.stage.ends_removed(old, comes_back).await?;
            }
        }
        self.stage.all_ready().await
    }

    /// Starts the new member as soon as a voter knows it.
    async fn joins(&mut self, at: usize, url: &str) -> Result<bool> {
        for voter in self.stage.voters() {
            let Ok(members) = listed(&self.stage.endpoint(voter), false).await else { continue };
            if at_url(&members, url).is_some() {
                self.stage.join(at, &members, true)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn command(&self, typed: &str, url: &str) -> Result<Child> {
        let voters: Vec<String> = self.stage.voters().iter().map(|at| self.stage.endpoint(*at)).collect();
        let mut command = tokio::process::Command::new(self.stage.program());
        command
            .args(["ctl", "member", "replace", typed, url, "--timeout", "110s"])
            .args(["--endpoints", &voters.join(",")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command.spawn().context("starting kvorum ctl")
    }
}

/// Whether the command has ended well; how it has ended, and all that it said.
async fn outcome(command: Child) -> Result<(bool, String)> {
    let output = command.wait_with_output().await?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Ok((output.status.success(), format!("ended with {}\n{said}\n{errors}", output.status)))
}
