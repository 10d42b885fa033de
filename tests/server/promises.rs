//! The manual has a list of promises. In its source, a comment above each names
//! the tests that prove it, and these must exist.

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
fn each_promise_of_the_manual_names_tests_that_exist() {
    let manual = include_str!("../../man/beanpoled.8");
    let section = manual
        .split(".Sh ")
        .find(|section| section.starts_with("WHAT IS PROMISED"));
    let promises = section.expect("the section").split(".It\n").skip(1);
    let mut text = String::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    sources(&root.join("tests"), &mut text);
    let mut count = 0;
    for promise in promises {
        let proofs = promise
            .lines()
            .filter_map(|line| line.strip_prefix(".\\\" Proof: "));
        let proofs: Vec<_> = proofs.collect();
        assert!(!proofs.is_empty(), "no proof: {promise}");
        for proof in proofs {
            let is_there = if proof.contains('/') {
                root.join(proof).exists()
            } else {
                text.contains(&format!("#[test]\nfn {proof}()"))
            };
            assert!(is_there, "{proof}");
        }
        count += 1;
    }
    assert!(count > 25, "{count} promises");
}
