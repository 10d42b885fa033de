//! The part of HTTP/1.1 that `metrics --listen` and `console` need: one request
//! for each connection, with a body of a known length or none.
//!
//! Each connection has a thread. Their number is bounded: if one more comes,
//! the connection that has been silent for longest makes room. So whoever opens
//! connections and sends nothing takes nobody's place, and no number of clients
//! makes this program grow. [`connections`] knows who waits and who is served,
//! and [`wire`] reads requests and writes answers within a bounded time. The
//! heads are read by the package httparse.
//!
//! It leaves out connections that stay open, encodings of bodies, and TLS.

mod connections;
mod message;
mod query;
mod wire;

pub use connections::{bind, serve, url};
pub use message::{Answer, Request, Site, Status};
pub use query::parameters;
