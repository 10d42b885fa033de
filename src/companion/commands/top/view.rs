//! The board as lines of text. This file knows nothing of terminals.

use super::board::{Board, Server, page_of};
use super::line::{Line, Style, clip};
use super::look::{counts_of, curve, curve_line, look_into};
use super::rows::{Row, SHOWN, count, rate};
use super::sample::{History, SECONDS};
use crate::server::columns::Column;
use crate::server::sample::RATES;
use crate::server::stats::State;
use crate::text::colour::Colour;
use crate::text::words::span;

const KEYS_OF_LIST: &str =
    "q quit  ? help  enter look  s sort  / filter  space hold  k kick  p pause";
const KEYS_OF_TUBE: &str =
    "q quit  ? help  esc back  arrows job  d delete  u kick  b bury  c clear";
const HELP: &str = "\
arrows, page   select a tube, or a job of the tube that is looked into
enter          look into a tube
esc            go back, or show all tubes again
s, S           sort by the next or the previous column
r              turn the order
/              show only tubes with some text in their names
space          stand still, and go on
k              kick jobs of the tube, as many as you say
p              pause the tube, for as long as you say; 0 ends a pause
c              delete all jobs of the tube but reserved ones, after a question
d              delete the selected job, after a question
u              kick the selected job, if it is buried or delayed
b              bury the selected job
Ctrl-Z         leave the terminal to the shell; its 'fg' comes back
q              quit

Red is what is lost, buried or not to be changed lightly. Yellow are jobs that
nobody watches or that wait for a limit, timeouts, pauses, and a server that
takes no new jobs.
A small curve is the last minute; its highest point is the most in a second,
or the most jobs there were, which a wide screen shows, too.";

/// The whole screen, as `height` lines.
pub fn screen(board: &Board, width: usize, height: usize) -> Vec<Line> {
    let mut lines = match board.help {
        true => HELP.lines().map(Line::plain).collect(),
        false => head(board, width, height),
    };
    let room = height.saturating_sub(lines.len() + 2);
    let keys = match board.page {
        None => KEYS_OF_LIST,
        Some(_) => KEYS_OF_TUBE,
    };
    match &board.page {
        _ if board.help => {}
        None => lines.extend(table(board, width, room)),
        Some(page) => lines.extend(look_into(board, page, width, room)),
    }
    lines.resize(height.saturating_sub(2), Line::default());
    lines.push(status(board));
    lines.push(Line::plain(keys).styled(Style::Dim));
    lines.truncate(height);
    lines
}

/// Everything at once, for an output that is not a terminal.
pub fn printout(board: &Board, width: usize) -> Vec<String> {
    let lines = [head(board, width, 0), table(board, width, usize::MAX)].concat();
    let texts = lines.iter().map(|line| line.text(width));
    texts.map(|text| text.trim_end().into()).collect()
}

/// How many rows of the table can be seen.
pub fn visible_rows(board: &Board, height: usize) -> usize {
    height
        .saturating_sub(head(board, 0, height).len() + 3)
        .max(1)
}

/// From this width on, the backlog has curves beside those of the rates.
const ROOM_FOR_BACKLOG: usize = 120;
/// From this width of the names on, each tube has a curve of its ready jobs, of
/// so many seconds.
const ROOM_FOR_ROW_CURVES: usize = 80;
const ROW_CURVE: usize = 30;

/// From this height on, there is a curve of each rate above the table.
const ROOM_FOR_CURVES: usize = 20;

/// The state of the servers: several lines for a single one, otherwise a line
/// for each.
fn head(board: &Board, width: usize, height: usize) -> Vec<Line> {
    let curves = height >= ROOM_FOR_CURVES && board.page.is_none();
    let mut lines = match board.servers.as_slice() {
        [only] => server_lines(only, curves, width),
        several => servers_table(several),
    };
    lines.push(Line::default());
    lines
}

fn server_lines(server: &Server, curves: bool, width: usize) -> Vec<Line> {
    let title = Line::bold("").add_in(server.named.colour, server.named.title());
    let trouble = server.trouble();
    let Some(history) = &server.history else {
        return vec![unheard_of(server, title)];
    };
    let facts = &history.latest.server;
    let number = |key| facts.number(key);
    let (state, colour) = match trouble {
        Some((word, _)) => (format!("  {word}"), Colour::RED),
        None if facts.text("draining") == "true" => ("  DRAINING".into(), Colour::YELLOW),
        None => (String::new(), Colour::YELLOW),
    };
    let first = title
        .add(format!(
            "  {}  up {}",
            facts.text("version"),
            span(number("uptime"))
        ))
        .add_in(Some(colour), state)
        .add(format!(
            "  {} connections: {} put, {} work, {} wait",
            number("current-connections"),
            number("current-producers"),
            number("current-workers"),
            number("current-waiting"),
        ));
    let buried = (number("current-jobs-buried") > 0).then_some(Colour::RED);
    let jobs = counts_of(Line::default(), facts, buried);
    let jobs = jobs.add(format!("; {} put so far", number("total-jobs")));
    let mut lines = vec![first, jobs];
    let mut per_second = Line::plain("per second:");
    for (index, ((name, keys), minute)) in RATES.into_iter().zip(&history.minutes).enumerate() {
        let value: Option<f64> = keys.iter().map(|key| history.rate(key)).sum();
        let is_bad = name == "timeouts" && value.is_some_and(|value| value > 0.0);
        let colour = is_bad.then_some(Colour::YELLOW);
        if curves {
            let (now, is_wide) = (history.latest.at, width >= ROOM_FOR_BACKLOG);
            let room = if is_wide {
                half(width) - BEFORE
            } else {
                SECONDS
            };
            let line = curve_line(name, colour, value, &minute.growth(now), room);
            lines.push(match is_wide {
                true => beside(line, width, history, State::ALL[index]),
                false => line,
            });
        } else {
            let end = if name == "timeouts" { "" } else { "," };
            let text = format!("{} {name}", rate(value, 9));
            per_second = per_second.add(" ").add_in(colour, text).add(end);
        }
    }
    if !curves {
        lines.push(per_second);
    }
    let per_second = |key| rate(history.rate(key), 9);
    lines.push(Line::plain(match number("binlog-current-index") {
        0 => "binlog off".into(),
        current => format!(
            "binlog {} to {current} of {} each, {} records/s, {} moved/s",
            number("binlog-oldest-index"),
            bytes(number("binlog-max-size")),
            per_second("binlog-records-written"),
            per_second("binlog-records-migrated"),
        ),
    }));
    lines
}

/// What stands before a curve, and the scale behind one.
const BEFORE: usize = 20;
const SCALE: usize = 13;

/// How wide the half of a line is that has the curve of a rate.
fn half(width: usize) -> usize {
    (width / 2).min(BEFORE + SECONDS)
}

/// Adds to a line the curve of the jobs in this state: how many they were, and
/// the most in the time that is shown.
fn beside(line: Line, width: usize, history: &History, state: State) -> Line {
    let half = half(width);
    let room = (width - half).saturating_sub(BEFORE + SCALE).min(SECONDS);
    let values = history.backlog[state as usize].values(history.latest.at);
    let (curve, most) = curve(&values, room);
    let now = count(history.latest.server.jobs_in(&[state]), 7);
    let scale = match most > 0.0 {
        true => format!("  max {}", count(most as u64, 7)),
        false => String::new(),
    };
    let right = format!("{:<9}{now:>7}  {curve}{scale}", state.name());
    let used = line.text(half).chars().count();
    line.add(" ".repeat(half - used)).add(right.trim_end())
}

/// The line of a server that has not answered yet.
fn unheard_of(server: &Server, title: Line) -> Line {
    match server.trouble() {
        Some((_, reason)) => title.add("  ").add_in(Some(Colour::RED), reason),
        None => title.add("  connecting"),
    }
}

/// A line for each of several servers, under a title.
fn servers_table(servers: &[Server]) -> Vec<Line> {
    const WIDTH: usize = 31;
    let cells = |cells: &[String]| -> String {
        let cells = cells.iter().map(|cell| format!(" {cell:>6}"));
        cells.collect()
    };
    let heads = ["READY", "RSVD", "DLYD", "BURY", "PUT/S", "DEL/S", "TMO/S"];
    let heads = cells(&heads.map(String::from));
    let mut lines = vec![Line::bold(format!("{:<WIDTH$}{heads}", "  SERVER"))];
    for (index, server) in servers.iter().enumerate() {
        let number = format!("{} ", index + 1);
        let title = server.named.title();
        let room = WIDTH - number.len();
        let line = Line::plain(number);
        let Some(history) = &server.history else {
            let line = line.add_in(server.named.colour, title);
            lines.push(unheard_of(server, line));
            continue;
        };
        let facts = &history.latest.server;
        let title = format!("{:<room$}", clip(&title, room));
        let mut line = line.add_in(server.named.colour, title);
        for state in State::ALL {
            let jobs = facts.jobs_in(&[state]);
            let is_bad = state == State::Buried && jobs > 0;
            line = line.add_in(is_bad.then_some(Colour::RED), cells(&[count(jobs, 6)]));
        }
        lines.push(match server.trouble() {
            // The rates are old, so they are left out.
            Some((word, _)) => line.add_in(Some(Colour::RED), cells(&[word.into()])),
            None => {
                let rates = ["total-jobs", "cmd-delete", "job-timeouts"];
                line.add(cells(&rates.map(|key| rate(history.rate(key), 6))))
            }
        });
    }
    lines
}

/// The title and the rows, in up to `room` lines together.
fn table(board: &Board, width: usize, room: usize) -> Vec<Line> {
    let figures: usize = SHOWN.into_iter().map(|column| column.head().1 + 1).sum();
    let name_width = width.saturating_sub(figures - 1).max(8);
    let several = board.servers.len() > 1;
    let mut title = Line::bold("");
    for column in SHOWN.into_iter() {
        let mark = match (column == board.sort, board.reversed) {
            (false, _) => "",
            (true, false) => "*",
            (true, true) => "^",
        };
        let text = format!("{mark}{}", column.head().0);
        title = title.add(cell(&text, column, name_width));
    }
    let selected = board.selection();
    let (start, page) = page_of(board.rows(), selected, room.saturating_sub(1));
    let mut lines = vec![title];
    for (index, row) in page.iter().enumerate() {
        let style = match start + index == selected {
            true => Style::Reverse,
            false if board.servers[row.server].trouble().is_some() => Style::Dim,
            false => Style::Plain,
        };
        let curve = row_curve(board, row, name_width);
        lines.push(row_line(row, several, name_width, &curve).styled(style));
    }
    lines
}

/// The curve of the ready jobs of a tube, if there is room for it.
fn row_curve(board: &Board, row: &Row, name_width: usize) -> String {
    let history = board.servers[row.server].history.as_ref();
    let minute = history.and_then(|history| history.tube_backlog.get(&row.tube));
    match (history, minute) {
        (Some(history), Some(minute)) if name_width >= ROOM_FOR_ROW_CURVES => {
            curve(&minute.values(history.latest.at), ROW_CURVE).0
        }
        _ => String::new(),
    }
}

fn row_line(row: &Row, several: bool, name_width: usize, curve: &str) -> Line {
    let mut line = Line::default();
    for column in SHOWN.into_iter() {
        let mut content = row.cell(column);
        if column == Column::Tube {
            let number = match several {
                true => format!("{} ", row.server + 1),
                false => String::new(),
            };
            let mark = row.mark();
            let width = name_width - curve.chars().count();
            let room = width.saturating_sub(number.len() + mark.len());
            let name = format!("{number}{}{mark}", clip(&content, room));
            content = format!("{name:<width$}{curve}");
        }
        line = line.add_in(row.colour(column), cell(&content, column, name_width));
    }
    line
}

fn cell(content: &str, column: Column, name_width: usize) -> String {
    let width = column.head().1;
    match column {
        Column::Tube => format!("{:<name_width$}", clip(content, name_width)),
        _ => format!(" {content:>width$}"),
    }
}

/// The open question, or else the state of the screen and the latest message.
fn status(board: &Board) -> Line {
    if let Some(prompt) = &board.prompt {
        return Line::bold(format!("{} {}_", prompt.question, prompt.text));
    }
    let mut parts = Vec::new();
    if board.held {
        parts.push((None, "held".into()));
    }
    if !board.filter.is_empty() {
        parts.push((None, format!("only tubes with '{}'", board.filter)));
    }
    if !board.message.is_empty() {
        parts.push((None, board.message.clone()));
    }
    let known = board
        .servers
        .iter()
        .filter(|server| server.history.is_some());
    let lost = known.filter_map(Server::trouble);
    parts.extend(lost.map(|(_, reason)| (Some(Colour::RED), reason)));
    let mut line = Line::bold("");
    for (index, (colour, text)) in parts.into_iter().enumerate() {
        let space = if index > 0 { "  " } else { "" };
        line = line.add(space).add_in(colour, text);
    }
    line
}

fn bytes(number: u64) -> String {
    match number {
        0..=9999 => format!("{number} B"),
        10_000..=10_239_999 => format!("{} KiB", number / 1024),
        _ => format!("{} MiB", number / (1 << 20)),
    }
}
