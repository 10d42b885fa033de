//! Each scenario of the bench, in its shortest form, on the daemon: the bench must find
//! every reply right, and report its figures. `cargo test -p beanpole-bench` runs this;
//! the daemon has to be built before.

use std::process::{Command, Output};
use support::{PROGRAM, beanstalkd, left_out};

/// Runs the bench on the daemon, and perhaps on another server.
fn bench(arguments: &str, theirs: Option<&str>) -> Output {
    let ours = format!("'{}' -l 127.0.0.1 -p {{port}}", *PROGRAM);
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    let bench = command.args(["--ours", &ours]).args(arguments.split(' '));
    let theirs = theirs.into_iter().flat_map(|theirs| ["--theirs", theirs]);
    bench.args(theirs).output().expect("the bench")
}

/// What it prints.
#[track_caller]
fn told(output: Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn each_scenario_reports_its_figures() {
    let cost = [
        "throughput, ",
        "CPU per command, us",
        "p50, us",
        "p99.9, us",
    ];
    let tubes = ["growth of CPU with the tubes"];
    let calls = ["system calls per batch"];
    let stock = ["memory per job", "put: growth", "drain: growth", "RSS left"];
    let idle = [
        "RSS per connection, kB",
        "idle CPU",
        "each has its job after",
    ];
    let recovery = ["answers after, s", "peak RSS by RSS", "log per job, bytes"];
    for (arguments, figures) in [
        ("crowd -w put -s 0.1 -c 2 -f 0", &cost[..]),
        ("crowd -w cycle -n 96 -d 16 -c 3 -b 5000 -p apart", &cost),
        (
            "crowd -w handoff -n 40 -c 4 -p one --rate 1000 --busy 1",
            &cost,
        ),
        ("crowd -w connect -n 40 -c 4", &cost),
        ("crowd -n 40 -c 2 --tubes 50", &tubes),
        ("crowd -n 40 -f 0 --calls fdatasync,fsync", &calls),
        ("stock -n 2000 --look 0.1", &stock),
        ("stock -n 2000 --look 0.1 --delay 100", &stock[..2]),
        ("idle -c 50 --look 0.1", &idle),
        ("recovery -n 1000", &recovery),
    ] {
        let told = told(bench(&format!("{arguments} -r 1"), None));
        for figure in figures {
            let mut lines = told.lines();
            let is_told = lines.any(|line| line.starts_with(figure));
            assert!(is_told, "{arguments}: no {figure} in {told}");
        }
    }
}

#[test]
fn two_servers_are_compared() {
    let Some(program) = beanstalkd() else {
        return left_out("a beanstalkd");
    };
    let theirs = format!("'{}' -l 127.0.0.1 -p {{port}}", program.display());
    let told = told(bench("crowd -n 40 -r 2", Some(&theirs)));
    let line = told.lines().find(|line| line.starts_with("throughput"));
    // The name, and three figures with what they lie between.
    assert_eq!(line.expect("a figure").matches(" - ").count(), 3, "{told}");
}

#[test]
fn a_run_ends_if_a_server_does_not_start() {
    let output = bench("crowd -r 1", Some("echo"));
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the server has ended"), "{said}");
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    assert_eq!(bench("dance", None).status.code(), Some(2));
    assert_eq!(bench("crowd -w sleep", None).status.code(), Some(2));
}
