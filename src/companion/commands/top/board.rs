//! What the screen shows: the latest answers of the servers, and what is
//! selected. Also what a key does. Nothing here draws or asks a server.

use super::rows::{Row, beside};
use super::sample::History;
use super::watcher::{Answer, Look, Request};
use crate::server::change::JobAction;
use crate::server::columns::Column;
use crate::server::names;
use crate::server::stats::State;
use crate::server::tubes::Patterns;
use crate::text::terminal::Key;
use crate::values::Parse;
use beanpole::protocol::{JobId, Seconds, TubeName};
use std::time::Duration;

/// Everything that the screen shows.
#[derive(Default)]
pub struct Board {
    pub servers: Vec<Server>,
    pub sort: Column,
    pub reversed: bool,
    /// Only these tubes are shown.
    tubes: Patterns,
    /// Only tubes with this text in their names are shown.
    pub filter: String,
    /// The tubes that are to be shown, in their order. They are arranged when
    /// something of this changes, because there may be very many.
    rows: Vec<Row>,
    /// Whether the screen stands still: new answers are not shown.
    pub held: bool,
    /// The selected tube, and the index of its server.
    pub selected: Option<(usize, TubeName)>,
    /// The tube that fills the screen; `None` if the table of all tubes does.
    pub page: Option<Page>,
    /// Whether the help text is shown instead.
    pub help: bool,
    pub prompt: Option<Prompt>,
    /// The result of the last action.
    pub message: String,
}

/// A server, and its latest answers.
pub struct Server {
    pub named: names::Server,
    pub history: Option<History>,
    /// Why the last request had no answer.
    pub failure: Option<String>,
    /// For how long an answer has been missing, if that is long.
    pub silent: Option<Duration>,
}

/// The page of one tube of a server.
pub struct Page {
    pub server: usize,
    pub tube: TubeName,
    /// The next jobs of the tube, once they are known.
    pub look: Option<Look>,
    /// The job that was selected; it may be gone.
    job: Option<JobId>,
}

/// A question in the last line but one of the screen.
pub struct Prompt {
    pub question: String,
    pub text: String,
    purpose: Purpose,
}

/// What the answer is for.
enum Purpose {
    Filter,
    Kick(usize, TubeName),
    Pause(usize, TubeName),
    /// If the answer is yes, this server gets this request.
    Consent(usize, Request),
}

/// What the caller has to do after a key.
pub enum Action {
    Nothing,
    Quit,
    /// Send this request to this server, and take a new sample soon.
    Ask(usize, Request),
    /// Take a new sample soon.
    Refresh,
    /// Leave the terminal to the shell for a while.
    Suspend,
}

impl Server {
    /// What is wrong with the server, in a word and in a sentence.
    pub fn trouble(&self) -> Option<(&'static str, String)> {
        if let Some(reason) = &self.failure {
            return Some(("LOST", format!("{reason}; trying again")));
        }
        let (address, seconds) = (&self.named.address, self.silent?.as_secs());
        let reason = format!("{address}: no answer for {seconds} seconds");
        Some(("SILENT", reason))
    }
}

impl Board {
    pub fn new(servers: &[names::Server], sort: Column, tubes: Patterns) -> Board {
        let server = |named: &names::Server| Server {
            named: named.clone(),
            history: None,
            failure: None,
            silent: None,
        };
        Board {
            servers: servers.iter().map(server).collect(),
            sort,
            tubes,
            ..Board::default()
        }
    }

    /// The tubes that are to be shown, in their order.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    fn arrange(&mut self) {
        let mut rows = Vec::new();
        for (index, server) in self.servers.iter().enumerate() {
            let history = server.history.iter();
            let is_shown =
                |tube: &TubeName| self.tubes.mean(tube) && tube.as_str().contains(&self.filter);
            rows.extend(history.flat_map(|history| Row::of(index, history, is_shown)));
        }
        rows.sort_by(|one, other| one.compare(other, self.sort));
        if self.reversed {
            rows.reverse();
        }
        self.rows = rows;
    }

    /// The index of the selected row; 0 if it is gone.
    pub fn selection(&self) -> usize {
        let Some((server, tube)) = &self.selected else {
            return 0;
        };
        let is_selected = |row: &Row| row.server == *server && row.tube == *tube;
        self.rows.iter().position(is_selected).unwrap_or(0)
    }

    /// The requests to send to this server next, if `visible` rows can be seen.
    pub fn requests(&self, server: usize, visible: usize) -> Vec<Request> {
        let seen = match self.sort {
            Column::Age => &self.rows,
            _ => page_of(&self.rows, self.selection(), visible).1,
        };
        let mine = seen.iter().filter(|row| row.server == server);
        let mut requests = vec![Request::Sample(mine.map(|row| row.tube.clone()).collect())];
        if let Some(page) = self.page.as_ref().filter(|page| page.server == server) {
            requests.push(Request::Look(page.tube.clone(), visible));
        }
        requests
    }

    /// Takes in the answer of a server.
    pub fn hear(&mut self, server: usize, answer: Answer) {
        let heard = &mut self.servers[server];
        match answer {
            Answer::Failed(reason) => {
                heard.failure = Some(reason);
                return;
            }
            // The screen stands still, so this is not shown.
            Answer::Sample(_) | Answer::Look(..) if self.held => {}
            Answer::Sample(sample) => {
                heard.history = Some(History::after(heard.history.take(), *sample));
                heard.failure = None;
                return self.arrange();
            }
            Answer::Look(of, found) => {
                let is_meant = |page: &&mut Page| page.server == server && page.tube == of;
                if let Some(page) = self.page.as_mut().filter(is_meant) {
                    page.look = Some(found);
                }
            }
            Answer::Done(what) => self.message = what,
        }
        heard.failure = None;
    }

    /// Does what a key means, if `visible` rows can be seen.
    pub fn press(&mut self, key: Key, visible: usize) -> Action {
        if matches!(key, Key::Ctrl('c') | Key::Closed) {
            return Action::Quit;
        }
        if key == Key::Ctrl('z') {
            return Action::Suspend;
        }
        self.message.clear();
        if let Some(prompt) = self.prompt.take() {
            return self.answer(prompt, key);
        }
        if std::mem::take(&mut self.help) && key != Key::Char('q') {
            return Action::Nothing;
        }
        match key {
            Key::Char('q') => return Action::Quit,
            Key::Char('?' | 'h') => self.help = true,
            Key::Char('c') => self.ask_about_clearing(),
            Key::Char(' ') => self.held = !self.held,
            Key::Char('k') => {
                if let Some((server, tube)) = self.selected_tube() {
                    let question = format!("kick how many jobs of {tube}?");
                    self.ask(question, Purpose::Kick(server, tube));
                }
            }
            Key::Char('p') => {
                if let Some((server, tube)) = self.selected_tube() {
                    let question = format!("pause {tube} for how long (0 ends a pause)?");
                    self.ask(question, Purpose::Pause(server, tube));
                }
            }
            _ => {}
        }
        match (&self.page, key) {
            (Some(_), Key::Escape | Key::Enter | Key::Left) => {
                self.page = None;
                Action::Nothing
            }
            (Some(_), key) => self.press_in_tube(key),
            (None, key) => self.press_in_list(key, visible),
        }
    }

    fn press_in_list(&mut self, key: Key, visible: usize) -> Action {
        match key {
            Key::Up => self.select(-1),
            Key::Down => self.select(1),
            Key::PageUp => self.select(-(isize::try_from(visible).unwrap_or(1))),
            Key::PageDown => self.select(isize::try_from(visible).unwrap_or(1)),
            Key::Home => self.select(isize::MIN),
            Key::End => self.select(isize::MAX),
            Key::Char('s' | 'S') => {
                self.sort = beside(self.sort, key == Key::Char('s'));
                self.reversed = false;
                self.arrange();
                return Action::Refresh;
            }
            Key::Char('r') => {
                self.reversed = !self.reversed;
                self.arrange();
            }
            Key::Char('/') => {
                self.prompt = Some(Prompt {
                    question: "show tubes with this in their names:".into(),
                    text: self.filter.clone(),
                    purpose: Purpose::Filter,
                });
            }
            Key::Escape => {
                self.filter.clear();
                self.arrange();
            }
            Key::Enter | Key::Right => {
                if let Some((server, tube)) = self.selected_tube() {
                    self.selected = Some((server, tube.clone()));
                    self.page = Some(Page {
                        server,
                        tube,
                        look: None,
                        job: None,
                    });
                    return Action::Refresh;
                }
            }
            _ => {}
        }
        Action::Nothing
    }

    fn press_in_tube(&mut self, key: Key) -> Action {
        let jobs = self.jobs();
        let (Some(selected), Some(page)) = (self.selected_job(), &mut self.page) else {
            return Action::Nothing;
        };
        let server = page.server;
        let place = jobs.iter().position(|id| *id == selected).unwrap_or(0);
        match key {
            Key::Up => page.job = Some(jobs[place.saturating_sub(1)]),
            Key::Down => page.job = Some(*jobs.get(place + 1).unwrap_or(&selected)),
            Key::Char('d') => {
                let delete = Request::Act(JobAction::Delete, selected);
                let question = format!("delete job {selected}? y/N");
                self.ask(question, Purpose::Consent(server, delete));
            }
            Key::Char('u') => return Action::Ask(server, Request::Act(JobAction::Kick, selected)),
            Key::Char('b') => return Action::Ask(server, Request::Act(JobAction::Bury, selected)),
            _ => {}
        }
        Action::Nothing
    }

    /// The ids of the jobs on the page, in the order of the page.
    fn jobs(&self) -> Vec<JobId> {
        let look = self.page.iter().filter_map(|page| page.look.as_ref());
        let jobs = look.flatten().flat_map(|(_, jobs)| jobs);
        jobs.map(|(job, _)| job.id).collect()
    }

    /// The job for the next action: the selected one, or else the first one.
    pub fn selected_job(&self) -> Option<JobId> {
        let jobs = self.jobs();
        let selected = self.page.as_ref()?.job;
        selected
            .filter(|job| jobs.contains(job))
            .or(jobs.first().copied())
    }

    fn ask_about_clearing(&mut self) {
        let Some((server, tube)) = self.selected_tube() else {
            return;
        };
        let history = self.servers[server].history.as_ref();
        let facts = history.and_then(|history| history.tube(&tube));
        match facts.map_or(0, |facts| facts.jobs_in(&State::FREE)) {
            0 => self.message = format!("{tube} has no jobs but reserved ones"),
            count => {
                let question = format!("delete {count} jobs of {tube}, all but reserved ones? y/N");
                let clear = Request::Clear(tube, count);
                self.ask(question, Purpose::Consent(server, clear));
            }
        }
    }

    fn select(&mut self, steps: isize) {
        let target = self.selection().saturating_add_signed(steps);
        let row = self.rows.get(target.min(self.rows.len().saturating_sub(1)));
        self.selected = row.map(|row| (row.server, row.tube.clone()));
    }

    /// The tube for the next action.
    fn selected_tube(&self) -> Option<(usize, TubeName)> {
        if let Some(page) = &self.page {
            return Some((page.server, page.tube.clone()));
        }
        let row = self.rows.get(self.selection())?;
        Some((row.server, row.tube.clone()))
    }

    fn ask(&mut self, question: String, purpose: Purpose) {
        self.prompt = Some(Prompt {
            question,
            text: String::new(),
            purpose,
        });
    }

    /// Handles a key while a question is open.
    fn answer(&mut self, mut prompt: Prompt, key: Key) -> Action {
        if let Purpose::Consent(server, request) = prompt.purpose {
            return match key {
                Key::Char('y' | 'Y') => Action::Ask(server, request),
                _ => Action::Nothing,
            };
        }
        match key {
            Key::Escape => return Action::Nothing,
            Key::Enter => return self.answered(prompt),
            Key::Backspace => {
                prompt.text.pop();
            }
            Key::Ctrl('u') => prompt.text.clear(),
            Key::Char(character) => {
                let fits = prompt.text.len() < TubeName::MAX_LEN;
                let may_stand = match prompt.purpose {
                    Purpose::Filter => true,
                    // A time may end with a unit.
                    Purpose::Pause(..) => character.is_ascii_alphanumeric() || character == '.',
                    _ => character.is_ascii_digit(),
                };
                if fits && may_stand {
                    prompt.text.push(character);
                }
            }
            _ => {}
        }
        self.prompt = Some(prompt);
        Action::Nothing
    }

    fn answered(&mut self, prompt: Prompt) -> Action {
        let text = prompt.text;
        let asked = match prompt.purpose {
            Purpose::Filter => {
                self.filter = text;
                self.arrange();
                return Action::Nothing;
            }
            _ if text.is_empty() => return Action::Nothing,
            Purpose::Kick(server, tube) => {
                u32::parse(&text).map(|bound| (server, Request::Kick(tube, bound.into())))
            }
            Purpose::Pause(server, tube) => {
                Seconds::parse(&text).map(|time| (server, Request::Pause(tube, time)))
            }
            // This purpose is served in `answer`, by a single key.
            Purpose::Consent(..) => return Action::Nothing,
        };
        match asked {
            Ok((server, request)) => Action::Ask(server, request),
            Err(reason) => {
                self.message = reason;
                Action::Nothing
            }
        }
    }
}

/// The page of `visible` rows that contains the selected one: how many rows
/// come before the page, and its rows.
pub fn page_of(rows: &[Row], selected: usize, visible: usize) -> (usize, &[Row]) {
    let visible = visible.max(1);
    let start = (selected / visible * visible).min(rows.len());
    (start, &rows[start..rows.len().min(start + visible)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::sample::Sample;
    use crate::server::stats::Facts;
    use std::time::Instant;

    /// With ten thousand tubes, to arrange them takes longer than a key may.
    #[test]
    fn keys_that_change_no_order_arrange_nothing() {
        let server = names::Server::parse("11300").unwrap();
        let mut board = Board::new(&[server], Column::Tube, Patterns::default());
        let tube = |number: u32| TubeName::parse(format!("t{number:05}").as_bytes()).unwrap();
        let sample = Sample {
            at: Instant::now(),
            server: Facts::default(),
            tubes: (0..10_000)
                .map(|number| (tube(number), Facts::default()))
                .collect(),
            ages: Default::default(),
        };
        board.hear(0, Answer::Sample(Box::new(sample)));
        let arranged = board.rows().as_ptr();
        for key in "/t0999"
            .chars()
            .map(Key::Char)
            .chain([Key::Down, Key::Backspace])
        {
            board.press(key, 20);
            assert_eq!(board.rows().as_ptr(), arranged);
        }
        board.press(Key::Enter, 20);
        assert_eq!(board.rows().len(), 100);
    }
}
