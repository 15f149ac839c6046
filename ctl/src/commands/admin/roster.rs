//! `kvorum ctl member list`: who is in the cluster, how far each member is, and who may fail now.
//! The stock tool's list says only what the cluster's configuration says.

use client::wire::etcdserverpb::{Member, MemberListResponse};

use super::doctor::facts::{Facts, name, reasons, unstarted};
use crate::{
    exit::Outcome,
    print::{
        Answer, Out, json,
        look::{Paint, tame},
        table::{self, Cell},
    },
};

/// The members, and what each of them said of itself.
pub struct Roster {
    /// The cluster's list.
    pub listed: MemberListResponse,
    /// What was asked.
    pub facts: Facts,
}

/// One member.
struct Row<'r> {
    member: &'r Member,
    role: &'static str,
    /// `serves`, `down`, `unstarted`.
    state: &'static str,
    /// Why it is down.
    reason: Option<String>,
    /// Behind the leader: entries, revisions.
    behind: Option<(u64, i64)>,
    revision: Option<i64>,
}

impl Roster {
    fn rows(&self) -> Vec<Row<'_>> {
        let leader = self.facts.leader();
        let up = self.facts.up();
        let ahead = up.iter().find(|(member, ..)| Some(member.id) == leader).map(|(.., status)| *status);
        let row = |member| {
            let status = self.facts.of(member).and_then(|answer| answer.status.as_ref().ok());
            let revision = status.and_then(|status| status.header.as_ref()).map(|header| header.revision);
            let behind = ahead.zip(status).map(|(ahead, status)| {
                let newest = ahead.header.as_ref().map_or(0, |header| header.revision);
                let entries = ahead.raft_applied_index.saturating_sub(status.raft_applied_index);
                (entries, newest.saturating_sub(revision.unwrap_or(0)).max(0))
            });
            (status.is_some(), revision, behind)
        };
        self.listed
            .members
            .iter()
            .map(|member| {
                let (serves, revision, behind) = row(member.id);
                let role = match () {
                    () if member.is_learner => "learner",
                    () if Some(member.id) == leader => "leader",
                    () => "voter",
                };
                let state = match () {
                    () if serves => "serves",
                    () if unstarted(member) => "unstarted",
                    () => "down",
                };
                let reason = (state == "down").then(|| reasons(&self.facts, member));
                Row { member, role, state, reason, behind, revision }
            })
            .collect()
    }

    /// The quorum in one line, and the members that do not serve.
    fn summary(&self) -> Vec<String> {
        let votes = self.facts.votes();
        let voters = if votes.all == 1 { "voter serves" } else { "voters serve" };
        let spare = match votes.up.checked_sub(votes.needed) {
            _ if votes.up < votes.needed && votes.up + votes.unknown >= votes.needed => {
                "not all can be asked".to_owned()
            }
            None => "there is no quorum".to_owned(),
            Some(0) => "none may fail".to_owned(),
            Some(1) => "one may fail".to_owned(),
            Some(spare) => format!("{spare} may fail"),
        };
        let members = &self.listed.members;
        let leader = self.facts.leader().map_or_else(
            || "nobody leads".to_owned(),
            |id| format!("{} leads", members.iter().find(|m| m.id == id).map_or_else(|| format!("{id:x}"), name)),
        );
        let first = format!("{} of {} {voters}, {} needed: {spare}; {leader}", votes.up, votes.all, votes.needed);
        let silent = self.rows().into_iter().filter(|row| row.state != "serves").map(|row| {
            let reason = row.reason.unwrap_or_else(|| "added, and never started".to_owned());
            format!("{} ({}): {reason}", name(row.member), if row.member.is_learner { "learner" } else { "voter" })
        });
        std::iter::once(first).chain(silent.map(|line| format!("does not serve: {line}"))).collect()
    }

    /// Whether the cluster goes on, as far as can be seen.
    fn quorum(&self) -> Option<Paint> {
        let votes = self.facts.votes();
        match votes.up.checked_sub(votes.needed) {
            None => Some(Paint::Bad),
            Some(0) if votes.all > 1 => Some(Paint::Warn),
            Some(_) => None,
        }
    }
}

/// How far a member is behind the leader.
fn lag(row: &Row) -> String {
    match row.behind {
        None => "-".to_owned(),
        Some((0, 0)) => "in step".to_owned(),
        Some((entries, revisions)) => format!("{entries} entries, {revisions} revisions behind"),
    }
}

/// Entries behind that are worth a colour.
const SLOW: u64 = 1_000;

fn cells(row: &Row) -> Vec<Cell> {
    let member = row.member;
    let slow = row.behind.is_some_and(|(entries, _)| entries >= SLOW);
    let role = match row.role {
        "leader" => Some(Paint::Good),
        "learner" => Some(Paint::Note),
        _ => None,
    };
    let state = match row.state {
        "serves" => None,
        "unstarted" => Some(Paint::Warn),
        _ => Some(Paint::Bad),
    };
    vec![
        format!("{:x}", member.id).into(),
        member.name.clone().into(),
        Cell { text: row.role.to_owned(), paint: role },
        Cell { text: row.state.to_owned(), paint: state },
        Cell { text: lag(row), paint: slow.then_some(Paint::Warn) },
        member.peer_urls.join(",").into(),
        member.client_urls.join(",").into(),
    ]
}

impl Answer for Roster {
    fn simple(&self, out: &mut Out) -> Outcome {
        let look = out.look;
        let rows: Vec<Vec<Cell>> = self.rows().iter().map(cells).collect();
        let width = |at: usize| rows.iter().map(|row| tame(&row[at].text).chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..7).map(width).collect();
        for (at, line) in self.summary().iter().enumerate() {
            let paint = if at == 0 { self.quorum() } else { Some(Paint::Warn) };
            out.line(look.paint(paint, &tame(line)));
        }
        for row in &rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let text = match &cell.text[..] {
                    "" => "-".to_owned(),
                    text => tame(text),
                };
                let blanks = width.saturating_sub(text.chars().count());
                line += &format!("  {}{}", look.paint(cell.paint, &text), " ".repeat(blanks));
            }
            out.line(line.trim_end());
        }
        Ok(())
    }

    fn table(&self, out: &mut Out) -> Outcome {
        let headers = ["ID", "Name", "Role", "State", "Behind", "Peer Addrs", "Client Addrs"];
        table::draw_cells(out, &headers, &self.rows().iter().map(cells).collect::<Vec<_>>());
        for line in self.summary() {
            out.line(tame(&line));
        }
        Ok(())
    }

    fn fields(&self, out: &mut Out) -> Outcome {
        self.listed.fields(out)
    }

    fn json(&self, hex: bool) -> Outcome<String> {
        let votes = self.facts.votes();
        let leader = self.facts.leader().unwrap_or(0);
        let number = |n: usize| i128::try_from(n).unwrap_or(0);
        let mut quorum = json::Object::new();
        quorum.number("voters", number(votes.all)).number("serving", number(votes.up));
        quorum.number("needed", number(votes.needed));
        quorum.number("mayFail", number(votes.up.saturating_sub(votes.needed)));
        quorum.some_id("leader", leader, hex);
        let members = self.rows().iter().map(|row| json_of_row(row, hex)).collect();
        Ok(json::Object::new()
            .header_hex(self.listed.header.as_ref(), hex)
            .some_array("members", members)
            .raw("quorum", &quorum.finish())
            .finish())
    }

    fn protobuf(&self) -> Outcome<Vec<u8>> {
        self.listed.protobuf()
    }
}

/// What the stock tool writes, and more behind it.
fn json_of_row(row: &Row, hex: bool) -> String {
    let mut object = json_of_member(row.member, hex);
    object.text("role", row.role).text("state", row.state);
    if let Some(reason) = &row.reason {
        object.text("reason", reason);
    }
    if let Some(revision) = row.revision {
        object.number("revision", revision);
    }
    if let Some((entries, revisions)) = row.behind {
        object.number("entriesBehind", entries).number("revisionsBehind", revisions);
    }
    object.finish()
}

/// A member as the stock tool writes it.
pub fn json_of_member(member: &Member, hex: bool) -> json::Object {
    let mut object = json::Object::new();
    object
        .some_id("ID", member.id, hex)
        .some_text("name", &member.name)
        .some_texts("peerURLs", &member.peer_urls)
        .some_texts("clientURLs", &member.client_urls)
        .some_switch("isLearner", member.is_learner);
    object
}
