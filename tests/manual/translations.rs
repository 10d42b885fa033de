//! Tests the translations of the manual page, `man/*/beanpole-protocol.7`, each in a
//! directory with the name of its language. What they say, only people can judge. But
//! no section stays as it is while the English one changes: it begins with the checksum
//! of what its translator has read. And it has the same paragraphs, items, exchanges,
//! links, names and numbers.
//!
//! The proofs stay in the English page, and so do the lines of a display that no
//! reader sees.

use super::PICTURE;
use std::fs;
use support::page::{Manual, NAME, Section, shown};
use support::source;

/// The macros whose words are the same in all languages: those of the protocol,
/// and names.
const SAME: [&str; 9] = ["Ic", "Dv", "Va", "Ar", "Fl", "Li", "Ql", "Xr", "An"];
/// The other macros that may occur within a line.
const OTHER: [&str; 14] = [
    "It", "Em", "Sx", "No", "Ns", "Op", "Pq", "Dq", "So", "Sc", "Ta", "D1", "Nm", "Nd",
];
/// Bytes by their names. These occur in sentences without a macro.
const BYTES: [&str; 3] = ["CR", "LF", "NUL"];
const COMMENT: &str = ".\\\"";
/// What stands before the checksum of the English section.
const MARK: &str = ".\\\" Of ";

/// What is the same in each language, in one section: its paragraphs, lists, items and
/// displays, names and numbers. They are sorted, since a sentence may have another order in
/// another language.
fn content(section: &Section<'_>, titles: &[String]) -> Vec<String> {
    let mut content = Vec::new();
    let mut is_display = false;
    for &(_, line) in &section.lines {
        if line.starts_with(COMMENT) {
            let picture = line.split_once(PICTURE);
            content.extend(picture.map(|(_, name)| name.to_owned()));
            continue;
        }
        let name = line.split(' ').next().unwrap_or_default();
        let names = names(line, titles);
        match name {
            ".Bd" | ".Ed" => {
                is_display = name == ".Bd";
                content.push(name.to_owned());
            }
            _ if is_display => content.push(shown(line)),
            ".Bl" => content.push(line.replace('"', "").chars().take(8).collect()),
            ".It" => {
                let cells = line.split(" Ta ").map(|cell| cell == "\\&-");
                let cells = cells.collect::<Vec<_>>();
                content.push(format!("{name} {names:?} {cells:?}"));
            }
            ".Pp" | ".El" => content.push(name.to_owned()),
            _ => {}
        }
        content.extend(names);
        content.extend(numbers(line));
    }
    content.sort();
    content
}

/// What the first has and the second lacks.
fn without(all: &[String], others: &[String]) -> Vec<String> {
    let mut others = others.to_vec();
    let is_other = |one: &&String| match others.iter().position(|other| other == *one) {
        Some(position) => {
            others.swap_remove(position);
            false
        }
        None => true,
    };
    all.iter().filter(is_other).cloned().collect()
}

/// The names on a line. A link has the number of the heading that it leads to.
fn names(line: &str, titles: &[String]) -> Vec<String> {
    let Some(line) = line.strip_prefix('.') else {
        let words = line.split(|c: char| !c.is_ascii_alphanumeric());
        let bytes = words.filter(|word| BYTES.contains(word));
        return bytes.map(str::to_owned).collect();
    };
    if line.starts_with("Dl ") {
        return vec![line.to_owned()];
    }
    let mut names = Vec::new();
    let mut current = "";
    for token in line.split(' ') {
        // The states of a job are items without a macro.
        let is_state = current == "It" && token.bytes().all(|byte| byte.is_ascii_uppercase());
        if SAME.contains(&token) || OTHER.contains(&token) {
            current = token;
        } else if is_state || SAME.contains(&current) && !is_punctuation(token) {
            // In Chinese, punctuation can follow the quotes of `So' alone.
            let kind = if current == "Ql" { "Li" } else { current };
            names.push(format!("{kind} {token}"));
        }
    }
    if let Some((_, title)) = line.split_once("Sx ") {
        let title = title.split(" Ns ").next().unwrap_or(title);
        let title = title.trim_end_matches([' ', '.', ',', ':', ';', ')']);
        let place = titles.iter().position(|it| *it == title.replace("\\&", ""));
        names.push(format!("Sx {place:?}"));
    }
    names
}

/// Whether mdoc takes a word for punctuation behind a macro.
fn is_punctuation(word: &str) -> bool {
    matches!(
        word,
        "." | "," | ":" | ";" | "(" | ")" | "[" | "]" | "?" | "!"
    )
}

/// The numbers on a line, with powers and points: 2^31, 1.12.
fn numbers(line: &str) -> impl Iterator<Item = String> {
    let parts = line.split(|c: char| !c.is_ascii_digit() && c != '.' && c != '^');
    let numbers = parts.map(|number| number.trim_matches(['.', '^']));
    numbers.filter(|it| !it.is_empty()).map(str::to_owned)
}

/// What a translator reads of a section: neither comments nor exchanges.
fn checksum(section: &Section<'_>) -> String {
    let mut read = String::from(section.title);
    let mut is_display = false;
    for (_, line) in &section.lines {
        is_display = is_display && *line != ".Ed" || line.starts_with(".Bd");
        if !is_display && !line.starts_with(COMMENT) {
            read += line;
            read += "\n";
        }
    }
    // FNV-1a.
    let step = |sum: u32, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    format!("{:08x}", read.bytes().fold(0x811c_9dc5, step))
}

/// The headings of a page, as links name them.
fn titles(page: &Manual) -> Vec<String> {
    let titles = page
        .sections()
        .map(|section| section.title.replace("\\&", ""));
    titles.collect()
}

/// Where two pages differ, without the checksums.
fn differences(page: &Manual, english: &Manual) -> Vec<String> {
    let (ours, theirs) = (titles(page), titles(english));
    let mut found = Vec::new();
    if ours.len() != theirs.len() {
        found.push(format!("{} sections, not {}", ours.len(), theirs.len()));
    }
    for (here, there) in page.sections().zip(english.sections()) {
        let (here_is, there_is) = (content(&here, &ours), content(&there, &theirs));
        if here_is != there_is {
            let (more, less) = (without(&here_is, &there_is), without(&there_is, &here_is));
            let title = there.title;
            found.push(format!("{title}: it has {more:?} and lacks {less:?}"));
        }
    }
    found
}

#[test]
fn each_translation_is_one_of_the_page_as_it_is() {
    let english = Manual::read();
    let mut found = Vec::new();
    for entry in fs::read_dir(source("man")).expect("the manuals") {
        let path = entry.expect("a name").path().join(NAME);
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        let page = Manual { text };
        let at = path.display();
        found.extend(
            differences(&page, &english)
                .iter()
                .map(|it| format!("{at}: {it}")),
        );
        for (here, there) in page.sections().zip(english.sections()) {
            let mark = format!("{MARK}{}", checksum(&there));
            let first = here.lines.first();
            if let Some((line, _)) = first.filter(|(_, line)| **line != *mark) {
                let title = there.title;
                found.push(format!(
                    "{at}:{line}: `{title}' has changed in English: see to this, then write {mark}"
                ));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
