//! Where kvorum differs from etcd on purpose: the list that `docs/compat.md`
//! explains. An answer that differs in any other way is a finding.
//!
//! Beside these, the comparison itself leaves out what no client can rely on:
//! the value of `Hash`, sizes and raft indexes of `Status`, where `RangeStream`
//! cuts its chunks, the order of `LeaseLeases`, how many revisions a watch that
//! is behind gets at once, and whether a progress request is dropped.

use super::step::Step;

/// Why these two answers may differ; `None` for a finding.
pub fn reason(_step: &Step, _left: &str, _right: &str) -> Option<&'static str> {
    None
}
