//! What the learner is asked. The questions are found by rule, so the stories
//! need no marks for them: a command is typed when it is new, and a reply is
//! foretold when it is new, and once more in another lesson.

use super::stage::{line_of, lines_of};
use super::story::{Action, Step};
use std::collections::BTreeMap;

/// What the learner is asked about a step.
pub enum Question {
    /// To send what does this.
    Deed(String),
    /// To say what comes: this, after these words of a document if it is one.
    Reply { label: String, wanted: String },
}

/// How often the same thing is asked: in a lesson, and in the tour.
type Limits = (usize, usize);
const DEEDS_ASKED: Limits = (1, 1);
const REPLIES_ASKED: Limits = (1, 2);

/// How often each thing has been asked.
#[derive(Default)]
pub struct Asked {
    in_lesson: BTreeMap<String, usize>,
    in_tour: BTreeMap<String, usize>,
}

impl Asked {
    /// Whether this is to be asked once more; if so, it is counted.
    fn admits(&mut self, what: &str, limits: Limits) -> bool {
        let in_lesson = self.in_lesson.entry(what.into()).or_default();
        let in_tour = self.in_tour.entry(what.into()).or_default();
        let is_admitted = *in_lesson < limits.0 && *in_tour < limits.1;
        *in_lesson += usize::from(is_admitted);
        *in_tour += usize::from(is_admitted);
        is_admitted
    }

    /// From now on the questions are those of another lesson.
    pub fn begin_lesson(&mut self) {
        self.in_lesson.clear();
    }

    /// The question about this step. `cause` is the step before it, unless the
    /// learner is asked to do that one.
    pub fn question(&mut self, step: &Step, cause: Option<&Step>) -> Option<Question> {
        if let Action::Send(bytes) = &step.action {
            let (name, deed) = deed(bytes)?;
            let is_asked = self.admits(&name, DEEDS_ASKED);
            return is_asked.then_some(Question::Deed(deed));
        }
        let cause = cause?;
        let (label, wanted) = match &step.action {
            // The line of the reply says how long the body is.
            Action::Expect(_) if has_body(cause) => return None,
            Action::Expect(_) | Action::Waits | Action::IsClosed => {
                let line = line_of(step);
                let wanted = line[step.client.len()..].trim_start_matches(['<', ' ']);
                (String::new(), wanted.to_owned())
            }
            Action::ExpectDocument(document) => {
                let facts = document.lines.iter();
                let mut facts = facts.filter_map(|(_, line)| line.split_once(": "));
                let (key, value) =
                    facts.find(|(key, value)| *key != "id" && !value.contains(['<', '"']))?;
                (format!("    {key}: "), value.into())
            }
            _ => return None,
        };
        let command = match &cause.action {
            Action::Send(bytes) if cause.client == step.client => deed(bytes)?.0,
            _ => String::new(),
        };
        let is_plain = PLAIN.iter().any(|word| wanted.starts_with(word));
        if is_plain && wanted.split(' ').count() <= 2 {
            return None;
        }
        let kind = wanted.split(' ').next().filter(|_| label.is_empty());
        let what = format!("{command} {label}{}", kind.unwrap_or_default());
        let is_asked = self.admits(&what, REPLIES_ASKED);
        is_asked.then_some(Question::Reply { label, wanted })
    }
}

/// Whether a body follows this reply.
fn has_body(step: &Step) -> bool {
    let Action::Expect(line) = &step.action else {
        return false;
    };
    line.starts_with(b"RESERVED ") || line.starts_with(b"FOUND ")
}

/// The replies that say that all went well, and nothing else: nobody is asked
/// about them.
const PLAIN: &[&str] = &[
    "INSERTED", "USING", "WATCHING", "DELETED", "RELEASED", "BURIED", "TOUCHED", "PAUSED",
];

/// What each command does, as an instruction. Digits stand for the words after
/// the name.
const DEEDS: &[(&str, &str)] = &[
    ("put", "put a job with priority 1, delay 2, a TTR of 3"),
    ("use", "use the tube 1"),
    ("watch", "watch the tube 1, too"),
    ("ignore", "watch the tube 1 no more"),
    ("reserve", "reserve the next job, and wait if there is none"),
    (
        "reserve-with-timeout",
        "reserve the next job, with a timeout of 1",
    ),
    ("reserve-job", "reserve job 1, and no other"),
    ("delete", "delete job 1"),
    ("release", "release job 1, with priority 2 and delay 3"),
    ("bury", "bury job 1, with priority 2"),
    ("touch", "touch job 1"),
    ("peek", "look at job 1 without reserving it"),
    ("peek-ready", "look at the next ready job"),
    (
        "peek-delayed",
        "look at the delayed job that is ready first",
    ),
    (
        "peek-buried",
        "look at the buried job that would be kicked first",
    ),
    ("kick", "kick jobs, 1 at most"),
    ("kick-job", "kick job 1"),
    ("stats-job", "ask for the statistics of job 1"),
    ("stats-tube", "ask for the statistics of the tube 1"),
    ("list-jobs", "list the jobs from id 1 on, 2 of them at most"),
    ("list-tube-used", "ask which tube you use"),
    ("list-tubes-watched", "ask which tubes you watch"),
    ("pause-tube", "pause the tube 1; the number of seconds is 2"),
    ("quit", "end the connection with a command"),
];

/// The one command in these bytes, as a name and as an instruction. A put whose
/// body is not a line of text is none that can be typed, nor is a command that
/// the server refuses for its form.
fn deed(bytes: &[u8]) -> Option<(String, String)> {
    let lines = lines_of(bytes.strip_suffix(b"\r\n")?);
    let (line, body) = lines.split_first()?;
    let words: Vec<&str> = line.split(' ').collect();
    let (name, deed) = DEEDS.iter().find(|(name, _)| *name == words[0])?;
    let meant = deed.split(|c: char| !c.is_ascii_digit());
    let meant = meant.filter(|text| !text.is_empty()).count();
    let text = deed.split(' ').map(|word| {
        let digits = word.trim_end_matches([',', ';']);
        let given = digits.parse().ok().and_then(|at: usize| words.get(at));
        given.map_or(word.into(), |given| word.replace(digits, given))
    });
    let mut text = text.collect::<Vec<String>>().join(" ");
    match (*name, body) {
        ("put", [body]) => {
            let is_whole = words.get(4)?.parse() == Ok(body.len());
            if !is_whole || body.is_empty() || body.contains('\\') {
                return None;
            }
            text += &format!(" and the body '{body}'");
            let Some(word) = words.get(5) else {
                return Some(("put".into(), text));
            };
            text += &format!(", and say {word} after the numbers");
            let (kind, _) = word.split_once(':')?;
            Some((format!("put {kind}"), text))
        }
        ("put", _) => None,
        (name, []) if words.len() == meant + 1 => Some((name.into(), text)),
        _ => None,
    }
}
