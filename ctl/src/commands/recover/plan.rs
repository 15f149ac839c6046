//! Which of the survivors a cluster goes on from, what that loses, and what is to be typed. Nothing
//! is asked and nothing read here.

use utl::survey::{Known, Survey};

/// A member that still runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Live {
    pub(super) endpoint: String,
    pub(super) member: u64,
    pub(super) term: u64,
    pub(super) commit: u64,
    pub(super) revision: i64,
    pub(super) leader: u64,
}

/// Where data was looked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    pub(super) surveys: Vec<Survey>,
    pub(super) live: Vec<Live>,
    /// Endpoints that did not answer, and why.
    pub(super) silent: Vec<(String, String)>,
}

/// Why no cluster is brought up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unfit(pub(super) String);

/// Something to type, and what for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) what: String,
    pub(super) command: String,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) chosen: Survey,
    /// What is lost for certain.
    pub(super) surely: Vec<String>,
    /// What may be.
    pub(super) possibly: Vec<String>,
    pub(super) steps: Vec<Step>,
}

/// A member's name, or its id.
pub(super) fn name_of(survey: &Survey) -> String {
    let name = survey.members.iter().find(|known| known.id == survey.member).map(|known| known.name.clone());
    name.filter(|name| !name.is_empty()).unwrap_or(format!("{:x}", survey.member))
}

fn usable(places: &Places) -> impl Iterator<Item = &Survey> {
    places.surveys.iter().filter(|survey| survey.unusable.is_none())
}

/// The last entry that two logs have in common, as far as both go back; 0: they have none.
fn common(one: &Survey, other: &Survey) -> u64 {
    let mut starts: Vec<u64> = one.terms.iter().chain(&other.terms).map(|run| run.index).collect();
    starts.sort_unstable();
    let (mut last, end) = (0, one.last.index.min(other.last.index));
    for start in starts.into_iter().filter(|start| *start <= end) {
        match (one.term_of(start), other.term_of(start)) {
            (Some(a), Some(b)) if a == b => last = start,
            (Some(_), Some(_)) => return start - 1,
            // Before the beginning of one of them.
            _ => {}
        }
    }
    if last == 0 { 0 } else { end }
}

/// Whether a log has everything that the other one knows to be committed.
fn contains(one: &Survey, other: &Survey) -> bool {
    let begins = one.terms.first().map_or(0, |run| run.index);
    other.commit <= begins || common(one, other) >= other.commit
}

/// The plan for what was found. `wanted`: name, id or directory of the member to go on from.
///
/// # Errors
/// Nothing is there to go on from, or nothing needs it.
pub(super) fn plan(places: &Places, wanted: &str) -> Result<Plan, Unfit> {
    if let Some(live) = places.live.iter().find(|live| live.leader != 0) {
        return Err(Unfit(format!(
            "{} has a leader ({:x}): a majority runs, and nothing is to be recovered; `kvorum ctl doctor` says what \
             is wrong",
            live.endpoint, live.leader
        )));
    }
    let chosen = choose(places, wanted)?.clone();
    one_cluster(places, &chosen)?;
    let voters: Vec<u64> = chosen.members.iter().filter(|known| !known.learner).map(|known| known.id).collect();
    let count = |counts: fn(&Survey) -> bool| {
        let counts = |survey: &&Survey| voters.contains(&survey.member) && counts(survey);
        let mut ids: Vec<u64> = usable(places).filter(counts).map(|survey| survey.member).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.len()
    };
    let (whole, witnesses) = (count(|survey| survey.damage.is_empty()), count(|survey| !survey.forgets));
    let majority = voters.len() / 2 + 1;
    if whole >= majority && wanted.is_empty() {
        return Err(Unfit(format!(
            "the directories of {} of {} voters are whole, and {majority} are a majority: start these members as they \
             are, and nothing is lost",
            whole,
            voters.len()
        )));
    }
    let (surely, mut possibly) = (surely(places, &chosen, wanted)?, Vec::new());
    possibly.extend(chosen.damage.iter().cloned());
    if voters.len() - witnesses >= majority {
        possibly.push(format!(
            "what members that are lost, or lost the end of their logs, acknowledged among themselves behind entry {} \
             (revision {}): nobody can tell how much",
            chosen.last.index, chosen.revision
        ));
    }
    let steps = steps(&chosen);
    Ok(Plan { chosen, surely, possibly, steps })
}

fn choose<'p>(places: &'p Places, wanted: &str) -> Result<&'p Survey, Unfit> {
    if !wanted.is_empty() {
        let is_it = |survey: &&Survey| {
            name_of(survey) == wanted || format!("{:x}", survey.member) == wanted || survey.dir == wanted
        };
        let found = places.surveys.iter().find(is_it);
        let found = found.ok_or_else(|| Unfit(format!("--choose {wanted}: no directory is of that member")))?;
        return match &found.unusable {
            Some(why) => Err(Unfit(format!("--choose {wanted}: {why}"))),
            None => Ok(found),
        };
    }
    // As raft compares logs; of two that are the same the whole one, and the one that knows more.
    let newest = usable(places).max_by_key(|survey| (survey.last, survey.damage.is_empty(), survey.commit));
    newest.ok_or_else(|| match places.live.iter().max_by_key(|live| (live.term, live.commit)) {
        Some(live) => Unfit(format!(
            "only members that run were asked, and they tell what is committed, not all that their disks hold. {} is \
             the furthest: stop the members, and name their data directories",
            live.endpoint
        )),
        None => Unfit("no directory that a cluster could go on from".to_string()),
    })
}

fn one_cluster(places: &Places, chosen: &Survey) -> Result<(), Unfit> {
    let differ = |a: u64, b: u64| a != 0 && b != 0 && a != b;
    let other =
        usable(places).find(|survey| survey.cluster != chosen.cluster || differ(survey.founding, chosen.founding));
    other.map_or(Ok(()), |other| {
        Err(Unfit(format!(
            "{} is of cluster {:x}, founding {:016x}, and {} of cluster {:x}, founding {:016x}: leave the directories \
             of one of them out",
            other.dir, other.cluster, other.founding, chosen.dir, chosen.cluster, chosen.founding
        )))
    })
}

/// What others have, and the chosen one has not.
fn surely(places: &Places, chosen: &Survey, wanted: &str) -> Result<Vec<String>, Unfit> {
    let mut lost = Vec::new();
    for other in usable(places).filter(|other| other.dir != chosen.dir) {
        let both = common(chosen, other);
        if !contains(chosen, other) {
            let text = format!(
                "{} knows entry {} to be committed (revision {}), and {} does not have it: they agree up to entry {both}",
                name_of(other),
                other.commit,
                other.committed_revision,
                name_of(chosen),
            );
            if wanted.is_empty() {
                return Err(Unfit(format!("two histories: {text}. Compare them, and --choose one")));
            }
            lost.push(text);
        } else if other.last.index > both && both > 0 {
            lost.push(format!(
                "entries {} to {} of {}, which are not known to have been acknowledged",
                both + 1,
                other.last.index,
                name_of(other)
            ));
        }
    }
    for live in places.live.iter().filter(|live| live.revision > chosen.revision) {
        lost.push(format!(
            "revisions {} to {}, which {} has: stop it, and name its data directory as well",
            chosen.revision + 1,
            live.revision,
            live.endpoint
        ));
    }
    Ok(lost)
}

fn server(known: &Known, dir: &str, cluster: &str, more: &str) -> String {
    let (peers, clients) = (known.peer_urls.join(","), known.client_urls.join(","));
    let clients = if clients.is_empty() { "http://127.0.0.1:2379".to_string() } else { clients };
    format!(
        "kvorum server --name {} --data-dir {} --listen-peer-urls {} --initial-advertise-peer-urls {peers} \
         --listen-client-urls {} --advertise-client-urls {clients} --initial-cluster {cluster}{more}",
        quoted(&known.name),
        quoted(dir),
        listening(&peers),
        listening(&clients),
    )
}

/// Where a member listens that is advertised at these URLs: a name is no address.
fn listening(urls: &str) -> String {
    let one = |url: &str| {
        let Some((scheme, rest)) = url.split_once("://") else { return url.to_string() };
        let Some((host, port)) = rest.rsplit_once(':') else { return url.to_string() };
        let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
        if address { url.to_string() } else { format!("{scheme}://0.0.0.0:{port}") }
    };
    urls.split(',').map(one).collect::<Vec<_>>().join(",")
}

/// For a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:=,+@".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_string()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

fn named(known: &Known) -> String {
    let urls = known.peer_urls.iter().map(|url| format!("{}={url}", known.name));
    urls.collect::<Vec<_>>().join(",")
}

/// The first member, then the others one by one, as learners: a cluster of one that waits for the
/// vote of a second member stands still.
fn steps(chosen: &Survey) -> Vec<Step> {
    let step = |what: String, command: String| Step { what, command };
    let Some(own) = chosen.members.iter().find(|known| known.id == chosen.member) else { return Vec::new() };
    let mut steps = vec![
        step(
            format!("start {} alone, with its other flags as well (certificates and the like)", own.name),
            server(own, &chosen.dir, &named(own), " --force-new-cluster"),
        ),
        step(
            "look at what it has".to_string(),
            format!("kvorum ctl --endpoints {} endpoint status", own.client_urls.join(",")),
        ),
        step(format!("stop it, and start {} without the flag", own.name), server(own, &chosen.dir, &named(own), "")),
    ];
    let mut cluster = named(own);
    for other in chosen.members.iter().filter(|known| known.id != chosen.member) {
        let name = if other.name.is_empty() { format!("{:x}", other.id) } else { other.name.clone() };
        let other = Known { name, ..other.clone() };
        let ctl = format!("kvorum ctl --endpoints {}", own.client_urls.join(","));
        cluster = format!("{cluster},{}", named(&other));
        let peers = other.peer_urls.join(",");
        steps.extend([
            step(
                format!("add {}, as a learner", other.name),
                format!("{ctl} member add {} --learner --peer-urls={peers}", quoted(&other.name)),
            ),
            step(
                format!("start {} on its machine, on an empty directory: move the old one aside", other.name),
                server(&other, &format!("{}.etcd", other.name), &cluster, " --initial-cluster-state existing"),
            ),
            step(
                format!("give {} a vote, when it is in step", other.name),
                format!("{ctl} member promote {}", quoted(&other.name)),
            ),
        ]);
    }
    steps
}

#[cfg(test)]
mod tests;
