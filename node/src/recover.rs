//! From the files of a data directory to a member: before anything is served, blocking.
//!
//! The newest whole checkpoint, then the log from there, applied up to the durable commit;
//! only then consensus exists (`design`: recovery applies before the raft node is built).

mod alone;
mod startover;

pub use alone::alone;

use crate::apply::{change_members, conf_state, membership};
use crate::checkpoints::log_bytes;
use crate::config::Config;
use crate::foundings;
use crate::io::{Level, Output};
use crate::member::{Found, Node};
use bytes::Bytes;
use consensus::{Consensus, Doubt, Entry, EntryKind, HardState, Position, Restored};
use disk::{
    Fault, Files, Identity, Log, LogContent, LogOptions, OnDoubt, Patient, Reader, Reserve, Tail, checkpoint,
    contradicted, corrupt, fetch, history, records, staging, transfer, voters,
};
use std::io::ErrorKind;
use std::sync::Arc;
use store::protobuf::Malformed;
use store::{Member, Store};

/// Writes what every founder of a cluster begins with: the members as if they had been applied
/// as entries 1..=n of term 1, and an empty log behind them. Nothing else may be in `files`.
pub fn genesis(files: &Arc<dyn Files>, id: Identity, config: &Config, mut members: Vec<Member>) -> Result<(), Fault> {
    members.sort_by_key(|member| member.id);
    let index = members.len() as u64;
    let store = Store::genesis(config.store(), members, store::Position { index, term: 1 });
    let mut log = Log::create(Arc::clone(files), id, log_options(config), Position { index, term: 1 })?;
    log.save(HardState { term: 1, vote: 0, commit: index }, &[])?;
    checkpoint::genesis(&**files, id, index, &store.image_head())?;
    Ok(())
}

/// Writes what a member begins with that joins a running cluster: the members that it was told of,
/// none of whom votes as far as it knows, no state and no log. The leader's snapshot brings all
/// three. Nothing else may be in `files`.
pub fn join(
    files: &Arc<dyn Files>,
    id: Identity,
    config: &Config,
    members: Vec<(Member, bool /* learner */)>,
) -> Result<(), Fault> {
    let members = members.into_iter().map(|(member, _)| member).collect();
    let mut head = Store::genesis(config.store(), members, store::Position::default()).image_head();
    head.conf = store::Conf::default();
    Log::create(Arc::clone(files), id, log_options(config), Position::default())?;
    checkpoint::genesis(&**files, id, 0, &head)?;
    Ok(())
}

/// True if `files` hold a member (its genesis was completed).
pub fn exists(files: &Arc<dyn Files>) -> Result<bool, Fault> {
    Ok(!checkpoint::manifests(&**files)?.is_empty() || transfer::unfinished(&**files)?)
}

pub(crate) fn log_options(config: &Config) -> LogOptions {
    LogOptions { segment_bytes: config.log_segment_bytes, boot: config.kernel_boot, salt: config.log_salt }
}

/// Bytes of entries in one message to a follower.
const MESSAGE_BYTES: u64 = 256 << 10;

impl Node {
    /// Recovers a member. The log is for the driver's log lane. Refusals change nothing in `files`.
    ///
    /// # Errors
    /// Damage that was durable before, files of a later format or of another member, an entry that
    /// a later program wrote ([`Fault::NotUnderstood`]): with file, offset, reason. Of a lone
    /// member also an end of the log that may have been acknowledged ([`Fault::Doubtful`]).
    pub fn recover(config: Config, files: &Arc<dyn Files>, out: &mut Vec<Output>) -> Result<(Node, Log), Fault> {
        // A start believes that a place cannot be read only after it has tried often.
        let (served, files) = (files, &Patient::before(files));
        let said = out.len();
        let mut tried = Node::attempt(config.clone(), files, out);
        if tried.as_ref().is_err_and(Fault::is_full) && Reserve::release(&**files)? {
            out.truncate(said);
            tried = Node::attempt(config.clone(), files, out);
        }
        let fault = match tried {
            Err(fault) if fault.is_damage() => fault,
            other => return serve(other?, served),
        };
        out.truncate(said);
        let id = Identity { cluster: config.cluster, member: config.member };
        if contradicted::find(&**files, id)?.is_some() {
            let what = format!("two histories: nothing of this member is replaced before an operator decides; {fault}");
            return Err(Fault::Refused { file: contradicted::PATH.to_string(), what });
        }
        let mut begun = startover::begin(&**files, &config, &fault, out);
        if begun.as_ref().is_err_and(Fault::is_full) && Reserve::release(&**files)? {
            begun = startover::begin(&**files, &config, &fault, out);
        }
        if !begun? {
            return Err(fault);
        }
        let said = out.len();
        let mut tried = Node::attempt(config.clone(), files, out);
        if tried.as_ref().is_err_and(Fault::is_full) && Reserve::release(&**files)? {
            out.truncate(said);
            tried = Node::attempt(config, files, out);
        }
        serve(tried?, served)
    }

    fn attempt(config: Config, files: &Arc<dyn Files>, out: &mut Vec<Output>) -> Result<(Node, Log), Fault> {
        let id = Identity { cluster: config.cluster, member: config.member };
        flush_names(&**files)?;
        // The empty state of a member that starts over is put in place as an install is, and is
        // none.
        let installed = transfer::finish(&**files, id)?.filter(|state| state.index > 0);
        // The checkpoint is read first: a refusal because of it must leave the log as it is.
        let loaded = checkpoint::load_newest(&**files, id, config.store(), 0)?
            .ok_or_else(|| Fault::damaged("state", 0, "there is no checkpoint"))?;
        let empty = loaded.store.applied().index == 0;
        let state = reached_state(installed.is_some() || empty, &loaded.store);
        let contradicted = contradicted::find(&**files, id)?;
        let doubt = match on_doubt(&**files, id, &loaded.store)? {
            // The rest of a damaged log may be the only copy of what was acknowledged.
            OnDoubt::Peers if contradicted.is_some() => OnDoubt::Keep,
            other => other,
        };
        let founding = same_founding(&**files, id, &loaded.store)?;
        let recover_log =
            |state| Log::recover_for(reader(&loaded.store), Arc::clone(files), id, log_options(&config), state, doubt);
        let (mut log, mut content) = match recover_log(state) {
            // Nothing is left of it: another one begins, and only a snapshot can fill it.
            Err(fault) if empty && fault.is_damage() => recover_log(Some(Position::default()))?,
            other => other?,
        };
        let (rebuilt, corrupt) = (disk::startover::rebuilt(&**files, id)?, corrupt::marked(&**files, id)?);
        tell_tail(&content.tail, out);
        tell_healed(&content, out);
        let (index, boundary) = (loaded.manifest.index, content.boundary.index);
        if !empty && index < boundary {
            let what = format!("the log begins behind entry {boundary}, the checkpoint stands at {index}");
            return Err(loaded.passed_over.unwrap_or_else(|| Fault::damaged("state", 0, what)));
        }
        if let Some(fault) = &loaded.passed_over {
            let text = format!("the newest checkpoint is passed over for an older one: {fault}");
            out.push(Output::Note { level: Level::Error, text });
        }
        let mut store = if empty { stand_in(&log, &content, loaded.store)? } else { loaded.store };
        let applied = applied_position(&store);
        if needs_restart(&content, applied) {
            restart_log(&mut log, &mut content, applied)?;
        }
        transfer::followed(&**files, id)?;
        checkpoint::settle(&**files, id, &loaded.manifest)?;
        records::list(&**files)?.into_iter().for_each(|segment| store.file_is_there(segment));
        let unwritten = Unwritten { id, most: config.budgets.unwritten as u64 };
        let replayed = replay(&mut store, &log, &content, &**files, Some(unwritten))?;
        let mut entries = Vec::new();
        log.each(store.applied().index + 1, u64::MAX, |entry| {
            entries.push(entry);
            Ok(())
        })?;
        // What the log holds beyond the checkpoint counts: else a member that restarts often would
        // never take one.
        let grown = replayed.bytes + log_bytes(&entries);
        out.push(Output::Note {
            level: Level::Info,
            text: format!(
                "recovered revision {} at entry {} (checkpoint {}, {} entries replayed)",
                store.revision(),
                store.applied().index,
                loaded.manifest.index,
                replayed.count,
            ),
        });
        let doubt = doubt_of(content.doubt.as_ref(), config.late_founder);
        if installed.is_some() {
            corrupt::clear(&**files)?;
        }
        let doubtful = doubt.is_some();
        let voters = voters::find(&**files, id)?;
        let voters_lost = voters_lost(&config, &store, &entries, voters.as_deref());
        let restored = Restored { voters_lost, ..restored(content, entries, &store, doubt) };
        let consensus = Consensus::new(consensus_config(&config), restored);
        let found = Found {
            checkpoint: loaded.manifest.index,
            rows_bytes: loaded.manifest.index_files.iter().map(|file| file.len).sum(),
            log_bytes: grown,
            open_segment: loaded.manifest.open_segment()?,
            disk_bytes: checkpoint::disk_bytes(&**files)?,
            corrupt: corrupt && installed.is_none(),
            contradicted,
            founding,
            voters,
            empty,
            doubtful,
            rebuilt,
            staged: staging::index(&**files)?,
        };
        let node = Node::assemble(config, consensus, store, &found, out);
        Ok((node, log))
    }
}

/// A process that was killed may have renamed the identity and not flushed its name, and so
/// with the manifest that a founder begins with.
fn flush_names(files: &dyn Files) -> Result<(), Fault> {
    for dir in ["", records::DIR] {
        match files.sync_dir(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            other => other.map_err(|e| Fault::io(dir, 0, e))?,
        }
    }
    Ok(())
}

fn tell_healed(content: &LogContent, out: &mut Vec<Output>) {
    for healed in &content.healed {
        let how = if healed.file.ends_with(".log") { "restored from its second copy" } else { "written anew" };
        let text = format!("{} at {}: {}: {how}", healed.file, healed.offset, healed.what);
        out.push(Output::Note { level: Level::Warn, text });
    }
}

fn serve((node, mut log): (Node, Log), files: &Arc<dyn Files>) -> Result<(Node, Log), Fault> {
    log.serve(Arc::clone(files))?;
    Ok((node, log))
}

/// What stands where the state of a member without one would: it knows the members, and stands
/// where the log is known to be committed. At index 0: nothing is left of the log either.
fn stand_in(log: &Log, content: &LogContent, mut store: Store) -> Result<Store, Fault> {
    let Position { index, term } = content.boundary;
    store.stand_at(store::Position { index, term });
    let commit = content.hard.commit.min(content.last.index);
    log.each(index + 1, commit, |mut entry| {
        if store.conf().voters.is_empty() {
            // A change of a membership that is not known.
            entry.kind = EntryKind::Normal;
        }
        if entry.kind != EntryKind::Config {
            entry.data = Bytes::new();
        }
        // It reads no file.
        apply_again(&mut store, &entry, |handles| {
            Err(Fault::damaged(&records::path(handles[0].segment), 0, "no state"))
        })
    })?;
    Ok(store)
}

/// The founding that the log is of; 0: not known.
///
/// # Errors
/// The state is of another one.
pub(crate) fn same_founding(files: &dyn Files, id: Identity, store: &Store) -> Result<u64, Fault> {
    let (names, state) = (history::all(files, id)?, store.founding());
    let log = names.first().copied().unwrap_or(0);
    if foundings::differ(log, state) && !names.contains(&state) {
        let what = format!(
            "the log is of founding {log:016x} and the state of founding {state:016x}: these folders are of two \
             directories; put back those that belong together"
        );
        return Err(Fault::Refused { file: history::PATH.to_string(), what });
    }
    Ok(log)
}

/// A lone member has nobody who could know what it lost. Whether it is alone the file beside the
/// log says: `store` is that of a checkpoint, and members may have come or gone since.
pub(crate) fn on_doubt(files: &dyn Files, id: Identity, store: &Store) -> Result<OnDoubt, Fault> {
    let beside = voters::find(files, id)?.filter(|voters| !voters.is_empty());
    let alone = beside.as_ref().unwrap_or(&store.conf().voters) == &[id.member];
    Ok(if alone { OnDoubt::Refuse } else { OnDoubt::Peers })
}

/// The last entry that is in the state. Consensus and store do not know each other, nor each
/// other's words.
pub(crate) fn applied_position(store: &Store) -> Position {
    let store::Position { index, term } = store.applied();
    Position { index, term }
}

/// What the log must reach: the state of a checkpoint came through it, that of an install did not.
pub(crate) fn reached_state(installed: bool, store: &Store) -> Option<Position> {
    (!installed).then(|| applied_position(store))
}

/// Entries behind the state are applied, unless it is empty: then no log joins it.
fn reader(store: &Store) -> Reader {
    let applied = match store.applied().index {
        0 => u64::MAX,
        index => index,
    };
    Reader { applied, understands }
}

fn understands(kind: EntryKind, data: &[u8]) -> Result<(), Malformed> {
    let read = match kind {
        EntryKind::Config => membership(&Bytes::copy_from_slice(data)).map(|_| ()),
        EntryKind::Normal => store::command::decode(data).map(|_| ()),
    };
    // What no version writes is refused when it is applied.
    read.or_else(|malformed| if malformed.later { Err(malformed) } else { Ok(()) })
}

fn tell_tail(tail: &Tail, out: &mut Vec<Output>) {
    let Some(at) = tail.cut() else { return };
    let verdict = match tail {
        Tail::Damaged(_) => "damaged: cut there; the other members have what is missing",
        Tail::Doubtful(_) => "cut, it may have been acknowledged",
        Tail::Torn(_) | Tail::Whole => "cut, it was never acknowledged",
    };
    let text = format!("{} at byte {}: {}: {verdict}", at.file, at.offset, at.what);
    out.push(Output::Note { level: Level::Warn, text });
}

/// The log ends before the state, or holds nothing that joins it: an installed snapshot replaced
/// it.
pub(crate) fn needs_restart(content: &LogContent, applied: Position) -> bool {
    content.last.index < applied.index || content.term_of(applied.index).is_some_and(|term| term != applied.term)
}

pub(crate) fn restart_log(log: &mut Log, content: &mut LogContent, applied: Position) -> Result<(), Fault> {
    let hard = HardState { commit: applied.index, term: content.hard.term.max(applied.term), ..content.hard };
    let hard = if hard.term == content.hard.term { hard } else { HardState { vote: 0, ..hard } };
    log.restart_at(hard, applied)?;
    content.hard = hard;
    content.terms.clear();
    (content.boundary, content.last) = (applied, applied);
    Ok(())
}

#[derive(Default)]
pub(crate) struct Replayed {
    pub(crate) count: u64,
    /// Of those entries, as in [`log_bytes`].
    bytes: u64,
}

/// Records of the replay are written on the way, as beside traffic, or all kept in memory.
pub(crate) struct Unwritten {
    id: Identity,
    /// Bytes in memory before they are written.
    most: u64,
}

impl Unwritten {
    /// Seals are left to the member: a seek table reads the whole segment again, and a scan does
    /// without it.
    fn write(&self, store: &mut Store, files: &dyn Files) -> Result<(), Fault> {
        if store.unwritten_bytes() < self.most {
            return Ok(());
        }
        for store::Extent { segment, offset, parts, .. } in store.unwritten(usize::MAX) {
            if !parts.is_empty() {
                let upto = records::write(files, self.id, segment, offset, &parts)?;
                store.written(segment, upto, false);
            }
        }
        Ok(())
    }
}

/// Applies the log up to the durable commit.
pub(crate) fn replay(
    store: &mut Store,
    log: &Log,
    content: &LogContent,
    files: &dyn Files,
    mut unwritten: Option<Unwritten>,
) -> Result<Replayed, Fault> {
    let mut replayed = Replayed::default();
    log.each(store.applied().index + 1, content.hard.commit, |entry| {
        assert_eq!(entry.index, store.applied().index + 1, "the log goes on where the state ends");
        apply_again(store, &entry, |handles| fetch::read_all(files, handles))?;
        replayed.count += 1;
        replayed.bytes += log_bytes(std::slice::from_ref(&entry));
        match unwritten.as_ref().map_or(Ok(()), |unwritten| unwritten.write(store, files)) {
            // They stay in memory, and are written when there is room.
            Err(fault) if fault.is_full() => unwritten = None,
            other => other?,
        }
        Ok(())
    })?;
    Ok(replayed)
}

fn apply_again(
    store: &mut Store,
    entry: &Entry,
    read: impl Fn(&[store::Handle]) -> Result<Vec<Bytes>, Fault>,
) -> Result<(), Fault> {
    let at = store::Position { index: entry.index, term: entry.term };
    // Its bytes were verified when they were read. Whoever runs the same program fails at the same
    // entry.
    let unreadable = |what: String| {
        let (file, entry) = ("log".to_string(), Position { index: at.index, term: at.term });
        Fault::NotUnderstood { file, offset: 0, entry, what }
    };
    if entry.kind == EntryKind::Config {
        let Some((change, member)) = membership(&entry.data).map_err(|later| unreadable(later.what))? else {
            store.pass_over(at);
            return Ok(());
        };
        let before = conf_state(store);
        let after = match before.after(&change) {
            _ if store.check_conf(&member).is_err() => before,
            Some(after) => after,
            None => {
                store.pass_over(at);
                return Ok(());
            }
        };
        change_members(store, at, &member, &after);
        return Ok(());
    }
    let (mut fetched, mut bytes): (Option<Vec<Bytes>>, _) = (None, store::Step::default().bytes);
    loop {
        let handles = match store.replay(at, &entry.data, fetched.as_deref(), bytes) {
            Ok(None) => return Ok(()),
            Ok(Some(handles)) => handles,
            Err(halt) => return Err(unreadable(halt.to_string())),
        };
        fetched = match read(&handles) {
            // Perhaps the entry does without the one that cannot be read.
            Err(_) if handles.len() > 1 => {
                bytes = 0;
                None
            }
            read => Some(read?),
        };
    }
}

/// What may be lost, for consensus. A proven tear counts like the others at first: the proof is
/// about this disk, and a disk that loses flushed writes leaves the same traces. That only zeros
/// stand where a page stood is no such proof: a whole batch may be gone. A late founder may have
/// been a member before, on a disk that was emptied since.
fn doubt_of(kept: Option<&disk::Doubt>, late_founder: bool) -> Option<Doubt> {
    let lost = kept.map(|kept| {
        let promise = kept.promise.filter(|_| !kept.at_least);
        // Whoever cannot tell how far the lost end went does not know its vote either.
        let torn = kept.proven_tear && !kept.by_zeros;
        Doubt { promise, vote: promise.is_none(), sure: kept.sure, torn }
    });
    let late = late_founder.then_some(Doubt { promise: None, vote: true, sure: false, torn: false });
    lost.into_iter().chain(late).reduce(Doubt::and)
}

/// `entries`: those of the log that are not applied.
fn restored(content: LogContent, entries: Vec<Entry>, store: &Store, doubt: Option<Doubt>) -> Restored {
    let applied = applied_position(store);
    let mut terms = content.terms;
    terms.retain(|run| run.index <= applied.index);
    Restored {
        hard: HardState { commit: content.hard.commit.max(applied.index), ..content.hard },
        conf: conf_state(store),
        applied,
        entries,
        boundary: content.boundary,
        terms,
        doubt,
        voters_lost: false,
    }
}

/// `beside`: who votes, as the file beside the log says it. It was written when that was applied,
/// so entries are lost if neither the state nor an entry behind it (`entries`) comes to it. A late
/// founder knows those of the founding, and others may vote since.
fn voters_lost(config: &Config, store: &Store, entries: &[Entry], beside: Option<&[u64]>) -> bool {
    let beside = beside.unwrap_or_default();
    let mut conf = conf_state(store);
    let mut found = beside.is_empty() || conf.voters == beside;
    for entry in entries.iter().filter(|entry| entry.kind == EntryKind::Config) {
        let change = membership(&entry.data).ok().flatten();
        conf = change.and_then(|(change, _)| conf.after(&change)).unwrap_or(conf);
        found |= conf.voters == beside;
    }
    !found || config.late_founder
}

fn consensus_config(config: &Config) -> consensus::Config {
    let ticks = |ms: u64| u32::try_from(ms / crate::TICK_MS).expect("timeouts are far below 2^32 ticks").max(1);
    consensus::Config {
        id: config.member,
        seed: config.seed,
        boot: config.boot,
        election_ticks: ticks(config.election_ms),
        heartbeat_ticks: ticks(config.heartbeat_ms),
        max_message_bytes: MESSAGE_BYTES,
        // Consensus wants room for one message; the gate holds to a smaller budget by itself.
        max_uncommitted_bytes: config.budgets.uncommitted.max(MESSAGE_BYTES),
        cache_bytes: config.budgets.entry_cache,
    }
}
