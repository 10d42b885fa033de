//! `make check` succeeds only if suites have run and have passed. Here a word of the shell
//! acts for cargo.

use std::os::unix::fs::symlink;
use std::process::Command;
use support::{Folder, run_command, source};

/// All that tests/check may use, because every system has it. (Not all have `nproc`.)
const TOOLS: [&str; 17] = [
    "awk", "cat", "chmod", "cut", "date", "dirname", "getconf", "mkdir", "mktemp", "paste", "rm",
    "sed", "sort", "tee", "tr", "uniq", "wc",
];

/// Runs tests/check with this cargo, where only these tools are to be had. Returns whether it
/// succeeds, and what it says.
fn check(cargo: &str, tools: &[&str]) -> (bool, String) {
    let folder = Folder::new();
    for tool in tools {
        let found = run_command(Command::new("sh").args(["-c", "command -v $0", tool])).1;
        symlink(found.trim(), folder.join(tool)).expect("a link");
    }
    let mut command = Command::new("/bin/sh");
    command.arg(source("tests/check")).env("CARGO", cargo);
    command
        .env("PATH", folder.path())
        .env_remove("RUST_TEST_THREADS");
    let (status, said, errors) = run_command(&mut command);
    (status == 0, said + &errors)
}

/// What cargo would say of a suite, which is this program, and of one whose tests it runs.
fn says(suite: &str, tests: &str) -> String {
    let said = format!("Executable suite ({suite})\n{tests}\n");
    let escaped = said.replace(' ', "\\0040").replace('\n', "\\n");
    format!("printf %b {escaped}")
}

const PASSED: &str = "test result: ok. 3 passed; 0 failed; 0 ignored;";

#[test]
fn make_check_succeeds_if_suites_have_run_and_passed() {
    let (succeeded, said) = check(&says("/bin/true", PASSED), &TOOLS);
    assert!(succeeded, "{said}");
    // It calls cargo twice: to build, and for the documentation.
    let summary = "make check: 2 suites, 6 tests passed, 0 failed, ";
    assert!(said.contains(summary), "{said}");
}

#[test]
fn make_check_fails_if_no_test_has_run() {
    for cargo in [
        "true",
        &says("/bin/true", "test result: ok. 0 passed; 0 failed;"),
    ] {
        let (succeeded, said) = check(cargo, &TOOLS);
        assert!(!succeeded, "{cargo}: {said}");
    }
}

#[test]
fn make_check_fails_if_only_the_documentation_has_tests() {
    let (succeeded, said) = check(&format!("echo {PASSED}"), &TOOLS);
    assert!(!succeeded && said.contains("no suite"), "{said}");
}

#[test]
fn make_check_fails_if_cargo_a_suite_or_a_test_has_failed() {
    let failed = "test result: FAILED. 2 passed; 1 failed;";
    for cargo in [
        "false",
        "no-such-cargo",
        &says("/bin/false", PASSED),
        &says("/no/such/suite", PASSED),
        &says("/bin/true", failed),
    ] {
        let (succeeded, said) = check(cargo, &TOOLS);
        assert!(!succeeded, "{cargo}: {said}");
    }
}

#[test]
fn make_check_fails_where_the_number_of_processors_is_not_to_be_had() {
    let others = TOOLS.map(|tool| if tool == "getconf" { "false" } else { tool });
    let (succeeded, said) = check(&says("/bin/true", PASSED), &others);
    assert!(!succeeded && said.contains("getconf"), "{said}");
}
