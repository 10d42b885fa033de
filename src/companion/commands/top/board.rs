//! What the screen shows and what is selected, and what a key does. Nothing here
//! draws or asks a server.

use super::terminal::Key;
use crate::failure::Outcome;
use crate::server::act::{self, Act};
use crate::server::client::Client;
use crate::server::sample::Column;
use crate::server::stats::State;
use crate::server::tubes::Patterns;
use crate::server::watch::{Known, Watched, sorted};
use crate::values::Parse;
use beanpole::protocol::{JobId, Seconds, TubeName};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// The columns that the table can be sorted by, from left to right.
pub const COLUMNS: [Column; 11] = {
    use Column::*;
    [
        Tube, Ready, Reserved, Delayed, Buried, Watching, Waiting, Put, Delete, Age, Timeouts,
    ]
};

/// Everything that the screen shows.
#[derive(Default)]
pub struct Board {
    pub servers: Vec<Arc<Watched>>,
    pub sort: Column,
    pub is_turned: bool,
    /// Only these tubes are shown.
    tubes: Patterns,
    /// Only tubes with this text in their names are shown.
    pub filter: String,
    /// The tubes that are to be shown, in their order, with the index of their
    /// server. They are arranged when something of this changes, because there
    /// may be very many.
    pub rows: Vec<(usize, TubeName)>,
    /// Of which samples they were arranged.
    arranged: Vec<Option<Duration>>,
    /// Whether the screen stands still: no samples are taken.
    pub is_held: bool,
    pub selected: Option<(usize, TubeName)>,
    /// The tube that fills the screen; `None` if the table of all tubes does.
    pub page: Option<(usize, TubeName)>,
    /// The job that was selected on the page; it may be gone.
    job: Option<JobId>,
    /// Whether the help text is shown instead.
    pub help: bool,
    pub prompt: Option<Prompt>,
    /// The result of the last action.
    pub message: String,
}

/// A question in the last line but one of the screen.
pub struct Prompt {
    pub question: String,
    pub text: String,
    /// Whether a single key answers it, and only `y` means yes.
    is_consent: bool,
    /// What an answer means.
    then: Then,
}

type Then = Box<dyn FnOnce(&mut Board, &str) -> Action>;

/// What is to be done to a server; it says what was done.
pub type Change = Box<dyn FnOnce(&mut Client) -> Outcome<String> + Send>;

/// What the caller has to do after a key.
pub enum Action {
    Nothing,
    Quit,
    /// Do this to this server, and take a new sample soon.
    Do(usize, Change),
    /// Take a new sample soon.
    Refresh,
    /// Leave the terminal to the shell for a while.
    Suspend,
}

impl Prompt {
    /// A question whose answer is a text that Enter ends.
    fn new(question: String, then: impl FnOnce(&mut Board, &str) -> Action + 'static) -> Prompt {
        Prompt {
            question,
            text: String::new(),
            is_consent: false,
            then: Box::new(then),
        }
    }
}

impl Board {
    pub fn new(servers: Vec<Arc<Watched>>, sort: Column, tubes: Patterns) -> Board {
        Board {
            servers,
            sort,
            tubes,
            ..Board::default()
        }
    }

    /// Takes notice of new samples, and tells what is wanted of the next ones if
    /// `visible` rows can be seen.
    pub fn update(&mut self, visible: usize) {
        let sampled = self.servers.iter().map(|server| server.known().sampled);
        let sampled = sampled.collect();
        if self.arranged != sampled {
            self.arranged = sampled;
            self.arrange();
        }
        let shown = page_of(&self.rows, self.selection(), visible).1;
        for (index, server) in self.servers.iter().enumerate() {
            let of_it = |row: &&(usize, TubeName)| row.0 == index;
            let shown = shown.iter().filter(of_it).map(|(_, tube)| tube.clone());
            let page = self.page.iter().find(of_it);
            let mut known = server.known();
            known.is_held = self.is_held;
            known.shown = shown.collect();
            known.looks_into = page.map(|(_, tube)| (tube.clone(), visible));
        }
    }

    fn arrange(&mut self) {
        let known: Vec<MutexGuard<Known>> = self.servers.iter().map(|one| one.known()).collect();
        let is_shown = |_, tube: &TubeName| {
            self.tubes.mean(tube) && tube.as_str().contains(self.filter.as_str())
        };
        let rows = sorted(&known, is_shown, Some(self.sort), self.is_turned);
        let rows = rows
            .into_iter()
            .map(|(server, name, _)| (server, name.clone()));
        self.rows = rows.collect();
    }

    /// The index of the selected row; 0 if it is gone.
    pub fn selection(&self) -> usize {
        let selected = self.selected.as_ref();
        let place = |selected| self.rows.iter().position(|row| row == selected);
        selected.and_then(place).unwrap_or(0)
    }

    /// Does what a key means, if `visible` rows can be seen.
    pub fn press(&mut self, key: Key, visible: usize) -> Action {
        match key {
            Key::Ctrl('c') | Key::Closed => return Action::Quit,
            Key::Ctrl('z') => return Action::Suspend,
            _ => self.message.clear(),
        }
        if let Some(prompt) = self.prompt.take() {
            return self.answer(prompt, key);
        }
        if std::mem::take(&mut self.help) && key != Key::Char('q') {
            return Action::Nothing;
        }
        let on_tube = self
            .page
            .clone()
            .or_else(|| self.rows.get(self.selection()).cloned());
        match (key, on_tube) {
            (Key::Char('q'), _) => return Action::Quit,
            (Key::Char('?' | 'h'), _) => self.help = true,
            (Key::Char(' '), _) => {
                self.is_held = !self.is_held;
                return Action::Refresh;
            }
            (Key::Char('c'), Some((server, tube))) => self.ask_about_clearing(server, tube),
            (Key::Char('k'), Some((server, tube))) => {
                let question = format!("kick how many jobs of {tube}?");
                let kick = move |bound: u32| -> Change {
                    Box::new(move |client| act::kick(client, &tube, bound.into()))
                };
                let kick = Prompt::new(question, move |board, text| {
                    board.change(server, text, kick)
                });
                self.prompt = Some(kick);
            }
            (Key::Char('p'), Some((server, tube))) => {
                let question = format!("pause {tube} for how long (0 ends a pause)?");
                let pause = move |time: Seconds| -> Change {
                    Box::new(move |client| act::pause(client, &tube, time))
                };
                let pause = Prompt::new(question, move |board, text| {
                    board.change(server, text, pause)
                });
                self.prompt = Some(pause);
            }
            (Key::Escape | Key::Enter | Key::Left, _) if self.page.is_some() => self.page = None,
            (key, Some((server, _))) if self.page.is_some() => {
                return self.press_in_tube(key, server);
            }
            (Key::Enter | Key::Right, on_tube @ Some(_)) => {
                self.selected = on_tube.clone();
                self.page = on_tube;
                return Action::Refresh;
            }
            (key, _) => return self.press_in_list(key, visible),
        }
        Action::Nothing
    }

    fn press_in_list(&mut self, key: Key, visible: usize) -> Action {
        let page = isize::try_from(visible).unwrap_or(1);
        match key {
            Key::Up => self.select(-1),
            Key::Down => self.select(1),
            Key::PageUp => self.select(-page),
            Key::PageDown => self.select(page),
            Key::Home => self.select(isize::MIN),
            Key::End => self.select(isize::MAX),
            Key::Char(letter @ ('s' | 'S')) => {
                let steps = if letter == 's' { 1 } else { COLUMNS.len() - 1 };
                let place = COLUMNS.iter().position(|column| *column == self.sort);
                self.sort = COLUMNS[(place.unwrap_or(0) + steps) % COLUMNS.len()];
                self.is_turned = false;
                self.arrange();
            }
            Key::Char('r') => {
                self.is_turned = !self.is_turned;
                self.arrange();
            }
            Key::Char('/') => {
                let question = "show tubes with this in their names:".into();
                let filter = |board: &mut Board, text: &str| {
                    board.filter = text.into();
                    board.arrange();
                    Action::Nothing
                };
                self.prompt = Some(Prompt {
                    text: self.filter.clone(),
                    ..Prompt::new(question, filter)
                });
            }
            Key::Escape => {
                self.filter.clear();
                self.arrange();
            }
            _ => {}
        }
        Action::Nothing
    }

    fn press_in_tube(&mut self, key: Key, server: usize) -> Action {
        let jobs = self.jobs();
        let Some(selected) = self.selected_job() else {
            return Action::Nothing;
        };
        let place = jobs.iter().position(|id| *id == selected).unwrap_or(0);
        let act =
            |action: Act| -> Change { Box::new(move |client| act::act(client, action, selected)) };
        match key {
            Key::Up => self.job = Some(jobs[place.saturating_sub(1)]),
            Key::Down => self.job = Some(*jobs.get(place + 1).unwrap_or(&selected)),
            Key::Char('d') => {
                let question = format!("delete job {selected}? y/N");
                self.confirm(question, server, act(Act::Delete));
            }
            Key::Char('u') => return Action::Do(server, act(Act::Kick)),
            Key::Char('b') => return Action::Do(server, act(Act::Bury(None))),
            _ => {}
        }
        Action::Nothing
    }

    /// The ids of the jobs on the page, in the order of the page.
    fn jobs(&self) -> Vec<JobId> {
        let Some((server, tube)) = &self.page else {
            return Vec::new();
        };
        let known = self.servers[*server].known();
        let jobs = known.jobs.iter().map(|(job, _)| job);
        jobs.filter(|job| job.tube == *tube)
            .map(|job| job.id)
            .collect()
    }

    /// The job for the next action: the selected one, or else the first one.
    pub fn selected_job(&self) -> Option<JobId> {
        let jobs = self.jobs();
        let selected = self.job.filter(|job| jobs.contains(job));
        selected.or(jobs.first().copied())
    }

    fn ask_about_clearing(&mut self, server: usize, tube: TubeName) {
        let count = match self.servers[server].known().tubes.get(&tube) {
            Some(known) => known.facts.jobs_in(&State::FREE),
            None => 0,
        };
        if count == 0 {
            self.message = format!("{tube} has no jobs but reserved ones");
            return;
        }
        let question = format!("delete {count} jobs of {tube}, all but reserved ones? y/N");
        let clear = move |client: &mut Client| act::clear(client, &tube, &State::FREE, count);
        self.confirm(question, server, Box::new(clear));
    }

    fn select(&mut self, steps: isize) {
        let target = self.selection().saturating_add_signed(steps);
        let target = target.min(self.rows.len().saturating_sub(1));
        self.selected = self.rows.get(target).cloned();
    }

    /// Asks whether to do this to this server.
    fn confirm(&mut self, question: String, server: usize, change: Change) {
        self.prompt = Some(Prompt {
            is_consent: true,
            ..Prompt::new(question, move |_, _| Action::Do(server, change))
        });
    }

    /// What is to be done to this server if this text is a value for it.
    fn change<T: Parse>(
        &mut self,
        server: usize,
        text: &str,
        change: impl FnOnce(T) -> Change,
    ) -> Action {
        match T::parse(text) {
            Ok(value) => Action::Do(server, change(value)),
            Err(reason) => {
                self.message = reason;
                Action::Nothing
            }
        }
    }

    /// Handles a key while a question is open.
    fn answer(&mut self, mut prompt: Prompt, key: Key) -> Action {
        match (key, prompt.is_consent) {
            (Key::Char('y' | 'Y'), true) | (Key::Enter, false) => {
                return (prompt.then)(self, &prompt.text);
            }
            (Key::Escape, _) | (_, true) => return Action::Nothing,
            (Key::Backspace, _) => drop(prompt.text.pop()),
            (Key::Ctrl('u'), _) => prompt.text.clear(),
            (Key::Char(character), _) if prompt.text.len() < TubeName::MAX_LEN => {
                prompt.text.push(character);
            }
            _ => {}
        }
        self.prompt = Some(prompt);
        Action::Nothing
    }
}

/// The page of `visible` rows that contains the selected one: how many rows
/// come before the page, and its rows.
pub fn page_of<T>(rows: &[T], selected: usize, visible: usize) -> (usize, &[T]) {
    let visible = visible.max(1);
    let start = (selected / visible * visible).min(rows.len());
    (
        start,
        &rows[start..rows.len().min(start.saturating_add(visible))],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::address::Server;
    use crate::server::sample::{Column, Sample};
    use crate::server::stats::Facts;
    use crate::server::watch::Habits;

    /// With ten thousand tubes, to arrange them takes longer than a key may.
    #[test]
    fn a_key_that_changes_no_order_sorts_nothing() {
        let habits = Habits {
            interval: Duration::MAX,
            respite: 1,
            patience: Duration::MAX,
        };
        let server = Watched::new(Server::parse("11300").unwrap(), habits);
        let tube = |number: u32| TubeName::parse(format!("t{number:05}").as_bytes()).unwrap();
        let tubes = (0..10_000).map(|number| (tube(number), Facts::default()));
        let sample = Sample {
            server: Facts::default(),
            tubes: tubes.collect(),
            asked: Vec::new(),
            next: Vec::new(),
            others: Vec::new(),
            connections: Vec::new(),
        };
        server.known().take(Duration::ZERO, sample);
        let mut board = Board::new(vec![Arc::new(server)], Column::Tube, Patterns::default());
        board.update(20);
        let arranged = board.rows.as_ptr();
        let keys = "/t0999".chars().map(Key::Char);
        for key in keys.chain([Key::Down, Key::Backspace]) {
            board.press(key, 20);
            board.update(20);
            assert_eq!(board.rows.as_ptr(), arranged);
        }
        board.press(Key::Enter, 20);
        assert_eq!(board.rows.len(), 100);
    }
}
