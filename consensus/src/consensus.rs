//! The facade itself.
use crate::*;
use bytes::Bytes;

/// One member's consensus.
pub struct Consensus {}

#[allow(unused_variables)]
impl Consensus {
    pub fn new(config: Config, restored: Restored) -> Consensus { unimplemented!() }
    pub fn tick(&mut self) { unimplemented!() }
    pub fn step(&mut self, message: Message) { unimplemented!() }
    pub fn propose(&mut self, data: Bytes) -> Result<(), Refused> { unimplemented!() }
    pub fn propose_change(&mut self, change: &ConfChange) -> Result<(), Refused> { unimplemented!() }
    pub fn read(&mut self, token: u64) { unimplemented!() }
    pub fn transfer(&mut self, to: u64) -> Result<(), Refused> { unimplemented!() }
    pub fn campaign(&mut self) { unimplemented!() }
    pub fn turn(&mut self, out: &mut Turn) { unimplemented!() }
    pub fn saved(&mut self, number: u64) { unimplemented!() }
    pub fn applied(&mut self, index: u64) { unimplemented!() }
    pub fn fetched(&mut self, ticket: u64, entries: Vec<Entry>) { unimplemented!() }
    pub fn offer_snapshot(&mut self, snapshot: Snapshot) { unimplemented!() }
    pub fn snapshot_sent(&mut self, to: u64, ok: bool) { unimplemented!() }
    pub fn unreachable(&mut self, peer: u64) { unimplemented!() }
    pub fn installed(&mut self, snapshot: &Snapshot) { unimplemented!() }
    pub fn abandon_install(&mut self) { unimplemented!() }
    pub fn compact_cache(&mut self, below: u64) { unimplemented!() }
    pub fn conf_applied(&mut self, change: &ConfChange) -> ConfState { unimplemented!() }
    pub fn conf_refused(&mut self) { unimplemented!() }
    pub fn step_down(&mut self) { unimplemented!() }
    pub fn status(&self) -> Status { unimplemented!() }
}
