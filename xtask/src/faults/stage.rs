//! A cluster of one of the programs, in namespaces, and what can be done to its members.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use tokio::time::sleep;
use wire::{Rpc, etcdserverpb as pb};

use super::{
    disks::{Disk, Tampered},
    net::{self, Net},
};
use crate::{
    raw::Raw,
    server::{Program, Server, Spec},
};

/// For a start or an election on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// For one look at a member.
const LOOK: Duration = Duration::from_millis(500);
const CLIENTS: u16 = 2379;
const PEERS: u16 = 2380;

/// The members and what is around them.
#[derive(Debug)]
pub struct Stage<'a> {
    /// Of the members.
    pub net: &'a Net,
    /// In the order of their names.
    pub members: Vec<Server>,
    disks: Vec<Disk>,
    tampered: Vec<Tampered>,
    dir: PathBuf,
    /// What ended without being told to.
    pub ended: Vec<String>,
}

impl<'a> Stage<'a> {
    /// Starts a new cluster. `disks`: each member has a small one of its own.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn new(net: &'a Net, program: &Program, count: usize, disks: bool, dir: &Path) -> Result<Stage<'a>> {
        net.mend().await?;
        let named = |at: usize| format!("m{at}=http://{}:{PEERS}", net::host(at));
        let initial: Vec<String> = (0..count).map(named).collect();
        let mut stage = Stage {
            net,
            members: Vec::new(),
            disks: Vec::new(),
            tampered: Vec::new(),
            dir: dir.to_owned(),
            ended: Vec::new(),
        };
        for at in 0..count {
            let name = format!("m{at}");
            let mut data_dir = dir.join(&name);
            if disks {
                stage.disks.push(Disk::new(dir, &name).await?);
                data_dir = stage.disks[at].folder();
            }
            let (path, mut first) = net::enter(at);
            first.push(program.path.to_string_lossy().into_owned());
            first.extend(program.first.clone());
            stage.members.push(Server::start(Spec {
                program: Program { path, first, own_group: true },
                host: net::host(at),
                client_port: CLIENTS,
                peer_port: PEERS,
                advertised_port: PEERS,
                initial_cluster: initial.join(","),
                data_dir,
                log: dir.join(format!("{name}.log")),
                extra: Vec::new(),
                name,
            })?);
        }
        stage.all_ready(PATIENCE).await?;
        Ok(stage)
    }

    /// Where the clients go.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(Server::endpoint).collect()
    }

    /// Waits until each answers a linearisable read. Who ended by itself is started again, once.
    ///
    /// # Errors
    /// If one does not.
    pub async fn all_ready(&mut self, within: Duration) -> Result<()> {
        for member in &mut self.members {
            if let Some(end) = member.ended() {
                self.ended.push(end);
                member.kill();
            }
            if !member.runs() {
                member.restart()?;
            }
        }
        for member in &mut self.members {
            member.ready(within).await?;
        }
        Ok(())
    }

    /// The member that leads, by its own word and with the highest term.
    ///
    /// # Errors
    /// If nobody does.
    pub async fn leader(&self) -> Result<usize> {
        let until = Instant::now() + PATIENCE;
        loop {
            let mut best = None;
            for at in 0..self.members.len() {
                let Some(status) = self.status(at).await else { continue };
                let own = status.header.as_ref().map_or(0, |header| header.member_id);
                if own == status.leader && best.is_none_or(|(term, _)| term < status.raft_term) {
                    best = Some((status.raft_term, at));
                }
            }
            if let Some((_, at)) = best {
                return Ok(at);
            }
            if Instant::now() > until {
                bail!("nobody leads");
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Its members but these, the next ones first.
    pub fn others(&self, but: &[usize]) -> Vec<usize> {
        let (count, from) = (self.members.len(), but.first().copied().unwrap_or(0));
        (0..count).map(|step| (from + step) % count).filter(|at| !but.contains(at)).collect()
    }

    async fn status(&self, at: usize) -> Option<pb::StatusResponse> {
        let asked = async {
            let raw = Raw::connect(&self.members[at].endpoint()).await.ok()?;
            raw.call::<_, pb::StatusResponse>(Rpc::Status, &pb::StatusRequest {}).await.ok()
        };
        tokio::time::timeout(LOOK, asked).await.ok()?
    }

    /// The leader hands over to another.
    ///
    /// # Errors
    /// If it does not.
    pub async fn hand_over(&self, leader: usize, to: usize) -> Result<()> {
        let Some(next) = self.status(to).await else { bail!("member {to} does not answer") };
        let target_id = next.header.map_or(0, |header| header.member_id);
        let raw = Raw::connect(&self.members[leader].endpoint()).await?;
        raw.call::<_, pb::MoveLeaderResponse>(Rpc::MoveLeader, &pb::MoveLeaderRequest { target_id }).await?;
        Ok(())
    }

    /// Its disk, if the members have disks of their own.
    pub fn disk(&self, at: usize) -> &Disk {
        &self.disks[at]
    }

    /// What `strace --inject` says happens to these calls of a member, until [`Stage::restore`].
    ///
    /// # Errors
    /// If it cannot be traced.
    pub async fn tamper(&mut self, at: usize, calls: &str, how: &str) -> Result<()> {
        let Some(pid) = self.members[at].pid() else { bail!("member {at} does not run") };
        self.tampered.push(Tampered::new(pid, calls, how).await?);
        Ok(())
    }

    /// Calls are as they were.
    ///
    /// # Errors
    /// If `strace` does not end.
    pub async fn restore(&mut self) -> Result<()> {
        for tampered in self.tampered.drain(..) {
            tampered.end().await?;
        }
        Ok(())
    }

    /// Notes who ended by itself.
    pub fn look(&mut self) {
        for member in &mut self.members {
            if let Some(end) = member.ended() {
                self.ended.push(end);
                member.kill();
            }
        }
    }

    /// The member's directory.
    pub fn data(&self, at: usize) -> &Path {
        &self.members[at].spec.data_dir
    }

    /// Ends everything, and removes what it wrote but for the logs.
    ///
    /// # Errors
    /// If a disk cannot be taken away.
    pub async fn end(mut self) -> Result<()> {
        self.restore().await?;
        self.members.iter_mut().for_each(Server::kill);
        for disk in self.disks.drain(..) {
            disk.end().await?;
        }
        std::fs::remove_dir_all(&self.dir)?;
        Ok(())
    }
}
