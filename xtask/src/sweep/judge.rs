//! One case: restore, damage, start, look from outside, verdict.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::{
    copy::Slot,
    damage::{Damage, KINDS, Scene, apply},
    life::{Difference, Image, Life},
    places::{Place, System, places},
    read::{State, read_all},
};
use crate::{
    raw::Raw,
    rng::Rng,
    server::{Program, Server},
};

/// What became of a damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The member said so, and serves nothing that is wrong.
    Detected,
    /// The member said so, has everything again, and its directory is whole.
    Healed,
    /// Everything is there, and nobody needed what was damaged.
    Harmless,
    /// The member did not start, and said why.
    Refused,
    /// It neither serves nor says anything.
    Stuck,
    /// An acknowledged write is gone from the cluster.
    Lost,
    /// A wrong value was answered, or a member stays behind for good and answers reads.
    Served,
}

impl Verdict {
    pub const ALL: [Verdict; 7] = [
        Verdict::Detected,
        Verdict::Healed,
        Verdict::Harmless,
        Verdict::Refused,
        Verdict::Stuck,
        Verdict::Lost,
        Verdict::Served,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Verdict::Detected => "detected",
            Verdict::Healed => "healed",
            Verdict::Harmless => "harmless",
            Verdict::Refused => "refused",
            Verdict::Stuck => "stuck",
            Verdict::Lost => "lost",
            Verdict::Served => "served",
        }
    }

    /// What must never be.
    pub fn is_fault(self) -> bool {
        matches!(self, Verdict::Stuck | Verdict::Lost | Verdict::Served)
    }
}

/// A case and its end.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub case: u64,
    pub image: &'static str,
    pub place: Place,
    pub damage: Damage,
    pub verdict: Verdict,
    /// The log named a damaged file.
    pub named: bool,
    /// What `utl verify` said of the damaged directory, or of the one that was left: 0 is whole.
    pub verify: Option<i32>,
    /// The lines of the log that tell it, and what was found.
    pub told: Vec<String>,
    pub seconds: f64,
}

impl Outcome {
    pub fn json(&self) -> Value {
        json!({
            "case": self.case, "image": self.image, "structure": self.place.structure, "file": self.place.path,
            "kind": self.damage.kind.name(), "what": self.damage.what, "verdict": self.verdict.name(),
            "named": self.named, "verify": self.verify, "told": self.told, "seconds": self.seconds,
        })
    }
}

/// The members of one life in one image, restored for each case.
#[derive(Debug)]
pub struct Stage<'a> {
    pub system: System,
    pub program: &'a Program,
    pub life: &'a Life,
    pub image: &'a Image,
    slots: Vec<Slot>,
    members: Vec<Server>,
    places: Vec<Place>,
    /// Messages that a start without damage logs as well.
    usual: BTreeSet<String>,
    /// Where faulty directories are kept.
    kept: PathBuf,
}

/// How long the damaged member may take, once it could.
const PATIENCE: Duration = Duration::from_secs(15);
/// Before it is called stuck: a machine that is busy with other things is no fault of the member.
const LAST_PATIENCE: Duration = Duration::from_secs(90);
/// How long the damaged and the lagging member are alone.
const ALONE: Duration = Duration::from_millis(2500);
const LOOK: Duration = Duration::from_millis(25);
/// A look is a read of everything: later ones come less often.
const SELDOM: Duration = Duration::from_millis(500);

/// What is seen of the damaged member.
struct Sight {
    /// It ended by itself.
    ended: bool,
    /// Of the last state that it served.
    difference: Option<Difference>,
    /// Something wrong was read, here or on another member.
    wrong: Vec<String>,
    /// Acknowledged, and nobody has it.
    lost: Vec<String>,
    /// An error that it answered instead.
    error: Option<String>,
}

impl<'a> Stage<'a> {
    pub fn new(
        (system, program): (System, &'a Program),
        life: &'a Life,
        image: &'a Image,
        dir: &Path,
    ) -> Result<Stage<'a>> {
        let mut members = Vec::new();
        let mut slots = Vec::new();
        for (spec, pristine) in life.specs.iter().zip(&image.dirs) {
            let mut spec = spec.clone();
            spec.data_dir = dir.join(image.end).join(&spec.name);
            spec.log = dir.join(image.end).join(format!("{}.log", spec.name));
            fs::create_dir_all(dir.join(image.end)).with_context(|| dir.display().to_string())?;
            slots.push(Slot::new(pristine, &spec.data_dir));
            members.push(Server::stopped(spec));
        }
        let places = places(system, &image.dirs[0])?;
        let kept = dir.join("kept");
        Ok(Stage { system, program, life, image, slots, members, places, usual: BTreeSet::new(), kept })
    }

    /// The structures that can be damaged here, sorted.
    pub fn structures(&self) -> Vec<&'static str> {
        let names: BTreeSet<&'static str> = self.places.iter().map(|place| place.structure).collect();
        names.into_iter().collect()
    }

    fn restore(&mut self) -> Result<()> {
        for slot in &mut self.slots {
            slot.restore()?;
        }
        for member in &self.members {
            fs::write(&member.spec.log, "").with_context(|| member.spec.log.display().to_string())?;
        }
        Ok(())
    }

    /// A start without damage: everything must be there, and what is logged then is no sign of
    /// anything.
    ///
    /// # Errors
    /// If something is missing already.
    pub async fn rehearse(&mut self) -> Result<()> {
        self.restore()?;
        let sight = self.look().await?;
        let told = self.members.iter().map(|member| loud(&member.spec.log)).collect::<Vec<_>>().concat();
        self.usual.extend(told.iter().map(|line| message(line)));
        let clean = sight.wrong.is_empty() && sight.lost.is_empty();
        if !clean || sight.difference.is_none_or(|difference| !difference.is_none()) {
            anyhow::bail!(
                "the undamaged directories of {} do not give everything back: {:?} {:?} {:?}",
                self.image.end,
                sight.lost,
                sight.wrong,
                sight.error
            );
        }
        Ok(())
    }

    /// Damages this structure; the numbers of the case decide how.
    ///
    /// # Errors
    /// Of the files or programs of this sweep, never of the member.
    pub async fn case(&mut self, case: u64, structure: &str, rng: &mut Rng) -> Result<Outcome> {
        let since = Instant::now();
        self.restore()?;
        let again = rng.clone();
        let (place, damage) = self.damage(structure, rng)?;
        let sight = self.look().await?;
        let mut verify = self.verify();
        if self.members.len() > 1 && !sight.ended && verify.is_some_and(|code| code != 0) {
            verify = self.scrubbed().await?;
        }
        let logs: Vec<String> = self.members.iter().flat_map(|member| loud(&member.spec.log)).collect();
        let mut told: Vec<String> = logs.into_iter().filter(|line| self.tells(line, &damage)).collect();
        let named = told.iter().any(|line| names(line, &damage));
        let verdict = self.verdict(&sight, !told.is_empty(), verify);
        told.truncate(4);
        told.extend(sight.lost.iter().chain(&sight.wrong).take(4).map(|what| format!("! {what}")));
        if let Some(difference) = sight.difference.filter(|difference| !difference.is_none()) {
            let few = |of: &[String]| of.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
            told.push(format!(
                "! at the end it lacks [{}] and has [{}]",
                few(&difference.lost),
                few(&difference.wrong)
            ));
        }
        told.extend(sight.error);
        let seconds = since.elapsed().as_secs_f64();
        let outcome = Outcome { case, image: self.image.end, place, damage, verdict, named, verify, told, seconds };
        if verdict.is_fault() {
            self.keep(case, structure, again)?;
        }
        Ok(outcome)
    }

    /// What nobody needed so far is found by the scrub, which is told to be quick here.
    async fn scrubbed(&mut self) -> Result<Option<i32>> {
        let mut verify = None;
        for _ in 0..3 {
            for member in &mut self.members {
                member.restart()?;
            }
            sleep(SCRUBS).await;
            self.members.iter_mut().for_each(Server::kill);
            verify = self.verify();
            if verify == Some(0) {
                break;
            }
        }
        Ok(verify)
    }

    fn damage(&mut self, structure: &str, rng: &mut Rng) -> Result<(Place, Damage)> {
        const TRIES: u64 = 200;
        let of: Vec<Place> = self.places.iter().filter(|place| place.structure == structure).cloned().collect();
        for _ in 0..TRIES {
            let place = rng.pick(&of);
            let kind = rng.pick(&KINDS);
            let scene = Scene { dir: &self.slots[0].dir, places: &self.places, older: &self.image.older };
            if let Some(damage) = apply(kind, &place, &scene, rng)? {
                for path in &damage.files {
                    self.slots[0].touched(path);
                }
                return Ok((place, damage));
            }
        }
        anyhow::bail!("no kind of damage changes {structure}")
    }

    /// The damaged directory as it was before the start, and the logs.
    fn keep(&mut self, case: u64, structure: &str, mut rng: Rng) -> Result<()> {
        const MOST: usize = 6;
        let to = self.kept.join(format!("case-{case}"));
        if fs::read_dir(&self.kept).is_ok_and(|kept| kept.count() >= MOST) {
            return Ok(());
        }
        for member in &self.members {
            let log = to.join(format!("{}.log", member.spec.name));
            fs::create_dir_all(&to)?;
            fs::copy(&member.spec.log, log)?;
        }
        self.slots[0].restore()?;
        self.damage(structure, &mut rng)?;
        super::copy::copy_dir(&self.slots[0].dir, &to.join(&self.members[0].spec.name))
    }

    /// Starts the members and looks until the damaged one has everything, ends, or has had its
    /// time.
    async fn look(&mut self) -> Result<Sight> {
        let mut sight = Sight { ended: false, difference: None, wrong: vec![], lost: vec![], error: None };
        let result = self.watch(&mut sight).await;
        self.members.iter_mut().for_each(Server::kill);
        result.map(|()| sight)
    }

    async fn watch(&mut self, sight: &mut Sight) -> Result<()> {
        if self.members.len() == 1 {
            self.members[0].restart()?;
            return self.settle(sight).await;
        }
        if self.image.lagging {
            // The hardest company: who lacks the newest writes. Together they are a majority.
            let last = self.members.len() - 1;
            self.members[0].restart()?;
            self.members[last].restart()?;
            self.watch_alone(sight, last).await;
            self.members[1].restart()?;
        } else {
            for member in &mut self.members[1..] {
                member.restart()?;
            }
            self.members[1].ready(PATIENCE * 2).await?;
            self.members[0].restart()?;
        }
        self.settle(sight).await?;
        let end = Instant::now() + PATIENCE;
        loop {
            match self.read(1, true).await {
                Ok(state) => {
                    let difference = self.life.differs(self.image, &state);
                    sight.lost.extend(difference.lost);
                    sight.wrong.extend(difference.wrong.into_iter().map(|what| format!("{what}, at the whole member")));
                    return Ok(());
                }
                Err(error) if Instant::now() > end => {
                    sight.error = Some(format!("the others do not serve: {error}"));
                    return Ok(());
                }
                Err(_) => sleep(LOOK).await,
            }
        }
    }

    /// While the whole member is away, the damaged and the lagging one may not serve without what
    /// they lack.
    async fn watch_alone(&mut self, sight: &mut Sight, lagging: usize) {
        let end = Instant::now() + ALONE;
        while Instant::now() < end && !sight.ended {
            sight.ended = self.members[0].ended().is_some();
            if let Ok(Ok(state)) = timeout(ALONE, self.read(lagging, true)).await {
                let difference = self.life.differs(self.image, &state);
                let alone = |what: String| format!("{what}, while the whole member was away");
                sight.lost.extend(difference.lost.into_iter().map(alone));
                sight.wrong.extend(difference.wrong.into_iter().map(alone));
                return;
            }
            sleep(LOOK).await;
        }
    }

    /// Until the damaged member has everything, has ended, or has had its time.
    async fn settle(&mut self, sight: &mut Sight) -> Result<()> {
        let (begin, lone) = (Instant::now(), self.members.len() == 1);
        let (mut pause, mut accused) = (LOOK, 0);
        let mut said = false;
        while accused < 3 && begin.elapsed() < if said { PATIENCE } else { LAST_PATIENCE } {
            said = said || begin.elapsed() > PATIENCE && self.said();
            if self.members[0].ended().is_some() {
                sight.ended = true;
                return Ok(());
            }
            match timeout(PATIENCE, self.read(0, lone)).await {
                Ok(Ok(state)) => {
                    let difference = self.life.differs(self.image, &state);
                    if lone {
                        sight.lost.clone_from(&difference.lost);
                    }
                    sight.wrong.clone_from(&difference.wrong);
                    let done = lone || difference.is_none();
                    sight.difference = Some(difference);
                    sight.error = None;
                    if done {
                        return Ok(());
                    }
                }
                Ok(Err(error)) => {
                    // A lone member has nobody to help it: it will say the same for ever.
                    accused += u32::from(lone && accuses(&error));
                    sight.error = Some(error);
                }
                Err(_) => sight.error = Some(format!("no answer within {PATIENCE:?}")),
            }
            sleep(pause).await;
            pause = (pause * 5 / 4).min(SELDOM);
        }
        Ok(())
    }

    /// Somebody's log tells of damage already.
    fn said(&self) -> bool {
        let mut lines = self.members.iter().flat_map(|member| loud(&member.spec.log));
        lines.any(|line| !self.usual.contains(&message(&line)) && accuses(&line))
    }

    async fn read(&self, member: usize, linearizable: bool) -> Result<State, String> {
        let raw = Raw::connect(&self.members[member].endpoint()).await.map_err(|error| error.to_string())?;
        let hash_at = Some(self.life.quiet.revision);
        read_all(&raw, linearizable, hash_at).await.map_err(|failure| failure.to_string())
    }

    fn verify(&self) -> Option<i32> {
        if self.system != System::Kvorum {
            return None;
        }
        let output = Command::new(&self.program.path).args(["utl", "verify"]).arg(&self.slots[0].dir).output().ok()?;
        output.status.code()
    }

    fn verdict(&self, sight: &Sight, said: bool, verify: Option<i32>) -> Verdict {
        let whole = sight.difference.as_ref().is_some_and(Difference::is_none);
        if !sight.lost.is_empty() {
            return Verdict::Lost;
        }
        if !sight.wrong.is_empty() {
            return Verdict::Served;
        }
        match (sight.ended, whole, said) {
            (true, _, true) => Verdict::Refused,
            (true, _, false) => Verdict::Stuck,
            (false, true, true) if verify.is_none_or(|code| code == 0) => Verdict::Healed,
            (false, true, true) => Verdict::Detected,
            (false, true, false) => Verdict::Harmless,
            (false, false, true) => Verdict::Detected,
            // It answers errors that say so, though its log does not.
            (false, false, false) if sight.error.as_deref().is_some_and(accuses) => Verdict::Detected,
            (false, false, false) if sight.difference.is_some() => Verdict::Served,
            (false, false, false) => Verdict::Stuck,
        }
    }

    /// Whether a line of the log tells of the damage.
    fn tells(&self, line: &str, damage: &Damage) -> bool {
        let peers = line.contains("lost the connection to a peer");
        !peers && !self.usual.contains(&message(line)) && (names(line, damage) || accuses(line))
    }
}

fn names(line: &str, damage: &Damage) -> bool {
    damage.files.iter().any(|file| line.contains(file.rsplit('/').next().unwrap_or(file)))
}

/// Words that tell of damage, in the logs of either program.
/// Time for a scrub of everything, and for what it mends.
const SCRUBS: Duration = Duration::from_secs(6);

fn accuses(line: &str) -> bool {
    const WORDS: [&str; 18] = [
        "damaged",
        "corrupt",
        "doubt",
        "crc",
        "checksum",
        "mismatch",
        "torn",
        "missing",
        "invalid",
        "unexpected EOF",
        "panic",
        "no such file",
        "fault",
        "out of range",
        "not ours",
        "lost",
        "acknowledged",
        ".broken",
    ];
    WORDS.iter().any(|word| line.contains(word))
}

/// The lines of a log that are warnings or worse, and those that are no log lines: a panic's text.
fn loud(log: &Path) -> Vec<String> {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let quiet = ["\"level\":\"info\"", "\"level\":\"debug\""];
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.filter(|line| !quiet.iter().any(|level| line.contains(level))).map(shortened).collect()
}

fn shortened(line: &str) -> String {
    line.chars().take(600).collect()
}

/// What a line says, without its time and its numbers.
fn message(line: &str) -> String {
    match serde_json::from_str::<Value>(line) {
        Ok(Value::Object(fields)) => fields.get("msg").and_then(Value::as_str).unwrap_or_default().to_string(),
        _ => line.split("\"msg\":").nth(1).unwrap_or(line).chars().filter(|c| !c.is_ascii_digit()).take(60).collect(),
    }
}
