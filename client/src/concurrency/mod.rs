//! Locks and elections that the client does itself, with transactions, as
//! etcd's Go client does them: same keys (`name/` and the lease in hex), same
//! order (that of the create revisions), so that both stand in one queue.
//!
//! All of them hang on a [`Session`]: a lease that is kept alive. When it is
//! lost, so is everything held under it; [`Session::lost`] says when.
//!
//! Having a lock is a belief: between looking and doing, the lease may run
//! out. Who writes to the store itself puts [`Held::is_owner`] among the
//! comparisons of the transaction; who writes elsewhere passes
//! [`Held::revision`] along as a fencing token and has older ones refused there.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), client::Error> {
//! # let Ok(servers) = std::env::var("KVORUM_TEST_ENDPOINTS") else { return Ok(()) };
//! use client::{Client, concurrency::{Mutex, Session}};
//!
//! # let client = Client::new(servers.split(','))?;
//! # /*
//! let client = Client::new(["127.0.0.1:2379"])?;
//! # */
//! let session = Session::new(&client, 10).await?;
//! let held = Mutex::new(&session, "jobs/nightly").lock().await?;
//! println!("mine, with the fencing token {}", held.revision());
//! held.unlock().await?;
//! session.close().await?;
//! # Ok(())
//! # }
//! ```

mod election;
mod mutex;
mod queue;
mod session;

pub use election::{Election, Leadership, Observer};
pub use mutex::{Held, Mutex};
pub use session::Session;
