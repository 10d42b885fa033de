//! The board as lines of text. This file knows nothing of terminals.

use super::{Board, COLUMNS, Row};
use crate::server::stats::{Facts, JobFacts, State};
use crate::server::trouble::{Kind, refusal, words};
use crate::server::tubes::{Column, RATES};
use crate::server::watch::{Known, Tube, Watched};
use crate::text::{Colour, beginning, columns, counted, span};
use std::time::Duration;

const KEYS: &str = "q quit  enter look  esc back  s sort  / filter";

/// A line of the screen: pieces of text, some of them in a colour.
#[derive(Clone, Default)]
pub struct Line {
    style: Style,
    pieces: Vec<(String, Option<Colour>)>,
}

/// How a line stands out, as the number of the ANSI sequence.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Style {
    #[default]
    Plain = 0,
    Bold = 1,
    Dim = 2,
    Reverse = 7,
}

impl Line {
    fn plain(text: impl Into<String>) -> Line {
        Line::default().add(text)
    }

    fn styled(self, style: Style) -> Line {
        Line { style, ..self }
    }

    /// The same line with this text at its end.
    fn add(self, text: impl Into<String>) -> Line {
        self.add_in(None, text)
    }

    /// The same line with this text at its end, in a colour if one is given.
    fn add_in(mut self, colour: Option<Colour>, text: impl Into<String>) -> Line {
        self.pieces.push((text.into(), colour));
        self
    }

    /// Its text, cut to this width, with the sequences for a terminal if it is
    /// for one.
    pub fn text(&self, width: usize, is_terminal: bool) -> String {
        let base = format!("0;{}", self.style as u8);
        let (mut line, mut room) = (String::new(), width);
        for (text, colour) in &self.pieces {
            let text = beginning(text.as_bytes(), Some(room));
            room -= columns(&text);
            line += &match colour.and_then(Colour::code).filter(|_| is_terminal) {
                Some(code) => format!("\x1b[{base};{code}m{text}\x1b[{base}m"),
                None => text,
            };
        }
        match (is_terminal, self.style) {
            (false, _) => line.trim_end().into(),
            (true, Style::Reverse) => format!("\x1b[{base}m{line}{:room$}\x1b[0m", ""),
            (true, _) => format!("\x1b[{base}m{line}\x1b[0m"),
        }
    }
}

/// The whole screen, as `height` lines.
pub fn screen(board: &Board, width: usize, height: usize) -> Vec<Line> {
    let mut lines = head(board);
    let room = height.saturating_sub(lines.len() + 2);
    match board.selected.as_ref().filter(|_| board.is_open) {
        None => lines.extend(page(board, width, room)),
        Some(tube) => lines.extend(look_into(board, tube, width, room)),
    }
    lines.resize(height.saturating_sub(2), Line::default());
    lines.push(status(board));
    lines.push(Line::plain(KEYS).styled(Style::Dim));
    lines.truncate(height);
    lines
}

/// Everything at once, for an output that is not a terminal.
pub fn printout(board: &Board, width: usize) -> Vec<String> {
    let lines = [head(board), page(board, width, usize::MAX)].concat();
    lines.iter().map(|line| line.text(width, false)).collect()
}

/// How many rows of the table can be seen.
pub fn visible_rows(board: &Board, height: usize) -> usize {
    height.saturating_sub(head(board).len() + 3).max(1)
}

/// The state of the servers: several lines for a single one, otherwise a line
/// for each.
fn head(board: &Board) -> Vec<Line> {
    let mut lines = match board.servers.as_slice() {
        [only] => server_lines(only),
        several => servers_table(several),
    };
    lines.push(Line::default());
    lines
}

fn server_lines(server: &Watched) -> Vec<Line> {
    let (now, known) = (server.now(), server.known());
    let title = Line::default().styled(Style::Bold);
    let title = title.add_in(server.named.colour, server.named.title());
    let facts = &known.server.facts;
    if facts.get("id").is_none() {
        return vec![unheard_of(title, &known, now)];
    }
    let number = |key| facts.number(key);
    let (version, uptime) = (facts.text("version"), span(number("uptime")));
    let [all, put, work, wait] = facts.connections();
    let first = title
        .add(format!("  {version}  up {uptime}"))
        .add_in(Some(Colour::RED), state(&known, now, "  "))
        .add(format!(
            "  {}: {put} put, {work} work, {wait} wait",
            counted(all, "connection")
        ));
    let [ready, reserved, delayed, buried] = facts.jobs();
    let (urgent, put) = (number("current-jobs-urgent"), number("total-jobs"));
    let jobs =
        format!("jobs: {ready} ready ({urgent} urgent), {reserved} reserved, {delayed} delayed, ");
    let jobs = Line::plain(jobs)
        .add_in(Colour::RED.when(buried > 0), format!("{buried} buried"))
        .add(format!("; {put} put so far"));
    let mut rates = Line::plain("per second:");
    for (index, (name, _)) in RATES.into_iter().enumerate() {
        let value = known.server.rates.map(|rates| rates[index]);
        let is_bad = name == "timeouts" && value.is_some_and(|value| value > 0.0);
        let end = if index + 1 < RATES.len() { "," } else { "" };
        let text = format!(" {} {name}{end}", rate(value, 9));
        rates = rates.add_in(Colour::YELLOW.when(is_bad), text);
    }
    vec![first, jobs, rates, Line::plain(room(facts))]
}

/// What a server has room in.
fn room(facts: &Facts) -> String {
    let number = |key| facts.number(key);
    let (oldest, current) = (
        number("binlog-oldest-index"),
        number("binlog-current-index"),
    );
    let (live, size) = (number("binlog-live-size"), number("binlog-size"));
    let (used, most) = (number("memory-used"), number("max-memory"));
    let each = bytes(number("binlog-max-size"));
    let mut text = match current {
        0 => "binlog off".into(),
        _ => format!("binlog {oldest} to {current} of {each} each"),
    };
    if size > 0 {
        text += &format!(", {} of {} in use", bytes(live), bytes(size));
    }
    if most > 0 && used >= most / 5 * 4 {
        text += &format!("; memory {} of {}", bytes(used), bytes(most));
    }
    text
}

/// The line of a server that has not answered yet.
fn unheard_of(title: Line, known: &Known, now: Duration) -> Line {
    match known.lost(now) {
        Some((_, reason)) => title.add("  ").add_in(Some(Colour::RED), reason),
        None => title.add("  connecting"),
    }
}

/// What of a server needs a person, after these spaces: it does not answer, or it takes
/// no jobs.
fn state(known: &Known, now: Duration, spaces: &str) -> String {
    let lost = known.lost(now).map(|(word, _)| format!("{spaces}{word}"));
    let refusal = || refusal(&known.server.facts);
    let refuses = || refusal().map(|reason| format!("{spaces}TAKES NO JOBS: {reason}"));
    lost.or_else(refuses).unwrap_or_default()
}

/// A line for each of several servers, under a title.
fn servers_table(servers: &[std::sync::Arc<Watched>]) -> Vec<Line> {
    const WIDTH: usize = 31;
    let title = "  SERVER                         READY   RSVD   DLYD   BURY  PUT/S  DEL/S  TMO/S";
    let mut lines = vec![Line::plain(title).styled(Style::Bold)];
    for (index, server) in servers.iter().enumerate() {
        let (now, known) = (server.now(), server.known());
        let number = format!("{} ", index + 1);
        let (title, room) = (server.named.title(), WIDTH - number.len());
        let line = Line::plain(number);
        if known.server.facts.get("id").is_none() {
            let line = line.add_in(server.named.colour, title);
            lines.push(unheard_of(line, &known, now));
            continue;
        }
        let mut line = line.add_in(server.named.colour, format!("{title:<room$.room$}"));
        for (state, jobs) in State::ALL.into_iter().zip(known.server.facts.jobs()) {
            let is_bad = state == State::Buried && jobs > 0;
            line = line.add_in(Colour::RED.when(is_bad), format!(" {:>6}", count(jobs, 6)));
        }
        let state = state(&known, now, " ");
        lines.push(match state.is_empty() {
            // The rates are old, or there is no room for them.
            false => line.add_in(Some(Colour::RED), state),
            true => [0, 2, 3].into_iter().fold(line, |line, index| {
                let value = known.server.rates.map(|rates| rates[index]);
                line.add(format!(" {:>6}", rate(value, 6)))
            }),
        });
    }
    lines
}

/// From this width on, the table shows timeouts, and what is wrong.
const ROOM_FOR_TROUBLE: usize = 100;
/// Names up to this length have room on a wide screen in any case.
const NAME: usize = 20;

/// The page of the table that contains the selected row, in up to `room` lines.
fn page(board: &Board, width: usize, room: usize) -> Vec<Line> {
    let visible = room.saturating_sub(1);
    let start = board.page(visible);
    let rows = board.rows.iter().skip(start).take(visible);
    let selected = board.selection().checked_sub(start);
    table(board, &rows.collect::<Vec<_>>(), selected, width)
}

/// A title, and these rows.
fn table(board: &Board, rows: &[&Row], selected: Option<usize>, width: usize) -> Vec<Line> {
    let is_wide = width >= ROOM_FOR_TROUBLE;
    let columns = &COLUMNS[1..COLUMNS.len() - usize::from(!is_wide)];
    let figures: usize = columns.iter().map(|column| column.head().1 + 1).sum();
    // Numbers stand beside the names, however wide the screen is.
    let longest = rows.iter().map(|(_, name)| name.as_str().len() + 8);
    let longest = longest.max().unwrap_or(0).max(NAME);
    let name_width = width.saturating_sub(figures).max(8).min(longest);
    let head = |column: Column| {
        let mark = if column == board.sort { "*" } else { "" };
        format!("{mark}{}", column.head().0)
    };
    let mut title = Line::plain(format!("{:<name_width$}", head(Column::Tube)));
    for &column in columns {
        title = title.add(format!(" {:>1$}", head(column), column.head().1));
    }
    let mut lines = vec![title.styled(Style::Bold)];
    for (index, (server, name)) in rows.iter().enumerate() {
        let known = board.servers[*server].known();
        let Some(tube) = known.tubes.get(name).filter(|tube| !tube.is_gone) else {
            continue;
        };
        let name = match board.servers.len() {
            1 => name.to_string(),
            _ => format!("{} {name}", server + 1),
        };
        let mut line = row(&name, tube, columns, name_width);
        if is_wide {
            line = line.add("  ").add(words(&tube.troubles));
        }
        let is_lost = known.lost(board.servers[*server].now()).is_some();
        lines.push(line.styled(match Some(index) == selected {
            true => Style::Reverse,
            false if is_lost => Style::Dim,
            false => Style::Plain,
        }));
    }
    lines
}

fn row(name: &str, tube: &Tube, columns: &[Column], name_width: usize) -> Line {
    let kinds = tube.troubles.iter().map(|trouble| trouble.kind);
    let pause = tube.facts().number("pause-time-left");
    let mark = kinds.clone().find_map(|kind| match kind {
        Kind::Held | Kind::Paused => Some(format!(" ||{}", span(pause))),
        Kind::TimesOut => Some(" !time".into()),
        Kind::Fails => Some(" !job".into()),
        Kind::Grows => Some(" !grows".into()),
        _ => None,
    });
    let mark = mark.unwrap_or_default();
    let room = name_width.saturating_sub(mark.len());
    let name = format!("{name:.room$}{mark}");
    let colour = Colour::YELLOW.when(!mark.is_empty());
    let mut line = Line::default().add_in(colour, format!("{name:<name_width$}"));
    let is_held_up = kinds
        .clone()
        .any(|kind| matches!(kind, Kind::Unwatched | Kind::Limited));
    for &column in columns {
        let (figure, (_, width)) = (tube.figure(column), column.head());
        let has = figure.is_some_and(|figure| figure > 0.0);
        let colour = match column {
            Column::Buried => Colour::RED.when(has),
            Column::Ready => Colour::YELLOW.when(is_held_up),
            Column::Timeouts => Colour::YELLOW.when(has),
            _ => None,
        };
        let text = match (column, figure) {
            (Column::Put | Column::Delete | Column::Timeouts, figure) => rate(figure, width),
            (_, None) => "-".into(),
            (Column::Age, Some(age)) => span(age as u64),
            (_, Some(figure)) => count(figure as u64, width),
        };
        line = line.add_in(colour, format!(" {text:>width$}"));
    }
    line
}

/// The page of a tube, in up to `room` lines: its row, its trouble and its next
/// jobs.
fn look_into(board: &Board, tube: &Row, width: usize, room: usize) -> Vec<Line> {
    let mut lines = table(board, &[tube], None, width);
    let (server, name) = tube;
    let known = board.servers[*server].known();
    let told = match known.tubes.get(name).filter(|tube| !tube.is_gone) {
        Some(tube) => words(&tube.troubles),
        None => format!("{name} does not exist"),
    };
    lines.push(Line::default().add_in(Some(Colour::YELLOW), told));
    let jobs = known.jobs.iter().filter(|(job, _)| job.tube == *name);
    let jobs: Vec<_> = jobs.collect();
    let states: Vec<_> = jobs
        .chunk_by(|one, other| one.0.state == other.0.state)
        .collect();
    for (index, jobs) in states.iter().enumerate() {
        let share = room.saturating_sub(lines.len()) / (states.len() - index);
        if share <= 2 {
            break;
        }
        let title = format!(
            "next {:<8}{:>2} {:>10} {:>5} {:>5} {:>5} {:>5} {:>6}  BODY",
            jobs[0].0.state.name(),
            "ID",
            "PRI",
            "AGE",
            "TTR",
            "LEFT",
            "TRIES",
            "BYTES"
        );
        lines.push(Line::default());
        lines.push(Line::plain(title).styled(Style::Bold));
        let jobs = jobs.iter().take(share - 2);
        lines.extend(jobs.map(|(job, body)| Line::plain(next_job(job, body, width))));
    }
    lines
}

fn next_job(job: &JobFacts, body: &[u8], width: usize) -> String {
    let left = match job.state {
        State::Delayed => span(job.time_left.0.into()),
        _ => String::new(),
    };
    format!(
        "{:>15} {:>10} {:>5} {:>5} {left:>5} {:>5} {:>6}  {}{}",
        job.id.0,
        job.priority.0,
        span(job.age),
        span(job.ttr.0.into()),
        count(job.reserves, 5),
        count(body.len() as u64, 6),
        job.note(),
        beginning(body, Some(width)),
    )
}

/// The filter that is typed, or else the state of the screen.
fn status(board: &Board) -> Line {
    let mut line = Line::default().styled(Style::Bold);
    if let Some(typed) = &board.typed {
        return line.add(format!("show tubes with this in their names: {typed}_"));
    }
    if !board.filter.is_empty() {
        line = line.add(format!("only tubes with '{}'  ", board.filter));
    }
    for server in &board.servers {
        let (now, known) = (server.now(), server.known());
        let is_known = known.server.facts.get("id").is_some();
        if let Some((_, reason)) = known.lost(now).filter(|_| is_known) {
            let text = match known.failure {
                Some(_) => format!("{reason}; trying again  "),
                None => format!("{}: {reason}  ", server.named.address),
            };
            line = line.add_in(Some(Colour::RED), text);
        }
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

/// A number in at most `width` characters; a large one loses digits.
fn count(number: u64, width: usize) -> String {
    let (mut text, mut left) = (number.to_string(), number);
    let mut units = ["k", "M", "G", "T", "P", "E"].into_iter();
    while text.len() > width
        && let Some(unit) = units.next()
    {
        left /= 1000;
        text = format!("{left}{unit}");
    }
    text
}

/// A rate; a small one has a decimal.
fn rate(rate: Option<f64>, width: usize) -> String {
    match rate {
        None => "-".into(),
        Some(rate) if rate < 999.95 => format!("{rate:.1}"),
        Some(rate) => count(rate as u64, width),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_shortened_to_their_column() {
        assert_eq!(count(999_999, 6), "999999");
        assert_eq!(count(1_999_999, 6), "1999k");
        assert_eq!(count(123_456_789, 7), "123456k");
        assert_eq!(count(123_456_789, 5), "123M");
        assert_eq!(count(u64::MAX, 6), "18446P");
        assert_eq!(rate(Some(12.34), 6), "12.3");
        assert_eq!(rate(Some(123_456.7), 6), "123456");
        assert_eq!(rate(None, 6), "-");
    }

    #[test]
    fn text_of_a_server_is_escaped_on_the_screen_and_cut_by_its_width() {
        let line = Line::plain("a\x1b]0;title\x07\u{202e}b");
        assert_eq!(line.text(40, false), "a\\x1b]0;title\\x07\\u{202e}b");
        assert_eq!(Line::plain("工作队列").add("x").text(6, false), "工作队");
    }
}
