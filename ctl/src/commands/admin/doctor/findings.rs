//! What is wrong, from what is known: pure, so that every sentence has a test.

use std::collections::BTreeMap;

use super::{
    super::{alarm, gofmt},
    facts::{Facts, Refusal, name, only_local, reasons, same, unstarted},
};
use client::wire::etcdserverpb::{AlarmType, Member, StatusResponse};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something does not work, or the next failure stops the cluster.
    Error,
    /// It works, and should be seen to.
    Warning,
    /// Good to know.
    Note,
}

impl Level {
    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Note => "note",
        }
    }
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// A name that stays the same in later releases, for scripts.
    pub code: &'static str,
    /// The member it is about; empty if it is the cluster.
    pub member: String,
    /// What is wrong, in one or two sentences.
    pub text: String,
    /// What to do; empty if there is nothing.
    pub advice: String,
    /// Command lines for it.
    pub commands: Vec<String>,
}

impl Finding {
    fn new(level: Level, code: &'static str, text: String) -> Finding {
        Finding { level, code, member: String::new(), text, advice: String::new(), commands: Vec::new() }
    }

    fn about(mut self, member: &Member) -> Finding {
        self.member = name(member);
        self
    }

    fn advice(mut self, advice: impl Into<String>) -> Finding {
        self.advice = advice.into();
        self
    }

    fn commands(mut self, commands: impl IntoIterator<Item = String>) -> Finding {
        self.commands.extend(commands);
        self
    }
}

/// Entries not yet applied, from which on a member is slow.
const APPLY_LAG: u64 = 1_000;
/// etcd takes no more writes beyond so many.
const APPLY_LAG_STOPS: u64 = 5_000;
/// Entries that a member has not even received.
const LOG_LAG: u64 = 5_000;
/// Milliseconds between two clocks that are known to two seconds.
const CLOCKS_APART: i64 = 2_500;
/// Seconds of one flush, beyond which elections become likely.
const SLOW_FLUSH: f64 = 0.010;
/// Free bytes for which a defrag is worth its pause.
const WORTH_A_DEFRAG: i64 = 100_000_000;

/// Everything that is wrong, the worst first.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if facts.up().is_empty() {
        found.push(nobody(facts));
        return found;
    }
    for check in [
        clusters,
        unknown,
        quorum,
        down,
        endpoints,
        leader,
        unstarted_members,
        alarms,
        hashes,
        errors,
        lag,
        quota,
        defrag,
        voters,
        learners,
        urls,
        versions,
        clocks,
        disks,
        elections,
        descriptors,
    ] {
        check(facts, &mut found);
    }
    found.sort_by_key(|finding| finding.level);
    found
}

/// What could not be looked at, and why.
pub fn unchecked(facts: &Facts) -> Vec<String> {
    let mut left = Vec::new();
    let up = facts.up();
    if up.is_empty() {
        return left;
    }
    if let Err(reason) = &facts.alarms {
        left.push(format!("the list of alarms: {reason}"));
    }
    if !facts.hashed {
        left.push("whether all have the same keys: --hash=false".to_owned());
    }
    for (member, answer, _) in &up {
        // A learner may refuse; it has no say in what is right anyway.
        if let Some(Err(reason)) = &answer.hash
            && !member.is_learner
        {
            left.push(format!("the hash of {}: {reason}", name(member)));
        }
    }
    for (member, answer, _) in &up {
        if let Err(reason) = &answer.metrics {
            left.push(format!("clock, disk and elections of {}: its /metrics cannot be read: {reason}", name(member)));
        }
    }
    left
}

/// What was looked at and is as it should be, in a few words each.
pub fn well(facts: &Facts, found: &[Finding]) -> Vec<String> {
    let (up, votes) = (facts.up(), facts.votes());
    let clean = |codes: &[&str]| found.iter().all(|f| !codes.contains(&f.code));
    let mut well = Vec::new();
    if up.is_empty() {
        return well;
    }
    if facts.agrees() && votes.up >= votes.needed {
        let spare = votes.up - votes.needed;
        let spare = if spare == 0 { String::new() } else { format!(", and {spare} of {} voters may fail", votes.all) };
        well.push(format!("a quorum answers{spare}"));
    }
    if facts.alarms.as_ref().is_ok_and(Vec::is_empty) {
        well.push("no alarms".to_owned());
    }
    let mut hashes: Vec<(u32, i64)> = up
        .iter()
        .filter_map(|(_, a, _)| a.hash.as_ref()?.as_ref().ok())
        .map(|h| (h.hash, h.compact_revision))
        .collect();
    let compared = hashes.len();
    hashes.dedup();
    if let ([(hash, _)], true) = (&hashes[..], compared > 1) {
        let revision = facts.common_revision().unwrap_or(0);
        well.push(format!("{compared} members have the same data: hash {hash} at revision {revision}"));
    }
    if clean(&["apply-lag", "log-lag", "cut-off"]) {
        well.push("nobody lags".to_owned());
    }
    if clean(&["quota", "nospace"]) && up.iter().all(|(.., s)| s.db_size_quota > 0) {
        well.push("there is room below the quota".to_owned());
    }
    if clean(&["defrag", "nospace"]) {
        let ours = up.iter().all(|(_, answer, _)| answer.is_kvorum());
        let why = if ours { "kvorum gives space back by itself" } else { "little is free" };
        well.push(format!("no defrag is needed: {why}"));
    }
    if let (true, Some((.., status))) = (clean(&["versions-differ"]), up.first()) {
        well.push(format!("one version, {}", status.version));
    }
    if clean(&["clocks-differ", "own-clock"]) && up.iter().all(|(_, a, _)| a.clock.is_some()) {
        well.push("the clocks agree".to_owned());
    }
    well
}

fn nobody(facts: &Facts) -> Finding {
    let silent = || facts.answers.iter().filter_map(|a| Some((&a.endpoint, a.status.as_ref().err()?)));
    let why: Vec<String> = silent().map(|(endpoint, silence)| format!("{endpoint}: {silence}")).collect();
    let advice = if silent().any(|(_, silence)| silence.asks_user) {
        "The cluster asks for a user: give --user."
    } else {
        "Check the addresses after --endpoints, whether TLS is wanted (--cacert, --cert, --key), and on the hosts \
         whether the servers run."
    };
    Finding::new(Level::Error, "no-answer", format!("Nobody answers. {}.", why.join("; "))).advice(advice)
}

fn clusters(facts: &Facts, found: &mut Vec<Finding>) {
    let mut ids: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for answer in &facts.answers {
        let Some(header) = answer.status.as_ref().ok().and_then(|s| s.header.as_ref()) else { continue };
        ids.entry(header.cluster_id).or_default().push(&answer.endpoint);
    }
    if ids.len() > 1 {
        let each: Vec<String> = ids.iter().map(|(id, who)| format!("{id:x} at {}", who.join(", "))).collect();
        let text = format!("The endpoints belong to different clusters: {}.", each.join("; "));
        found.push(
            Finding::new(Level::Error, "clusters-mixed", text)
                .advice("Name the endpoints of one cluster only; what follows mixes them."),
        );
    }
}

/// What must be known for anything else to mean much.
fn unknown(facts: &Facts, found: &mut Vec<Finding>) {
    if let Err(reason) = &facts.members {
        let text = format!("Who is in the cluster is not known: {reason}. Those that answer are looked at.");
        found.push(Finding::new(Level::Warning, "members-unknown", text));
    }
    if facts.up().iter().any(|(_, answer, _)| answer.read == Some(Err(Refusal::Unknown))) {
        let text = "The cluster asks for a user: whether it takes reads and writes is not known.".to_owned();
        found.push(Finding::new(Level::Warning, "user-wanted", text).advice("Give --user; root sees everything."));
    }
}

fn quorum(facts: &Facts, found: &mut Vec<Finding>) {
    let votes = facts.votes();
    let failed: Vec<(Member, &str)> = facts
        .up()
        .into_iter()
        .filter_map(|(member, answer, _)| match &answer.read {
            Some(Err(Refusal::Failed(reason))) => Some((member, reason.as_str())),
            _ => None,
        })
        .collect();
    if facts.no_quorum() {
        let missing = votes.needed - votes.up - votes.unknown;
        let text = format!(
            "There is no quorum: {} of {} voters answer and {} are needed. Nothing can be written, and \
             linearisable reads fail.",
            votes.up, votes.all, votes.needed
        );
        found.push(Finding::new(Level::Error, "quorum-lost", text).advice(format!(
            "Start {missing} more of those that do not answer, with the data directories they had. If those are \
             lost for good, begin a new cluster from a backup or from the data of one member: \
             `kvorum utl snapshot restore --help`."
        )));
        return;
    }
    if let (false, Some((_, reason))) = (facts.agrees(), failed.first()) {
        let text = format!("Members answer, but no linearisable read comes back: {reason}.");
        found.push(
            Finding::new(Level::Error, "reads-fail", text)
                .advice("The members cannot agree: look at their logs and at the network between their peer URLs."),
        );
        return;
    }
    for (member, reason) in failed {
        let text = format!("A linearisable read at {} fails, at others it does not: {reason}.", name(&member));
        found.push(Finding::new(Level::Warning, "read-fails", text).about(&member).advice(
            "It does not hear from the leader: look at its log and at the network between its peer URL and the others'.",
        ));
    }
    if votes.all > 2 && votes.up < votes.all && votes.up + votes.unknown == votes.needed {
        let text = format!(
            "{} of {} voters answer and {} are needed: one more failure stops the cluster.",
            votes.up, votes.all, votes.needed
        );
        found.push(
            Finding::new(Level::Error, "no-spare", text)
                .advice("Bring the missing ones back before anything else; put off upgrades and restarts."),
        );
    }
}

fn down(facts: &Facts, found: &mut Vec<Finding>) {
    let votes = facts.votes();
    for member in facts.members().iter().filter(|m| !unstarted(m) && facts.missing(m)) {
        let name = name(member);
        let urls = member.client_urls.join(", ");
        let text = format!("{name} ({urls}) does not answer: {}.", reasons(facts, member));
        if facts.agrees() && votes.up < votes.needed {
            let advice = "The cluster has a quorum, so some of those that do not answer here run: check the way \
                          from this machine to their client URLs.";
            found.push(Finding::new(Level::Warning, "member-unreachable", text).about(member).advice(advice));
            continue;
        }
        let spare = votes.up + votes.unknown > votes.needed || member.is_learner;
        let level = if spare { Level::Warning } else { Level::Error };
        let finding = Finding::new(level, "member-down", text).about(member);
        if votes.up < votes.needed {
            found.push(finding.advice("Start it again on its host."));
            continue;
        }
        let learner = if member.is_learner { " --learner" } else { "" };
        let peers = member.peer_urls.join(",");
        found.push(
            finding
                .advice(
                    "Start it again on its host. Only if its disk is lost, replace it in this order, and start it with \
                     an empty data directory and --initial-cluster-state=existing:",
                )
                .commands([
                    facts.command_to_one(&format!("member remove {:x}", member.id)),
                    facts.command_to_one(&format!("member add {name} --peer-urls={peers}{learner}")),
                ]),
        );
    }
}

fn endpoints(facts: &Facts, found: &mut Vec<Finding>) {
    let members = facts.members();
    let owner = |endpoint: &str| members.iter().find(|m| m.client_urls.iter().any(|url| same(url, endpoint)));
    for answer in &facts.answers {
        let owner = owner(&answer.endpoint);
        match (&answer.status, owner) {
            (Err(reason), None) => {
                let text = format!("The endpoint {} does not answer: {reason}.", answer.endpoint);
                let advice = "No member advertises it: take it out of --endpoints, or correct it.";
                found.push(Finding::new(Level::Warning, "endpoint-down", text).advice(advice));
            }
            // One of its other addresses works.
            (Err(reason), Some(member)) if facts.of(member.id).is_some() => {
                let text = format!(
                    "{} cannot be reached at {}, which it advertises: {reason}.",
                    name(member),
                    answer.endpoint
                );
                found.push(Finding::new(Level::Warning, "url-down", text).about(member).advice(
                    "Clients that learn the endpoints from the cluster will try it. Correct its \
                     --advertise-client-urls and restart it.",
                ));
            }
            (Ok(_), Some(member)) if answer.id() != Some(member.id) => {
                let other = members.iter().find(|m| Some(m.id) == answer.id()).map_or_else(String::new, name);
                let text = format!("{} advertises {}, and {other} answers there.", name(member), answer.endpoint);
                found.push(
                    Finding::new(Level::Error, "url-of-another", text)
                        .about(member)
                        .advice("Correct its --advertise-client-urls and restart it."),
                );
            }
            _ => {}
        }
    }
}

fn leader(facts: &Facts, found: &mut Vec<Finding>) {
    let up = facts.up();
    let members = facts.members();
    let called = |id: u64| members.iter().find(|m| m.id == id).map_or_else(|| format!("{id:x}"), name);
    let lost: Vec<String> = up.iter().filter(|(.., s)| s.leader == 0).map(|(m, ..)| name(m)).collect();
    if facts.no_quorum() {
        return;
    }
    if lost.len() == up.len() {
        let text = "Nobody leads, and has not for a second at least.".to_owned();
        let advice = "Look at the members' logs: an election fails when they do not hear each other, or when disks \
                      stall.";
        found.push(Finding::new(Level::Error, "no-leader", text).advice(advice));
        return;
    }
    for (member, ..) in up.iter().filter(|(.., s)| s.leader == 0) {
        let text = format!("{} knows no leader, others do: it is cut off from them.", name(member));
        found.push(
            Finding::new(Level::Error, "cut-off", text)
                .about(member)
                .advice("Check the network between its peer URL and the others', and the certificates of peers."),
        );
    }
    let mut named: Vec<(u64, u64)> =
        up.iter().filter(|(.., s)| s.leader != 0).map(|(.., s)| (s.leader, s.raft_term)).collect();
    named.sort_unstable();
    named.dedup();
    if named.len() > 1 {
        let each: Vec<String> = named.iter().map(|(id, term)| format!("{} in term {term}", called(*id))).collect();
        let text = format!("The members do not agree on who leads: {}.", each.join(", "));
        found.push(
            Finding::new(Level::Warning, "leaders-differ", text)
                .advice("An election is under way. If it is so again in a minute, the network is divided."),
        );
    }
}

fn unstarted_members(facts: &Facts, found: &mut Vec<Finding>) {
    for member in facts.members().iter().filter(|m| unstarted(m) && facts.of(m.id).is_none()) {
        let id = format!("{:x}", member.id);
        let peers = member.peer_urls.join(",");
        let counts = if member.is_learner { "." } else { ", and it counts as a voter that is down." };
        let text = format!("The member {id} ({peers}) was added and has never started{counts}");
        found.push(
            Finding::new(Level::Warning, "member-unstarted", text)
                .about(member)
                .advice("Start its server with --initial-cluster-state=existing and these peer URLs, or take it out:")
                .commands([facts.command_to_one(&format!("member remove {id}"))]),
        );
    }
}

fn alarms(facts: &Facts, found: &mut Vec<Finding>) {
    let members = facts.members();
    let raised = facts.alarms.as_deref().unwrap_or_default();
    for (kind, alarm) in raised.iter().map(|a| (AlarmType::try_from(a.alarm), a)) {
        let member = members.iter().find(|m| m.id == alarm.member_id).cloned();
        let member = member.unwrap_or_else(|| Member { id: alarm.member_id, ..Member::default() });
        let finding = match kind {
            Ok(AlarmType::Nospace) => no_space(facts, &member),
            Ok(AlarmType::Corrupt) => corrupt(facts, &member),
            _ => {
                let text = format!("{} has raised the alarm {}.", name(&member), alarm::name(alarm.alarm));
                Finding::new(Level::Error, "alarm", text)
            }
        };
        found.push(finding.about(&member));
    }
}

fn no_space(facts: &Facts, member: &Member) -> Finding {
    let (ours, full) = match facts.of(member.id) {
        Some(answer) => (answer.is_kvorum(), answer.status.as_ref().ok().map(sizes).unwrap_or_default()),
        None => (false, String::new()),
    };
    let text = format!("{} has raised NOSPACE: the cluster takes no writes that need room.{full}", name(member));
    let mut commands = vec![facts.command_to_one(&format!("compaction {}", facts.revision()))];
    let advice = if ours {
        "Delete what is not needed, forget old revisions, then clear the alarm. If the disk itself is full, make \
         room on it; a kvorum member then goes on by itself."
    } else {
        commands.extend(defrag_commands(facts, |_, _| true));
        "Delete what is not needed, forget old revisions, give the free pages back, then clear the alarm."
    };
    commands.push(facts.command_to_one("alarm disarm"));
    Finding::new(Level::Error, "nospace", text)
        .advice(format!("{advice} If it will come again, start the servers with a larger --quota-backend-bytes."))
        .commands(commands)
}

fn sizes(status: &StatusResponse) -> String {
    let size = |bytes: i64| gofmt::size(u64::try_from(bytes).unwrap_or(0));
    let quota =
        if status.db_size_quota > 0 { format!(", quota {}", size(status.db_size_quota)) } else { String::new() };
    format!(" Its database has {}, {} in use{quota}.", size(status.db_size), size(status.db_size_in_use))
}

fn corrupt(facts: &Facts, member: &Member) -> Finding {
    let text = format!("CORRUPT is raised for {}: its data differs from that of the others.", name(member));
    let peers = member.peer_urls.join(",");
    Finding::new(Level::Error, "corrupt", text)
        .advice(
            "Make sure by their hashes which member is the odd one, keep a copy of its data directory, then replace \
             it and clear the alarm:",
        )
        .commands([
            facts.command_to_all("endpoint hashkv"),
            facts.command_to_one(&format!("member remove {:x}", member.id)),
            facts.command_to_one(&format!("member add {} --peer-urls={peers}", name(member))),
            facts.command_to_one("alarm disarm"),
        ])
}

/// Hashes can be compared if the same was compacted.
fn hashes(facts: &Facts, found: &mut Vec<Finding>) {
    let mut groups: BTreeMap<i64, BTreeMap<u32, Vec<String>>> = BTreeMap::new();
    for (member, answer, _) in facts.up() {
        if let Some(Ok(hash)) = &answer.hash {
            groups.entry(hash.compact_revision).or_default().entry(hash.hash).or_default().push(name(&member));
        }
    }
    let revision = facts.common_revision().unwrap_or(0);
    for group in groups.values().filter(|group| group.len() > 1) {
        let each: Vec<String> = group.iter().map(|(hash, who)| format!("{} has {hash}", who.join(", "))).collect();
        let text = format!("The members have different data at revision {revision}: the hash of {}.", each.join("; "));
        found.push(
            Finding::new(Level::Error, "hashes-differ", text)
                .advice(
                    "Look again; if it stays so, stop writing, save what each member has, and replace those that are \
                     in the minority.",
                )
                .commands([facts.command_to_all(&format!("endpoint hashkv --rev={revision}"))]),
        );
    }
}

/// What a member says of itself that no other finding has.
fn errors(facts: &Facts, found: &mut Vec<Finding>) {
    for (member, _, status) in facts.up() {
        for error in &status.errors {
            let alarm = error.starts_with("memberID:") || error.starts_with("alarm:");
            if error == "etcdserver: no leader" || (alarm && facts.alarms.is_ok()) {
                continue;
            }
            let text = format!("{} says of itself: {error}.", name(&member));
            found.push(Finding::new(Level::Error, "member-error", text).about(&member));
        }
        if let Some(info) = status.downgrade_info.as_ref().filter(|info| info.enabled) {
            let text = format!("A downgrade to {} is under way, says {}.", info.target_version, name(&member));
            found.push(Finding::new(Level::Note, "downgrade", text).about(&member));
        }
    }
}

fn lag(facts: &Facts, found: &mut Vec<Finding>) {
    let newest = facts.up().iter().map(|(.., s)| s.raft_index).max().unwrap_or(0);
    for (member, _, status) in facts.up() {
        let waiting = status.raft_index.saturating_sub(status.raft_applied_index);
        if waiting >= APPLY_LAG {
            let level = if waiting >= APPLY_LAG_STOPS { Level::Error } else { Level::Warning };
            let text = format!("{} has yet to apply {waiting} entries that are agreed on.", name(&member));
            found.push(
                Finding::new(level, "apply-lag", text)
                    .about(&member)
                    .advice("It is slower than what is written: look at its disk and processor (`kvorum ctl top`)."),
            );
        }
        let behind = newest.saturating_sub(status.raft_index);
        if behind >= LOG_LAG && !status.is_learner {
            let text = format!("{} is {behind} entries behind the others.", name(&member));
            found.push(
                Finding::new(Level::Warning, "log-lag", text)
                    .about(&member)
                    .advice("If it was just started, it catches up by itself; otherwise look at its network and disk."),
            );
        }
    }
}

fn full(facts: &Facts) -> bool {
    facts.alarms.iter().flatten().any(|a| a.alarm == i32::from(AlarmType::Nospace))
}

fn quota(facts: &Facts, found: &mut Vec<Finding>) {
    // Has been said, with what to do.
    if full(facts) {
        return;
    }
    for (member, answer, status) in facts.up() {
        // etcd counts its file, with free pages; kvorum counts what is in use.
        let counted = if answer.is_kvorum() { status.db_size_in_use } else { status.db_size };
        let (counted, quota) = (i128::from(counted), i128::from(status.db_size_quota));
        if quota <= 0 || counted * 100 < quota * 80 {
            continue;
        }
        let level = if counted * 100 >= quota * 95 { Level::Error } else { Level::Warning };
        let percent = counted * 100 / quota;
        let text = format!(
            "{} has used {percent}% of its quota; at 100% the cluster takes no more writes.{}",
            name(&member),
            sizes(status)
        );
        let mut commands = vec![facts.command_to_one(&format!("compaction {}", facts.revision()))];
        if !answer.is_kvorum() {
            commands.push(facts.command(&[&answer.endpoint], "defrag"));
        }
        found.push(
            Finding::new(level, "quota", text)
                .about(&member)
                .advice(
                    "Delete what is not needed and forget old revisions (--auto-compaction-mode does it regularly), \
                     or start the servers with a larger --quota-backend-bytes.",
                )
                .commands(commands),
        );
    }
}

fn worth_a_defrag(status: &StatusResponse) -> bool {
    let free = status.db_size.saturating_sub(status.db_size_in_use);
    free >= WORTH_A_DEFRAG && free >= status.db_size / 2
}

/// One after the other, the leader last.
fn defrag_commands(facts: &Facts, wanted: fn(&StatusResponse, bool) -> bool) -> Vec<String> {
    let mut up = facts.up();
    up.retain(|(_, answer, status)| wanted(status, answer.is_kvorum()));
    up.sort_by_key(|(member, _, status)| status.leader == member.id);
    up.iter().map(|(_, answer, _)| facts.command(&[&answer.endpoint], "defrag")).collect()
}

fn defrag(facts: &Facts, found: &mut Vec<Finding>) {
    let wanted = |status: &StatusResponse, ours: bool| !ours && worth_a_defrag(status);
    let commands = defrag_commands(facts, wanted);
    if commands.is_empty() || full(facts) {
        return;
    }
    let size = |bytes: i64| gofmt::size(u64::try_from(bytes).unwrap_or(0));
    let each: Vec<String> = facts
        .up()
        .iter()
        .filter(|(_, answer, status)| wanted(status, answer.is_kvorum()))
        .map(|(member, _, s)| {
            format!("{} of {} at {}", size(s.db_size.saturating_sub(s.db_size_in_use)), size(s.db_size), name(member))
        })
        .collect();
    let text = format!("A defrag is worth it: free are {}.", each.join(", "));
    found.push(
        Finding::new(Level::Note, "defrag", text)
            .advice("A member answers nobody meanwhile: one after the other, the leader last.")
            .commands(commands),
    );
}

fn voters(facts: &Facts, found: &mut Vec<Finding>) {
    let votes = facts.votes();
    let finding = match votes.all {
        _ if facts.members.is_err() => return,
        1 => Finding::new(Level::Note, "one-voter", "There is one voter: its failure stops the cluster.".to_owned())
            .advice("For three, add two more members, one after the other."),
        2 => Finding::new(
            Level::Warning,
            "even-voters",
            "There are 2 voters: the failure of either stops the cluster, which makes two worse than one.".to_owned(),
        )
        .advice("Add a third member."),
        n if n % 2 == 0 => Finding::new(
            Level::Warning,
            "even-voters",
            format!("There are {n} voters: they bear the loss of {}, as {} would.", n - votes.needed, n - 1),
        )
        .advice("Add one member or take one out."),
        _ => return,
    };
    found.push(finding);
}

fn learners(facts: &Facts, found: &mut Vec<Finding>) {
    let newest = facts.up().iter().map(|(.., s)| s.raft_index).max().unwrap_or(0);
    for (member, _, status) in facts.up().into_iter().filter(|(m, ..)| m.is_learner) {
        let behind = newest.saturating_sub(status.raft_applied_index);
        // A leader takes a learner that has nine tenths of its log.
        let ready = u128::from(status.raft_applied_index) * 10 >= u128::from(newest) * 9;
        let finding = if ready {
            let text = format!("{} is a learner, and has caught up: it can be made a voter.", name(&member));
            Finding::new(Level::Note, "learner", text)
                .commands([facts.command_to_one(&format!("member promote {:x}", member.id))])
        } else {
            let text = format!("{} is a learner, {behind} entries behind.", name(&member));
            Finding::new(Level::Note, "learner", text).advice("Wait until it has caught up.")
        };
        found.push(finding.about(&member));
    }
}

fn urls(facts: &Facts, found: &mut Vec<Finding>) {
    let members: Vec<Member> = facts.members().into_iter().filter(|m| !unstarted(m)).collect();
    let far = |m: &Member| m.peer_urls.iter().any(|url| !only_local(url));
    let many_hosts = members.len() > 1 && members.iter().any(far);
    for member in members.iter().filter(|_| facts.members.is_ok()) {
        if member.client_urls.is_empty() {
            let text = format!("{} advertises no address for clients, and could not be asked.", name(member));
            found.push(
                Finding::new(Level::Warning, "no-url", text)
                    .about(member)
                    .advice("Restart it with --advertise-client-urls."),
            );
        }
        for url in member.client_urls.iter().filter(|url| many_hosts && only_local(url)) {
            let text = format!("{} advertises {url}, which leads every client to the client's own host.", name(member));
            found.push(
                Finding::new(Level::Warning, "url-local", text)
                    .about(member)
                    .advice("Restart it with --advertise-client-urls that can be reached from other hosts."),
            );
        }
    }
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    members.iter().for_each(|m| *names.entry(&m.name).or_default() += 1);
    for (twice, times) in names.into_iter().filter(|(_, times)| *times > 1) {
        let text = format!("{times} members are called {twice}.");
        let advice = "Give each its own --name: logs, metrics and this report cannot tell them apart.";
        found.push(Finding::new(Level::Warning, "name-twice", text).advice(advice));
    }
}

fn versions(facts: &Facts, found: &mut Vec<Finding>) {
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (up, known) = (facts.up(), facts.up().iter().all(|(_, answer, _)| answer.metrics.is_ok()));
    for (member, answer, status) in up {
        let whose = match (known, answer.is_kvorum()) {
            (false, _) => "",
            (true, true) => "kvorum ",
            (true, false) => "etcd ",
        };
        versions.entry(format!("{whose}{}", status.version)).or_default().push(name(&member));
    }
    if versions.len() > 1 {
        let each: Vec<String> = versions.iter().map(|(v, who)| format!("{} {v}", who.join(", "))).collect();
        let text = format!("The members run different versions: {}.", each.join("; "));
        found.push(
            Finding::new(Level::Warning, "versions-differ", text)
                .advice("Bring the upgrade to its end; until then the cluster does what the oldest can."),
        );
    }
}

fn clocks(facts: &Facts, found: &mut Vec<Finding>) {
    let mut clocks: Vec<(i64, String)> =
        facts.up().iter().filter_map(|(m, answer, _)| Some((answer.clock?, name(m)))).collect();
    clocks.sort();
    let (Some((low, slow)), Some((high, fast))) = (clocks.first(), clocks.last()) else { return };
    let seconds = |millis: i64| format!("{:.0} s", millis as f64 / 1e3);
    if high - low >= CLOCKS_APART {
        let text = format!("The clock of {fast} is about {} ahead of that of {slow}.", seconds(high - low));
        found.push(
            Finding::new(Level::Warning, "clocks-differ", text)
                .advice("Set the hosts' clocks by NTP: certificates, tokens and logs go by them."),
        );
    } else if low.abs().min(high.abs()) >= CLOCKS_APART {
        let way = if *low > 0 { "behind" } else { "ahead of" };
        let text = format!("The clock of this machine is about {} {way} those of the members.", seconds(low.abs()));
        found.push(Finding::new(Level::Note, "own-clock", text));
    }
}

fn disks(facts: &Facts, found: &mut Vec<Finding>) {
    for (member, answer, _) in facts.up() {
        let Some(flush) = answer.metrics.as_ref().ok().and_then(|m| m.flush).filter(|flush| *flush >= SLOW_FLUSH)
        else {
            continue;
        };
        let text = format!(
            "{} takes {:.0} ms on average to bring its log to the disk; less than 10 ms is wanted.",
            name(&member),
            flush * 1e3
        );
        found.push(
            Finding::new(Level::Warning, "disk-slow", text)
                .about(&member)
                .advice("Every write waits for it. Give the log a disk of its own (--wal-dir), or a faster one."),
        );
    }
}

fn elections(facts: &Facts, found: &mut Vec<Finding>) {
    for (member, answer, _) in facts.up() {
        let Some((changes, seconds)) = answer.metrics.as_ref().ok().and_then(|m| m.leader_changes) else { continue };
        let hours = (seconds / 3600.0).max(1.0);
        if changes < 4.0 || changes / hours < 1.0 {
            continue;
        }
        let text = format!("{} has seen the leader change {changes:.0} times in {hours:.0} h.", name(&member));
        found.push(Finding::new(Level::Warning, "elections", text).about(&member).advice(
            "Leaders are lost when disks stall or the network does: compare the hours in the members' logs, then \
             consider a longer --election-timeout.",
        ));
        // All have seen the same ones.
        return;
    }
}

fn descriptors(facts: &Facts, found: &mut Vec<Finding>) {
    for (member, answer, _) in facts.up() {
        let Some((open, most)) = answer.metrics.as_ref().ok().and_then(|m| m.descriptors) else { continue };
        if most > 0.0 && open >= most * 0.8 {
            let text = format!("{} has {open:.0} of {most:.0} file descriptors open.", name(&member));
            found.push(
                Finding::new(Level::Warning, "descriptors", text)
                    .about(&member)
                    .advice("Raise its limit (LimitNOFILE= in its unit), or find out who opens so many connections."),
            );
        }
    }
}
