//! What a server has to say to Prometheus: metrics.

use super::story::tell;
use super::support::{Running, Server, servers};
use ::support::Port;
use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;

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
        let (_, text) = server.run(&["metrics", "--age"]);
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
fn metrics_replace_a_file_at_once_and_tell_whether_the_server_is_up() {
    let dead = Port::reserve(0).unwrap();
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q -t mail x\n$ put -q -t post y");
        let file = server.directory.write("old", b"what was there before");
        let metrics = |arguments: &[&str]| server.run(&[&["metrics"], arguments].concat());
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

/// What only newer servers tell stands in the source.
#[test]
fn the_alert_rules_and_the_dashboard_name_metrics_that_exist() {
    let server = Server::start(&servers()[0], &[]);
    tell(&server, "$ put -q -t mail x");
    let (_, written) = server.run(&["metrics", "--age"]);
    let source = include_str!("../../src/companion/commands/metrics.rs");
    let rules = include_str!("../../src/packaging/prometheus-rules.yml");
    let dashboard = include_str!("../../src/packaging/grafana-dashboard.json");
    for text in [rules, dashboard] {
        let named: HashSet<&str> = text
            .split("beanstalk_")
            .skip(1)
            .map(|name| {
                name.split(|c: char| !c.is_ascii_lowercase() && c != '_')
                    .next()
                    .unwrap()
            })
            .collect();
        assert!(named.len() > 9, "{named:?}");
        for name in named {
            let is_known = written.contains(&format!("\nbeanstalk_{name}"))
                || source.contains(&format!("\"{name}\""));
            assert!(is_known, "{name}");
        }
    }
    let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    for target in panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap())
    {
        let expression = target["expr"].as_str().unwrap();
        let opened = expression.matches(['(', '{', '[']).count();
        assert_eq!(
            opened,
            expression.matches([')', '}', ']']).count(),
            "{expression}"
        );
    }
    if Command::new("promtool").arg("--version").output().is_ok() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../packaging/prometheus-rules.yml"
        );
        let checked = Command::new("promtool")
            .args(["check", "rules", file])
            .output();
        assert!(checked.unwrap().status.success());
    }
}

#[test]
fn each_of_several_servers_has_a_label_and_the_number_of_tubes_is_bounded() {
    for program in servers() {
        let (server, other) = (Server::start(&program, &[]), Server::start(&program, &[]));
        tell(&server, "$ put -q -t mail x\n$ pause default 0");
        let dead = Port::reserve(0).unwrap().number.to_string();
        let [one, two] = [server.address(), other.address()];
        let mut command = server.beanpole();
        let arguments = [
            "metrics", "-a", &one, "-a", &two, "-a", &dead, "--tubes", "1",
        ];
        let output = command.args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(3));
        let series = check_metrics(&String::from_utf8(output.stdout).unwrap());
        assert_eq!(series[&format!("beanstalk_up{{server=\"{one}\"}}")], "1");
        assert_eq!(
            series[&format!("beanstalk_up{{server=\"127.0.0.1:{dead}\"}}")],
            "0"
        );
        let of = |server: &str, tube: &str| {
            format!("beanstalk_tube_jobs{{tube=\"{tube}\",state=\"ready\",server=\"{server}\"}}")
        };
        assert_eq!(series[&of(&one, "mail")], "1");
        assert_eq!(series[&of(&two, "default")], "0");
        assert!(!series.contains_key(&of(&one, "default")));
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
fn metrics_are_served_by_http() {
    for program in servers() {
        let mut server = Server::start(&program, &[]);
        let mut command = server.beanpole();
        command.args([
            "metrics",
            "--listen",
            "127.0.0.1:0",
            "--host",
            "queue.example",
        ]);
        let mut served = Running::start(&mut command);
        let line = served.wait_for_line_with("serving http://127.0.0.1:");
        let port = line.trim_end().trim_end_matches("/metrics");
        let port: u16 = port.rsplit(':').next().unwrap().parse().unwrap();
        let good = scrape(port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(good.starts_with("HTTP/1.1 200 \r\nContent-Type: text/plain; version=0.0.4"));
        assert!(good.contains("\r\nConnection: close\r\n\r\n"), "{good}");
        for (request, status) in [
            ("GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n", "200"),
            ("GET /else HTTP/1.1\r\nHost: 127.0.0.1:9\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
            // A page of another site may have given its name our address.
            ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"),
            ("GET /metrics HTTP/1.1\r\n\r\n", "403"),
            (
                "GET /metrics HTTP/1.1\r\nHost: queue.example:9\r\n\r\n",
                "200",
            ),
            // Its body is not waited for.
            (
                "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n",
                "405",
            ),
            ("hello\r\n\r\n", "400"),
        ] {
            // With a body or without.
            let body = "x".repeat(20_000);
            assert_eq!(
                scrape(port, &format!("{request}{body}")),
                scrape(port, request)
            );
            let answer = scrape(port, request);
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} \r\n")),
                "{answer}"
            );
        }
        let head = scrape(port, "HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(head, good, "all but the body");
        // Nor do those harm who say nothing, too much or half of it.
        let _silent: Vec<_> = (0..100)
            .map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap())
            .collect();
        let large = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(20_000));
        assert!(scrape(port, &large).starts_with("HTTP/1.1 431 "));
        assert_eq!(scrape(port, "GET /metr"), "");
        assert_eq!(
            scrape(port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").len(),
            good.len()
        );
        server.kill();
        let down = scrape(port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(down.contains("\r\nContent-Length: 89\r\n"), "{down}");
        served.wait_for_line_with("beanpole metrics: cannot connect to ");
    }
}
