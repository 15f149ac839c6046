//! `docs/coverage.md`: the figures, and what is not reached.

use super::lines::{Count, FLOORS, File, Function};
use super::reasons::Reason;
use std::fmt::Write as _;

/// Percent of the lines that are to be reached.
const GOAL: f64 = 95.0;

/// The page, and what is wrong with it.
pub struct Page {
    pub text: String,
    pub wrong: Vec<String>,
}

/// Lines of a crate or a file, and those that are not the simulator's to reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Row {
    count: Count,
    excused: u64,
}

impl Row {
    fn and(self, more: Row) -> Row {
        Row { count: self.count.and(more.count), excused: self.excused + more.excused }
    }

    /// Of the lines that are the simulator's to reach.
    fn rest(self) -> Count {
        Count { lines: self.count.lines - self.excused, reached: self.count.reached }
    }

    fn cells(self) -> String {
        let Row { count, excused } = self;
        let (all, rest) = (count.percent(), self.rest().percent());
        format!("{} | {} | {all:.1} | {excused} | {rest:.1}", count.lines, count.reached)
    }
}

/// The first reason that fits.
fn reason<'a>(reasons: &'a [Reason], file: &File, function: &Function) -> Option<(usize, &'a Reason)> {
    reasons.iter().enumerate().find(|(_, reason)| reason.fits(&file.path, &function.name))
}

fn row(reasons: &[Reason], file: &File) -> Row {
    let excused = |function: &&Function| reason(reasons, file, function).is_some();
    let excused = file.functions.iter().filter(excused).map(|function| function.count.missed()).sum();
    Row { count: file.count(), excused }
}

pub fn page(seeds: &str, files: &[File], reasons: &[Reason]) -> Page {
    let mut text = format!(
        "# What the simulator reaches\n\n\
         How many lines of the product the simulator runs, and which ones it does not run, with the\nreason.\n\n\
         ```\nrustup component add llvm-tools\ncargo xtask coverage --seeds {seeds}\n```\n\n\
         - The command builds the simulator with counters, runs the seeds, and writes this page.\n\
         - Counted are lines of floors 0 to 2. Tests are not counted, neither as code nor as what reaches\n  \
         code.\n\
         - A line that no seed reached is *not the simulator's* if a reason below names its function. Such\n  \
         lines are left out of the last column.\n\
         - The goal is {GOAL} % of the lines that are the simulator's. The command fails below it, and when\n  \
         a reason names nothing any more.\n\
         - `--lines` prints every line that is not reached.\n\n"
    );
    const HEAD: &str = "lines | reached | percent | not the simulator's | percent of the rest |";
    let _ = writeln!(text, "| crate | {HEAD}\n|---|---:|---:|---:|---:|---:|");
    let mut all = Row::default();
    for crate_ in FLOORS {
        let files = files.iter().filter(|file| file.path.starts_with(&format!("{crate_}/")));
        let sum = files.map(|file| row(reasons, file)).fold(Row::default(), Row::and);
        if sum.count.lines > 0 {
            let _ = writeln!(text, "| {crate_} | {} |", sum.cells());
        }
        all = all.and(sum);
    }
    let _ = writeln!(text, "| **all** | {} |", all.cells());
    let mut wrong = Vec::new();
    if all.rest().percent() < GOAL {
        wrong.push(format!("{:.1} % of the simulator's lines are reached, the goal is {GOAL} %", all.rest().percent()));
    }
    excused(&mut text, files, reasons, &mut wrong);
    missed(&mut text, files, reasons);
    let _ = writeln!(text, "\n## Every file\n\n| file | {HEAD}\n|---|---:|---:|---:|---:|---:|");
    for file in files {
        let _ = writeln!(text, "| `{}` | {} |", file.path, row(reasons, file).cells());
    }
    Page { text, wrong }
}

fn excused(text: &mut String, files: &[File], reasons: &[Reason], wrong: &mut Vec<String>) {
    text.push_str("\n## Not the simulator's\n\n| where | lines not reached | why |\n|---|---:|---|\n");
    for (at, one) in reasons.iter().enumerate() {
        let named = files.iter().flat_map(|file| file.functions.iter().map(move |function| (file, function)));
        let lines: u64 = named
            .filter(|(file, function)| reason(reasons, file, function).is_some_and(|(first, _)| first == at))
            .map(|(_, function)| function.count.missed())
            .sum();
        if lines == 0 {
            wrong.push(format!("{} is reached: its reason is none any more", one.place()));
        }
        let _ = writeln!(text, "| {} | {lines} | {} |", one.place(), one.why);
    }
}

fn missed(text: &mut String, files: &[File], reasons: &[Reason]) {
    text.push_str(
        "\n## Not reached\n\nThese lines have no reason. Most are refusals of bytes that no seed damages in this very\n\
         way, and errors of the system at one call of many; the tests of their crates hold them. In\n\
         brackets: lines not reached, of all.\n\n| file | lines not reached | functions |\n|---|---:|---|\n",
    );
    for file in files {
        let functions: Vec<&Function> = file
            .functions
            .iter()
            .filter(|function| function.count.missed() > 0 && reason(reasons, file, function).is_none())
            .collect();
        if functions.is_empty() {
            continue;
        }
        let lines: u64 = functions.iter().map(|function| function.count.missed()).sum();
        let names: Vec<String> = functions
            .iter()
            .map(|Function { name, count }| {
                let name = if name.is_empty() { "(outside of functions)".into() } else { format!("`{name}`") };
                format!("{name} ({} of {})", count.missed(), count.lines)
            })
            .collect();
        let _ = writeln!(text, "| `{}` | {lines} | {} |", file.path, names.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, lines: u64, reached: u64) -> Function {
        Function { name: name.into(), count: Count { lines, reached } }
    }

    fn files() -> Vec<File> {
        let node = [function("A::run", 90, 89), function("A::fmt", 10, 0)];
        vec![File::new("node/src/a.rs", node.into()), File::new("disk/src/b.rs", vec![function("read", 10, 10)])]
    }

    #[test]
    fn what_has_a_reason_is_left_out_of_the_figure() {
        let reasons = [Reason { file: "", functions: &["fmt"], why: "texts" }];
        let Page { text, wrong } = page("1..2", &files(), &reasons);
        assert!(wrong.is_empty(), "{wrong:?}");
        for line in [
            "| node | 100 | 89 | 89.0 | 10 | 98.9 |",
            "| **all** | 110 | 99 | 90.0 | 10 | 99.0 |",
            "| `fmt` of any file | 10 | texts |",
            "| `node/src/a.rs` | 1 | `A::run` (1 of 90) |",
            "| `disk/src/b.rs` | 10 | 10 | 100.0 | 0 | 100.0 |",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn too_little_and_a_reason_without_lines_are_wrong() {
        let reasons = [Reason { file: "disk/src/b.rs", functions: &[], why: "not there" }];
        let wrong = page("1..2", &files(), &reasons).wrong;
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].starts_with("90.0 %") && wrong[1].starts_with("`disk/src/b.rs` is reached"), "{wrong:?}");
    }
}
