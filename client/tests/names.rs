//! Endpoints from the name service, against a name server of the test's own.

use std::net::SocketAddr;

use client::{Discovery, Error};
use hickory_proto::{
    op::{Message, MessageType, OpCode, ResponseCode},
    rr::{Name, RData, Record, RecordType, rdata::SRV},
};
use tokio::net::UdpSocket;

/// Answers queries for SRV records; what it does not have does not exist.
async fn name_server(records: &'static [(&str, u16, u16, u16, &str)]) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 2048];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
            let query = Message::from_vec(&buffer[..length]).unwrap();
            socket.send_to(&answer(&query, records).to_vec().unwrap(), from).await.unwrap();
        }
    });
    address
}

fn answer(query: &Message, records: &[(&str, u16, u16, u16, &str)]) -> Message {
    let asked = query.queries[0].clone();
    let mut reply = Message::new(query.metadata.id, MessageType::Response, OpCode::Query);
    reply.add_query(asked.clone());
    for (name, priority, weight, port, target) in records {
        if asked.query_type() == RecordType::SRV && asked.name() == &Name::from_ascii(name).unwrap() {
            let srv = SRV::new(*priority, *weight, *port, Name::from_ascii(target).unwrap());
            reply.add_answer(Record::from_rdata(asked.name().clone(), 60, RData::SRV(srv)));
        }
    }
    if reply.answers.is_empty() {
        reply.metadata.response_code = ResponseCode::NXDomain;
    }
    reply
}

fn of(domain: &str, service_name: &str, resolver: SocketAddr) -> Discovery {
    Discovery { domain: domain.to_owned(), service_name: service_name.to_owned(), resolver: Some(resolver) }
}

#[tokio::test]
async fn encrypted_ones_first_then_by_priority_and_weight() {
    let server = name_server(&[
        ("_etcd-client._tcp.a.test.", 1, 1, 2379, "plain.a.test."),
        ("_etcd-client-ssl._tcp.a.test.", 2, 9, 2379, "third.a.test."),
        ("_etcd-client-ssl._tcp.a.test.", 1, 1, 2379, "second.a.test."),
        ("_etcd-client-ssl._tcp.a.test.", 1, 5, 2381, "first.a.test."),
        ("_etcd-client._tcp.b.test.", 1, 1, 1, "127.0.0.1."),
        ("_etcd-client-blue._tcp.a.test.", 1, 1, 7, "blue.a.test."),
        ("_etcd-client-ssl-blue._tcp.a.test.", 1, 1, 8, "blue.a.test."),
    ])
    .await;
    for (domain, service, wanted) in [
        (
            "a.test",
            "",
            &[
                "https://first.a.test:2381",
                "https://second.a.test:2379",
                "https://third.a.test:2379",
                "http://plain.a.test:2379",
            ][..],
        ),
        ("a.test.", "blue", &["https://blue.a.test:8", "http://blue.a.test:7"]),
        ("b.test", "", &["http://127.0.0.1:1"]),
    ] {
        assert_eq!(of(domain, service, server).endpoints().await.unwrap(), wanted, "{domain} {service}");
    }
}

#[tokio::test]
async fn a_domain_without_records_says_what_was_asked() {
    let server = name_server(&[]).await;
    let Err(Error::Discovery { reason }) = of("a.test", "x", server).endpoints().await else {
        panic!("there is nothing to be found");
    };
    assert!(reason.starts_with("dns lookup errors: lookup _etcd-client-ssl-x._tcp.a.test on 127.0.0.1:"), "{reason}");
    assert!(
        reason.ends_with(": no such host") && reason.contains(" and lookup _etcd-client-x._tcp.a.test on 127.0.0.1:"),
        "{reason}"
    );
}
