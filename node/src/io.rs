//! What goes into a member and what comes out of it. The server's loop and the
//! simulator's loop are two drivers of the same [`crate::Node`].
//!
//! ```text
//! loop {
//!     for input in queue { node.step(input, &mut out); }   // many inputs …
//!     node.flush(&mut out);                                 // … one turn: one save, one read round
//!     for output in out.drain(..) { carry it out }
//! }
//! ```
//!
//! Outputs must be carried out in order. The order that matters: `Send` of appends
//! stands before the `LogJob::Save` of the same turn.

mod job;
mod output;
mod request;

pub use job::*;
pub use output::*;
pub use request::*;
