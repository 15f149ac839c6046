//! A member with peers whose state is of no use starts over: it keeps its identity and its log, and
//! has no state until it has the leader's (`disk::startover`).
//!
//! Until then it answers nothing. It follows, acknowledges and votes as before. It campaigns only
//! when nobody else can lead. A lone member never starts over: nobody could give it a state.

use crate::config::Config;
use crate::io::{Level, Output};
use disk::startover::{known_head, rebuilt, start_over};
use disk::{Fault, Files, Identity, history};
use store::{ImageHead, Position, Store};

/// The state is given up, because of `fault`. False: nobody is known who could give another one.
///
/// # Errors
/// What the operating system says. On a full disk it may be tried again.
pub(crate) fn begin(files: &dyn Files, config: &Config, fault: &Fault, out: &mut Vec<Output>) -> Result<bool, Fault> {
    let id = Identity { cluster: config.cluster, member: config.member };
    let Some(head) = empty_head(known_head(files, id)?, history::find(files, id)?, id, config) else {
        return Ok(false);
    };
    start_over(files, id, &head)?;
    let count = rebuilt(files, id)?;
    let text = format!(
        "{fault}: this member starts over (time {}): it answers nothing until it has the leader's state",
        count.damaged + count.differs
    );
    out.push(Output::Note { level: Level::Error, text });
    Ok(true)
}

/// An empty state that knows the members, and the founding that the log is of. None: this member is
/// alone, or nobody says who the others are.
fn empty_head(known: Option<ImageHead>, log_founding: u64, id: Identity, config: &Config) -> Option<ImageHead> {
    let members = known.as_ref().map_or_else(|| config.founders.clone(), |head| head.members.clone());
    let ours = members.iter().any(|member| member.id == id.member);
    let mut head = Store::genesis(config.store(), members, Position::default()).image_head();
    if let Some(known) = known {
        (head.conf, head.removed, head.founding) = (known.conf, known.removed, known.founding);
    }
    if head.founding == 0 {
        head.founding = log_founding;
    }
    (ours && head.conf.voters.len() > 1).then_some(head)
}
