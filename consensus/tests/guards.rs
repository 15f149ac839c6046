//! Guards that an honest network seldom needs, each met with the message it is there for.

use bytes::Bytes;
use consensus::*;

const APPEND: u8 = 1;
const APPENDED: u8 = 2;
const VOTE: u8 = 3;
const VOTED: u8 = 4;
const PREVOTED: u8 = 6;
const HEARTBEAT: u8 = 7;
const HEARTBEAT_SEEN: u8 = 8;
const SNAPSHOT: u8 = 9;

/// Kind, term, log term, index, commit, and for rejections the hint; from member 2 to member 1.
fn message(kind: u8, numbers: [u64; 4], reject: Option<u64>, tail: &[u8]) -> Message {
    message_from(2, kind, numbers, reject, tail)
}

fn message_from(from: u64, kind: u8, numbers: [u64; 4], reject: Option<u64>, tail: &[u8]) -> Message {
    let [term, log_term, index, commit] = numbers;
    let mut out = vec![1, kind, u8::from(reject.is_some()), u8::from(kind == SNAPSHOT)];
    for n in [1, from, term, log_term, index, commit, 0, reject.unwrap_or(0)] {
        out.extend(n.to_le_bytes());
    }
    out.extend([0, 0]);
    out.extend_from_slice(if tail.is_empty() { &[0; 4] } else { tail });
    Message::decode(out.into()).expect("well-formed")
}

fn member(voters: &[u64]) -> Consensus {
    member_with(voters, 0)
}

fn member_with(voters: &[u64], cache_bytes: u64) -> Consensus {
    let config = Config {
        id: 1,
        seed: 5,
        boot: 1,
        election_ticks: 10,
        heartbeat_ticks: 1,
        max_message_bytes: 100,
        max_uncommitted_bytes: 10_000,
        cache_bytes,
    };
    let conf = ConfState { voters: voters.to_vec(), learners: vec![] };
    let hard = HardState { term: 1, vote: 0, commit: 1 };
    let restored = Restored {
        hard,
        conf,
        applied: Position { index: 1, term: 1 },
        entries: vec![],
        boundary: Position { index: 1, term: 1 },
        terms: vec![],
        doubt: None,
        voters_lost: false,
    };
    Consensus::new(config, restored)
}

/// Everything that is ready, saved and applied at once.
fn drive(consensus: &mut Consensus) -> Turn {
    let mut all = Turn::default();
    loop {
        let mut turn = Turn::default();
        consensus.turn(&mut turn);
        if turn.is_empty() {
            return all;
        }
        if let Some(save) = &turn.save {
            consensus.saved(save.number);
        }
        for entry in turn.committed {
            consensus.applied(entry.index);
        }
        all.messages.extend(turn.messages);
        all.lost_data.extend(turn.lost_data);
        all.install = turn.install.or(all.install);
        all.contradicted = turn.contradicted.or(all.contradicted);
    }
}

/// Leads term 2 of three members; its first entry, 2, is committed nowhere yet.
fn leader() -> Consensus {
    lead(member(&[1, 2, 3]))
}

fn lead(mut consensus: Consensus) -> Consensus {
    consensus.campaign();
    drive(&mut consensus);
    consensus.step(message(PREVOTED, [2, 0, 0, 0], None, &[]));
    drive(&mut consensus);
    consensus.step(message(VOTED, [2, 0, 0, 0], None, &[]));
    drive(&mut consensus);
    assert_eq!(consensus.status().role, Role::Leader);
    consensus
}

fn acknowledge(consensus: &mut Consensus, index: u64) -> Turn {
    consensus.step(message(APPENDED, [2, 0, index, 0], None, &[]));
    drive(consensus)
}

#[test]
fn no_membership_change_before_the_first_commit_of_the_term() {
    let mut consensus = leader();
    let change = ConfChange { kind: ConfChangeKind::Remove, member: 3, context: Bytes::new() };
    assert_eq!(consensus.propose_change(&change), Err(Refused::ChangePending));
    acknowledge(&mut consensus, 2);
    assert_eq!(consensus.propose_change(&change), Ok(()));
    assert_eq!(consensus.propose_change(&change), Err(Refused::ChangePending));
}

#[test]
fn messages_are_cut_to_size() {
    let mut consensus = leader();
    acknowledge(&mut consensus, 2);
    for _ in 0..5 {
        consensus.propose(Bytes::from(vec![1; 45])).unwrap();
    }
    consensus.propose(Bytes::from(vec![1; 300])).unwrap();
    let turn = drive(&mut consensus);
    let to_2: Vec<_> = turn.messages.iter().filter(|m| m.to() == 2).collect();
    let sizes: Vec<u64> = to_2.iter().map(|m| m.payload_bytes()).collect();
    assert_eq!(sizes, [90, 90, 45, 300]);
    let text = format!("{to_2:?}");
    assert!(text.contains("at=4/2") && text.contains("at=6/2") && text.contains("at=7/2"), "{text}");
}

/// A whole backlog in one turn would keep the leader from everything else meanwhile.
#[test]
fn a_follower_far_behind_is_sent_a_bounded_part_at_once() {
    let mut consensus = lead(member_with(&[1, 2, 3], 1 << 20));
    for n in 0..1000 {
        consensus.propose(Bytes::from(vec![1; 45])).unwrap();
        drive(&mut consensus);
        consensus.step(message_from(3, APPENDED, [2, 0, n + 3, 0], None, &[]));
        drive(&mut consensus);
    }
    let payload =
        |turn: &Turn| -> u64 { turn.messages.iter().filter(|m| m.to() == 2).map(Message::payload_bytes).sum() };
    let first = payload(&acknowledge(&mut consensus, 2));
    assert!((2_000..=64 * 100).contains(&first), "{first}");
    let next = payload(&acknowledge(&mut consensus, 20));
    assert!(next > 0 && next <= first, "{next} after {first}");
}

/// The crate adds entries to an append of the same turn that had none, wherever that one stands.
#[test]
fn entries_of_a_message_follow_its_index() {
    let mut consensus = leader();
    acknowledge(&mut consensus, 2);
    consensus.step(message_from(3, APPENDED, [2, 0, 2, 0], None, &[]));
    drive(&mut consensus);
    consensus.propose(Bytes::from_static(b"a")).expect("leads");
    drive(&mut consensus);
    // Commits 3: member 2, which was sent it, is told by an empty append behind it …
    consensus.step(message_from(3, APPENDED, [2, 0, 3, 0], None, &[]));
    // … and then its connection breaks, so it is sent 3 again with what follows.
    consensus.unreachable(2);
    consensus.propose(Bytes::from_static(b"b")).expect("leads");
    let turn = drive(&mut consensus);
    let to_2: Vec<String> = turn.messages.iter().filter(|m| m.to() == 2).map(|m| format!("{m:?}")).collect();
    assert_eq!(to_2, ["Append 1->2 term=2 at=2/2 commit=3 entries=[3/2 4/2]"]);
    let mut bytes = Vec::new();
    turn.messages.iter().for_each(|m| m.encode(&mut bytes));
}

#[test]
fn acknowledgement_beyond_our_log_counts_for_nothing() {
    let mut consensus = leader();
    acknowledge(&mut consensus, 99);
    let status = consensus.status();
    assert_eq!((status.followers[0].matched, status.commit), (0, 1));
}

#[test]
fn rejections_below_the_acknowledged_are_dropped_and_raised() {
    let mut consensus = leader();
    acknowledge(&mut consensus, 2);
    let mut raised = Vec::new();
    for _ in 0..25 {
        consensus.step(message(HEARTBEAT_SEEN, [2, 0, 0, 0], None, &[]));
        consensus.step(message(APPENDED, [2, 1, 2, 0], Some(1), &[]));
        consensus.tick();
        raised.extend(drive(&mut consensus).lost_data);
    }
    assert_eq!(raised, [2]);
    let follower = consensus.status().followers[0];
    assert_eq!((follower.matched, follower.next, follower.feeding), (2, 3, Feeding::Replicate));
}

/// Of three voters, without a manifest.
fn snapshot_at(index: u64, term: u64) -> Vec<u8> {
    let mut snapshot = 0u32.to_le_bytes().to_vec();
    snapshot.extend(index.to_le_bytes());
    snapshot.extend(term.to_le_bytes());
    snapshot.extend(3u16.to_le_bytes());
    [1u64, 2, 3].iter().for_each(|id| snapshot.extend(id.to_le_bytes()));
    snapshot.extend([0, 0, 0, 0, 0, 0]);
    snapshot
}

#[test]
fn appends_wait_while_a_snapshot_is_held() {
    let mut consensus = member(&[1, 2, 3]);
    let snapshot = snapshot_at(9, 2);
    consensus.step(message(SNAPSHOT, [2, 0, 0, 0], None, &snapshot));
    let (from, held) = drive(&mut consensus).install.expect("it is handed out");
    assert_eq!((from, held.index), (2, 9));

    let mut entry = 1u32.to_le_bytes().to_vec();
    entry.extend(2u64.to_le_bytes());
    entry.extend([0, 0, 0, 0, 0]);
    let append = message(APPEND, [2, 1, 1, 2], None, &entry);
    consensus.step(append.clone());
    drive(&mut consensus);
    assert_eq!((consensus.status().last, consensus.status().commit), (1, 1));
    for _ in 0..60 {
        consensus.tick();
    }
    assert_eq!(consensus.status().role, Role::Follower, "nor does it campaign");

    consensus.abandon_install();
    consensus.step(append);
    drive(&mut consensus);
    assert_eq!((consensus.status().last, consensus.status().applied), (2, 2));

    consensus.step(message(SNAPSHOT, [2, 0, 0, 0], None, &snapshot));
    drive(&mut consensus);
    consensus.installed(&held);
    drive(&mut consensus);
    let status = consensus.status();
    assert_eq!((status.applied, status.commit, status.last), (9, 9, 9));
    // At or below the commit index it is only acknowledged.
    consensus.step(message(SNAPSHOT, [2, 0, 0, 0], None, &snapshot));
    let turn = drive(&mut consensus);
    assert!(turn.install.is_none());
    assert!(format!("{:?}", turn.messages).contains("AppendResponse 1->2 term=2 at=9/0"));
}

/// The files of an offer are in place, and in the same turn the leader's repeated offer and a
/// candidate's request came.
#[test]
fn what_came_during_an_install_is_of_the_state_behind_it() {
    let mut consensus = member(&[1, 2, 3]);
    let offer = message(SNAPSHOT, [2, 0, 0, 0], None, &snapshot_at(9, 2));
    consensus.step(offer.clone());
    let (_, held) = drive(&mut consensus).install.expect("it is handed out");
    consensus.step(offer);
    // The leader has been silent.
    for _ in 0..30 {
        consensus.tick();
    }
    consensus.step(message_from(3, VOTE, [5, 2, 12, 0], None, &[]));
    consensus.installed(&held);
    let mut turn = Turn::default();
    consensus.turn(&mut turn);
    assert_eq!(turn.install, None, "it is in place");
    let hard = turn.save.expect("a vote").hard;
    assert_eq!((hard.term, hard.vote, hard.commit), (5, 3, 9));
}

/// Nothing is proposed meanwhile.
#[test]
fn a_move_of_leadership_ends_with_the_connection_and_with_time() {
    let moving = || {
        let mut consensus = leader();
        acknowledge(&mut consensus, 2);
        consensus.transfer(2).expect("keeps up");
        assert_eq!(consensus.propose(Bytes::new()), Err(Refused::Transferring));
        consensus
    };
    let mut consensus = moving();
    consensus.unreachable(3);
    assert_eq!(consensus.propose(Bytes::new()), Err(Refused::Transferring));
    consensus.unreachable(2);
    assert_eq!(consensus.propose(Bytes::new()), Ok(()));
    let mut consensus = moving();
    consensus.was_away(4);
    consensus.tick();
    consensus.was_away(4);
    assert_eq!(consensus.propose(Bytes::new()), Err(Refused::Transferring));
    consensus.tick();
    assert_eq!(consensus.propose(Bytes::new()), Ok(()));
}

/// One that stands for election forgets its leader; one that may not does too.
#[test]
fn a_member_that_may_not_stand_forgets_a_dead_leader() {
    let mut consensus = member(&[1, 2, 3]);
    consensus.bar(true);
    consensus.step(message(HEARTBEAT, [2, 0, 0, 0], None, &[]));
    drive(&mut consensus);
    for _ in 0..9 {
        consensus.tick();
    }
    assert_eq!(consensus.leader(), 2);
    for _ in 0..11 {
        consensus.tick();
    }
    assert_eq!((consensus.leader(), consensus.leader_silence()), (0, 20));
}

/// Entries of these terms, without data, as an append of member 2 behind `at` carries them.
fn append(term: u64, at: (u64, u64), commit: u64, terms: &[u64]) -> Message {
    let mut tail = u32::try_from(terms.len()).expect("few").to_le_bytes().to_vec();
    for of in terms {
        tail.extend(of.to_le_bytes());
        tail.extend([0, 0, 0, 0, 0]);
    }
    message(APPEND, [term, at.1, at.0, commit], None, &tail)
}

/// The crate would claim everything that is committed here, compared or not: a leader with another
/// history would count it.
#[test]
fn an_answer_claims_no_more_than_was_compared() {
    let mut consensus = member(&[1, 2, 3]);
    consensus.step(append(2, (1, 1), 5, &[2, 2, 2, 2]));
    drive(&mut consensus);
    assert_eq!(consensus.status().commit, 5);
    for (count, claimed) in [(0, 2), (1, 3), (2, 4), (3, 5)] {
        consensus.step(append(2, (2, 2), 5, &[2, 2, 2][..count]));
        let turn = drive(&mut consensus);
        let said = format!("{:?}", turn.messages);
        assert!(said.contains(&format!("AppendResponse 1->2 term=2 at={claimed}/0")), "{said}");
        assert!(turn.contradicted.is_none());
    }
    // Entries behind the commit index come again: the crate takes none of a message that begins
    // below it.
    consensus.step(append(2, (3, 2), 5, &[2, 2, 2, 2]));
    let said = format!("{:?}", drive(&mut consensus).messages);
    assert!(said.contains("AppendResponse 1->2 term=2 at=5/0"), "{said}");
}

#[test]
fn a_leader_with_other_entries_than_committed_ones_is_told_and_followed_no_more() {
    for (at, terms) in [((3, 2), &[3][..]), ((4, 3), &[]), ((2, 2), &[2, 2, 3])] {
        let mut consensus = member(&[1, 2, 3]);
        consensus.step(append(2, (1, 1), 5, &[2, 2, 2, 2]));
        drive(&mut consensus);
        consensus.step(append(3, at, 5, terms));
        let turn = drive(&mut consensus);
        let Some(Contradiction::Entry { leader, ours, theirs }) = turn.contradicted else { panic!("{turn:?}") };
        assert_eq!((leader, ours.term, theirs), (2, 2, 3), "{at:?} {terms:?}");
        assert!(turn.messages.is_empty(), "{:?}", turn.messages);
        consensus.step(append(3, (5, 2), 6, &[3]));
        let turn = drive(&mut consensus);
        assert!(turn.messages.is_empty() && turn.contradicted.is_none(), "{:?}", turn.messages);
        assert_eq!(consensus.status().last, 5);
        for _ in 0..60 {
            consensus.tick();
        }
        assert_eq!(consensus.status().role, Role::Follower, "nor does it campaign");
    }
}

/// The leader's disk is an older copy: it has other entries where this log was cut. The crate would
/// acknowledge them all.
#[test]
fn what_lies_below_the_log_is_not_acknowledged() {
    let mut consensus = member(&[1, 2, 3]);
    consensus.step(append(2, (1, 1), 5, &[2, 2, 2, 2]));
    drive(&mut consensus);
    consensus.compact_cache(5);
    // An append that reaches the log is compared where it does.
    consensus.step(append(2, (2, 2), 5, &[2, 2]));
    let said = format!("{:?}", drive(&mut consensus).messages);
    assert!(said.contains("AppendResponse 1->2 term=2 at=4/0"), "{said}");
    let snapshot = snapshot_at(3, 2);
    for below in [append(2, (1, 1), 1, &[2, 2]), append(2, (2, 2), 1, &[])] {
        consensus.step(below);
        let turn = drive(&mut consensus);
        assert!(turn.messages.is_empty(), "{:?}", turn.messages);
    }
    for asks in [message(SNAPSHOT, [2, 0, 0, 0], None, &snapshot), message(HEARTBEAT, [2, 0, 0, 0], None, &[])] {
        consensus.step(asks);
        let said = format!("{:?}", drive(&mut consensus).messages);
        assert_eq!(said, "[HeartbeatResponse 1->2 term=2 commit=5]", "it says how far it is");
    }
    // The leader was told, and goes on.
    let mut found = None;
    for _ in 0..25 {
        consensus.step(append(2, (2, 2), 1, &[2]));
        found = found.or(drive(&mut consensus).contradicted);
        consensus.tick();
    }
    let (ours, theirs) = (Position { index: 4, term: 2 }, Position { index: 3, term: 2 });
    assert_eq!(found, Some(Contradiction::Below { leader: 2, ours, theirs }));
    consensus.step(append(2, (5, 2), 6, &[2]));
    assert!(drive(&mut consensus).messages.is_empty());
}

#[test]
fn the_search_for_agreement_begins_where_the_follower_is_committed() {
    let mut consensus = lead(member_with(&[1, 2, 3], 1 << 20));
    for index in 3..=8 {
        consensus.propose(Bytes::from_static(b"a")).expect("leads");
        drive(&mut consensus);
        consensus.step(message_from(3, APPENDED, [2, 0, index, 0], None, &[]));
        drive(&mut consensus);
    }
    // A rejection that was long under way sets the search back to the beginning.
    consensus.step(message(APPENDED, [2, 1, 1, 0], Some(0), &[]));
    drive(&mut consensus);
    consensus.step(message(HEARTBEAT_SEEN, [2, 0, 0, 6], None, &[]));
    let to_2: Vec<String> =
        drive(&mut consensus).messages.iter().filter(|m| m.to() == 2).map(|m| format!("{m:?}")).collect();
    assert_eq!(to_2, ["Append 1->2 term=2 at=6/2 commit=8 entries=[7/2]"], "the size of one message");
    // It is committed there beyond all that this leader has: the end is compared.
    consensus.step(message(HEARTBEAT_SEEN, [2, 0, 0, 99], None, &[]));
    assert_eq!(consensus.status().followers[0].next, 9);
}

#[test]
fn a_member_that_hears_two_leaders_of_one_term_takes_nothing_more() {
    let heartbeat = |from| message_from(from, HEARTBEAT, [2, 0, 0, 0], None, &[]);
    let found = |leaders| Some(Contradiction::Leaders { term: 2, leaders });
    let mut consensus = member(&[1, 2, 3]);
    consensus.step(heartbeat(2));
    assert!(drive(&mut consensus).contradicted.is_none());
    // Also when it follows nobody any more.
    consensus.step_down();
    consensus.step(heartbeat(3));
    let turn = drive(&mut consensus);
    assert_eq!(turn.contradicted, found([2, 3]));
    assert!(turn.messages.is_empty(), "{:?}", turn.messages);
    for from in [2, 3] {
        consensus.step(heartbeat(from));
        let turn = drive(&mut consensus);
        assert!(turn.messages.is_empty() && turn.contradicted.is_none(), "{turn:?}");
    }
    let mut leader = leader();
    leader.step(heartbeat(3));
    assert_eq!(drive(&mut leader).contradicted, found([1, 3]));
    for _ in 0..60 {
        leader.tick();
    }
    assert_eq!(leader.status().role, Role::Follower, "nor does it campaign");
}

/// Appends to member 2 of these turns.
fn appends_to_2(turn: &Turn) -> usize {
    turn.messages.iter().filter(|m| m.to() == 2 && format!("{m:?}").starts_with("Append ")).count()
}

/// Each round of reads is a heartbeat: on a slow link its answers would repeat what is still under
/// way.
#[test]
fn answers_to_heartbeats_do_not_repeat_a_probe_that_is_under_way() {
    let mut consensus = lead(member_with(&[1, 2, 3], 1 << 20));
    consensus.step(message_from(3, APPENDED, [2, 0, 2, 0], None, &[]));
    drive(&mut consensus);
    // Member 2 is probed since the election.
    let mut sent = 0;
    for _ in 0..32 {
        for _ in 0..10 {
            consensus.step(message(HEARTBEAT_SEEN, [2, 0, 0, 0], None, &[]));
            sent += appends_to_2(&drive(&mut consensus));
        }
        consensus.tick();
        consensus.step(message_from(3, HEARTBEAT_SEEN, [2, 0, 0, 0], None, &[]));
        drive(&mut consensus);
    }
    assert_eq!(sent, 5, "after 1, 2, 4, 8 and 16 ticks");
    consensus.unreachable(2);
    consensus.step(message(HEARTBEAT_SEEN, [2, 0, 0, 0], None, &[]));
    assert_eq!(appends_to_2(&drive(&mut consensus)), 1, "a broken connection carries nothing");
    acknowledge(&mut consensus, 2);
    assert_eq!(consensus.status().followers[0].feeding, Feeding::Replicate);
}

#[test]
fn answers_to_heartbeats_do_not_widen_a_full_window() {
    let mut consensus = lead(member_with(&[1, 2, 3], 1 << 20));
    acknowledge(&mut consensus, 2);
    let mut sent = 0;
    for n in 0..90 {
        consensus.propose(Bytes::from(vec![1; 80])).expect("leads");
        sent += appends_to_2(&drive(&mut consensus));
        consensus.step(message_from(3, APPENDED, [2, 0, n + 3, 0], None, &[]));
        drive(&mut consensus);
    }
    let window = 70;
    assert!(sent < window, "{sent}");
    for _ in 0..100 {
        consensus.step(message(HEARTBEAT_SEEN, [2, 0, 2, 0], None, &[]));
        sent += appends_to_2(&drive(&mut consensus));
    }
    assert!(sent < window, "{sent}");
    consensus.tick();
    consensus.step(message(HEARTBEAT_SEEN, [2, 0, 2, 0], None, &[]));
    assert_eq!(appends_to_2(&drive(&mut consensus)), 1, "in case that all of it was lost");
    assert!(appends_to_2(&acknowledge(&mut consensus, 4)) > 0, "an answer opens the window");
}
