//! The places, and the members that live there.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use tokio::time::sleep;
use wire::{Rpc, etcdserverpb as pb};

use super::say::at_url;
use crate::{
    raw::Raw,
    rng::Rng,
    server::{LOOPBACK, Program, Server, Spec, free_port},
};

/// How long a start, an end or an election may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// One life at a place.
#[derive(Debug)]
struct Tenant {
    server: Server,
    id: u64,
    learner: bool,
    /// Killed on purpose, and not to be started again.
    dead: bool,
}

/// A place: a client port, and who lives there.
#[derive(Debug)]
struct Place {
    client_port: u16,
    /// Drawn for the next life, or the next peer URL of this one.
    next_port: u16,
    tenant: Option<Tenant>,
}

/// All places.
#[derive(Debug)]
pub struct Stage {
    program: Program,
    dir: PathBuf,
    places: Vec<Place>,
    lives: u64,
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

impl Stage {
    /// Nobody lives there yet.
    pub fn new(program: &Program, dir: &Path, places: usize) -> Result<Stage> {
        let place = |_| Ok(Place { client_port: free_port()?, next_port: 0, tenant: None });
        let places = (0..places).map(place).collect::<Result<_>>()?;
        Ok(Stage { program: program.clone(), dir: dir.to_path_buf(), places, lives: 0 })
    }

    /// A cluster of one, which the others join.
    pub async fn found(&mut self) -> Result<()> {
        let port = free_port()?;
        let mut spec = self.spec(0, port, String::new());
        spec.initial_cluster = format!("{}={}", spec.name, url(port));
        spec.extra.clear();
        let mut server = Server::start(spec)?;
        server.ready(PATIENCE).await?;
        let status: pb::StatusResponse =
            Raw::connect(&server.endpoint()).await?.call(Rpc::Status, &pb::StatusRequest {}).await?;
        let id = status.header.context("a header")?.member_id;
        self.places[0].tenant = Some(Tenant { server, id, learner: false, dead: false });
        Ok(())
    }

    /// Of a new life at a place.
    fn spec(&mut self, at: usize, peer_port: u16, initial_cluster: String) -> Spec {
        self.lives += 1;
        let name = format!("n{}", self.lives);
        Spec {
            host: LOOPBACK.to_owned(),
            program: self.program.clone(),
            client_port: self.places[at].client_port,
            peer_port,
            advertised_port: peer_port,
            initial_cluster,
            data_dir: self.dir.join(&name),
            log: self.dir.join(format!("{name}.log")),
            extra: vec!["--initial-cluster-state=existing".to_owned()],
            name,
        }
    }

    /// The client endpoints of all places.
    pub fn endpoints(&self) -> Vec<String> {
        (0..self.places.len()).map(|at| self.endpoint(at)).collect()
    }

    /// The client endpoint of a place.
    pub fn endpoint(&self, at: usize) -> String {
        format!("127.0.0.1:{}", self.places[at].client_port)
    }

    fn tenant(&mut self, at: usize) -> &mut Tenant {
        self.places[at].tenant.as_mut().expect("somebody lives there")
    }

    /// The places of those that vote and are not dead for good.
    pub fn voters(&self) -> Vec<usize> {
        let votes = |at: &usize| self.places[*at].tenant.as_ref().is_some_and(|it| !it.learner && !it.dead);
        (0..self.places.len()).filter(votes).collect()
    }

    /// The place of a learner.
    pub fn learner(&self) -> Option<usize> {
        self.places.iter().position(|place| place.tenant.as_ref().is_some_and(|it| it.learner))
    }

    /// The id of who lives there.
    pub fn id(&self, at: usize) -> u64 {
        self.places[at].tenant.as_ref().expect("somebody lives there").id
    }

    /// The name of who lives there.
    pub fn name(&self, at: usize) -> String {
        self.places[at].tenant.as_ref().expect("somebody lives there").server.spec.name.clone()
    }

    /// A place where nobody lives, and the peer URL of its next life.
    pub fn vacant(&mut self, rng: &mut Rng) -> Result<(usize, String)> {
        let vacant: Vec<usize> = (0..self.places.len()).filter(|at| self.places[*at].tenant.is_none()).collect();
        if vacant.is_empty() {
            bail!("every place is taken");
        }
        let at = rng.pick(&vacant);
        Ok((at, self.new_url(at)?))
    }

    /// Another peer URL for a place.
    pub fn new_url(&mut self, at: usize) -> Result<String> {
        self.places[at].next_port = free_port()?;
        Ok(url(self.places[at].next_port))
    }

    /// Starts a member that was added with the URL of the place; `listed`: all members.
    pub fn join(&mut self, at: usize, listed: &[pb::Member], learner: bool) -> Result<()> {
        let port = self.places[at].next_port;
        let own = at_url(listed, &url(port)).context("it is listed")?;
        let mut spec = self.spec(at, port, String::new());
        let named = listed.iter().map(|member| {
            let name = if member.id == own.id { &spec.name } else { &member.name };
            format!("{name}={}", member.peer_urls[0])
        });
        spec.initial_cluster = named.collect::<Vec<_>>().join(",");
        let (id, server) = (own.id, Server::start(spec)?);
        self.places[at].tenant = Some(Tenant { server, id, learner, dead: false });
        Ok(())
    }

    /// The learner has got its vote.
    pub fn votes(&mut self, at: usize) {
        self.tenant(at).learner = false;
    }

    /// Kills it, if it runs and may; true if it was killed.
    pub fn kill(&mut self, at: usize) -> bool {
        let Some(tenant) = &mut self.places[at].tenant else { return false };
        let runs = tenant.server.runs() && tenant.server.ended().is_none();
        if runs {
            tenant.server.kill();
        }
        runs
    }

    /// Kills it for good.
    pub fn end(&mut self, at: usize) {
        self.kill(at);
        self.tenant(at).dead = true;
    }

    /// Starts it again after a kill.
    pub fn restart(&mut self, at: usize) -> Result<()> {
        match &mut self.places[at].tenant {
            Some(tenant) if !tenant.server.runs() && !tenant.dead => tenant.server.restart(),
            _ => Ok(()),
        }
    }

    /// Stops it, and starts it with its new peer URL.
    pub async fn moves(&mut self, at: usize) -> Result<()> {
        let port = self.places[at].next_port;
        let tenant = self.tenant(at);
        tenant.server.terminate().await;
        (tenant.server.spec.peer_port, tenant.server.spec.advertised_port) = (port, port);
        tenant.server.restart()
    }

    /// Waits until it answers reads; a learner until it has applied something.
    pub async fn serves(&mut self, at: usize) -> Result<()> {
        if !self.tenant(at).learner {
            return self.tenant(at).server.ready(PATIENCE).await;
        }
        let (endpoint, until) = (self.endpoint(at), Instant::now() + PATIENCE);
        loop {
            if let Some(end) = self.tenant(at).server.ended() {
                bail!("{end}");
            }
            let asked = async {
                let raw = Raw::connect(&endpoint).await?;
                Ok::<pb::StatusResponse, anyhow::Error>(raw.call(Rpc::Status, &pb::StatusRequest {}).await?)
            };
            if asked.await.is_ok_and(|status| status.raft_applied_index > 0 && status.leader != 0) {
                return Ok(());
            }
            if Instant::now() > until {
                bail!("the learner {} does not come", self.name(at));
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until all serve.
    pub async fn all_ready(&mut self) -> Result<()> {
        for at in 0..self.places.len() {
            if self.places[at].tenant.as_ref().is_some_and(|it| !it.dead) {
                self.restart(at)?;
                self.serves(at).await?;
            }
        }
        Ok(())
    }

    /// # Errors
    /// A member ended by itself.
    pub fn still_run(&mut self) -> Result<()> {
        for place in &mut self.places {
            if let Some(end) = place.tenant.as_mut().and_then(|tenant| tenant.server.ended()) {
                bail!("{end}");
            }
        }
        Ok(())
    }

    /// The place of the leader.
    pub async fn leader(&self) -> Result<usize> {
        let until = Instant::now() + PATIENCE;
        loop {
            for at in self.voters() {
                let Ok(raw) = Raw::connect(&self.endpoint(at)).await else { continue };
                let asked: Result<pb::StatusResponse, _> = raw.call(Rpc::Status, &pb::StatusRequest {}).await;
                if asked.is_ok_and(|status| status.header.is_some_and(|header| header.member_id == status.leader)) {
                    return Ok(at);
                }
            }
            if Instant::now() > until {
                bail!("nobody leads");
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// It was removed: it ends by itself, and the place is free. `comes_back`: it is started once
    /// more on its directory, and ends again.
    pub async fn ends_removed(&mut self, at: usize, comes_back: bool) -> Result<()> {
        let mut tenant = self.places[at].tenant.take().expect("somebody lives there");
        let lives = if comes_back { 2 } else { 1 };
        for life in 0..lives {
            if !tenant.server.runs() {
                tenant.server.restart()?;
            }
            let until = Instant::now() + PATIENCE;
            let end = loop {
                match tenant.server.ended() {
                    Some(end) => break end,
                    None if Instant::now() > until => {
                        let tail = tenant.server.log_tail();
                        bail!("{} was removed and runs on (life {life})\n{tail}", tenant.server.spec.name);
                    }
                    None => sleep(LOOK_EVERY).await,
                }
            };
            if !end.contains("exit status: 0") {
                bail!("{end}, though it was removed\n{}", tenant.server.log_tail());
            }
            tenant.server.kill();
        }
        // What nobody needs any more fills the disk.
        let _ = std::fs::remove_dir_all(&tenant.server.spec.data_dir);
        Ok(())
    }

    /// It was dead and was removed: the place is free.
    pub fn clears(&mut self, at: usize) {
        if let Some(tenant) = self.places[at].tenant.take() {
            let _ = std::fs::remove_dir_all(&tenant.server.spec.data_dir);
        }
    }

    /// The last lines of all logs of those that live somewhere.
    pub fn tails(&self) -> Vec<String> {
        self.places.iter().filter_map(|place| Some(place.tenant.as_ref()?.server.log_tail())).collect()
    }

    /// The program.
    pub fn program(&self) -> &Path {
        &self.program.path
    }
}
