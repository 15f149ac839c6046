//! A client of the store: of kvorum, and of any etcd v3.
//!
//! It is for programs in this house (command line, load generator, tests) and
//! for whoever wants a small client with clear rules about failure:
//!
//! - **Failover.** A client knows several endpoints. It stays with one while it
//!   works, or goes round ([`Spread`]); one that fails rests for a while and
//!   the next takes over. No request is sent to a server that has not spoken.
//! - **Retry of what is safe.** A request that certainly was not sent, or that
//!   was refused before anything was done, is sent again, whatever it is. A
//!   read that failed for want of a server or a leader is repeated on the next
//!   endpoint. A write that may have been done is never repeated: its error
//!   says so ([`Error::maybe_done`]).
//! - **Watches** ([`Client::watch`]) go on after a failure where they stopped,
//!   by revision: no event is lost or given twice, and revisions stay whole.
//! - **Leases** ([`Client::keep_alive`]) are renewed through failures, and
//!   **locks and elections** ([`concurrency`]) hang on them: they stand in one
//!   queue with those of etcd's own clients.
//! - **Users and certificates** ([`Options`]): a token is got with a password,
//!   and replaced when the server no longer takes it.
//!
//! Everything is typed by the messages of [`wire`]; what has no function of its
//! own is reached by [`Client::call`], and any path at all by [`Client::raw`].
//! Errors keep the code and the text of the server; [`Error::etcd_text`] is
//! what etcd's own client would say.
//!
//! It refuses: caching, a key-space of its own on top of the store, and a
//! choice of runtime other than tokio.
//!
//! These examples run against the server that `KVORUM_TEST_ENDPOINTS` names, when
//! the tests do.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), client::Error> {
//! # let Ok(servers) = std::env::var("KVORUM_TEST_ENDPOINTS") else { return Ok(()) };
//! # let servers = servers.split(',');
//! use client::{Client, wire::etcdserverpb::WatchCreateRequest};
//!
//! # /*
//! let servers = ["127.0.0.1:2379", "127.0.0.1:22379"];
//! # */
//! let client = Client::new(servers)?;
//! let put = client.put("config/colour", "green").await?;
//! assert_eq!(&client.get("config/colour").await?.unwrap().value[..], b"green");
//!
//! let mut watcher = client.watch(WatchCreateRequest {
//!     start_revision: put.header.unwrap_or_default().revision,
//!     ..client::prefix("config/").into()
//! });
//! let batch = watcher.next().await?;
//! assert_eq!(batch.events.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! With encryption and a user, which cost nothing until the first request:
//!
//! ```
//! use client::{Client, Credentials, Options, Tls};
//! use std::time::Duration;
//!
//! let options = Options {
//!     request_timeout: Some(Duration::from_secs(5)),
//!     tls: Some(Tls { insecure_skip_verify: true, ..Tls::default() }),
//!     user: Some(Credentials { name: "ann".into(), password: "secret".into() }),
//!     ..Options::of(["https://db1.example:2379", "https://db2.example:2379"])
//! };
//! let client = Client::connect(options)?;
//! assert_eq!(client.endpoints()[1], "https://db2.example:2379");
//! # Ok::<(), client::Error>(())
//! ```

#![warn(missing_docs, unreachable_pub, clippy::missing_errors_doc)]

mod address;
mod auth;
mod call;
mod cluster;
pub mod codec;
pub mod concurrency;
mod connector;
mod discovery;
mod endpoints;
mod error;

mod kv;
mod lease;
mod maintenance;
mod named;
mod options;
mod p521;
mod page;
mod range;
mod resume;
mod services;
mod snapshot;
mod tls;
mod token;
mod watch;

pub use wire;

pub use auth::PermissionType;
pub use call::Responses;
pub use discovery::Discovery;
pub use error::{Error, Result};
pub use kv::RangeStream;
pub use lease::KeepAlive;
pub use options::{Credentials, Options, Spread, Tls};
pub use range::{KeyRange, from_key, key, prefix};
pub use resume::Batch;
pub use snapshot::Snapshot;
pub use watch::Watcher;

use std::{sync::Arc, time::Duration};

use endpoints::Endpoints;
use token::Token;

/// A handle on a cluster. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Client {
    endpoints: Arc<Endpoints>,
    token: Arc<Token>,
    options: Arc<Options>,
}

impl Client {
    /// A client as these options say. Nothing is connected before the first
    /// request; files of certificates are read at once.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if an endpoint is not an address or none is given,
    /// [`Error::Setup`] if a file is of no use.
    pub fn connect(options: Options) -> Result<Client> {
        Ok(Client {
            endpoints: Arc::new(Endpoints::new(&options)?),
            token: Arc::new(Token::new(&options)),
            options: Arc::new(options),
        })
    }

    /// A client of the members at these endpoints, with the default options.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn new<E: AsRef<str>>(endpoints: impl IntoIterator<Item = E>) -> Result<Client> {
        Client::connect(Options::of(endpoints.into_iter().map(|e| e.as_ref().to_owned())))
    }

    /// The endpoints, as they were given, completed by a scheme.
    pub fn endpoints(&self) -> Vec<String> {
        self.endpoints.addresses()
    }

    /// What the client was made with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// A client of one member alone, with a connection of its own and the same
    /// token: for questions whose answer is a member's own, such as its status.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn single(&self, endpoint: &str) -> Result<Client> {
        let options = Options { endpoints: vec![endpoint.to_owned()], ..Options::clone(&self.options) };
        Ok(Client {
            endpoints: Arc::new(Endpoints::new(&options)?),
            token: Arc::clone(&self.token),
            options: Arc::new(options),
        })
    }

    /// The same client, with the same connections, and another time for each
    /// request; `None` waits for ever.
    #[must_use]
    pub fn with_request_timeout(&self, request_timeout: Option<Duration>) -> Client {
        let options = Options { request_timeout, ..Options::clone(&self.options) };
        Client { options: Arc::new(options), ..self.clone() }
    }
}
