//! The codec against damage, and a live member against messages that contradict everything.

use bytes::Bytes;
use consensus::*;
use testkit::Dice;

/// A well-formed message of small random numbers, some huge, most of them nonsense.
fn bytes_of(dice: &mut Dice) -> Vec<u8> {
    let kind = 1 + dice.below(10) as u8;
    let mut out = vec![1, kind, dice.below(2) as u8, u8::from(kind == 9)];
    for field in 0..8 {
        let n = match (field, dice.below(12)) {
            (0, _) => 1,
            (1, 0..=9) => 2 + dice.below(2),
            (_, 0) => (1 << 62) - dice.below(3),
            _ => dice.below(6),
        };
        out.extend(n.to_le_bytes());
    }
    let context = [0u8, 16, 24][dice.below(3) as usize];
    out.extend([context, 0]);
    out.extend(vec![7; context as usize]);
    let entries = if kind == 1 { dice.below(4) } else { 0 };
    out.extend((entries as u32).to_le_bytes());
    for _ in 0..entries {
        out.extend((1 + dice.below(5)).to_le_bytes());
        out.push(u8::from(dice.below(20) == 0));
        out.extend(3u32.to_le_bytes());
        out.extend(b"abc");
    }
    if kind == 9 {
        out.extend((1 + dice.below(9)).to_le_bytes());
        out.extend((1 + dice.below(5)).to_le_bytes());
        for count in [dice.below(4), dice.below(2)] {
            out.extend((count as u16).to_le_bytes());
            let mut ids: Vec<u64> = (0..count).map(|_| dice.below(5)).collect();
            ids.sort_unstable();
            ids.iter().for_each(|id| out.extend(id.to_le_bytes()));
        }
        out.extend(1u32.to_le_bytes());
        out.push(9);
    }
    out
}

#[test]
fn encoding_is_canonical_and_damage_is_refused_or_read_whole() {
    let mut dice = Dice::new(42);
    for _ in 0..4000 {
        let bytes = bytes_of(&mut dice);
        let Ok(message) = Message::decode(bytes.clone().into()) else {
            continue;
        };
        let mut again = Vec::new();
        message.encode(&mut again);
        assert_eq!(Message::decode(again.into()), Ok(message.clone()));
        for cut in 0..bytes.len() {
            assert!(Message::decode(Bytes::copy_from_slice(&bytes[..cut])).is_err(), "cut {cut}");
        }
        for _ in 0..8 {
            let mut damaged = bytes.clone();
            let at = dice.below(bytes.len() as u64) as usize;
            damaged[at] = dice.below(256) as u8;
            if let Ok(message) = Message::decode(damaged.into()) {
                let mut out = Vec::new();
                message.encode(&mut out);
                assert_eq!(Message::decode(out.into()), Ok(message));
            }
        }
    }
}

fn member() -> Consensus {
    let config = Config {
        id: 1,
        seed: 5,
        boot: 1,
        election_ticks: 10,
        heartbeat_ticks: 1,
        max_message_bytes: 1000,
        max_uncommitted_bytes: 10_000,
        cache_bytes: 0,
    };
    let conf = ConfState { voters: vec![1, 2, 3], learners: vec![] };
    let entry = |index, term| Entry { index, term, kind: EntryKind::Normal, data: Bytes::new() };
    Consensus::new(
        config,
        Restored {
            doubt: None,
            voters_lost: false,
            hard: HardState { term: 2, vote: 0, commit: 2 },
            conf,
            applied: Position { index: 2, term: 1 },
            entries: vec![entry(2, 1), entry(3, 2), entry(4, 2)],
            boundary: Position { index: 1, term: 1 },
            terms: vec![],
        },
    )
}

/// Takes every turn as an honest driver would.
fn drive(consensus: &mut Consensus) {
    loop {
        let mut turn = Turn::default();
        consensus.turn(&mut turn);
        if turn.is_empty() {
            return;
        }
        for message in &turn.messages {
            message.encode(&mut Vec::new());
        }
        if let Some(save) = turn.save {
            consensus.saved(save.number);
        }
        for entry in turn.committed {
            if entry.kind == EntryKind::Config {
                consensus.conf_refused();
            }
            consensus.applied(entry.index);
        }
        if let Some((_, snapshot)) = turn.install {
            if snapshot.index.is_multiple_of(2) {
                consensus.installed(&snapshot);
            } else {
                consensus.abandon_install();
            }
        }
        for fetch in turn.fetch {
            consensus.fetched(fetch.ticket, Vec::new());
        }
    }
}

#[test]
fn a_member_survives_whatever_decodes() {
    let mut dice = Dice::new(7);
    let mut led = 0;
    for _ in 0..2_000 {
        let mut consensus = member();
        for _ in 0..60 {
            if let Ok(message) = Message::decode(bytes_of(&mut dice).into()) {
                consensus.step(message);
            }
            if dice.below(3) == 0 {
                consensus.tick();
            }
            if dice.below(8) == 0 {
                consensus.campaign();
            }
            if dice.below(4) == 0 {
                let _ = consensus.propose(Bytes::from_static(b"mine"));
                consensus.read(1);
            }
            drive(&mut consensus);
            led += u32::from(consensus.status().role == Role::Leader);
        }
    }
    assert!(led > 100, "it must also be hit while it leads: {led}");
}

#[test]
fn changes_read_back_and_damage_is_refused() {
    let context = Bytes::from_static(b"{}");
    use ConfChangeKind::*;
    for kind in [AddVoter, Remove, Update, AddLearner] {
        for member in [1, 127, 128, u64::MAX] {
            let change = ConfChange { kind, member, context: context.clone() };
            let bytes = change.encode();
            assert_eq!(ConfChange::decode(&bytes), Ok(change));
            assert!(ConfChange::decode(&bytes.slice(..bytes.len() - 1)).is_err());
        }
    }
    // etcd 3.7's bytes for adding learner 0x1234 with a context.
    let learner = ConfChange { kind: AddLearner, member: 0x1234, context };
    assert_eq!(learner.encode(), Bytes::from_static(b"\x10\x03\x18\xb4\x24\x22\x02{}"));
    assert!(ConfChange::decode(&Bytes::from_static(b"")).is_err());
}
