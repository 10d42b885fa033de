//! The recipes of the companion's manual page, played on servers in such trouble.
//! Numbers and the width of gaps need not be those of the page.

use super::companion::{PAGE, lines_of, play};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{Folder, Server, as_root, eventually};

const RECIPES: [&str; 9] = [
    "A poison job",
    "A runaway producer",
    "A full disk",
    "A server that does not start",
    "Workers that hang",
    "Moving to another machine",
    "Connections that run out",
    "One customer with very many jobs",
    "Once a day, at a time",
];

/// The displays of a recipe, one after the other.
fn displays(title: &str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = lines_of(title);
    let parts: Vec<_> = lines
        .split(|line| *line == ".Ed")
        .map(<[_]>::to_vec)
        .collect();
    parts.into_iter().filter_map(|mut part| {
        let begin = part.iter().position(|line| line.starts_with(".Bd "))?;
        Some(part.split_off(begin + 1))
    })
}

/// Plays a display in a shell, and compares.
fn follow(display: &[&str], server: &Server, folder: &Path, new: &str) {
    let (mut expected, mut played) = (String::new(), String::new());
    for line in display {
        expected += &format!("{line}\n");
        if let Some(command) = line.strip_prefix("$ ") {
            played += &format!("{line}\n");
            played += &play(server, folder, &command.replace("new:11300", new));
        }
    }
    assert_eq!(masked(&played), masked(&expected), "played:\n{played}");
}

/// The text with 0 for each number and a space for each gap.
fn masked(text: &str) -> String {
    let mut masked = String::new();
    for character in text.chars() {
        let next = if character.is_ascii_digit() {
            '0'
        } else {
            character
        };
        if !(next == '0' && masked.ends_with('0') || next == ' ' && masked.ends_with([' ', '\n'])) {
            masked.push(next);
        }
    }
    masked
}

/// A server and a folder for the commands.
fn scene(options: &[&str]) -> (Server, Folder) {
    let program = support::program("beanpoled");
    (
        Server::launch(&program, options.iter().copied()),
        Folder::new(),
    )
}

#[test]
fn each_recipe_is_played_and_short() {
    let titles = PAGE.sections().map(|section| section.title);
    let recipes = titles.skip_while(|title| *title != "RECIPES").skip(1);
    let recipes: Vec<_> = recipes
        .take_while(|title| *title != "ENVIRONMENT")
        .collect();
    assert_eq!(recipes, RECIPES);
    for title in recipes {
        let lines = lines_of(title).len();
        assert!(lines < 45, "{title}: {lines} lines");
    }
}

#[test]
fn a_poison_job_is_taken_from_its_workers() {
    let (server, folder) = scene(&[]);
    let mut client = server.connect();
    client.ask("use mail");
    client.put("poison");
    for tries in 1..=4 {
        let mut worker = server.connect();
        worker.ask("watch mail");
        worker.reserve();
        drop(worker);
        let is_back = format!("reserves: {tries}\n");
        eventually("the job to be ready again", || {
            let facts = client.document("stats-job 1");
            facts.contains("state: ready") && facts.contains(&is_back)
        });
    }
    displays(RECIPES[0]).for_each(|display| follow(&display, &server, folder.path(), ""));
}

#[test]
fn a_runaway_producer_is_found_and_its_jobs_are_cleared() {
    let (server, folder) = scene(&[]);
    let mut client = server.connect();
    client.ask("use mail");
    client.put("a good job");
    client.ask("watch mail");
    let is_over = AtomicBool::new(false);
    let mut displays = displays(RECIPES[1]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut runaway = server.connect();
            runaway.ask("use mail");
            while !is_over.load(Ordering::SeqCst) {
                for _ in 0..50 {
                    runaway.put("runaway");
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let followed = catch_unwind(AssertUnwindSafe(|| {
            eventually("many jobs", || client.count("current-jobs-ready") > 1000);
            follow(&displays.next().unwrap(), &server, folder.path(), "");
        }));
        // If it fails, the producer has to end as well.
        is_over.store(true, Ordering::SeqCst);
        followed.unwrap_or_else(|panic| resume_unwind(panic));
    });
    displays.for_each(|display| follow(&display, &server, folder.path(), ""));
}

#[test]
fn a_full_disk_is_cleared_by_putting_jobs_aside() {
    if !as_root() {
        return;
    }
    let disk = Folder::new();
    let path = disk.text();
    let run = |program: &str, arguments: &[&str]| {
        let status = Command::new(program).args(arguments).status();
        assert!(status.unwrap().success(), "{program}");
    };
    run("mount", &["-t", "tmpfs", "-o", "size=2m", "tmpfs", path]);
    let result = std::panic::catch_unwind(|| {
        let (server, folder) = scene(&["-b", path, "-s", "65536"]);
        let mut client = server.connect();
        client.ask("use mail");
        let put = format!("put 0 0 60 9999\r\n{:09999}", 0);
        eventually("a put to be refused", || {
            client.ask(&put) == "OUT_OF_MEMORY"
        });
        displays(RECIPES[2]).for_each(|display| follow(&display, &server, folder.path(), ""));
    });
    run("umount", &["-l", path]);
    result.expect("as it should be");
}

#[test]
fn a_server_that_does_not_start_is_repaired() {
    let folder = Folder::new();
    let jobs = folder.join("jobs");
    std::fs::create_dir(&jobs).unwrap();
    let options = ["-b", jobs.to_str().unwrap(), "-s", "4096"];
    let (server, _) = scene(&options);
    let mut client = server.connect();
    for number in 0..60 {
        client.put(format!("{number:0200}"));
    }
    drop(client);
    server.end();
    // A byte within the first file is another one.
    let first = jobs.join("segment.1");
    let mut bytes = std::fs::read(&first).unwrap();
    bytes[1000] ^= 1;
    std::fs::write(&first, bytes).unwrap();
    let broken = Server::start(options);
    let line = broken.log_line("is damaged at offset ");
    let repair = format!("`beanpole binlog repair {} NEW`", jobs.display());
    assert!(line.contains(&repair), "{line}");
    drop(broken);
    // Any server, for the commands.
    let (other, _) = scene(&[]);
    displays(RECIPES[3]).for_each(|display| follow(&display, &other, folder.path(), ""));
    let (server, _) = scene(&options);
    let ready = server.connect().count("current-jobs-ready");
    assert!((50..60).contains(&ready), "{ready}");
}

#[test]
fn workers_that_hang_are_named() {
    let (server, folder) = scene(&[]);
    let mut client = server.connect();
    client.ask("use mail");
    for _ in 0..2 {
        client.ask("put 0 0 3500 1\r\nx");
    }
    let mut worker = server.connect();
    worker.ask("watch mail");
    worker.reserve();
    let mut displays = displays(RECIPES[4]);
    follow(&displays.next().unwrap(), &server, folder.path(), "");
    drop(worker);
    eventually("its job to be ready", || {
        client.count("current-jobs-ready") == 2
    });
    displays.for_each(|display| follow(&display, &server, folder.path(), ""));
}

#[test]
fn the_jobs_of_a_draining_server_move_to_another_machine() {
    let (server, folder) = scene(&[]);
    let mut client = server.connect();
    client.put("one");
    client.ask("use mail");
    client.put("two");
    client.put("three");
    server.signal(nix::sys::signal::Signal::SIGUSR1);
    eventually("it to drain", || client.stat("draining") == "true");
    let (new, _) = scene(&[]);
    let address = format!("127.0.0.1:{}", new.port());
    displays(RECIPES[5]).for_each(|display| follow(&display, &server, folder.path(), &address));
}

#[test]
fn a_client_that_is_refused_says_why_that_may_be() {
    let (server, folder) = scene(&["--max-connections", "1"]);
    let _holder = server.connect();
    displays(RECIPES[6]).for_each(|display| follow(&display, &server, folder.path(), ""));
    server.log_line("most connections have: 127.0.0.1 1");
}

#[test]
fn a_customer_with_very_many_jobs_leaves_workers_to_the_others() {
    let (server, folder) = scene(&[]);
    displays(RECIPES[7]).for_each(|display| follow(&display, &server, folder.path(), ""));
    let facts = server.connect().document("stats-tube mail");
    assert!(facts.contains("current-jobs-ready: 4\n"), "{facts}");
}

#[test]
fn two_machines_put_the_job_of_a_day_once() {
    let (server, folder) = scene(&[]);
    let displays: Vec<_> = displays(RECIPES[8]).collect();
    // The test could run at midnight.
    let day = |line: &&str| line.replace("$(date +%F)", "2026-11-29").leak() as &'static str;
    let played: Vec<_> = displays[0].iter().map(day).collect();
    follow(&played, &server, folder.path(), "");
    let mut client = server.connect();
    assert_eq!(client.count("total-jobs"), 1);
    // The other machine is late: the first one's job is done already.
    client.ask("delete 1");
    let late = ["$ beanpole put -q -t reports --unique daily-2026-11-29:1h 'the report'"];
    follow(&late, &server, folder.path(), "");
    assert_eq!(client.count("total-jobs"), 1);
}
