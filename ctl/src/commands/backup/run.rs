//! `backup run`: one backup, or one every so often.

use super::{
    fetch::fetch,
    place::{folder, hold},
    report::Taken,
    tell::Metrics,
};
use crate::{
    call::Call,
    exit::{ERROR, Failure, Outcome},
    progress,
};
use backup::{About, Keep, Pruned, Shelf, Written};
use client::Client;
use std::{
    hash::{BuildHasher, Hasher},
    path::Path,
    time::{Duration, Instant},
};

/// A snapshot on its way lies in the folder under this name.
const INCOMING: &str = ".incoming";

pub(super) fn run(call: &Call) -> Outcome {
    let folder = folder(call)?;
    let every = call.duration("every");
    call.printer()?;
    loop {
        let begin = Instant::now();
        let taken = once(call, folder, begin);
        let metrics = Metrics::of(call, folder, &taken, begin.elapsed());
        let told = match call.text("metrics-file") {
            "" => Ok(()),
            file => metrics.write(Path::new(file)),
        };
        let outcome = taken.and_then(|taken| call.print(&taken)).and(told);
        if every.is_zero() {
            return outcome;
        }
        if let Err(failure) = outcome {
            // The next one may do better; the metrics tell when the last good one was.
            complain!("Error: {}", text_of(&failure));
        }
        let pause = wait(every, begin.elapsed(), draw());
        call.block_on(async { tokio::time::sleep(pause).await });
    }
}

fn text_of(failure: &Failure) -> String {
    match failure {
        Failure::Text { text, .. } | Failure::Usage(text) => text.clone(),
        Failure::Silent(code) | Failure::Told { code, .. } => format!("exit code {code}"),
    }
}

/// Until the next one: up to a tenth later than `every` after the last one began, so that many of
/// them do not come at once. `draw`: of 2^64.
fn wait(every: Duration, took: Duration, draw: u64) -> Duration {
    let later = every.mul_f64(draw as f64 / u64::MAX as f64 / 10.0);
    (every + later).saturating_sub(took)
}

fn draw() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

fn keep(call: &Call) -> Keep {
    let age = call.duration("keep-for").as_millis();
    Keep {
        count: usize::try_from(call.uint("keep")).ok().filter(|count| *count > 0),
        age: i64::try_from(age).ok().filter(|age| *age > 0),
    }
}

fn once(call: &Call, folder: &Path, begin: Instant) -> Outcome<Taken> {
    let shelf = call.block_on(Shelf::folder(folder, true))?;
    let _alone = hold(folder, true)?;
    let now = jiff::Timestamp::now().as_millisecond();
    let client = call.client()?.with_request_timeout(None);
    let mut failed = Vec::new();
    for endpoint in client.endpoints() {
        let incoming = folder.join(INCOMING);
        let one = call.block_on(take(call, &shelf, &client, &endpoint, &incoming, now));
        let _ = std::fs::remove_file(&incoming);
        match one {
            Ok(written) => {
                let keep = keep(call);
                let pruned = match keep == Keep::default() {
                    true => Pruned::default(),
                    false => call.block_on(backup::prune(&shelf, keep, now))?,
                };
                return Ok(Taken { written, pruned, took: begin.elapsed() });
            }
            Err(failure) => failed.push(format!("{endpoint}: {}", text_of(&failure))),
        }
    }
    Err(Failure::new(ERROR, failed.join("; ")))
}

async fn take(
    call: &Call,
    shelf: &Shelf,
    client: &Client,
    endpoint: &str,
    incoming: &Path,
    now: i64,
) -> Outcome<Written> {
    let one = client.single(endpoint)?;
    let status = one.with_request_timeout(Some(call.duration("command-timeout"))).status().await?;
    let cluster = status.header.map_or_else(String::new, |header| format!("{:x}", header.cluster_id));
    let bar = progress::bytes(call, "fetching");
    let fetched = fetch(&one, incoming, call.uint("limit-rate"), &bar).await;
    bar.finish_and_clear();
    let (db, said) = fetched?;
    let version = if said.is_empty() { status.version } else { said };
    let about = About { time: now, endpoint: endpoint.to_owned(), version, cluster };
    let bar = progress::bytes(call, "writing");
    bar.set_length(db.bytes());
    let written = backup::save(shelf, &db, about, &mut |bytes| bar.set_position(bytes)).await;
    bar.finish_and_clear();
    Ok(written?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_one_comes_up_to_a_tenth_later() {
        let (hour, minute) = (Duration::from_secs(3600), Duration::from_secs(60));
        assert_eq!(wait(hour, minute, 0), hour - minute);
        assert_eq!(wait(hour, minute, u64::MAX), hour + Duration::from_secs(360) - minute);
        assert_eq!(wait(minute, hour, u64::MAX), Duration::ZERO);
    }
}
