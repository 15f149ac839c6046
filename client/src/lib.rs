//! A client of the store: of kvorum, and of any etcd v3.
//!
//! It is for programs in this house (command line, load generator, tests) and
//! for whoever wants a small client with clear rules about failure:
//!
//! - **Failover.** A client knows several endpoints and stays with one while it
//!   works. A failed connection moves it on to the next.
//! - **Retry of what is safe.** A request that certainly was not sent is sent
//!   again, whatever it is. A read that failed for want of a server or a leader
//!   is repeated on the next endpoint. A write that may have been sent is never
//!   repeated: its error says so ([`Error::maybe_done`]).
//! - **Watches** ([`Client::watch`]) go on after a failure where they stopped,
//!   by revision: no event is lost or given twice, and revisions stay whole.
//!
//! Everything is typed by the messages of [`wire`]; what has no function of its
//! own is reached by [`Client::call`], and any path at all by [`Client::raw`].
//!
//! It refuses: caching, a key-space of its own on top of the store, and a
//! choice of runtime other than tokio.
//!
//! ```no_run
//! # async fn example() -> Result<(), client::Error> {
//! use client::{Client, wire::etcdserverpb::WatchCreateRequest};
//!
//! let client = Client::new(["127.0.0.1:2379", "127.0.0.1:22379"])?;
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

mod call;
mod codec;
mod endpoints;
mod error;
mod kv;
mod lease;
mod maintenance;
mod range;
mod resume;
mod watch;

pub use wire;

pub use call::{Responses, Settings};
pub use error::{Error, Result};
pub use kv::RangeStream;
pub use lease::KeepAlive;
pub use range::{KeyRange, from_key, key, prefix};
pub use resume::Batch;
pub use watch::Watcher;

use std::sync::Arc;

use endpoints::Endpoints;

/// A handle on a cluster. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Client {
    endpoints: Arc<Endpoints>,
    settings: Arc<Settings>,
}

impl Client {
    /// A client of the members at these endpoints: `host:port` or
    /// `http://host:port`. Nothing is connected before the first request.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if one is not an address or none is given.
    pub fn new<E: AsRef<str>>(endpoints: impl IntoIterator<Item = E>) -> Result<Client> {
        Client::with_settings(endpoints, Settings::default())
    }

    /// Like [`Client::new`], with other times and metadata.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if an endpoint is not an address or none is given.
    pub fn with_settings<E: AsRef<str>>(endpoints: impl IntoIterator<Item = E>, settings: Settings) -> Result<Client> {
        let endpoints = Endpoints::new(endpoints, &settings)?;
        Ok(Client { endpoints: Arc::new(endpoints), settings: Arc::new(settings) })
    }

    /// The endpoints, as they were given, completed.
    pub fn endpoints(&self) -> Vec<String> {
        self.endpoints.addresses()
    }

    /// A client of one member alone: for questions whose answer is a member's
    /// own, such as its status.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if it is not an address.
    pub fn at(&self, endpoint: &str) -> Result<Client> {
        let endpoints = Endpoints::new([endpoint], &self.settings)?;
        Ok(Client { endpoints: Arc::new(endpoints), settings: Arc::clone(&self.settings) })
    }
}
