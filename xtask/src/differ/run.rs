//! A script on both sides, step by step, until an answer differs.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use prost::Message;
use tokio::join;
use wire::etcdserverpb::{self as pb, watch_request::RequestUnion};

use super::{
    known,
    plant::Plant,
    side::Side,
    step::Step,
    watches::{PATIENCE, Story},
};
use crate::server::Program;

/// How long a watch may take to be fed from history: both servers look each
/// tenth of a second.
const RIPE: Duration = Duration::from_millis(250);

/// Two answers to one step.
#[derive(Clone, Debug)]
pub struct Difference {
    pub at: usize,
    pub step: Step,
    pub left: String,
    pub right: String,
}

/// The programs compared, and what both get.
#[derive(Clone, Debug)]
pub struct Pair {
    pub left: Program,
    pub right: Program,
    pub extra: Vec<String>,
    pub trace: bool,
}

/// Both servers, new.
#[derive(Debug)]
pub struct Run {
    left: Side,
    right: Side,
    /// When all watches created so far are fed from history for certain.
    ripe: Instant,
    /// Answers compared.
    pub compared: u64,
    trace: bool,
}

impl Run {
    /// Starts both sides in an empty folder.
    pub async fn start(pair: &Pair, dir: &Path) -> Result<Run> {
        let (left_dir, right_dir) = (dir.join("left"), dir.join("right"));
        let (left, right) =
            join!(Side::start(&pair.left, &left_dir, &pair.extra), Side::start(&pair.right, &right_dir, &pair.extra),);
        Ok(Run { left: left?, right: right?, ripe: Instant::now(), compared: 0, trace: pair.trace })
    }

    /// Runs a script to its end or to the first difference.
    ///
    /// # Errors
    /// If a server is lost.
    pub async fn script(&mut self, script: &[Step], plant: Option<(usize, Plant)>) -> Result<Option<Difference>> {
        for (at, step) in script.iter().enumerate() {
            if let Some((_, what)) = plant.filter(|(when, _)| *when == at) {
                self.right.planted.set(what);
            }
            if self.trace {
                eprintln!("{at:5} {step:?}");
            }
            let parted = self.step(step).await?;
            for side in [&mut self.left, &mut self.right] {
                if let Some(end) = side.server.ended() {
                    bail!("step {at}: {end} at {step:?}\n{}", side.server.log_tail());
                }
            }
            if let Some((step, left, right)) = parted {
                return Ok(Some(Difference { at, step, left, right }));
            }
        }
        Ok(None)
    }

    async fn step(&mut self, step: &Step) -> Result<Option<(Step, String, String)>> {
        let (current, compacted) = (self.left.current, self.left.compacted);
        if step.needs_calm() && !self.left.streams.is_empty() {
            tokio::time::sleep(self.ripe.saturating_duration_since(Instant::now())).await;
            if let Some(parted) = self.settle().await {
                return Ok(Some(parted));
            }
        }
        let for_left = self.left.meaning(self.left.current, compacted).fill(step);
        let for_right = self.right.meaning(self.left.current, compacted).fill(step);
        if let Step::As { who, .. } = step {
            self.left.act_as(Some(*who));
            self.right.act_as(Some(*who));
        }
        let parted = self.carry_out(&for_left, &for_right, current).await?;
        self.left.act_as(None);
        self.right.act_as(None);
        Ok(parted.map(|(left, right)| (for_left, left, right)))
    }

    async fn carry_out(&mut self, left: &Step, right: &Step, current: i64) -> Result<Option<(String, String)>> {
        let (for_left, for_right) = match (left, right) {
            (Step::As { step: left, .. }, Step::As { step: right, .. }) => (&**left, &**right),
            others => others,
        };
        match for_left {
            Step::Watch { stream, request } => self.watch(*stream, request, current).await,
            Step::WatchBytes { stream, request } => {
                join!(self.left.stream(*stream), self.right.stream(*stream));
                let (left, right) = (&self.left.streams[stream], &self.right.streams[stream]);
                left.send(request.clone());
                right.send(request.clone());
                // Whatever it is, it is no more than the end of the stream.
                let wait = Duration::from_millis(300);
                join!(left.until(wait, |_| false), right.until(wait, |_| false));
                if let Some((_, left, right)) = self.settle().await {
                    return Ok(Some((left, right)));
                }
                self.close(*stream);
            }
            Step::Close { stream } => self.close(*stream),
            Step::Restart { kill } => {
                let (left, right) = join!(self.left.restart(*kill), self.right.restart(*kill));
                left.context("left")?;
                right.context("right")?;
            }
            _ => {}
        }
        let (left, right) = join!(self.left.run(for_left), self.right.run(for_right));
        if self.trace && !left.is_empty() {
            eprintln!("      -> {}", left.chars().take(300).collect::<String>());
        }
        self.compared += 1;
        let differs = left != right && known::reason(for_left, &left, &right).is_none();
        Ok(differs.then_some((left, right)))
    }

    fn close(&mut self, stream: usize) {
        self.left.streams.remove(&stream);
        self.right.streams.remove(&stream);
    }

    /// Sends a watch request on both sides and waits for what it brings.
    async fn watch(&mut self, number: usize, request: &pb::WatchRequest, current: i64) {
        join!(self.left.stream(number), self.right.stream(number));
        let (left, right) = (&self.left.streams[&number], &self.right.streams[&number]);
        let before = |side: &super::watches::WatchStream| {
            let story = side.story();
            (story.controls, story.progress)
        };
        let ((left_controls, left_progress), (right_controls, right_progress)) = (before(left), before(right));
        left.send(request.encode_to_vec().into());
        right.send(request.encode_to_vec().into());
        match &request.request_union {
            Some(RequestUnion::CreateRequest(create)) => {
                let wait = PATIENCE;
                join!(
                    left.until(wait, |s| s.controls > left_controls),
                    right.until(wait, |s| s.controls > right_controls),
                );
                if create.start_revision > 0 && create.start_revision <= current {
                    self.ripe = Instant::now() + RIPE;
                }
            }
            Some(RequestUnion::CancelRequest(_)) => {
                let answered = left.until(Duration::from_millis(60), |s| s.controls > left_controls).await;
                if answered {
                    right.until(PATIENCE, |s| s.controls > right_controls).await;
                }
            }
            _ => {
                let answered = left.until(Duration::from_millis(60), |s| s.progress > left_progress).await;
                if answered {
                    right.until(PATIENCE, |s| s.progress > right_progress).await;
                }
            }
        }
    }

    /// Waits until every stream has told of a new barrier, then compares what
    /// all watches have told.
    async fn settle(&mut self) -> Option<(Step, String, String)> {
        let (left, right) = join!(self.left.barrier(), self.right.barrier());
        if left != right {
            return Some((Step::Settle, left, right));
        }
        // An alarm may forbid it.
        let passed = !left.starts_with("code ");
        let (left_at, right_at) = (self.left.current, self.right.current);
        for (number, left) in &self.left.streams {
            let right = &self.right.streams[number];
            let (l, r) = if passed && left.has_barrier() && right.has_barrier() {
                join!(left.reach(left_at), right.reach(right_at))
            } else {
                join!(left.calm(left_at), right.calm(right_at));
                (true, true)
            };
            if !l || !r {
                let tell = |reached| format!("stream {number}: the barrier {left_at} came: {reached}");
                return Some((Step::Settle, tell(l), tell(r)));
            }
            let deadline = Instant::now() + PATIENCE;
            loop {
                // The locks must not be held while more is waited for.
                let parted = Story::parting(&left.story(), &right.story());
                let Some((left, right)) = parted else { break };
                if Instant::now() > deadline {
                    let tell = |what| format!("stream {number}, {what}");
                    return Some((Step::Settle, tell(left), tell(right)));
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            self.compared += 1;
        }
        None
    }
}
