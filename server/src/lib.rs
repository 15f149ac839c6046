//! The process of one member.

pub mod core;
pub mod intake;
pub mod readers;
pub mod settings;
