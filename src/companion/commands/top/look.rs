//! The page of one tube as lines: its facts, its rates and its next jobs.

use super::board::{Board, Page, Server};
use super::line::{Line, Style};
use super::rows::{count, rate};
use super::sample::SECONDS;
use super::watcher::WholeJob;
use crate::server::sample::TUBE_RATES;
use crate::server::stats::{Facts, JobFacts, State};
use crate::text::colour::Colour;
use crate::text::words::{beginning, span};
use beanpole::protocol::{JobId, TubeName};

/// The page of a tube, in up to `room` lines.
pub fn look_into(board: &Board, page: &Page, width: usize, room: usize) -> Vec<Line> {
    let mut lines = tube_lines(&board.servers[page.server], &page.tube);
    let room = room.saturating_sub(lines.len());
    let look = page.look.as_deref().unwrap_or_default();
    lines.extend(jobs(look, board.selected_job(), width, room));
    lines
}

/// The facts and the rates of a tube.
fn tube_lines(server: &Server, tube: &TubeName) -> Vec<Line> {
    let mut lines = vec![Line::bold(format!("tube {tube}"))];
    let history = server.history.as_ref();
    let Some((history, facts)) = history.and_then(|history| Some((history, history.tube(tube)?)))
    else {
        lines.push(Line::plain("  does not exist"));
        return lines;
    };
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
    let (put, deleted) = (number("total-jobs"), number("cmd-delete"));
    lines.push(counts_of(Line::plain("  "), facts, None));
    lines.push(Line::plain(format!(
        "  {put} put so far, {deleted} deleted"
    )));
    lines.push(Line::plain(users));
    let minutes = history.tube_minutes.get(tube).into_iter().flatten();
    for (minute, (name, key)) in minutes.zip(TUBE_RATES) {
        let (name, value) = (format!("  {name}"), history.tube_rate(tube, key));
        let growth = minute.growth(history.latest.at);
        lines.push(curve_line(&name, None, value, &growth, SECONDS));
    }
    lines.push(Line::default());
    lines
}

/// Adds to a line how many jobs a server or a tube has; the buried ones are in
/// this colour.
pub fn counts_of(line: Line, facts: &Facts, colour: Option<Colour>) -> Line {
    let [ready, reserved, delayed, buried] = State::ALL.map(|state| facts.jobs_in(&[state]));
    let urgent = facts.number("current-jobs-urgent");
    let text =
        format!("jobs: {ready} ready ({urgent} urgent), {reserved} reserved, {delayed} delayed, ");
    line.add(text).add_in(colour, format!("{buried} buried"))
}

/// A rate, and as much of the curve of its last minute as there is room for.
/// The name is in this colour.
pub fn curve_line(
    name: &str,
    colour: Option<Colour>,
    value: Option<f64>,
    growth: &[f64],
    room: usize,
) -> Line {
    let (curve, _) = curve(growth, room);
    let text = format!("{:>7}/s  {curve}", rate(value, 7));
    Line::default()
        .add_in(colour, format!("{name:<9}"))
        .add(text.trim_end())
}

/// The last of these values as a curve of this width, and the highest of them.
pub fn curve(values: &[f64], width: usize) -> (String, f64) {
    let shown = &values[values.len().saturating_sub(width)..];
    let most = shown.iter().copied().fold(0.0, f64::max);
    let point = |value: &f64| match (value / most * 7.0).round() {
        _ if *value <= 0.0 => ' ',
        height => ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'][(height as usize).min(7)],
    };
    (shown.iter().map(point).collect(), most)
}

/// The next jobs of each state, in up to `room` lines.
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
        lines.push(Line::bold(format!(
            "next {:<8}{:>2} {:>10} {:>5} {:>5} {left:>5} {:>6}  BODY",
            state.name(),
            "ID",
            "PRI",
            "AGE",
            "TTR",
            "BYTES"
        )));
        // The page that contains the selected job.
        let is_selected = |job: &JobFacts| Some(job.id) == selected;
        let place = jobs.iter().position(|(job, _)| is_selected(job));
        let page = jobs.chunks(shown).nth(place.unwrap_or(0) / shown);
        for (job, body) in page.unwrap_or_default() {
            let style = match is_selected(job) {
                true => Style::Reverse,
                false => Style::Plain,
            };
            lines.push(Line::plain(job_line(job, body, width)).styled(style));
        }
        lines.push(Line::default());
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
    facts + &job.limit() + &beginning(body, Some(width))
}
