//! `backup run|list|verify|restore`: backups in a folder, on a schedule, each verified. Only
//! `kvorum ctl` has it; it takes them of real etcd as well.

mod fetch;
mod place;
mod report;
mod run;
mod tell;

use crate::{
    call::{Call, Command},
    commands::{admin::settle, headings::CLUSTER},
    exit::{BAD_ARGS, ERROR, Failure, IO, Outcome},
    progress,
};
use backup::{Manifest, Saved, Shelf};
use cobra::Flag;
use place::{folder, hold};
use report::{Checked, Listed};
use std::{
    fs::File,
    io::{BufWriter, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// The row of the table.
pub const BACKUP: Command = Command {
    name: "backup",
    group: CLUSTER,
    short: "Takes, lists, verifies and restores backups in a folder",
    subs: &[&[LIST, RESTORE, RUN, VERIFY]],
    ..Command::NONE
};

const RUN: Command = Command {
    name: "run",
    usage: "run <folder> [options]",
    short: "Takes a backup, or one every so often",
    long: "Takes a backup of the first endpoint that gives one, or one every so often.
Only what is not in the folder yet is written. A backup is listed when all of it is there,
was read back, and is what the snapshot has. A run that is killed leaves none that is
listed. One program at a time writes to a folder.",
    examples: "  # Once
  kvorum ctl backup run /backup/prod

  # Every hour, two days of them, with a file for the Prometheus node exporter
  kvorum ctl backup run /backup/prod --every 1h --keep-for 48h --metrics-file /metrics/kvorum.prom",
    flags: &[
        Flag::duration("every", "0s", "take one every so often, up to a tenth later (0: one)"),
        Flag::uint("keep", "0", "keep so many of the newest (0: all, unless --keep-for is given)"),
        Flag::duration("keep-for", "0s", "keep those that are no older (0: all, unless --keep is given)"),
        Flag::uint("limit-rate", "0", "read so many bytes in a second at most (0: no limit)"),
        Flag::text("metrics-file", "", "write metrics of the last backup to this file, in the text form of Prometheus"),
    ],
    run: Some(run::run),
    ..Command::NONE
};

const LIST: Command = Command {
    name: "list",
    usage: "list <folder>",
    short: "Lists the backups of a folder",
    run: Some(list),
    ..Command::NONE
};

const VERIFY: Command = Command {
    name: "verify",
    usage: "verify <folder> [backup]",
    short: "Reads backups again, all bytes of them, and names what is missing or damaged",
    run: Some(verify),
    ..Command::NONE
};

const RESTORE: Command = Command {
    name: "restore",
    usage: "restore <folder> --data-dir <directory> [options]",
    short: "Makes a data directory of a backup, as it was at any revision that it has",
    long: "Makes a data directory of a backup, as it was at any revision that it has.
Without --at it is the newest backup. With --at it is the oldest that has the revision:
keys are as they were then; users, leases and alarms are those of the backup. Everything
else is as `kvorum utl snapshot restore` has it. With --output the snapshot is written to
a file, for that command or the stock etcdutl.",
    flags: &[
        Flag::int("at", "0", "restore the keys as they were at this revision"),
        Flag::text("backup", "", "restore this one, by its name in the list"),
        Flag::uint("bump-revision", "0", "how much to increase the latest revision after restore"),
        Flag::text("data-dir", "", "path to the output data directory"),
        Flag::switch("drop-auth", "restore without users and roles: open to everybody"),
        Flag::text("initial-advertise-peer-urls", "http://localhost:2380", "this member's peer URLs"),
        Flag::text("initial-cluster", "default=http://localhost:2380", "initial cluster of the restored members"),
        Flag::text("initial-cluster-token", "etcd-cluster", "initial cluster token of the restored members"),
        Flag::switch("mark-compacted", "mark the latest revision as compacted (with --bump-revision)"),
        Flag::text("name", "default", "human-readable name for this member"),
        Flag::text("output", "", "write the snapshot to this file, and make no directory"),
    ],
    run: Some(restore),
    ..Command::NONE
};

fn all(call: &Call, folder: &Path) -> Outcome<(Shelf, Vec<Saved>)> {
    call.block_on(async {
        let shelf = Shelf::folder(folder, false).await?;
        let saved = backup::list(&shelf).await?;
        Ok((shelf, saved))
    })
}

fn list(call: &Call) -> Outcome {
    let (_, saved) = all(call, folder(call)?)?;
    call.print(&Listed(saved))
}

fn verify(call: &Call) -> Outcome {
    let folder = folder(call)?;
    let _held = hold(folder, false)?;
    let (shelf, saved) = all(call, folder)?;
    let wanted = call.arg(1);
    let saved: Vec<Saved> = saved.into_iter().filter(|one| wanted.is_none_or(|name| is_it(one, name))).collect();
    if saved.is_empty() {
        return Err(Failure::new(
            ERROR,
            wanted.map_or("there is no backup".into(), |name| format!("no backup {name}")),
        ));
    }
    let bar = progress::bytes(call, "verifying");
    let good = saved.iter().filter_map(|one| one.manifest.as_ref().ok());
    bar.set_length(good.flat_map(|manifest| &manifest.pieces).map(|piece| piece.bytes).sum());
    let mut checked = Vec::new();
    for one in saved {
        let found = match one.manifest {
            Ok(manifest) => call.block_on(backup::verify(&shelf, &manifest, |bytes| bar.inc(bytes))),
            Err(error) => Err(error),
        };
        checked.push((one.name, found));
    }
    bar.finish_and_clear();
    let bad = checked.iter().any(|(_, found)| found.is_err());
    call.print(&Checked(checked))?;
    if bad { Err(Failure::Silent(ERROR)) } else { Ok(()) }
}

fn is_it(one: &Saved, name: &str) -> bool {
    one.name == name || one.name == format!("saved/{name}") || one.name == format!("saved/{name}.json")
}

fn restore(call: &Call) -> Outcome {
    let folder = folder(call)?;
    let (data_dir, output, at) = (call.text("data-dir"), call.text("output"), call.int("at"));
    if data_dir.is_empty() == output.is_empty() {
        return Err(Failure::new(BAD_ARGS, "backup restore needs either --data-dir or --output"));
    }
    let _held = hold(folder, false)?;
    let (shelf, saved) = all(call, folder)?;
    let manifest = chosen(&saved, call.text("backup"), at)?;
    crate::say(&format!("Restoring {}: revisions {} to {}\n", manifest.name(), manifest.oldest, manifest.revision))?;
    if !output.is_empty() {
        return snapshot(call, &shelf, manifest, Path::new(output));
    }
    let file = PathBuf::from(format!("{}.snapshot", data_dir.trim_end_matches('/')));
    snapshot(call, &shelf, manifest, &file)?;
    let mut words: Vec<String> = ["snapshot", "restore"].map(str::to_owned).to_vec();
    words.push(file.display().to_string());
    let texts = ["data-dir", "initial-advertise-peer-urls", "initial-cluster", "initial-cluster-token", "name"];
    words.extend(texts.iter().flat_map(|flag| [format!("--{flag}"), call.text(flag).to_owned()]));
    words.push(format!("--at={at}"));
    words.push(format!("--bump-revision={}", call.uint("bump-revision")));
    words.extend(["drop-auth", "mark-compacted"].iter().filter(|f| call.switch(f)).map(|flag| format!("--{flag}")));
    let code = utl::run("kvorum utl", &words);
    let _ = std::fs::remove_file(&file);
    if code == 0 { Ok(()) } else { Err(Failure::Silent(code)) }
}

fn chosen<'s>(saved: &'s [Saved], name: &str, at: i64) -> Outcome<&'s Manifest> {
    if name.is_empty() {
        let none = || match at {
            0 => Failure::new(ERROR, "there is no backup that can be restored"),
            at => Failure::new(ERROR, format!("no backup has revision {at}: `kvorum ctl backup list` tells which do")),
        };
        return backup::for_revision(saved, at).ok_or_else(none);
    }
    let found = saved.iter().find(|one| is_it(one, name));
    let found = found.ok_or_else(|| Failure::new(ERROR, format!("no backup {name}")))?;
    found.manifest.as_ref().map_err(|error| Failure::new(ERROR, error.to_string()))
}

/// Writes the snapshot again. Under its name it is there whole or not at all.
fn snapshot(call: &Call, shelf: &Shelf, manifest: &Manifest, to: &Path) -> Outcome {
    if to.exists() {
        return Err(Failure::new(IO, format!("{}: it exists", to.display())));
    }
    let part = PathBuf::from(format!("{}.part", to.display()));
    let made = || -> Outcome {
        let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&part);
        let mut file = BufWriter::new(file.map_err(|error| Failure::io(&error))?);
        call.block_on(backup::rebuild(shelf, manifest, &mut file))?;
        file.flush().and_then(|()| file.get_ref().sync_all()).map_err(|error| Failure::io(&error))?;
        std::fs::rename(&part, to).and_then(|()| settle(to)).map_err(|error| Failure::io(&error))
    };
    made().inspect_err(|_| {
        let _ = std::fs::remove_file(&part);
    })
}
