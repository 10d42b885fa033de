//! `top`: a live screen of servers and their tubes.
//!
//! [`board`] holds what is shown, and knows what keys do; [`view`] makes lines
//! of it. Each server is [watched](crate::server::watch). This file waits for
//! keys, samples, and a new size of the terminal. If the output is not a
//! terminal, it prints once.

mod board;
mod terminal;
mod view;

use crate::command::{Interval, Invocation, Run, Tubes};
use crate::failure::{Failure, Outcome, Status};
use crate::server::sample::Column;
use crate::server::watch::{Habits, Watched};
use crate::signals::{Calls, SIGHUP, SIGINT, SIGTERM, SIGWINCH, wait_for};
use crate::text::json::Json;
use crate::text::output::{self, Output};
use crate::values::parse;
use board::{Action, Board};
use clap::Args;
use std::os::fd::AsFd;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use terminal::Terminal;

#[derive(Args)]
pub struct Top {
    #[command(flatten)]
    tubes: Tubes,
    /// look so often (default: 1)
    #[arg(short, long, value_name = "TIME", value_parser = parse::<Interval>)]
    interval: Option<Interval>,
    /// sort by this column, as its title says (default: tube)
    #[arg(short, long, value_name = "COLUMN", value_parser = parse::<Column>)]
    sort: Option<Column>,
    /// write JSON, once
    #[arg(short, long)]
    json: bool,
}

impl Run for Top {
    const MANY_SERVERS: bool = true;

    fn run(self, invocation: &Invocation) -> Outcome {
        let interval = self.interval.map_or(Duration::from_secs(1), |time| time.0);
        let habits = Habits {
            interval,
            respite: 1,
            patience: invocation.patience,
        };
        let servers = Watched::all(&invocation.servers, habits);
        let board = Board::new(
            servers,
            self.sort.unwrap_or_default(),
            self.tubes.patterns(),
        );
        match output::has_person() && !self.json {
            true => live(board, interval),
            false => print_once(board, interval, self.json),
        }
    }
}

/// Takes two samples, because rates need two, and prints what is known then.
fn print_once(mut board: Board, interval: Duration, is_json: bool) -> Outcome {
    let mut links: Vec<_> = board.servers.iter().map(|_| None).collect();
    for round in 0..2 {
        if round > 0 {
            thread::sleep(interval);
        }
        for (server, link) in board.servers.iter().zip(&mut links) {
            server.sample(link, usize::MAX);
        }
    }
    board.update(usize::MAX);
    let mut output = Output::new();
    if is_json {
        let to_json = |(index, server): (usize, &Arc<Watched>)| {
            let (mut json, known) = (server.to_json(), server.known());
            let rows = board.rows.iter().filter(|(of, _)| *of == index);
            let tubes = rows.map(|(_, name)| known.tubes[name].to_json(name));
            json["tubes"] = tubes.collect();
            json
        };
        output.json(
            &board
                .servers
                .iter()
                .enumerate()
                .map(to_json)
                .collect::<Json>(),
        )?;
    } else {
        for line in view::printout(&board, 80) {
            output.line(line)?;
        }
    }
    output.sync()?;
    let mut failures = board
        .servers
        .iter()
        .map(|server| server.known().failure.clone());
    let lost = failures.find_map(|failure| failure);
    lost.map_or(Ok(Status::Done), |reason| Err(Failure::Unreachable(reason)))
}

fn live(mut board: Board, interval: Duration) -> Outcome {
    let mut calls = Calls::by_signals(&[SIGWINCH])?;
    let mut signals = Calls::by_signals(&[SIGTERM, SIGINT, SIGHUP])?;
    let mut watchers = Vec::new();
    for server in &board.servers {
        let caller = calls.caller()?;
        watchers.push(server.start(move || caller.call())?);
    }
    let (tell, told) = mpsc::channel();
    let mut terminal = Terminal::full_screen()?;
    let mut drawn = (Vec::new(), (0, 0));
    loop {
        let size = terminal.size();
        let visible = view::visible_rows(&board, size.1);
        board.update(visible);
        if let Some(message) = told.try_iter().last() {
            board.message = message;
        }
        // Keys that were typed meanwhile come first.
        if !terminal.has_keys() {
            let lines = view::screen(&board, size.0, size.1);
            let lines = lines.iter().map(|line| line.text(size.0, true)).collect();
            draw(&terminal, &mut drawn, (lines, size))?;
            let fds = [terminal.as_fd(), calls.as_fd(), signals.as_fd()];
            // A server that is silent is shown to be.
            let soon = Instant::now() + interval.min(Duration::from_secs(1));
            let ready = wait_for(&fds, Some(soon));
            calls.take();
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
            Action::Nothing => continue,
            Action::Quit => return Ok(Status::Done),
            Action::Refresh => {}
            Action::Suspend => {
                terminal.suspend()?;
                drawn = Default::default();
            }
            Action::Do(index, act) => {
                let (server, watcher) =
                    (Arc::clone(&board.servers[index]), watchers[index].clone());
                let (tell, caller) = (tell.clone(), calls.caller()?);
                let act = move || {
                    let said = server.connect().and_then(|mut client| act(&mut client));
                    // Nobody is told if the screen is gone.
                    let _ = tell.send(said.unwrap_or_else(|failure| failure.to_string()));
                    watcher.unpark();
                    caller.call();
                };
                let spawned = thread::Builder::new().spawn(act);
                spawned.map_err(|error| Failure::io("cannot start a thread", error))?;
            }
        }
        board.update(visible);
        watchers.iter().for_each(thread::Thread::unpark);
    }
}

/// The lines of a screen, and its size.
type Drawn = (Vec<String>, (usize, usize));

/// Draws the lines that have changed; all lines if the size of the terminal has.
fn draw(terminal: &Terminal, before: &mut Drawn, now: Drawn) -> Outcome<()> {
    let mut text = String::new();
    if before.1 != now.1 {
        text += "\x1b[2J";
        before.0.clear();
    }
    for (index, line) in now.0.iter().enumerate() {
        if before.0.get(index) != Some(line) {
            text += &format!("\x1b[{};1H\x1b[K{line}", index + 1);
        }
    }
    *before = now;
    terminal.write(&text)
}
