//! Socket activation: sockets that systemd, or a launcher that does as it
//! does, has bound for us. See sd_listen_fds(3).

use super::Listener;
use crate::sys;
use std::env;
use std::process;

/// A socket that was handed to us, and the name that the launcher gave it.
pub type Inherited = (Listener, String);

/// Takes the sockets over that were handed to this process; none if nobody
/// has done so. To be called once, before anything else opens a descriptor.
///
/// # Errors
///
/// A message that names what is wrong with which of them.
pub fn inherited_sockets() -> Result<Vec<Inherited>, String> {
    let variable = |name| env::var(name).ok();
    if variable("LISTEN_PID") != Some(process::id().to_string()) {
        return Ok(Vec::new());
    }
    let count = count(&variable("LISTEN_FDS").unwrap_or_default())?;
    let names = variable("LISTEN_FDNAMES").unwrap_or_default();
    let names = names.split(':').chain(std::iter::repeat(""));
    let mut sockets = Vec::new();
    for (index, name) in (0..count).zip(names) {
        let socket = sys::inherited_descriptor(index).and_then(Listener::on);
        let socket = socket.map_err(|error| match name {
            "" => format!("taking over inherited socket {index}: {error}"),
            name => format!("taking over inherited socket {index} ({name}): {error}"),
        })?;
        sockets.push((socket, name.into()));
    }
    Ok(sockets)
}

fn count(text: &str) -> Result<u16, String> {
    text.parse()
        .map_err(|_| format!("invalid number of inherited sockets in LISTEN_FDS: {text}"))
}
