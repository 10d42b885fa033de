//! `top`: a live screen of servers and their tubes.
//!
//! [`board`] holds what is shown and what keys do, [`view`] makes lines of it,
//! [`rows`] the table, and a [`watcher`] for each server asks. This file draws
//! the lines, with plain ANSI sequences, and waits: for keys, answers, the next
//! second, a new size. Into a pipe it prints once.

mod board;
mod rows;
mod sample;
mod view;
mod watcher;

use crate::command::{Command, Interval, Invocation, Opt, described, options};
use crate::failure::{Failure, Outcome, Status};
use crate::server::client::Client;
use crate::signals::{Calls, SIGHUP, SIGINT, SIGTERM, SIGWINCH, wait_for};
use crate::text::output::Output;
use crate::text::terminal::{self, Terminal};
use board::{Action, Board};
use rows::Column;
use sample::Sample;
use std::fmt::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use view::{Line, Style};
use watcher::{Answer, Request, Watcher};

pub const TOP: Command = Command {
    name: "top",
    about: "show servers and their tubes on a live screen",
    options: || described(OPTIONS),
    many_servers: true,
    run: top,
    ..Command::BLANK
};

options! {
    interval: Interval =
        Opt::value("i", "interval", "TIME", "look so often (default: 1)")
        => Interval(Duration::from_secs(1)),
    sort: Column =
        Opt::value("s", "sort", "COLUMN", "sort by this column, as its title says (default: tube)")
        => Column::Tube,
}

fn top(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    invocation.no_operands()?;
    let Interval(interval) = options.interval;
    let board = Board::new(&invocation.servers, options.sort);
    let patience = invocation.patience();
    match terminal::is_there() {
        true => live(board, interval, patience),
        false => print_once(board, interval, patience),
    }
}

/// Two samples, for the rates, and all that is known then.
fn print_once(mut board: Board, interval: Duration, patience: Duration) -> Outcome {
    let connect = |server: &board::Server| Client::connect(&server.named.address, patience);
    let mut clients: Vec<_> = board.servers.iter().map(connect).collect();
    for round in 0..2 {
        for (index, client) in clients.iter_mut().enumerate() {
            let ages_of: Vec<_> = board.rows().into_iter().map(|row| row.tube).collect();
            let answer = match client {
                Ok(client) => Sample::take(client, &ages_of),
                Err(failure) => Err(Failure::Unreachable(failure.to_string())),
            };
            board.hear(
                index,
                match answer {
                    Ok(sample) => Answer::Sample(Box::new(sample)),
                    Err(failure) => Answer::Failed(failure.to_string()),
                },
            );
        }
        if round == 0 {
            std::thread::sleep(interval);
        }
    }
    let mut output = Output::new();
    for line in view::printout(&board, 80) {
        output.line(line.text)?;
    }
    output.sync()?;
    let lost = board
        .servers
        .iter()
        .find_map(|server| server.failure.clone());
    lost.map_or(Ok(Status::Done), |reason| Err(Failure::Unreachable(reason)))
}

/// A watcher and the answers that it owes.
struct Watched {
    watcher: Watcher,
    owed: usize,
    /// When it was asked how the server is, if nothing has come since.
    looking_since: Option<Instant>,
}

/// A server that takes longer to say how it is needs a person.
const SLOW: Duration = Duration::from_secs(1);

fn live(mut board: Board, interval: Duration, patience: Duration) -> Outcome {
    let mut answers = Calls::by_signals(&[SIGWINCH])?;
    let mut signals = Calls::by_signals(&[SIGTERM, SIGINT, SIGHUP])?;
    let mut watched = Vec::new();
    for server in &board.servers {
        let address = server.named.address.clone();
        watched.push(Watched {
            watcher: Watcher::start(address, patience, answers.caller()?)?,
            owed: 0,
            looking_since: None,
        });
    }
    let mut terminal = Terminal::full_screen()?;
    let mut drawn = Drawn::default();
    let mut next = Instant::now();
    loop {
        let (width, height) = terminal.size();
        let visible = view::visible_rows(&board, width, height);
        for (index, watched) in watched.iter_mut().enumerate() {
            while let Ok(answer) = watched.watcher.answers.try_recv() {
                watched.owed = watched.owed.saturating_sub(1);
                watched.looking_since = None;
                board.hear(index, answer);
            }
            let silent = watched.looking_since.map(|since| since.elapsed());
            board.servers[index].silent = silent.filter(|time| *time >= SLOW);
        }
        if Instant::now() >= next {
            next = Instant::now() + interval;
            for (index, watched) in watched.iter_mut().enumerate() {
                // A slow server is not asked again before it has answered.
                if watched.owed == 0 {
                    board
                        .requests(index, visible)
                        .into_iter()
                        .for_each(|request| watched.ask(request));
                }
            }
        }
        drawn.draw(&terminal, &view::screen(&board, width, height), width)?;
        if !terminal.has_keys() {
            let fds = [terminal.as_fd(), answers.as_fd(), signals.as_fd()];
            let ready = wait_for(&fds, Some(next));
            answers.take();
            if signals.take() {
                return Ok(Status::Done);
            }
            if !ready[0] {
                continue;
            }
        }
        let Some(key) = terminal.key()? else {
            continue;
        };
        match board.press(key, visible) {
            Action::Nothing => {}
            Action::Quit => return Ok(Status::Done),
            Action::Refresh => next = Instant::now(),
            Action::Suspend => {
                terminal.suspend()?;
                drawn = Drawn::default();
            }
            Action::Ask(server, request) => {
                watched[server].ask(request);
                next = Instant::now();
            }
        }
    }
}

impl Watched {
    fn ask(&mut self, request: Request) {
        if matches!(request, Request::Sample(_)) {
            self.looking_since = Some(Instant::now());
        }
        // Its thread ends only with the program.
        if self.watcher.requests.send(request).is_ok() {
            self.owed += 1;
        }
    }
}

/// What stands on the terminal.
#[derive(Default)]
struct Drawn {
    lines: Vec<Line>,
    width: usize,
}

impl Drawn {
    /// Draws the lines that have changed; all of them in a terminal of another
    /// size.
    fn draw(&mut self, terminal: &Terminal, lines: &[Line], width: usize) -> Outcome<()> {
        let mut text = String::new();
        if self.lines.len() != lines.len() || self.width != width {
            text += "\x1b[2J";
            self.lines.clear();
            self.width = width;
        }
        for (index, line) in lines.iter().enumerate() {
            if self.lines.get(index) != Some(line) {
                // Writing to memory does not fail.
                let _ = write!(text, "\x1b[{};1H\x1b[K{}", index + 1, painted(line, width));
            }
        }
        self.lines = lines.to_vec();
        if text.is_empty() {
            Ok(())
        } else {
            terminal.write(&text)
        }
    }
}

fn painted(line: &Line, width: usize) -> String {
    let base = match line.style {
        Style::Plain if line.marks.is_empty() => return line.text.clone(),
        Style::Plain => "0",
        Style::Bold => "0;1",
        Style::Dim => "0;2",
        Style::Reverse => "0;7",
    };
    let text = match line.style {
        Style::Reverse => format!("{:<width$}", line.text),
        _ => line.text.clone(),
    };
    let mut painted = format!("\x1b[{base}m");
    for (column, character) in text.chars().enumerate() {
        if line.marks.iter().any(|(columns, _)| columns.end == column) {
            painted += &format!("\x1b[{base}m");
        }
        let mut begun = line
            .marks
            .iter()
            .filter(|(columns, _)| columns.start == column);
        if let Some(code) = begun.next().and_then(|(_, colour)| colour.code()) {
            painted += &format!("\x1b[{base};{code}m");
        }
        painted.push(character);
    }
    painted + "\x1b[0m"
}
