//! The board as lines of text. This file knows nothing of terminals.

use super::{Board, COLUMNS, Row};
use crate::remote::form::{job_line, job_titles};
use crate::remote::trouble::words;
use crate::remote::{Column, Refusal, Tube};
use crate::text::{Colour, beginning, columns, counted, span};
use std::cmp::Reverse;

const KEYS: &str = "q quit  enter look  esc back  s sort";

/// A line of the screen: pieces of text, some of them in a colour.
#[derive(Clone, Default)]
pub struct Line {
    style: Style,
    pieces: Vec<(String, Option<Colour>)>,
}

/// How a line is highlighted, as the number of the ANSI sequence.
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
    let mut lines = head(board, width, (height / 2).max(6));
    let room = height.saturating_sub(lines.len() + 2);
    match board.selected.as_ref().filter(|_| board.is_open) {
        None => lines.extend(page(board, width, room)),
        Some(tube) => lines.extend(look_into(board, tube, width)),
    }
    lines.resize(height.saturating_sub(1), Line::default());
    lines.push(Line::plain(KEYS).styled(Style::Dim));
    lines.truncate(height);
    lines
}

/// Everything at once, for an output that is not a terminal.
pub fn printout(board: &Board, width: usize) -> Vec<String> {
    let [head, page] = [head, page].map(|part| part(board, width, usize::MAX));
    let lines = head.iter().chain(&page);
    lines.map(|line| line.text(width, false)).collect()
}

/// How many rows of the table can be seen.
pub fn visible_rows(board: &Board, height: usize) -> usize {
    let head = head(board, 0, (height / 2).max(6));
    height.saturating_sub(head.len() + 3).max(1)
}

/// A row for each server with the figures of all its tubes and, on a wide screen, more
/// about it; below it what needs a person. If there are too many for this number of lines,
/// those that need one come first, and the others are only counted.
fn head(board: &Board, width: usize, room: usize) -> Vec<Line> {
    let layout = Layout::of(board, width);
    let servers = (0..board.servers.len()).map(|index| of_server(board, &layout, index));
    let mut servers: Vec<_> = servers.collect();
    if servers.iter().flatten().count() + 2 > room {
        servers.sort_by_key(|lines| Reverse(lines.len()));
    }
    let (mut lines, mut more) = (vec![layout.titles("SERVER", None)], 0);
    for server in servers {
        // Two lines are for those that are counted and for a gap.
        match lines.len() + server.len() + 2 <= room && more == 0 {
            true => lines.extend(server),
            false => more += 1,
        }
    }
    if more > 0 {
        lines.push(Line::plain(format!("and {}", counted(more, "more server"))).styled(Style::Dim));
    }
    lines.push(Line::default());
    lines
}

/// What the head has of a server.
fn of_server(board: &Board, layout: &Layout, index: usize) -> Vec<Line> {
    let server = &board.servers[index];
    let (now, known) = (server.now(), server.known());
    let facts = &known.server.facts;
    let is_known = facts.get("id").is_some();
    let name = board.name(index, &server.named.title());
    let name = layout.name(server.named.colour, &name, "");
    let mut line = layout.row(name, false, |column| match column {
        _ if !is_known => None,
        Column::Age => None,
        Column::Watching => Some(facts.number("current-workers") as f64),
        column => known.server.figure(column),
    });
    if layout.is_wide && is_known {
        let (version, uptime) = (facts.text("version"), span(facts.number("uptime")));
        let [all, put, work, wait] = facts.connections();
        let all = counted(all, "connection");
        line = line.add(format!(
            "  {version}, up {uptime}, {all}: {put} put, {work} work, {wait} wait"
        ));
    }
    let refusal = Refusal::of(facts).map(Refusal::words);
    let refuses = || refusal.map(|reason| format!("TAKES NO JOBS: {reason}"));
    let trouble = known.lost(now).or_else(refuses);
    let below = trouble.map(|trouble| Line::default().add_in(Some(Colour::RED), trouble));
    [line].into_iter().chain(below).collect()
}

/// From this width on, the table shows timeouts, and what is wrong.
const ROOM_FOR_TROUBLE: usize = 100;
/// How many columns it has at least.
const TROUBLE: usize = 18;
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

/// The places of names and figures.
struct Layout {
    is_wide: bool,
    name_width: usize,
    columns: &'static [Column],
}

impl Layout {
    fn of(board: &Board, width: usize) -> Layout {
        let is_wide = width >= ROOM_FOR_TROUBLE;
        let columns = &COLUMNS[1..COLUMNS.len() - usize::from(!is_wide)];
        let figures: usize = columns.iter().map(|column| column.head().1 + 1).sum();
        // Numbers are beside the names, however wide the screen is. Before that of a server
        // there may be its number, and after that of a tube a mark.
        let servers = board.servers.iter().map(|server| server.named.title());
        let tubes = board.rows.iter().map(|(_, name)| name.as_str().len() + 8);
        let most = servers.map(|title| title.len() + 2).chain(tubes).max();
        let longest = most.unwrap_or(0).max(NAME);
        // A long name leaves room for the trouble.
        let others = figures + if is_wide { TROUBLE } else { 0 };
        Layout {
            is_wide,
            name_width: width.saturating_sub(others).max(8).min(longest),
            columns,
        }
    }

    fn titles(&self, first: &str, sorted_by: Option<Column>) -> Line {
        let mark = |column| if sorted_by == Some(column) { "*" } else { "" };
        let first = format!("{}{first}", mark(Column::Tube));
        let width = self.name_width;
        let mut titles = format!("{first:<width$}");
        for &column in self.columns {
            let (title, width) = column.head();
            titles += &format!(" {:>width$}", format!("{}{title}", mark(column)));
        }
        Line::plain(titles).styled(Style::Bold)
    }

    /// The beginning of a row: a name with a mark behind it.
    fn name(&self, colour: Option<Colour>, name: &str, mark: &str) -> Line {
        let width = self.name_width;
        // Without room for both, the name counts more.
        let mark = if width < 2 * mark.len() { "" } else { mark };
        let room = width.saturating_sub(mark.len());
        let name = format!("{name:.room$}{mark}");
        Line::default().add_in(colour, format!("{name:<width$}"))
    }

    /// The row with this beginning and these figures. `is_held_up` tells whether ready
    /// jobs get no worker.
    fn row(&self, name: Line, is_held_up: bool, figure: impl Fn(Column) -> Option<f64>) -> Line {
        self.columns.iter().fold(name, |line, &column| {
            let (figure, (_, width)) = (figure(column), column.head());
            let has = figure.is_some_and(|figure| figure > 0.0);
            let colour = match column {
                Column::Buried => has.then_some(Colour::RED),
                Column::Ready => is_held_up.then_some(Colour::YELLOW),
                Column::Timeouts => has.then_some(Colour::YELLOW),
                _ => None,
            };
            let text = match (column, figure) {
                (_, None) => "-".into(),
                (Column::Put | Column::Delete | Column::Timeouts, Some(figure)) => {
                    rate(figure, width)
                }
                (Column::Age, Some(age)) => span(age as u64),
                (_, Some(figure)) => count(figure as u64, width),
            };
            line.add_in(colour, format!(" {text:>width$}"))
        })
    }
}

/// Titles, and these rows.
fn table(board: &Board, rows: &[&Row], selected: Option<usize>, width: usize) -> Vec<Line> {
    let layout = Layout::of(board, width);
    let mut lines = vec![layout.titles("TUBE", Some(board.sort))];
    for (index, (server, name)) in rows.iter().enumerate() {
        let known = board.servers[*server].known();
        let Some(tube) = known.tubes.get(name).filter(|tube| !tube.is_gone) else {
            continue;
        };
        let mut line = row(&layout, &board.name(*server, name.as_str()), tube);
        if layout.is_wide {
            line = line.add("  ").add(words(&tube.troubles));
        }
        let is_lost = known.lost(board.servers[*server].now()).is_some();
        lines.push(line.styled(if Some(index) == selected {
            Style::Reverse
        } else if is_lost {
            Style::Dim
        } else {
            Style::Plain
        }));
    }
    lines
}

fn row(layout: &Layout, name: &str, tube: &Tube) -> Line {
    let marks = tube.troubles.iter().map(|trouble| trouble.kind.mark);
    let mark = match tube.pause() {
        0 => marks.map(str::to_owned).find(|mark| !mark.is_empty()),
        left => Some(format!("||{}", span(left))),
    };
    let mark = mark.map_or(String::new(), |mark| format!(" {mark}"));
    let colour = (!mark.is_empty()).then_some(Colour::YELLOW);
    let name = layout.name(colour, name, &mark);
    layout.row(name, tube.is_held_up(), |column| tube.figure(column))
}

/// The page of a tube: its row, its trouble and its next jobs.
fn look_into(board: &Board, tube: &Row, width: usize) -> Vec<Line> {
    let mut lines = table(board, &[tube], None, width);
    let (server, name) = tube;
    let known = board.servers[*server].known();
    let told = match known.tubes.get(name).filter(|tube| !tube.is_gone) {
        Some(tube) => words(&tube.troubles),
        None => format!("{name} does not exist"),
    };
    lines.push(Line::default().add_in(Some(Colour::YELLOW), told));
    lines.push(Line::default());
    lines.push(Line::plain(job_titles(true)).styled(Style::Bold));
    let jobs = known.jobs.iter().filter(|(job, _)| job.tube == *name);
    lines.extend(jobs.map(|(job, body)| Line::plain(job_line(job, body, true, Some(width)))));
    lines
}

/// A number in at most `width` characters; a large one loses digits.
fn count(number: u64, width: usize) -> String {
    let units = (0..).zip(["", "k", "M", "G", "T", "P", "E"]);
    let mut texts = units.map(|(power, unit)| format!("{}{unit}", number / 1000_u64.pow(power)));
    let fits = texts.find(|text| text.len() <= width);
    fits.unwrap_or_default()
}

/// A rate; a small one has a decimal.
fn rate(rate: f64, width: usize) -> String {
    if rate < 999.95 {
        format!("{rate:.1}")
    } else {
        count(rate as u64, width)
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
        assert_eq!(rate(12.34, 6), "12.3");
        assert_eq!(rate(123_456.7, 6), "123456");
    }

    #[test]
    fn text_of_a_server_is_escaped_on_the_screen_and_cut_by_its_width() {
        let line = Line::plain("a\x1b]0;title\x07\u{202e}b");
        assert_eq!(line.text(40, false), "a\\x1b]0;title\\x07\\u{202e}b");
        assert_eq!(Line::plain("工作队列").add("x").text(6, false), "工作队");
    }
}
