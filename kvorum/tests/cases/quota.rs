//! A full store: what is refused, what goes on, and the way back.

use client::wire::{
    Code, Rpc,
    etcdserverpb::{AlarmRequest, CompactionRequest, CompactionResponse},
};
use client::{Client, key, prefix};

use crate::live::ops::{delete, get, nested, put, txn};
use crate::live::{self, Alone, refused};
use crate::revision;

const FULL: &str = "etcdserver: mvcc: database space exceeded";

async fn alarms(client: &Client) -> Vec<(u64, i32)> {
    let list = client.alarm(AlarmRequest::default()).await.unwrap();
    list.alarms.iter().map(|alarm| (alarm.member_id, alarm.alarm)).collect()
}

async fn fill(client: &Client) {
    let value = vec![b'v'; 1_000_000];
    for n in 0..40 {
        match client.put(format!("fill/{n:02}"), value.clone()).await {
            Ok(_) => {}
            Err(error) => {
                refused::<()>(Err(error), Code::ResourceExhausted, FULL);
                assert!(n >= 8, "full after {n} MB");
                return;
            }
        }
    }
    panic!("40 MB fit into 16 MiB");
}

#[test]
fn a_full_store_takes_no_more_until_it_is_emptied_and_disarmed() {
    let own = Alone::new(&["--quota-backend-bytes=16777216"]);
    live::block_on(async {
        let client = own.client();
        let lease = client.lease_grant(60, 0).await.unwrap().id;
        let member = client.status().await.unwrap().header.unwrap().member_id;
        assert_eq!(alarms(&client).await, []);
        fill(&client).await;
        // The alarm is proposed by the refusal and applied a little later.
        while alarms(&client).await.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert_eq!(alarms(&client).await, [(member, 1)]);
        let errors = client.status().await.unwrap().errors;
        assert!(errors.iter().any(|error| error.contains("NOSPACE")), "{errors:?}");

        refused(client.put("small", "x").await, Code::ResourceExhausted, FULL);
        refused(client.lease_grant(60, 0).await, Code::ResourceExhausted, FULL);
        let puts = [
            txn(vec![put("small", "x")]),
            txn(vec![get("small", ""), put("small", "x")]),
            txn(vec![nested(txn(vec![put("small", "x")]))]),
        ];
        for request in puts {
            refused(client.txn(request).await, Code::ResourceExhausted, FULL);
        }

        assert!(client.get("fill/00").await.unwrap().is_some());
        client.txn(txn(vec![get("fill/00", "")])).await.unwrap();
        client.txn(txn(vec![delete("fill/01", "")])).await.unwrap();
        client.lease_revoke(lease).await.unwrap();
        client.delete(key("fill/02")).await.unwrap();
        let newest = revision(client.delete(prefix("fill/")).await.unwrap().header);
        let compact = CompactionRequest { revision: newest, physical: true };
        let _: CompactionResponse = client.call(Rpc::Compact, &compact).await.unwrap();
        client.defragment().await.unwrap();

        // Room alone is not enough: the alarm stands until it is taken away.
        refused(client.put("small", "x").await, Code::ResourceExhausted, FULL);
        let disarm = AlarmRequest { action: 2, member_id: member, alarm: 1 };
        let gone = client.alarm(disarm).await.unwrap().alarms;
        assert_eq!(gone.iter().map(|alarm| (alarm.member_id, alarm.alarm)).collect::<Vec<_>>(), [(member, 1)]);
        assert_eq!(alarms(&client).await, []);
        client.put("small", "x").await.unwrap();
        client.lease_grant(60, 0).await.unwrap();
        assert!(client.status().await.unwrap().errors.is_empty());
    });
}

#[test]
fn alarms_are_raised_and_cleared_by_hand() {
    let own = Alone::new(&[]);
    live::block_on(async {
        let client = own.client();
        let member = client.status().await.unwrap().header.unwrap().member_id;
        let raise = AlarmRequest { action: 1, member_id: member, alarm: 1 };
        for _ in 0..2 {
            let raised = client.alarm(raise).await.unwrap().alarms;
            assert_eq!(raised.len(), 1, "{raised:?}");
            assert_eq!(alarms(&client).await, [(member, 1)]);
        }
        refused(client.put("a", "x").await, Code::ResourceExhausted, FULL);
        let health = live::http::get(own.port(), "/health").unwrap();
        assert_eq!((health.status, health.json()["health"].as_str()), (503, Some("false")));
        assert_eq!(live::http::get(own.port(), "/health?exclude=NOSPACE").unwrap().status, 200);
        let clear = AlarmRequest { action: 2, ..raise };
        client.alarm(clear).await.unwrap();
        assert_eq!(client.alarm(clear).await.unwrap().alarms.len(), 0, "cleared once");
        client.put("a", "x").await.unwrap();
        assert_eq!(live::http::get(own.port(), "/health").unwrap().status, 200);
    });
}
