//! The attacks. Each is a function that some threads run until they are told to stop.

mod calls;
mod http1;
mod http2;
mod limits;
mod list;
mod paths;
mod peers;
mod storms;

pub(super) use list::{ALL, Attack, On, chosen};
