//! Runs each scenario of the bench in its shortest form, on the daemon. The
//! bench must find every reply right, and tell its figures.

use std::path::Path;
use std::process::{Command, Output, Stdio};

const BENCH: &str = env!("CARGO_BIN_EXE_bench");

/// Our server, which lies beside the bench. The tests of all packages together
/// build it.
fn beanpoled() -> String {
    let program = Path::new(BENCH).with_file_name("beanpoled");
    assert!(program.exists(), "build {} first", program.display());
    program.display().to_string()
}

fn bench(arguments: &str) -> Output {
    Command::new(BENCH)
        .args(arguments.split(' '))
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Runs the bench. Returns the names of the figures that it prints.
fn figures(arguments: &str) -> Vec<String> {
    let output = bench(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {said}");
    let told = String::from_utf8(output.stdout).unwrap();
    let rows = told
        .lines()
        .skip_while(|line| !line.starts_with("median"))
        .skip(1);
    // Between a name and its value there are at least two spaces.
    rows.filter_map(|row| Some(row.split_once("  ")?.0.to_string()))
        .collect()
}

fn assert_tells(arguments: &str, expected: &[&str]) {
    let told = figures(arguments);
    for name in expected {
        assert!(
            told.iter().any(|told| told == name),
            "{arguments}: no {name} in {told:?}"
        );
    }
}

const COST: [&str; 4] = [
    "throughput, commands/s",
    "CPU per command, us",
    "p50, us",
    "p99.9, us",
];

#[test]
fn put_and_cycle_tell_cost_and_latency() {
    assert_tells("put -n 20 -r 1", &COST);
    assert_tells("crowd -n 20 -c 3 -r 1", &COST);
    assert_tells("crowd -w put -n 20 -c 3 -r 1", &COST);
    assert_tells("crowd -w handoff -n 20 -c 4 -r 1", &COST);
    assert_tells("crowd -w handoff -s 0.01 -c 2 -r 1 -f 0", &COST);
    assert_tells("put -n 96 -d 16 -c 3 -b 5000 -r 1 -p apart", &COST);
    assert_tells("put -s 0.01 -c 2 -r 1 --priorities 5", &COST);
    assert_tells("cycle -n 20 -r 1 -p one", &COST);
    assert_tells("cycle -n 60 -d 4 -c 8 -r 1", &COST);
}

#[test]
fn a_binlog_may_be_synced_at_once_or_later_or_never() {
    for sync in ["0", "50", "never"] {
        assert_tells(&format!("put -n 20 -c 2 -r 1 --sync {sync}"), &COST);
        assert_tells(&format!("cycle -n 20 -r 1 --sync {sync}"), &COST);
    }
    let told = figures("put -n 20 -r 1 -f 0");
    let syncs = told.iter().any(|name| name == "syncs per command");
    assert_eq!(syncs, may_trace(), "{told:?}");
}

/// Whether `strace` is there and may trace a process.
fn may_trace() -> bool {
    Command::new("strace")
        .args(["-f", "--seccomp-bpf", "-o", "/dev/null", "true"])
        .output()
        .is_ok_and(|output| output.status.success())
}

/// While a server is traced, the bench could easily miss its end.
#[test]
fn a_server_whose_calls_were_counted_is_gone_afterwards() {
    if !may_trace() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let pids = directory.path().join("pids");
    let server = beanpoled();
    let ours = format!(
        r#"sh -c 'echo $$ >> "$0" && exec "$@"' '{}' '{server}' -l 127.0.0.1 -p {{port}}"#,
        pids.display()
    );
    let output = Command::new(BENCH)
        .args(["calls", "-n", "5", "-r", "10", "--idle", "0"])
        .args(["--ours", &ours])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let pids = std::fs::read_to_string(pids).unwrap();
    assert_eq!(pids.lines().count(), 10);
    for pid in pids.lines() {
        let process = Path::new("/proc").join(pid);
        assert!(!process.exists(), "server {pid} is still there");
    }
}

#[test]
fn calls_tells_system_calls() {
    if may_trace() {
        let tell = ["put: system calls per batch", "system calls when idle"];
        assert_tells("calls -n 20 -r 1 --idle 0.1", &tell);
    }
}

#[test]
fn recovery_tells_time_memory_and_disk() {
    let tell = ["answers after, s", "peak RSS, MB", "log per job, bytes"];
    assert_tells("recovery -n 1000 -r 1", &tell);
    assert_tells("recovery -n 1000 -r 1 --sync 0", &tell);
}

#[test]
fn beanstalkd_is_measured_too_if_it_is_there() {
    let program = std::env::var("BEANSTALKD").unwrap_or("/usr/bin/beanstalkd".into());
    if !Path::new(&program).exists() {
        return;
    }
    for load in [
        "put -n 20 -f 0",
        "cycle -n 20 -f never",
        "handoff -n 20",
        "connect -n 20",
        "tubes -n 20 --tubes 50 --watched 20",
        "ready -n 2000 -d 100 --settle 0",
        "delayed -n 2000 -d 100 --idle 0.1",
        "mature -n 200 --delay 2 --consumers 4",
        "idle -c 50 --idle 0.1",
        "recovery -n 1000",
    ] {
        let output = Command::new(BENCH)
            .args(load.split(' '))
            .args(["-r", "1", "--theirs"])
            .arg(format!("'{program}' -l 127.0.0.1 -p {{port}}"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{load}: {said}");
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(told.contains("\ntheirs: `'"), "{load}: {told}");
    }
}

#[test]
fn a_binlog_is_not_asked_of_a_server_that_runs() {
    let output = bench("put --ours 127.0.0.1:1 --sync 0");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    let line = "bench: 127.0.0.1:1: only a server that is started here can be given a \
                binlog";
    assert_eq!(said.lines().next(), Some(line));
}

#[test]
fn handoff_and_connect_tell_latency() {
    assert_tells("handoff -n 20 -r 1", &["throughput, jobs/s", "p99, us"]);
    assert_tells(
        "handoff -n 60 -r 1 --producers 8 --consumers 8",
        &["p99, us"],
    );
    assert_tells(
        "connect -n 20 -r 1",
        &["throughput, connections/s", "threads"],
    );
}

#[test]
fn tubes_tells_what_they_cost() {
    let growth = ["growth of CPU per command, times"];
    assert_tells("tubes -n 20 -r 1 --tubes 50 --watched 20", &growth);
    assert_tells(
        "tubes -n 20 -r 1 --tubes 50 --held job --watched 20",
        &growth,
    );
}

#[test]
fn stocks_tell_memory_and_growth() {
    let ready = "ready -n 2000 -d 100 -c 1 -r 1 --settle 0 --priorities 7";
    assert_tells(ready, &["drain: CPU per command, us", "RSS left over, MB"]);
    let delayed = "delayed -n 2000 -d 100 -r 1 --idle 0.1";
    assert_tells(
        delayed,
        &["memory per job beyond its body, bytes", "idle CPU, ms/s"],
    );
}

#[test]
fn mature_tells_how_late() {
    let tell = ["last late, at least, us"];
    assert_tells("mature -n 20 --delay 5 --consumers 4 -r 1", &tell);
}

#[test]
fn mature_without_consumers_tells_how_late() {
    let tell = ["last late, at least, us"];
    assert_tells("mature -n 20 --delay 5 --consumers 0 -r 1", &tell);
}

#[test]
fn at_a_rate_latency_counts_from_when_work_was_due() {
    let late = ["p99, us", "sent late: p99, us"];
    assert_tells("put -n 100 -c 4 --rate 1000 -r 1 --busy 1", &late);
    assert_tells("cycle -s 0.1 -d 2 --rate 500 -r 1", &late);
    assert_tells("handoff -n 50 --rate 500 -r 1", &["p99, us"]);
}

#[test]
fn timers_tell_how_late_each_kind_is() {
    let tell = [
        "delay: late, us",
        "time to run: late, us",
        "pause: latest, us",
    ];
    assert_tells("timers -n 1 -r 1", &tell);
}

#[test]
fn what_is_due_together_is_told_like_the_rest_that_matures() {
    assert_tells(
        "mature --together -n 50 --delay 2 --consumers 8 -r 1",
        &["late: p50, us"],
    );
    assert_tells("crowd --together -n 20 -c 3 -r 1", &["late: longest, us"]);
}

#[test]
fn idle_tells_what_waiting_costs() {
    let tell = ["RSS per connection, kB", "each has its job after, ms"];
    assert_tells("idle -c 50 --idle 0.1 -r 1", &tell);
}

#[test]
fn two_servers_are_compared_and_the_result_is_json_too() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("json");
    let server = beanpoled();
    let output = Command::new(BENCH)
        .args(["put", "-n", "20", "-r", "2"])
        .args(["--theirs", &format!("'{server}' -l 127.0.0.1 -p {{port}}")])
        .arg("--json")
        .arg(&file)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let json = std::fs::read_to_string(&file).unwrap();
    assert!(json.starts_with(r#"{"scenario":"put","load":"put: 1 connection, depth 1, 20 jobs"#));
    let throughput = json.split(r#""name":"throughput""#).nth(1).unwrap();
    let throughput = throughput.split(r#""name""#).next().unwrap();
    for part in [
        r#""ours":{"spread""#,
        r#""theirs":{"spread""#,
        r#""ratio":{"median""#,
    ] {
        assert!(throughput.contains(part), "{throughput}");
    }
}

#[test]
fn a_server_that_does_not_start_ends_the_run() {
    let output = Command::new(BENCH)
        .args(["put", "--ours", "echo no, not on {port} >&2; exit 3"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(4));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("ended at once (exit status: "), "{said}");
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let output = bench("dance");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        said,
        "bench: no scenario is called dance\nTry 'bench --help'.\n"
    );
}
