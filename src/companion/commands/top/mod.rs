//! `top`: a live screen of servers and their tubes.
//!
//! [`board`] holds what is shown, and knows what keys do. [`view`] makes
//! [lines](mod@line) of it, with [`rows`] for the table and [`look`] for the
//! page of one tube. A [`watcher`] for each server asks it. This file waits for
//! keys, answers, the next second, and a new size of the terminal. If the
//! output is not a terminal, it prints once.

mod board;
mod line;
mod look;
mod rows;
mod sample;
mod view;
mod watcher;

use crate::command::{Command, Interval, Invocation, Kind, Opt, described, options};
use crate::failure::{Failure, Outcome, Status};
use crate::server::columns::Column;
use crate::server::sample::Link;
use crate::signals::{Calls, SIGHUP, SIGINT, SIGTERM, SIGWINCH, wait_for};
use crate::text::output::Output;
use crate::text::terminal::{self, Terminal};
use board::{Action, Board};
use line::Drawn;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use watcher::Watcher;

pub const TOP: Command = Command {
    name: "top",
    operands: "[TUBE…]",
    operand_kind: Kind::Tube,
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
        Opt::value("s", "sort", "COLUMN", "sort by this column, as its title says (default: tube)"),
}

fn top(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    let tubes = invocation.tubes()?;
    let Interval(interval) = options.interval;
    let board = Board::new(&invocation.servers, options.sort, tubes);
    let patience = invocation.patience;
    match terminal::is_there() {
        true => live(board, interval, patience),
        false => print_once(board, interval, patience),
    }
}

/// Takes two samples, because rates need two, and prints what is known then.
fn print_once(mut board: Board, interval: Duration, patience: Duration) -> Outcome {
    let address = |server: &board::Server| server.named.address.clone();
    let links = board
        .servers
        .iter()
        .map(|server| Link::new(address(server), patience));
    let mut links: Vec<_> = links.collect();
    for round in 0..2 {
        if round > 0 {
            std::thread::sleep(interval);
        }
        for (index, link) in links.iter_mut().enumerate() {
            for request in board.requests(index, usize::MAX) {
                board.hear(index, watcher::answer(link, request));
            }
        }
    }
    let mut output = Output::new();
    for line in view::printout(&board, 80) {
        output.line(line)?;
    }
    output.sync()?;
    let mut servers = board.servers.into_iter();
    let lost = servers.find_map(|server| server.failure);
    lost.map_or(Ok(Status::Done), |reason| Err(Failure::Unreachable(reason)))
}

/// A server that needs longer to answer is shown as silent: a person should
/// look at it.
const SLOW: Duration = Duration::from_secs(1);

fn live(mut board: Board, interval: Duration, patience: Duration) -> Outcome {
    let mut answers = Calls::by_signals(&[SIGWINCH])?;
    let mut signals = Calls::by_signals(&[SIGTERM, SIGINT, SIGHUP])?;
    let mut watchers = Vec::new();
    for server in &board.servers {
        let address = server.named.address.clone();
        watchers.push(Watcher::start(address, patience, answers.caller()?)?);
    }
    let mut terminal = Terminal::full_screen()?;
    let mut drawn = Drawn::default();
    let mut next = Instant::now();
    loop {
        let (width, height) = terminal.size();
        let visible = view::visible_rows(&board, height);
        for (index, watcher) in watchers.iter_mut().enumerate() {
            while let Some(answer) = watcher.answer() {
                board.hear(index, answer);
            }
            let silent = watcher.looking_since.map(|since| since.elapsed());
            board.servers[index].silent = silent.filter(|time| *time >= SLOW);
        }
        if Instant::now() >= next {
            next = Instant::now() + interval;
            for (index, watcher) in watchers.iter_mut().enumerate() {
                // A slow server is not asked again before it has answered.
                if watcher.owed == 0 {
                    let requests = board.requests(index, visible).into_iter();
                    requests.for_each(|request| watcher.ask(request));
                }
            }
        }
        // Keys that were typed meanwhile come first.
        if !terminal.has_keys() {
            let lines = view::screen(&board, width, height);
            drawn.draw(&terminal, &lines, (width, height))?;
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
                watchers[server].ask(request);
                next = Instant::now();
            }
        }
    }
}
