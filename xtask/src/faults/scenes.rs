//! The scenarios: what is done to the cluster, and to whom.

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::time::sleep;

use super::stage::Stage;

/// One scenario.
#[derive(Debug)]
pub struct Scene {
    /// As it is asked for.
    pub name: &'static str,
    /// For the page.
    pub what: &'static str,
    /// How many members there are.
    pub members: usize,
    /// A majority was well and connected all the time: no lease may end.
    pub majority: bool,
    /// What is needed.
    pub needs: Needs,
}

/// What a scenario needs beside processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// Small disks of their own.
    Disks,
    /// The same, and large values that fill them.
    Full,
}

const fn scene(name: &'static str, members: usize, majority: bool, needs: Needs, what: &'static str) -> Scene {
    Scene { name, what, members, majority, needs }
}

/// All scenarios, in the order in which they are run.
#[rustfmt::skip]
pub const SCENES: &[Scene] = &[
    scene("leader-kill", 3, true, Needs::Nothing, "the leader is killed (SIGKILL), back after 4 s"),
    scene("leader-pause", 3, true, Needs::Nothing, "the leader is stopped (SIGSTOP) for 5 s"),
    scene("leader-long", 3, true, Needs::Nothing, "the leader is stopped for 12 s, longer than the lease lives"),
    scene("all-paused", 3, false, Needs::Nothing, "all members are stopped for 3 s"),
    scene("disk-stall", 3, true, Needs::Disks, "the leader's disk takes no write for 5 s (fsfreeze)"),
    scene("disk-hang", 3, true, Needs::Disks, "the same for 12 s, longer than the lease lives"),
    scene("flush-slow", 3, true, Needs::Nothing, "each flush of a follower takes 2 s more (strace), for 6 s"),
    scene("move-leader", 3, true, Needs::Nothing, "the leader hands over (MoveLeader)"),
    scene("leader-term", 3, true, Needs::Nothing, "the leader is told to end (SIGTERM), back after 4 s"),
    scene("power-off", 3, true, Needs::Nothing, "the leader's cable is pulled, then it is killed: nothing is closed; back after 5 s"),
    scene("unplug", 3, true, Needs::Nothing, "the leader's cable is pulled for 5 s; it runs on"),
    scene("flap", 3, true, Needs::Nothing, "the leader's cable is pulled and put back, ten times in 6 s"),
    scene("split", 5, true, Needs::Nothing, "the leader and one other on one side, three on the other, for 6 s"),
    scene("leader-mute", 3, true, Needs::Nothing, "what the leader sends to the others is lost for 6 s"),
    scene("leader-deaf", 3, true, Needs::Nothing, "what the others send to the leader is lost for 6 s"),
    scene("follower-mute", 3, true, Needs::Nothing, "what a follower sends to the others is lost for 6 s"),
    scene("quorum-loss", 5, true, Needs::Nothing, "all but one hear only that one, which does not lead, for 8 s"),
    scene("constrained", 5, false, Needs::Nothing, "the same with the leader cut off alone, and the one behind: by Raft's rules nobody can lead for these 8 s"),
    scene("chained", 3, true, Needs::Nothing, "a chain with the leader at its end, for 6 s"),
    scene("one-follower", 5, true, Needs::Nothing, "only one follower sees the leader, all others see one another, for 8 s"),
    scene("narrow", 3, true, Needs::Nothing, "the leader's link carries 300 kbit/s and loses the rest, for 6 s"),
    scene("starved", 3, true, Needs::Nothing, "the leader gets a tenth of a processor (stopped 90 ms of 100) for 6 s"),
    scene("full-one", 3, true, Needs::Full, "the leader's disk is full for 8 s"),
    scene("full-all", 3, false, Needs::Full, "all disks are full for 8 s"),
    scene("flush-eio", 3, true, Needs::Nothing, "flushes of the leader fail once with EIO (strace); back after 4 s"),
    scene("write-eio", 3, true, Needs::Nothing, "the 20th write of the leader's files fails with EIO (strace); back after 4 s"),
    scene("write-enospc", 3, true, Needs::Nothing, "the 20th write of the leader's files fails with ENOSPC (strace); back after 4 s"),
    scene("torn-tail", 3, true, Needs::Nothing, "a follower is killed, and the end of its last log write is zeros"),
    scene("all-killed", 3, false, Needs::Nothing, "all are killed at once, back after 1 s"),
    scene("rolling", 3, true, Needs::Nothing, "each member in turn is told to end and started again"),
    scene("quorum-lost", 3, false, Needs::Nothing, "two of three are killed, back after 6 s"),
    scene("two-processes", 3, true, Needs::Nothing, "a second process is started on the leader's directory"),
];

/// What was done.
#[derive(Debug, Default)]
pub struct Played {
    /// Members that were not well.
    pub hurt: Vec<usize>,
    /// What must not be.
    pub wrong: Vec<String>,
}

/// Plays a scenario through, until the fault is over.
///
/// # Errors
/// If something of the machine's does not do what it should.
pub async fn play(stage: &mut Stage<'_>, name: &str) -> Result<Played> {
    let leader = stage.leader().await?;
    let others = stage.others(&[leader]);
    let mut played = Played { hurt: vec![leader], ..Played::default() };
    match name {
        "leader-kill" => killed(stage, &[leader], 4).await?,
        "leader-pause" => paused(stage, &[leader], 5).await,
        "leader-long" => paused(stage, &[leader], 12).await,
        "all-paused" => {
            played.hurt = stage.others(&[]);
            paused(stage, &played.hurt, 3).await;
        }
        "move-leader" => {
            stage.hand_over(leader, others[0]).await?;
            seconds(2).await;
            played.hurt.clear();
        }
        "leader-term" => {
            stage.members[leader].terminate().await;
            seconds(4).await;
            stage.members[leader].restart()?;
        }
        "rolling" => {
            played.hurt = stage.others(&[]);
            for at in played.hurt.clone() {
                stage.members[at].terminate().await;
                stage.members[at].restart()?;
                stage.members[at].ready(Duration::from_secs(30)).await?;
            }
        }
        "starved" => starved(stage, leader).await,
        "all-killed" => {
            played.hurt = stage.others(&[]);
            killed(stage, &played.hurt, 1).await?;
        }
        "quorum-lost" => {
            played.hurt = others;
            killed(stage, &played.hurt, 6).await?;
        }
        "torn-tail" => {
            played.hurt = vec![others[0]];
            torn(stage, others[0]).await?;
        }
        "two-processes" => {
            played.hurt.clear();
            played.wrong.extend(second(stage, leader).await?);
        }
        "disk-stall" | "disk-hang" | "flush-slow" | "full-one" | "full-all" | "flush-eio" | "write-eio"
        | "write-enospc" => {
            played.hurt = disk(stage, name, leader, &others).await?;
        }
        _ => played.hurt = network(stage, name, leader, &others).await?,
    }
    Ok(played)
}

async fn seconds(count: u64) {
    sleep(Duration::from_secs(count)).await;
}

async fn killed(stage: &mut Stage<'_>, whom: &[usize], away: u64) -> Result<()> {
    // All of them before the first is waited for.
    whom.iter().for_each(|at| stage.members[*at].pause());
    whom.iter().for_each(|at| stage.members[*at].kill());
    seconds(away).await;
    whom.iter().try_for_each(|at| stage.members[*at].restart())
}

async fn paused(stage: &Stage<'_>, whom: &[usize], away: u64) {
    whom.iter().for_each(|at| stage.members[*at].pause());
    seconds(away).await;
    whom.iter().for_each(|at| stage.members[*at].resume());
}

async fn starved(stage: &Stage<'_>, leader: usize) {
    for _ in 0..60 {
        stage.members[leader].pause();
        sleep(Duration::from_millis(90)).await;
        stage.members[leader].resume();
        sleep(Duration::from_millis(10)).await;
    }
}

/// Faults of the network; gives who was not well.
async fn network(stage: &mut Stage<'_>, name: &str, leader: usize, others: &[usize]) -> Result<Vec<usize>> {
    let hurt = match name {
        "power-off" | "unplug" | "flap" | "narrow" => cable(stage, name, leader).await?,
        "quorum-loss" | "constrained" | "chained" | "one-follower" => partial(stage, name, leader, others).await?,
        _ => cut(stage, name, leader, others).await?,
    };
    stage.net.mend().await?;
    if !stage.members[leader].runs() {
        stage.members[leader].restart()?;
    }
    Ok(hurt)
}

/// What happens to the leader's cable.
async fn cable(stage: &mut Stage<'_>, name: &str, leader: usize) -> Result<Vec<usize>> {
    let net = stage.net;
    match name {
        "flap" => {
            const SOON: Duration = Duration::from_millis(300);
            for _ in 0..10 {
                net.unplug(leader).await?;
                sleep(SOON).await;
                net.plug(leader).await?;
                sleep(SOON).await;
            }
        }
        "narrow" => {
            net.narrow(leader, 300).await?;
            seconds(6).await;
        }
        _ => {
            net.unplug(leader).await?;
            if name == "power-off" {
                stage.members[leader].kill();
            }
            seconds(5).await;
        }
    }
    Ok(vec![leader])
}

/// Two sides that do not see each other, or one way that is cut.
async fn cut(stage: &Stage<'_>, name: &str, leader: usize, others: &[usize]) -> Result<Vec<usize>> {
    let net = stage.net;
    let mut hurt = vec![leader];
    match name {
        "split" => {
            hurt.push(others[0]);
            net.split(&hurt, &others[1..]).await?;
        }
        "leader-mute" => {
            for other in others {
                net.mute(leader, *other).await?;
            }
        }
        "leader-deaf" => {
            for other in others {
                net.mute(*other, leader).await?;
            }
        }
        "follower-mute" => {
            hurt = vec![others[0]];
            for other in stage.others(&hurt) {
                net.mute(others[0], other).await?;
            }
        }
        unknown => anyhow::bail!("{unknown}: no such scenario"),
    }
    seconds(6).await;
    Ok(hurt)
}

/// Some see one another and some do not.
async fn partial(stage: &Stage<'_>, name: &str, leader: usize, others: &[usize]) -> Result<Vec<usize>> {
    let net = stage.net;
    // The one that hears all others.
    let hub = others[0];
    let mut hurt = stage.others(&[hub]);
    match name {
        "quorum-loss" => apart(stage, &hurt).await?,
        "constrained" => {
            // It has missed some of the story.
            net.split(&[hub], &hurt).await?;
            sleep(Duration::from_millis(700)).await;
            net.mend().await?;
            apart(stage, &others[1..]).await?;
            net.split(&[leader], others).await?;
        }
        "chained" => {
            // Either end sees the middle alone, which is the one that is well.
            net.cut(leader, hub).await?;
            hurt = vec![leader, hub];
        }
        _ => {
            net.split(&[leader], &others[1..]).await?;
            hurt = vec![leader];
        }
    }
    seconds(if stage.members.len() == 3 { 6 } else { 8 }).await;
    Ok(hurt)
}

/// None of them hears another.
async fn apart(stage: &Stage<'_>, members: &[usize]) -> Result<()> {
    for (at, one) in members.iter().enumerate() {
        stage.net.split(&[*one], &members[at + 1..]).await?;
    }
    Ok(())
}

/// Faults of disks; gives who was not well.
async fn disk(stage: &mut Stage<'_>, name: &str, leader: usize, others: &[usize]) -> Result<Vec<usize>> {
    const FLUSHES: &str = "fdatasync,fsync";
    const WRITES: &str = "pwrite64,pwritev,pwritev2";
    match name {
        "disk-stall" | "disk-hang" => {
            stage.disk(leader).freeze().await?;
            seconds(if name == "disk-stall" { 5 } else { 12 }).await;
            stage.disk(leader).thaw().await?;
        }
        "flush-slow" => {
            stage.tamper(others[0], FLUSHES, "delay_enter=2000000").await?;
            seconds(6).await;
            stage.restore().await?;
            return Ok(vec![others[0]]);
        }
        "full-one" | "full-all" => {
            let all = stage.others(&[]);
            let full = if name == "full-one" { vec![leader] } else { all };
            full.iter().try_for_each(|at| stage.disk(*at).fill())?;
            seconds(8).await;
            stage.look();
            full.iter().try_for_each(|at| stage.disk(*at).free())?;
            return Ok(full);
        }
        "flush-eio" => fails(stage, leader, FLUSHES, "error=EIO:when=1").await?,
        "write-eio" => fails(stage, leader, WRITES, "error=EIO:when=20").await?,
        _ => fails(stage, leader, WRITES, "error=ENOSPC:when=20").await?,
    }
    Ok(vec![leader])
}

async fn fails(stage: &mut Stage<'_>, at: usize, calls: &str, how: &str) -> Result<()> {
    stage.tamper(at, calls, how).await?;
    seconds(4).await;
    stage.look();
    stage.restore().await
}

/// Kills it, and makes zeros of the last bytes of its log, as if half of a write had come through.
async fn torn(stage: &mut Stage<'_>, at: usize) -> Result<()> {
    const TORN: usize = 100;
    stage.members[at].kill();
    let newest = newest_log(stage.data(at))?;
    // Such a file is large: the clients do not wait for it.
    let work = tokio::task::spawn_blocking(move || {
        let bytes = fs::read(&newest)?;
        let end = bytes.iter().rposition(|byte| *byte != 0).context("an empty log")? + 1;
        let from = end.saturating_sub(TORN);
        fs::File::options().write(true).open(&newest)?.write_all_at(&vec![0; end - from], from as u64)?;
        Ok::<(), anyhow::Error>(())
    });
    work.await??;
    seconds(2).await;
    stage.members[at].restart()
}

/// The log file that was written last: below `member/wal` or `log`.
fn newest_log(data: &Path) -> Result<PathBuf> {
    let folder = ["member/wal", "log"].iter().map(|name| data.join(name)).find(|folder| folder.is_dir());
    let folder = folder.with_context(|| format!("{} has no log", data.display()))?;
    let logs = fs::read_dir(&folder)?.filter_map(Result::ok).map(|entry| entry.path());
    let is_log = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('0'));
    let logs = logs.filter(|path| is_log(path) && path.extension().is_some_and(|ending| ending != "tmp"));
    logs.max().with_context(|| format!("{} is empty", folder.display()))
}

/// A second process on the directory must end, and say why.
async fn second(stage: &mut Stage<'_>, at: usize) -> Result<Option<String>> {
    let mut spec = stage.members[at].spec.clone();
    spec.log.set_extension("second.log");
    (spec.client_port, spec.peer_port) = (spec.client_port + 100, spec.peer_port + 100);
    let mut second = crate::server::Server::start(spec)?;
    // etcd waits for the lock without an end; it must only not serve.
    const LOOK: Duration = Duration::from_secs(4);
    let serves = tokio::time::timeout(LOOK, second.ready(LOOK)).await.is_ok_and(|ready| ready.is_ok());
    second.kill();
    Ok(serves.then(|| "two processes serve one directory".to_owned()))
}
