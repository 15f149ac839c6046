//! `cargo xtask howto`: the how-tos of docs/howto, run as they are written, on machines of
//! namespaces with a real systemd, so that none can lie.
//!
//! By hand, not in CI: it needs root and some minutes. That each how-to can be read is a test.

mod read;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::machines::{self, Machine, Shelf};
use crate::peers::workspace;
use crate::{inside, peers};
use read::{Deed, Step};

/// A member that was started serves within this time.
const SERVES: Duration = Duration::from_secs(60);
/// What a member logs then.
const READY: &str = "ready to serve client requests";

/// What `xtask howto` takes. It needs root, for namespaces.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Which how-tos [default: all].
    pub names: Vec<String>,
    /// The kvorum to put on the machines [default: the release build, brought up to date].
    #[arg(long)]
    pub program: Option<PathBuf>,
    /// Show what each block writes.
    #[arg(long)]
    pub loud: bool,
}

/// Where the how-tos are.
pub fn folder() -> PathBuf {
    workspace().join("docs/howto")
}

/// The names of all how-tos.
///
/// # Errors
/// If the folder cannot be read.
pub fn names() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix(".md").filter(|name| *name != "README").map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// Runs the how-tos that are named.
///
/// # Errors
/// With the block that does not do what it says.
pub async fn howto(args: &Args) -> Result<()> {
    let Some(folder) = inside::folder() else {
        if args.program.is_none() {
            // Built outside: cargo wants the network of this machine.
            peers::kvorum()?;
        }
        let status = inside::enter(&machines::TOOLS).await?;
        ensure!(status.success(), "a how-to is not true");
        return Ok(());
    };
    inside::end_with_the_outer();
    let program = args.program.clone().unwrap_or_else(|| workspace().join("target/release/kvorum"));
    let program = std::path::absolute(program)?;
    let all = names()?;
    let wanted = if args.names.is_empty() { &all } else { &args.names };
    let mut wrong = Vec::new();
    // The network is made once; each how-to has machines of its own.
    for name in wanted {
        let begun = Instant::now();
        let own = folder.join(name);
        std::fs::create_dir_all(&own)?;
        match run(name, &own, &program, args.loud) {
            Ok(()) => println!("{name}: true, {} s", begun.elapsed().as_secs()),
            Err(error) => {
                println!("{name}: WRONG: {error:#}");
                wrong.push(name.as_str());
            }
        }
    }
    ensure!(wrong.is_empty(), "not true: {}", wrong.join(", "));
    Ok(())
}

/// The blocks of a how-to, behind those of the one that it comes after.
fn steps(name: &str) -> Result<Vec<(String, Step)>> {
    let path = folder().join(format!("{name}.md"));
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let howto = read::read(&text).with_context(|| path.display().to_string())?;
    let mut all = match howto.after {
        Some(after) => steps(&after)?,
        None => Vec::new(),
    };
    all.extend(howto.steps.into_iter().map(|step| (format!("{name}.md:{}", step.line), step)));
    Ok(all)
}

fn run(name: &str, folder: &Path, program: &Path, loud: bool) -> Result<()> {
    let shelf = Shelf::new(folder, program)?;
    let steps = steps(name)?;
    let mut machines: BTreeMap<&str, Machine> = BTreeMap::new();
    for name in steps.iter().flat_map(|(_, step)| step.deed.machines()) {
        if !machines.contains_key(&name[..]) {
            machines.insert(name, Machine::boot(&shelf, name)?);
        }
    }
    let mut begun: Vec<PathBuf> = Vec::new();
    for (place, step) in &steps {
        match &step.deed {
            Deed::Skip(_) => readable(&step.script).with_context(|| place.clone())?,
            Deed::Begin(names) => {
                for name in names {
                    begun.push(machines.get_mut(&name[..]).context("it was booted")?.begins(&step.script)?);
                }
            }
            Deed::Run(names) => {
                serve(&mut begun)?;
                for name in names {
                    perform(&machines[&name[..]], step, loud).with_context(|| format!("{place}, on {name}"))?;
                }
            }
        }
    }
    Ok(())
}

fn perform(machine: &Machine, step: &Step, loud: bool) -> Result<()> {
    let output = machine.does(&step.script)?;
    let wrote = [output.stdout, output.stderr].concat();
    let wrote = String::from_utf8_lossy(&wrote);
    if loud {
        println!("--- {}: {}{wrote}", machine.name, step.script);
    }
    if !output.status.success() {
        let journal = machine.does("journalctl --no-pager --output cat --lines 20")?.stdout;
        let journal = String::from_utf8_lossy(&journal);
        bail!("{}: {}\n{wrote}\nin its journal:\n{journal}", output.status, step.script);
    }
    if let Some(line) = read::missing(&step.shows, &wrote) {
        bail!("it does not write `{line}`, but\n{wrote}");
    }
    Ok(())
}

/// Waits until the members that were started serve.
fn serve(begun: &mut Vec<PathBuf>) -> Result<()> {
    let since = Instant::now();
    for log in begun.drain(..) {
        while !std::fs::read_to_string(&log)?.contains(READY) {
            ensure!(since.elapsed() < SERVES, "it does not serve: {}", std::fs::read_to_string(&log)?);
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    Ok(())
}

/// A block that is not run is at least a script.
fn readable(script: &str) -> Result<()> {
    let output = Command::new("bash").args(["-n", "-c", script]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
