//! What a cluster that runs knows of this member, when its own files do not say enough: the
//! identity of a joined member is damaged, or a member that was added would found another cluster.

use super::join::{fetch, named};
use super::{Founding, Start, UNUSABLE, failed, way_out};
use crate::options::Options;
use crate::peers::Elsewhere;
use crate::signals::{Stops, die_of};
use disk::Identity;
use disk::urls::texts;

/// What the others say of a member that the files name.
pub(super) enum Word {
    /// It is the member of the flags.
    Ours,
    /// It is not, or cannot be known: the text is for the error.
    Not(String),
}

impl Start<'_> {
    /// The files say `written`; `by_flags` is what the flags would found. A founder's flags and
    /// files say the same. The ids of a member that joined are not those of its flags: the cluster
    /// has to say that it is this one.
    pub(super) fn word_of(&self, written: Identity, by_flags: Option<&Founding>) -> Result<Word, super::Failed> {
        let says = format!("the other files say member {:x} of cluster {:x}", written.member, written.cluster);
        let not = |what: &str| Ok(Word::Not(format!("{says}, {what}")));
        match by_flags.map(|by| by.identity) {
            Some(identity) if identity == written => return Ok(Word::Ours),
            Some(identity) if identity.cluster == written.cluster => return not("which is not what the flags say"),
            _ => {}
        }
        let Ok(named) = named(self.options) else { return not("which is not what the flags say") };
        if named.len() < 2 {
            return not("and there is no other member to ask");
        }
        let asked = self.runtime.block_on(async {
            let mut stops = Stops::listen().map_err(|error| failed(UNUSABLE)(error.to_string()))?;
            let ours = &self.options.name;
            tokio::select! {
                remote = fetch(ours, &named, self.dialler.as_ref()) => Ok(Ok(remote)),
                number = stops.next() => Ok(Err(number)),
            }
        })?;
        let remote = match asked {
            Ok(Ok(remote)) => remote,
            Ok(Err(_)) => {
                return not("and nobody at the peer URLs of --initial-cluster confirms that: start it again when \
                            another member runs");
            }
            Err(signal) => die_of(signal),
        };
        let listed = remote.members.iter().map(|(member, _)| member).find(|member| member.id == written.member);
        let Some(listed) = listed.filter(|_| remote.cluster == written.cluster) else {
            return not(&format!(
                "which cluster {:x}, asked at the peer URLs of --initial-cluster, does not know",
                remote.cluster
            ));
        };
        let (ours, mut theirs) = (sorted(texts(&self.options.advertise_peer)), listed.peer_urls.clone());
        theirs.sort_unstable();
        if listed.name == self.options.name || ours == theirs {
            return Ok(Word::Ours);
        }
        not(&format!("{} at {}, which is not what the flags say", listed.name, theirs.join(",")))
    }
}

fn sorted(mut list: Vec<String>) -> Vec<String> {
    list.sort_unstable();
    list
}

/// Another cluster runs, and has this member. The ways out.
pub(super) fn elsewhere(options: &Options, known: &Elsewhere) -> String {
    let Elsewhere { by, cluster, own } = known;
    let state = "--initial-cluster-state new would make it a member of another cluster";
    if own.name.is_empty() && own.client_urls.is_empty() {
        return format!(
            "member {:x} was added to cluster {cluster:x}, says the member at {by}, and {state}: start it with \
             `--initial-cluster-state existing` and the `--initial-cluster` that `member add` printed",
            own.id
        );
    }
    format!(
        "member {:x} has already been bootstrapped: it is in cluster {cluster:x}, says the member at {by}, and the \
         data directory {} is empty; {state}. Put its directory back, or correct --data-dir. If it is lost: {}",
        own.id,
        options.data_dir.display(),
        way_out(own.id, &options.name, &own.peer_urls),
    )
}
