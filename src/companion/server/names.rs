//! Names for servers, from a file of the user: `-a prod` instead of a host and
//! a port.
//!
//! Each line is a name, an address and, for a server that needs care, a colour.
//! The text after a `#` is a comment.
//!
//! ```text
//! prod  10.1.2.3:11300  red
//! test  unix:/run/beanpoled/socket
//! ```

use super::address::Address;
use crate::failure::plain;
use crate::text::colour::Colour;
use crate::text::output::note;
use crate::values::Parse;
use std::io::{self, ErrorKind, IsTerminal};
use std::path::{Path, PathBuf};

/// The environment variable with the path of that file. If it is empty, there
/// is no file.
const FILE_VARIABLE: &str = "BEANPOLE_SERVERS";
/// The name of the file in the home directory, if the variable is not set.
const FILE: &str = ".beanpole_servers";

/// A server as the user has named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub address: Address,
    /// Its name, if the user called it by one.
    pub name: Option<String>,
    /// Its warning colour, if it has one.
    pub colour: Option<Colour>,
}

/// Reads a name in the file, or an address.
impl Parse for Server {
    fn parse(text: &str) -> Result<Server, String> {
        if let Some((path, contents)) = file()
            && let Some(server) = named(text, &path, &contents?)?
        {
            return Ok(server);
        }
        Address::parse(text).map(Server::from)
    }
}

impl From<Address> for Server {
    fn from(address: Address) -> Server {
        Server {
            address,
            name: None,
            colour: None,
        }
    }
}

impl Server {
    /// Its name, if it has one, and its address.
    pub fn title(&self) -> String {
        match &self.name {
            Some(name) => format!("{name} {}", self.address),
            None => self.address.to_string(),
        }
    }
}

/// Tells a person which server is about to be changed, if it has a warning
/// colour.
pub fn warn_of(server: &Server) {
    if let Some(colour) = server.colour.filter(|_| io::stderr().is_terminal()) {
        note(colour.paint(&server.title()));
    }
}

/// What to add if a name that was tried as a host is unknown there, too.
pub fn lacking(host: &str) -> String {
    let path = match std::env::var_os(FILE_VARIABLE) {
        Some(path) => PathBuf::from(path),
        None => Path::new("~").join(FILE),
    };
    match path.as_os_str().is_empty() || host.contains(['.', ':']) {
        true => String::new(),
        false => format!("; and there is no server '{host}' in {}", path.display()),
    }
}

/// The file of the user and its content, if there is one. A file that the
/// variable names may be missing, but if it cannot be read otherwise, this is
/// an error. If the usual file cannot be read, it counts as missing: the home
/// directory may be closed to us.
fn file() -> Option<(PathBuf, Result<String, String>)> {
    let named = std::env::var_os(FILE_VARIABLE).map(PathBuf::from);
    let is_named = named.is_some();
    let path = named.or_else(|| std::env::home_dir().map(|home| home.join(FILE)))?;
    match std::fs::read_to_string(&path) {
        Ok(text) => Some((path, Ok(text))),
        Err(error) if is_named && error.kind() != ErrorKind::NotFound => {
            let reason = format!("cannot read {}: {}", path.display(), plain(error));
            Some((path, Err(reason)))
        }
        Err(_) => None,
    }
}

/// The server of this name in this file, if there is one.
fn named(name: &str, file: &Path, text: &str) -> Result<Option<Server>, String> {
    let shown = file.display();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        if words.next() == Some(name) {
            let wrong = |reason| format!("{shown} line {number}: {reason}");
            return read(name, words).map(Some).map_err(wrong);
        }
    }
    Ok(None)
}

fn read<'a>(name: &str, mut words: impl Iterator<Item = &'a str>) -> Result<Server, String> {
    let address = words.next().ok_or("the address is missing")?;
    let server = Server {
        address: Address::parse(address)?,
        name: Some(name.into()),
        colour: words.next().map(Colour::parse).transpose()?,
    };
    match words.next() {
        Some(word) => Err(format!("'{word}' follows the colour")),
        None => Ok(server),
    }
}
