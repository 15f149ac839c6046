//! What a member counts beside its work, for the metrics of its driver.
//!
//! A driver that wants it reads it behind each turn; nothing grows when nobody does.

use store::{LeaseChange, Reply};

/// Totals since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Puts done, in transactions too.
    pub puts: u64,
    /// Bytes of the records of these puts.
    pub put_bytes: u64,
    /// Deletions of a key or a range done, in transactions too.
    pub deletes: u64,
    /// Ranges read in transactions.
    pub ranges: u64,
    /// Transactions with more than one operation.
    pub txns: u64,
    /// Leases that began.
    pub leases_granted: u64,
    /// Leases that ended: revoked, or run out.
    pub leases_ended: u64,
    /// Renewals, counted where this member led.
    pub leases_renewed: u64,
    /// Leases that ran out, counted where this member led.
    pub leases_expired: u64,
    /// Versions that compaction took out of the index.
    pub swept: u64,
    /// Compactions applied.
    pub compactions: u64,
    /// Read rounds that failed, or whose leader changed: their reads are asked again.
    pub read_rounds_failed: u64,
    /// Read rounds without an answer after half a second, each time that they are looked at.
    pub read_rounds_slow: u64,
}

impl Counted {
    /// Adds what an answer says was done, as etcd counts it: by operation, and a transaction if it
    /// did more than one.
    pub fn reply(&mut self, reply: &Reply) {
        let before = self.puts + self.deletes + self.ranges;
        self.operations(reply);
        let operations = self.puts + self.deletes + self.ranges - before;
        self.txns += u64::from(operations > 1);
    }

    fn operations(&mut self, reply: &Reply) {
        match reply {
            Reply::Put { .. } => self.puts += 1,
            Reply::Delete { .. } => self.deletes += 1,
            Reply::Range(_) => self.ranges += 1,
            Reply::Txn { responses, .. } => responses.iter().for_each(|response| self.operations(&response.reply)),
            _ => {}
        }
    }
}

/// One entry that was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deed {
    /// Field number of its command (`store::command::field`).
    pub command: u32,
    /// It was not refused.
    pub done: bool,
}

/// What is counted of one member.
#[derive(Debug, Default)]
pub struct Tally {
    /// Since start.
    pub counted: Counted,
    /// Entries applied in the last turn.
    pub deeds: Vec<Deed>,
    /// Seconds of the leases granted in the last turn.
    pub granted: Vec<i64>,
    /// The longest time that an entry waited between its commit and its apply in the last turn.
    /// Ticks.
    pub waited: u64,
}

impl Tally {
    /// A turn begins.
    pub(crate) fn begin(&mut self) {
        self.deeds.clear();
        self.granted.clear();
        self.waited = 0;
    }

    /// An entry was applied. `command`: None: it has none.
    pub(crate) fn applied(&mut self, command: Option<u32>, applied: &store::Applied) {
        let Some(command) = command else { return };
        self.deeds.push(Deed { command, done: applied.result.is_ok() });
        if let Ok(reply) = &applied.result {
            self.counted.reply(reply);
            self.counted.compactions += u64::from(matches!(reply, Reply::Compact));
        }
        let events = applied.events.iter().flat_map(|revision| &revision.events);
        let puts = events.filter(|event| !event.tombstone);
        self.counted.put_bytes += puts.map(|event| event.record.len() as u64).sum::<u64>();
        for change in &applied.leases {
            match change {
                LeaseChange::Granted { ttl, .. } => {
                    self.counted.leases_granted += 1;
                    self.granted.push(*ttl);
                }
                LeaseChange::Ended { .. } => self.counted.leases_ended += 1,
                LeaseChange::Checkpointed { .. } => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::OpReply;

    #[test]
    fn operations_are_counted_one_by_one() {
        let put = || Reply::Put { prev: None };
        let of = |replies: Vec<Reply>| Reply::Txn {
            succeeded: true,
            responses: replies.into_iter().map(|reply| OpReply { revision: 1, reply }).collect(),
        };
        let mut counted = Counted::default();
        counted.reply(&put());
        counted.reply(&of(vec![put()]));
        assert_eq!((counted.puts, counted.txns), (2, 0), "one operation is no transaction to etcd");
        counted.reply(&of(vec![put(), of(vec![Reply::Delete { deleted: 0, prevs: Vec::new() }])]));
        assert_eq!((counted.puts, counted.deletes, counted.txns), (3, 1, 1));
    }
}
