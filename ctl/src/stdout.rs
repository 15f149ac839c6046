//! Standard output, for all that is said there.

use std::io::Write;

use crate::exit::{Failure, Outcome};

/// Writes to standard output. A reader that has gone away ends the program
/// quietly, as it ends any tool in a pipe.
///
/// # Errors
/// If standard output fails.
pub fn say(text: &str) -> Outcome {
    write(text.as_bytes())
}

pub(crate) fn write(bytes: &[u8]) -> Outcome {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|e| match e.kind() {
        std::io::ErrorKind::BrokenPipe => Failure::Silent(141),
        _ => Failure::io(&e),
    })
}
