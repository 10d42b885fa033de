//! The prompt of `raw`, with history, completion and hints. The package
//! rustyline edits its lines. Of lines that are pasted together each is run.

use super::words;
use super::{latest, put, queue, write};
use crate::command::Invocation;
use crate::failure::{Failure, Outcome, Status};
use crate::server::client::{Client, Event};
use crate::signals::{Calls, SIGINT};
use crate::text::output::{Output, complain};
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::{Hint, Hinter};
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::path::PathBuf;

/// The variable that names the file with earlier lines. If it is empty, there is
/// no file.
const VARIABLE: &str = "BEANPOLE_HISTORY";
const FILE: &str = ".beanpole_history";
/// How many earlier lines are used.
const LINES: usize = 1000;

/// Runs a prompt until the user ends it.
pub fn run(invocation: &Invocation, client: Client) -> Outcome {
    let mut prompt = Prompt::new(client)?;
    let mut interrupts = Calls::by_signals(&[SIGINT])?;
    let name = format!("{}> ", invocation.address());
    while let Some(line) = prompt.line(&name, false)? {
        if line.trim().is_empty() {
            continue;
        }
        prompt.remember(&line);
        if let Some(beginning) = words::help_wanted(&line) {
            say(&words::help(beginning))?;
            continue;
        }
        let Some((line, body)) = prompt.with_body(line)? else {
            continue;
        };
        let known = prompt.helper().client.take();
        let request = known.map_or_else(|| invocation.connect(), Ok);
        let request = request.and_then(|mut client| {
            queue(&mut client, line.as_bytes(), body.as_deref())?;
            interrupts.take();
            let latest = latest(&client, line.as_bytes());
            let event = client.wait(latest, &[interrupts.as_fd()])?;
            Ok((client, event))
        });
        match request {
            Ok((client, Event::Reply(reply))) => {
                write(&mut Output::new(), &reply)?;
                prompt.helper().client.replace(Some(client));
            }
            Ok((client, Event::Time)) => say(&client.silent().to_string())?,
            Ok((_, Event::Other)) => {
                say("interrupted: the connection is closed, the next command opens another")?;
            }
            Err(_) if line.starts_with("quit") => break,
            Err(failure) => say(&failure.to_string())?,
        }
    }
    Ok(Status::Done)
}

fn say(text: &str) -> Outcome<()> {
    let mut output = Output::new();
    output.line(text)?;
    output.sync()
}

struct Prompt {
    editor: Editor<Typing, FileHistory>,
    /// The file with earlier lines, if there is one.
    history: Option<PathBuf>,
    /// Lines that were pasted after others, and are still to be run.
    pasted: VecDeque<String>,
}

impl Prompt {
    fn new(client: Client) -> Outcome<Prompt> {
        let make = || {
            let config = Config::builder().max_history_size(LINES)?;
            let config = config.completion_type(CompletionType::List).build();
            let mut editor = Editor::with_config(config)?;
            editor.set_helper(Some(Typing {
                client: RefCell::new(Some(client)),
                is_body: false,
            }));
            Ok(editor)
        };
        let editor = make().map_err(|error: ReadlineError| unusable(&error))?;
        let path = match std::env::var_os(VARIABLE) {
            Some(path) => Some(PathBuf::from(path)).filter(|path| !path.as_os_str().is_empty()),
            None => std::env::home_dir().map(|home| home.join(FILE)),
        };
        let mut prompt = Prompt {
            editor,
            history: path,
            pasted: VecDeque::new(),
        };
        if let Some(path) = prompt.history.clone().filter(|path| path.exists()) {
            let loaded = prompt.editor.load_history(&path);
            prompt.note_history("read", loaded);
        }
        Ok(prompt)
    }

    fn helper(&mut self) -> &mut Typing {
        self.editor.helper_mut().expect("it was set")
    }

    /// A line that the user types; `None` at the end.
    fn line(&mut self, prompt: &str, is_body: bool) -> Outcome<Option<String>> {
        self.helper().is_body = is_body;
        loop {
            if let Some(line) = self.pasted.pop_front() {
                return Ok(Some(line));
            }
            match self.editor.readline(prompt) {
                Ok(text) if text.is_empty() => return Ok(Some(text)),
                Ok(text) => self.pasted.extend(text.lines().map(String::from)),
                Err(ReadlineError::Interrupted) => {}
                Err(ReadlineError::Eof) => return Ok(None),
                Err(error) => return Err(unusable(&error)),
            }
        }
    }

    /// The line as it is to be sent, and its body if it needs one, for which the
    /// user is asked. `None`: there is nothing to send.
    fn with_body(&mut self, line: String) -> Outcome<Option<(String, Option<Vec<u8>>)>> {
        let announced = put(line.as_bytes()).map(|put| put.size as usize);
        let counted = words::is_put_without_size(&line);
        if announced.is_none() && !counted {
            return Ok(Some((line, None)));
        }
        let Some(body) = self.line("body> ", true)? else {
            return Ok(None);
        };
        let length = body.len();
        match announced {
            Some(bytes) if bytes != length => {
                say(&format!(
                    "the body has {length} bytes, not {bytes}: nothing was sent"
                ))?;
                Ok(None)
            }
            Some(_) => Ok(Some((line, Some(body.into())))),
            None => Ok(Some((
                format!("{} {length}", line.trim_end()),
                Some(body.into()),
            ))),
        }
    }

    /// Adds a line to the history, and to its file.
    fn remember(&mut self, line: &str) {
        let added = self.editor.add_history_entry(line);
        let added = added.and_then(|_| match &self.history {
            Some(path) => self.editor.append_history(path),
            None => Ok(()),
        });
        self.note_history("write", added);
    }

    /// If the file cannot be used, says so once.
    fn note_history(&mut self, doing: &str, result: rustyline::Result<()>) {
        if let (Some(path), Err(error)) = (&self.history, result) {
            complain!("cannot {doing} {}: {error}", path.display());
            self.history = None;
        }
    }
}

fn unusable(error: &ReadlineError) -> Failure {
    Failure::Refused(format!("cannot use the terminal: {error}"))
}

/// What helps while a line is typed.
struct Typing {
    /// The connection, which is asked for tubes to complete their names.
    client: RefCell<Option<Client>>,
    /// Whether a body is typed, with which nobody can help.
    is_body: bool,
}

impl Completer for Typing {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = &line[..cursor];
        let start = before.rfind(' ').map_or(0, |space| space + 1);
        let tubes = || {
            let mut client = self.client.borrow_mut();
            let tubes = client.as_mut().and_then(|client| client.tubes().ok());
            tubes
                .into_iter()
                .flatten()
                .map(|tube| tube.to_string())
                .collect()
        };
        let found = match self.is_body {
            true => Vec::new(),
            false => words::candidates(before, tubes),
        };
        let pair = |display: String| {
            let whole = format!("{}{display}", &before[..start]);
            let space = if words::more_follow(&whole) { " " } else { "" };
            Pair {
                replacement: format!("{display}{space}"),
                display,
            }
        };
        Ok((start, found.into_iter().map(pair).collect()))
    }
}

/// The arguments that are still to be typed: they are shown, and no key inserts
/// them.
struct Arguments(String);

impl Hint for Arguments {
    fn display(&self) -> &str {
        &self.0
    }

    fn completion(&self) -> Option<&str> {
        None
    }
}

impl Hinter for Typing {
    type Hint = Arguments;

    fn hint(&self, line: &str, cursor: usize, _: &Context<'_>) -> Option<Arguments> {
        let is_wanted = !self.is_body && cursor == line.len();
        let hint = is_wanted.then(|| words::hint(line))?;
        (!hint.is_empty()).then_some(Arguments(hint))
    }
}

impl Highlighter for Typing {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        format!("\x1b[2m{hint}\x1b[0m").into()
    }
}

impl Validator for Typing {}
impl Helper for Typing {}
