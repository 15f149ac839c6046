//! Space comes back by itself: nine tenths are deleted and compacted, and the disk follows within a
//! minute, while writes go on.

mod live;

use live::{Alone, block_on, ops};
use std::time::{Duration, Instant};

const KEYS: usize = 200_000;
const IN_A_TXN: usize = 100;
const VALUE: usize = 1_000;
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two writes of the load, which goes on all the time.
const PAUSE: Duration = Duration::from_millis(20);

fn key(number: usize) -> String {
    format!("key-{number:06}")
}

#[test]
fn after_nine_tenths_are_deleted_the_disk_follows_within_a_minute() {
    let alone = Alone::new(&[]);
    block_on(async {
        let client = alone.client();
        let value = vec![b'v'; VALUE];
        for first in (0..KEYS).step_by(IN_A_TXN) {
            let puts = (first..first + IN_A_TXN).map(|number| ops::put(key(number), value.clone()));
            client.txn(ops::txn(puts.collect())).await.expect("puts");
        }
        for first in (0..KEYS).step_by(10 * IN_A_TXN) {
            // Of ten keys the first one stays.
            let tens = (first..first + 10 * IN_A_TXN).step_by(10);
            let deletes = tens.map(|ten| ops::delete(key(ten + 1), format!("{}:", &key(ten)[..9])));
            client.txn(ops::txn(deletes.collect())).await.expect("deletes");
        }
        let full = client.status().await.expect("answers");
        assert!(full.db_size > (KEYS * VALUE) as i64, "{} bytes", full.db_size);
        let newest = full.header.expect("a header").revision;
        client.compact(newest).await.expect("compacts");
        let (begun, mut turn) = (Instant::now(), 0);
        let left = loop {
            client.put(key(turn % KEYS / 10 * 10), value.clone()).await.expect("writes go on");
            turn += 1;
            let status = client.status().await.expect("answers");
            if status.db_size < full.db_size / 4 && 2 * status.db_size_in_use > status.db_size {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "{} of {} bytes are left", status.db_size, full.db_size);
            tokio::time::sleep(PAUSE).await;
        };
        println!("{} of {} bytes are left after {:?}", left.db_size, full.db_size, begun.elapsed());
        for number in (0..KEYS).step_by(KEYS / 50) {
            assert_eq!(client.get(key(number)).await.expect("answers").is_some(), number % 10 == 0, "{number}");
        }
    });
}
