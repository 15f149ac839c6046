//! What `recover` prints.

use super::plan::{Live, Places, Plan, Step, Unfit, name_of};
use crate::{
    exit::Outcome,
    print::{
        Answer, Out,
        look::{Paint, tame},
        table,
    },
};
use serde_json::{Value, json};
use utl::survey::Survey;

pub(super) struct Report {
    pub(super) places: Places,
    pub(super) planned: Result<Plan, Unfit>,
}

/// The report up to the question, and what follows a yes.
pub(super) struct Part<'r> {
    report: &'r Report,
    steps: bool,
}

impl Report {
    pub(super) fn without_steps(&self) -> Part<'_> {
        Part { report: self, steps: false }
    }

    pub(super) fn steps_alone(&self) -> Part<'_> {
        Part { report: self, steps: true }
    }

    fn head(&self, out: &mut Out) {
        let look = out.look;
        let shown = |text: &str| if look.is_seen() { tame(text) } else { text.to_owned() };
        let lines: Vec<String> = self.lines().iter().map(|line| shown(line)).collect();
        lines.iter().for_each(|line| out.line(line));
        match &self.planned {
            Err(Unfit(why)) => {
                let bad = look.paint(Paint::Bad, "Nothing to go on from:");
                out.line(format!("{bad} {}", shown(why)));
            }
            Ok(plan) => {
                let Survey { dir, last, revision, .. } = &plan.chosen;
                let head = look.paint(Paint::Head, "Chosen:");
                let name = shown(&name_of(&plan.chosen));
                out.line(format!(
                    "{head} {name} in {dir}: term {}, entry {}, revision {revision}",
                    last.term, last.index
                ));
                for (what, paint, lost) in
                    [("Lost:", Paint::Bad, &plan.surely), ("Possibly lost:", Paint::Warn, &plan.possibly)]
                {
                    let what = look.paint(paint, what);
                    lost.iter().for_each(|lost| out.line(format!("{what} {}", shown(lost))));
                }
                if plan.surely.is_empty() && plan.possibly.is_empty() {
                    let good = look.paint(Paint::Good, "Lost:");
                    out.line(format!("{good} nothing that was acknowledged"));
                }
            }
        }
    }

    fn steps(&self, out: &mut Out) {
        let Ok(plan) = &self.planned else { return };
        out.line("");
        for (at, step) in plan.steps.iter().enumerate() {
            out.line(format!("# {}. {}", at + 1, step.what));
            out.line(&step.command);
        }
    }

    /// One for each place, and below it what is wrong there.
    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for survey in &self.places.surveys {
            let name = name_of(survey);
            match &survey.unusable {
                Some(why) => lines.push(format!("{}: not usable: {why}", survey.dir)),
                None => lines.push(format!(
                    "{}: {name}, term {}, entry {} (committed: {}), revision {} (committed: {}), {} keys, {} leases",
                    survey.dir,
                    survey.last.term,
                    survey.last.index,
                    survey.commit,
                    survey.revision,
                    survey.committed_revision,
                    survey.keys,
                    survey.leases,
                )),
            }
            lines.extend(survey.damage.iter().map(|damage| format!("  damaged: {damage}")));
        }
        for live in &self.places.live {
            lines.push(format!(
                "{}: {:x} runs without a leader, term {}, entry {} is committed, revision {}",
                live.endpoint, live.member, live.term, live.commit, live.revision
            ));
        }
        lines.extend(self.places.silent.iter().map(|(endpoint, why)| format!("{endpoint}: does not answer: {why}")));
        lines
    }

    fn value(&self) -> Value {
        let live = |live: &Live| {
            json!({
                "endpoint": live.endpoint, "member": format!("{:x}", live.member), "term": live.term,
                "commit": live.commit, "revision": live.revision, "leader": format!("{:x}", live.leader),
            })
        };
        let silent = |(endpoint, why): &(String, String)| json!({"endpoint": endpoint, "reason": why});
        let mut value = json!({
            "directories": self.places.surveys.iter().map(Survey::to_json).collect::<Vec<_>>(),
            "running": self.places.live.iter().map(live).collect::<Vec<_>>(),
            "silent": self.places.silent.iter().map(silent).collect::<Vec<_>>(),
        });
        match &self.planned {
            Err(Unfit(why)) => value["unfit"] = json!(why),
            Ok(plan) => {
                let step = |step: &Step| json!({"what": step.what, "command": step.command});
                value["chosen"] = json!({"name": name_of(&plan.chosen), "dir": plan.chosen.dir});
                value["lost"] = json!({"surely": plan.surely, "possibly": plan.possibly});
                value["steps"] = json!(plan.steps.iter().map(step).collect::<Vec<_>>());
            }
        }
        value
    }
}

impl Answer for Report {
    fn simple(&self, out: &mut Out) -> Outcome {
        self.head(out);
        self.steps(out);
        Ok(())
    }

    fn table(&self, out: &mut Out) -> Outcome {
        let row = |survey: &Survey| {
            let of = |number: u64| number.to_string();
            vec![
                survey.dir.clone(),
                name_of(survey),
                of(survey.last.term),
                of(survey.last.index),
                of(survey.commit),
                survey.revision.to_string(),
                of(survey.keys),
                survey.unusable.clone().unwrap_or_else(|| survey.damage.join("; ")),
            ]
        };
        let headers = ["directory", "name", "term", "entry", "committed", "revision", "keys", "damage"];
        table::draw(out, &headers, &self.places.surveys.iter().map(row).collect::<Vec<_>>());
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        Ok(self.value().to_string())
    }
}

impl Answer for Part<'_> {
    fn simple(&self, out: &mut Out) -> Outcome {
        if self.steps {
            self.report.steps(out)
        } else {
            self.report.head(out)
        }
        Ok(())
    }

    fn json(&self, hex: bool) -> Outcome<String> {
        self.report.json(hex)
    }
}
