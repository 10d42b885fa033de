//! Which part of the three packages may name which, and that no file names
//! another that names it back.
//!
//! What a file names is read from its text: the paths that begin with `crate`,
//! `super`, the name of one of our packages or of a module beside or below. A
//! name that a module only passes on (`pub use`) is followed to where it is
//! defined. Tests may name what they like.

mod modules;
mod paths;

use modules::{Modules, Names, is_within};
use paths::{children, code_of, paths};
use std::collections::BTreeSet;

/// The floors, from the top: what a part may name. A part is a module and all
/// below it; what is no part is not looked at, but for circles.
const MAY_NAME: &[(&str, &[&str])] = &[
    (
        "beanpole::server",
        &[
            "beanpole::binlog",
            "beanpole::engine",
            "beanpole::protocol",
            "beanpole::log",
            "beanpole::lock",
            "beanpole::sync",
            "beanpole::sys",
        ],
    ),
    (
        "beanpole::binlog",
        &[
            "beanpole::engine",
            "beanpole::protocol",
            "beanpole::log",
            "beanpole::lock",
            "beanpole::sync",
            "beanpole::sys",
        ],
    ),
    ("beanpole::engine", &["beanpole::protocol"]),
    ("beanpole::protocol", &[]),
    // Beside them: what the command line says, and what is written to the log.
    (
        "beanpole::options",
        &[
            "beanpole::arguments",
            "beanpole::binlog",
            "beanpole::server",
        ],
    ),
    ("beanpole::arguments", &[]),
    ("beanpole::log", &["beanpole::sys"]),
    ("beanpole::lock", &["beanpole::sync"]),
    ("beanpole::sync", &["beanpole::sys"]),
    ("beanpole::sys", &[]),
    // The companion.
    (
        "companion::table",
        &["companion::commands", "companion::command"],
    ),
    (
        "companion::commands",
        &[
            "companion::command",
            "companion::transfer",
            "companion::selection",
            "companion::inspection",
            "companion::exposition",
            "companion::http",
            "companion::server",
            "companion::text",
            "companion::signals",
            "companion::values",
            "companion::failure",
            "beanpole::arguments",
            "beanpole::binlog",
            "beanpole::engine",
            "beanpole::protocol",
        ],
    ),
    (
        "companion::exposition",
        &[
            "companion::server",
            "companion::failure",
            "beanpole::protocol",
        ],
    ),
    (
        "companion::http",
        &["companion::text", "companion::failure"],
    ),
    (
        "companion::inspection",
        &["beanpole::binlog", "beanpole::protocol"],
    ),
    (
        "companion::transfer",
        &[
            "companion::selection",
            "companion::command",
            "companion::server",
            "companion::text",
            "companion::signals",
            "companion::failure",
            "beanpole::protocol",
        ],
    ),
    (
        "companion::selection",
        &[
            "companion::command",
            "companion::server",
            "companion::failure",
            "beanpole::protocol",
        ],
    ),
    (
        "companion::command",
        &[
            "companion::server",
            "companion::values",
            "companion::failure",
            "beanpole::arguments",
            "beanpole::protocol",
        ],
    ),
    (
        "companion::server",
        &[
            "companion::text",
            "companion::signals",
            "companion::values",
            "companion::failure",
            "beanpole::protocol",
        ],
    ),
    (
        "companion::text",
        &["companion::failure", "beanpole::protocol"],
    ),
    ("companion::signals", &["companion::failure"]),
    (
        "companion::values",
        &["beanpole::arguments", "beanpole::protocol"],
    ),
    ("companion::failure", &["beanpole::protocol"]),
    // The laboratory.
    (
        "laboratory::bench",
        &[
            "laboratory::port",
            "companion::command",
            "laboratory::load",
            "companion::server",
            "companion::text",
            "companion::values",
            "companion::failure",
            "beanpole::arguments",
        ],
    ),
    (
        "laboratory::load",
        &["companion::server", "companion::failure"],
    ),
    ("laboratory::port", &[]),
];

/// Parts whose members do not know each other.
const STRANGERS: &[&str] = &["companion::commands"];

/// What is wrong today, and not to be copied.
const EXEMPT: &[(&str, &str)] = &[];

/// Circles that are there today: files by the module that comes first of them.
const EXEMPT_CIRCLES: &[&str] = &[];

#[test]
fn every_part_names_only_what_lies_below_it() {
    let modules = Modules::read();
    let mut wrong = Vec::new();
    for (from, named) in &modules.names() {
        let Some((part, allowed)) = MAY_NAME.iter().find(|(part, _)| is_within(from, part)) else {
            continue;
        };
        for to in named {
            let fits = is_within(to, part)
                || allowed.iter().any(|other| is_within(to, other))
                || EXEMPT.contains(&(from.as_str(), to.as_str()));
            if !fits {
                wrong.push(format!("{from} names {to}: not below {part}"));
            }
            for part in STRANGERS {
                let member = |module: &str| {
                    let rest = module.strip_prefix(part)?.strip_prefix("::")?;
                    rest.split("::").next().map(str::to_owned)
                };
                if let (Some(one), Some(other)) = (member(from), member(to))
                    && one != other
                {
                    wrong.push(format!("{from} names {to}: each of {part} is for itself"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn no_file_names_one_that_names_it_back() {
    let names = Modules::read().names();
    let circles: Vec<_> = circles(&names)
        .into_iter()
        .filter(|circle| !EXEMPT_CIRCLES.contains(&circle[0].as_str()))
        .map(|circle| circle.join(" -> "))
        .collect();
    assert!(circles.is_empty(), "\n{}\n", circles.join("\n"));
}

#[test]
fn what_is_exempt_is_still_wrong() {
    let names = Modules::read().names();
    for (from, to) in EXEMPT {
        let named = names.get(*from).is_some_and(|named| named.contains(*to));
        assert!(named, "{from} does not name {to} any more");
    }
    let firsts: BTreeSet<_> = circles(&names)
        .into_iter()
        .map(|circle| circle[0].clone())
        .collect();
    for first in EXEMPT_CIRCLES {
        assert!(
            firsts.contains(*first),
            "no circle begins with {first} any more"
        );
    }
}

#[test]
fn paths_are_found_and_followed() {
    let text = "
        // use crate::comment::Thing;
        mod child;
        pub use child::Passed as Other;
        use crate::{one, two::{Two, self}, three::*};
        use super::sibling::f;
        fn f() { let text = \"crate::text\"; child::g(); beanpole::log::h::<'a', u8>() }
        #[cfg(test)]
        mod tests { use crate::tests::Only; }
    ";
    let code = code_of(text);
    assert_eq!(children(&code), ["child"]);
    let mut paths = paths(&code);
    paths.sort();
    paths.dedup();
    let expected = [
        "beanpole::log::h",
        "child::Passed",
        "child::g",
        "crate::one",
        "crate::three",
        "crate::two",
        "crate::two::Two",
        "super::sibling::f",
    ];
    assert_eq!(paths, expected);
    let graph = [
        ("a", vec!["b"]),
        ("b", vec!["c"]),
        ("c", vec!["b"]),
        ("d", vec!["a"]),
    ];
    let graph = graph
        .into_iter()
        .map(|(from, to)| (from.to_string(), to.into_iter().map(String::from).collect()));
    assert_eq!(circles(&graph.collect()), [["b", "c", "b"]]);
}

/// A way round each knot of modules that lead to each other, in a fixed order.
fn circles(names: &Names) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for start in names.keys() {
        if seen.contains(start) {
            continue;
        }
        // The shortest way back to the start.
        let mut ways = vec![vec![start.clone()]];
        let mut visited = BTreeSet::new();
        let mut at = 0;
        while at < ways.len() {
            let way = ways[at].clone();
            at += 1;
            for next in names.get(&way[way.len() - 1]).into_iter().flatten() {
                if next == start {
                    let mut circle = way.clone();
                    circle.push(start.clone());
                    seen.extend(circle.iter().cloned());
                    found.push(circle);
                    ways.clear();
                    break;
                }
                if visited.insert(next.clone()) {
                    ways.push([way.as_slice(), std::slice::from_ref(next)].concat());
                }
            }
        }
    }
    found
}
