//! `recover`: which of the survivors of a lost majority a cluster goes on from, what that loses,
//! and what is to be typed. Only `kvorum ctl` has it. It changes nothing by itself: the member that
//! is chosen does, under its own user and with its own flags.

mod plan;
mod report;

use crate::{
    call::{Call, Command},
    commands::headings::CLUSTER,
    exit::{BAD_ARGS, BAD_FEATURE, Failure, IO, Outcome},
    print::Format,
};
use cobra::Flag;
use plan::{Live, Places, Unfit};
use report::Report;
use std::{
    io::{BufRead, IsTerminal},
    path::Path,
    time::Duration,
};
use utl::survey::Survey;

/// The row of the table.
pub const RECOVER: Command = Command {
    name: "recover",
    usage: "recover <directory, file or endpoint>... [options]",
    group: CLUSTER,
    short: "Finds what a cluster can go on from that lost its majority for good",
    long: "Finds what a cluster can go on from that lost its majority for good.
Name what is left: data directories of members that are stopped, files that this command
wrote on another machine with `-w json`, and endpoints of members that still run. The newest
durable data among the directories is chosen. What is lost, for certain or possibly, is
shown. After a yes come the commands that start the chosen member alone and add the others
again. Nothing is changed by this command itself.
Exit code: 0 there is a plan, 1 there is none, 5 it was not wanted.",
    examples: "  # Two of three are gone; this is the third
  kvorum ctl recover /var/lib/kvorum

  # On one machine
  kvorum ctl recover /var/lib/kvorum -w json --dry-run > m2.json
  # and on another one, with a third member that still runs
  kvorum ctl recover /var/lib/kvorum m2.json http://10.0.0.3:2379",
    flags: &[
        Flag::text("choose", "", "go on from this member (name, id or directory), whatever the others have"),
        Flag::switch("dry-run", "show everything and ask nothing"),
        Flag::switch("yes", "do not ask"),
    ],
    run: Some(run),
    ..Command::NONE
};

/// What ends the command when it is not wanted.
const NOT_WANTED: i32 = 5;
/// How long a member may take to say how it is: nobody else is needed for it.
const PATIENCE: Duration = Duration::from_secs(2);

impl From<Unfit> for Failure {
    fn from(unfit: Unfit) -> Failure {
        Failure::new(crate::exit::ERROR, unfit.0)
    }
}

fn run(call: &Call) -> Outcome {
    if call.args.is_empty() {
        let text = "recover needs the data directories that are left, or endpoints of members that still run";
        return Err(Failure::new(BAD_ARGS, text));
    }
    let printer = call.printer()?;
    if !matches!(printer.format, Format::Simple | Format::Json | Format::Table | Format::Yaml) {
        return Err(Failure::new(BAD_FEATURE, "recover has the forms simple, table, json and yaml"));
    }
    let places = look(call)?;
    let planned = plan::plan(&places, call.text("choose"));
    let asks = !call.switch("yes") && !call.switch("dry-run");
    let report = Report { places, planned };
    if asks && printer.format == Format::Simple && report.planned.is_ok() {
        call.print(&report.without_steps())?;
        crate::say("Go on from it? The data of the others is not used. Type yes: ")?;
        if !std::io::stdin().is_terminal() {
            crate::say("\n")?;
            return Err(Failure::new(NOT_WANTED, "nobody is asked here: --yes, or --dry-run"));
        }
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).map_err(|error| Failure::io(&error))?;
        if line.trim() != "yes" {
            return Err(Failure::new(NOT_WANTED, "nothing was done"));
        }
        return call.print(&report.steps_alone());
    }
    call.print(&report)?;
    report.planned.map(drop).map_err(|unfit| Failure::told(crate::exit::ERROR, unfit.into()))
}

fn look(call: &Call) -> Outcome<Places> {
    let mut places = Places::default();
    for word in &call.args {
        let path = Path::new(word);
        if path.is_dir() {
            places.surveys.push(Survey::of(path));
        } else if path.is_file() {
            places.surveys.extend(surveys_in(path)?);
        } else if word.contains(':') && !word.contains('/') || word.contains("://") {
            match ask(call, word) {
                Ok(live) => places.live.push(live),
                Err(why) => places.silent.push((word.clone(), crate::exit::error_text(&why))),
            }
        } else {
            return Err(Failure::new(IO, format!("{word}: no such file or directory, and no endpoint")));
        }
    }
    Ok(places)
}

/// What this command wrote on another machine.
fn surveys_in(path: &Path) -> Outcome<Vec<Survey>> {
    let named = |why: &str| Failure::new(IO, format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| named(&crate::exit::system_words(&error)))?;
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| named(&error.to_string()))?;
    let places = value.get("directories").and_then(|places| places.as_array());
    let surveys = places.and_then(|places| places.iter().map(Survey::from_json).collect());
    surveys.ok_or_else(|| named("this is not what `kvorum ctl recover -w json` wrote"))
}

fn ask(call: &Call, endpoint: &str) -> Result<Live, client::Error> {
    call.block_on(async {
        let client = match call.client() {
            Ok(client) => client.single(endpoint)?.with_request_timeout(Some(PATIENCE)),
            Err(failure) => return Err(client::Error::Unreachable { reason: format!("{failure:?}") }),
        };
        let status = client.status().await?;
        let header = status.header.unwrap_or_default();
        Ok(Live {
            endpoint: endpoint.to_owned(),
            member: header.member_id,
            term: status.raft_term,
            commit: status.raft_index,
            revision: header.revision,
            leader: status.leader,
        })
    })
}
