//! Which founding members are of, and what they tell each other of it when they are connected.

use super::{Cluster, Machine, Wire};
use node::Input;
use std::collections::BTreeSet;
use std::fmt::Write;

#[derive(Default)]
pub struct Foundings {
    /// Pairs of members that are connected: each has said to the other which founding it is of.
    pub connected: BTreeSet<Wire>,
    /// Members of a version that knows of no founding.
    old: BTreeSet<u64>,
    /// Leaders name no founding, as before foundings had names.
    pub nameless: bool,
}

impl Foundings {
    /// The process of a member ended, and its connections with it.
    pub fn ended(&mut self, id: u64) {
        self.connected.retain(|wire| wire.from != id && wire.to != id);
    }
}

impl Cluster {
    /// Commands about foundings. False: it is none of them.
    pub fn founding_command(&mut self, words: &[&str]) -> bool {
        let number = |word: &str| word.parse::<u64>().expect("an id");
        match words {
            ["nameless"] => self.foundings.nameless = true,
            ["named"] => self.foundings.nameless = false,
            ["old", id] => drop(self.foundings.old.insert(number(id))),
            ["new", id] => drop(self.foundings.old.remove(&number(id))),
            ["founding", id] => {
                let founding = self.machines[&number(id)].node.founding();
                let _ = writeln!(self.told, "{id}: founding {founding}");
            }
            _ => return false,
        }
        true
    }

    /// Connects two members before the first frame between them: each hears which founding the
    /// other is of.
    pub fn connect(&mut self, a: u64, b: u64) {
        let up = |id| self.machines.get(&id).is_some_and(|machine: &Machine| !machine.down);
        if !up(a) || !up(b) || !self.foundings.connected.insert(Wire { from: a.min(b), to: a.max(b) }) {
            return;
        }
        let says = |id: u64| (!self.foundings.old.contains(&id)).then(|| self.machines[&id].node.founding());
        for (to, peer, founding) in [(a, b, says(b)), (b, a, says(a))] {
            let machine = self.machines.get_mut(&to).expect("member");
            if machine.paused(self.now) {
                machine.inbox.push(Input::Met { peer, founding });
                continue;
            }
            let mut out = Vec::new();
            machine.node.step(Input::Met { peer, founding }, &mut out);
            self.carry_out(to, out);
            self.settle(to);
        }
    }
}
