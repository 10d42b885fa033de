//! The board as lines of text. This file knows nothing of terminals.

use super::board::{Board, COLUMNS, page_of};
use crate::server::sample::{Column, RATES};
use crate::server::stats::{JobFacts, State};
use crate::server::trouble::{Trouble, refusal, words};
use crate::server::watch::{Known, Tube, Watched};
use crate::text::{Colour, beginning, counted, shown, span};
use beanpole::protocol::{JobId, TubeName};
use std::time::Duration;

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

Red is what is lost, buried or refused. Yellow are tubes whose jobs nobody
watches, fail, time out or wait for a limit, and pauses. A wide screen says what
is wrong with each tube.
What was before, and bodies in full, the console shows.";

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
            // What a server says must not disturb the terminal.
            let text = clip(&shown(text.as_bytes(), false), room);
            room -= text.chars().count();
            line += &match colour.and_then(Colour::code).filter(|_| is_terminal) {
                Some(code) => format!("\x1b[{base};{code}m{text}\x1b[{base}m"),
                None => text,
            };
        }
        if !is_terminal {
            return line.trim_end().into();
        }
        let rest = if self.style == Style::Reverse {
            room
        } else {
            0
        };
        format!("\x1b[{base}m{line}{:rest$}\x1b[0m", "")
    }
}

/// The first `width` characters of a text.
fn clip(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

/// The whole screen, as `height` lines.
pub fn screen(board: &Board, width: usize, height: usize) -> Vec<Line> {
    let mut lines = match board.help {
        true => HELP.lines().map(Line::plain).collect(),
        false => head(board),
    };
    let room = height.saturating_sub(lines.len() + 2);
    match &board.page {
        _ if board.help => {}
        None => lines.extend(page(board, width, room)),
        Some(tube) => lines.extend(look_into(board, tube, width, room)),
    }
    lines.resize(height.saturating_sub(2), Line::default());
    lines.push(status(board));
    let keys = match board.page {
        None => KEYS_OF_LIST,
        Some(_) => KEYS_OF_TUBE,
    };
    lines.push(Line::plain(keys).styled(Style::Dim));
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
    let facts = &known.facts;
    if facts.get("id").is_none() {
        return vec![unheard_of(title, &known, now)];
    }
    let number = |key| facts.number(key);
    let state = state(&known, now).map_or(String::new(), |state| format!("  {state}"));
    let (version, uptime) = (facts.text("version"), span(number("uptime")));
    let [all, put, work, wait] = ["connections", "producers", "workers", "waiting"]
        .map(|key| facts.number(&format!("current-{key}")));
    let first = title
        .add(format!("  {version}  up {uptime}"))
        .add_in(Some(Colour::RED), state)
        .add(format!(
            "  {}: {put} put, {work} work, {wait} wait",
            counted(all, "connection")
        ));
    let [ready, reserved, delayed, buried] = facts.jobs();
    let (urgent, put) = (number("current-jobs-urgent"), number("total-jobs"));
    let jobs =
        format!("jobs: {ready} ready ({urgent} urgent), {reserved} reserved, {delayed} delayed, ");
    let jobs = Line::plain(jobs)
        .add_in(
            (buried > 0).then_some(Colour::RED),
            format!("{buried} buried"),
        )
        .add(format!("; {put} put so far"));
    let mut rates = Line::plain("per second:");
    for (index, (name, _)) in RATES.into_iter().enumerate() {
        let value = known.rates.map(|rates| rates[index]);
        let is_bad = name == "timeouts" && value.is_some_and(|value| value > 0.0);
        let end = if index + 1 < RATES.len() { "," } else { "" };
        let text = format!(" {} {name}{end}", rate(value, 9));
        rates = rates.add_in(is_bad.then_some(Colour::YELLOW), text);
    }
    let mut binlog = match number("binlog-current-index") {
        0 => "binlog off".into(),
        current => format!(
            "binlog {} to {current} of {} each",
            number("binlog-oldest-index"),
            bytes(number("binlog-max-size"))
        ),
    };
    if number("binlog-size") > 0 {
        let (live, size) = (number("binlog-live-size"), number("binlog-size"));
        binlog += &format!(", {} of {} in use", bytes(live), bytes(size));
    }
    let (used, most) = (number("memory-used"), number("max-memory"));
    if most > 0 && used >= most / 5 * 4 {
        binlog += &format!("; memory {} of {}", bytes(used), bytes(most));
    }
    vec![first, jobs, rates, Line::plain(binlog)]
}

/// The line of a server that has not answered yet.
fn unheard_of(title: Line, known: &Known, now: Duration) -> Line {
    match known.lost(now) {
        Some((_, reason)) => title.add("  ").add_in(Some(Colour::RED), reason),
        None => title.add("  connecting"),
    }
}

/// What of a server needs a person: it does not answer, or it takes no jobs.
fn state(known: &Known, now: Duration) -> Option<String> {
    let lost = known.lost(now).map(|(word, _)| word.into());
    lost.or_else(|| refusal(&known.facts).map(|reason| format!("TAKES NO JOBS: {reason}")))
}

/// A line for each of several servers, under a title.
fn servers_table(servers: &[std::sync::Arc<Watched>]) -> Vec<Line> {
    const WIDTH: usize = 31;
    let cell = |text: &str| format!(" {text:>6}");
    let heads = ["READY", "RSVD", "DLYD", "BURY", "PUT/S", "DEL/S", "TMO/S"];
    let heads: String = heads.map(cell).concat();
    let title = Line::plain(format!("{:<WIDTH$}{heads}", "  SERVER"));
    let mut lines = vec![title.styled(Style::Bold)];
    for (index, server) in servers.iter().enumerate() {
        let (now, known) = (server.now(), server.known());
        let number = format!("{} ", index + 1);
        let (title, room) = (server.named.title(), WIDTH - number.len());
        let line = Line::plain(number);
        if known.facts.get("id").is_none() {
            let line = line.add_in(server.named.colour, title);
            lines.push(unheard_of(line, &known, now));
            continue;
        }
        let title = format!("{:<room$}", clip(&title, room));
        let mut line = line.add_in(server.named.colour, title);
        for (state, jobs) in State::ALL.into_iter().zip(known.facts.jobs()) {
            let is_bad = state == State::Buried && jobs > 0;
            line = line.add_in(is_bad.then_some(Colour::RED), cell(&count(jobs, 6)));
        }
        lines.push(match state(&known, now) {
            // The rates are old, or there is no room for them.
            Some(state) => line.add_in(Some(Colour::RED), cell(&state)),
            None => {
                let value = |index: usize| rate(known.rates.map(|rates| rates[index]), 6);
                line.add([0, 2, 3].map(|index| cell(&value(index))).concat())
            }
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
    let selected = board.selection();
    let (start, rows) = page_of(&board.rows, selected, room.saturating_sub(1));
    table(board, rows, Some(selected - start), width)
}

/// A title, and these rows.
fn table(
    board: &Board,
    rows: &[(usize, TubeName)],
    selected: Option<usize>,
    width: usize,
) -> Vec<Line> {
    let is_wide = width >= ROOM_FOR_TROUBLE;
    let columns = &COLUMNS[1..COLUMNS.len() - usize::from(!is_wide)];
    let figures: usize = columns.iter().map(|column| column.head().1 + 1).sum();
    // Numbers stand beside the names, however wide the screen is.
    let longest = rows.iter().map(|(_, name)| name.as_str().len() + 8);
    let longest = longest.max().unwrap_or(0).max(NAME);
    let name_width = width.saturating_sub(figures).max(8).min(longest);
    let head = |column: Column| {
        let mark = match (column == board.sort, board.is_turned) {
            (false, _) => "",
            (true, false) => "*",
            (true, true) => "^",
        };
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
        let number = match board.servers.len() {
            1 => String::new(),
            _ => format!("{} ", server + 1),
        };
        let line = row(&format!("{number}{name}"), tube, columns, name_width);
        let line = match is_wide {
            true => line.add("  ").add(words(&tube.troubles)),
            false => line,
        };
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
    let mark = tube.troubles.iter().find_map(|trouble| match trouble {
        Trouble::Held(left) | Trouble::Paused(left) => Some(format!(" ||{}", span(*left))),
        Trouble::TimesOut(_) => Some(" !time".into()),
        Trouble::Fails(..) => Some(" !job".into()),
        Trouble::Grows(_) => Some(" !grows".into()),
        _ => None,
    });
    let mark = mark.unwrap_or_default();
    let name = format!(
        "{}{mark}",
        clip(name, name_width.saturating_sub(mark.len()))
    );
    let yellow = |is_so: bool| is_so.then_some(Colour::YELLOW);
    let mut line = Line::default().add_in(yellow(!mark.is_empty()), format!("{name:<name_width$}"));
    for &column in columns {
        let (figure, (_, width)) = (tube.figure(column), column.head());
        let has = figure.is_some_and(|figure| figure > 0.0);
        let is_held_up =
            |trouble: &Trouble| matches!(trouble, Trouble::Unwatched | Trouble::Limited);
        let colour = match column {
            Column::Buried if has => Some(Colour::RED),
            Column::Ready => yellow(tube.troubles.iter().any(is_held_up)),
            Column::Timeouts => yellow(has),
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
fn look_into(board: &Board, page: &(usize, TubeName), width: usize, room: usize) -> Vec<Line> {
    let mut lines = table(board, std::slice::from_ref(page), None, width);
    let selected = board.selected_job();
    let known = board.servers[page.0].known();
    let told = match known.tubes.get(&page.1).filter(|tube| !tube.is_gone) {
        Some(tube) => words(&tube.troubles),
        None => format!("{} does not exist", page.1),
    };
    lines.push(Line::default().add_in(Some(Colour::YELLOW), told));
    lines.push(Line::default());
    let of_tube = known.jobs.iter().filter(|(job, _)| job.tube == page.1);
    let room = room.saturating_sub(lines.len());
    lines.extend(jobs(&of_tube.collect::<Vec<_>>(), selected, width, room));
    lines
}

/// The next jobs of each state, in up to `room` lines.
fn jobs(
    found: &[&(JobFacts, Vec<u8>)],
    selected: Option<JobId>,
    width: usize,
    room: usize,
) -> Vec<Line> {
    let mut lines = Vec::new();
    let by_state: Vec<_> = found
        .chunk_by(|one, other| one.0.state == other.0.state)
        .collect();
    for (index, jobs) in by_state.iter().enumerate() {
        let share = room.saturating_sub(lines.len()) / (by_state.len() - index);
        let most = share.saturating_sub(2).min(jobs.len());
        if most == 0 {
            break;
        }
        let state = jobs[0].0.state;
        let left = if state == State::Delayed { "LEFT" } else { "" };
        let title = format!(
            "next {:<8}{:>2} {:>10} {:>5} {:>5} {left:>5} {:>5} {:>6}  BODY",
            state.name(),
            "ID",
            "PRI",
            "AGE",
            "TTR",
            "TRIES",
            "BYTES"
        );
        lines.push(Line::plain(title).styled(Style::Bold));
        let is_selected = |job: &JobFacts| Some(job.id) == selected;
        let place = jobs.iter().position(|(job, _)| is_selected(job));
        for (job, body) in page_of(jobs, place.unwrap_or(0), most).1 {
            let left = match state {
                State::Delayed => span(job.time_left.0.into()),
                _ => String::new(),
            };
            let facts = format!(
                "{:>15} {:>10} {:>5} {:>5} {left:>5} {:>5} {:>6}  ",
                job.id.0,
                job.priority.0,
                span(job.age),
                span(job.ttr.0.into()),
                count(job.reserves, 5),
                count(body.len() as u64, 6),
            );
            let line = Line::plain(facts + &job.note() + &beginning(body, Some(width)));
            lines.push(match is_selected(job) {
                true => line.styled(Style::Reverse),
                false => line,
            });
        }
        lines.push(Line::default());
    }
    lines
}

/// The open question, or else the state of the screen and the latest message.
fn status(board: &Board) -> Line {
    let line = Line::default().styled(Style::Bold);
    if let Some(prompt) = &board.prompt {
        return line.add(format!("{} {}_", prompt.question, prompt.text));
    }
    let mut parts = Vec::new();
    if board.is_held {
        parts.push((None, "held".into()));
    }
    if !board.filter.is_empty() {
        parts.push((None, format!("only tubes with '{}'", board.filter)));
    }
    if !board.message.is_empty() {
        parts.push((None, board.message.clone()));
    }
    for server in &board.servers {
        let (now, known) = (server.now(), server.known());
        if let Some((_, reason)) = known.lost(now).filter(|_| known.facts.get("id").is_some()) {
            let text = match known.failure {
                Some(_) => format!("{reason}; trying again"),
                None => format!("{}: {reason}", server.named.address),
            };
            parts.push((Some(Colour::RED), text));
        }
    }
    let parts = parts.into_iter().enumerate();
    parts.fold(line, |line, (index, (colour, text))| {
        line.add(if index > 0 { "  " } else { "" })
            .add_in(colour, text)
    })
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
    fn text_of_a_server_is_escaped_on_the_screen() {
        let line = Line::plain("a\x1b]0;title\x07\u{202e}b");
        assert_eq!(line.text(40, false), "a\\x1b]0;title\\x07\\u{202e}b");
    }
}
