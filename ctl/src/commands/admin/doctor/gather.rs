//! Asking everybody at once, with a limit of time for each question.

use std::time::{Duration, Instant, SystemTime};

use client::{
    Client, Error,
    wire::etcdserverpb::{Member, MemberListResponse, StatusResponse},
};
use futures_util::{StreamExt, future, stream::FuturesUnordered};

use super::{
    super::{auth, each::single, memory},
    facts::{Answer, Facts, Metrics, Refusal, Silence},
};
use crate::{
    call::Call,
    exit::{BAD_CONNECTION, Failure, Outcome},
};

/// What a server says that wants to know who asks.
const NOBODY: &str = "etcdserver: user name is empty";
/// Before looking again at something that may be no more than a moment.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a member may take to say how it is: nobody else is needed for it.
const ALONE: Duration = Duration::from_secs(2);
/// The client keeps the time of a request; this is for what it does besides.
const GRACE: Duration = Duration::from_millis(500);
/// A mean of fewer flushes says nothing.
const ENOUGH_FLUSHES: f64 = 50.0;

/// Looks at the cluster; a second time if the first look came upon a change.
///
/// # Errors
/// If there is no client, or its user is refused.
pub fn facts(call: &Call) -> Outcome<Facts> {
    let typed = call.options()?.endpoints;
    let client = call.client()?;
    let limit = call.duration("command-timeout");
    let hash = call.switch("hash");
    let program = program(call);
    call.block_on(async {
        let first = look(&client, &typed, limit, hash, &program).await?;
        if !first.unsettled() {
            return Ok(first);
        }
        tokio::time::sleep(PAUSE).await;
        look(&client, &typed, limit, hash, &program).await
    })
}

/// How a command line begins that reaches this cluster, without secrets.
fn program(call: &Call) -> String {
    let mut words = call.program().to_owned();
    for flag in ["cacert", "cert", "key", "user"] {
        let value = call.text(flag);
        let value = if flag == "user" { value.split(':').next().unwrap_or_default() } else { value };
        if !value.is_empty() {
            words += &format!(" --{flag}={value}");
        }
    }
    if call.switch("insecure-skip-tls-verify") {
        words += " --insecure-skip-tls-verify";
    }
    words
}

async fn look(client: &Client, typed: &[String], limit: Duration, hash: bool, program: &str) -> Outcome<Facts> {
    let typed = shown(client, typed.iter().cloned(), &[]);
    let (members, alarms, mut answers) = future::join3(
        members(client, limit),
        within(limit, client.alarm_list()),
        ask_all(client, typed.clone(), limit),
    )
    .await;
    if let Err(error @ Error::Server { .. }) = &members
        && error.says("etcdserver: authentication failed, invalid user ID or password")
    {
        return Err(Failure::from(error.clone()).with_code(BAD_CONNECTION));
    }
    let advertised = members.iter().flatten().flat_map(|member| member.client_urls.clone());
    let advertised = shown(client, advertised, &typed);
    answers.extend(ask_all(client, advertised, limit).await);
    let mut facts = Facts {
        members: members.map_err(|error| why(&error, limit)),
        answers,
        alarms: alarms.map(|response| response.alarms).map_err(|error| why(&error, limit)),
        hashed: hash,
        program: program.to_owned(),
    };
    if hash {
        hash_all(client, &mut facts, limit).await;
    }
    Ok(facts)
}

/// How each of these members says it is, asked at the endpoints that were typed and at those that
/// it advertises. Nothing else is asked.
pub async fn standing(call: &Call, client: &Client, members: Vec<Member>) -> Facts {
    let limit = call.duration("command-timeout");
    let typed = shown(client, client.options().endpoints.iter().cloned(), &[]);
    let advertised = members.iter().flat_map(|member| member.client_urls.clone());
    let advertised = shown(client, advertised, &typed);
    let asked = typed.into_iter().chain(advertised).map(|endpoint| async {
        let begin = Instant::now();
        let status = status_of(client, &endpoint, limit).await;
        let status = status.map(|(_, status)| status).map_err(|error| silence(&error, limit.min(ALONE)));
        let metrics = Err(String::new());
        Answer { endpoint, status, took: begin.elapsed(), read: None, hash: None, clock: None, metrics }
    });
    let answers = future::join_all(asked).await;
    Facts { members: Ok(members), answers, alarms: Ok(Vec::new()), hashed: false, program: program(call) }
}

/// What the member at an endpoint says of itself, and a client of it alone.
async fn status_of(client: &Client, endpoint: &str, limit: Duration) -> Result<(Client, StatusResponse), Error> {
    let one = single(client, endpoint)?;
    let patience = limit.min(ALONE);
    let status = within(patience, one.with_request_timeout(Some(patience)).status()).await?;
    Ok((one, status))
}

/// The endpoints with their schemes, once each, without those of `but`.
fn shown(client: &Client, endpoints: impl Iterator<Item = String>, but: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for endpoint in endpoints {
        let named = single(client, &endpoint).ok().and_then(|one| one.endpoints().into_iter().next());
        let named = named.unwrap_or(endpoint);
        if !all.contains(&named) && !but.contains(&named) {
            all.push(named);
        }
    }
    all
}

/// Who the cluster as a whole says is in it; without a quorum, who one member
/// says.
async fn members(client: &Client, limit: Duration) -> Result<Vec<Member>, Error> {
    let (agreed, alone) =
        future::join(within(limit, client.member_list()), within(limit, client.member_list_with(false))).await;
    agreed.or(alone).map(|MemberListResponse { members, .. }| members)
}

async fn ask_all(client: &Client, endpoints: Vec<String>, limit: Duration) -> Vec<Answer> {
    let asked: Vec<_> = endpoints.into_iter().map(|endpoint| ask(client, endpoint, limit)).collect();
    future::join_all(asked).await
}

async fn ask(client: &Client, endpoint: String, limit: Duration) -> Answer {
    let begin = Instant::now();
    let patience = limit.min(ALONE);
    let said = async {
        let (one, status) = status_of(client, &endpoint, limit).await?;
        let took = begin.elapsed();
        let read = read(within(limit, one.get("health")).await.map(drop), limit);
        Ok((status, took, read))
    };
    let page = async {
        let begin = SystemTime::now();
        let late = |_| format!("no answer within {}", super::super::gofmt::duration(patience));
        let page = tokio::time::timeout(patience, memory::answer(client, &endpoint)).await.map_err(late)??;
        Ok((page, begin, SystemTime::now()))
    };
    let (said, page) = future::join(said, page).await;
    let (status, took, read) = match said {
        Ok((status, took, read)) => (Ok(status), took, read),
        Err(error) => (Err(silence(&error, patience)), begin.elapsed(), None),
    };
    Answer {
        read,
        hash: None,
        clock: page.as_ref().ok().and_then(|((head, _), begin, end)| clock(head, *begin, *end)),
        metrics: page.map(|((_, body), _, end)| metrics(&body, end)),
        endpoint,
        status,
        took,
    }
}

fn silence(error: &Error, patience: Duration) -> Silence {
    Silence { why: why(error, patience), asks_user: error.says(NOBODY) }
}

fn read(answer: Result<(), Error>, limit: Duration) -> Option<Result<(), Refusal>> {
    match answer {
        // Who may not read this key has been told so by agreement, too.
        Err(error) if auth::denied(&error) => Some(Ok(())),
        Err(error) if error.says("etcdserver: rpc not supported for learner") => None,
        Err(error) if error.says(NOBODY) || error.says("etcdserver: invalid auth token") => Some(Err(Refusal::Unknown)),
        other => Some(other.map_err(|error| Refusal::Failed(why(&error, limit)))),
    }
}

/// Hashes at the revision that everybody has, one of each member.
async fn hash_all(client: &Client, facts: &mut Facts, limit: Duration) {
    let Some(revision) = facts.common_revision() else { return };
    let asked: Vec<String> = facts.up().into_iter().map(|(_, answer, _)| answer.endpoint.clone()).collect();
    let mut hashes: FuturesUnordered<_> = asked
        .into_iter()
        .map(|endpoint| async move {
            let hash = match single(client, &endpoint) {
                Ok(one) => within(limit, one.hash_kv(revision)).await,
                Err(error) => Err(error),
            };
            (endpoint, hash.map_err(|error| why(&error, limit)))
        })
        .collect();
    while let Some((endpoint, hash)) = hashes.next().await {
        if let Some(answer) = facts.answers.iter_mut().find(|answer| answer.endpoint == endpoint) {
            answer.hash = Some(hash);
        }
    }
}

async fn within<T>(limit: Duration, asked: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let late = |_| Error::Timeout { endpoint: String::new() };
    tokio::time::timeout(limit + GRACE, asked).await.map_err(late)?
}

/// What went wrong, for a line that names the endpoint already.
fn why(error: &Error, limit: Duration) -> String {
    let text = match error {
        Error::Timeout { .. } => return format!("no answer within {}", super::super::gofmt::duration(limit)),
        Error::Unreachable { reason } => {
            // "http://host:port: reason"
            reason.split_once("://").and_then(|(_, rest)| rest.split_once(": ")).map_or(reason.as_str(), |(_, r)| r)
        }
        Error::Lost { reason, .. } | Error::Endpoint { reason, .. } => reason,
        Error::Server { message, .. } => message,
        other => return other.to_string(),
    };
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// How far a server's clock is ahead of ours, in milliseconds: its `Date` has
/// whole seconds.
fn clock(head: &str, begin: SystemTime, end: SystemTime) -> Option<i64> {
    let date = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("date").then(|| value.trim())
    })?;
    let theirs = jiff::fmt::rfc2822::parse(date).ok()?.timestamp().as_millisecond() + 500;
    let at = |time| jiff::Timestamp::try_from(time).ok().map(|t| t.as_millisecond());
    Some(theirs - (at(begin)? / 2 + at(end)? / 2))
}

fn metrics(page: &str, now: SystemTime) -> Metrics {
    let value = |name| memory::value(page, name);
    let mean = |sum: Option<f64>, count: Option<f64>| Some(sum? / count.filter(|n| *n >= ENOUGH_FLUSHES)?);
    let now = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let age = value("process_start_time_seconds").map(|start| (now - start).max(1.0));
    Metrics {
        kvorum: page.contains("\nkvorum_"),
        flush: mean(
            value("etcd_disk_wal_fsync_duration_seconds_sum"),
            value("etcd_disk_wal_fsync_duration_seconds_count"),
        ),
        leader_changes: value("etcd_server_leader_changes_seen_total").zip(age),
        descriptors: value("process_open_fds").zip(value("process_max_fds")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_a_server_is_in_its_answer() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let head = "HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 1970 00:01:40 GMT\r\nx: y";
        assert_eq!(clock(head, at(100), at(100)), Some(500));
        assert_eq!(clock(head, at(90), at(92)), Some(9_500));
        assert_eq!(clock("HTTP/1.1 200 OK\r\nDate: yesterday", at(1), at(1)), None);
        assert_eq!(clock("HTTP/1.1 200 OK", at(1), at(1)), None);
    }

    #[test]
    fn metrics_are_taken_from_the_page() {
        let page = "# HELP x\netcd_disk_wal_fsync_duration_seconds_sum 2\n\
                    etcd_disk_wal_fsync_duration_seconds_count 100\nprocess_start_time_seconds 100\n\
                    etcd_server_leader_changes_seen_total 3\nprocess_open_fds 10\nprocess_max_fds 1024\nkvorum_x 1\n";
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(160);
        let expected = Metrics {
            kvorum: true,
            flush: Some(0.02),
            leader_changes: Some((3.0, 60.0)),
            descriptors: Some((10.0, 1024.0)),
        };
        assert_eq!(metrics(page, now), expected);
        assert_eq!(metrics("", now), Metrics::default());
    }

    #[test]
    fn reasons_do_not_say_again_who_was_asked() {
        let limit = Duration::from_secs(5);
        let refused = Error::Unreachable { reason: "http://a:1: Connection refused (os error 111)".to_owned() };
        assert_eq!(why(&refused, limit), "Connection refused");
        assert_eq!(why(&Error::Timeout { endpoint: String::new() }, limit), "no answer within 5s");
    }
}
