//! Who may ask, and who may change something.
//!
//! A page of another site must neither read what is here nor change it, even in
//! the browser of someone who may. Such a page can send requests here, but it
//! cannot read our answers, cannot set headers of its own and cannot hide its
//! origin. Its last way is a name of its own that suddenly means our address;
//! so the name that the browser asked for is checked, too.

use crate::failure::{Failure, Outcome};
use crate::http::{Request, Status};
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What is demanded of a request.
pub struct Guard {
    /// What every request for facts or changes must know, if anything.
    pub token: Option<String>,
    /// What a change must know: only our own page does.
    pub page_token: String,
    /// The names, beside `localhost` and addresses in numbers, by which
    /// browsers know this machine.
    names: Vec<String>,
}

/// Why a request is refused.
pub type Refusal = (Status, &'static str);

/// The header with the token of the page.
const PAGE_TOKEN: &str = "x-beanpole-page";

impl Guard {
    /// A guard for what listens there. Off the loopback there is always a
    /// token: that in the file, or a new one.
    pub fn new(listener: &TcpListener, file: Option<&Path>, names: Vec<String>) -> Outcome<Guard> {
        let bound = listener.local_addr();
        let bound = bound.map_err(|error| Failure::io("cannot learn the own address", error))?;
        let token = match file {
            Some(file) => Some(token_in(file)?),
            None if bound.ip().is_loopback() => None,
            None => Some(new_token()?),
        };
        let page_token = new_token()?;
        Ok(Guard {
            token,
            page_token,
            names,
        })
    }

    /// Whether the browser asked for us by a name that is ours. Nobody can give
    /// another meaning to an address in numbers.
    pub fn check_host(&self, request: &Request) -> Result<(), Refusal> {
        let host = request.header("host").and_then(name_in);
        let is_ours = host.is_some_and(|host| {
            let own = ["localhost"]
                .into_iter()
                .chain(self.names.iter().map(String::as_str));
            host.parse::<IpAddr>().is_ok()
                || own.into_iter().any(|name| name.eq_ignore_ascii_case(host))
        });
        match is_ours {
            true => Ok(()),
            false => Err((
                Status::Forbidden,
                "this host name is not known here: see --host",
            )),
        }
    }

    /// Whether the request knows the token, if there is one.
    pub fn check_token(&self, request: &Request) -> Result<(), Refusal> {
        let Some(token) = &self.token else {
            return Ok(());
        };
        let given = request.header("authorization");
        let given = given.and_then(|value| value.strip_prefix("Bearer "));
        match given.is_some_and(|given| is_same(given, token)) {
            true => Ok(()),
            false => Err((Status::Unauthorized, "the token is missing or wrong")),
        }
    }

    /// Whether a change was asked for by our own page.
    pub fn check_change(&self, request: &Request) -> Result<(), Refusal> {
        let given = request.header(PAGE_TOKEN);
        if !given.is_some_and(|given| is_same(given, &self.page_token)) {
            return Err((
                Status::Forbidden,
                "the page is not of this console: load it again",
            ));
        }
        let origin = request.header("origin");
        let origin = origin.and_then(|origin| origin.split_once("://"));
        let host = request.header("host");
        match origin.is_some_and(|(_, of)| host.is_some_and(|host| host.eq_ignore_ascii_case(of))) {
            true => Ok(()),
            false => Err((
                Status::Forbidden,
                "a page of another site may change nothing",
            )),
        }
    }
}

/// The name in `NAME` or `NAME:PORT`; an IPv6 address loses its brackets.
fn name_in(host: &str) -> Option<&str> {
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(rest) = host.strip_prefix('[') {
        let (name, rest) = rest.split_once(']')?;
        let port = rest.strip_prefix(':').or(rest.is_empty().then_some(""))?;
        return is_port(port).then_some(name);
    }
    let (name, port) = host.split_once(':').unwrap_or((host, ""));
    is_port(port).then_some(name)
}

/// Compares without telling by the time it takes how much is right.
fn is_same(given: &str, wanted: &str) -> bool {
    let pairs = given.bytes().zip(wanted.bytes());
    let difference = pairs.fold(0, |difference, (one, other)| difference | (one ^ other));
    given.len() == wanted.len() && difference == 0
}

/// The token in a file that only its owner can read.
fn token_in(path: &Path) -> Outcome<String> {
    let shown = path.display();
    let cannot = |error| Failure::io(format_args!("cannot read {shown}"), error);
    let mut file = File::open(path).map_err(cannot)?;
    if file.metadata().map_err(cannot)?.mode() & 0o077 != 0 {
        return Failure::refused(format!(
            "others may read {shown}: take that right away first (chmod 600)"
        ));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(cannot)?;
    let token = text.trim();
    match token.len() >= SHORTEST && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(token.into()),
        false => Failure::refused(format!(
            "{shown}: a token is {SHORTEST} or more characters of ASCII without spaces"
        )),
    }
}

const SHORTEST: usize = 16;

/// A token that nobody can guess: 128 bits.
fn new_token() -> Outcome<String> {
    let mut bytes = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes));
    read.map_err(|error| Failure::io("cannot read /dev/urandom", error))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(token: Option<&str>) -> Guard {
        Guard {
            token: token.map(String::from),
            page_token: "page".into(),
            names: vec!["queue.example".into()],
        }
    }

    fn request(headers: &[(&str, &str)]) -> Request {
        let owned = |(name, value): &(&str, &str)| (String::from(*name), String::from(*value));
        Request {
            headers: headers.iter().map(owned).collect(),
            ..Request::default()
        }
    }

    #[test]
    fn only_hosts_that_are_ours_are_answered() {
        let is_ours = |host: &str| guard(None).check_host(&request(&[("host", host)])).is_ok();
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1:1",
            "[::1]:8080",
            "[::1]",
            "10.1.2.3",
            "queue.example:80",
        ] {
            assert!(is_ours(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:8080",
            "localhost:80@evil",
            "[::1]x",
            "[::1",
            "queue.example:x",
            "::1",
        ] {
            assert!(!is_ours(host), "{host}");
        }
        assert!(guard(None).check_host(&request(&[])).is_err());
        let twice = [("host", "localhost"), ("host", "localhost")];
        assert!(guard(None).check_host(&request(&twice)).is_err());
    }

    #[test]
    fn a_token_is_demanded_if_there_is_one() {
        let with = |value: &str| {
            guard(Some("secret"))
                .check_token(&request(&[("authorization", value)]))
                .is_ok()
        };
        assert!(with("Bearer secret"));
        for wrong in [
            "secret",
            "Bearer",
            "Bearer ",
            "Bearer secre",
            "Bearer secrets",
            "Basic secret",
        ] {
            assert!(!with(wrong), "{wrong}");
        }
        assert!(guard(Some("secret")).check_token(&request(&[])).is_err());
        assert!(guard(None).check_token(&request(&[])).is_ok());
    }

    #[test]
    fn only_our_own_page_changes_something() {
        let may = |page: &str, origin: &str| {
            let headers = [
                ("host", "localhost:8080"),
                ("x-beanpole-page", page),
                ("origin", origin),
            ];
            guard(None).check_change(&request(&headers)).is_ok()
        };
        assert!(may("page", "http://localhost:8080"));
        assert!(may("page", "https://localhost:8080"));
        for (page, origin) in [
            ("pag", "http://localhost:8080"),
            ("", "http://localhost:8080"),
            ("page", "http://localhost"),
            ("page", "http://evil.example"),
            ("page", "null"),
            ("page", ""),
        ] {
            assert!(!may(page, origin), "{page} {origin}");
        }
        assert!(
            guard(None)
                .check_change(&request(&[("host", "x"), ("x-beanpole-page", "page")]))
                .is_err()
        );
    }
}
