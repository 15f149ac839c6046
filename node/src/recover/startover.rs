//! A member with peers whose state is of no use starts over: it keeps its identity and its log, and
//! has no state until it has the leader's (`disk::startover`).
//!
//! Until then it answers nothing. It follows, acknowledges and votes as before. It campaigns only
//! when nobody else can lead. A lone member never starts over: nobody could give it a state.

use crate::config::Config;
use crate::io::{Level, Output};
use disk::startover::{known_head, rebuilt, start_over};
use disk::{Fault, Files, Identity, history, voters};
use store::{Conf, ImageHead, Position, Store};

/// The state is given up, because of `fault`. False: nobody is known who could give another one.
///
/// # Errors
/// What the operating system says. On a full disk it may be tried again.
pub(crate) fn begin(files: &dyn Files, config: &Config, fault: &Fault, out: &mut Vec<Output>) -> Result<bool, Fault> {
    let id = Identity { cluster: config.cluster, member: config.member };
    let known = known_head(files, id)?;
    let others = voters::find(files, id)?;
    let Some(head) = empty_head(known, others.as_deref(), history::find(files, id)?, id, config) else {
        return Ok(false);
    };
    start_over(files, id, &head)?;
    let count = rebuilt(files, id)?;
    let text = format!(
        "{fault}: this member starts over (time {}): it answers nothing until it has the leader's state",
        count.damaged + count.differs
    );
    out.push(Output::Note { level: Level::Error, text });
    if head.conf.voters.is_empty() {
        let text = "who votes is not known here: members were changed since the founding; this member leads nobody \
                    until it has the leader's state";
        out.push(Output::Note { level: Level::Warn, text: text.to_string() });
    }
    Ok(true)
}

/// An empty state that knows the members, and the founding that the log is of. None: this member is
/// alone, or nobody says who the others are. `others`: who votes, once others than the founders do.
///
/// Where no checkpoint says who votes, and those who did last are not the founders, nobody votes as
/// far as this member knows: it leads nobody before it has a state, as one that joins.
fn empty_head(
    known: Option<ImageHead>,
    others: Option<&[u64]>,
    log_founding: u64,
    id: Identity,
    config: &Config,
) -> Option<ImageHead> {
    let members = known.as_ref().map_or_else(|| config.founders.clone(), |head| head.members.clone());
    let ours = members.iter().any(|member| member.id == id.member);
    let mut head = Store::genesis(config.store(), members, Position::default()).image_head();
    let founded_alone = head.conf.voters.len() < 2;
    if others.is_some_and(|others| others == [id.member]) {
        // Whatever a checkpoint of before says: nobody is left to give it a state.
        return None;
    }
    match known {
        Some(known) => (head.conf, head.removed, head.founding) = (known.conf, known.removed, known.founding),
        None if others.is_some_and(|others| others != head.conf.voters) => head.conf = Conf::default(),
        None => {}
    }
    if head.founding == 0 {
        head.founding = log_founding;
    }
    let nobody_votes = head.conf.voters.is_empty() && !founded_alone;
    (ours && (head.conf.voters.len() > 1 || nobody_votes)).then_some(head)
}
