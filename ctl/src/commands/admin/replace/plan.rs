//! What the replacement of a member has to do next, from what is seen of the cluster: pure, so that
//! it can be interrupted anywhere and goes on from what it finds.

use client::wire::etcdserverpb::Member;

use super::super::{
    doctor::facts::{Facts, host, name, reasons, unstarted},
    whom::{Unfound, among, unfound},
};
use crate::exit::Failure;

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Goal {
    /// The old member as it was typed.
    pub typed: String,
    /// Where the others will reach the new one.
    pub urls: Vec<String>,
    /// `--name`.
    pub name: Option<String>,
    /// The old member, if it was among the members when this run began.
    pub old: Option<Member>,
    /// The old member is known to be removed.
    pub gone: bool,
    /// This run has made the new member a voter.
    pub promoted: bool,
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The old member does not run: it only counts, and goes first.
    RemoveFirst(Member),
    /// Make room for the new member, as a learner.
    Add,
    /// Wait until somebody starts the new member.
    Start(Member),
    /// Wait until the new member has caught up, then give it a vote.
    Learn(Member),
    /// Take the old member out.
    Remove(Member),
    /// The new member votes and the old one is gone.
    Done(Member),
}

/// Why it does not go on, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

/// The old member among those who are there.
///
/// # Errors
/// The text means more than one member, or none and there is nothing to go on with.
pub fn find_old(goal: &mut Goal, members: &[Member]) -> Result<(), Failure> {
    let others: Vec<Member> = members.iter().filter(|member| !is_at(member, &goal.urls)).cloned().collect();
    match among(&others, &goal.typed) {
        Ok(member) => goal.old = Some(member.clone()),
        Err(Unfound::Ambiguous) => return Err(unfound(members, &goal.typed, &Unfound::Ambiguous)),
        Err(Unfound::Unknown) => {
            let at = members.iter().find(|member| is_at(member, &goal.urls));
            match (among(members, &goal.typed), at) {
                // It has the URLs of the new one: it is replaced where it is.
                (Ok(member), _) if !member.is_learner && !unstarted(member) => goal.old = Some(member.clone()),
                // The old one was removed before, and the new one is here.
                (_, Some(_)) => goal.gone = true,
                _ if goal.gone || is_id(&goal.typed) => goal.gone = true,
                _ => return Err(nobody(members, &goal.typed)),
            }
        }
    }
    Ok(())
}

/// Ids do not come back: a whole one that no member has was removed.
fn is_id(text: &str) -> bool {
    (12..=16).contains(&text.len()) && text.chars().all(|c| c.is_ascii_hexdigit())
}

fn nobody(members: &[Member], typed: &str) -> Failure {
    match unfound(members, typed, &Unfound::Unknown) {
        Failure::Text { code, text, cause } => {
            let text = format!("{text}. If it was removed before, by a replacement that was interrupted: --gone");
            Failure::Text { code, text, cause }
        }
        other => other,
    }
}

/// Whether these are its peer URLs, in any order.
fn is_at(member: &Member, urls: &[String]) -> bool {
    let covers = |a: &[String], b: &[String]| a.iter().all(|url| b.contains(url));
    member.peer_urls.len() == urls.len() && covers(&member.peer_urls, urls) && covers(urls, &member.peer_urls)
}

/// What is to be done next.
///
/// # Errors
/// It would cost the quorum, or cannot be done.
pub fn next(goal: &Goal, facts: &Facts) -> Result<Step, Refused> {
    let members = facts.members();
    let old = goal.old.as_ref().and_then(|old| members.iter().find(|member| member.id == old.id));
    let new = members.iter().find(|m| is_at(m, &goal.urls) && old.is_none_or(|old| old.id != m.id));
    let shared =
        |m: &&Member| old.is_none_or(|old| old.id != m.id) && m.peer_urls.iter().any(|u| goal.urls.contains(u));
    match (old, new) {
        (_, None) if members.iter().any(|m| shared(&m)) => {
            let other = members.iter().find(shared).expect("there is one");
            Err(Refused(format!(
                "{} has the peer URLs {}: the new member must have others, or exactly these",
                name(other),
                other.peer_urls.join(",")
            )))
        }
        (_, Some(new)) if unstarted(new) => Ok(Step::Start(new.clone())),
        (_, Some(new)) if new.is_learner => Ok(Step::Learn(new.clone())),
        (Some(old), Some(new)) => out(goal, facts, old, new),
        (None, Some(new)) => Ok(Step::Done(new.clone())),
        (None, None) => Ok(Step::Add),
        (Some(old), None) => begin(goal, facts, old),
    }
}

/// Voters of which it cannot be said whether they run: another member answers at their addresses.
/// One without an address has not started.
fn unknown(facts: &Facts) -> usize {
    let hidden = |m: &&Member| !m.is_learner && facts.of(m.id).is_none() && !is_down(facts, m);
    facts.members().iter().filter(hidden).count()
}

/// Whether it does not run, as far as can be seen.
fn is_down(facts: &Facts, member: &Member) -> bool {
    facts.missing(member) || (facts.of(member.id).is_none() && member.client_urls.is_empty())
}

/// Nothing was done yet.
fn begin(goal: &Goal, facts: &Facts, old: &Member) -> Result<Step, Refused> {
    let votes = facts.votes();
    let named = name(old);
    if votes.up + unknown(facts) < votes.needed {
        return Err(lost(facts));
    }
    if old.is_learner {
        return Err(Refused(format!(
            "{named} is a learner, and nothing depends on it. Remove it (`member remove {:x}`) and add another one \
             (`member add NAME --learner --peer-urls={}`)",
            old.id,
            goal.urls.join(",")
        )));
    }
    let down = is_down(facts, old);
    if old.peer_urls.iter().any(|url| goal.urls.contains(url)) && !down {
        return Err(Refused(format!(
            "{named} has these peer URLs and runs. If it is the new one already, nothing is left to do. To put a new \
             one in its place, stop it first; or give the new one other URLs"
        )));
    }
    if down {
        return Ok(Step::RemoveFirst(old.clone()));
    }
    // As the cluster counts: enough for a quorum with one more that is not there.
    if votes.all > 1 && votes.up + unknown(facts) <= votes.all.div_ceil(2) {
        return Err(Refused(format!(
            "{} of {} voters answer, and one more member would count before it helps: the cluster would be one \
             failure from standing still. {}Bring back whoever is missing, or replace that one first",
            votes.up,
            votes.all,
            missing(facts)
        )));
    }
    Ok(Step::Add)
}

/// Whether the new member may get its vote now.
///
/// # Errors
/// Too few voters answer for a quorum of one voter more.
pub fn may_vote(facts: &Facts, new: &Member) -> Result<(), Refused> {
    let votes = facts.votes();
    if facts.of(new.id).is_some() && votes.up + unknown(facts) > votes.all.div_ceil(2) {
        return Ok(());
    }
    if facts.of(new.id).is_some() && votes.all == 1 {
        return Ok(());
    }
    Err(Refused(format!(
        "with one voter more, {} must be there, and {} would be. {}Bring back whoever is missing",
        votes.all.div_ceil(2) + 1,
        votes.up + 1,
        missing(facts)
    )))
}

/// The new member votes, and the old one is still there.
fn out(goal: &Goal, facts: &Facts, old: &Member, new: &Member) -> Result<Step, Refused> {
    let votes = facts.votes();
    let left = votes.all - usize::from(!old.is_learner);
    let up = votes.up - usize::from(!old.is_learner && facts.of(old.id).is_some()) + unknown(facts);
    let needed = left / 2 + 1;
    if !goal.promoted && left.is_multiple_of(2) {
        return Err(Refused(format!(
            "{} has these peer URLs and votes already, and without {} there would be {left} voters. If it is the new \
             one, finish with `member remove {:x}`; else the new member must have other URLs",
            name(new),
            name(old),
            old.id
        )));
    }
    if up < needed || is_down(facts, new) {
        return Err(Refused(format!(
            "without {}, {needed} of {left} voters must be there, and {up} would be. {}Bring back whoever is missing",
            name(old),
            missing(facts)
        )));
    }
    Ok(Step::Remove(old.clone()))
}

fn lost(facts: &Facts) -> Refused {
    let votes = facts.votes();
    Refused(format!(
        "{} of {} voters answer and {} are needed: without a quorum no member can be changed. {}Bring back whoever is \
         missing. What is lost for good: `kvorum ctl recover` (docs/operations/quorum-lost.md)",
        votes.up,
        votes.all,
        votes.needed,
        missing(facts)
    ))
}

/// The voters that do not answer, and why: a sentence with a blank behind it, or nothing.
pub fn missing(facts: &Facts) -> String {
    let silent: Vec<String> = facts
        .members()
        .iter()
        .filter(|member| !member.is_learner && facts.of(member.id).is_none())
        .map(|member| match unstarted(member) {
            true => format!("{} was never started", name(member)),
            false => format!("{} does not: {}", name(member), reasons(facts, member)),
        })
        .collect();
    if silent.is_empty() { String::new() } else { format!("{}. ", silent.join("; ")) }
}

/// The name that the new member is to have.
///
/// # Errors
/// `--name` is the name of another member.
pub fn new_name(goal: &Goal, members: &[Member]) -> Result<String, Refused> {
    let taken = |name: &str| members.iter().any(|m| m.name == name && !is_at(m, &goal.urls));
    let new = members.iter().find(|member| is_at(member, &goal.urls));
    if let Some(new) = new.filter(|new| !new.name.is_empty() && goal.old.as_ref().is_none_or(|old| old.id != new.id)) {
        return Ok(new.name.clone());
    }
    let old = goal.old.as_ref().map(|old| &old.name[..]).filter(|name| !name.is_empty());
    let leaves = |name: &str| old == Some(name) && goal.gone;
    if let Some(wanted) = &goal.name {
        return match taken(wanted) && !leaves(wanted) {
            true => Err(Refused(format!("another member has the name {wanted}: --name must be its own"))),
            false => Ok(wanted.clone()),
        };
    }
    let base = match old {
        Some(name) => name,
        None if is_id(&goal.typed) => host(&goal.urls[0]),
        None => &goal.typed,
    };
    if !taken(base) || leaves(base) {
        return Ok(base.to_owned());
    }
    // m1, m1-2, m1-3
    let (stem, from) = match base.rsplit_once('-').and_then(|(stem, n)| Some((stem, n.parse::<u32>().ok()?))) {
        Some((stem, n)) if !stem.is_empty() => (stem, n.saturating_add(1)),
        _ => (base, 2),
    };
    let mut names = (from..).map(|n| format!("{stem}-{n}"));
    Ok(names.find(|name| !taken(name)).expect("there are more numbers than members"))
}

/// This step and all behind it, for people.
pub fn steps(goal: &Goal, facts: &Facts, step: &Step, new: &str) -> Vec<String> {
    let urls = goal.urls.join(",");
    let leads = |old: &Member| match facts.leader() == Some(old.id) {
        true => ", which leads and hands over first",
        false => "",
    };
    let add = format!("add {new} as a learner, reached at {urls}");
    let start = format!("wait until {new} is started");
    let learn = format!("wait until {new} has caught up");
    let vote = format!("give {new} a vote");
    let remove = |old: &Member| format!("remove {} ({:x}){}", name(old), old.id, leads(old));
    let old = goal.old.as_ref().filter(|old| facts.members().iter().any(|member| member.id == old.id));
    let (first, from) = match step {
        Step::RemoveFirst(old) => {
            let why = if unstarted(old) { "it was never started".to_owned() } else { reasons(facts, old) };
            (Some(format!("remove {} ({:x}), which does not answer: {why}", name(old), old.id)), 0)
        }
        Step::Add => (None, 0),
        Step::Start(_) => (None, 1),
        Step::Learn(_) => (None, 2),
        Step::Remove(_) => (None, 4),
        Step::Done(_) => (None, 5),
    };
    let last = old.filter(|_| !matches!(step, Step::RemoveFirst(_))).map(remove);
    let all = [Some(add), Some(start), Some(learn), Some(vote), last];
    first.into_iter().chain(all.into_iter().skip(from).flatten()).collect()
}

#[cfg(test)]
mod tests;
