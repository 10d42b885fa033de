//! `tutor`: teaches the protocol. It tells the stories of the tests, and plays
//! them on a server of its own. The learner types commands and foretells
//! replies; the server is the judge of both.
//!
//! ```text
//!  tutor ──> guide ──> learner
//!    │         └─────> lessons ──> questions ──> stage ──> story, server
//!    └──> progress
//! ```
//!
//! Real time passes while the learner thinks, and the server goes on. If it
//! then does something else than the story tells, the story is played again, up
//! to that step, on a new server. Coming back, going back and a wrong command
//! work in the same way, so no state of a server has to be kept.

mod guide;
mod learner;
mod lessons;
mod progress;
mod questions;
mod server;
mod stage;
mod story;

use crate::command::{Command, Invocation, Number, Opt, described, options};
use crate::failure::{Failure, Outcome, Status};
use crate::text::output::print;
use crate::values::Parse;
use guide::{Guide, Move};
use lessons::LESSONS;
use progress::{Place, Progress};

pub const TUTOR: Command = Command {
    name: "tutor",
    operands: "[LESSON]",
    about: "learn the protocol by stories, on a server of its own",
    options: || described(OPTIONS),
    run: tutor,
    ..Command::BLANK
};

options! {
    list: bool = Opt::flag("", "list", "show the lessons, and where you are"),
}

/// How to answer; shown at the beginning.
const INTRODUCTION: &str = "\
This tour has ten short lessons. Each tells stories of clients and a server,
which is a real one and runs for you alone. After 'bob:' you type what bob
sends; after 'bob<' you say what he gets. If nothing comes for now, this is
(waits); if the server closes the connection, (is closed). A line that ends in
a lone \\ is sent without its CR LF.

  ?  a hint      skip  see the answer      back  the question before
  quit, or the end of the input: leave, and come back later to the same place";

const FAREWELL: &str = "
This was the tour. beanpole-protocol(7) has every detail, with exercises, and
'beanpole help protocol' shows the protocol on one screen.";

fn tutor(invocation: &Invocation) -> Outcome {
    let options = invocation.read(OPTIONS)?;
    let mut progress = Progress::find();
    let mut place = match invocation.operands() {
        [] => progress.place(),
        [number] => {
            type Lesson = Number<1, { LESSONS.len() as u64 }>;
            let Number(number) = Lesson::parse(number).map_err(Failure::Usage)?;
            Place {
                lesson: number - 1,
                step: 0,
            }
        }
        _ => return Failure::usage("one lesson at a time"),
    };
    if options.list {
        return print(list(place));
    }
    let tour = lessons::tour()?;
    // Another version, with other lessons, may have kept the place.
    if tour
        .get(place.lesson)
        .is_none_or(|scenes| place.step >= scenes.len())
    {
        place = Place::default();
    }
    let mut guide = Guide::new(&tour)?;
    if place == Place::default() {
        guide.tell(INTRODUCTION)?;
    }
    guide.begin(place)?;
    while let Some(scenes) = tour.get(place.lesson) {
        let Place { lesson, step } = place;
        // The learner can leave only where something is asked.
        if step == 0 || scenes[step].question.is_some() {
            progress.keep(place);
        }
        place = match guide.go_on(place)? {
            Move::On if step + 1 < scenes.len() => {
                place.step += 1;
                continue;
            }
            Move::On => Place {
                lesson: lesson + 1,
                step: 0,
            },
            Move::Back => guide.before(place),
            Move::Leave => {
                guide.tell(&progress.way_back(place))?;
                return Ok(Status::Done);
            }
        };
        guide.begin(place)?;
    }
    // The next time the tour begins anew.
    progress.keep(Place::default());
    guide.tell(FAREWELL)?;
    Ok(Status::Done)
}

/// The lessons, with a mark before the one where the learner is.
fn list(place: Place) -> String {
    let line = |(index, lesson): (usize, &lessons::Lesson)| {
        let mark = if index == place.lesson { '>' } else { ' ' };
        format!("{mark} {:>2}  {}\n", index + 1, lesson.title)
    };
    LESSONS.iter().enumerate().map(line).collect()
}
