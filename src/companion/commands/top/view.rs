//! The board as lines of text. What a line looks like beyond its text is its
//! style; nothing here knows a terminal.

use super::board::{Board, Page, Server, page_of};
use super::rows::{Column, Row, count, rate};
use super::sample::History;
use super::watcher::WholeJob;
use crate::server::stats::{Facts, JobFacts, State};
use crate::text::words::{beginning, span};
use beanpole::protocol::TubeName;

/// A line of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub text: String,
    pub style: Style,
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
    "q quit  enter look  s sort  r turn  / filter  space hold  k kick  p pause";
const KEYS_OF_TUBE: &str = "q quit  esc back  space hold  k kick  p pause";

fn plain(text: impl Into<String>) -> Line {
    Line {
        text: text.into(),
        style: Style::Plain,
    }
}

fn styled(text: impl Into<String>, style: Style) -> Line {
    Line {
        text: text.into(),
        style,
    }
}

/// The whole screen: as many lines as there are rows, none wider.
pub fn screen(board: &Board, width: usize, height: usize) -> Vec<Line> {
    let mut lines = head(board, width);
    let room = height.saturating_sub(lines.len() + 2);
    match &board.page {
        Page::Tubes => lines.extend(table(board, width, room)),
        Page::Tube { server, tube, look } => {
            let server = &board.servers[*server];
            lines.extend(facts_of(server, tube));
            let room = height.saturating_sub(lines.len() + 2);
            let found = look
                .as_ref()
                .map(|look| look.jobs.as_slice())
                .unwrap_or_default();
            lines.extend(jobs(found, width, room));
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
    let mut lines = head(board, width);
    lines.extend(table(board, width, usize::MAX));
    for line in &mut lines {
        line.text = line.text.trim_end().into();
    }
    lines
}

/// How many rows of the table fit.
pub fn visible_rows(board: &Board, width: usize, height: usize) -> usize {
    height.saturating_sub(head(board, width).len() + 3).max(1)
}

/// Something about each server: much of one, a line of each of several.
fn head(board: &Board, width: usize) -> Vec<Line> {
    let mut lines = match board.servers.as_slice() {
        [only] => server_lines(only),
        several => servers_table(several),
    };
    lines.push(plain(""));
    for line in &mut lines {
        line.text = clip(&line.text, width);
    }
    lines
}

fn server_lines(server: &Server) -> Vec<Line> {
    let address = server.named.title();
    let Some(history) = &server.history else {
        let reason = server.failure.as_deref().unwrap_or("connecting");
        return vec![styled(format!("{address}  {reason}"), Style::Bold)];
    };
    let facts = &history.latest.server;
    let number = |key| facts.number(key);
    let draining = match facts.text("draining") {
        "true" => "  DRAINING",
        _ => "",
    };
    let first = format!(
        "{address}  {}  up {}{draining}  {} connections: {} put, {} work, {} wait",
        facts.text("version"),
        span(number("uptime")),
        number("current-connections"),
        number("current-producers"),
        number("current-workers"),
        number("current-waiting"),
    );
    let per_second = |key| rate(history.rate(key), 9);
    let reserves = ["cmd-reserve", "cmd-reserve-with-timeout"].map(|key| history.rate(key));
    let reserves = reserves.into_iter().sum::<Option<f64>>();
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
    vec![
        styled(first, Style::Bold),
        plain(format!(
            "jobs: {} ready ({} urgent), {} reserved, {} delayed, {} buried; {} put so far",
            number("current-jobs-ready"),
            number("current-jobs-urgent"),
            number("current-jobs-reserved"),
            number("current-jobs-delayed"),
            number("current-jobs-buried"),
            number("total-jobs"),
        )),
        plain(format!(
            "per second: {} put, {} reserve, {} delete, {} timeouts",
            per_second("total-jobs"),
            rate(reserves, 9),
            per_second("cmd-delete"),
            per_second("job-timeouts"),
        )),
        plain(binlog),
    ]
}

/// A line for each of several servers, under a title.
fn servers_table(servers: &[Server]) -> Vec<Line> {
    let title = ["READY", "RSVD", "DLYD", "BURY", "PUT/S", "DEL/S", "TMO/S"];
    let mut lines = vec![styled(server_line("  SERVER", &title), Style::Bold)];
    for (index, server) in servers.iter().enumerate() {
        let name = format!("{} {}", index + 1, server.named.title());
        let Some(history) = &server.history else {
            let reason = server.failure.as_deref().unwrap_or("connecting");
            lines.push(plain(format!("{name}  {reason}")));
            continue;
        };
        let facts = &history.latest.server;
        let counts = State::ALL.map(|state| count(facts.number(state.count_key()), 6));
        let rates =
            ["total-jobs", "cmd-delete", "job-timeouts"].map(|key| rate(history.rate(key), 6));
        lines.push(plain(server_line(
            &name,
            &[&counts[..], &rates[..]].concat(),
        )));
    }
    lines
}

fn server_line(name: &str, cells: &[impl std::fmt::Display]) -> String {
    let cells: String = cells.iter().map(|cell| format!(" {cell:>6}")).collect();
    format!("{:<31}{cells}", clip(name, 31))
}

/// The title and so many rows less one.
fn table(board: &Board, width: usize, room: usize) -> Vec<Line> {
    let figures: usize = Column::ALL.iter().map(|column| column.head().1 + 1).sum();
    let name_width = width.saturating_sub(figures - 1).max(8);
    let several = board.servers.len() > 1;
    let mut title = String::new();
    for column in Column::ALL {
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
            false if board.servers[row.server].failure.is_some() => Style::Dim,
            false => Style::Plain,
        };
        lines.push(styled(row_text(row, several, name_width), style));
    }
    lines
}

fn row_text(row: &Row, several: bool, name_width: usize) -> String {
    let mut text = String::new();
    for column in Column::ALL {
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
        text += &cell(&content, column, name_width, column.head().1);
    }
    text
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
    let per_second = |key| rate(history.tube_rate(tube, facts, key), 9);
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
    vec![
        plain(format!(
            "  jobs: {} ready ({} urgent), {} reserved, {} delayed, {} buried",
            number("current-jobs-ready"),
            number("current-jobs-urgent"),
            number("current-jobs-reserved"),
            number("current-jobs-delayed"),
            number("current-jobs-buried"),
        )),
        plain(format!(
            "  {} put so far, {} deleted; {} put/s, {} delete/s",
            number("total-jobs"),
            number("cmd-delete"),
            per_second("total-jobs"),
            per_second("cmd-delete"),
        )),
        plain(users),
        plain(""),
    ]
}

/// The next jobs, by state, in so many lines.
fn jobs(found: &[(State, Vec<WholeJob>)], width: usize, room: usize) -> Vec<Line> {
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
        lines.extend(
            jobs[..shown]
                .iter()
                .map(|(job, body)| plain(job_line(job, body, width))),
        );
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
    parts.extend(
        lost.filter_map(|server| Some(format!("{}; trying again", server.failure.as_ref()?))),
    );
    styled(parts.join("  "), Style::Bold)
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
