//! Leads the learner through the lessons: shows the steps of a story, asks, and
//! lets the server judge.

use super::learner::{Answer, Learner};
use super::lessons::{LESSONS, Scene};
use super::progress::Place;
use super::questions::Question;
use super::stage::{Stage, Trouble, line_of, lines_of};
use super::story::Action;
use crate::failure::{Failure, Outcome};
use crate::signals::Calls;
use std::collections::BTreeMap;

/// How often a step is played before the tutor gives up: what a server does
/// depends on time.
const TRIES: usize = 5;
/// How often the learner may answer.
const ATTEMPTS: usize = 2;

/// Who leads the learner through the tour.
pub struct Guide<'a> {
    tour: &'a [Vec<Scene>],
    learner: Learner,
    /// The stage, and where the story is on it. `None` if there is none, or if
    /// something was done there that the story does not tell.
    stage: Option<(Stage, Place)>,
    /// The states of the jobs as they were last shown.
    jobs: BTreeMap<u64, String>,
}

/// Where to go from a step.
pub enum Move {
    On,
    Back,
    Leave,
}

impl<'a> Guide<'a> {
    /// Who leads through this tour.
    pub fn new(tour: &'a [Vec<Scene>]) -> Outcome<Guide<'a>> {
        Ok(Guide {
            tour,
            learner: Learner::new()?,
            stage: None,
            jobs: BTreeMap::new(),
        })
    }

    fn scene(&self, place: Place) -> &'a Scene {
        &self.tour[place.lesson][place.step]
    }

    /// Shows this text.
    pub fn tell(&self, text: &str) -> Outcome<()> {
        self.learner.tell(text)
    }

    /// Begins a lesson, or shows again what comes just before this place in it.
    pub fn begin(&mut self, place: Place) -> Outcome<()> {
        let Some(lesson) = LESSONS.get(place.lesson) else {
            return Ok(());
        };
        self.jobs.clear();
        let (number, count) = (place.lesson + 1, LESSONS.len());
        let heading = format!("Lesson {number} of {count}: {}", lesson.title);
        self.tell(&format!("\n{heading}\n{}", "=".repeat(heading.len())))?;
        let before = &self.tour[place.lesson][..place.step];
        let first = before.iter().rposition(|scene| !scene.told.is_empty());
        for scene in &before[first.unwrap_or(0)..] {
            self.tell_paragraphs(scene)?;
            self.tell(&indented(&line_of(&scene.step)))?;
        }
        Ok(())
    }

    fn tell_paragraphs(&self, scene: &Scene) -> Outcome<()> {
        let mut paragraphs = scene.told.iter();
        paragraphs.try_for_each(|text| self.tell(&format!("\n{text}")))?;
        match scene.told.is_empty() {
            true => Ok(()),
            false => self.tell(""),
        }
    }

    /// The question before this place; if it is in an earlier lesson, the
    /// beginning of that one.
    pub fn before(&self, Place { lesson, step }: Place) -> Place {
        let before = &self.tour[lesson][..step];
        match before.iter().rposition(|scene| scene.question.is_some()) {
            Some(step) => Place { lesson, step },
            None => Place {
                lesson: lesson.saturating_sub(1),
                step: 0,
            },
        }
    }

    /// Shows the next step, or asks about it.
    pub fn go_on(&mut self, place: Place) -> Outcome<Move> {
        let scene = self.scene(place);
        if scene.begins.is_some() {
            self.jobs.clear();
        }
        self.tell_paragraphs(scene)?;
        match &scene.question {
            Some(Question::Deed(deed)) => self.ask_for_deed(place, deed),
            Some(Question::Reply { label, wanted }) => self.ask_for_reply(place, label, wanted),
            None => self.show(place).map(|()| Move::On),
        }
    }

    /// Plays this step and shows it.
    fn show(&mut self, place: Place) -> Outcome<()> {
        let step = &self.scene(place).step;
        // The learner sees why nothing happens.
        if let Action::Pass(_) = step.action {
            self.tell(&indented(&line_of(step)))?;
            self.play(place)?;
        } else {
            let seen = self.play(place)?;
            self.tell(&indented(&seen))?;
        }
        self.show_jobs(place)
    }

    /// Shows the jobs that have changed, unless another reply comes first. What
    /// the reply has said itself is shown in the first lesson only.
    fn show_jobs(&mut self, place: Place) -> Outcome<()> {
        let scenes = &self.tour[place.lesson];
        let is_reply = |scene: &Scene| {
            let action = &scene.step.action;
            matches!(
                action,
                Action::Expect(_) | Action::ExpectDocument(_) | Action::Waits
            )
        };
        let Some((stage, _)) = &self.stage else {
            return Ok(());
        };
        if scenes.get(place.step + 1).is_some_and(is_reply) {
            return Ok(());
        }
        let jobs = stage.jobs(&self.learner.signals)?;
        let is_told = |before: Option<&String>, now: &str| {
            place.lesson == 0 || !(now == "reserved" || before.is_none() && now == "ready")
        };
        for (id, state) in &jobs {
            let before = self.jobs.get(id);
            if before != Some(state) && is_told(before, state) {
                self.tell(&format!("        [job {id} is {state}]"))?;
            }
        }
        let gone = self.jobs.keys().filter(|id| !jobs.contains_key(id));
        for id in gone.filter(|_| place.lesson == 0) {
            self.tell(&format!("        [job {id} is gone]"))?;
        }
        self.jobs = jobs;
        Ok(())
    }

    /// Asks what a client has to send. The server answers a line that is not
    /// the one of the story.
    fn ask_for_deed(&mut self, place: Place, deed: &str) -> Outcome<Move> {
        let step = &self.scene(place).step;
        let Action::Send(bytes) = &step.action else {
            return Err(Failure::Refused(format!("'{deed}' is not sent")));
        };
        let name = &step.client;
        let wanted = lines_of(bytes);
        let prompt = indented(&format!("{name}: "));
        self.tell(&format!("You are {name}: {deed}."))?;
        let mut attempts = 0;
        while attempts < ATTEMPTS {
            let line = match self.learner.answer(&prompt, &wanted[0])? {
                Answer::Line(line) => line,
                Answer::Hint => {
                    self.tell(&hint(&wanted[0]))?;
                    continue;
                }
                Answer::Skip => break,
                Answer::Back => return Ok(Move::Back),
                Answer::Leave => return Ok(Move::Leave),
            };
            let mut lines = vec![line.trim().to_owned()];
            if line.starts_with("put ") {
                let Some(body) = self.learner.line(&prompt)? else {
                    return Ok(Move::Leave);
                };
                lines.push(body);
            }
            if lines == wanted {
                self.play(place)?;
                self.show_jobs(place)?;
                return Ok(Move::On);
            }
            let came = self.try_out(place, &lines)?;
            let next = self.tour[place.lesson].get(place.step + 1);
            let next = next.map(|next| line_of(&next.step)).unwrap_or_default();
            let told = next.strip_prefix(name.as_str()).unwrap_or_default();
            if told.trim_start_matches(['<', ' ']) == came {
                self.tell(&format!(
                    "The reply is the same, {came}. The story goes on with this:"
                ))?;
                self.show(place)?;
                return Ok(Move::On);
            }
            self.tell(&format!(
                "To that the server answers {came}, which is not what {name} wants."
            ))?;
            attempts += 1;
            if attempts < ATTEMPTS {
                self.tell("Please try once more; ? gives a hint.")?;
            }
        }
        self.tell(&format!("This is what {name} sends:"))?;
        self.show(place)?;
        Ok(Move::On)
    }

    /// Asks what comes to a client. Then it comes.
    fn ask_for_reply(&mut self, place: Place, label: &str, wanted: &str) -> Outcome<Move> {
        let name = &self.scene(place).step.client;
        let (question, prompt) = match label {
            "" => (format!("What does {name} get?"), format!("{name}< ")),
            label => (
                format!("What does the document for {name} say?"),
                label.into(),
            ),
        };
        self.tell(&question)?;
        let mut attempts = 0;
        while attempts < ATTEMPTS {
            match self.learner.answer(&indented(&prompt), wanted)? {
                // The line stands there already.
                Answer::Line(line) if label.is_empty() && line.trim() == wanted => {
                    self.tell("Yes.")?;
                    self.play(place)?;
                    self.show_jobs(place)?;
                    return Ok(Move::On);
                }
                Answer::Line(line) if is_meant(&line, wanted) => {
                    self.tell("Yes:")?;
                    self.show(place)?;
                    return Ok(Move::On);
                }
                Answer::Line(_) => attempts += 1,
                Answer::Hint => {
                    self.tell(&hint(wanted))?;
                    continue;
                }
                Answer::Skip => break,
                Answer::Back => return Ok(Move::Back),
                Answer::Leave => return Ok(Move::Leave),
            }
            if attempts < ATTEMPTS {
                self.tell("Not this time. Please try once more; ? gives a hint.")?;
            }
        }
        self.tell("This is what comes:")?;
        self.show(place)?;
        Ok(Move::On)
    }

    /// Sends these lines instead of the step at this place, and returns what
    /// comes. After that the stage is not what the story tells.
    fn try_out(&mut self, place: Place, lines: &[String]) -> Outcome<String> {
        let name = &self.scene(place).step.client;
        let bytes = lines.join("\r\n") + "\r\n";
        let act =
            |stage: &mut Stage, signals: &_| Ok(stage.try_out(name, bytes.as_bytes(), signals)?);
        self.at(place, act).map(|(_, came)| came)
    }

    /// Plays the step at this place, and returns what is to be seen of it.
    fn play(&mut self, place: Place) -> Outcome<String> {
        let step = &self.scene(place).step;
        let (stage, seen) = self.at(place, |stage, signals| stage.play(step, signals))?;
        let next = Place {
            step: place.step + 1,
            ..place
        };
        self.stage = Some((stage, next));
        Ok(seen)
    }

    /// Does something on the stage when the story has come to this place. If
    /// the server did something else on the way, all is played again.
    fn at<T>(
        &mut self,
        place: Place,
        act: impl Fn(&mut Stage, &Calls) -> Result<T, Trouble>,
    ) -> Outcome<(Stage, T)> {
        let mut reason = String::new();
        for _ in 0..TRIES {
            let done = self.stage_at(place).and_then(|mut stage| {
                let done = act(&mut stage, &self.learner.signals)?;
                Ok((stage, done))
            });
            match done {
                Ok(done) => return Ok(done),
                Err(Trouble::Failed(failure)) => return Err(failure),
                Err(Trouble::Differs(what)) => reason = what,
            }
        }
        Failure::refused(format!(
            "the server does not do what the story tells: {reason}"
        ))
    }

    /// The stage when the story has come to this place: the one that is there,
    /// or else a new one on which the story is played up to here.
    fn stage_at(&mut self, place: Place) -> Result<Stage, Trouble> {
        let scenes = &self.tour[place.lesson][..=place.step];
        let begins = scenes.iter().rposition(|scene| scene.begins.is_some());
        let begins = begins.unwrap_or(0);
        match self.stage.take() {
            Some((stage, at)) if at == place && begins < place.step => return Ok(stage),
            _ => {}
        }
        let options = scenes[begins].begins.as_deref().unwrap_or_default();
        let mut stage = Stage::start(options, &self.learner.signals)?;
        for scene in &scenes[begins..place.step] {
            stage.play(&scene.step, &self.learner.signals)?;
        }
        Ok(stage)
    }
}

/// Whether the answer is what was wanted. Neither capitals matter nor the
/// parentheses round what is no reply.
fn is_meant(answer: &str, wanted: &str) -> bool {
    let bare = |text: &str| {
        let text = text.trim().trim_start_matches('(').trim_end_matches(')');
        text.to_ascii_lowercase()
    };
    bare(answer) == bare(wanted)
}

/// The first word and how many others there are, or how a lone word begins.
fn hint(wanted: &str) -> String {
    match wanted.split_once(' ') {
        Some((first, rest)) => {
            let others = rest.split(' ').map(|_| " _");
            format!("{first}{}", others.collect::<String>())
        }
        None => {
            let beginning: String = wanted.chars().take(2).collect();
            format!("One word, which begins with {beginning}")
        }
    }
}

/// The lines of a story, a little to the right.
fn indented(text: &str) -> String {
    format!("    {}", text.replace('\n', "\n    "))
}
