//! A table of facts, and what is said of them.
//!
//! A case is a comment, a line for each member with what is not usual about it, and `doctor`,
//! whose outcome is the findings. `_` stands for a blank.

use std::time::Duration;

use client::wire::etcdserverpb::{
    AlarmMember, AlarmType, DowngradeInfo, HashKvResponse, Member, ResponseHeader, StatusResponse,
};

use super::{
    Look, Report,
    facts::{Answer, Facts, Metrics, Refusal, Silence},
    findings::Level,
    lines_of,
};

const CASES: &str = include_str!("cases.txt");

fn words(line: &str) -> Vec<(&str, String)> {
    let word = |word| {
        let (name, value) = str::split_once(word, '=').unwrap_or((word, ""));
        (name, value.replace('_', " "))
    };
    line.split_whitespace().map(word).collect()
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

fn usual() -> Facts {
    Facts {
        members: Ok(Vec::new()),
        answers: Vec::new(),
        alarms: Ok(Vec::new()),
        hashed: true,
        program: "kvorum ctl".to_owned(),
    }
}

/// One member, and what it answered.
fn member(facts: &mut Facts, line: &str, id: u64) {
    let words = words(line);
    let mut member = Member {
        id,
        name: words[0].0.to_owned(),
        peer_urls: vec![format!("http://10.0.0.{id}:2380")],
        client_urls: vec![format!("http://10.0.0.{id}:2379")],
        is_learner: false,
    };
    let mut status = StatusResponse {
        header: Some(ResponseHeader { cluster_id: 0xc, member_id: id, revision: 500, raft_term: 7 }),
        version: "3.7.3".to_owned(),
        db_size: 20_480,
        db_size_in_use: 16_384,
        db_size_quota: 2_147_483_648,
        leader: 1,
        raft_term: 7,
        raft_index: 1_000,
        raft_applied_index: 1_000,
        ..StatusResponse::default()
    };
    let mut hash = Ok(HashKvResponse { hash: 77, hash_revision: 500, ..HashKvResponse::default() });
    let mut metrics = Metrics { kvorum: true, ..Metrics::default() };
    let (mut read, mut clock, mut down, mut blind) = (Some(Ok(())), 0, None, false);
    for (name, value) in &words[1..] {
        match *name {
            "client" => member.client_urls = value.split(',').filter(|u| !u.is_empty()).map(str::to_owned).collect(),
            "peer" => member.peer_urls = vec![value.clone()],
            "unstarted" => (member.name, member.client_urls) = (String::new(), Vec::new()),
            "learner" => (member.is_learner, status.is_learner, read) = (true, true, None),
            "cluster" => status.header.as_mut().expect("there is one").cluster_id = number(value),
            "answers-as" => status.header.as_mut().expect("there is one").member_id = number(value),
            "leader" => status.leader = number(value),
            "term" => status.raft_term = number(value),
            "index" => (status.raft_index, status.raft_applied_index) = (number(value), number(value)),
            "applied" => status.raft_applied_index = number(value),
            "size" => (status.db_size, status.db_size_in_use) = (number(value), number(value)),
            "used" => status.db_size_in_use = number(value),
            "version" => status.version.clone_from(value),
            "error" => status.errors.push(value.clone()),
            "downgrade" => {
                status.downgrade_info = Some(DowngradeInfo { enabled: true, target_version: value.clone() });
            }
            "hash" => hash = hash.map(|hash| HashKvResponse { hash: number(value), ..hash }),
            "compacted" => hash = hash.map(|hash| HashKvResponse { compact_revision: number(value), ..hash }),
            "no-hash" => hash = Err(value.clone()),
            "read" => read = Some(Err(Refusal::Failed(value.clone()))),
            "read-as-nobody" => read = Some(Err(Refusal::Unknown)),
            "etcd" => metrics.kvorum = false,
            "flush-ms" => metrics.flush = Some(number::<f64>(value) / 1e3),
            "changes" => metrics.leader_changes = Some((number(value), 7_200.0)),
            "files" => metrics.descriptors = Some((number(value), 1_000.0)),
            "clock" => clock = number(value),
            "blind" => blind = true,
            "down" => {
                let asks_user = value == "etcdserver: user name is empty";
                down = Some(Silence { why: value.clone(), asks_user });
            }
            other => panic!("{other:?} is nothing"),
        }
    }
    let failed = down.is_some();
    let answer = Answer {
        endpoint: String::new(),
        status: down.map_or_else(|| Ok(status), Err),
        took: Duration::from_millis(1),
        read: read.filter(|_| !failed),
        hash: (!failed).then_some(hash),
        clock: (!failed && !blind).then_some(clock),
        metrics: if failed || blind { Err("no answer within 2s".to_owned()) } else { Ok(metrics) },
    };
    let each = member.client_urls.iter().map(|url| Answer { endpoint: url.clone(), ..answer.clone() });
    facts.answers.extend(each);
    facts.members.as_mut().expect("there are some").push(member);
}

/// What is not about one member.
fn cluster(facts: &mut Facts, line: &str) {
    for (name, value) in words(line) {
        match name {
            "alarm" => {
                let (kind, id) = value.split_once('@').expect("alarm=KIND@id");
                let alarm = AlarmType::from_str_name(kind).expect("the name of an alarm");
                let alarm = AlarmMember { member_id: number(id), alarm: alarm.into() };
                facts.alarms.as_mut().expect("they are known").push(alarm);
            }
            "no-alarms" => facts.alarms = Err(value),
            "no-members" => facts.members = Err(value),
            // What is as it should be is told, too.
            "well" => {}
            "no-hashes" => facts.hashed = false,
            "typed" => {
                let status = Err(Silence { why: "Connection refused".to_owned(), asks_user: false });
                let usual = Answer {
                    endpoint: value,
                    status,
                    took: Duration::ZERO,
                    read: None,
                    hash: None,
                    clock: None,
                    metrics: Err(String::new()),
                };
                facts.answers.insert(0, usual);
            }
            "extra-url-down" => {
                // A second address of the first member, which nobody reaches.
                let members = facts.members.as_mut().expect("there are some");
                members[0].client_urls.push(value.clone());
                let status = Err(Silence { why: "Connection refused".to_owned(), asks_user: false });
                let more = Answer { endpoint: value, status, read: None, ..facts.answers[0].clone() };
                facts.answers.push(more);
            }
            other => panic!("{other:?} is nothing"),
        }
    }
}

fn report(case: &str) -> Report {
    let mut facts = usual();
    let mut later = Vec::new();
    for line in case.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        match line.strip_prefix('!') {
            Some(line) => later.push(line),
            None => {
                let id = facts.members.as_ref().map_or(0, Vec::len) as u64 + 1;
                member(&mut facts, line, id);
            }
        }
    }
    later.into_iter().for_each(|line| cluster(&mut facts, line));
    Report::of(facts)
}

fn told(report: &Report, well: bool) -> String {
    let mut lines: Vec<String> =
        report.findings.iter().flat_map(|finding| lines_of(finding, Look::default())).collect();
    lines.extend(report.well.iter().filter(|_| well).map(|what| format!("well: {what}")));
    lines.extend(report.unchecked.iter().map(|what| format!("unchecked: {what}")));
    lines.push(format!("exit {}", report.exit_code()));
    lines.join("\n")
}

#[test]
fn facts_lead_to_findings() {
    testkit::golden::file(concat!(env!("CARGO_MANIFEST_DIR"), "/src/commands/admin/doctor/cases.txt"), |cases| {
        let mut given: Vec<String> = Vec::new();
        testkit::golden::lines(cases, |line| {
            if line != "doctor" {
                given.push(line.to_owned());
                return String::new();
            }
            let well = given.iter().any(|line| line.starts_with("!well"));
            told(&report(&std::mem::take(&mut given).join("\n")), well)
        })
    });
}

#[test]
fn every_finding_has_a_case() {
    let source = include_str!("findings.rs");
    let codes: Vec<&str> = source
        .split("Level::")
        .skip(1)
        .filter_map(|rest| rest.split_once(", \"")?.1.split_once('"'))
        .map(|(code, _)| code)
        .filter(|code| code.chars().all(|c| c.is_ascii_lowercase() || c == '-'))
        .collect();
    assert!(codes.len() > 20, "{codes:?}");
    for code in codes {
        assert!(CASES.contains(&format!("  [{code}]")), "{code} has no case");
    }
}

#[test]
fn the_page_says_who_is_there_first() {
    let report = report("m1\nm2 down=Connection_refused\nm3 learner index=10");
    let mut out = crate::print::Out::default();
    crate::print::Answer::simple(&report, &mut out).unwrap();
    let text = String::from_utf8(out.bytes).unwrap();
    let head: Vec<&str> = text.lines().take(5).collect();
    assert_eq!(
        head,
        [
            "1 of 2 voters answer, 2 needed; m1 leads; term 7, revision 500",
            "  m1  http://10.0.0.1:2379  leader   3.7.3       20 kB  1.0 ms",
            "  m2  http://10.0.0.2:2379  down     Connection refused",
            "  m3  http://10.0.0.3:2379  learner  3.7.3       20 kB  1.0 ms",
            "",
        ]
    );
    assert!(text.ends_with("the clocks agree\n\n0 errors, 2 warnings, 1 note.\n"), "{text}");
}

#[test]
fn json_has_names_that_stay() {
    let report = report("m1\nm2 etcd down=x\nm3 blind");
    let json = Report::json(&report);
    let expected = concat!(
        r#"{"verdict":"errors","errors":2,"warnings":0,"cluster":{"id":"c","members":3,"voters":3,"votersUp":2,"#,
        r#""quorum":2,"readable":true,"leader":"1","term":7,"revision":500},"members":[{"id":"1","name":"m1","#,
        r#""endpoint":"http://10.0.0.1:2379","role":"leader","learner":false,"server":"kvorum","version":"3.7.3","#,
        r#""tookMs":1,"raftTerm":7,"raftIndex":1000,"raftAppliedIndex":1000,"dbSize":20480,"dbSizeInUse":16384,"#,
        r#""dbSizeQuota":2147483648,"hash":77,"hashRevision":500,"clockMs":0},{"id":"2","name":"m2","#,
        r#""endpoint":"http://10.0.0.2:2379","role":"down","learner":false,"reason":"x"}"#,
    );
    assert!(json.starts_with(expected), "{json}");
    assert!(json.contains(r#""findings":[{"level":"error","code":"no-spare","member":"","text":"2 of 3 voters"#));
    assert!(json.ends_with(
        r#""unchecked":["clock, disk and elections of m3: its /metrics cannot be read: no answer within 2s"]}"#
    ));
    assert_eq!(report.count(Level::Error), 2);
}
