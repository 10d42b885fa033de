//! The lines typed at earlier prompts, in a file of the user's.

use crate::text::output::complain;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// The variable that names the file; empty: no file.
pub const VARIABLE: &str = "BEANPOLE_HISTORY";
const NAME: &str = ".beanpole_history";
/// As many lines are remembered.
const LINES: usize = 1000;

/// Where lines are remembered, if anywhere.
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

    /// The latest lines, the last one last.
    pub fn lines(&self) -> Vec<String> {
        let bytes = self.0.as_ref().and_then(|path| std::fs::read(path).ok());
        let bytes = bytes.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = text.lines().map(String::from).collect();
        lines[lines.len().saturating_sub(LINES)..].to_vec()
    }

    /// Remembers a line. If that fails, nothing is remembered from now on.
    pub fn add(&mut self, line: &str) {
        let Some(path) = &self.0 else { return };
        let add = || -> io::Result<()> {
            let mut options = OpenOptions::new();
            let mut file = options.append(true).create(true).mode(0o600).open(path)?;
            writeln!(file, "{line}")
        };
        if let Err(error) = add() {
            complain(format_args!(
                "beanpole raw: cannot write {}: {error}",
                path.display()
            ));
            self.0 = None;
        }
    }
}
