use super::*;
use utl::survey::Place;

fn members(count: u64) -> Vec<Known> {
    let known = |id| Known {
        id,
        name: format!("m{id}"),
        peer_urls: vec![format!("http://10.0.0.{id}:2380")],
        client_urls: vec![format!("http://10.0.0.{id}:2379")],
        learner: false,
    };
    (1..=count).map(known).collect()
}

/// A directory of a member of so many, whose log has these runs of terms, and ends there.
fn survey(member: u64, of: u64, runs: &[(u64, u64)], last: (u64, u64), commit: u64) -> Survey {
    let place = |&(term, index): &(u64, u64)| Place { term, index };
    Survey {
        dir: format!("/d{member}"),
        cluster: 7,
        member,
        last: place(&last),
        terms: runs.iter().map(place).collect(),
        commit,
        committed_revision: commit as i64,
        revision: last.1 as i64,
        members: members(of),
        ..Survey::default()
    }
}

fn of(surveys: &[Survey]) -> Places {
    Places { surveys: surveys.to_vec(), ..Places::default() }
}

fn why(places: &Places, wanted: &str) -> String {
    plan(places, wanted).expect_err("nothing to do").0
}

#[test]
fn the_further_of_two_survivors_of_five_is_chosen() {
    let places = of(&[survey(1, 5, &[(1, 3)], (1, 20), 19), survey(2, 5, &[(1, 3)], (1, 25), 18)]);
    let plan = plan(&places, "").expect("a plan");
    assert_eq!((plan.chosen.member, &plan.surely[..]), (2, &[][..]));
    assert!(plan.possibly[0].contains("behind entry 25 (revision 25)"), "{:?}", plan.possibly);
    let commands: Vec<&str> = plan.steps.iter().map(|step| &step.command[..]).collect();
    assert_eq!(commands.len(), 3 + 4 * 3);
    assert!(commands[0].ends_with("--initial-cluster m2=http://10.0.0.2:2380 --force-new-cluster"), "{commands:?}");
    assert!(!commands[2].contains("--force"), "{commands:?}");
    assert!(commands[3].ends_with("member add m1 --learner --peer-urls=http://10.0.0.1:2380"), "{commands:?}");
    assert!(commands[4].contains("--initial-cluster m2=http://10.0.0.2:2380,m1=http://10.0.0.1:2380 "));
}

#[test]
fn an_older_term_is_older_however_long_its_log_is() {
    let places = of(&[survey(1, 5, &[(1, 3)], (1, 30), 20), survey(2, 5, &[(1, 3), (2, 21)], (2, 22), 20)]);
    let chosen = plan(&places, "").expect("a plan");
    assert_eq!(chosen.chosen.member, 2);
    assert_eq!(chosen.surely, ["entries 21 to 30 of m1, which are not known to have been acknowledged"]);
}

#[test]
fn nothing_is_lost_when_fewer_than_a_majority_are_lost() {
    // Whatever was acknowledged by three of four is on one of two.
    let places = of(&[survey(1, 4, &[(1, 3)], (1, 20), 20), survey(2, 4, &[(1, 3)], (1, 25), 18)]);
    let plan = plan(&places, "").expect("a plan");
    assert_eq!((&plan.surely[..], &plan.possibly[..]), (&[][..], &[][..]));
}

/// One that lost the end of its log may have acknowledged it with the one that is gone.
#[test]
fn a_log_that_lost_its_end_is_no_witness() {
    let hurt = Survey { forgets: true, damage: vec!["the log".into()], ..survey(2, 3, &[(1, 3)], (1, 15), 15) };
    let plan = plan(&of(&[survey(1, 3, &[(1, 3)], (1, 20), 15), hurt]), "").expect("a plan");
    assert_eq!((plan.chosen.member, &plan.surely[..]), (1, &[][..]));
    assert!(plan.possibly[0].contains("behind entry 20 (revision 20)"), "{:?}", plan.possibly);
}

#[test]
fn what_another_one_knows_to_be_committed_is_not_given_up_unasked() {
    let places = of(&[survey(1, 5, &[(1, 3), (2, 11)], (2, 30), 30), survey(2, 5, &[(1, 3), (3, 11)], (3, 12), 10)]);
    assert!(why(&places, "").starts_with("two histories: m1 knows entry 30"), "{}", why(&places, ""));
    let plan = plan(&places, "m2").expect("chosen");
    assert!(plan.surely[0].contains("they agree up to entry 10"), "{:?}", plan.surely);
}

#[test]
fn a_majority_needs_no_recovery() {
    let places = of(&[survey(1, 3, &[(1, 3)], (1, 20), 20), survey(2, 3, &[(1, 3)], (1, 25), 18)]);
    assert!(why(&places, "").contains("the directories of 2 of 3 voters are whole"));
    let leads = Live { endpoint: "http://e".into(), leader: 9, ..Live::default() };
    let running = Places { live: vec![leads], ..of(&places.surveys[..1]) };
    assert!(why(&running, "").starts_with("http://e has a leader (9)"));
}

#[test]
fn who_runs_and_has_more_is_told() {
    let live = Live { endpoint: "http://e".into(), commit: 40, revision: 40, ..Live::default() };
    let places = Places { live: vec![live], ..of(&[survey(1, 3, &[(1, 3)], (1, 20), 20)]) };
    assert!(plan(&places, "").expect("a plan").surely[0].starts_with("revisions 21 to 40, which http://e has"));
    assert!(why(&Places { surveys: Vec::new(), ..places }, "").contains("http://e is the furthest"));
}

#[test]
fn damaged_and_foreign_directories_are_not_chosen() {
    let gone = Survey { unusable: Some("no checkpoint".into()), ..survey(1, 3, &[(1, 3)], (1, 40), 40) };
    let places = of(&[gone, survey(2, 3, &[(1, 3)], (1, 20), 20)]);
    assert_eq!(plan(&places, "").expect("a plan").chosen.member, 2);
    assert_eq!(why(&places, "m1"), "--choose m1: no checkpoint");
    let foreign = Survey { cluster: 8, ..survey(3, 3, &[(1, 3)], (1, 10), 10) };
    let places = of(&[survey(2, 3, &[(1, 3)], (1, 20), 20), foreign]);
    assert!(why(&places, "").starts_with("/d3 is of cluster 8"));
}

#[test]
fn names_are_quoted_for_a_shell() {
    assert_eq!((quoted("/a/b.etcd"), quoted("it's")), ("/a/b.etcd".to_string(), "'it'\\''s'".to_string()));
}

#[test]
fn a_member_listens_at_addresses() {
    let urls = "https://m1.example:2380,http://[::1]:1,http://10.0.0.1:2";
    assert_eq!(listening(urls), "https://0.0.0.0:2380,http://[::1]:1,http://10.0.0.1:2");
}
