//! Looking at a server: stats, tubes, metrics, check, tail.

use super::story::{on_each_server, tell};
use super::support::{BEANPOLE, Running, Server, servers, wait_for};
use crate::port::Port;
use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Stdio};

#[test]
fn stats_and_tubes_are_for_people_and_for_scripts() {
    on_each_server(
        r#"
        $ put -q -t mail -p 1 x
        $ put -q -t mail -p 2000 -d 1000 y
        $ stats mail
        name                   mail
        current-jobs-urgent    1
        current-jobs-ready     1
        current-jobs-reserved  0
        current-jobs-delayed   1
        current-jobs-buried    0
        total-jobs             2
        current-using          0
        current-watching       0
        current-waiting        0
        cmd-delete             0
        cmd-pause-tube         0
        pause                  0
        pause-time-left        0
        $ stats mail --json
        {"name":"mail","current-jobs-urgent":1,"current-jobs-ready":1,"current-jobs-reserved":0,"current-jobs-delayed":1,"current-jobs-buried":0,"total-jobs":2,"current-using":0,"current-watching":0,"current-waiting":0,"cmd-delete":0,"cmd-pause-tube":0,"pause":0,"pause-time-left":0}
        $ stats job 1 --yaml
        ---
        id: 1
        tube: "mail"
        state: "ready"
        pri: 1
        age: N
        delay: 0
        ttr: 60
        time-left: N
        file: 0
        reserves: 0
        timeouts: 0
        releases: 0
        buries: 0
        kicks: 0
        $ stats job 3
        ! beanpole stats: there is no job 3
        [1]
        $ stats nobody
        ! beanpole stats: there is no tube 'nobody'
        [1]
        $ stats 'no tube'
        ! beanpole stats: 'no tube' cannot be the name of a tube: 1 to 200 letters, digits and -+/;.$_(), no hyphen first
        ! Try 'beanpole help stats'.
        [2]
        $ tubes --names
        default
        mail
        $ pause mail 0
        $ -a PORT tubes
        TUBE        READY  RESERVED   DELAYED    BURIED     TOTAL     USING  WATCHING   WAITING     PAUSE
        default         0         0         0         0         0         1         1         0         0
        mail            1         0         1         0         2         0         0         0         0
        "#,
    );
}

#[test]
fn a_long_name_moves_only_its_own_figures() {
    let long = "x".repeat(200);
    on_each_server(&format!(
        r#"
        $ pause default 0
        $ put -q -t {long} x
        $ put -q -t mail x
        $ tubes
        TUBE        READY  RESERVED   DELAYED    BURIED     TOTAL     USING  WATCHING   WAITING     PAUSE
        default         0         0         0         0         0         1         1         0         0
        mail            1         0         0         0         1         0         0         0         0
        {long}         1         0         0         0         1         0         0         0         0
        "#
    ));
}

#[test]
fn statistics_are_watched_with_their_rates() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q -t mail x");
        let mut watch = server.beanpole();
        watch.args(["stats", "mail", "--watch", "10ms"]);
        let mut watch = Running::reading_output(&mut watch);
        watch.wait_for_line("total-jobs             1");
        tell(&server, "$ put -q -t mail x");
        // How fast that was depends on the machine, so the rate of what has
        // grown is looked for by its sign.
        let line = watch.wait_for_line_with("+");
        assert!(line.contains("/s"), "{line}");
        let mut watch = server.beanpole();
        watch.args(["stats", "mail", "--watch", "10ms", "--json"]);
        let mut watch = Running::reading_output(&mut watch);
        watch.wait_for_line_with("\"total-jobs\":2");
        tell(&server, "$ put -q -t mail x");
        // A look may fall between the put and the 'use' before it.
        let line = watch.wait_for_line_with("\"per-second\":{\"current-jobs-ready\":");
        let rates = line.split("\"per-second\":").nth(1).unwrap();
        assert!(rates.contains("\"total-jobs\":"), "{line}");
    }
}

#[test]
fn a_dead_server_does_not_hide_what_the_others_say() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        let dead = Port::reserve(0).unwrap();
        tell(
            &server,
            &format!(
                r#"
        $ put -q -t mail x
        $ -a {0} -a PORT stats mail
        127.0.0.1:PORT
        name                   mail
        current-jobs-urgent    0
        current-jobs-ready     1
        current-jobs-reserved  0
        current-jobs-delayed   0
        current-jobs-buried    0
        total-jobs             1
        current-using          0
        current-watching       0
        current-waiting        0
        cmd-delete             0
        cmd-pause-tube         0
        pause                  0
        pause-time-left        0
        ! beanpole stats: cannot connect to 127.0.0.1:{0}: Connection refused (os error 111)
        [3]
        "#,
                dead.number
            ),
        );
    }
}

#[test]
fn ping_tells_how_fast_a_server_answers() {
    for program in servers() {
        let mut server = Server::start(&program, &[]);
        let mut ping = server.beanpole();
        let output = ping
            .args(["ping", "-n", "3", "-i", "10ms"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0));
        let said = String::from_utf8(output.stdout).unwrap();
        let words = said.replace(|c: char| c.is_ascii_digit() || c == '.', "");
        assert_eq!(
            words,
            ":: connected in  ms\n:  ms\n:  ms\n:  ms\n \
             answers: % within , % within , % within , longest  ms\n"
        );
        // Interrupted, it says what it has found; and so it does if the server ends.
        for ends in [
            |_: &mut Server, ping: &Running| ping.signal("INT"),
            |server: &mut Server, _: &Running| server.kill(),
        ] {
            let mut ping = server.beanpole();
            ping.args(["ping", "--quiet", "-i", "10ms"])
                .stderr(Stdio::null());
            let mut ping = Running::reading_output(&mut ping);
            ping.wait_for_line_with("connected in");
            ends(&mut server, &ping);
            let (_, said) = ping.wait();
            assert!(said.contains(" answers: 50% within "), "{said}");
        }
    }
}

#[test]
fn the_servers_statistics_are_complete_under_headings() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        let output = server
            .beanpole()
            .args(["stats", "--json"])
            .output()
            .unwrap();
        let json = String::from_utf8(output.stdout).unwrap();
        let output = server.beanpole().arg("stats").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let keys = json.matches("\":").count();
        let values = text.lines().filter(|line| line.starts_with("  ")).count();
        assert_eq!(keys, values, "{json}\n{text}");
        let headings: Vec<_> = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with(' '))
            .collect();
        assert_eq!(
            headings[..6],
            [
                "Jobs",
                "Tubes",
                "Connections",
                "Commands",
                "Binlog",
                "Server"
            ]
        );
        // One line each for two servers.
        let address = server.address();
        let both = ["-a", &address, "-a", &address, "stats", "--json"];
        let output = Command::new(BEANPOLE).args(both).output().unwrap();
        let json = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            json.matches(&format!("\"{address}\":{{\"current-jobs-urgent\":0"))
                .count(),
            2
        );
    }
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let reserved = Port::reserve(0).unwrap();
    let port = reserved.number;
    for command in ["stats", "tubes", "put", "reserve", "metrics", "dump"] {
        let output = Command::new(BEANPOLE)
            .args(["-a", &port.to_string(), command])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let expected = format!(
            "beanpole {command}: cannot connect to 127.0.0.1:{port}: Connection refused (os error 111)\n"
        );
        assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);
        assert_eq!(output.status.code(), Some(3));
    }
}

/// The rules of the text format and of its conventions, as `promtool check
/// metrics` knows them.
fn check_metrics(text: &str) -> HashMap<String, String> {
    let mut types: HashMap<&str, &str> = HashMap::new();
    let mut helped = HashSet::new();
    let mut current = "";
    let mut series = HashMap::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            current = help.split(' ').next().unwrap();
            assert!(helped.insert(current), "{current} has two helps");
            assert!(help.len() > current.len() + 1, "{current} has no help");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(name, current, "a type follows its help");
            assert!(types.insert(name, kind).is_none(), "{name} has two types");
            assert_eq!(
                name.ends_with("_total"),
                kind == "counter",
                "{name} is a {kind}"
            );
            assert!(
                name.bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            );
            for unit in [
                "_ms",
                "_milliseconds",
                "_minutes",
                "_kilobytes",
                "_count",
                "_sum",
                "_bucket",
            ] {
                assert!(!name.contains(unit), "{name}");
            }
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert_eq!(
                name.split('{').next().unwrap(),
                current,
                "samples stand together"
            );
            assert!(types.contains_key(current));
            assert!(
                series.insert(name.to_owned(), value.to_owned()).is_none(),
                "{name} twice"
            );
        }
    }
    series
}

#[test]
fn metrics_follow_the_conventions_of_prometheus() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(
            &server,
            "$ put -q -t mail x y\n$ put -q -t later -d 1000 z\n$ bury 1",
        );
        let output = server
            .beanpole()
            .args(["metrics", "--age"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let series = check_metrics(&text);
        for (name, value) in [
            ("beanstalk_jobs{state=\"ready\"}", "1"),
            ("beanstalk_jobs{state=\"buried\"}", "1"),
            ("beanstalk_jobs_created_total", "3"),
            ("beanstalk_commands_total{command=\"put\"}", "3"),
            ("beanstalk_draining", "0"),
            ("beanstalk_max_job_size_bytes", "65535"),
            ("beanstalk_tube_jobs{tube=\"later\",state=\"delayed\"}", "1"),
            ("beanstalk_tube_jobs_created_total{tube=\"mail\"}", "2"),
        ] {
            assert_eq!(
                series.get(name).map(String::as_str),
                Some(value),
                "{name}\n{text}"
            );
        }
        assert!(
            series.contains_key("beanstalk_tube_next_ready_age_seconds{tube=\"mail\"}"),
            "{text}"
        );
        assert!(text.contains("beanstalk_info{version=\""), "{text}");
    }
}

#[test]
fn metrics_go_into_a_file_at_once_and_say_whether_the_server_is_up() {
    let dead = Port::reserve(0).unwrap();
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q -t mail x\n$ put -q -t post y");
        let file = server.directory.write("old", b"what was there before");
        let metrics = |arguments: &[&str]| {
            let mut command = server.beanpole();
            let output = command.arg("metrics").args(arguments).output().unwrap();
            (
                output.status.code(),
                String::from_utf8(output.stdout).unwrap(),
            )
        };
        let name = file.to_str().unwrap();
        assert_eq!(metrics(&["-o", name]), (Some(0), String::new()));
        let series = check_metrics(&std::fs::read_to_string(&file).unwrap());
        assert_eq!(series["beanstalk_up"], "1");
        assert_eq!(
            series["beanstalk_tube_jobs_created_total{tube=\"mail\"}"],
            "1"
        );
        // Nothing is left beside it.
        assert_eq!(server.directory.path().read_dir().unwrap().count(), 1);
        let (_, text) = metrics(&["-t", "post", "-t", "nobody"]);
        let tubes: HashSet<_> = text
            .split("tube=\"")
            .skip(1)
            .map(|rest| &rest[..4])
            .collect();
        assert_eq!(tubes, HashSet::from(["post"]));
        let address = dead.number.to_string();
        let (status, _) = metrics(&["-a", &address, "-o", name]);
        assert_eq!(status, Some(3));
        let expected = "# HELP beanstalk_up Whether the server answers.\n\
                        # TYPE beanstalk_up gauge\nbeanstalk_up 0\n";
        assert_eq!(std::fs::read_to_string(&file).unwrap(), expected);
        assert_eq!(metrics(&["-a", &address]), (Some(3), expected.into()));
        let nowhere = server.directory.path().join("nowhere/file");
        assert_eq!(metrics(&["-o", nowhere.to_str().unwrap()]).0, Some(4));
    }
}

/// What a web server says to this request, without the text of a good answer.
fn scrape(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut answer = String::new();
    // Who says too much may be cut off anywhere.
    let _ = (|| {
        stream.write_all(request.as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        stream.read_to_string(&mut answer)
    })();
    answer.split("# HELP").next().unwrap().into()
}

#[test]
fn metrics_are_served_to_who_asks_for_them() {
    for program in servers() {
        let mut server = Server::start(&program, &[]);
        let mut command = server.beanpole();
        command.args(["metrics", "--listen", "127.0.0.1:0"]);
        let mut served = Running::start(&mut command);
        let line = served.wait_for_line_with("serving http://127.0.0.1:");
        let port = line.trim_end().trim_end_matches("/metrics");
        let port: u16 = port.rsplit(':').next().unwrap().parse().unwrap();
        let good = scrape(port, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(good.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"));
        assert!(good.contains("\r\nConnection: close\r\n\r\n"), "{good}");
        for (request, status) in [
            ("GET /metrics HTTP/1.0\r\n\r\n", "200 OK"),
            ("GET /else HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            ("hello\r\n\r\n", "400 Bad Request"),
        ] {
            // With a body or without.
            let body = "x".repeat(20_000);
            assert_eq!(
                scrape(port, &format!("{request}{body}")),
                scrape(port, request)
            );
            let answer = scrape(port, request);
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}\r\n")),
                "{answer}"
            );
        }
        // Nor do those harm who say nothing, too much or half of it.
        let _silent: Vec<_> = (0..3)
            .map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap())
            .collect();
        assert_eq!(scrape(port, &"x".repeat(20_000)), "");
        assert_eq!(scrape(port, "GET /metr"), "");
        assert_eq!(
            scrape(port, "GET /metrics HTTP/1.1\r\n\r\n").len(),
            good.len()
        );
        server.kill();
        let down = scrape(port, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(down.contains("\r\nContent-Length: 89\r\n"), "{down}");
        served.wait_for_line_with("beanpole metrics: cannot connect to ");
    }
}

#[test]
fn check_says_in_one_line_whether_a_server_is_well() {
    on_each_server(
        r#"
        $ put -q -t mail a b c
        $ bury 1
        $ check
        BEANSTALK OK: ready 2, reserved 0, delayed 0, buried 1, workers 0 | 'ready'=2;;;0 'reserved'=0;;;0 'delayed'=0;;;0 'buried'=1;;;0 'workers'=0;;;0
        $ check --ready-max 1,2 --buried-max 1
        BEANSTALK WARNING: ready 2 (limit 1, 2) | 'ready'=2;1;2;0 'reserved'=0;;;0 'delayed'=0;;;0 'buried'=1;;1;0 'workers'=0;;;0
        [1]
        $ check --ready-max 1,2 --buried-max 0 --workers-min 1
        BEANSTALK CRITICAL: ready 2 (limit 1, 2), buried 1 (limit 0), workers 0 (limit 1) | 'ready'=2;1;2;0 'reserved'=0;;;0 'delayed'=0;;;0 'buried'=1;;0;0 'workers'=0;;1:;0
        [2]
        $ check -t default -t nobody -t default --ready-max 0 --workers-min 1
        BEANSTALK CRITICAL: workers 0 (limit 1) | 'ready'=0;;0;0 'reserved'=0;;;0 'delayed'=0;;;0 'buried'=0;;;0 'workers'=0;;1:;0
        [2]
        $ check --ready-max 5,3
        ! beanpole check: --ready-max: a warning at 5 would never come: at 3 it is critical
        ! Try 'beanpole help check'.
        [3]
        $ check --workers-min 1,2
        ! beanpole check: --workers-min: a warning at 1 would never come: at 2 it is critical
        ! Try 'beanpole help check'.
        [3]
        $ check --age-max 1h,2m
        ! beanpole check: --age-max: a warning at 3600 would never come: at 120 it is critical
        ! Try 'beanpole help check'.
        [3]
        $ check -t mail --ready-max many
        ! beanpole check: --ready-max: 'many' is not N or N,N
        ! Try 'beanpole help check'.
        [3]
        $ check -a PORT -a 127.0.0.1:1 --timeout 60
        BEANSTALK CRITICAL: 127.0.0.1:PORT ready 2, reserved 0, delayed 0, buried 1, workers 0; 127.0.0.1:1 cannot connect to 127.0.0.1:1: Connection refused (os error 111) | '127.0.0.1:PORT ready'=2;;;0 '127.0.0.1:PORT reserved'=0;;;0 '127.0.0.1:PORT delayed'=0;;;0 '127.0.0.1:PORT buried'=1;;;0 '127.0.0.1:PORT workers'=0;;;0
        [2]
        "#,
    );
}

#[test]
fn check_warns_of_a_server_that_takes_no_new_jobs() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        server.drain();
        tell(
            &server,
            r#"
        $ check
        BEANSTALK WARNING: ready 0, reserved 0, delayed 0, buried 0, workers 0, draining | 'ready'=0;;;0 'reserved'=0;;;0 'delayed'=0;;;0 'buried'=0;;;0 'workers'=0;;;0
        [1]
        "#,
        );
    }
}

#[test]
fn check_knows_how_long_the_next_job_has_waited() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q -t mail a");
        wait_for("the job to be a second old", || {
            let output = server
                .beanpole()
                .args(["check", "--age-max", "0"])
                .output()
                .unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            match text.strip_prefix("BEANSTALK CRITICAL: age ") {
                Some(age) => {
                    assert!(age.contains("s (limit 0) | "), "{text}");
                    assert_eq!(output.status.code(), Some(2));
                    true
                }
                None => false,
            }
        });
        let output = server
            .beanpole()
            .args(["check", "--age-max", "3600", "-t", "mail"])
            .output();
        assert_eq!(output.unwrap().status.code(), Some(0));
    }
}

#[test]
fn tail_shows_jobs_as_they_are_put_and_leaves_them_alone() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q earlier");
        let mut tail = server.beanpole();
        tail.args(["tail", "mail", "log", "-n", "5", "-i", "0.01"]);
        let tail = Running::reading_output(&mut tail);
        // It is ready when it has learned the latest id: of the second job.
        wait_for("tail to begin", || {
            let output = server
                .beanpole()
                .args(["stats", "--json"])
                .output()
                .unwrap();
            String::from_utf8_lossy(&output.stdout).contains("\"cmd-delete\":1")
        });
        tell(
            &server,
            "$ put -q -t mail -p 1 one 'two\\n'\n$ put -q -t other three\n$ put -q -t log -d 1000 -r 5 < '\\xff'",
        );
        tell(
            &server,
            "$ put -q -t mail four\n$ bury 6\n$ put -q -t mail five",
        );
        let (status, said) = tail.wait();
        assert_eq!(status, 0);
        let lines: Vec<_> = said
            .lines()
            .map(|line| {
                line.replace(" buried ", " ready ")
                    .replace(" reserved ", " ready ")
            })
            .collect();
        let expected = [
            "3 mail ready pri=1 delay=0 ttr=60 bytes=3 one",
            "4 mail ready pri=1 delay=0 ttr=60 bytes=4 two\\n",
            "6 log delayed pri=1024 delay=1000 ttr=5 bytes=1 \\xff",
            "7 mail ready pri=1024 delay=0 ttr=60 bytes=4 four",
            "8 mail ready pri=1024 delay=0 ttr=60 bytes=4 five",
        ];
        let lines: Vec<_> = lines
            .iter()
            .map(|line| line.replace("6 log ready", "6 log delayed"))
            .collect();
        assert_eq!(lines, expected);
        tell(
            &server,
            "$ reserve -t mail --all -l\none\ntwo\n\nfour\nfive",
        );
    }
}

#[test]
fn output_that_nobody_reads_ends_the_program_without_a_word() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q x");
        let (reader, writer) = nix::unistd::pipe().unwrap();
        drop(reader);
        let mut command = server.beanpole();
        let output = command
            .args(["reserve", "--delete"])
            .stdout(writer)
            .stderr(Stdio::piped());
        let output = output.spawn().unwrap().wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), output.stderr.as_slice()),
            (Some(141), &b""[..])
        );
        // And a job that nobody read is not deleted.
        tell(&server, "$ reserve -w 0 -l\nx");
    }
}
