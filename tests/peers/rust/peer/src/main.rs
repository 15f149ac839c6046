//! The stock Rust client at its daily work while members are killed: puts, a
//! watch, a kept lease and transactions. At the end everything that was
//! acknowledged must be there.

mod work;

use std::{process::ExitCode, time::Duration};

use etcd_client::{Client, ConnectOptions};

struct Arguments {
    endpoints: Vec<String>,
    seconds: u64,
    out: Option<String>,
}

fn arguments() -> Result<Arguments, String> {
    let mut found = Arguments { endpoints: vec!["127.0.0.1:2379".to_owned()], seconds: 10, out: None };
    let mut rest = std::env::args().skip(1);
    while let Some(flag) = rest.next() {
        let value = rest.next().ok_or(format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--endpoints" => found.endpoints = value.split(',').map(str::to_owned).collect(),
            "--seconds" => found.seconds = value.parse().map_err(|e| format!("--seconds {value}: {e}"))?,
            "--out" => found.out = Some(value),
            _ => return Err(format!("unknown flag {flag}")),
        }
    }
    Ok(found)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => {
            println!("OK: every acknowledged write is present");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            println!("FAILED: {reason}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), String> {
    let arguments = arguments()?;
    let options = ConnectOptions::new()
        .with_connect_timeout(Duration::from_secs(2))
        .with_keep_alive(Duration::from_secs(6), Duration::from_secs(3))
        .with_timeout(work::PATIENCE)
        .with_require_leader(true);
    let client = Client::connect(&arguments.endpoints, Some(options)).await.map_err(|e| format!("no client: {e}"))?;
    // Streams live longer than any one request may take.
    let options = ConnectOptions::new()
        .with_connect_timeout(Duration::from_secs(2))
        .with_keep_alive(Duration::from_secs(6), Duration::from_secs(3))
        .with_require_leader(true);
    let streams = Client::connect(&arguments.endpoints, Some(options)).await.map_err(|e| format!("no client: {e}"))?;

    let run = work::Run::new(client, streams);
    run.work(Duration::from_secs(arguments.seconds)).await;
    let report = run.report();
    if let Some(file) = arguments.out {
        std::fs::write(&file, format!("{report}\n")).map_err(|e| format!("{file}: {e}"))?;
    }
    println!("{report}");
    match run.faults().into_iter().next() {
        None => Ok(()),
        Some(fault) => Err(fault),
    }
}
