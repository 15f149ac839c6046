//! A member whose cluster has lost its quorum for good goes on alone, with its own data.
//!
//! One batch of the log decides: it removes every other member, names a founding of its own and
//! commits everything before it. A crash leaves the log of before or that of after.

use super::log_options;
use crate::config::Config;
use crate::ground::kind_of;
use crate::io::{Level, Output};
use crate::offline::{Whole, open_whole};
use bytes::Bytes;
use consensus::{ConfChange, Entry, EntryKind, HardState};
use disk::{Doubt, Fault, Files, Identity, Log, Patient, Reserve, contradicted, corrupt, doubt, history, late, voters};
use std::sync::Arc;
use store::command::encode_refound;
use store::{Member, MemberChange, MemberChangeKind, Store};

/// Makes the member in `files` the only one of its cluster, as `--force-new-cluster` asks. Keys,
/// leases, users and alarms stay. The others are removed: their ids do not come back, and what they
/// say is of another founding (`config.founding`). What the log holds beyond the known commit is
/// kept: any of it may have been acknowledged.
///
/// Nothing is written if it is alone already. Durable once this returns; repeating it after a crash
/// is safe. The member is recovered afterwards as at any start.
///
/// # Errors
/// As a start's; also a member that has no state, or that was removed. Nothing is decided then.
pub fn alone(config: &Config, files: &Arc<dyn Files>, out: &mut Vec<Output>) -> Result<(), Fault> {
    let files = &Patient::before(files);
    let said = out.len();
    let mut tried = attempt(config, files, out);
    if tried.as_ref().is_err_and(Fault::is_full) && Reserve::release(&**files)? {
        out.truncate(said);
        tried = attempt(config, files, out);
    }
    tried
}

fn attempt(config: &Config, files: &Arc<dyn Files>, out: &mut Vec<Output>) -> Result<(), Fault> {
    let id = Identity { cluster: config.cluster, member: config.member };
    let (whole, log) = open_whole(files, id, log_options(config))?;
    let mut founding = whole.found.store.founding();
    if let Some(text) = decide(config, &whole, log)? {
        founding = config.founding;
        out.push(Output::Note { level: Level::Warn, text });
    }
    remember(&**files, id, founding)?;
    forget(&**files, id, whole.doubt, out)
}

/// Beside the log, where a start looks that cannot believe its checkpoints: they are older.
fn remember(files: &dyn Files, id: Identity, founding: u64) -> Result<(), Fault> {
    if founding != 0 && history::find(files, id)? != founding {
        history::mark(files, id, founding)?;
    }
    if voters::find(files, id)?.is_none_or(|known| known != [id.member]) {
        voters::mark(files, id, &[id.member])?;
    }
    Ok(())
}

/// Writes the batch that decides; what is said of it. None: there are no others.
fn decide(config: &Config, whole: &Whole, mut log: Log) -> Result<Option<String>, Fault> {
    let Whole { found, last, commit, committed_revision, next_term, .. } = whole;
    let (last, term, store) = (last.index, *next_term, &found.store);
    let changes = changes(store, config.member)?;
    let Some(entries) = entries(&changes, last, term, config.founding) else { return Ok(None) };
    let end = entries.last().expect("the founding").index;
    log.save(HardState { term, vote: config.member, commit: end }, &entries)?;
    let removed: Vec<String> = changes.iter().map(|change| &change.member).map(named).collect();
    Ok(Some(format!(
        "this member is the only one of its cluster from entry {end} on, as it was told to; {} removed for ever; \
         founding {:016x} ends, {:016x} begins. {} entries behind entry {commit} were not known to be committed, and \
         are kept: revision {committed_revision} became {}. What this member never had is lost. Start it without \
         --force-new-cluster from now on",
        removed.join(", "),
        store.founding(),
        config.founding,
        last - commit,
        store.revision(),
    )))
}

/// Those that leave this member alone, in order. It votes before the others go.
fn changes(store: &Store, ours: u64) -> Result<Vec<MemberChange>, Fault> {
    let Some(own) = store.member(ours).filter(|_| !store.removed().contains(&ours)) else {
        let what = format!("member {ours:x} was removed from its cluster: no cluster can go on with it");
        return Err(Fault::Refused { file: "state".to_string(), what });
    };
    let change = |kind, member: &Member| MemberChange { kind, member: member.clone(), origin: None };
    let promoted = store.is_learner(ours).then(|| change(MemberChangeKind::Promote, own));
    let others = store.members().filter(|member| member.id != ours);
    Ok(promoted.into_iter().chain(others.map(|other| change(MemberChangeKind::Remove, other))).collect())
}

/// `changes` as entries behind `last`, and the founding that begins with them. None: no changes.
fn entries(changes: &[MemberChange], last: u64, term: u64, founding: u64) -> Option<Vec<Entry>> {
    let config = changes.iter().map(|change| {
        let (kind, member) = (kind_of(change.kind), change.member.id);
        (EntryKind::Config, ConfChange { kind, member, context: change.encode() }.encode())
    });
    let refound = (EntryKind::Normal, Bytes::clone(&encode_refound(founding)));
    let entry = |(index, (kind, data))| Entry { index, term, kind, data };
    (!changes.is_empty()).then(|| (last + 1..).zip(config.chain([refound])).map(entry).collect())
}

fn named(member: &Member) -> String {
    format!("{:x} ({}, {})", member.id, member.name, member.peer_urls.join(" "))
}

/// What was to be settled with the others never will be: the operator has decided for this member.
fn forget(files: &dyn Files, id: Identity, lost: Option<Doubt>, out: &mut Vec<Output>) -> Result<(), Fault> {
    let mut say = |level, text: String| out.push(Output::Note { level, text });
    if let Some(lost) = lost {
        let upto = lost.promise.map_or("an unknown entry".to_string(), |promise| format!("entry {}", promise.index));
        let (at, sure) = (lost.at, if lost.sure { "was" } else { "may have been" });
        let text = format!(
            "{} at byte {}: {}: what {sure} here up to {upto} is lost; nobody is left who could have it",
            at.file, at.offset, at.what
        );
        say(Level::Error, text);
    }
    doubt::clear(files)?;
    late::clear(files)?;
    if let Some(seen) = contradicted::find(files, id)? {
        contradicted::clear(files)?;
        say(Level::Error, format!("two histories were seen ({seen}): that of this member goes on"));
    }
    if corrupt::marked(files, id)? {
        corrupt::clear(files)?;
        let text = "this state differed from that of the other members: it goes on all the same, as it is told to";
        say(Level::Error, text.to_string());
    }
    Ok(())
}
