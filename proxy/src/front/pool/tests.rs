use super::super::config::Server;
use super::super::span::Span;
use super::*;
use std::collections::BTreeMap;

const NOW: Duration = Duration::from_secs(100);

fn server(name: &str) -> Server {
    Server { check: true, ..Server::new(name, &format!("{name}:1")) }
}

fn pool(balance: Balance, servers: Vec<Server>) -> Pool {
    let config = Backend {
        name: "members".into(),
        balance,
        consistent: false,
        retries: 3,
        redispatch: 1,
        allbackups: false,
        timeout: Default::default(),
        check: Default::default(),
        servers,
    };
    Pool::new(&config, Duration::ZERO)
}

fn asker(hash: u64) -> Asker {
    Asker { hash, draws: [hash, hash / 7], not: None }
}

/// Where so many connections go, which all stay.
fn spread(pool: &mut Pool, connections: u64) -> Vec<usize> {
    (0..connections).map(|hash| placed(pool, asker(hash))).collect()
}

fn placed(pool: &mut Pool, asker: Asker) -> usize {
    match pool.assign(asker, NOW) {
        Place::Server(at) => at,
        other => panic!("no server but {other:?}"),
    }
}

fn counts(places: &[usize]) -> BTreeMap<usize, usize> {
    let mut counts = BTreeMap::new();
    places.iter().for_each(|at| *counts.entry(*at).or_default() += 1);
    counts
}

fn three(balance: Balance) -> Pool {
    pool(balance, ["a", "b", "c"].map(server).to_vec())
}

fn fail(pool: &mut Pool, at: usize) {
    pool.checked(at, Found::L4Con, Duration::ZERO, "Connection refused".into(), NOW);
}

#[test]
fn in_turn_and_by_weight() {
    assert_eq!(spread(&mut three(Balance::Roundrobin), 6), [0, 1, 2, 0, 1, 2]);
    let weighted = vec![Server { weight: 3, ..server("a") }, server("b")];
    let places = spread(&mut pool(Balance::Roundrobin, weighted), 8);
    assert_eq!(counts(&places), BTreeMap::from([(0, 6), (1, 2)]));
    assert_ne!(places[..3], [0, 0, 0], "they are spread: {places:?}");
}

#[test]
fn one_that_is_down_or_drained_or_has_no_weight_gets_nothing() {
    let mut pool = three(Balance::Roundrobin);
    fail(&mut pool, 0);
    assert_eq!(counts(&spread(&mut pool, 4)), BTreeMap::from([(1, 2), (2, 2)]));
    assert!(pool.want(1, Wanted::Drain, NOW));
    assert!(!pool.want(1, Wanted::Drain, NOW), "it is already");
    assert_eq!(counts(&spread(&mut pool, 4)), BTreeMap::from([(2, 4)]));
    pool.weigh(2, 0, NOW);
    assert_eq!(pool.assign(asker(1), NOW), Place::Nobody);
    assert_eq!((pool.is_up(), pool.transitions), (false, 1));
    pool.want(1, Wanted::Ready, NOW + Duration::from_secs(3));
    assert_eq!((pool.is_up(), pool.downtime), (true, Duration::from_secs(3)));
}

#[test]
fn backups_work_when_nobody_else_does() {
    let backup = |name: &str| Server { backup: true, ..server(name) };
    let mut pool = pool(Balance::Roundrobin, vec![server("a"), backup("b"), backup("c")]);
    assert_eq!(counts(&spread(&mut pool, 3)), BTreeMap::from([(0, 3)]));
    fail(&mut pool, 0);
    assert_eq!(counts(&spread(&mut pool, 4)), BTreeMap::from([(1, 4)]), "the first alone");
    pool.allbackups = true;
    assert_eq!(counts(&spread(&mut pool, 4)), BTreeMap::from([(1, 2), (2, 2)]));
}

#[test]
fn the_fewest_connections_by_weight() {
    let mut pool = pool(Balance::Leastconn, vec![Server { weight: 2, ..server("a") }, server("b")]);
    assert_eq!(counts(&spread(&mut pool, 9)), BTreeMap::from([(0, 6), (1, 3)]));
    (0..5).for_each(|_| pool.ends(0));
    assert_eq!(counts(&spread(&mut pool, 3)), BTreeMap::from([(0, 3)]));
}

#[test]
fn one_source_goes_to_one_server() {
    for consistent in [false, true] {
        let mut pool = three(Balance::Source);
        pool.consistent = consistent;
        let before: Vec<usize> = spread(&mut pool, 300);
        assert_eq!(before, spread(&mut pool, 300));
        assert!(counts(&before).values().all(|count| *count > 60), "{:?}", counts(&before));
        fail(&mut pool, 2);
        let after = spread(&mut pool, 300);
        let moved = before.iter().zip(&after).filter(|(a, b)| a != b && **a != 2).count();
        assert_eq!(moved == 0, consistent, "{moved} moved that need not");
        assert!(!after.contains(&2));
    }
}

#[test]
fn the_first_with_room() {
    let two = |name: &str| Server { maxconn: Some(2), ..server(name) };
    let mut pool = pool(Balance::First, vec![two("a"), two("b")]);
    assert_eq!(spread(&mut pool, 4), [0, 0, 1, 1]);
    assert_eq!(pool.assign(asker(0), NOW), Place::Waits);
    pool.ends(0);
    assert_eq!(pool.assign(asker(0), NOW), Place::Server(0));
}

#[test]
fn the_better_of_two_draws() {
    let mut pool = three(Balance::Random);
    let drawn = |draws: [u64; 2]| Asker { hash: 0, draws, not: None };
    assert_eq!(placed(&mut pool, drawn([0, 1])), 0);
    assert_eq!(placed(&mut pool, drawn([0, 1])), 1);
    assert_eq!(placed(&mut pool, drawn([2, 0])), 2);
}

#[test]
fn the_leader_while_one_is_known() {
    let mut pool = three(Balance::Leader);
    assert_eq!(spread(&mut pool, 3), [0, 1, 2]);
    pool.leads(1, true);
    assert_eq!(spread(&mut pool, 3), [1, 1, 1]);
    fail(&mut pool, 1);
    assert_eq!(counts(&spread(&mut pool, 4)), BTreeMap::from([(0, 2), (2, 2)]));
}

#[test]
fn the_nearest_is_the_one_that_answers_soonest() {
    let mut pool = three(Balance::Nearest);
    for (at, millis) in [(0, 20), (1, 5), (2, 9)] {
        pool.checked(at, Found::L4Ok, Duration::from_millis(millis), String::new(), NOW);
    }
    assert_eq!(spread(&mut pool, 2), [1, 1]);
    // One check makes it no worse than it was at first.
    (0..2).for_each(|_| fail(&mut pool, 1));
    assert_eq!(spread(&mut pool, 2), [2, 2]);
}

#[test]
fn who_waits_is_served_in_order_when_a_place_is_free() {
    let one = |name: &str| Server { maxconn: Some(1), ..server(name) };
    let mut pool = pool(Balance::Roundrobin, vec![one("a"), one("b")]);
    spread(&mut pool, 2);
    let tickets: Vec<Ticket> = (0..3).map(|_| pool.wait(asker(0)).expect("there is room")).collect();
    assert_eq!((pool.queued(), pool.counters.queue_max), (3, 3));
    assert_eq!(pool.admitted(NOW), []);
    pool.ends(1);
    assert_eq!(pool.assign(asker(0), NOW), Place::Waits, "others came first");
    assert_eq!(pool.admitted(NOW), [(tickets[0], 1)]);
    pool.leaves(tickets[1]);
    pool.ends(0);
    assert_eq!(pool.admitted(NOW), [(tickets[2], 0)]);
    assert_eq!(pool.queued(), 0);
}

#[test]
fn a_source_waits_for_its_own_server_and_no_longer_than_its_queue() {
    let one = |name: &str| Server { maxconn: Some(1), maxqueue: Some(1), ..server(name) };
    let mut pool = pool(Balance::Source, vec![one("a"), one("b")]);
    let at = placed(&mut pool, asker(5));
    assert_eq!(pool.assign(asker(5), NOW), Place::Waits);
    let ticket = pool.wait(asker(5)).expect("one may wait");
    assert_eq!(pool.wait(asker(5)), None);
    pool.ends(at);
    assert_eq!(pool.admitted(NOW), [(ticket, at)]);
}

#[test]
fn a_redispatch_avoids_the_one_that_failed_if_it_can() {
    let mut pool = three(Balance::Roundrobin);
    for _ in 0..6 {
        assert_ne!(placed(&mut pool, Asker { not: Some(1), ..asker(1) }), 1);
    }
    fail(&mut pool, 0);
    fail(&mut pool, 2);
    assert_eq!(placed(&mut pool, Asker { not: Some(1), ..asker(1) }), 1);
}

#[test]
fn a_slow_start_gives_a_small_share_at_first() {
    let slow = Server { slowstart: Some(Span::seconds(10)), rise: 1, ..server("a") };
    let mut pool = pool(Balance::Roundrobin, vec![slow, server("b")]);
    fail(&mut pool, 0);
    let up = |pool: &mut Pool, at: Duration| pool.checked(0, Found::L4Ok, Duration::ZERO, String::new(), at);
    up(&mut pool, NOW - Duration::from_secs(1));
    let early = counts(&spread(&mut pool, 110));
    assert_eq!(early[&0], 10, "a tenth of the weight of the other");
}

#[test]
fn a_new_file_keeps_what_was_learned() {
    let mut before = three(Balance::Roundrobin);
    spread(&mut before, 3);
    fail(&mut before, 0);
    before.want(1, Wanted::Drain, NOW);
    before.weigh(2, 7, NOW);
    let mut after = pool(Balance::Roundrobin, ["c", "b", "a", "d"].map(server).to_vec());
    after.inherits(&before, NOW);
    let named = |name: &str| &after.members[after.position(name).expect(name)];
    assert!(!named("a").is_up() && named("d").is_up());
    assert_eq!((named("b").wanted, named("c").weight), (Wanted::Drain, 7));
    assert_eq!((named("a").counters.total, named("a").counters.current), (1, 1));
    assert_eq!(after.counters.chosen, 3);
}

#[test]
fn time_that_a_server_was_not_up_is_counted() {
    let mut pool = three(Balance::Roundrobin);
    fail(&mut pool, 0);
    let later = NOW + Duration::from_secs(30);
    assert_eq!(pool.members[0].downtime(later), Duration::from_secs(30));
    for _ in 0..2 {
        pool.checked(0, Found::L4Ok, Duration::ZERO, String::new(), later);
    }
    assert_eq!(pool.members[0].downtime(later + Duration::from_secs(9)), Duration::from_secs(30));
    pool.want(0, Wanted::Maint, later);
    assert_eq!(pool.members[0].downtime(later + Duration::from_secs(5)), Duration::from_secs(35));
}
