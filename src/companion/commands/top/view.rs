//! The board as lines of text. What a line looks like beyond its text is its
//! style; nothing here knows a terminal.

use super::board::{Board, Page, Server, page_of};
use super::rows::{Column, Row, count, rate};
use super::sample::{History, Minute, RATES, TUBE_RATES};
use super::watcher::WholeJob;
use crate::server::stats::{Facts, JobFacts, State};
use crate::text::colour::Colour;
use crate::text::words::{beginning, span};
use beanpole::protocol::{JobId, TubeName};
use std::ops::Range;
use std::time::Instant;

/// A line of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub text: String,
    pub style: Style,
    /// Columns that need a person, or stand out otherwise, in their order.
    pub marks: Vec<(Range<usize>, Colour)>,
}

/// How a line stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    Bold,
    Dim,
    Reverse,
}

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
nobody watches, timeouts, pauses, and a server that takes no new jobs.
A small curve is the last minute; its highest point is the most in a second.";

fn plain(text: impl Into<String>) -> Line {
    styled(text, Style::Plain)
}

fn styled(text: impl Into<String>, style: Style) -> Line {
    Line {
        text: text.into(),
        style,
        marks: Vec::new(),
    }
}

impl Line {
    /// The same, with this part of the text in a colour.
    fn marked(mut self, part: &str, colour: Colour) -> Line {
        if let (Some(place), false) = (self.text.find(part), part.is_empty()) {
            let start = self.text[..place].chars().count();
            self.marks
                .push((start..start + part.chars().count(), colour));
        }
        self
    }

    fn marked_if(self, holds: bool, part: &str, colour: Colour) -> Line {
        if holds {
            self.marked(part, colour)
        } else {
            self
        }
    }
}

/// The whole screen: as many lines as there are rows, none wider.
pub fn screen(board: &Board, width: usize, height: usize) -> Vec<Line> {
    let mut lines = match board.help {
        true => Vec::new(),
        false => head(board, width, height),
    };
    let room = height.saturating_sub(lines.len() + 2);
    match &board.page {
        _ if board.help => lines.extend(HELP.lines().map(plain)),
        Page::Tubes => lines.extend(table(board, width, room)),
        Page::Tube {
            server, tube, look, ..
        } => {
            let server = &board.servers[*server];
            lines.extend(facts_of(server, tube));
            let room = height.saturating_sub(lines.len() + 2);
            let found = look
                .as_ref()
                .map(|look| look.jobs.as_slice())
                .unwrap_or_default();
            lines.extend(jobs(found, board.selected_job(), width, room));
        }
    }
    lines.resize(height.saturating_sub(2), plain(""));
    lines.push(status(board));
    let keys = match board.page {
        Page::Tubes => KEYS_OF_LIST,
        Page::Tube { .. } => KEYS_OF_TUBE,
    };
    lines.push(styled(keys, Style::Dim));
    for line in &mut lines {
        line.text = clip(&line.text, width);
    }
    lines.truncate(height);
    lines
}

/// Everything at once, for those who read no screen.
pub fn printout(board: &Board, width: usize) -> Vec<Line> {
    let mut lines = head(board, width, 0);
    lines.extend(table(board, width, usize::MAX));
    for line in &mut lines {
        line.text = line.text.trim_end().into();
    }
    lines
}

/// How many rows of the table fit.
pub fn visible_rows(board: &Board, width: usize, height: usize) -> usize {
    height
        .saturating_sub(head(board, width, height).len() + 3)
        .max(1)
}

/// As many rows leave room for a curve of each rate above the table.
const ROOM_FOR_CURVES: usize = 20;

/// Something about each server: much of one, a line of each of several.
fn head(board: &Board, width: usize, height: usize) -> Vec<Line> {
    let curves = height >= ROOM_FOR_CURVES && matches!(board.page, Page::Tubes);
    let mut lines = match board.servers.as_slice() {
        [only] => server_lines(only, curves),
        several => servers_table(several),
    };
    lines.push(plain(""));
    for line in &mut lines {
        line.text = clip(&line.text, width);
    }
    lines
}

fn server_lines(server: &Server, curves: bool) -> Vec<Line> {
    let title = server.named.title();
    let titled = |line: Line| match server.named.colour {
        Some(colour) => line.marked(&title, colour),
        None => line,
    };
    let trouble = server.trouble();
    let Some(history) = &server.history else {
        let reason = trouble.map_or("connecting".into(), |(_, reason)| reason);
        let line = styled(format!("{title}  {reason}"), Style::Bold);
        return vec![titled(line).marked_if(reason != "connecting", &reason, Colour::Red)];
    };
    let facts = &history.latest.server;
    let number = |key| facts.number(key);
    let is_draining = facts.text("draining") == "true";
    let (state, colour) = match trouble {
        Some((word, _)) => (format!("  {word}"), Colour::Red),
        None if is_draining => ("  DRAINING".into(), Colour::Yellow),
        None => (String::new(), Colour::Yellow),
    };
    let first = format!(
        "{title}  {}  up {}{state}  {} connections: {} put, {} work, {} wait",
        facts.text("version"),
        span(number("uptime")),
        number("current-connections"),
        number("current-producers"),
        number("current-workers"),
        number("current-waiting"),
    );
    let per_second = |key| rate(history.rate(key), 9);
    let binlog = match number("binlog-current-index") {
        0 => "binlog off".into(),
        current => format!(
            "binlog {} to {current} of {} each, {} records/s, {} moved/s",
            number("binlog-oldest-index"),
            bytes(number("binlog-max-size")),
            per_second("binlog-records-written"),
            per_second("binlog-records-migrated"),
        ),
    };
    let buried = format!("{} buried", number("current-jobs-buried"));
    let jobs = plain(format!(
        "{}; {} put so far",
        counts_of(facts),
        number("total-jobs")
    ));
    let mut lines = vec![
        titled(styled(first, Style::Bold)).marked(&state, colour),
        jobs.marked_if(number("current-jobs-buried") > 0, &buried, Colour::Red),
    ];
    let rates = RATES.map(|(name, keys)| {
        let rates: Option<f64> = keys.iter().map(|key| history.rate(key)).sum();
        (name, rates)
    });
    let timeouts = |line: Line, name, rate: Option<f64>, text: &str| {
        let needed = name == "timeouts" && rate.is_some_and(|rate| rate > 0.0);
        line.marked_if(needed, text, Colour::Yellow)
    };
    if curves {
        for ((name, value), minute) in rates.into_iter().zip(&history.minutes) {
            let line = curve_line(name, value, minute, history.latest.at);
            lines.push(timeouts(line, name, value, name));
        }
    } else {
        let texts = rates.map(|(name, value)| format!("{} {name}", rate(value, 9)));
        let line = plain(format!("per second: {}", texts.join(", ")));
        let [.., (name, value)] = rates;
        lines.push(timeouts(line, name, value, &texts[3]));
    }
    lines.push(plain(binlog));
    lines
}

/// How many jobs a server or a tube has.
fn counts_of(facts: &Facts) -> String {
    let [ready, reserved, delayed, buried] =
        State::ALL.map(|state| facts.number(state.count_key()));
    let urgent = facts.number("current-jobs-urgent");
    format!(
        "jobs: {ready} ready ({urgent} urgent), {reserved} reserved, {delayed} delayed, {buried} buried"
    )
}

/// A rate with the curve of its last minute.
fn curve_line(name: &str, value: Option<f64>, minute: &Minute, now: Instant) -> Line {
    let growth = minute.growth(now);
    let most = growth.iter().copied().fold(0.0, f64::max);
    let point = |growth: &f64| match (growth / most * 7.0).round() {
        _ if *growth <= 0.0 => ' ',
        height => ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'][(height as usize).min(7)],
    };
    let curve: String = growth.iter().map(point).collect();
    let line = format!("{name:<9}{:>7}/s  {curve}", rate(value, 7));
    plain(line.trim_end())
}

/// A line for each of several servers, under a title.
fn servers_table(servers: &[Server]) -> Vec<Line> {
    let title = ["READY", "RSVD", "DLYD", "BURY", "PUT/S", "DEL/S", "TMO/S"];
    let mut lines = vec![styled(server_line("  SERVER", &title), Style::Bold)];
    for (index, server) in servers.iter().enumerate() {
        let title = server.named.title();
        let name = format!("{} {title}", index + 1);
        let trouble = server.trouble();
        let line = match &server.history {
            None => {
                let reason = trouble.map_or("connecting".into(), |(_, reason)| reason);
                let needed = reason != "connecting";
                plain(format!("{name}  {reason}")).marked_if(needed, &reason, Colour::Red)
            }
            Some(history) => {
                let facts = &history.latest.server;
                let counts = State::ALL.map(|state| count(facts.number(state.count_key()), 6));
                let rates = ["total-jobs", "cmd-delete", "job-timeouts"];
                let rates = rates.map(|key| rate(history.rate(key), 6));
                // Rates of long ago are no rates.
                let word = trouble.as_ref().map_or("", |(word, _)| word);
                let rates = if word.is_empty() {
                    rates
                } else {
                    [word.into(), String::new(), String::new()]
                };
                let cells = [&counts[..], &rates[..]].concat();
                plain(server_line(&name, &cells)).marked(word, Colour::Red)
            }
        };
        lines.push(match server.named.colour {
            Some(colour) => line.marked(&title, colour),
            None => line,
        });
    }
    lines
}

fn server_line(name: &str, cells: &[impl std::fmt::Display]) -> String {
    let cells: String = cells.iter().map(|cell| format!(" {cell:>6}")).collect();
    format!("{:<31}{cells}", clip(name, 31))
}

/// The title and so many rows less one.
fn table(board: &Board, width: usize, room: usize) -> Vec<Line> {
    let figures: usize = Column::all().map(|column| column.head().1 + 1).sum();
    let name_width = width.saturating_sub(figures - 1).max(8);
    let several = board.servers.len() > 1;
    let mut title = String::new();
    for column in Column::all() {
        let (name, cell_width) = column.head();
        let mark = match (column == board.sort, board.reversed) {
            (false, _) => "",
            (true, false) => "*",
            (true, true) => "^",
        };
        title += &cell(&format!("{mark}{name}"), column, name_width, cell_width);
    }
    let rows = board.rows();
    let selected = board.selection(&rows);
    let (start, page) = page_of(&rows, selected, room.saturating_sub(1));
    let mut lines = vec![styled(title, Style::Bold)];
    for (index, row) in page.iter().enumerate() {
        let style = match start + index == selected {
            true => Style::Reverse,
            false if board.servers[row.server].trouble().is_some() => Style::Dim,
            false => Style::Plain,
        };
        lines.push(Line {
            style,
            ..row_line(row, several, name_width)
        });
    }
    lines
}

fn row_line(row: &Row, several: bool, name_width: usize) -> Line {
    let mut line = plain("");
    for column in Column::all() {
        let content = match column {
            Column::Tube => {
                let number = if several {
                    format!("{} ", row.server + 1)
                } else {
                    String::new()
                };
                let mark = row.mark();
                let room = name_width.saturating_sub(number.len() + mark.len());
                format!("{number}{}{mark}", clip(row.tube.as_str(), room))
            }
            _ => row.cell(column),
        };
        let start = line.text.chars().count();
        line.text += &cell(&content, column, name_width, column.head().1);
        let colour = row.colour(column);
        let columns = start..line.text.chars().count();
        line.marks.extend(colour.map(|colour| (columns, colour)));
    }
    line
}

fn cell(content: &str, column: Column, name_width: usize, width: usize) -> String {
    match column {
        Column::Tube => format!("{:<name_width$}", clip(content, name_width)),
        _ => format!(" {content:>width$}"),
    }
}

/// A tube's facts.
fn facts_of(server: &Server, tube: &TubeName) -> Vec<Line> {
    let found = server.history.as_ref().and_then(|history| {
        let all = &history.latest.tubes;
        all.iter()
            .find(|(name, _)| name == tube)
            .map(|(_, facts)| (history, facts))
    });
    let title = styled(format!("tube {tube}"), Style::Bold);
    match found {
        None => vec![title, plain("  does not exist")],
        Some((history, facts)) => [vec![title], tube_lines(history, tube, facts)].concat(),
    }
}

fn tube_lines(history: &History, tube: &TubeName, facts: &Facts) -> Vec<Line> {
    let number = |key| facts.number(key);
    let mut users = format!(
        "  connections: {} using, {} watching, {} waiting; paused {} times",
        number("current-using"),
        number("current-watching"),
        number("current-waiting"),
        number("cmd-pause-tube"),
    );
    if number("pause-time-left") > 0 {
        users += &format!(", now for another {} s", number("pause-time-left"));
    }
    let mut lines = vec![
        plain(format!("  {}", counts_of(facts))),
        plain(format!(
            "  {} put so far, {} deleted",
            number("total-jobs"),
            number("cmd-delete"),
        )),
        plain(users),
    ];
    let minutes = history.tube_minutes.get(tube).into_iter().flatten();
    for (minute, (name, key)) in minutes.zip(TUBE_RATES) {
        let value = history.tube_rate(tube, facts, key);
        let line = curve_line(&format!("  {name}"), value, minute, history.latest.at);
        lines.push(line);
    }
    lines.push(plain(""));
    lines
}

/// The next jobs, by state, in so many lines.
fn jobs(
    found: &[(State, Vec<WholeJob>)],
    selected: Option<JobId>,
    width: usize,
    room: usize,
) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut room = room;
    let some: Vec<_> = found.iter().filter(|(_, jobs)| !jobs.is_empty()).collect();
    for (index, (state, jobs)) in some.iter().enumerate() {
        let share = room / (some.len() - index);
        let shown = share.saturating_sub(2).min(jobs.len());
        if shown == 0 {
            break;
        }
        let left = if *state == State::Delayed { "LEFT" } else { "" };
        let title = format!(
            "next {:<8}{:>2} {:>10} {:>5} {:>5} {left:>5} {:>6}  BODY",
            state.name(),
            "ID",
            "PRI",
            "AGE",
            "TTR",
            "BYTES"
        );
        lines.push(styled(title, Style::Bold));
        // The page on which the selected one is.
        let is_selected = |job: &JobFacts| Some(job.id) == selected;
        let place = jobs.iter().position(|(job, _)| is_selected(job));
        let page = jobs.chunks(shown).nth(place.unwrap_or(0) / shown);
        lines.extend(page.unwrap_or_default().iter().map(|(job, body)| {
            let style = if is_selected(job) {
                Style::Reverse
            } else {
                Style::Plain
            };
            styled(job_line(job, body, width), style)
        }));
        lines.push(plain(""));
        room = room.saturating_sub(shown + 2);
    }
    lines
}

fn job_line(job: &JobFacts, body: &[u8], width: usize) -> String {
    let left = match job.state {
        State::Delayed => span(job.time_left.0.into()),
        _ => String::new(),
    };
    let facts = format!(
        "{:>15} {:>10} {:>5} {:>5} {left:>5} {:>6}  ",
        job.id.0,
        job.priority.0,
        span(job.age),
        span(job.ttr.0.into()),
        count(body.len() as u64, 6),
    );
    facts + &beginning(body, width)
}

/// The question that is open, or what happened last.
fn status(board: &Board) -> Line {
    if let Some(prompt) = &board.prompt {
        return styled(
            format!("{} {}_", prompt.purpose.question(), prompt.text),
            Style::Bold,
        );
    }
    let mut parts = Vec::new();
    if board.held {
        parts.push("held".to_owned());
    }
    if !board.filter.is_empty() {
        parts.push(format!("only tubes with '{}'", board.filter));
    }
    if !board.message.is_empty() {
        parts.push(board.message.clone());
    }
    let lost = board
        .servers
        .iter()
        .filter(|server| server.history.is_some());
    let reasons = lost.filter_map(|server| server.trouble().map(|(_, reason)| reason));
    let reasons: Vec<_> = reasons.collect();
    parts.extend(reasons.iter().cloned());
    let line = styled(parts.join("  "), Style::Bold);
    reasons
        .iter()
        .fold(line, |line, reason| line.marked(reason, Colour::Red))
}

fn bytes(number: u64) -> String {
    match number {
        0..=9999 => format!("{number} B"),
        10_000..=10_239_999 => format!("{} KiB", number / 1024),
        _ => format!("{} MiB", number / (1 << 20)),
    }
}

fn clip(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}
