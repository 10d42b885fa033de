//! `top`: a live screen of servers and their tubes. It only shows: changes
//! are commands of their own, or buttons of the console.
//!
//! Each server is [watched](crate::remote::watch). This file knows what is selected and
//! what keys do; it waits for keys, samples and a new size of the terminal. [`view`]
//! makes lines of what is known. If the output is not a terminal, they are printed once.

mod terminal;
mod view;

use crate::command::{Invocation, Run, Tubes, interval, last_of};
use crate::failure::{Failure, Outcome, Status};
use crate::remote::client::ask_all;
use crate::remote::tubes::column_of;
use crate::remote::watch::sorted;
use crate::remote::{Column, Known, Patterns, Tube, Watched};
use crate::signals::{Calls, SIGHUP, SIGINT, SIGTERM, SIGWINCH, wait_for};
use crate::text::output::{self, Output};
use beanpole::protocol::TubeName;
use clap::Args;
use std::os::fd::AsFd;
use std::sync::{Arc, MutexGuard};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use terminal::{Key, Terminal};

#[derive(Args)]
pub struct Top {
    #[command(flatten)]
    tubes: Tubes,
    /// the time between two samples (default: 1)
    #[arg(short, long, value_name = "TIME", value_parser = interval)]
    interval: Option<Duration>,
    /// sort by this column, as its title says (default: tube)
    #[arg(short, long, value_name = "COLUMN", ignore_case = true, value_parser = column_of(&COLUMNS))]
    sort: Option<Column>,
    /// only tubes in trouble
    #[arg(long)]
    trouble: bool,
}

impl Run for Top {
    fn run(self, invocation: &Invocation) -> Outcome {
        let interval = self.interval.unwrap_or(Duration::from_secs(1));
        let board = Board {
            servers: Watched::all(&invocation.servers, invocation.patience()),
            sort: self.sort.unwrap_or_default(),
            tubes: self.tubes.patterns(),
            only_trouble: self.trouble,
            ..Board::default()
        };
        if output::has_person() {
            live(board, interval)
        } else {
            print_once(board, interval)
        }
    }
}

/// The columns that the table can be sorted by, from left to right.
const COLUMNS: [Column; 11] = {
    use Column::*;
    [
        Tube, Ready, Reserved, Delayed, Buried, Watching, Waiting, Put, Delete, Age, Timeouts,
    ]
};

/// A tube, and the index of its server.
type Row = (usize, TubeName);

/// What is shown, and what is selected.
#[derive(Default)]
struct Board {
    servers: Vec<Arc<Watched>>,
    sort: Column,
    /// Only these tubes are shown.
    tubes: Patterns,
    /// And of these only those in trouble.
    only_trouble: bool,
    /// The tubes that are to be shown, in their order.
    rows: Vec<Row>,
    selected: Option<Row>,
    /// Whether the selected tube fills the screen.
    is_open: bool,
}

impl Board {
    /// Takes notice of new samples, and tells what is wanted of the next ones if
    /// `visible` rows can be seen.
    fn update(&mut self, visible: usize) {
        self.arrange();
        let open = self.selected.as_ref().filter(|_| self.is_open);
        for (index, server) in self.servers.iter().enumerate() {
            let own = open.filter(|(of, _)| *of == index);
            // A third of the screen for each of the three states.
            let most = visible.div_ceil(3);
            server.known().looks_into = own.map(|(_, tube)| (tube.clone(), most));
        }
    }

    fn arrange(&mut self) {
        let known: Vec<MutexGuard<Known>> = self.servers.iter().map(|one| one.known()).collect();
        let least = usize::from(self.only_trouble);
        let is_shown =
            |_, name: &TubeName, tube: &Tube| self.tubes.mean(name) && tube.severity() >= least;
        let rows = sorted(&known, is_shown, Some(self.sort)).into_iter();
        self.rows = rows
            .map(|(server, name, _)| (server, name.clone()))
            .collect();
    }

    /// A name of this server, with its number if there are several.
    fn name(&self, server: usize, name: &str) -> String {
        match self.servers.len() {
            1 => name.into(),
            _ => format!("{} {name}", server + 1),
        }
    }

    /// The index of the selected row; 0 if it does not exist any more.
    fn selection(&self) -> usize {
        let place = |selected| self.rows.iter().position(|row| row == selected);
        self.selected.as_ref().and_then(place).unwrap_or(0)
    }

    /// The index of the first row of the page that contains the selected one.
    fn page(&self, visible: usize) -> usize {
        let visible = visible.max(1);
        self.selection() / visible * visible
    }

    /// Does what a key means, if `visible` rows can be seen.
    fn press(&mut self, key: Key, visible: usize) {
        let page = isize::try_from(visible).unwrap_or(1);
        match key {
            Key::Escape | Key::Enter if self.is_open => self.is_open = false,
            _ if self.is_open => {}
            Key::Up => self.select(-1),
            Key::Down => self.select(1),
            Key::PageUp => self.select(-page),
            Key::PageDown => self.select(page),
            Key::Home => self.select(isize::MIN),
            Key::End => self.select(isize::MAX),
            Key::Enter => {
                self.select(0);
                self.is_open = self.selected.is_some();
            }
            Key::Char('s') => {
                let place = COLUMNS.iter().position(|column| *column == self.sort);
                self.sort = COLUMNS[(place.unwrap_or(0) + 1) % COLUMNS.len()];
            }
            _ => {}
        }
    }

    fn select(&mut self, steps: isize) {
        let place = self.selection().saturating_add_signed(steps);
        let target = place.min(self.rows.len().saturating_sub(1));
        self.selected = self.rows.get(target).cloned();
    }
}

/// Takes two samples, because rates need two, and prints what is known then.
fn print_once(mut board: Board, interval: Duration) -> Outcome {
    ask_all(&board.servers, |server| {
        let mut link = None;
        server.sample(&mut link, usize::MAX);
        // One that gave no answer is not asked again.
        if link.is_some() {
            thread::sleep(interval);
            server.sample(&mut link, usize::MAX);
        }
    });
    board.update(usize::MAX);
    let mut output = Output::new();
    for line in view::printout(&board, output::width().unwrap_or(80)) {
        output.line(line)?;
    }
    output.sync()?;
    last_of(board.servers.iter().filter_map(|server| {
        let failure = Failure::Unreachable(server.known().failure.clone()?);
        Some(server.named.of_it(failure))
    }))
}

fn live(mut board: Board, interval: Duration) -> Outcome {
    let calls = Arc::new(Calls::by_signals(&[SIGWINCH])?);
    let signals = Calls::by_signals(&[SIGTERM, SIGINT, SIGHUP])?;
    let mut watchers = Vec::new();
    for server in &board.servers {
        let caller = Arc::clone(&calls);
        watchers.push(server.start(interval, move || caller.call())?);
    }
    let terminal = Terminal::full_screen()?;
    let mut drawn_size = (0, 0);
    loop {
        let size = output::size().unwrap_or((80, 24));
        let visible = view::visible_rows(&board, size.1);
        board.update(visible);
        let mut text = String::new();
        if std::mem::replace(&mut drawn_size, size) != size {
            text += "\x1b[2J";
        }
        for (index, line) in view::screen(&board, size.0, size.1).iter().enumerate() {
            let line = line.text(size.0, true);
            text += &format!("\x1b[{};1H\x1b[K{line}", index + 1);
        }
        terminal.write(&text)?;
        // Also without a call: a server that is silent is shown to be.
        let soon = Instant::now() + interval.min(Duration::from_secs(1));
        let fds = [terminal.input.as_fd(), calls.as_fd(), signals.as_fd()];
        let has_keys = wait_for(&fds, Some(soon))[0];
        calls.take();
        if signals.take() {
            return Ok(Status::Done);
        }
        let keys = has_keys.then(|| terminal.keys()).transpose()?;
        for key in keys.into_iter().flatten() {
            match key {
                Key::Char('q') | Key::Ctrl('c') | Key::Closed => return Ok(Status::Done),
                Key::Ctrl('z') => {
                    terminal.suspend()?;
                    drawn_size = (0, 0);
                }
                key => {
                    let was_open = board.is_open;
                    board.press(key, visible);
                    if board.is_open && !was_open {
                        board.update(visible);
                        watchers.iter().for_each(Thread::unpark);
                    }
                }
            }
        }
    }
}
