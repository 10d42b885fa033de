//! Notifies the service manager of our state. See sd_notify(3).

use crate::log;
use std::env;
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::time::Duration;

/// How long the service manager may take to make room for a message. Meanwhile the main
/// thread handles no signal.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);

/// Sends the service manager our state, as its protocol has it: `READY=1`,
/// `STATUS=` and a text for people, `STOPPING=1`, or `WATCHDOG=1`, which means
/// that we are well. If no service manager asked for this, nothing happens. If it does not
/// take the message in time, that is logged.
pub fn send(state: &str) {
    let name = env::var_os("NOTIFY_SOCKET").unwrap_or_default();
    let address = match name.as_encoded_bytes() {
        [] => return,
        // A socket without a file, which only Linux has.
        #[cfg(target_os = "linux")]
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&name),
    };
    let send = |address| {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(TAKEN_WITHIN))?;
        socket.send_to_addr(state.as_bytes(), &address)
    };
    if let Err(error) = address.and_then(send) {
        log::warning(format_args!(
            "telling the service manager through NOTIFY_SOCKET: {error}"
        ));
    }
}

/// How often to notify the service manager that we are healthy; `None`: never.
pub fn pulse_interval() -> Option<Duration> {
    interval(|name| env::var(name).ok())
}

fn interval(variable: impl Fn(&str) -> Option<String>) -> Option<Duration> {
    if variable("WATCHDOG_PID").is_some_and(|pid| pid != process::id().to_string()) {
        return None;
    }
    let micros = variable("WATCHDOG_USEC")?.parse().ok()?;
    // This is twice as often as needed, so that one message may be late.
    Some(Duration::from_micros(micros) / 2).filter(|interval| !interval.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_notified_twice_per_interval_if_it_watches_this_process() {
        let asked = |micros: &str, pid: Option<u32>| {
            interval(|name| match name {
                "WATCHDOG_USEC" => Some(micros.into()),
                _ => pid.map(|pid| pid.to_string()),
            })
        };
        let ours = process::id();
        let half = Some(Duration::from_millis(10));
        assert_eq!(asked("20000", None), half);
        assert_eq!(asked("20000", Some(ours)), half);
        assert_eq!(asked("20000", Some(ours + 1)), None);
        assert_eq!(asked("0", None), None);
    }
}
