//! `defrag`: an etcd's file without its free pages. A directory of kvorum has nothing to gain.

use crate::call::{Call, Failure};
use crate::etcd::backend;
use crate::kvorum;
use crate::print::{log, size};
use crate::rewrite::{Sizes, exclusive, rewrite};
use serde_json::json;
use std::path::Path;
use std::time::Instant;

const PLACE: &str = "backend/defrag.rs";

pub fn run(call: &Call) -> Result<(), Failure> {
    let dir = call.text("data-dir");
    if kvorum::is_data_dir(Path::new(dir)) {
        return nothing_to_do(call, dir);
    }
    defragment(call, dir).map_err(|failure| match failure {
        Failure::Plain { status, text } => {
            Failure::Plain { status, text: format!("Failed to defragment etcd data[{dir}] ({text})") }
        }
        other => other,
    })
}

fn nothing_to_do(call: &Call, dir: &str) -> Result<(), Failure> {
    if call.people {
        println!("{dir}: nothing to do. A kvorum member gives space back while it runs.");
        return Ok(());
    }
    let reason = json!("nothing to do: a kvorum member gives space back while it runs");
    log("info", PLACE, "finished defragmenting directory", &[("path", json!(dir)), ("reason", reason)]);
    Ok(())
}

fn defragment(call: &Call, dir: &str) -> Result<(), Failure> {
    let path = backend(dir);
    let since = Instant::now();
    let held = exclusive(call, &path)?;
    log("info", PLACE, "defragmenting", &[("path", json!(path))]);
    let Sizes { before, after } = rewrite(&held, &path, None)?;
    let fields = [
        ("path", json!(path)),
        ("current-db-size-bytes-diff", json!(after.cast_signed() - before.cast_signed())),
        ("current-db-size-bytes", json!(after)),
        ("current-db-size", json!(size(after))),
        ("current-db-size-in-use-bytes", json!(after)),
        ("current-db-size-in-use", json!(size(after))),
        ("took", json!(format!("{:?}", since.elapsed()))),
    ];
    log("info", PLACE, "finished defragmenting directory", &fields);
    Ok(())
}
