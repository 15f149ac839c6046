//! `doctor`: what is wrong with a cluster, in plain words, and what to do. Only
//! `kvorum ctl` has it; it looks at real etcd as well.
//!
//! Everybody is asked first ([`gather`]); what came of it ([`facts`]) is judged
//! by a pure function ([`findings`]).

pub(super) mod facts;
mod findings;
pub(super) mod gather;

use client::wire::etcdserverpb::Member;
use cobra::Flag;

use super::gofmt;
use crate::{
    call::{Call, Command},
    commands::headings::PEOPLE,
    exit::{Failure, Outcome},
    print::{
        Answer, Out, json,
        look::{Look, Paint, tame},
        table,
    },
};
use facts::{Facts, name, reasons, unstarted};
use findings::{Finding, Level};

/// The row of the table.
pub const DOCTOR: Command = Command {
    name: "doctor",
    usage: "doctor [options]",
    group: PEOPLE,
    short: "Looks for what is wrong with the cluster, and says what to do",
    long: "Looks for what is wrong with the cluster, and says what to do.
Every endpoint and every member is asked: whether it answers, who leads, whether a
quorum is left and for how long, alarms, lag, size, hashes, versions, addresses, clocks,
disks. Nothing is changed. Each question takes --command-timeout at most.
Exit code: 0 all is well, 1 there are warnings, 2 there are errors.",
    flags: &[Flag::switch_on("hash", "compare the data of all members, which reads all of it")],
    run: Some(run),
    ..Command::NONE
};

fn run(call: &Call) -> Outcome {
    let [] = call.exactly("doctor takes no arguments; name the cluster by --endpoints")?;
    let report = Report::of(gather::facts(call)?);
    call.print(&report)?;
    match report.exit_code() {
        0 => Ok(()),
        code => Err(Failure::Silent(code)),
    }
}

struct Report {
    facts: Facts,
    findings: Vec<Finding>,
    unchecked: Vec<String>,
    well: Vec<String>,
}

/// A line about one member.
struct Row {
    id: u64,
    name: String,
    role: &'static str,
    endpoint: String,
    /// Why it does not answer.
    reason: Option<String>,
}

impl Report {
    fn of(facts: Facts) -> Report {
        let findings = findings::findings(&facts);
        let (unchecked, well) = (findings::unchecked(&facts), findings::well(&facts, &findings));
        Report { facts, findings, unchecked, well }
    }

    fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|f| f.level == level).count()
    }

    fn exit_code(&self) -> i32 {
        match self.findings.iter().map(|f| f.level).min() {
            Some(Level::Error) => 2,
            Some(Level::Warning) => 1,
            Some(Level::Note) | None => 0,
        }
    }

    fn verdict(&self) -> &'static str {
        ["healthy", "warnings", "errors"][usize::try_from(self.exit_code()).expect("0, 1 or 2")]
    }

    fn row(&self, member: &Member) -> Row {
        let answer = self.facts.of(member.id);
        let status = answer.and_then(|a| a.status.as_ref().ok());
        let role = match status {
            None if unstarted(member) => "unstarted",
            None => "down",
            Some(_) if member.is_learner => "learner",
            Some(s) if s.leader == member.id => "leader",
            Some(_) => "follower",
        };
        let advertised = member.client_urls.first().or(member.peer_urls.first());
        let endpoint = answer.map(|a| &a.endpoint).or(advertised).cloned().unwrap_or_default();
        let reason = (role == "down").then(|| reasons(&self.facts, member));
        Row { id: member.id, name: name(member), role, endpoint, reason }
    }

    /// The cluster in one line.
    fn summary(&self) -> String {
        let votes = self.facts.votes();
        let members = self.facts.members();
        let leader = self.facts.leader().map_or_else(
            || "nobody leads".to_owned(),
            |id| format!("{} leads", members.iter().find(|m| m.id == id).map_or_else(|| format!("{id:x}"), name)),
        );
        let up = self.facts.up();
        let term = up.iter().map(|(.., s)| s.raft_term).max().unwrap_or(0);
        let voters = if votes.all == 1 { "voter" } else { "voters" };
        format!(
            "{} of {} {voters} answer, {} needed; {leader}; term {term}, revision {}",
            votes.up,
            votes.all,
            votes.needed,
            self.facts.revision()
        )
    }

    fn member_lines(&self) -> Vec<String> {
        let cells: Vec<[String; 6]> = self
            .facts
            .members()
            .iter()
            .map(|member| {
                let Row { name, role, endpoint, reason, .. } = self.row(member);
                let [version, size, took] = match self.facts.of(member.id) {
                    Some(answer) => {
                        let status = answer.status.clone().unwrap_or_default();
                        let size = gofmt::size(u64::try_from(status.db_size).unwrap_or(0));
                        [status.version, size, format!("{:.1} ms", answer.took.as_secs_f64() * 1e3)]
                    }
                    None => [reason.unwrap_or_default(), String::new(), String::new()],
                };
                [name, endpoint, role.to_owned(), version, size, took]
            })
            .collect();
        let width = |at: usize| cells.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
        // What stands last in a line may be as long as it likes.
        let widths: Vec<usize> = (0..6).map(|at| if at < 3 { width(at) } else { width(at).min(10) }).collect();
        let line = |row: &[String; 6]| {
            let padded: Vec<String> = row.iter().zip(&widths).map(|(cell, w)| format!("{cell:<w$}")).collect();
            format!("  {}", padded.join("  ").trim_end())
        };
        cells.iter().map(line).collect()
    }

    fn totals(&self) -> String {
        let of = |level: Level| {
            let (count, word) = (self.count(level), level.word());
            format!("{count} {word}{}", if count == 1 { "" } else { "s" })
        };
        match (self.exit_code(), self.count(Level::Note)) {
            (0, 0) => return "All is well.".to_owned(),
            (0, _) => return format!("All is well; {}.", of(Level::Note)),
            _ => {}
        }
        format!("{}, {}, {}.", of(Level::Error), of(Level::Warning), of(Level::Note))
    }

    fn json(&self) -> String {
        let facts = &self.facts;
        let votes = facts.votes();
        let (members, up) = (facts.members(), facts.up());
        let header = up.first().and_then(|(.., s)| s.header.as_ref());
        let cluster = json::Object::new()
            .text("id", &header.map_or_else(String::new, |h| format!("{:x}", h.cluster_id)))
            .number("members", members.len() as i128)
            .number("voters", votes.all as i128)
            .number("votersUp", votes.up as i128)
            .number("quorum", votes.needed as i128)
            .switch("readable", facts.agrees())
            .text("leader", &facts.leader().map_or_else(String::new, |id| format!("{id:x}")))
            .number("term", up.iter().map(|(.., s)| s.raft_term).max().unwrap_or(0))
            .number("revision", facts.revision())
            .finish();
        let texts = |all: &[String]| json::array(&all.iter().map(|text| json::string(text)).collect::<Vec<_>>());
        json::Object::new()
            .text("verdict", self.verdict())
            .number("errors", self.count(Level::Error) as i128)
            .number("warnings", self.count(Level::Warning) as i128)
            .raw("cluster", &cluster)
            .raw("members", &json::array(&members.iter().map(|m| self.member_json(m)).collect::<Vec<_>>()))
            .raw("findings", &json::array(&self.findings.iter().map(finding_json).collect::<Vec<_>>()))
            .raw("well", &texts(&self.well))
            .raw("unchecked", &texts(&self.unchecked))
            .finish()
    }

    fn member_json(&self, member: &Member) -> String {
        let row = self.row(member);
        let mut object = json::Object::new();
        object
            .text("id", &format!("{:x}", row.id))
            .text("name", &member.name)
            .text("endpoint", &row.endpoint)
            .text("role", row.role)
            .switch("learner", member.is_learner);
        if let Some(reason) = &row.reason {
            object.text("reason", reason);
        }
        let Some((answer, status)) = self.facts.of(row.id).and_then(|a| Some((a, a.status.as_ref().ok()?))) else {
            return object.finish();
        };
        object
            .text("server", server(answer))
            .text("version", &status.version)
            .number("tookMs", answer.took.as_millis() as i128)
            .number("raftTerm", status.raft_term)
            .number("raftIndex", status.raft_index)
            .number("raftAppliedIndex", status.raft_applied_index)
            .number("dbSize", status.db_size)
            .number("dbSizeInUse", status.db_size_in_use)
            .number("dbSizeQuota", status.db_size_quota);
        if let Some(Ok(hash)) = &answer.hash {
            object.number("hash", hash.hash).number("hashRevision", hash.hash_revision);
        }
        if let Some(clock) = answer.clock {
            object.number("clockMs", clock);
        }
        object.finish()
    }
}

/// Whose server it is, as far as its metrics can be read.
fn server(answer: &facts::Answer) -> &'static str {
    match &answer.metrics {
        Ok(metrics) if metrics.kvorum => "kvorum",
        Ok(_) => "etcd",
        Err(_) => "",
    }
}

fn finding_json(finding: &Finding) -> String {
    let commands: Vec<String> = finding.commands.iter().map(|c| json::string(c)).collect();
    json::Object::new()
        .text("level", finding.level.word())
        .text("code", finding.code)
        .text("member", &finding.member)
        .text("text", &finding.text)
        .text("advice", &finding.advice)
        .raw("commands", &json::array(&commands))
        .finish()
}

/// Of what stands below the level of a finding.
const INDENT: usize = 9;

/// What was found, for people.
fn lines_of(finding: &Finding, look: Look) -> Vec<String> {
    let paint = match finding.level {
        Level::Error => Paint::Bad,
        Level::Warning => Paint::Warn,
        Level::Note => Paint::Note,
    };
    let shown = |text: &str| if look.is_seen() { tame(text) } else { text.to_owned() };
    let level = look.paint(paint, &format!("{:<8}", finding.level.word().to_uppercase()));
    let mut lines = look.fold(&format!("{}  [{}]", shown(&finding.text), finding.code), INDENT);
    lines[0] = format!("{level} {}", lines[0].trim_start());
    if !finding.advice.is_empty() {
        lines.extend(look.fold(&shown(&finding.advice), INDENT));
    }
    lines.extend(finding.commands.iter().map(|command| format!("           {}", shown(command))));
    lines
}

impl Answer for Report {
    fn simple(&self, out: &mut Out) -> Outcome {
        // Names and reasons are those of servers.
        let shown = |out: &Out, text: &str| if out.look.is_seen() { tame(text) } else { text.to_owned() };
        if !self.facts.up().is_empty() {
            out.line(shown(out, &self.summary()));
            self.member_lines().iter().for_each(|line| out.line(shown(out, line)));
            out.line("");
        }
        for finding in &self.findings {
            lines_of(finding, out.look).iter().for_each(|line| out.line(line));
            out.line("");
        }
        for (heading, lines) in [("As it should be:", &self.well), ("Not looked at:", &self.unchecked)] {
            if !lines.is_empty() {
                out.line(out.look.paint(Paint::Head, heading));
                lines.iter().for_each(|what| out.line(format!("  {}", shown(out, what))));
                out.line("");
            }
        }
        let paint = [Paint::Good, Paint::Warn, Paint::Bad][usize::try_from(self.exit_code()).expect("0, 1 or 2")];
        out.line(out.look.paint(paint, &self.totals()));
        Ok(())
    }

    fn table(&self, out: &mut Out) -> Outcome {
        let row = |f: &Finding| {
            vec![f.level.word().to_owned(), f.code.to_owned(), f.member.clone(), f.text.clone(), f.advice.clone()]
        };
        table::draw(
            out,
            &["level", "code", "member", "what", "advice"],
            &self.findings.iter().map(row).collect::<Vec<_>>(),
        );
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        Ok(Report::json(self))
    }
}

#[cfg(test)]
mod tests;
