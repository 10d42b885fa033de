//! The lessons: which stories each of them tells, and how far.

use super::questions::{Asked, Question};
use super::story::{Side, Step, Story};
use crate::failure::{Failure, Outcome};

/// A lesson, for a chapter of the protocol's manual page.
pub struct Lesson {
    pub title: &'static str,
    passages: &'static [Passage],
}

/// The beginning of a story.
struct Passage {
    name: &'static str,
    text: &'static [u8],
}

/// The story of this name up to the paragraph that begins with these words; all
/// of it if there are none. What is not told is not in the program either.
macro_rules! story {
    ($name:literal, $end:literal) => {{
        const WHOLE: &[u8] =
            include_bytes!(concat!("../../../../tests/transcripts/", $name, ".txt"));
        const TOLD: [u8; length(WHOLE, concat!("\n# ", $end).as_bytes())] = beginning(WHOLE);
        Passage {
            name: $name,
            text: &TOLD,
        }
    }};
    ($name:literal) => {
        Passage {
            name: $name,
            text: include_bytes!(concat!("../../../../tests/transcripts/", $name, ".txt")),
        }
    };
}

/// How much of the text comes before this, which must be there.
const fn length(text: &[u8], end: &[u8]) -> usize {
    let mut at = 0;
    loop {
        let mut same = 0;
        while same < end.len() && text[at + same] == end[same] {
            same += 1;
        }
        if same == end.len() {
            return at;
        }
        at += 1;
    }
}

const fn beginning<const LENGTH: usize>(text: &[u8]) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    let mut at = 0;
    while at < LENGTH {
        bytes[at] = text[at];
        at += 1;
    }
    bytes
}

pub const LESSONS: &[Lesson] = &[
    Lesson {
        title: "A first session",
        passages: &[
            story!("01-a-jobs-life", "How to read these stories"),
            story!("02-tubes", "Watching a tube again"),
        ],
    },
    Lesson {
        title: "The wire",
        passages: &[
            story!("25-bodies", "A body may be empty"),
            story!("33-pipelining", "A reserve goes on waiting"),
        ],
    },
    Lesson {
        title: "Commands for giving work",
        passages: &[
            story!("03-priorities", "The older job is"),
            story!("24-put-refused", "The server still reads"),
        ],
    },
    Lesson {
        title: "Commands for doing work",
        passages: &[
            story!("10-release", "The release is counted"),
            story!("11-bury", "The burial is counted"),
            story!("16-delete", "Nothing is left"),
        ],
    },
    Lesson {
        title: "Time and deadlines",
        passages: &[
            story!("04-delays", "A client that waits"),
            story!("05-time-to-run", "Nor can he do anything else"),
            story!("07-deadline-soon", "If the last second begins"),
        ],
    },
    Lesson {
        title: "Connections",
        passages: &[story!("35-leaving", "Nor does it matter")],
    },
    Lesson {
        title: "Commands for tending the queue",
        passages: &[
            story!("12-kick", "Among the ready jobs"),
            story!("13-kick-job", "The kick is counted"),
            story!("17-pause-tube", "In a paused tube"),
        ],
    },
    Lesson {
        title: "Commands for looking",
        passages: &[story!("14-peek", "The next ready job is")],
    },
    Lesson {
        title: "Statistics",
        passages: &[
            story!("18-stats-job", "For ready and buried"),
            story!("19-stats-tube", "Whatever happens to a job"),
        ],
    },
    Lesson {
        title: "Extensions",
        passages: &[
            story!("38-list-jobs", "It shows the facts"),
            story!("39-one-job-of-a-kind", "A job that is reserved"),
            story!("40-a-limit", "She does not get it"),
            story!("41-tries", "The burial is counted"),
        ],
    },
];

/// A step of a lesson, and what belongs to it.
pub struct Scene {
    /// What the story says before the step, a paragraph each.
    pub told: Vec<String>,
    pub step: Step,
    /// What the learner is asked instead of seeing the step.
    pub question: Option<Question>,
    /// If a story begins with this step: the options of its server.
    pub begins: Option<Vec<String>>,
}

/// All lessons, with their steps and questions.
pub fn tour() -> Outcome<Vec<Vec<Scene>>> {
    let mut asked = Asked::default();
    LESSONS
        .iter()
        .map(|lesson| {
            let mut scenes = Vec::new();
            for passage in lesson.passages {
                scenes.extend(passage.scenes().map_err(Failure::Refused)?);
            }
            asked.begin_lesson();
            let mut cause = None;
            for Scene { step, question, .. } in &mut scenes {
                *question = asked.question(step, cause);
                cause = Some(&*step).filter(|_| !matches!(question, Some(Question::Deed(_))));
            }
            Ok(scenes)
        })
        .collect()
}

impl Passage {
    fn scenes(&self) -> Result<Vec<Scene>, String> {
        let text = String::from_utf8_lossy(self.text);
        let story = Story::parse(self.name, &text)?;
        let lines: Vec<&str> = text.lines().collect();
        let options = story.server_options(Side::Beanpole).map(String::from);
        let mut begins = Some(options.collect());
        let mut before = 0;
        let steps = story.steps_for(Side::Beanpole).into_iter();
        Ok(steps
            .map(|step| {
                let told = paragraphs(&lines[before..step.line]);
                before = step.line;
                Scene {
                    told,
                    step,
                    question: None,
                    begins: begins.take(),
                }
            })
            .collect())
    }
}

/// The paragraphs in these lines of a story, without those that give the reason
/// for a difference: a line that is meant for one server follows them.
fn paragraphs(lines: &[&str]) -> Vec<String> {
    let mut paragraphs: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in lines {
        let is_difference = line.starts_with("bean") || line.starts_with("-- from");
        match line.strip_prefix('#').map(str::trim_start) {
            Some("") => is_open = false,
            Some(text) => match paragraphs.last_mut().filter(|_| is_open) {
                Some(last) => *last = format!("{last}\n{text}"),
                None => {
                    paragraphs.push(text.into());
                    is_open = true;
                }
            },
            None if is_open && is_difference => {
                paragraphs.pop();
                is_open = false;
            }
            None => is_open = false,
        }
    }
    paragraphs
}
