//! Disks with so much room, and lanes that try again while there is none.

use super::{CLUSTER, Cluster};
use disk::checkpoint::{self, Manifest};
use disk::{Files, Identity, records};
use node::{Input, Job, JobId, work};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::mem::discriminant;
use std::sync::Arc;

/// Ticks until a lane tries again.
const AGAIN: u64 = work::FULL_AGAIN_MS / node::TICK_MS;

impl Cluster {
    /// True if `words` are one of these: `space 1 100` (KiB that may still be used), `space 1`
    /// (tells it), `losedir 1 log` (a folder is gone, with what was in it), `failcalls 1` (every
    /// call fails from now on), `healcalls 1`.
    pub fn disk_command(&mut self, words: &[&str]) -> bool {
        match words {
            ["space", id, kib] => {
                let kib: u64 = kib.parse().expect("KiB");
                self.machines[&id.parse().expect("id")].files.set_space(kib << 10);
            }
            ["space", id] => {
                let left = self.machines[&id.parse().expect("id")].files.space().expect("it has a bound");
                let _ = writeln!(self.told, "{id}: {} KiB are free", left >> 10);
            }
            ["losedir", id, dir] => self.machines[&id.parse().expect("id")].files.lose_dir(dir),
            ["failcalls", id] => {
                self.machines[&id.parse().expect("id")].files.fail_after(0, std::io::ErrorKind::Other);
            }
            ["healcalls", id] => self.machines[&id.parse().expect("id")].files.heal(),
            _ => return false,
        }
        true
    }

    /// Which segment files have a seek table behind their records.
    pub fn tell_segments(&mut self, id: u64) {
        let machine = &self.machines[&id];
        let files = machine.files.shared();
        let mut ends = BTreeMap::new();
        for index in checkpoint::manifests(&*files).expect("readable") {
            let path = format!("state/manifest-{index:016x}");
            let manifest = Manifest::decode(&path, &machine.files.bytes(&path).into()).expect("readable");
            ends.extend(manifest.segments.iter().map(|file| (file.segment, file.len)));
        }
        ends.extend(machine.node.segments_in_files().iter().map(|used| (used.id, used.end)));
        let sealed = |segment: &u32| {
            ends.get(segment).is_some_and(|end| records::sealed(&*files, *segment, *end).expect("readable"))
        };
        let ids = records::list(&*files).expect("readable");
        let (closed, open): (Vec<u32>, Vec<u32>) = ids.into_iter().partition(sealed);
        let _ = writeln!(self.told, "{id}: segments {closed:?} have a seek table, {open:?} have none");
    }

    /// Lanes whose first job found no room try again.
    pub fn lanes_again(&mut self) {
        let due = self.now.is_multiple_of(AGAIN);
        let bounded = self.machines.iter().filter(|(_, m)| due && !m.down && m.files.space().is_some());
        for id in bounded.map(|(id, _)| *id).collect::<Vec<_>>() {
            let mut lanes = self.machines[&id].stalled.clone();
            lanes.dedup();
            lanes.into_iter().for_each(|lane| self.lane_again(id, lane));
            self.deliver();
        }
    }

    fn lane_again(&mut self, id: u64, lane: std::mem::Discriminant<node::Job>) {
        loop {
            let machine = self.machines.get_mut(&id).expect("member");
            let Some(at) = machine.kept.iter().position(|(_, work)| discriminant(work) == lane) else {
                // What came meanwhile waited behind it.
                return machine.stalled.retain(|stalled| *stalled != lane);
            };
            let (job, work) = machine.kept.remove(at);
            let files: Arc<dyn Files> = machine.files.shared();
            let config = store::Config { segment_bytes: machine.config.segment_bytes };
            let whose = work::Whose { id: Identity { cluster: super::CLUSTER, member: id }, config };
            match work::run(&mut machine.log, &*files, whose, work) {
                work::Ran::Done(result) => self.input(id, Input::Done { job, result }),
                work::Ran::Full { job: work, .. } => return machine.kept.insert(at, (job, work)),
            }
        }
    }

    pub(super) fn work(&mut self, id: u64, job: JobId, work: Job) {
        let machine = self.machines.get_mut(&id).expect("member");
        let files: Arc<dyn Files> = machine.files.shared();
        let config = store::Config { segment_bytes: machine.config.segment_bytes };
        let whose = work::Whose { id: Identity { cluster: CLUSTER, member: id }, config };
        let ran = work::run(&mut machine.log, &*files, whose, work);
        let mut out = Vec::new();
        match ran {
            work::Ran::Done(result) => machine.node.step(Input::Done { job, result }, &mut out),
            work::Ran::Full { job: work, fault } => {
                machine.stalled.push(discriminant(&work));
                machine.kept.push((job, work));
                machine.node.step(Input::Stalled { job, fault }, &mut out);
            }
        }
        self.carry_out(id, out);
        self.settle(id);
    }

    /// What a job's end asks for comes behind what waits already.
    pub(super) fn work_in_order(&mut self, id: u64) {
        let machine = self.machines.get_mut(&id).expect("member");
        if std::mem::replace(&mut machine.busy, true) {
            return;
        }
        while let Some((job, work)) = self.machines.get_mut(&id).expect("member").behind.pop_front() {
            self.work(id, job, work);
        }
        self.machines.get_mut(&id).expect("member").busy = false;
    }
}
