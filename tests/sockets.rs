//! The real server with real clients: with many of them, with slow ones, and
//! with ones that vanish. Also how the server starts, and how it ends.
//!
//! The transcripts show what each command answers. These tests are about what
//! threads and sockets add: every job is delivered once, no client is held up
//! by others, and each reply comes in one piece.

#[path = "sockets/client.rs"]
mod client;
#[path = "laboratory/port.rs"]
mod port;
#[path = "sockets/server.rs"]
mod server;

#[path = "sockets/bounds.rs"]
mod bounds;
#[path = "sockets/delivery.rs"]
mod delivery;
#[path = "sockets/listing.rs"]
mod listing;
#[path = "sockets/pieces.rs"]
mod pieces;
#[path = "sockets/signals.rs"]
mod signals;
#[path = "sockets/starting.rs"]
mod starting;
#[path = "sockets/waiting.rs"]
mod waiting;
