//! What client and server share of TLS: the algorithms, certificates and keys out of files, whom
//! the system trusts, and what a certificate says.
//!
//! For `server` and `client`, which make their configurations of rustls with it. It opens no socket
//! and reads a file only when it is told to. rustls's default for the process is never used.

mod anyone;
mod facts;
mod files;
mod named;
mod p521;

pub use anyone::Anyone;
pub use facts::{Facts, Unreadable, is_valid_for, revoked_serials};
pub use files::{Fault, certificates, private_key, roots, system_roots};
pub use named::{Named, of_authority};
pub use p521::provider;
