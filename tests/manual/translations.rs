//! Tests the translations of the manual page, `man/*/beanpole-protocol.7`, each
//! in a directory with the name of its language. What they say, only people can
//! judge. But this test checks that a translation has the chapters, paragraphs,
//! items, displays and links of the English page, in the same order, and in each
//! of them the same commands, replies, statistics, options, values and numbers.
//!
//! The proofs stay in the English page, and so do the lines of a display that no
//! reader sees.

use super::PICTURE;
use std::fs;
use support::page::{NAME, NOT_AN_EXCHANGE, shown};
use support::{source, text_of};

/// The macros whose words are the same in all languages: those of the protocol,
/// and names.
const SAME: [&str; 9] = ["Ic", "Dv", "Va", "Ar", "Fl", "Li", "Ql", "Xr", "An"];
/// The other macros that may occur within a line.
const OTHER: [&str; 14] = [
    "It", "Em", "Sx", "No", "Ns", "Op", "Pq", "Dq", "So", "Sc", "Ta", "D1", "Nm", "Nd",
];
/// Bytes by their names. These occur in sentences without a macro.
const BYTES: [&str; 3] = ["CR", "LF", "NUL"];

/// A part of a page, as far as it is the same in each language.
struct Part {
    /// The number of its first line.
    line: usize,
    kind: Kind,
    /// What it says, in the order of the page. The numbers are separate,
    /// since a sentence may name a command before a number in one language and
    /// after it in another; so do the words of each macro.
    words: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    /// A chapter or a section: the name of its macro, and the command that it
    /// is about, if it has the name of one.
    Heading(String, Option<String>),
    Paragraph,
    /// A list of this kind.
    List(String),
    Item,
    EndOfList,
    /// The lines that a reader sees, and what the comment above says of a
    /// picture.
    Display(Vec<String>, Option<String>),
}

/// The parts of a page.
fn parts(text: &str) -> Vec<Part> {
    let titles = titles(text);
    let mut parts: Vec<Part> = Vec::new();
    let mut lines = (1..).zip(text.lines());
    let mut picture = None;
    while let Some((line, source)) = lines.next() {
        if let Some(comment) = source.strip_prefix(NOT_AN_EXCHANGE) {
            picture = comment.strip_prefix(PICTURE).map(str::to_owned);
        }
        if source.starts_with(".\\\"") {
            continue;
        }
        let name = source.split(' ').next().unwrap_or_default();
        let kind = match name {
            ".Sh" | ".Ss" => {
                let title = source.strip_prefix(name).unwrap_or_default().trim();
                let is_command = title.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
                let command = is_command.then(|| title.to_owned());
                Some(Kind::Heading(name.to_owned(), command))
            }
            ".Pp" => Some(Kind::Paragraph),
            ".It" => Some(Kind::Item),
            ".El" => Some(Kind::EndOfList),
            ".Bl" => Some(Kind::List(
                source.split(' ').nth(1).unwrap_or_default().into(),
            )),
            ".Bd" => {
                let display = lines.by_ref().map(|(_, line)| line);
                let display = display.take_while(|&line| line != ".Ed");
                let seen = display.filter(|line| !line.starts_with(".\\\""));
                Some(Kind::Display(seen.map(shown).collect(), picture.take()))
            }
            _ => None,
        };
        let is_frame = !matches!(kind, None | Some(Kind::Item));
        if let Some(kind) = kind {
            let words = Vec::new();
            parts.push(Part { line, kind, words });
        }
        // There is no text above the first chapter.
        let Some(part) = parts.last_mut().filter(|_| !is_frame) else {
            continue;
        };
        let said = match source.strip_prefix('.') {
            Some(macros) => words_of_macros(macros, &titles),
            None => bytes(source).collect(),
        };
        part.words.extend(said);
        part.words.extend(numbers(source));
    }
    for part in &mut parts {
        part.words.sort_by(|(a, _), (b, _)| a.cmp(b));
    }
    parts
}

/// The headings of a page as links name them.
fn titles(text: &str) -> Vec<String> {
    let titles = text.lines().filter_map(|line| {
        let title = line
            .strip_prefix(".Sh ")
            .or_else(|| line.strip_prefix(".Ss "))?;
        Some(title.replace("\\&", ""))
    });
    titles.collect()
}

/// The words on a line of macros that are the same in all languages, each with
/// its macro. A link says the number of the heading that it leads to. A cell of
/// a table says whether it has more than a dash.
fn words_of_macros(line: &str, titles: &[String]) -> Vec<(String, String)> {
    let mut words = Vec::new();
    if let Some(literal) = line.strip_prefix("Dl ") {
        words.push(("Dl".to_owned(), literal.to_owned()));
        return words;
    }
    // The states of a job.
    let name = line.strip_prefix("It ").unwrap_or_default();
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase()) {
        words.push(("It".to_owned(), name.to_owned()));
    }
    let mut current = "";
    let mut tokens = line.split(' ').peekable();
    while let Some(token) = tokens.next() {
        if SAME.contains(&token) || OTHER.contains(&token) {
            current = token;
            if token == "Ta" {
                let is_dash = tokens.peek() == Some(&"\\&-");
                words.push((token.to_owned(), format!("dash: {is_dash}")));
            }
        } else if SAME.contains(&current) && !is_punctuation(token) {
            // In Chinese, punctuation can follow the quotes of `So' alone.
            let kind = if current == "Ql" { "Li" } else { current };
            words.push((kind.to_owned(), token.to_owned()));
        }
    }
    if let Some(title) = line.split_once("Sx ").map(|(_, title)| title) {
        let title = title.split(" Ns ").next().unwrap_or(title);
        let title = title.trim_end_matches([' ', '.', ',', ':', ';', ')']);
        let title = title.replace("\\&", "");
        let place = titles.iter().position(|it| *it == title);
        let place = place.map_or(format!("no heading `{title}'"), |it| it.to_string());
        words.push(("Sx".to_owned(), place));
    }
    words
}

/// Whether mdoc takes a word for punctuation behind a macro.
fn is_punctuation(word: &str) -> bool {
    matches!(
        word,
        "." | "," | ":" | ";" | "(" | ")" | "[" | "]" | "?" | "!"
    )
}

/// The names of bytes in a sentence.
fn bytes(sentence: &str) -> impl Iterator<Item = (String, String)> {
    let words = sentence.split(|c: char| !c.is_ascii_alphanumeric());
    words
        .filter(|word| BYTES.contains(word))
        .map(|word| ("bytes".to_owned(), word.to_owned()))
}

/// The numbers on a line, with powers and points: 2^31, 1.12.
fn numbers(line: &str) -> impl Iterator<Item = (String, String)> {
    let is_part = |c: char| c.is_ascii_digit() || c == '.' || c == '^';
    let numbers = line.split(move |c: char| !is_part(c));
    numbers
        .map(|number| number.trim_matches(['.', '^']))
        .filter(|number| !number.is_empty())
        .map(|number| ("number".to_owned(), number.to_owned()))
}

/// Where a translation and the English page say something else.
fn faults(page: &str, english: &str, translation: &str) -> Vec<String> {
    let (english, translation) = (parts(english), parts(translation));
    let mut faults = Vec::new();
    for (here, there) in translation.iter().zip(&english) {
        let at = format!("{page}:{} and {NAME}:{}", here.line, there.line);
        if here.kind != there.kind {
            faults.push(format!("{at}: {:?}, not {:?}", here.kind, there.kind));
            // All that follows would be compared with another place.
            if !matches!(here.kind, Kind::Display(..)) || !matches!(there.kind, Kind::Display(..)) {
                return faults;
            }
        } else if here.words != there.words {
            let what = difference(&here.words, &there.words);
            faults.push(format!("{at}: {what}"));
        }
    }
    if translation.len() != english.len() {
        let (ours, theirs) = (translation.len(), english.len());
        faults.push(format!("{page}: {ours} parts, not {theirs}"));
    }
    faults
}

/// The macros for which two parts have different words, with these words.
fn difference(here: &[(String, String)], there: &[(String, String)]) -> String {
    let of = |words: &[(String, String)], kind: &str| {
        let words = words.iter().filter(|(it, _)| it == kind);
        let words: Vec<&str> = words.map(|(_, word)| word.as_str()).collect();
        words.join(" ")
    };
    let mut kinds: Vec<&str> = here.iter().chain(there).map(|it| it.0.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let different = kinds.into_iter().filter_map(|kind| {
        let (here, there) = (of(here, kind), of(there, kind));
        (here != there).then(|| format!("{kind} [{here}], not [{there}]"))
    });
    different.collect::<Vec<_>>().join("; ")
}

/// The page in English.
fn english() -> String {
    text_of(&format!("man/{NAME}"))
}

#[test]
fn each_translation_has_the_structure_names_and_numbers_of_the_manual() {
    let mut found = Vec::new();
    for entry in fs::read_dir(source("man")).expect("the manuals") {
        let language = entry.expect("a name").file_name();
        let language = language.to_str().expect("a name in UTF-8");
        let page = format!("man/{language}/{NAME}");
        if let Ok(translation) = fs::read_to_string(source(&page)) {
            found.extend(faults(&page, &english(), &translation));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_translation_with_another_structure_name_or_number_is_found() {
    let english = english();
    assert_eq!(faults("itself", &english, &english), Vec::<String>::new());
    let changes = [
        // A number in a sentence, one in an exchange, and a power.
        ("has at most 224 bytes", "has at most 242 bytes"),
        ("alice< INSERTED 1\n", "alice< INSERTED 2\n"),
        ("timeouts below 2^31", "timeouts below 2^32"),
        // A reply in its place in a list, in a sentence, and in an exchange.
        (".It Dv TOUCHED", ".It Dv RELEASED"),
        (".Dv JOB_TOO_BIG , EXPECTED", ".Dv EXPECTED_CRLF , JOB"),
        ("bob< TOUCHED", "bob< DELETED"),
        // A command, a statistic, an option, a value and a literal.
        (".Ic reserve-job\nanswers", ".Ic reserve\nanswers"),
        (".Va cmd-put\ncounts", ".Va total-jobs\ncounts"),
        (".Fl -max-memory", ".Fl -memory"),
        (".Ar ttr\nof 0", ".Ar delay\nof 0"),
        (".Ql jobs: []", ".Ql jobs:"),
        (".Dl put pri delay ttr bytes try:n", ".Dl put try:n"),
        // A byte, a link, and a cell of a table.
        ("A CR without an LF after it", "An LF that no CR follows"),
        (".Sx EXTENSIONS", ".Sx NOTATION"),
        ("kick-job Ta \\&-", "kick-job Ta yes"),
        // Something that is missing, and a picture in another's place.
        (".Pp\n", ""),
        (".It Dv JOB_TOO_BIG\n", ""),
        (".Ss Names\n", ".Sh Names\n"),
        (".Ss release\n", ".Ss bury\n"),
        (".It DELAYED\n", ".It BURIED\n"),
        (".Bl -bullet\n", ".Bl -enum\n"),
        ("Picture: ttr", "Picture: pause"),
        ("released in 2007.", "released."),
    ];
    for (from, to) in changes {
        let changed = english.replacen(from, to, 1);
        assert_ne!(changed, english, "{from} is not on the page");
        let found = faults("changed", &english, &changed);
        assert!(!found.is_empty(), "nobody sees that {from} became {to}");
    }
}
