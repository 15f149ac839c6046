//! `kvorum utl cut-tail`: the operator's word for a lone member that does not start on the end of
//! its log. Without `--yes` it only shows what would be cut.

use crate::call::{Call, Failure};
use crate::directory::New;
use crate::etcd::go_text;
use crate::kvorum::{self, log_options};
use disk::{Doubt, Files, Identity};
use node::offline::cut_tail;
use std::path::Path;
use std::sync::Arc;

pub fn run(call: &Call) -> Result<(), Failure> {
    let dir = call.text("data-dir");
    // The lock of the look is given up before the real one is taken.
    let (id, found) = {
        let looked = kvorum::open(Path::new(dir))?;
        (looked.identity, cut(dir, &looked.files, looked.identity)?)
    };
    let Some(doubt) = found else {
        println!("{dir}: nothing to cut: a member starts on this log");
        return Ok(());
    };
    if !call.switch("yes") {
        print("would be cut", &doubt);
        return Err(Failure::new(format!(
            "{dir}: nothing was changed; --yes cuts it for good (copy the directory first)"
        )));
    }
    let real = New::open(Path::new(dir)).map_err(|error| Failure::new(format!("{dir}: {}", go_text(&error))))?;
    match cut(dir, &(Arc::new(real) as Arc<dyn Files>), id)? {
        Some(doubt) => print("was cut", &doubt),
        None => println!("{dir}: nothing to cut: a member starts on this log"),
    }
    Ok(())
}

/// What is not proven to be a torn write; a start cuts that by itself.
fn cut(dir: &str, files: &Arc<dyn Files>, id: Identity) -> Result<Option<Doubt>, Failure> {
    let doubt = cut_tail(files, id, log_options(id)).map_err(|fault| Failure::new(format!("{dir}/{fault}")))?;
    Ok(doubt.filter(|doubt| !doubt.proven_tear))
}

fn print(done: &str, doubt: &Doubt) {
    println!("{} at byte {}: {done}: {}", doubt.at.file, doubt.at.offset, doubt.at.what);
    match doubt.promise {
        Some(at) => {
            println!("it may have held log entries up to {} of term {}, acknowledged ones too", at.index, at.term)
        }
        None => println!("what it held is not known"),
    }
}
