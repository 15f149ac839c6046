//! What a stopped member's files say, for tools: the state it would start with.

use crate::recover::{applied_position, needs_restart, on_doubt, reached_state, replay, restart_log, same_founding};
use consensus::Position;
use disk::{
    Doubt, Fault, Files, Identity, Log, LogContent, LogOptions, OnDoubt, Tail, Torn, checkpoint, doubt, transfer,
};
use std::sync::Arc;
use store::Store;

/// The state behind the last durable commit, and what was met on the way to it.
#[derive(Debug)]
pub struct Offline {
    pub store: Store,
    /// The checkpoint that recovery starts from.
    pub manifest: checkpoint::Manifest,
    /// Why a newer checkpoint was not used.
    pub passed_over: Option<Fault>,
    /// How the log ends: what a start would cut, and remember.
    pub tail: Tail,
    /// Places of the log that would be restored from their second copy.
    pub healed: Vec<Torn>,
    /// Entries in the log; those applied behind the checkpoint.
    pub entries: u64,
    pub replayed: u64,
}

/// Goes the way of [`crate::Node::recover`] up to the state. It changes `files` as a start would:
/// a tool that must not gives files that keep changes to themselves.
///
/// # Errors
/// As a start's.
pub fn offline(files: &Arc<dyn Files>, id: Identity, options: LogOptions) -> Result<Offline, Fault> {
    open(files, id, options).map(|opened| opened.found)
}

/// A stopped member's files, open.
pub(crate) struct Opened {
    pub(crate) found: Offline,
    pub(crate) log: Log,
    pub(crate) content: LogContent,
}

/// As [`offline`], with the log.
pub(crate) fn open(files: &Arc<dyn Files>, id: Identity, options: LogOptions) -> Result<Opened, Fault> {
    let installed = transfer::resume(&**files, id)?;
    let loaded = checkpoint::load_newest(&**files, id, store::Config::default(), 0)?
        .ok_or_else(|| Fault::damaged("state", 0, "there is no checkpoint"))?;
    if loaded.store.applied().index == 0 {
        let what = "this state was given up, and the leader's is not here yet; the log is kept";
        return Err(Fault::damaged("state", 0, what));
    }
    same_founding(&**files, id, &loaded.store)?;
    let state = reached_state(installed.is_some(), &loaded.store);
    let doubt = on_doubt(&**files, id, &loaded.store)?;
    let (mut log, mut content) = Log::recover(Arc::clone(files), id, options, state, doubt)?;
    let (index, boundary) = (loaded.manifest.index, content.boundary.index);
    if installed.is_none() && index < boundary {
        let what = format!("the log begins behind entry {boundary}, the checkpoint stands at {index}");
        return Err(loaded.passed_over.unwrap_or_else(|| Fault::damaged("state", 0, what)));
    }
    let mut store = loaded.store;
    let applied = applied_position(&store);
    if needs_restart(&content, applied) {
        restart_log(&mut log, &mut content, applied)?;
    }
    transfer::followed(&**files, id)?;
    checkpoint::settle(&**files, id, &loaded.manifest)?;
    let entries = content.last.index - content.boundary.index;
    let replayed = replay(&mut store, &log, &content, &**files, None)?.count;
    let found = Offline {
        store,
        manifest: loaded.manifest,
        passed_over: loaded.passed_over,
        tail: content.tail.clone(),
        healed: content.healed.clone(),
        entries,
        replayed,
    };
    Ok(Opened { found, log, content })
}

/// What a member has that goes on alone ([`crate::alone`]).
#[derive(Debug)]
pub struct Whole {
    /// Its state is that behind the last entry of the log.
    pub found: Offline,
    /// The last durable entry.
    pub last: Position,
    /// Where the log begins.
    pub boundary: Position,
    /// The first entry of each run of one term behind that.
    pub terms: Vec<Position>,
    /// The last entry that is known to be committed.
    pub commit: u64,
    /// The revision there.
    pub committed_revision: i64,
    /// The term in which what follows is written.
    pub next_term: u64,
    /// What of the log is lost, or may be.
    pub doubt: Option<Doubt>,
}

/// As [`offline`], up to the last entry of the log: also what is not known to be committed.
///
/// # Errors
/// As a start's.
pub fn whole(files: &Arc<dyn Files>, id: Identity, options: LogOptions) -> Result<Whole, Fault> {
    open_whole(files, id, options).map(|(whole, _)| whole)
}

/// As [`whole`], with the log.
pub(crate) fn open_whole(files: &Arc<dyn Files>, id: Identity, options: LogOptions) -> Result<(Whole, Log), Fault> {
    let Opened { mut found, log, mut content } = open(files, id, options)?;
    let (commit, committed_revision) = (found.store.applied().index, found.store.revision());
    content.hard.commit = content.last.index;
    replay(&mut found.store, &log, &content, &**files, None)?;
    let whole = Whole {
        found,
        last: content.last,
        boundary: content.boundary,
        terms: content.terms,
        commit,
        committed_revision,
        next_term: content.hard.term + 1,
        doubt: content.doubt,
    };
    Ok((whole, log))
}

/// The operator's word for a lone member that refuses to start on a doubtful end of its log: the
/// end is cut for good. Returns what that was; None if there is nothing to cut. It changes `files`.
///
/// # Errors
/// As a start's, and for a member with peers: they know more than its operator.
pub fn cut_tail(files: &Arc<dyn Files>, id: Identity, options: LogOptions) -> Result<Option<Doubt>, Fault> {
    let installed = transfer::resume(&**files, id)?;
    let loaded = checkpoint::load_newest(&**files, id, store::Config::default(), 0)?
        .ok_or_else(|| Fault::damaged("state", 0, "there is no checkpoint"))?;
    let store = loaded.store;
    if on_doubt(&**files, id, &store)? != OnDoubt::Refuse {
        let what = "this member has peers: start it, and it asks them for what it lost";
        return Err(Fault::Refused { file: "log".to_string(), what: what.to_string() });
    }
    let state = reached_state(installed.is_some(), &store);
    let (mut log, mut content) = Log::recover(Arc::clone(files), id, options, state, OnDoubt::Keep)?;
    let applied = applied_position(&store);
    if needs_restart(&content, applied) {
        restart_log(&mut log, &mut content, applied)?;
    }
    transfer::followed(&**files, id)?;
    doubt::clear(&**files)?;
    Ok(content.doubt)
}
