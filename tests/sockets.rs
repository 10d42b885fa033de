//! The real server with real clients: many of them, slow ones, and ones that
//! vanish; how the server starts, and how it ends.
//!
//! What a command answers is told by the transcripts. Here it is about what
//! threads and sockets add: that every job is delivered once, that nobody is
//! held up by others, and that replies come in one piece.

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
