//! What the member says of an attack: its counters before and after.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::plain::{self, Ask};

/// Counters of `/metrics` that tell of something refused, with the label that tells what.
const TOLD: [(&str, &str); 7] = [
    ("grpc_server_handled_total", "grpc_code"),
    ("kvorum_budget_full_total", "name"),
    ("kvorum_budget_cut_total", "name"),
    ("kvorum_client_connections_refused_total", ""),
    ("kvorum_peer_connections_refused_total", ""),
    ("kvorum_peer_refused_total", "what"),
    ("kvorum_open_file_waits_total", ""),
];

/// By what a reader is told.
pub(super) type Counters = BTreeMap<String, u64>;

/// # Errors
/// The member does not answer.
pub(super) async fn counters(endpoint: &str) -> Result<Counters> {
    let ask = Ask { verb: "GET", path: "/metrics", kind: "text/plain", token: None, body: b"" };
    let page = plain::request(endpoint, ask).await?;
    Ok(read(&String::from_utf8_lossy(&page.body)))
}

fn read(page: &str) -> Counters {
    let mut counters = Counters::new();
    for line in page.lines() {
        let Some((name, value)) = line.rsplit_once(' ') else { continue };
        let (name, labels) = name.split_once('{').unwrap_or((name, ""));
        let Some((_, label)) = TOLD.iter().find(|(told, _)| *told == name) else { continue };
        let start = format!("{label}=\"");
        let what = labels.split_once(&start).and_then(|(_, rest)| rest.split('"').next()).unwrap_or("");
        if what == "OK" {
            continue;
        }
        let short = name.trim_start_matches("kvorum_").trim_end_matches("_total").trim_start_matches("grpc_server_");
        let told = format!("{} {what}", short.replace('_', " "));
        // A counter is a whole number, written as one that need not be.
        *counters.entry(told.trim_end().to_owned()).or_default() += value.parse::<f64>().unwrap_or(0.0) as u64;
    }
    counters
}

/// What was counted meanwhile.
pub(super) fn between(before: &Counters, after: &Counters) -> String {
    let more = after.iter().filter_map(|(told, now)| {
        let more = now.saturating_sub(before.get(told).copied().unwrap_or(0));
        (more > 0).then(|| format!("{told}: {more}"))
    });
    more.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_by_their_kind() {
        let page = "# HELP x\n\
            grpc_server_handled_total{grpc_code=\"OK\",grpc_method=\"Put\"} 7\n\
            grpc_server_handled_total{grpc_code=\"Canceled\",grpc_method=\"Put\"} 2\n\
            grpc_server_handled_total{grpc_code=\"Canceled\",grpc_method=\"Range\"} 1\n\
            kvorum_client_connections_refused_total 1.5e+03\n\
            kvorum_budget_full_total{name=\"calls\"} 4\nother 9\n";
        let told = "budget full calls: 4; client connections refused: 1500; handled Canceled: 3";
        assert_eq!(between(&Counters::new(), &read(page)), told);
        assert_eq!(between(&read(page), &read(page)), "");
    }
}
