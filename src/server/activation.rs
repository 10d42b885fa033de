//! Socket activation: sockets that systemd, or another launcher that works in
//! the same way, has bound for us. See sd_listen_fds(3).

use super::Listener;
use crate::sys;
use std::env;
use std::process;

/// A socket that was handed to us, and the name that the launcher gave it.
pub type Inherited = (Listener, String);

/// Takes over the sockets that were handed to this process, if there are any.
/// To be called once, before anything else opens a descriptor.
///
/// # Errors
///
/// A message that names the socket and what is wrong with it.
pub fn inherited_sockets() -> Result<Vec<Inherited>, String> {
    let variable = |name| env::var(name).ok();
    if variable("LISTEN_PID") != Some(process::id().to_string()) {
        return Ok(Vec::new());
    }
    let count = variable("LISTEN_FDS").unwrap_or_default();
    let count: u16 = count
        .parse()
        .map_err(|_| format!("invalid number of inherited sockets in LISTEN_FDS: {count}"))?;
    let names = variable("LISTEN_FDNAMES").unwrap_or_default();
    // They go into lines of the log.
    let names = names.replace(char::is_control, "?");
    let names = names.split(':').chain(std::iter::repeat(""));
    let mut sockets = Vec::new();
    for (index, name) in (0..count).zip(names) {
        let socket = sys::inherited_descriptor(index).and_then(Listener::on);
        let failed = |error| format!("taking over inherited socket {index}: {error}");
        sockets.push((socket.map_err(failed)?, name.into()));
    }
    Ok(sockets)
}
