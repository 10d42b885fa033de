//! The modules of all packages, and which others each of them names.

use crate::paths::{children, code_of, expand, paths};
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

/// Where what a module says to those within it does not count: it is a house,
/// and they are its rooms. Elsewhere no file names another that names it back.
const HOUSES: &[&str] = &["beanpole"];

/// Module by module, which others it names.
pub type Names = BTreeMap<String, BTreeSet<String>>;

/// The modules of all packages, with their code.
pub struct Modules(BTreeMap<String, String>);

impl Modules {
    pub fn read() -> Modules {
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

    pub fn names(&self) -> Names {
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

fn is_house(module: &str) -> bool {
    HOUSES.iter().any(|house| is_within(module, house))
}

pub fn is_within(module: &str, part: &str) -> bool {
    module
        .strip_prefix(part)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}
