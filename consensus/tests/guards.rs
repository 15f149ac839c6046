//! Guards that an honest network seldom needs, each met with the message it is there for.

use bytes::Bytes;
use consensus::*;

const APPEND: u8 = 1;
const APPENDED: u8 = 2;
const VOTED: u8 = 4;
const PREVOTED: u8 = 6;
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

#[test]
fn appends_wait_while_a_snapshot_is_held() {
    let mut consensus = member(&[1, 2, 3]);
    let mut snapshot = 0u32.to_le_bytes().to_vec();
    snapshot.extend(9u64.to_le_bytes());
    snapshot.extend(2u64.to_le_bytes());
    snapshot.extend(3u16.to_le_bytes());
    [1u64, 2, 3].iter().for_each(|id| snapshot.extend(id.to_le_bytes()));
    snapshot.extend([0, 0, 0, 0, 0, 0]);
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
        let found = turn.contradicted.expect("seen");
        assert_eq!((found.leader, found.ours.term, found.theirs), (2, 2, 3), "{at:?} {terms:?}");
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
