//! A cluster whose members come and go, get a vote, move and hand over, under the clients of the
//! kill-loop and under kills; and members that are replaced by `kvorum ctl member replace`, which
//! is killed and run again itself.
//!
//! There are more places for members than members: a place has a client port of its own, and every
//! life there has a new name, a new directory and a new peer port. What the clients were told is
//! held against the history as in the kill-loop.

mod replace;
mod say;
mod stage;

use std::{
    fmt,
    io::Write,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use self::{
    say::{Change, Said},
    stage::Stage,
};
use crate::{
    killloop::{self, WATCHERS, check, clients::World},
    peers,
    rng::Rng,
    server::Program,
};

/// Places for members.
const PLACES: usize = 7;
/// Voters that the cluster has at most.
const MOST: usize = 5;
/// Voters of the cluster whose members are replaced.
const REPLACED_OF: usize = 3;

/// What `xtask changes` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// How many changes of the members.
    #[arg(long, default_value_t = 500)]
    pub changes: u64,
    /// How many replacements by the one command, behind the changes.
    #[arg(long, default_value_t = 100)]
    pub replacements: u64,
    /// The program [default: this workspace's release build].
    #[arg(long, value_name = "PROGRAM")]
    pub bin: Option<PathBuf>,
    /// Decides what is changed, and who is killed and when.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Runs them.
///
/// # Errors
/// At the first thing that is lost, stale, doubled or different, and at a change that does not come
/// about; the data directories are kept and named.
pub async fn changes(args: &Args) -> Result<()> {
    let path = match &args.bin {
        Some(path) => path.clone(),
        None => peers::kvorum()?,
    };
    let program = Program::new(&path)?;
    let dir = tempfile::Builder::new().prefix("changes").tempdir()?;
    println!("changes: seed {}, {} changes, {} replacements", args.seed, args.changes, args.replacements);
    let mut stage = Stage::new(&program, dir.path(), PLACES)?;
    match rounds(args, &mut stage).await {
        Ok(()) => Ok(()),
        Err(error) => {
            let kept = dir.keep();
            println!();
            stage.tails().iter().for_each(|tail| println!("{tail}"));
            Err(error.context(format!("seed {}, kept: {}", args.seed, kept.display())))
        }
    }
}

/// What was done so far.
#[derive(Debug, Default)]
struct Done {
    by_kind: [u64; 6],
    kills: u64,
    replaced: u64,
    /// Replacements of a member that was dead.
    dead: u64,
    /// Kills of the command itself.
    again: u64,
    /// The longest change, and the longest replacement.
    longest: [Duration; 2],
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["voters added", "learners added", "promoted", "removed", "moved", "leaders moved"];
        for (name, count) in names.iter().zip(self.by_kind) {
            write!(f, "{count} {name}, ")?;
        }
        write!(
            f,
            "{} replaced ({} of them dead, the command killed {} times), {} kills, longest {:.1} and {:.1} s",
            self.replaced,
            self.dead,
            self.again,
            self.kills,
            self.longest[0].as_secs_f64(),
            self.longest[1].as_secs_f64()
        )
    }
}

/// One run.
struct Run<'r> {
    stage: &'r mut Stage,
    world: Arc<World>,
    rng: Rng,
    done: Done,
    compacted: i64,
    begin: Instant,
}

async fn rounds(args: &Args, stage: &mut Stage) -> Result<()> {
    stage.found().await?;
    let world = Arc::new(World::new(stage.endpoints(), WATCHERS));
    world.set_live(stage.voters());
    let work = killloop::start(&world, args.seed, 0);
    let mut run =
        Run { stage, world, rng: Rng::new(args.seed), done: Done::default(), compacted: 0, begin: Instant::now() };
    for round in 1..=args.changes {
        let asked = Instant::now();
        let change = run.draw();
        run.change(change).await.with_context(|| format!("change {round}: {change:?}; {}", run.done))?;
        run.done.longest[0] = run.done.longest[0].max(asked.elapsed());
        run.look(round, args.changes, "change").await?;
    }
    run.three().await.context("back to three voters")?;
    for round in 1..=args.replacements {
        let asked = Instant::now();
        run.replace(round).await.with_context(|| format!("replacement {round}; {}", run.done))?;
        run.done.longest[1] = run.done.longest[1].max(asked.elapsed());
        run.look(round, args.replacements, "replacement").await?;
    }
    drop(work);
    println!("\nchanges: seed {}: {}", args.seed, run.done);
    println!("changes: nothing lost, nothing stale, every revision seen once, hashes equal");
    Ok(())
}

impl Run<'_> {
    /// Looks whether all is well, now and then in all detail.
    async fn look(&mut self, round: u64, of: u64, what: &str) -> Result<()> {
        self.stage.still_run()?;
        self.world.set_live(self.stage.voters());
        let problems = self.world.expected().problems.clone();
        if !problems.is_empty() {
            bail!("{what} {round}: {}\n  {}", self.done, problems.join("\n  "));
        }
        if round.is_multiple_of(5) || round == of {
            let checked = check::check(&self.world, self.compacted, &mut self.rng).await;
            let current = checked.with_context(|| format!("{what} {round}, {}", self.done))?;
            if round.is_multiple_of(10) {
                self.compacted = killloop::compact(&self.world, current - 200, self.compacted).await?;
            }
        }
        let counts = self.world.expected().counts;
        print!(
            "\r{what} {round}/{of}: {}; {} voters, {} writes acknowledged, {} unknown, {} reads, {:.0} s   ",
            self.done,
            self.stage.voters().len(),
            counts.acknowledged,
            counts.unknown,
            counts.reads,
            self.begin.elapsed().as_secs_f64()
        );
        std::io::stdout().flush()?;
        Ok(())
    }

    /// The next change.
    fn draw(&mut self) -> Change {
        let (voters, learner) = (self.stage.voters(), self.stage.learner());
        loop {
            let change = match self.rng.below(12) {
                0..=2 => Change::AddVoter,
                3 | 4 => Change::AddLearner,
                5 | 6 => Change::Promote,
                7..=9 => Change::Remove { leader: self.rng.percent(35), learner: self.rng.percent(25) },
                10 => Change::Update,
                _ => Change::MoveLeader,
            };
            let fits = match change {
                Change::AddVoter => voters.len() < MOST,
                Change::AddLearner => learner.is_none(),
                Change::Promote => learner.is_some() && voters.len() < MOST,
                Change::Remove { learner: true, .. } => learner.is_some(),
                Change::Remove { .. } | Change::MoveLeader => voters.len() > 1,
                Change::Update => true,
            };
            if fits {
                return change;
            }
        }
    }

    /// Makes one change, and sees it through. Half of the time somebody is killed meanwhile.
    async fn change(&mut self, change: Change) -> Result<()> {
        let victim = self.rng.percent(50).then(|| self.rng.pick(&self.stage.voters()));
        let times = [self.rng.below(800), 50 + self.rng.below(1200)].map(Duration::from_millis);
        let kind = match change {
            Change::AddVoter | Change::AddLearner => self.add(change == Change::AddLearner, victim, times).await?,
            Change::Promote => self.promote(victim, times).await?,
            Change::Remove { leader, learner } => self.remove((leader, learner), victim, times).await?,
            Change::Update => self.update(victim, times).await?,
            Change::MoveLeader => self.move_leader(victim, times).await?,
        };
        self.done.by_kind[kind] += 1;
        self.stage.all_ready().await
    }

    /// Says something to the cluster until it is done or refused; `victim` is killed meanwhile, and
    /// starts again.
    async fn say(&mut self, said: Said, victim: Option<usize>, times: [Duration; 2]) -> Result<Said> {
        let voters: Vec<String> = self.stage.voters().iter().map(|at| self.stage.endpoint(*at)).collect();
        let asked = tokio::spawn(say::until_done(voters, said, self.rng.next()));
        if let Some(victim) = victim {
            tokio::time::sleep(times[0]).await;
            if self.stage.kill(victim) {
                self.done.kills += 1;
                tokio::time::sleep(times[1]).await;
                self.stage.restart(victim)?;
            }
        }
        asked.await?
    }

    async fn add(&mut self, learner: bool, victim: Option<usize>, times: [Duration; 2]) -> Result<usize> {
        let (at, url) = self.stage.vacant(&mut self.rng)?;
        let said = Said::Add { urls: vec![url.clone()], learner };
        let voters: Vec<String> = self.stage.voters().iter().map(|at| self.stage.endpoint(*at)).collect();
        // A second voter is needed as soon as it is added: it starts when anybody knows it.
        let (listed, _) = tokio::try_join!(say::listed_by_one(voters, url), self.say(said, victim, times))?;
        self.stage.join(at, &listed, learner)?;
        self.stage.serves(at).await?;
        Ok(usize::from(learner))
    }

    async fn promote(&mut self, victim: Option<usize>, times: [Duration; 2]) -> Result<usize> {
        let at = self.stage.learner().context("a learner")?;
        self.say(Said::Promote(self.stage.id(at)), victim, times).await?;
        self.stage.votes(at);
        Ok(2)
    }

    async fn remove(
        &mut self,
        (leader, learner): (bool, bool),
        victim: Option<usize>,
        times: [Duration; 2],
    ) -> Result<usize> {
        let voters = self.stage.voters();
        let at = match self.stage.learner().filter(|_| learner) {
            Some(at) => at,
            None if leader => self.stage.leader().await?,
            None => self.rng.pick(&voters),
        };
        // With two voters, one that is down stops the change and not more.
        self.say(Said::Remove(self.stage.id(at)), victim, times).await?;
        let comes_back = self.rng.percent(30);
        self.stage.ends_removed(at, comes_back).await?;
        Ok(3)
    }

    async fn update(&mut self, victim: Option<usize>, times: [Duration; 2]) -> Result<usize> {
        let at = self.rng.pick(&self.stage.voters());
        let url = self.stage.new_url(at)?;
        self.say(Said::Update(self.stage.id(at), vec![url]), victim, times).await?;
        self.stage.moves(at).await?;
        Ok(4)
    }

    async fn move_leader(&mut self, victim: Option<usize>, times: [Duration; 2]) -> Result<usize> {
        let to = self.rng.pick(&self.stage.voters());
        self.say(Said::MoveLeader(self.stage.id(to)), victim, times).await?;
        Ok(5)
    }

    /// Back to three voters and no learner.
    async fn three(&mut self) -> Result<()> {
        loop {
            let change = match (self.stage.voters().len(), self.stage.learner()) {
                (_, Some(_)) => Change::Remove { leader: false, learner: true },
                (REPLACED_OF, None) => return Ok(()),
                (0..REPLACED_OF, None) => Change::AddVoter,
                (_, None) => Change::Remove { leader: true, learner: false },
            };
            self.change(change).await?;
            self.world.set_live(self.stage.voters());
        }
    }
}
