//! Golden scripts of whole members.
//!
//! A script drives a cluster without faults: jobs are done at once, frames arrive in order.
//! The simulator is where disks and networks misbehave; here one reads how a member behaves.

mod cluster;

use cluster::Cluster;
use testkit::golden;

#[test]
fn scripts_tell_what_members_do() {
    golden::folder(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts"), |text| {
        let mut cluster = Cluster::default();
        golden::lines(text, |line| cluster.command(line))
    });
}
