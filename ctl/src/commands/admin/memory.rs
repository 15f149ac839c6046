//! What a server says of its memory: `process_resident_memory_bytes` of its
//! metrics, by HTTP/1.1 on the client port.

use std::time::Duration;

use client::Client;

use super::each::single;
use crate::{
    call::Call,
    exit::{ERROR, Failure, Outcome},
};

/// The memory of the server at an endpoint, in bytes.
///
/// # Errors
/// If it does not say.
pub fn resident(call: &Call, client: &Client, endpoint: &str) -> Outcome<f64> {
    let failed = |reason: String| Failure::new(ERROR, format!("the metrics of {endpoint} cannot be read: {reason}"));
    let page = call
        .block_on(async {
            let asked = tokio::time::timeout(Duration::from_secs(10), page(client, endpoint));
            asked.await.map_err(|_| "no answer".to_owned())?
        })
        .map_err(failed)?;
    value(&page, "process_resident_memory_bytes")
        .ok_or_else(|| failed("process_resident_memory_bytes is not among them".to_owned()))
}

/// Whether the server at an endpoint says that it is ours. One that cannot be
/// asked is not.
pub fn is_kvorum(call: &Call, client: &Client, endpoint: &str) -> bool {
    let asked = async { tokio::time::timeout(Duration::from_secs(1), page(client, endpoint)).await };
    call.block_on(asked).is_ok_and(|page| page.is_ok_and(|page| page.contains("\nkvorum_")))
}

/// The page of metrics of the server at an endpoint.
///
/// # Errors
/// If there is none.
pub async fn page(client: &Client, endpoint: &str) -> Result<String, String> {
    Ok(answer(client, endpoint).await?.1)
}

/// The same page behind the head of the HTTP answer.
///
/// # Errors
/// If there is none.
pub async fn answer(client: &Client, endpoint: &str) -> Result<(String, String), String> {
    let one = single(client, endpoint).map_err(|e| e.to_string())?;
    one.page("/metrics").await.map_err(|e| e.to_string())
}

/// The value of a metric without labels.
pub fn value(page: &str, name: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_found_by_its_whole_name() {
        let page = "# HELP a\na_total 1\na 2.5e+07\r\nb 3\n";
        assert_eq!(value(page, "a"), Some(2.5e7));
        assert_eq!(value(page, "c"), None);
    }
}
