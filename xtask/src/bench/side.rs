//! The programs that are measured beside each other.

use crate::server::Program;

/// One of the programs compared.
#[derive(Clone, Debug)]
pub struct Side {
    /// As the tables call it.
    pub name: String,
    /// Its binary.
    pub program: Program,
}
