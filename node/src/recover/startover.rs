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
/// far as this member knows: it leads nobody before it has a state, as one that joins. The same
/// holds if the newest checkpoint that can be read is of the time when this member was alone.
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
    if others.is_some_and(|others| others == [id.member]) {
        // Whatever a checkpoint of before says: nobody is left to give it a state.
        return None;
    }
    let has_peers = others.is_some_and(|others| !others.is_empty());
    let founded_alone = head.conf.voters.len() < 2 && !has_peers;
    match known {
        Some(known) => {
            (head.conf, head.removed, head.founding) = (known.conf, known.removed, known.founding);
            if has_peers && head.conf.voters == [id.member] {
                head.conf = Conf::default();
            }
        }
        None if others.is_some_and(|others| others != head.conf.voters) => head.conf = Conf::default(),
        None => {}
    }
    if log_founding != 0 {
        // The checkpoint may be older than that founding.
        head.founding = log_founding;
    }
    let nobody_votes = head.conf.voters.is_empty() && !founded_alone;
    (ours && (head.conf.voters.len() > 1 || nobody_votes)).then_some(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Member;

    /// A head that knows these members, and who of them votes.
    fn head(members: &[u64], voters: &[u64], founding: u64) -> ImageHead {
        let members = members.iter().map(|id| Member { id: *id, ..Member::default() }).collect();
        let mut head = Store::genesis(store::Config::default(), members, Position::default()).image_head();
        (head.conf.voters, head.founding) = (voters.to_vec(), founding);
        head
    }

    /// Member 1, founded with these others: who votes as far as it knows when it starts over.
    fn voters(known: Option<ImageHead>, beside: Option<&[u64]>, founders: &[u64]) -> Option<Vec<u64>> {
        let config = Config { founders: head(founders, founders, 0).members, ..Config::new(7, 1, 1, 1) };
        let id = Identity { cluster: 7, member: 1 };
        empty_head(known, beside, 0, id, &config).map(|head| head.conf.voters)
    }

    #[test]
    fn who_else_votes_is_what_stands_beside_the_log() {
        let three = Some(vec![1, 2, 3]);
        assert_eq!(voters(Some(head(&[1, 2, 3], &[1, 2, 3], 0)), None, &[]), three);
        assert_eq!(voters(None, None, &[1, 2, 3]), three);
        assert_eq!(voters(None, Some(&[1, 4, 5]), &[1, 2, 3]), Some(Vec::new()), "others than it knows");
        let lone = [voters(None, None, &[1]), voters(Some(head(&[1, 2], &[1], 0)), None, &[1])];
        assert_eq!(lone, [None, None], "nobody could give it a state");
        assert_eq!(voters(Some(head(&[1, 2, 3], &[1, 2, 3], 0)), Some(&[1]), &[1, 2, 3]), None, "they went");
        let grown = [voters(None, Some(&[1, 2]), &[1]), voters(Some(head(&[1, 2], &[1], 0)), Some(&[1, 2]), &[1])];
        assert_eq!(grown, [Some(Vec::new()), Some(Vec::new())], "they came");
    }

    /// The last readable checkpoint may be older than the founding that the log is of.
    #[test]
    fn the_founding_is_that_of_the_log() {
        let id = Identity { cluster: 7, member: 1 };
        let founding = |log| {
            let known = Some(head(&[1, 2], &[1, 2], 5));
            empty_head(known, Some(&[1, 2]), log, id, &Config::new(7, 1, 1, 1)).map(|head| head.founding)
        };
        assert_eq!((founding(0), founding(9)), (Some(5), Some(9)));
    }
}
