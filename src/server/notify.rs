//! Tells the service manager how we are. See sd_notify(3).

use crate::log;
use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::time::Duration;

/// Where to tell it, if anybody wants to know.
pub struct ServiceManager(Option<(UnixDatagram, SocketAddr)>);

impl ServiceManager {
    /// The one that has started us, if it has asked to be told.
    pub fn from_environment() -> ServiceManager {
        let name = env::var_os("NOTIFY_SOCKET");
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return ServiceManager(None);
        };
        let open = || -> io::Result<_> {
            let address = match name.as_encoded_bytes() {
                [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name)?,
                _ => SocketAddr::from_pathname(&name)?,
            };
            Ok((UnixDatagram::unbound()?, address))
        };
        ServiceManager(open().map_err(|error| complain(&error)).ok())
    }

    /// Clients are answered from now on.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// What we are doing, for people to read.
    pub fn status(&self, status: &str) {
        self.tell(&format!("STATUS={status}"));
    }

    /// We are ending.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=Stopping");
    }

    /// We are well.
    pub fn pulse(&self) {
        self.tell("WATCHDOG=1");
    }

    /// How often it wants to hear that we are well; `None`: never.
    pub fn pulse_interval() -> Option<Duration> {
        let variable = |name| env::var(name).ok();
        if variable("WATCHDOG_PID").is_some_and(|pid| pid != process::id().to_string()) {
            return None;
        }
        let micros = variable("WATCHDOG_USEC")?.parse().ok()?;
        // Twice as often as would do, so that once may be late.
        Some(Duration::from_micros(micros) / 2).filter(|interval| !interval.is_zero())
    }

    fn tell(&self, what: &str) {
        let Some((socket, address)) = &self.0 else {
            return;
        };
        if let Err(error) = socket.send_to_addr(what.as_bytes(), address) {
            complain(&error);
        }
    }
}

fn complain(error: &io::Error) {
    log::warning(format_args!(
        "telling the service manager through NOTIFY_SOCKET: {error}"
    ));
}
