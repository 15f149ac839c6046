use super::*;

fn small() -> Arc<Budgets> {
    Budgets::new(Limits { unsent: 1000, unsent_each: 400, sorts: 10 * 1024, ..Limits::default() })
}

#[test]
fn bounds_follow_the_memory_and_never_refuse_one_large_request() {
    let full = Limits::new(64 << 30, 1_572_864);
    assert_eq!(full.memory, 64 << 30, "what was asked for");
    let usual = Limits::default();
    let table = [
        (usual.queue, 32),
        (usual.unsent, 64),
        (usual.unsent_each, 2),
        (usual.sorts, 128),
        (usual.json_requests, 32),
        (usual.entry_cache, 64),
        (usual.peer_send, 16),
        (usual.event_ring, 8),
    ];
    for (bytes, mib) in table {
        assert_eq!(bytes, mib << 20);
    }
    for (memory, request) in [(0, 1 << 20), (512 << 20, 1_572_864), (512 << 20, 64 << 20), (u64::MAX, u64::MAX)] {
        let limits = Limits::new(memory, request);
        let request = request.min(256 << 20);
        for bound in [limits.queue, limits.commands, limits.uncommitted, limits.inbound, limits.peer_send] {
            assert!(bound > request, "{memory} {request}: {limits:?}");
        }
    }
    let half = Limits::new(512 << 20, 1_572_864);
    let sum = half.queue + half.peer_frames + half.inbound + half.json_requests + half.json_answers + half.unsent;
    let sum = sum + half.watch + half.posts + half.sorts + 2 * half.peer_send + half.entry_cache + half.uncommitted;
    let sum = sum + half.commands + half.unapplied + half.event_ring + half.unwritten + half.txn_answers + half.watches;
    assert!(sum < (512 << 20) / 3, "a third of 512 MiB: {sum}");
    assert_eq!(half.connections, 1250);
}

#[test]
fn the_smallest_limit_above_this_process_counts() {
    let of = |files: &'static [(&'static str, &'static str)]| {
        memory(move |path| files.iter().find(|(name, _)| *name == path).map(|(_, text)| text.to_string()))
    };
    assert_eq!(of(&[]), 4 << 30);
    assert_eq!(of(&[("/proc/meminfo", "MemTotal:  1048576 kB\nMemFree: 1 kB\n")]), 1 << 30);
    let second = &[
        ("/proc/self/cgroup", "0::/a/b\n"),
        ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
        ("/sys/fs/cgroup/a/memory.max", "536870912\n"),
        ("/proc/meminfo", "MemTotal: 1048576 kB\n"),
    ];
    assert_eq!(of(second), 512 << 20);
    let container = &[("/proc/self/cgroup", "0::/\n"), ("/sys/fs/cgroup/memory.max", "268435456\n")];
    assert_eq!(of(container), 256 << 20);
    let first = &[
        ("/proc/self/cgroup", "9:cpu,cpuacct:/x\n4:memory:/x\n"),
        ("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "134217728\n"),
    ];
    assert_eq!(of(first), 128 << 20);
    let unlimited = &[
        ("/proc/self/cgroup", "4:memory:/\n"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
    ];
    assert_eq!(of(unlimited), 4 << 30);
}

#[test]
fn sizes_are_read_as_people_write_them() {
    for (text, bytes) in [("0", 0), ("512MiB", 512 << 20), ("2G", 2 << 30), ("1Ki", 1024), ("7", 7), ("3 gb", 3 << 30)]
    {
        assert_eq!(parse_bytes(text), Some(bytes), "{text}");
    }
    for text in ["", "x", "-1", "1.5G", "1Q", "99999999999T"] {
        assert_eq!(parse_bytes(text), None, "{text}");
    }
}

#[test]
fn a_connection_holds_its_share_of_what_is_free() {
    let budgets = small();
    let (a, b) = (Account::new(&budgets), Account::new(&budgets));
    let held = a.hold(What::Unsent, 400);
    assert!(!a.may_ask(), "over its own bound");
    assert!(b.may_ask());
    let more: Vec<Arc<Account>> = (0..5).map(|_| Account::new(&budgets)).collect();
    let _holds: Vec<Hold> = more.iter().map(|account| account.hold(What::Unsent, 100)).collect();
    // 900 of 1000 are held.
    assert!(b.may_read(5000), "one that holds nothing may always go on");
    let _b = b.hold(What::Unsent, 60);
    assert!(!b.may_read(50) && !more[0].may_ask());
    drop(held);
    assert!(b.may_read(50) && more[0].may_ask());
}

#[test]
fn pieces_are_small_when_half_is_held() {
    let budgets = small();
    let (a, b) = (Account::new(&budgets), Account::new(&budgets));
    let held = a.hold(What::Places, 499);
    assert_eq!(b.piece(256 << 10), 256 << 10);
    let more = a.hold(What::Unsent, 1);
    assert_eq!((b.piece(256 << 10), b.piece(100)), (16 << 10, 100));
    drop((held, more));
    assert_eq!(b.piece(256 << 10), 256 << 10);
}

#[tokio::test]
async fn a_read_waits_until_the_client_takes_what_it_asked_for() {
    let budgets = small();
    let account = Account::new(&budgets);
    let places = account.hold(What::Places, 390);
    let first = tokio::time::timeout(std::time::Duration::from_secs(60), account.read(300)).await;
    let mut first = first.expect("what handlers hold does not stop them");
    let waits = tokio::spawn({
        let account = account.clone();
        async move { account.read(300).await }
    });
    tokio::task::yield_now().await;
    assert!(!waits.is_finished());
    first.less(100);
    tokio::task::yield_now().await;
    assert!(!waits.is_finished());
    drop(first);
    let second = waits.await.unwrap();
    drop((second, places));
    assert_eq!((budgets.unsent.used(), budgets.unsent.times_full()), (0, 1));
}

#[tokio::test]
async fn sorts_wait_in_line_and_too_large_ones_are_told() {
    let budgets = small();
    assert!(budgets.sort(10 * 1024 + 1).await.is_none());
    let mut large = budgets.sort(9 * 1024).await.unwrap();
    let waits = tokio::spawn({
        let budgets = budgets.clone();
        async move { budgets.sort(4096).await }
    });
    tokio::task::yield_now().await;
    assert!(!waits.is_finished());
    large.shrink(1000);
    assert!(waits.await.unwrap().is_some());
    drop(large);
    assert_eq!((budgets.sorts.used(), budgets.sorts.times_full()), (0, 2));
}
