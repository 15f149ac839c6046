//! `bbolt check`: whether the pages of a bbolt file make a whole.

use crate::call::{Call, Failure};
use crate::etcd;

pub fn check(call: &Call) -> Result<(), Failure> {
    let db = etcd::open(call, &call.args()[0])?;
    let findings = db.check();
    if findings.is_empty() {
        println!("OK");
        return Ok(());
    }
    for finding in &findings {
        println!("{finding}");
    }
    Err(Failure::new(format!("{} errors found", findings.len())))
}
