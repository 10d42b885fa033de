//! Each scenario of the bench, in its shortest form, on the daemon: the bench must find
//! every reply right, and tell its figures. `cargo test -p beanpole-bench` runs this;
//! the daemon has to be built before.

use std::process::{Command, Output};
use support::{PROGRAM, beanstalkd, left_out};

fn bench(arguments: &str) -> Output {
    let ours = format!("'{}' -l 127.0.0.1 -p {{port}}", *PROGRAM);
    let mut bench = Command::new(env!("CARGO_BIN_EXE_bench"));
    let bench = bench.args(["--ours", &ours]).args(arguments.split(' '));
    bench.output().expect("the bench")
}

/// Runs the bench, and returns what it prints.
#[track_caller]
fn told(arguments: &str) -> String {
    let output = bench(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

#[track_caller]
fn assert_tells(arguments: &str, figures: &[&str]) {
    let told = told(arguments);
    for figure in figures {
        let is_told = |line: &str| line.starts_with(figure);
        assert!(
            told.lines().any(is_told),
            "{arguments}: no {figure} in {told}"
        );
    }
}

const COST: [&str; 4] = [
    "throughput, ",
    "CPU per command, us",
    "p50, us",
    "p99.9, us",
];

#[test]
fn crowd_reports_cost_and_latency_for_each_kind_of_work() {
    for work in ["put", "cycle", "handoff", "connect"] {
        assert_tells(&format!("crowd -w {work} -n 40 -c 4 -r 1"), &COST);
        assert_tells(&format!("crowd -w {work} -s 0.1 -c 2 -r 1 -f 0"), &COST);
    }
    assert_tells("crowd -n 96 -d 16 -c 3 -b 5000 -r 1 -p apart", &COST);
    assert_tells("crowd -n 40 -c 4 -r 1 -p one --rate 1000 --busy 1", &COST);
}

#[test]
fn crowd_reports_what_many_tubes_cost() {
    assert_tells(
        "crowd -n 40 -c 2 -r 1 --tubes 50",
        &["growth of CPU with the tubes"],
    );
}

#[test]
fn crowd_counts_system_calls() {
    assert_tells(
        "crowd -n 40 -c 1 -r 1 --calls all",
        &["system calls per batch"],
    );
    assert_tells(
        "crowd -n 40 -r 1 -f 0 --calls fdatasync,fsync",
        &["system calls per batch"],
    );
}

#[test]
fn stock_reports_memory_and_growth() {
    let told = [
        "memory per job",
        "put: growth",
        "drain: growth",
        "RSS left over",
    ];
    assert_tells("stock -n 2000 -r 1 --look 0.1", &told);
    assert_tells("stock -n 2000 -r 1 --look 0.1 --delay 100", &told[..2]);
}

#[test]
fn idle_reports_what_waiting_clients_cost() {
    let told = [
        "RSS per connection, kB",
        "idle CPU",
        "each has its job after, ms",
    ];
    assert_tells("idle -c 50 --look 0.1 -r 1", &told);
}

#[test]
fn recovery_reports_time_memory_and_disk() {
    let told = ["answers after, s", "peak RSS by RSS", "log per job, bytes"];
    assert_tells("recovery -n 1000 -r 1", &told);
}

#[test]
fn two_servers_are_compared() {
    let Some(program) = beanstalkd() else {
        return left_out("a beanstalkd");
    };
    let theirs = format!("'{}' -l 127.0.0.1 -p {{port}}", program.display());
    let mut bench = Command::new(env!("CARGO_BIN_EXE_bench"));
    let ours = format!("'{}' -l 127.0.0.1 -p {{port}}", *PROGRAM);
    let bench = bench.args(["--ours", &ours, "--theirs", &theirs]);
    let bench = bench.args(["crowd", "-n", "40", "-r", "2"]);
    let output = bench.output().expect("the bench");
    let told = String::from_utf8(output.stdout).expect("text");
    let line = told.lines().find(|line| line.starts_with("throughput"));
    // The name, and three figures with what they lie between.
    assert_eq!(line.expect("a figure").matches(" - ").count(), 3, "{told}");
}

#[test]
fn a_server_that_does_not_start_ends_the_run() {
    let output = bench("crowd -r 1 --theirs echo");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the server has ended"), "{said}");
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    assert_eq!(bench("dance").status.code(), Some(2));
    assert_eq!(bench("crowd -w sleep").status.code(), Some(2));
}
