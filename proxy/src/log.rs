//! Lines of the log on standard error, one JSON object each, in the shape of etcd's zap logger.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// One line. `level` is `info` or `warn`; `caller` is the file of the stock program that says it.
pub(crate) fn line(level: &str, caller: &str, message: &str, fields: &[(&str, Value)]) {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    // Written by hand: the order of these four is what people read.
    let head =
        format!("{{\"level\":\"{level}\",\"ts\":\"{now}\",\"caller\":\"{caller}\",\"msg\":{}", Value::from(message));
    let rest: Map<String, Value> = fields.iter().map(|(name, value)| ((*name).to_string(), value.clone())).collect();
    let tail: String = rest.iter().map(|(name, value)| format!(",{}:{value}", Value::from(&name[..]))).collect();
    eprintln!("{head}{tail}}}");
}
