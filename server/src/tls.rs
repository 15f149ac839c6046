//! Encryption of the ports, and of what this member dials.
//!
//! What the flags ask for is a [`Wish`], one for clients and one for peers. [`Port`] is what a
//! listener needs of it, [`Dialler`] what a connection to a peer needs. Both look at their files
//! before each handshake and read them anew when one has changed (`reload`). Handshakes run on a
//! thread of their own (`handshakes`), so that no storm of them delays the connections that stand.
//!
//! The rules are etcd's: a trusted CA asks for a certificate of every caller; a revocation list
//! counts by its serials; a peer's certificate must fit the address it comes from (`origin`).

mod ciphers;
mod config;
mod handshakes;
mod made;
mod origin;
mod reload;
mod texts;
mod unfit;
mod wish;

pub(crate) use config::{Dialler, Port};
pub(crate) use handshakes::{Caller, Handshakes, Met, Moving, Shaken};
pub(crate) use made::Made;
pub(crate) use origin::speaks_for;
pub(crate) use texts::in_gos_words;
pub(crate) use wish::{Own, Wish, wishes, without_certificate};

/// What a listener takes.
#[derive(Clone)]
pub(crate) enum Security {
    /// Nothing encrypted.
    Plain,
    /// Nothing in the clear.
    Tls(Handshakes),
    /// Both, told apart by the first byte.
    Both(Handshakes),
}

/// What is known of the client of an encrypted connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Secured {
    /// The CN of the certificate that it showed and that was verified; None: it showed none, or one
    /// without.
    pub(crate) common_name: Option<std::sync::Arc<str>>,
}
