//! What has happened, to be read after a failure.

use crate::naive::{Client, Model, SECOND};

/// Of longer replies the beginning is shown, in bytes.
const LONG: usize = 100;

/// What has happened so far, shown when a test fails.
pub struct History {
    /// The command that plays it again.
    repeat: String,
    /// When it began, in nanoseconds since the epoch.
    start: u64,
    pub lines: Vec<String>,
}

impl History {
    pub fn new(repeat: String, start: u64) -> History {
        History {
            repeat,
            start,
            lines: Vec::new(),
        }
    }

    pub fn note(&mut self, model: &Model, client: Client, what: &str) {
        let time = self.seconds(model);
        self.lines.push(format!("{time} {client} > {what}"));
    }

    pub fn hear(&mut self, client: Client, text: &str) {
        let mut text = text.trim_end().replace("\r\n", " ").replace('\n', ", ");
        if text.len() > LONG && !text.starts_with("OK") {
            text.truncate(LONG);
            text += "...";
        }
        self.lines.push(format!("{:19} {client} < {text}", ""));
    }

    pub fn tick(&mut self, model: &Model) {
        let time = self.seconds(model);
        self.lines.push(format!("{time} the clock ticks"));
    }

    fn seconds(&self, model: &Model) -> String {
        let time = model.now.saturating_sub(self.start);
        format!("{:9}.{:09}", time / SECOND, time % SECOND)
    }
}

impl Drop for History {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (history, repeat) = (self.lines.join("\n"), &self.repeat);
            eprintln!("The history, in seconds, up to the failure:\n{history}");
            eprintln!("{repeat}");
        }
    }
}
