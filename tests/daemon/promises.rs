//! The manual has a list of promises, which names tests. Each of these tests
//! must exist.

use std::fs;
use std::path::Path;

/// All sources below a directory.
fn sources(directory: &Path, text: &mut String) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|end| end == "rs") {
            text.push_str(&fs::read_to_string(path).expect("text"));
        }
    }
}

#[test]
fn the_tests_that_the_manual_names_are_there() {
    let manual = include_str!("../../man/beanpoled.8");
    let section = manual
        .split(".Sh ")
        .find(|section| section.starts_with("WHAT IS PROMISED"));
    let lines = section.expect("the section").lines();
    let named: Vec<_> = lines.filter_map(|line| line.strip_prefix(".Li ")).collect();
    assert!(named.len() > 30, "{named:?}");
    let mut text = String::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    sources(&root.join("tests"), &mut text);
    for name in named {
        assert!(text.contains(&format!("#[test]\nfn {name}()")), "{name}");
    }
}
