//! The lines that were typed at earlier prompts, in a file of the user.

use crate::failure::plain;
use crate::text::output::complain;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// The variable that names the file. If it is empty, there is no file.
pub const VARIABLE: &str = "BEANPOLE_HISTORY";
const NAME: &str = ".beanpole_history";
/// How many lines are used.
const LINES: usize = 1000;

/// The file with the earlier lines, if there is one.
pub struct History(Option<PathBuf>);

impl History {
    /// The file that the environment names, or the one in the home directory.
    pub fn find() -> History {
        let path = match std::env::var_os(VARIABLE) {
            Some(path) => Some(PathBuf::from(path)),
            None => std::env::var_os("HOME").map(|home| PathBuf::from(home).join(NAME)),
        };
        History(path.filter(|path| !path.as_os_str().is_empty()))
    }

    /// The latest lines, in the order in which they were typed.
    pub fn lines(&self) -> Vec<String> {
        let bytes = self.0.as_ref().and_then(|path| std::fs::read(path).ok());
        let bytes = bytes.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = text.lines().map(String::from).collect();
        lines[lines.len().saturating_sub(LINES)..].to_vec()
    }

    /// Adds a line to the file. If that fails, no more lines are added.
    pub fn add(&mut self, line: &str) {
        let Some(path) = &self.0 else { return };
        let add = || -> io::Result<()> {
            let mut options = OpenOptions::new();
            let mut file = options.append(true).create(true).mode(0o600).open(path)?;
            writeln!(file, "{line}")
        };
        if let Err(error) = add() {
            complain!("cannot write {}: {}", path.display(), plain(error));
            self.0 = None;
        }
    }
}
