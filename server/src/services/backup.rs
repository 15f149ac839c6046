//! Maintenance.Snapshot: the state at one moment as a bbolt file of etcd's form, made while it
//! is sent.
//!
//! The records are read twice: first for their sizes, which lay out the pages and give the
//! length of the file, then for their bytes. Between two pieces of records nothing is kept but
//! an open page of each level of a tree, so a backup costs the same memory whatever its size
//! (and 16 bytes for each row that the last compaction left). The client's window sets the pace.

use super::maintenance::storage_version;
use crate::core::Core;
use crate::log;
use crate::transport::call::Call;
use crate::transport::status::Status;
use bolt::{Diverged, Plan, Planner, Writer};
use node::{Answer, Request};
use sha2::{Digest, Sha256};
use std::time::{Duration, Instant};
use store::export::{Export, RECORDS, Rows};
use store::protobuf;
use store::record::Record;
use wire::Code;

/// Bytes of the file in one message, as etcd has it.
const BLOB: usize = 32 << 10;
/// How long the core may take for one step; a step is short, the disk may be slow.
const STEP: Duration = Duration::from_secs(120);

/// A backup in the core, ended there when it is dropped.
struct Backup {
    id: u64,
    core: Core,
    export: Box<Export>,
}

impl Drop for Backup {
    fn drop(&mut self) {
        self.core.tell(Request::BackupEnd { backup: self.id });
    }
}

pub(crate) async fn snapshot(call: &mut Call) -> Result<(), Status> {
    call.request().await?;
    let begun = Instant::now();
    let asked = call.read_within(Request::Backup, STEP).await?;
    let Answer::Backup { backup, export } = asked.answer else { return Err(Status::unexpected("a backup")) };
    let backup = Backup { id: backup, core: call.core().clone(), export };
    let plan = measure(call, &backup).await?;
    let bytes = plan.bytes();
    let version = storage_version(&backup.export.cluster_version).to_string();
    let fields = |took: Option<Instant>| {
        let took = took.map(|since| ("took", log::json!(format!("{:?}", since.elapsed()))));
        let size = [("total-bytes", log::json!(bytes)), ("storage-version", log::json!(version))];
        size.into_iter().chain(took).collect::<Vec<_>>()
    };
    log::info("sending database snapshot to client", &fields(None));
    let mut out = Out { pending: Vec::new(), left: bytes, digest: Sha256::new(), version: &version };
    match write(call, &backup, plan, &mut out).await {
        Ok(()) => {
            call.edge.metrics().requests.backup.observe(begun.elapsed().as_secs_f64());
            log::info("successfully sent database snapshot to client", &fields(Some(begun)));
        }
        Err(status) => {
            log::warn("failed to send database snapshot to client", &[("error", log::json!(status.message))]);
            return Err(status);
        }
    }
    Ok(())
}

/// The first pass: sizes only.
async fn measure(call: &Call, backup: &Backup) -> Result<Plan, Status> {
    let mut planner = Planner::new();
    for (name, pairs) in backup.export.buckets() {
        planner.bucket(name.as_bytes())?;
        for (key, value) in &pairs {
            planner.pair(key.len(), value.len())?;
        }
        if name == RECORDS {
            let mut pull = Pull::new(backup);
            while let Some(records) = pull.next(call).await? {
                for Record { rev, tombstone, body } in records {
                    planner.pair(store::hash::bucket_key(rev, tombstone).len(), body.len())?;
                }
            }
        }
    }
    Ok(planner.finish())
}

/// The second pass: the pages of the file, and its digest behind it.
async fn write(call: &mut Call, backup: &Backup, plan: Plan, out: &mut Out<'_>) -> Result<(), Status> {
    let mut writer = Writer::new(plan);
    for (name, pairs) in backup.export.buckets() {
        writer.bucket(name.as_bytes())?;
        for (key, value) in &pairs {
            writer.pair(key, value)?;
        }
        if name == RECORDS {
            let mut pull = Pull::new(backup);
            while let Some(records) = pull.next(call).await? {
                for Record { rev, tombstone, body } in records {
                    writer.pair(&store::hash::bucket_key(rev, tombstone), &body)?;
                    if writer.ready() >= BLOB {
                        out.send(call, writer.take()).await?;
                    }
                }
            }
        }
        out.send(call, writer.take()).await?;
    }
    out.send(call, writer.finish()?).await?;
    out.end(call).await
}

/// The rows of a backup, a piece at a time.
struct Pull<'a> {
    backup: &'a Backup,
    rows: Rows<'a>,
    first: bool,
    end: bool,
}

impl Pull<'_> {
    fn new(backup: &Backup) -> Pull<'_> {
        Pull { backup, rows: backup.export.rows(), first: true, end: false }
    }

    /// None behind the last.
    async fn next(&mut self, call: &Call) -> Result<Option<Vec<Record>>, Status> {
        if self.end {
            return match self.rows.missing() {
                0 => Ok(None),
                missing => Err(broken(Code::DataLoss, format!("{missing} records are not in the files"))),
            };
        }
        let first = std::mem::take(&mut self.first);
        let asked = call.read_within(Request::BackupNext { backup: self.backup.id, first }, STEP).await?;
        match asked.answer {
            Answer::BackupRecords { mut records, end } => {
                self.end = end;
                records.retain(|record| self.rows.has(record.rev));
                Ok(Some(records))
            }
            Answer::BackupFailed { reason } => Err(broken(Code::Aborted, reason)),
            _ => Err(Status::unexpected("records of a backup")),
        }
    }
}

fn broken(code: Code, reason: String) -> Status {
    Status::with(code, format!("kvorum: snapshot: {reason}"))
}

impl From<Diverged> for Status {
    fn from(diverged: Diverged) -> Status {
        broken(Code::Internal, diverged.to_string())
    }
}

/// Messages of the stream.
struct Out<'a> {
    pending: Vec<u8>,
    /// Bytes of the file that no message has.
    left: u64,
    digest: Sha256,
    version: &'a str,
}

impl Out<'_> {
    async fn send(&mut self, call: &mut Call, bytes: Vec<u8>) -> Result<(), Status> {
        self.digest.update(&bytes);
        self.pending.extend_from_slice(&bytes);
        let whole = self.pending.len() - self.pending.len() % BLOB;
        let rest = self.pending.split_off(whole);
        for blob in std::mem::replace(&mut self.pending, rest).chunks(BLOB) {
            self.message(call, blob).await?;
        }
        Ok(())
    }

    async fn end(&mut self, call: &mut Call) -> Result<(), Status> {
        let last = std::mem::take(&mut self.pending);
        if !last.is_empty() {
            self.message(call, &last).await?;
        }
        assert_eq!(self.left, 0, "the file has the length that was announced");
        let digest = std::mem::take(&mut self.digest).finalize();
        let message = self.encode(&digest);
        call.reply.message_now(&message)
    }

    async fn message(&mut self, call: &mut Call, blob: &[u8]) -> Result<(), Status> {
        self.left -= blob.len() as u64;
        call.reply.room().await;
        let message = self.encode(blob);
        call.reply.message_now(&message)
    }

    fn encode(&self, blob: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(blob.len() + 32);
        protobuf::write_varint(&mut message, 2, self.left);
        protobuf::write_bytes(&mut message, 3, blob);
        protobuf::write_bytes(&mut message, 4, self.version.as_bytes());
        message
    }
}
