//! `snapshot save`. What else there was belongs to `utl` by now.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    path::Path,
    time::Instant,
};

use client::Client;
use indicatif::ProgressBar;

use super::gofmt;
use crate::{
    call::{Call, Command},
    commands::headings::CLUSTER,
    exit::{Failure, INTERRUPTED, Outcome, error_text},
    log, progress,
};

/// Words that work as they are.
const EXAMPLES: &str = "  # To a file
  etcdctl snapshot save /backup/member.db
  
  # Of one of several members
  etcdctl --endpoints=127.0.0.1:22379 snapshot save /backup/member.db
  
  # With certificates
  etcdctl --endpoints=https://127.0.0.1:2379 --cacert=ca.crt --cert=client.crt --key=client.key snapshot save /backup/member.db
  
  # As a user
  etcdctl --user=root:secret snapshot save /backup/member.db
  
  # With the time in the name
  etcdctl snapshot save /backup/$(date +%Y%m%d_%H%M%S).db";

/// The row of the table.
pub const SNAPSHOT: Command = Command {
    name: "snapshot",
    group: CLUSTER,
    short: "Saves the state of a member to a file",
    examples: EXAMPLES,
    subs: &[&[Command {
        name: "save",
        usage: "save <filename>",
        short: "Saves the state of a member to a file",
        long: "Saves the state of a member to a file, with a checksum at its end.
The file is complete once the command has ended well; until then its name has
`.part` at its end.",
        examples: EXAMPLES,
        raw: true,
        run: Some(run),
        ..Command::NONE
    }]],
    ..Command::NONE
};

const CALLER: &str = "snapshot/v3_snapshot.go";
const STREAM_CALLER: &str = "v3/maintenance.go";

fn run(call: &Call) -> Outcome {
    let [path] = call.exactly("snapshot save expects one argument <filename>")?;
    call.prepare()?;
    let typed = call.list("endpoints");
    let nobody = typed.is_empty() && call.text("discovery-srv").is_empty();
    let endpoints = if nobody { typed } else { call.options()?.endpoints };
    let [endpoint] = &endpoints[..] else {
        let text = format!("snapshot must be requested to one selected node, not multiple [{}]", endpoints.join(" "));
        return Err(Failure::new(INTERRUPTED, text));
    };
    // It takes as long as it takes.
    let client = call.connect().map_err(|failure| failure.with_code(INTERRUPTED))?.with_request_timeout(None);
    let bar = progress::bytes(call, "saving");
    let version = call.block_on(save(&client, Path::new(path), endpoint, &bar))?;
    crate::write(&crate::raw::bytes(&format!("Snapshot saved at {path}\n")))?;
    if version.is_empty() { Ok(()) } else { crate::say(&format!("Server version {version}\n")) }
}

/// A line of the log; who sees the bar needs none.
fn note(bar: &ProgressBar, caller: &str, message: &str, fields: &[(&str, &str)]) {
    if bar.is_hidden() {
        log::line("info", caller, message, fields);
    }
}

/// Saves a snapshot under a temporary name, and gives it its own when it is
/// whole and on the disk. Says the version of the storage.
async fn save(client: &Client, path: &Path, endpoint: &str, bar: &ProgressBar) -> Outcome<String> {
    let begin = Instant::now();
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let (file_name, part) = (Path::new(&part), Path::new(&part).display().to_string());
    let no_file = |verb: &str, error: std::io::Error| {
        Failure::new(INTERRUPTED, format!("could not open {part} ({verb} {part}: {})", go_reason(&error)))
    };
    let mut file = create(file_name).map_err(|e| no_file("open", e))?;
    note(bar, CALLER, "created temporary db file", &[("path", &part)]);
    let received = receive(client, &mut file, endpoint, bar).await;
    bar.finish_and_clear();
    let (version, bytes) = received.inspect_err(|_| {
        let _ = fs::remove_file(file_name);
    })?;
    let took = gofmt::duration(begin.elapsed());
    let (size, version_text) = (gofmt::size(bytes), version.as_str());
    let fields = [("endpoint", endpoint), ("size", &size), ("took", &took), ("etcd-version", version_text)];
    note(bar, CALLER, "fetched snapshot", &fields);
    fs::rename(file_name, path).and_then(|()| settle(path)).map_err(|e| {
        let path = path.display();
        Failure::new(
            INTERRUPTED,
            format!("could not rename {part} to {path} (rename {part} {path}: {})", go_reason(&e)),
        )
    })?;
    note(bar, CALLER, "saved", &[("path", &path.display().to_string())]);
    Ok(version)
}

async fn receive(client: &Client, file: &mut File, endpoint: &str, bar: &ProgressBar) -> Outcome<(String, u64)> {
    let failed = |error: client::Error| {
        if matches!(error, client::Error::Server { .. }) {
            note(bar, STREAM_CALLER, "opened snapshot stream; downloading", &[]);
        }
        let failure = Failure::new(INTERRUPTED, stream_text(&error));
        bar.suspend(|| {
            let fields = [("error", &error.to_string()[..])];
            log::line("warn", CALLER, "failed to receive from snapshot stream; closing", &fields);
        });
        failure
    };
    let mut snapshot = client.snapshot().await.map_err(failed)?;
    note(bar, STREAM_CALLER, "opened snapshot stream; downloading", &[]);
    note(bar, CALLER, "fetching snapshot", &[("endpoint", endpoint)]);
    let mut bytes = 0_u64;
    while let Some(piece) = snapshot.next().await.map_err(failed)? {
        file.write_all(&piece).map_err(|e| Failure::new(INTERRUPTED, e.to_string()))?;
        bytes += piece.len() as u64;
        bar.set_length(bytes.saturating_add(snapshot.remaining()));
        bar.set_position(bytes);
    }
    note(bar, STREAM_CALLER, "completed snapshot read; closing", &[]);
    file.sync_all().map_err(|e| Failure::new(INTERRUPTED, e.to_string()))?;
    Ok((snapshot.version().to_owned(), bytes))
}

/// The stock tool gives a refusal on a stream with its code, unlike others.
fn stream_text(error: &client::Error) -> String {
    match error {
        client::Error::Server { code, message } if !message.contains("authentication failed") => {
            format!("rpc error: code = {} desc = {message}", code.name())
        }
        other => error_text(other),
    }
}

/// For its owner alone: it has everything in it.
fn create(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Puts the new name on the disk.
pub(crate) fn settle(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// A failure of a file in Go's words: lower case and without a number.
fn go_reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    text.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_go_s() {
        let error = File::open("/no/such/folder").unwrap_err();
        assert_eq!(go_reason(&error), "no such file or directory");
    }
}
