//! What the tests of several crates share: golden scripts ([`golden`]), a disk in memory
//! ([`files`]), chance from a seed ([`Dice`]), masks of what differs from run to run ([`masks`]),
//! and servers that end with their test ([`servers`]).
//! For tests alone: no crate of the product depends on it.

mod dice;
pub mod files;
pub mod golden;
pub mod masks;
pub mod servers;

pub use dice::Dice;
