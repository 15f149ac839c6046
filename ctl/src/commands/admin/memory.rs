//! What a server says of its memory: `process_resident_memory_bytes` of its
//! metrics, by HTTP/1.1 on the client port.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    call::Call,
    exit::{ERROR, Failure, Outcome},
};

/// No server has more metrics than this.
const MAX_PAGE: u64 = 64 << 20;

/// The memory of the server at an endpoint, in bytes.
///
/// # Errors
/// If it does not say.
pub fn resident(call: &Call, endpoint: &str) -> Outcome<f64> {
    let failed = |reason: String| Failure::new(ERROR, format!("the metrics of {endpoint} cannot be read: {reason}"));
    let page = call
        .block_on(async {
            tokio::time::timeout(Duration::from_secs(10), page(endpoint)).await.map_err(|_| "no answer".to_owned())?
        })
        .map_err(failed)?;
    value(&page, "process_resident_memory_bytes")
        .ok_or_else(|| failed("process_resident_memory_bytes is not among them".to_owned()))
}

/// Whether the server at an endpoint says that it is ours. One that cannot be
/// asked is not.
pub fn is_kvorum(call: &Call, endpoint: &str) -> bool {
    let asked = async { tokio::time::timeout(Duration::from_secs(1), page(endpoint)).await };
    call.block_on(asked).is_ok_and(|page| page.is_ok_and(|page| page.contains("\nkvorum_")))
}

/// The page of metrics of the server at an endpoint without TLS.
///
/// # Errors
/// If there is none.
pub async fn page(endpoint: &str) -> Result<String, String> {
    Ok(answer(endpoint).await?.1)
}

/// The same page behind the head of the HTTP answer.
///
/// # Errors
/// If there is none.
pub async fn answer(endpoint: &str) -> Result<(String, String), String> {
    if endpoint.starts_with("https://") || endpoint.starts_with("unix") {
        return Err("only plain HTTP is read".to_owned());
    }
    let address = endpoint.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.map_err(|e| e.to_string())?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|e| e.to_string())?;
    let mut answer = Vec::new();
    stream.take(MAX_PAGE).read_to_end(&mut answer).await.map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").ok_or("the answer has no end")?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) == Some("200") {
        Ok((head.to_owned(), body.to_owned()))
    } else {
        Err(status.to_owned())
    }
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
