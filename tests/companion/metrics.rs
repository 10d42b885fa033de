//! What a server has to say to Prometheus: metrics.

use super::support::{ended, http, http_port, listen, on_each_server, status};
use nix::sys::socket::{Backlog, listen as listen_to};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use support::session::Scene;
use support::{eventually, text_of};

#[test]
fn the_alert_rules_and_the_dashboard_name_metrics_that_exist() {
    let scene = Scene::ours();
    scene.tell("$ beanpole put -q -t mail x");
    let written = scene.out("beanpole metrics --age");
    let rules = text_of("src/packaging/prometheus-rules.yml");
    let dashboard = text_of("src/packaging/grafana-dashboard.json");
    for text in [&rules, &dashboard] {
        let is_end = |c: char| !c.is_ascii_lowercase() && c != '_';
        let parts = text.split("beanstalk_").skip(1);
        let named: HashSet<&str> = parts.filter_map(|name| name.split(is_end).next()).collect();
        assert!(named.len() > 9, "{named:?}");
        for name in named {
            assert!(written.contains(&format!("\nbeanstalk_{name}{{")), "{name}");
        }
    }
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("a list of panels");
    for target in panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().expect("a list"))
    {
        let expression = target["expr"].as_str().expect("an expression");
        let [opened, closed] =
            [['(', '{', '['], [')', '}', ']']].map(|c| expression.matches(c).count());
        assert_eq!(opened, closed, "{expression}");
        // Only some of the tubes may be written: see --tubes.
        let adds_tubes = expression.starts_with("sum(") && expression.contains("_tube_");
        assert!(!adds_tubes, "{expression}");
    }
}

#[test]
fn the_tubes_that_are_wanted_are_the_worst_of_all_that_are_listed() {
    on_each_server(&[], |scene| {
        // A server lists a thousand at a time.
        let mut client = scene.connect();
        let names = (0..1500).map(|number| format!("watch t{number}\r\n"));
        client.send(names.collect::<String>());
        client.lines(1500);
        scene.tell(
            r#"
            $ beanpole put -q -t t7 one two; beanpole put -q -t t1400 three; beanpole put -q -t t9 four
            $ beanpole bury 3
            $ beanpole metrics --tubes 2 | grep -o 'tube="[^"]*' | sort -u
            tube="t1400
            tube="t7"#,
        );
    });
}

/// What a server says of 9,000 tubes takes 36 MB where it is kept, and half of that as
/// text.
#[test]
fn metrics_of_very_many_tubes_hold_little_more_than_their_text() {
    let scene = Scene::ours();
    let mut client = scene.connect();
    let names = (0..9000).map(|number| format!("watch t{number}\r\n"));
    client.send(names.collect::<String>());
    client.lines(9000);
    scene.tell(
        "
        $ (ulimit -d 40000; beanpole metrics --timeout 1m) | grep -c tube_watching{
        9001
        $ (ulimit -d 20000; beanpole metrics --timeout 1m --tubes 1) | grep -c tube_watching{
        1",
    );
}

#[test]
fn metrics_are_served_by_http() {
    on_each_server(&[], |mut scene| {
        let served = scene.begin("beanpole metrics --listen 127.0.0.1:0 --host queue.example");
        let port = http_port(&served);
        let get = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let good = http(port, get);
        assert!(good.starts_with("HTTP/1.1 200 \r\nContent-Type: text/plain; version=0.0.4"));
        assert!(
            good.contains("\r\nConnection: close\r\n\r\n# HELP"),
            "{good}"
        );
        for (request, expected) in [
            (
                "GET /metrics HTTP/1.0\r\nHost: queue.example:9\r\n\r\n",
                "200",
            ),
            ("GET /else HTTP/1.1\r\nHost: 127.0.0.1:9\r\n\r\n", "404"),
            // A page of another site may have given its name our address.
            ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"),
            // Its body is not waited for.
            (
                "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n",
                "405",
            ),
            ("PUT /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
            ("hello\r\n\r\n", "400"),
        ] {
            // With bytes after it or without.
            let more = format!("{request}{}", "x".repeat(20_000));
            for request in [request, &more] {
                assert_eq!(status(&http(port, request)), expected, "{request:.60}");
            }
        }
        let post = get
            .replace("GET", "POST")
            .replace("\r\n\r\n", "\r\nContent-Length: 1\r\n\r\n");
        let reason = "only GET and HEAD are known here, without a body\n";
        assert!(http(port, &post).ends_with(reason));
        let head = http(port, &get.replace("GET", "HEAD"));
        assert_eq!(
            head,
            good.split("# HELP").next().expect("a head"),
            "all but the body"
        );
        scene.kill();
        let up = format!("\nbeanstalk_up{{server=\"{}\"}} 0\n", scene.address());
        // Until the connection of the scrape before is closed, its text is shared.
        eventually("the server to be missed", || http(port, get).contains(&up));
        served.log_line("beanpole metrics: cannot connect to ");
    });
}

#[test]
fn servers_are_asked_at_the_same_time_and_once() {
    on_each_server(&[], |scene| {
        scene.tell("$ beanpole put -q -t mail x");
        for (command, told) in [
            ("metrics", "beanstalk_up{server="),
            ("check", "BEANSTALK CRITICAL: "),
            ("top -i 10ms", "3 mail "),
        ] {
            let (one, two) = (listen(), listen());
            let silent = format!("-a {} -a {} -a $PORT", one.1, two.1);
            let asking = scene.begin(&format!("beanpole --timeout 1h {command} {silent} >&2"));
            let listeners = [one.0, two.0];
            // The second one is asked although the first one is silent.
            let clients = listeners
                .each_ref()
                .map(|listener| listener.accept().expect("a client"));
            drop(clients);
            let (_, said) = ended(asking);
            assert!(said.lines().any(|line| line.starts_with(told)), "{said}");
            assert!(
                said.contains(&format!("127.0.0.1:{}", scene.port)),
                "{said}"
            );
            for listener in listeners {
                listener.set_nonblocking(true).expect("a listener");
                assert!(listener.accept().is_err(), "no other question");
            }
        }
    });
}

#[test]
fn a_server_that_hangs_is_given_up_before_the_scraper_gives_up() {
    on_each_server(&[], |scene| {
        let (silent, port) = listen();
        let served = scene.begin(&format!(
            "beanpole metrics -a {port} -a $PORT --listen 127.0.0.1:0"
        ));
        let metrics = http_port(&served);
        let (dead, alive) = (
            format!("beanstalk_up{{server=\"127.0.0.1:{port}\"}} 0\n"),
            format!("beanstalk_up{{server=\"{}\"}} 1\n", scene.address()),
        );
        let get = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Prometheus-Scrape-Timeout-Seconds: 3\r\n\r\n";
        let text = http(metrics, get);
        assert!(text.contains(&dead) && text.contains(&alive), "{text}");
        let waited = served.log_line("no reply within ");
        // Half a second less than the scraper's, and less what has passed on a busy machine.
        let (_, limit) = waited.split_once("within ").expect("a limit");
        let seconds = limit.split(' ').next().and_then(|text| text.parse().ok());
        assert!(
            seconds.is_some_and(|seconds: f64| seconds <= 2.5),
            "{waited}"
        );
        drop(silent);
    });
}

#[test]
fn a_scraper_that_names_no_time_is_waited_for_as_usual() {
    on_each_server(&[], |scene| {
        let served = scene.begin("beanpole metrics --listen 127.0.0.1:0");
        let get = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Prometheus-Scrape-Timeout-Seconds: 0\r\n\r\n";
        let up = format!("\nbeanstalk_up{{server=\"{}\"}} 1\n", scene.address());
        assert!(http(http_port(&served), get).contains(&up));
    });
}

#[test]
fn a_unix_socket_whose_queue_is_full_is_given_up_in_time() {
    let scene = Scene::ours();
    let path = scene.folder.join("full");
    let listener = UnixListener::bind(&path).expect("a new socket");
    // Now its queue has room for one.
    listen_to(&listener, Backlog::new(0).expect("a number")).expect("listening");
    let queued = UnixStream::connect(&path).expect("a connection");
    scene.tell(
        "
        $ beanpole check -a unix:full --timeout 50ms
        BEANSTALK CRITICAL: cannot connect to unix:full: it takes none: it hangs, and its queue is full
        [2]
        $ beanpole stats -a unix:full --timeout 50ms
        ! beanpole stats: cannot connect to unix:full: it takes none: it hangs, and its queue is full
        [3]
        $ beanpole metrics -a unix:full -a $PORT --timeout 3 2> said | grep _up{; cat said
        beanstalk_up{server=\"unix:full\"} 0
        beanstalk_up{server=\"127.0.0.1:PORT\"} 1
        beanpole metrics: cannot connect to unix:full: it takes none: it hangs, and its queue is full",
    );
    drop(queued);
}

#[test]
fn scrapes_at_the_same_time_share_one_text() {
    on_each_server(&[], |scene| {
        // More than the buffers of a connection take.
        let mut client = scene.connect();
        let names = (0..1000).map(|number| format!("{}{number}", "x".repeat(190)));
        client.send(
            names
                .map(|name| format!("watch {name}\r\n"))
                .collect::<String>(),
        );
        client.lines(1000);
        let served = scene.begin("beanpole metrics --listen 127.0.0.1:0");
        let port = http_port(&served);
        let get = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let mut slow = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        slow.write_all(get).expect("a request");
        slow.read_exact(&mut [0]).expect("the beginning");
        let get = std::str::from_utf8(get).expect("a text");
        eventually("a scrape without a question", || {
            let asked = client.count("total-connections");
            let text = http(port, get);
            text.matches("beanstalk_tube_jobs_total{").count() == 1001
                && client.count("total-connections") == asked
        });
    });
}
