//! What has to be right in a release and is easily forgotten.

use support::text_of;

/// Debian's changelog is made from it, with four more columns.
#[test]
fn the_changelog_begins_with_this_version_and_has_short_lines() {
    let changes = text_of(".github/CHANGELOG.md");
    let newest = changes.lines().find_map(|line| line.strip_prefix("## "));
    let (version, date) = newest
        .and_then(|line| line.split_once(", "))
        .expect("a version");
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
    assert_eq!(date.len(), "2026-11-28".len());
    for (number, line) in (1..).zip(changes.lines()) {
        assert!(line.len() < 77, "line {number}: {line}");
    }
}

#[test]
fn the_pages_and_the_fuzzer_name_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    // Each release has the version of the protocol, and a number.
    let (protocol, _) = version.rsplit_once('.').expect("a number");
    for page in ["README.md", "man/beanpoled.8"] {
        let text = text_of(page);
        let words = text.split(|letter: char| !letter.is_ascii_digit() && letter != '.');
        for word in words.map(|word| word.trim_matches('.')) {
            let is_release = word.starts_with(&format!("{protocol}."));
            assert!(!is_release || word == version, "{page} names {word}");
        }
    }
    let locked = format!("name = \"beanpole\"\nversion = \"{version}\"\n");
    assert!(text_of("tests/fuzz/Cargo.lock").contains(&locked));
}

/// `src/packaging/notices` writes both from the sources of the packages.
#[test]
fn the_notices_and_the_list_of_packages_are_of_the_versions_that_are_built() {
    let notices = text_of("src/packaging/NOTICES");
    let sbom = text_of("src/packaging/sbom.json");
    let listed: Vec<_> = sbom.split("\"purl\": \"pkg:cargo/").skip(1).collect();
    let lock = text_of("Cargo.lock");
    assert!(listed.len() > 40, "{} packages", listed.len());
    for package in listed {
        let (name, version) = package.split_once('@').expect("a version");
        let (version, _) = version.split_once('"').expect("its end");
        let locked = format!("name = \"{name}\"\nversion = \"{version}\"\n");
        assert!(
            lock.contains(&locked),
            "{name} {version}: src/packaging/notices src/packaging"
        );
        let is_ours = name == "beanpole";
        assert!(
            is_ours || notices.contains(&format!("\n{name} {version}\n")),
            "{name}"
        );
    }
}
