//! `member replace`: another member in the place of one, by one command that can be interrupted and
//! run again. Only `kvorum ctl` has it; it works on real etcd as well.

mod plan;

use std::time::{Duration, Instant};

use client::{
    Client, Error,
    wire::etcdserverpb::{Member, MemberListResponse, StatusResponse},
};
use cobra::Flag;
use indicatif::ProgressBar;

use self::plan::{Goal, Refused, Step, find_old, may_vote, missing, new_name, next, steps};
use super::{
    doctor::{
        facts::{Facts, name},
        gather,
    },
    gofmt,
    joining::{check_urls, initial_cluster, settings},
    memory,
};
use crate::{
    call::{Call, Command},
    exit::{BAD_ARGS, ERROR, Failure, INTERRUPTED, Outcome},
    print::{Answer, Format, Out, json},
    progress,
};

/// The row of the table of `member`.
pub const REPLACE: Command = Command {
    name: "replace",
    usage: "replace <memberID or name> <new peer URL>[,<URL>] [options]",
    short: "Puts another member in the place of one",
    long: "Puts another member in the place of one:
it adds the new one as a learner and prints how to start it, waits until it has started and
caught up, gives it a vote, and removes the old one. A leader hands over first. An old member
that does not run goes first, as it only counts. What would cost the quorum is refused.
If it is interrupted, run it again with the same words: it goes on.
Exit code: 0 replaced, 1 refused, 5 time ran out (run it again), 128 the words do not fit.",
    examples: "kvorum ctl member replace m3 http://10.0.0.4:2380
kvorum ctl member replace m3 http://10.0.0.4:2380 --name m4 --dry-run",
    flags: &[
        Flag::switch("dry-run", "say what would be done, and do nothing"),
        Flag::switch("gone", "the old member was removed before, as a replacement was interrupted"),
        Flag::text("name", "", "the name of the new member [the old one's, with a number if that still runs]"),
        Flag::duration("timeout", "1h0m0s", "how long all of it may take, the start of the new member too"),
    ],
    raw: true,
    run: Some(run),
    ..Command::NONE
};

/// Between two looks at the cluster.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Where nobody looks at a bar, one line in this time.
const SAY_EVERY: Duration = Duration::from_secs(5);
/// Entries behind the leader with which a learner gets its vote.
const NEAR: u64 = 1_000;

fn run(call: &Call) -> Outcome {
    let [typed, urls] = call.exactly("member replace takes the old member and the peer URLs of the new one")?;
    let urls: Vec<String> = urls.split(',').map(|url| url.trim().trim_end_matches('/').to_owned()).collect();
    check_urls(&urls).map_err(|failure| failure.with_code(BAD_ARGS))?;
    let wanted = call.text("name");
    let goal = Goal {
        typed: typed.clone(),
        urls,
        name: (!wanted.is_empty()).then(|| wanted.to_owned()),
        old: None,
        gone: call.switch("gone"),
        promoted: false,
    };
    let client = call.connect()?;
    let replaced = call.block_on(Work::new(call, client, goal)?.until_done())?;
    if call.switch("dry-run") { Ok(()) } else { call.print(&replaced) }
}

/// One run.
struct Work<'c> {
    call: &'c Call,
    /// As the flags have it.
    typed: Client,
    /// Of those that answered when the cluster was last looked at.
    client: Client,
    /// Where members were reached since this run began.
    known: Vec<String>,
    goal: Goal,
    tell: Teller,
    deadline: Instant,
    /// How the new member is started was said.
    told_start: bool,
    pace: Pace,
}

/// What the end of a step is.
type Stepped = Result<(), Stuck>;

/// A step that was not done.
enum Stuck {
    /// It may be later.
    Wait(String),
    /// The cluster has not heard a voter for long enough.
    Unhealthy,
    /// It will not be.
    Ended(Failure),
}

impl Work<'_> {
    fn new(call: &Call, client: Client, goal: Goal) -> Outcome<Work<'_>> {
        let quiet = !matches!(call.printer()?.format, Format::Simple | Format::Table);
        Ok(Work {
            call,
            typed: client.clone(),
            client,
            known: Vec::new(),
            goal,
            tell: Teller::new(call, quiet),
            deadline: Instant::now() + call.duration("timeout"),
            told_start: false,
            pace: Pace::default(),
        })
    }

    async fn until_done(mut self) -> Outcome<Replaced> {
        let facts = self.look(true).await?;
        let members = facts.members();
        find_old(&mut self.goal, &members)?;
        let refused = |Refused(text)| Failure::new(ERROR, text);
        let step = next(&self.goal, &facts).map_err(refused)?;
        self.plan(&facts, &step)?;
        if self.call.switch("dry-run") {
            let new = members.into_iter().next().unwrap_or_default();
            return Ok(Replaced { old: self.goal.old, new });
        }
        let mut now = Ok((step, facts));
        loop {
            let waits = match &now {
                Ok((Step::Done(new), _)) => {
                    self.tell.end();
                    return Ok(Replaced { old: self.goal.old, new: new.clone() });
                }
                Ok((step, facts)) => match self.take(step, facts).await {
                    Ok(()) => None,
                    Err(Stuck::Ended(failure)) => return Err(self.ended(failure)),
                    Err(Stuck::Wait(text)) => Some(text),
                    Err(Stuck::Unhealthy) => Some(unhealthy(facts)),
                },
                Err(Refused(text)) => Some(text.clone()),
            };
            if let Some(text) = waits {
                self.in_time(&text)?;
                self.tell.progress(&text);
                tokio::time::sleep(LOOK_EVERY).await;
            }
            now = match self.look(false).await {
                Ok(facts) => next(&self.goal, &facts).map(|step| (step, facts)),
                Err(failure) => Err(Refused(words(&failure))),
            };
        }
    }

    fn in_time(&self, waiting_for: &str) -> Outcome {
        if Instant::now() < self.deadline {
            return Ok(());
        }
        let text = format!("time ran out ({waiting_for}). Run it again with the same words: it goes on");
        Err(self.ended(Failure::new(INTERRUPTED, text)))
    }

    fn ended(&self, failure: Failure) -> Failure {
        self.tell.end();
        failure
    }

    /// Who is in the cluster, and how each member is. `alone`: what one member knows will do, if
    /// there is no quorum.
    async fn look(&mut self, alone: bool) -> Outcome<Facts> {
        let listed = match self.listed().await {
            Err(error) if alone => self.timed(self.typed.member_list_with(false)).await.map_err(|_| error)?,
            other => other?,
        };
        for url in listed.members.iter().flat_map(|member| &member.client_urls) {
            if !self.known.contains(url) {
                self.known.push(url.clone());
            }
        }
        let facts = gather::standing(self.call, &self.typed, listed.members).await;
        let serving = |with_old: bool| {
            let old = self.goal.old.as_ref().map(|old| old.id);
            let up = facts.up().into_iter().filter(|(member, ..)| !member.is_learner);
            let up = up.filter(|(member, ..)| with_old || Some(member.id) != old);
            up.map(|(_, answer, _)| answer.endpoint.clone()).collect::<Vec<_>>()
        };
        // The old one will not be there to answer.
        let endpoints = Some(serving(false)).filter(|found| !found.is_empty()).unwrap_or_else(|| serving(true));
        if !endpoints.is_empty() && endpoints != self.client.options().endpoints {
            let options = client::Options { endpoints, ..self.typed.options().clone() };
            self.client = Client::connect(options)?;
        }
        Ok(facts)
    }

    /// Who is in the cluster: asked of those that answered last, of those that were typed, and of
    /// whoever was a member since this run began.
    async fn listed(&self) -> client::Result<MemberListResponse> {
        let mut last = self.timed(self.client.member_list()).await;
        if last.is_err() {
            last = self.timed(self.typed.member_list()).await;
        }
        if last.is_err() && !self.known.is_empty() {
            let options = client::Options { endpoints: self.known.clone(), ..self.typed.options().clone() };
            last = self.timed(Client::connect(options)?.member_list()).await;
        }
        last
    }

    async fn timed<T>(&self, asked: impl Future<Output = client::Result<T>>) -> client::Result<T> {
        let late = |_| Error::Timeout { endpoint: String::new() };
        tokio::time::timeout(self.call.duration("command-timeout"), asked).await.map_err(late)?
    }

    /// Says what will be done.
    fn plan(&mut self, facts: &Facts, step: &Step) -> Outcome {
        let goal = match step {
            Step::RemoveFirst(_) => &Goal { gone: true, ..self.goal.clone() },
            _ => &self.goal,
        };
        let new = new_name(goal, &facts.members()).map_err(|Refused(text)| Failure::bad_args(text))?;
        if self.goal.old.is_none() {
            self.tell.line(&format!("{} is no member any more, or never was one.", self.goal.typed))?;
        }
        let steps = steps(&self.goal, facts, step, &new);
        if !steps.is_empty() {
            self.tell.line(if self.call.switch("dry-run") { "Would do:" } else { "To do:" })?;
        }
        for (at, step) in steps.iter().enumerate() {
            self.tell.line(&format!("  {}. {step}", at + 1))?;
        }
        if steps.is_empty() && self.call.switch("dry-run") {
            self.tell.line("Nothing is left to do.")?;
        }
        Ok(())
    }

    async fn take(&mut self, step: &Step, facts: &Facts) -> Stepped {
        match step {
            Step::RemoveFirst(old) => {
                self.timed(self.client.member_remove(old.id)).await.map_err(stuck)?;
                self.goal.gone = true;
                self.say(&format!("{} is removed.", name(old)))
            }
            Step::Add => {
                let added = self.timed(self.client.member_add(self.goal.urls.clone(), true)).await.map_err(stuck)?;
                let member = added.member.unwrap_or_default();
                self.say(&format!("A learner is added ({:x}).", member.id))
            }
            Step::Start(new) => self.start(new, facts).await,
            Step::Learn(new) => self.learn(new, facts).await,
            Step::Remove(old) => {
                self.timed(self.client.member_remove(old.id)).await.map_err(stuck)?;
                self.goal.gone = true;
                self.say(&format!("{} is removed.", name(old)))
            }
            Step::Done(_) => Ok(()),
        }
    }

    fn say(&mut self, text: &str) -> Stepped {
        self.tell.line(text).map_err(Stuck::Ended)
    }

    /// The new member has no name yet: nobody has started it, or it takes the leader's state.
    async fn start(&mut self, new: &Member, facts: &Facts) -> Stepped {
        let leader = facts.leader().and_then(|id| facts.of(id)).and_then(|answer| answer.status.as_ref().ok());
        let sent = self.sent(facts, new.id).await.filter(|sent| *sent > 0.0);
        if let Some((sent, leader)) = sent.zip(leader) {
            let bytes = self.pace.bytes(Instant::now(), sent, leader);
            return Err(Stuck::Wait(format!("{:x} has started and takes the leader's state: {bytes}", new.id)));
        }
        self.tell_start(new, &facts.members())?;
        Err(Stuck::Wait(format!("waits until {:x} is started at {}", new.id, new.peer_urls.join(","))))
    }

    /// How the new member is to be started, once.
    fn tell_start(&mut self, new: &Member, members: &[Member]) -> Stepped {
        if std::mem::replace(&mut self.told_start, true) {
            return Ok(());
        }
        let name = new_name(&self.goal, members).map_err(|Refused(text)| Stuck::Ended(Failure::bad_args(text)))?;
        self.say("Start it on an empty data directory, with these variables:")?;
        for line in settings(&name, new, members) {
            self.say(&line)?;
        }
        let urls = new.peer_urls.join(",");
        let lines = [
            String::new(),
            "or with these flags, and --data-dir and the client URLs of its own:".to_owned(),
            String::new(),
            format!("kvorum server --name {name} --initial-cluster-state existing \\"),
            format!("  --initial-cluster {} \\", initial_cluster(&name, new, members)),
            format!("  --listen-peer-urls {urls} --initial-advertise-peer-urls {urls}"),
            String::new(),
        ];
        lines.iter().try_for_each(|line| self.say(line))
    }

    /// The new member has started: it gets its vote once it is near the leader.
    async fn learn(&mut self, new: &Member, facts: &Facts) -> Stepped {
        let name = name(new);
        let status = |id| facts.of(id).and_then(|answer| answer.status.as_ref().ok());
        let Some(ours) = status(new.id) else {
            let why = super::doctor::facts::reasons(facts, new);
            return Err(Stuck::Wait(format!("waits for {name}, which does not answer: {why}")));
        };
        let Some(leader) = facts.leader().and_then(status) else {
            return Err(Stuck::Wait("nobody leads, or the leader does not answer".to_owned()));
        };
        let sent = self.sent(facts, new.id).await;
        let behind = leader.raft_applied_index.saturating_sub(ours.raft_applied_index);
        let text = self.pace.text(Instant::now(), &name, [ours, leader], sent);
        self.tell.progress(&text);
        if behind > NEAR {
            return Err(Stuck::Wait(text));
        }
        may_vote(facts, new).map_err(|Refused(text)| Stuck::Wait(text))?;
        self.timed(self.client.member_promote(new.id)).await.map_err(stuck)?;
        self.goal.promoted = true;
        self.say(&format!("{name} has caught up ({behind} entries behind) and votes."))
    }

    /// Bytes that the leader has sent to a member since it started, if its metrics can be read.
    async fn sent(&self, facts: &Facts, to: u64) -> Option<f64> {
        let leader = facts.leader().and_then(|id| facts.of(id))?;
        let page = self.timed(async { Ok(memory::page(&self.typed, &leader.endpoint).await) }).await.ok()?.ok()?;
        memory::value(&page, &format!("etcd_network_peer_sent_bytes_total{{To=\"{to:x}\"}}"))
    }
}

/// How fast the new member comes nearer.
#[derive(Default)]
struct Pace {
    /// When it was first looked at, and what it had applied.
    applied: Option<(Instant, u64)>,
    /// The same, and what had been sent.
    sent: Option<(Instant, f64)>,
}

/// So much in a second, once there is enough to tell.
fn rate(now: Instant, since: Instant, done: f64) -> Option<f64> {
    let seconds = now.duration_since(since).as_secs_f64();
    (seconds >= 0.4).then(|| done / seconds).filter(|rate| *rate >= 1.0)
}

impl Pace {
    fn text(&mut self, now: Instant, name: &str, statuses: [&StatusResponse; 2], sent: Option<f64>) -> String {
        let [ours, leader] = statuses;
        let revision = |status: &StatusResponse| status.header.as_ref().map_or(0, |header| header.revision);
        let entries = leader.raft_applied_index.saturating_sub(ours.raft_applied_index);
        let revisions = revision(leader).saturating_sub(revision(ours)).max(0);
        let mut text = format!("{name} is {entries} entries and {revisions} revisions behind");
        let (since, applied) = *self.applied.get_or_insert((now, ours.raft_applied_index));
        if let Some(rate) = rate(now, since, ours.raft_applied_index.saturating_sub(applied) as f64) {
            text += &format!(", {rate:.0} entries a second");
        }
        if let Some(sent) = sent {
            text += &format!("; {}", self.bytes(now, sent, leader));
        }
        text
    }

    /// What the leader has sent, how fast, and how much it has.
    fn bytes(&mut self, now: Instant, sent: f64, leader: &StatusResponse) -> String {
        let size = |bytes: f64| gofmt::size(bytes.max(0.0) as u64);
        let (since, before) = *self.sent.get_or_insert((now, sent));
        let mut text = format!("{} sent", size(sent));
        if let Some(rate) = rate(now, since, sent - before) {
            text += &format!(", {} a second", size(rate));
        }
        let whole = u64::try_from(leader.db_size_in_use).unwrap_or(0);
        text + &format!(" (the leader's data: {})", gofmt::size(whole))
    }
}

/// What the server said against it.
fn stuck(error: Error) -> Stuck {
    const MORE: [(&str, &str); 3] = [
        (
            "too many learner members in cluster",
            "promote or remove the learner that is there (`member list` names it), or raise --max-learners",
        ),
        (
            "not enough started members",
            "a member that was added never started, or too few would be left: `member list` names it; start it, or \
             remove it",
        ),
        ("given member URLs are invalid", "peer URLs are like http://host:2380"),
    ];
    let failure = Failure::from(error.clone());
    let text = words(&failure);
    if let Some((_, advice)) = MORE.iter().find(|(part, _)| text.contains(part)) {
        return Stuck::Ended(Failure::new(ERROR, format!("{text}: {advice}")));
    }
    if super::auth::denied(&error) || failure.code() != ERROR {
        return Stuck::Ended(failure);
    }
    if text.ends_with("unhealthy cluster") {
        return Stuck::Unhealthy;
    }
    let text = match text.as_str() {
        text if text.contains("in sync with leader") => "waits until the leader finds it in step".to_owned(),
        text => format!("tries again: {text}"),
    };
    Stuck::Wait(text)
}

fn unhealthy(facts: &Facts) -> String {
    let text = "waits until the cluster has heard its voters for five seconds";
    match missing(facts).trim_end_matches(". ") {
        "" => text.to_owned(),
        who => format!("{text}: {who}"),
    }
}

fn words(failure: &Failure) -> String {
    super::each::reason(failure)
}

/// Says what goes on: a line for what was done, and a bar or a line now and then for what is waited
/// for.
struct Teller {
    /// Standard output is for the answer alone.
    quiet: bool,
    bar: ProgressBar,
    said: Option<(String, Instant)>,
}

impl Teller {
    fn new(call: &Call, quiet: bool) -> Teller {
        Teller { quiet, bar: progress::spinner(call), said: None }
    }

    fn line(&mut self, text: &str) -> Outcome {
        let quiet = self.quiet;
        self.said = None;
        self.bar.suspend(|| {
            if quiet {
                complain!("{text}");
                return Ok(());
            }
            crate::say(&format!("{text}\n"))
        })
    }

    fn progress(&mut self, text: &str) {
        self.bar.set_message(text.to_owned());
        if !self.bar.is_hidden() {
            return;
        }
        let due = self.said.as_ref().is_none_or(|(said, at)| said != text && at.elapsed() >= SAY_EVERY);
        if due {
            self.said = Some((text.to_owned(), Instant::now()));
            complain!("{text}");
        }
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// The end of it.
struct Replaced {
    old: Option<Member>,
    new: Member,
}

impl Answer for Replaced {
    fn simple(&self, out: &mut Out) -> Outcome {
        let new = format!("{} ({:x})", name(&self.new), self.new.id);
        out.line(match &self.old {
            Some(old) => format!("{new} is a member in the place of {} ({:x}).", name(old), old.id),
            None => format!("{new} is a member, and votes."),
        });
        Ok(())
    }

    fn table(&self, out: &mut Out) -> Outcome {
        self.simple(out)
    }

    fn json(&self, hex: bool) -> Outcome<String> {
        let mut object = json::Object::new();
        if let Some(old) = &self.old {
            object.raw("old", &super::roster::json_of_member(old, hex).finish());
        }
        object.raw("new", &super::roster::json_of_member(&self.new, hex).finish());
        Ok(object.finish())
    }
}

#[cfg(test)]
mod tests {
    use client::wire::etcdserverpb::ResponseHeader;

    use super::*;

    fn status(applied: u64, revision: i64) -> StatusResponse {
        let header = Some(ResponseHeader { revision, ..ResponseHeader::default() });
        StatusResponse { header, raft_applied_index: applied, db_size_in_use: 8_000_000, ..StatusResponse::default() }
    }

    #[test]
    fn progress_has_distance_and_speed() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let said = pace.text(now, "m4", [&status(100, 50), &status(1_100, 950)], Some(1_000_000.0));
        assert_eq!(said, "m4 is 1000 entries and 900 revisions behind; 1.0 MB sent (the leader's data: 8.0 MB)");
        let later = now + Duration::from_secs(2);
        let said = pace.text(later, "m4", [&status(1_000, 900), &status(1_100, 950)], Some(3_000_000.0));
        let wanted = "m4 is 100 entries and 50 revisions behind, 450 entries a second; 3.0 MB sent, 1.0 MB a second (the \
                      leader's data: 8.0 MB)";
        assert_eq!(said, wanted);
        assert_eq!(rate(now, now, 5.0), None, "nothing can be said yet");
    }
}
