use super::*;

fn txn() -> TxnRequest<'static> {
    let put = PutRequest { key: b"k", value: b"v", lease: -3, prev_kv: true, ..Default::default() };
    let range =
        RangeRequest { key: b"k", range_end: b"\0", limit: 7, sort_order: 2, max_create: 9, ..Default::default() };
    let delete = DeleteRangeRequest { key: b"d", range_end: b"e", prev_kv: true };
    let inner = TxnRequest { success: vec![RequestOp::DeleteRange(delete)], ..Default::default() };
    let compare = Compare { result: 3, target: 3, key: b"k", range_end: b"l", operand: Operand::Value(b"x") };
    TxnRequest {
        compare: vec![compare, Compare { target: 4, key: b"q", operand: Operand::Lease(-1), ..Default::default() }],
        success: vec![RequestOp::Put(put), RequestOp::Txn(inner)],
        failure: vec![RequestOp::Range(range)],
    }
}

fn bodies() -> Vec<Checked> {
    let mut request = Vec::new();
    txn().encode(&mut request);
    vec![
        encode_txn(&request).unwrap(),
        encode_put(b"\x0a\x01k\x12\x01v").unwrap(),
        encode_delete_range(b"\x0a\x01k").unwrap(),
        encode_compaction(-1, true),
        encode_lease_grant(5, 60, 2),
        encode_lease_revoke(-5),
        encode_lease_checkpoint(&[(1, 60), (2, 0)]),
        encode_alarm(AlarmAction::Deactivate, u64::MAX, 2),
        encode_expire(3, &[(7, 12), (8, 13)]),
        encode_member_attr(9, "name", &["http://a:1".into(), "http://b:1".into()]),
        encode_cluster_version("3.7.0", 0),
        encode_cluster_version("3.7.0", u64::MAX),
        encode_refound(5),
    ]
}

#[test]
fn commands_round_trip() {
    let origin = Origin { member: 1, boot: u64::MAX, seq: 3 };
    let sealed: Vec<Bytes> = bodies().iter().map(|body| seal(body, origin, Some(77))).collect();
    let read: Vec<Command<'_>> = sealed.iter().map(|data| decode(data).unwrap().command).collect();
    assert_eq!(read[0], Command::Txn(txn()));
    assert_eq!(read[3], Command::Compaction { revision: -1, physical: true });
    assert_eq!(read[4], Command::LeaseGrant { id: 5, ttl: 60 });
    assert_eq!(read[6], Command::LeaseCheckpoint { leases: vec![(1, 60), (2, 0)] });
    assert_eq!(read[7], Command::Alarm { action: AlarmAction::Deactivate, member: u64::MAX, alarm: 2 });
    assert_eq!(read[8], Command::Expire { term: 3, leases: vec![(7, 12), (8, 13)] });
    let urls = vec!["http://a:1", "http://b:1"];
    assert_eq!(read[9], Command::MemberAttr { member: 9, name: "name", client_urls: urls });
    assert_eq!(read[10], Command::ClusterVersion { version: "3.7.0", founding: 0 });
    assert_eq!(read[11], Command::ClusterVersion { version: "3.7.0", founding: u64::MAX });
    assert_eq!(read[12], Command::Refound { founding: 5 });
    for data in &sealed {
        let envelope = decode(data).unwrap();
        assert_eq!((envelope.origin, envelope.lease_clock), (Some(origin), Some(77)));
    }
    assert_eq!(decode(b"").unwrap().command, Command::Empty);
}

#[test]
fn who_asks_stands_behind_the_command() {
    let body = encode_lease_revoke(-5);
    let asker = |body: &Checked| decode(body).unwrap().asker == Asker::Nobody;
    assert!(asker(&signed(&body, Asker::Nobody)));
    assert_eq!(signed(&body, Asker::Nobody), body);
    for asker in [Asker::Member, Asker::User { name: "u", revision: 7 }] {
        let signed = signed(&body, asker);
        let origin = Origin { member: 1, boot: 2, seq: 3 };
        let sealed = seal(&signed, origin, None);
        let envelope = decode(&sealed).unwrap();
        assert_eq!((envelope.asker, envelope.origin), (asker, Some(origin)));
        assert_eq!(envelope.command, Command::LeaseRevoke { id: -5 });
        assert!(is_reserved(&signed), "what it is stands first");
    }
}

#[test]
fn only_what_needs_time_wants_the_clock() {
    let wanting: Vec<usize> =
        bodies().iter().enumerate().filter(|(_, body)| wants_clock(body)).map(|(i, _)| i).collect();
    assert_eq!(wanting, [4, 6, 8]);
}

#[test]
fn a_cut_body_is_malformed_or_another_message_but_never_a_panic() {
    for body in bodies() {
        for cut in 1..body.len() {
            assert!(decode(&body[..cut]).is_err(), "a body is one field: every cut shows");
        }
        for at in 0..body.len() {
            let mut other = body.to_vec();
            other[at] ^= 0x41;
            let _ = decode(&other);
        }
    }
}

#[test]
fn plain_requests_are_spliced_and_others_written_anew() {
    let plain = b"\x12\x01v\x0a\x01k";
    assert_eq!(&encode_put(plain).unwrap()[2..], plain, "as it came, whatever the order");
    let twice = b"\x0a\x01x\x0a\x01k\x12\x01v";
    assert_eq!(&encode_put(twice).unwrap()[2..], b"\x0a\x01k\x12\x01v");
    let unknown = b"\x0a\x01k\x52\x03abc";
    assert_eq!(&encode_put(unknown).unwrap()[2..], b"\x0a\x01k");
    // inside a transaction too: success { put { key k, field 10 } }
    let nested = b"\x12\x09\x12\x07\x0a\x01k\x52\x02ab";
    assert_eq!(&encode_txn(nested).unwrap()[2..], b"\x12\x05\x12\x03\x0a\x01k");
}

#[test]
fn a_write_is_read_checked_priced_and_spliced_at_once() {
    let plain = b"\x0a\x01k\x12\x01v";
    assert_eq!(put(plain), Ok(Write { body: encode_put(plain).unwrap(), cost: 258 }));
    assert_eq!(put(b"\x12\x01v"), Err(Rejected::Wrong(Error::EmptyKey)));
    assert!(matches!(put(b"\x0a\x05k"), Err(Rejected::Malformed(_))));
    assert_eq!(delete_range(b"\x0a\x01k").unwrap().cost, 0);
    assert_eq!(delete_range(b""), Err(Rejected::Wrong(Error::EmptyKey)));
    let writes = super::txn(b"\x12\x09\x12\x07\x0a\x01k\x12\x02ab", 1).unwrap();
    assert_eq!((writes.write.cost, writes.read_only), (259, false));
    assert_eq!(writes.write.body, encode_txn(b"\x12\x09\x12\x07\x0a\x01k\x12\x02ab").unwrap());
    assert_eq!(super::txn(b"\x12\x09\x12\x07\x0a\x01k\x12\x02ab", 0), Err(Rejected::Wrong(Error::TooManyOps)));
    let reads = super::txn(b"\x12\x05\x0a\x03\x0a\x01k", 1).unwrap();
    assert_eq!((reads.write.cost, reads.read_only, reads.serializable), (0, true, false));
}

#[test]
fn costs_are_of_the_dearer_branch() {
    assert_eq!(txn_cost(&txn()), 258);
    let nested = TxnRequest { failure: vec![RequestOp::Txn(txn()), RequestOp::Txn(txn())], ..Default::default() };
    assert_eq!(txn_cost(&nested), 516);
}

#[test]
fn deep_nesting_is_refused() {
    let mut request = Vec::new();
    for _ in 0..200 {
        let (mut op, mut txn) = (Vec::new(), Vec::new());
        write_message(&mut op, 4, &request);
        write_message(&mut txn, 2, &op);
        request = txn;
    }
    assert!(encode_txn(&request).is_err());
}

#[test]
fn operations_are_counted_down_into_nested_transactions() {
    let wide = |n| TxnRequest {
        success: vec![RequestOp::Range(RangeRequest { key: b"k", ..Default::default() }); n],
        ..Default::default()
    };
    assert_eq!(check_txn(&wide(4), 4), Ok(()));
    assert_eq!(check_txn(&wide(5), 4), Err(crate::Error::TooManyOps));
    let outer = |n| TxnRequest { success: vec![RequestOp::Txn(wide(n))], ..Default::default() };
    assert_eq!(check_txn(&outer(3), 4), Ok(()));
    assert_eq!(check_txn(&outer(4), 4), Err(crate::Error::TooManyOps));
}

#[test]
fn only_a_whole_command_can_be_proposed() {
    for body in bodies() {
        assert_eq!(Checked::read(Bytes::clone(&body)), Ok(body.clone()));
        for cut in 0..body.len() {
            let read = Checked::read(body.slice(..cut));
            assert!(read.as_ref().is_err_and(|bad| !bad.later), "{read:?}");
        }
        let entry = seal(&body, Origin { member: 1, boot: 2, seq: 3 }, Some(4));
        assert!(Checked::read(entry).is_err(), "an entry is no body");
    }
    let signed = signed(&bodies()[1], Asker::User { name: "u", revision: 7 });
    assert!(Checked::read(Bytes::clone(&signed)).is_ok(), "who asks comes along");
}

#[test]
fn what_a_later_version_may_have_written_is_told_from_nonsense() {
    let table: [(&[u8], bool); 9] = [
        // A new command of etcd, and one of ours; a new field of an origin.
        (b"\xb2\x51\x01a", true),
        (b"\x9a\xe8\x09\x00", true),
        (b"\x8a\xe2\x09\x02\x20\x01", true),
        // Numbers that are nobody's, and values of another type.
        (b"\x0a\x01k", false),
        (b"\x22\x03\x0a\x05k", false),
        (b"\x20\x01", false),
        (b"\x88\xe2\x09\x01", false),
        (b"\xff", false),
        (b"\x22\x03\x0a\x01k\x22\x03\x0a\x01k", false),
    ];
    for (bytes, later) in table {
        let malformed = decode(bytes).expect_err("is refused");
        assert_eq!(malformed.later, later, "{bytes:x?}: {malformed}");
    }
}
