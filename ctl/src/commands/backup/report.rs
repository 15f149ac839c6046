//! What the commands of `backup` print.

use crate::{
    commands::admin::gofmt,
    exit::Outcome,
    print::{
        Answer, Out,
        look::{Paint, tame},
        table::{self, Cell},
    },
};
use backup::{Error, Manifest, Pruned, Saved, Verified, Written};
use serde_json::{Value, json};
use std::time::Duration;

fn time(millis: i64) -> String {
    jiff::Timestamp::from_millisecond(millis).map_or_else(|_| millis.to_string(), |time| time.to_string())
}

fn shown(out: &Out, text: &str) -> String {
    if out.look.is_seen() { tame(text) } else { text.to_owned() }
}

/// A backup that was taken.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) written: Written,
    pub(super) pruned: Pruned,
    pub(super) took: Duration,
}

impl Answer for Taken {
    fn simple(&self, out: &mut Out) -> Outcome {
        let Written { manifest, new_pieces, new_bytes } = &self.written;
        out.line(shown(
            out,
            &format!(
                "Backup {} of {}: revision {}, {} keys, {}; {} new ({} of {} pieces), verified; took {}",
                manifest.name(),
                manifest.endpoint,
                manifest.revision,
                manifest.keys,
                gofmt::size(manifest.bytes),
                gofmt::size(*new_bytes),
                new_pieces,
                manifest.pieces.len(),
                gofmt::duration(self.took),
            ),
        ));
        if !self.pruned.backups.is_empty() {
            let Pruned { backups, pieces, bytes } = &self.pruned;
            let size = gofmt::size(*bytes);
            out.line(format!("Removed {} old backups, and {pieces} pieces ({size}) of them", backups.len()));
        }
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        let mut value = value(&self.written.manifest);
        value["newPieces"] = json!(self.written.new_pieces);
        value["newBytes"] = json!(self.written.new_bytes);
        value["removed"] = json!(self.pruned.backups);
        value["tookMs"] = json!(u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX));
        Ok(value.to_string())
    }
}

fn value(manifest: &Manifest) -> Value {
    json!({
        "name": manifest.name(), "time": time(manifest.time), "endpoint": manifest.endpoint,
        "version": manifest.version, "cluster": manifest.cluster, "revision": manifest.revision,
        "oldestRevision": manifest.oldest, "keys": manifest.keys, "hash": manifest.hash, "bytes": manifest.bytes,
        "pieces": manifest.pieces.len(),
    })
}

/// Those of a folder.
#[derive(Debug)]
pub(super) struct Listed(pub(super) Vec<Saved>);

impl Answer for Listed {
    fn simple(&self, out: &mut Out) -> Outcome {
        self.table(out)
    }

    fn table(&self, out: &mut Out) -> Outcome {
        let rows: Vec<Vec<Cell>> = self.0.iter().map(|one| row(one)).collect();
        table::draw_cells(out, &["name", "time", "revisions", "keys", "size", "endpoint", "state"], &rows);
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        let one = |saved: &Saved| match &saved.manifest {
            Ok(manifest) => value(manifest),
            Err(error) => json!({"name": saved.name, "error": error.to_string()}),
        };
        Ok(json!({"backups": self.0.iter().map(one).collect::<Vec<_>>()}).to_string())
    }
}

fn row(one: &Saved) -> Vec<Cell> {
    let name = one.name.trim_start_matches("saved/").trim_end_matches(".json").to_owned();
    match &one.manifest {
        Ok(manifest) => vec![
            name.into(),
            time(manifest.time).into(),
            format!("{} to {}", manifest.oldest, manifest.revision).into(),
            manifest.keys.to_string().into(),
            gofmt::size(manifest.bytes).into(),
            manifest.endpoint.clone().into(),
            Cell::painted("good", Paint::Good, true),
        ],
        Err(error) => {
            let mut cells: Vec<Cell> = vec![name.into()];
            cells.resize_with(6, Cell::default);
            cells.push(Cell::painted(error.to_string(), Paint::Bad, true));
            cells
        }
    }
}

/// Those that were read again.
#[derive(Debug)]
pub(super) struct Checked(pub(super) Vec<(String, Result<Verified, Error>)>);

impl Answer for Checked {
    fn simple(&self, out: &mut Out) -> Outcome {
        for (name, found) in &self.0 {
            let line = match found {
                Ok(found) => {
                    let good = out.look.paint(Paint::Good, "good");
                    let size = gofmt::size(found.bytes);
                    format!("{name}: {good}: {} rows in {} pieces, {size}", found.rows, found.pieces)
                }
                Err(error) => {
                    let bad = out.look.paint(Paint::Bad, "bad");
                    format!("{name}: {bad}: {}", shown(out, &error.to_string()))
                }
            };
            out.line(line);
        }
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        let one = |(name, found): &(String, Result<Verified, Error>)| match found {
            Ok(found) => json!({"name": name, "rows": found.rows, "pieces": found.pieces, "bytes": found.bytes}),
            Err(error) => json!({"name": name, "error": error.to_string()}),
        };
        Ok(json!({"backups": self.0.iter().map(one).collect::<Vec<_>>()}).to_string())
    }
}
