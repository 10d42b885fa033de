//! Which part of the three packages may name which, and that no file names
//! another that names it back.
//!
//! What a file names is read from its text: the paths that begin with `crate`,
//! `super`, the name of one of our packages or of a module beside or below. A
//! name that a module only passes on (`pub use`) is followed to where it is
//! defined. Tests may name what they like.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The packages: the name of the crate, where its `lib.rs` is, and what of it
/// lies elsewhere.
const PACKAGES: &[(&str, &str)] = &[
    ("beanpole", "src"),
    ("companion", "src/companion"),
    ("laboratory", "tests/laboratory"),
];

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
            "companion::inspection",
            "companion::load",
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
        "companion::inspection",
        &["beanpole::binlog", "beanpole::protocol"],
    ),
    (
        "companion::transfer",
        &[
            "companion::command",
            "companion::server",
            "companion::text",
            "companion::signals",
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
        "companion::load",
        &["companion::server", "companion::failure"],
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
            "companion::load",
            "companion::server",
            "companion::text",
            "companion::values",
            "companion::failure",
            "beanpole::arguments",
        ],
    ),
    ("laboratory::port", &[]),
];

/// Parts whose members do not know each other.
const STRANGERS: &[&str] = &["companion::commands"];

/// Where what a module says to those within it does not count: it is a house,
/// and they are its rooms. Elsewhere no file names another that names it back.
const HOUSES: &[&str] = &["beanpole"];

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

fn is_house(module: &str) -> bool {
    HOUSES.iter().any(|house| is_within(module, house))
}

fn is_within(module: &str, part: &str) -> bool {
    module
        .strip_prefix(part)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Module by module, which others it names.
type Names = BTreeMap<String, BTreeSet<String>>;

/// The modules of all packages, with their code.
struct Modules(BTreeMap<String, String>);

impl Modules {
    fn read() -> Modules {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut modules = BTreeMap::new();
        for (package, place) in PACKAGES {
            read_module(
                package,
                &root.join(place).join("lib.rs"),
                &root.join(place),
                &mut modules,
            );
        }
        assert!(modules.len() > 100, "{} modules are not all", modules.len());
        Modules(modules)
    }

    fn names(&self) -> Names {
        let mut names = Names::new();
        for (module, code) in &self.0 {
            let own_children = children(code);
            let named: BTreeSet<String> = paths(code)
                .iter()
                .filter_map(|path| self.absolute(module, &own_children, path))
                .filter_map(|path| self.defined_in(&path, 0))
                .filter(|other| other != module)
                .filter(|other| !(is_within(other, module) && is_house(module)))
                .collect();
            names.insert(module.clone(), named);
        }
        names
    }

    /// The path from the name of the package on, if it is one of ours.
    fn absolute(&self, module: &str, own_children: &[String], path: &str) -> Option<String> {
        let package = module.split("::").next()?;
        let (first, rest) = path.split_once("::").unwrap_or((path, ""));
        let base = match first {
            "crate" => package.to_string(),
            "self" => module.to_string(),
            "super" => {
                let mut base = module.rsplit_once("::")?.0;
                let mut rest = rest;
                while let Some(further) = rest.strip_prefix("super::") {
                    base = base.rsplit_once("::")?.0;
                    rest = further;
                }
                return Some(format!("{base}::{rest}"));
            }
            child if own_children.iter().any(|own| own == child) => format!("{module}::{child}"),
            other if PACKAGES.iter().any(|(name, _)| *name == other) => other.to_string(),
            _ => return None,
        };
        Some(format!("{base}::{rest}"))
    }

    /// The module in which what this path means is defined.
    fn defined_in(&self, path: &str, depth: usize) -> Option<String> {
        let mut module = path.trim_end_matches("::");
        while !self.0.contains_key(module) {
            module = module.rsplit_once("::")?.0;
        }
        let name = path[module.len()..]
            .trim_start_matches("::")
            .split("::")
            .next()?;
        if name.is_empty() || depth > 8 {
            return Some(module.to_string());
        }
        let code = &self.0[module];
        let passed_on = code
            .split(';')
            .filter_map(|line| line.split_once("pub use "))
            .find_map(|(_, list)| {
                let mut found = Vec::new();
                expand("", list, &mut found);
                found
                    .into_iter()
                    .find(|path| path.rsplit("::").next() == Some(name))
            });
        let own_children = children(code);
        let followed = passed_on
            .and_then(|path| self.absolute(module, &own_children, &path))
            .filter(|followed| followed != path)
            .and_then(|followed| self.defined_in(&followed, depth + 1));
        Some(followed.unwrap_or_else(|| module.to_string()))
    }
}

/// Reads a module and those that it declares.
fn read_module(name: &str, file: &Path, below: &Path, into: &mut BTreeMap<String, String>) {
    let text =
        fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let code = code_of(&text);
    for child in children(&code) {
        let places: [PathBuf; 2] = [
            below.join(format!("{child}.rs")),
            below.join(&child).join("mod.rs"),
        ];
        let place = places.iter().find(|place| place.exists());
        let place = place.unwrap_or_else(|| panic!("{name}: where is {child}?"));
        read_module(
            &format!("{name}::{child}"),
            place,
            &below.join(&child),
            into,
        );
    }
    into.insert(name.to_string(), code);
}

/// The text without comments, strings, and modules of tests.
fn code_of(text: &str) -> String {
    let text: String = match text.find("#[cfg(test)]\nmod tests") {
        Some(end) => text[..end].into(),
        None => text.into(),
    };
    let mut code = String::new();
    let mut in_tests = false;
    for line in text.lines() {
        let line = line.trim();
        in_tests |= line == "#[cfg(test)]";
        if in_tests || line.starts_with("//") {
            // An item for tests alone: up to the line that ends it.
            in_tests &= !(line.ends_with('}') || line.ends_with(';'));
            continue;
        }
        let mut is_text = false;
        let mut before = ' ';
        for character in line.chars() {
            if character == '"' && before != '\\' && before != '\'' {
                is_text = !is_text;
            } else if !is_text {
                code.push(character);
            }
            before = character;
        }
        code.push('\n');
    }
    code
}

/// The modules in files of their own that this one declares.
fn children(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in code.lines() {
        let line = line
            .trim_start_matches("pub ")
            .trim_start_matches("pub(crate) ");
        if let Some(name) = line
            .strip_prefix("mod ")
            .and_then(|rest| rest.strip_suffix(';'))
        {
            found.push(name.to_string());
        }
    }
    found
}

/// All paths in this code that may be of modules of ours.
fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = code;
    while let Some(at) = rest.find("::") {
        let start = rest[..at]
            .rfind(|c| !is_word(c))
            .map_or(0, |before| before + 1);
        // The path goes on as long as words follow, or a list of them.
        let tail = &rest[at..];
        let mut end = 0;
        while let Some(after) = tail[end..].strip_prefix("::") {
            let word = after.find(|c| !is_word(c)).unwrap_or(after.len());
            if word == 0 {
                break;
            }
            end += 2 + word;
        }
        let path = &rest[start..at + end];
        match tail[end..].strip_prefix("::{") {
            Some(list) => {
                let mut depth = 1;
                let close = list.find(|c| {
                    depth += i32::from(c == '{') - i32::from(c == '}');
                    depth == 0
                });
                let close = close.unwrap_or(list.len());
                expand(path, &format!("{{{}}}", &list[..close]), &mut found);
                rest = &list[close..];
            }
            None => {
                found.push(path.to_string());
                rest = &tail[end.max(2)..];
            }
        }
    }
    found.retain(|path| {
        path.chars()
            .next()
            .is_some_and(|first| first.is_lowercase())
    });
    found
}

/// The paths in `a::{b, c::{d, e as f}}`, with this in front.
fn expand(before: &str, list: &str, into: &mut Vec<String>) {
    let list = list.trim();
    let joined = |name: &str| match before {
        "" => name.to_string(),
        _ => format!("{before}::{name}"),
    };
    if let Some(inner) = list
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
    {
        let mut depth = 0;
        let parts = inner.split(|c| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            c == ',' && depth == 0
        });
        parts
            .filter(|part| !part.trim().is_empty())
            .for_each(|part| expand(before, part, into));
    } else if let Some((head, tail)) = list.split_once("::{") {
        expand(&joined(head.trim()), &format!("{{{tail}"), into);
    } else {
        let name = list.split(" as ").next().unwrap_or(list).trim();
        match name {
            "self" | "*" => into.push(before.to_string()),
            _ => into.push(joined(name.trim_end_matches("::*"))),
        }
    }
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
