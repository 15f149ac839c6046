//! Clusters as they may be found, and what is done next.
//!
//! A cluster is a list of members: `m1 m2 m3:down n:learner:unstarted`. The first leads. Member n
//! has the id n (counted from 1) and the peer URL `http://10.0.0.n:2380`. A founder that was never
//! there has a name and no address (`silent`).

use std::time::Duration;

use client::wire::etcdserverpb::{ResponseHeader, StatusResponse};

use super::{
    super::super::doctor::facts::{Answer, Silence},
    *,
};

fn facts(cluster: &str) -> Facts {
    let mut facts = Facts {
        members: Ok(Vec::new()),
        answers: Vec::new(),
        alarms: Ok(Vec::new()),
        hashed: false,
        program: String::new(),
    };
    let mut members = Vec::new();
    for (at, words) in cluster.split(' ').enumerate() {
        let id = at as u64 + 1;
        let mut words = words.split(':');
        let name = words.next().unwrap_or_default();
        let words: Vec<&str> = words.collect();
        let (down, unstarted) = (words.contains(&"down"), words.contains(&"unstarted"));
        let silent = unstarted || words.contains(&"silent");
        let endpoint = format!("http://10.0.0.{id}:2379");
        members.push(Member {
            id,
            name: if unstarted { String::new() } else { name.to_owned() },
            peer_urls: vec![format!("http://10.0.0.{id}:2380")],
            client_urls: if silent { Vec::new() } else { vec![endpoint.clone()] },
            is_learner: words.contains(&"learner"),
        });
        if silent {
            continue;
        }
        let header = Some(ResponseHeader { member_id: id, ..ResponseHeader::default() });
        let status = match down {
            true => Err(Silence { why: "Connection refused".to_owned(), asks_user: false }),
            false => Ok(StatusResponse { header, leader: 1, ..StatusResponse::default() }),
        };
        let metrics = Err(String::new());
        facts.answers.push(Answer {
            endpoint,
            status,
            took: Duration::ZERO,
            read: None,
            hash: None,
            clock: None,
            metrics,
        });
    }
    facts.members = Ok(members);
    facts
}

fn goal(typed: &str, at: usize) -> Goal {
    Goal {
        typed: typed.to_owned(),
        urls: vec![format!("http://10.0.0.{at}:2380")],
        name: None,
        old: None,
        gone: false,
        promoted: false,
    }
}

/// The next step, `!` and why there is none, or `!!` and what is wrong with the words.
fn step(mut goal: Goal, cluster: &str) -> String {
    let facts = facts(cluster);
    if let Err(failure) = find_old(&mut goal, &facts.members()) {
        return format!("!! {}", super::super::words(&failure));
    }
    match next(&goal, &facts) {
        Err(Refused(text)) => format!("! {text}"),
        Ok(step) => match step {
            Step::RemoveFirst(old) => format!("remove {} first", name(&old)),
            Step::Add => "add".to_owned(),
            Step::Start(_) => "start".to_owned(),
            Step::Learn(_) => "learn".to_owned(),
            Step::Remove(old) => format!("remove {}", name(&old)),
            Step::Done(_) => "done".to_owned(),
        },
    }
}

#[test]
fn it_goes_on_from_wherever_it_was_interrupted() {
    let new = 4;
    for (cluster, wanted) in [
        ("m1 m2 m3", "add"),
        ("m1 m2 m3 new:learner:unstarted", "start"),
        ("m1 m2 m3 new:learner", "learn"),
        ("m1 m2 m3 new:learner:down", "learn"),
        ("m1 m2 m3 new", "remove m3"),
        ("m1 m2 m3:down new", "remove m3"),
        ("m1 m2 m3:down", "remove m3 first"),
        ("m1 m2 m3:unstarted", "remove 3 first"),
        ("m1 m2 m3:silent", "remove m3 first"),
    ] {
        let typed = if cluster.contains("m3:unstarted") { "3" } else { "m3" };
        assert_eq!(step(goal(typed, new), cluster), wanted, "{cluster}");
    }
    // The old one is gone: only its name, or nothing, is left of it.
    for (cluster, wanted) in [
        ("m1 m2 new:learner:unstarted", "start"),
        ("m1 m2 m3:learner", "learn"),
        ("m1 m2 new:learner", "learn"),
        ("m1 m2 new", "done"),
    ] {
        assert_eq!(step(goal("m3", 3), cluster), wanted, "{cluster}");
    }
    assert_eq!(step(Goal { gone: true, ..goal("m3", 3) }, "m1 m2"), "add");
    assert_eq!(step(goal("8e9e05c52164694d", 3), "m1 m2"), "add", "ids do not come back");
    assert_eq!(step(goal("8e9e05c52164694d", 3), "m1 m2 new"), "done");
    // A cluster of one.
    assert_eq!(step(goal("m1", 2), "m1"), "add");
    assert_eq!(step(goal("m1", 2), "m1 new"), "remove m1");
}

#[test]
fn a_member_is_replaced_in_its_place_when_it_is_down() {
    assert_eq!(step(goal("m3", 3), "m1 m2 m3:down"), "remove m3 first");
    assert!(step(goal("m3", 3), "m1 m2 m3").starts_with("! m3 has these peer URLs and runs."));
    assert_eq!(step(goal("m3", 3), "m1 m2 m3:learner:unstarted"), "start");
}

#[test]
fn what_would_cost_the_quorum_is_refused() {
    for (typed, cluster, wanted) in [
        (
            "m3",
            "m1 m2:down m3",
            "! 2 of 3 voters answer, and one more member would count before it helps: the cluster would be one \
             failure from standing still. m2 does not: Connection refused. Bring back whoever is missing, or replace \
             that one first",
        ),
        (
            "m3",
            "m1 m2:down m3:down",
            "! 1 of 3 voters answer and 2 are needed: without a quorum no member can be changed. m2 does not: \
             Connection refused; m3 does not: Connection refused. Bring back whoever is missing. What is lost for \
             good: `kvorum ctl recover` (docs/operations/quorum-lost.md)",
        ),
        ("m2", "m1 m2:down", "! 1 of 2 voters answer and 2 are needed"),
        ("m3", "m1 m2:unstarted m3", "! 2 of 3 voters answer"),
        ("m3", "m1 m2:silent m3", "! 2 of 3 voters answer"),
        ("m5", "m1 m2 m3:down m4:down m5", "! 3 of 5 voters answer"),
        ("l", "m1 m2 m3 x:learner:down l:learner", "! l is a learner, and nothing depends on it."),
    ] {
        let said = step(goal(typed, 9), cluster);
        assert!(said.starts_with(wanted), "{cluster}: {said}");
    }
    for cluster in ["m1 m2 m3:down m4 m5", "m1 m2 m3:down m4:down m5", "m1 m2 m3:down m4"] {
        assert_eq!(step(goal("m3", 9), cluster), "remove m3 first", "{cluster}");
    }
    // Three of four are there, and two of the three that are left.
    assert_eq!(step(goal("m3", 4), "m1 m2:down m3 new"), "remove m3");
    let out = step(goal("m1", 4), "m1 m2:down m3:down new");
    assert!(out.starts_with("! without m1, 2 of 3 voters must be there, and 1 would be."), "{out}");
}

#[test]
fn a_vote_is_given_only_to_who_answers_and_while_enough_do() {
    let may = |cluster: &str| {
        let facts = facts(cluster);
        let new = facts.members().pop().expect("there is one");
        may_vote(&facts, &new).is_ok()
    };
    for (cluster, fine) in [
        ("m1 n:learner", true),
        ("m1 n:learner:down", false),
        ("m1 m2 n:learner", true),
        ("m1 m2 m3 n:learner", true),
        ("m1 m2 m3:down n:learner", false),
        ("m1 m2 m3 m4:down n:learner", true),
        ("m1 m2 m3 m4 m5:down n:learner", true),
        ("m1 m2 m3 m4:down m5:down n:learner", false),
    ] {
        assert_eq!(may(cluster), fine, "{cluster}");
    }
}

#[test]
fn a_wrong_word_does_not_shrink_the_cluster() {
    let m2 = step(goal("m3", 2), "m1 m2 m3");
    assert!(m2.starts_with("! m2 has these peer URLs and votes already, and without m3 there would be 2"), "{m2}");
    let unknown = step(goal("m9", 4), "m1 m2 m3");
    assert!(unknown.starts_with("!! no member has the name \"m9\"; the members are m1 (1), m2 (2), m3 (3). If it was"));
    let more = Goal { urls: vec!["http://10.0.0.2:2380".into(), "http://x:1".into()], ..goal("m3", 2) };
    assert!(step(more, "m1 m2 m3").starts_with("! m2 has the peer URLs http://10.0.0.2:2380: the new member must"));
}

#[test]
fn the_new_member_has_a_name_of_its_own() {
    let named = |goal: Goal, cluster: &str| {
        let (mut goal, facts) = (goal, facts(cluster));
        find_old(&mut goal, &facts.members()).expect("found");
        new_name(&goal, &facts.members()).map_err(|Refused(text)| text)
    };
    for (goal_of, cluster, wanted) in [
        (goal("m3", 4), "m1 m2 m3", "m3-2"),
        (goal("m3-2", 4), "m1 m2 m3-2", "m3-3"),
        (goal("m3", 4), "m1 m3-2 m3", "m3-3"),
        (goal("m3", 4), "m1 m2 m3 n:learner:unstarted", "m3-2"),
        (goal("m3", 4), "m1 m2 m3 n:learner", "n"),
        (goal("m3", 3), "m1 m2 n:learner:unstarted", "m3"),
        (Goal { gone: true, ..goal("m3", 4) }, "m1 m2 m3:down", "m3"),
        (goal("8e9e05c52164694d", 3), "m1 m2", "10.0.0.3"),
        (Goal { name: Some("new".into()), ..goal("m3", 4) }, "m1 m2 m3", "new"),
    ] {
        assert_eq!(named(goal_of, cluster), Ok(wanted.to_owned()), "{cluster}");
    }
    let taken = Goal { name: Some("m3".into()), ..goal("m3", 4) };
    assert_eq!(named(taken, "m1 m2 m3"), Err("another member has the name m3: --name must be its own".into()));
}

#[test]
fn what_will_be_done_is_said() {
    let said = |goal: Goal, cluster: &str| {
        let (mut goal, facts) = (goal, facts(cluster));
        find_old(&mut goal, &facts.members()).expect("found");
        let step = next(&goal, &facts).expect("it goes on");
        steps(&goal, &facts, &step, "n").join("\n")
    };
    assert_eq!(
        said(goal("m1", 4), "m1 m2 m3"),
        "add n as a learner, reached at http://10.0.0.4:2380\nwait until n is started\nwait until n has caught up\n\
         give n a vote\nremove m1 (1), which leads and hands over first"
    );
    assert_eq!(
        said(goal("m3", 4), "m1 m2 m3:down"),
        "remove m3 (3), which does not answer: Connection refused\nadd n as a learner, reached at \
         http://10.0.0.4:2380\nwait until n is started\nwait until n has caught up\ngive n a vote"
    );
    assert_eq!(said(goal("m3", 4), "m1 m2 m3 n"), "remove m3 (3)");
    assert_eq!(said(goal("m3", 3), "m1 m2 n"), "");
}
