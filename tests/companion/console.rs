//! The console as browsers and attackers meet it: what it answers over HTTP.
//! What its page shows is tried in a browser, by tests/peers/console.

use super::story::tell;
use super::support::{Running, Server, servers};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A console that serves a page.
struct Console {
    running: Running,
    port: u16,
}

impl Console {
    fn start(server: &Server, options: &[&str]) -> Console {
        let mut command = server.beanpole();
        command
            .args(["console", "--listen", "127.0.0.1:0"])
            .args(options);
        let mut running = Running::start(&mut command);
        let line = running.wait_for_line_with("serving http://127.0.0.1:");
        let port = line
            .trim_end()
            .trim_end_matches('/')
            .rsplit(':')
            .next()
            .unwrap();
        Console {
            running,
            port: port.parse().unwrap(),
        }
    }

    /// The answer to these bytes.
    fn send(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn get_with(&self, path: &str, headers: &str) -> String {
        self.send(&format!("GET {path} HTTP/1.1\r\n{headers}\r\n"))
    }

    fn get(&self, path: &str) -> String {
        self.get_with(path, "Host: localhost\r\n")
    }

    /// The body of the answer to a change that our own page asks for.
    fn change(&self, deed: &str) -> String {
        let headers = "Host: localhost\r\nOrigin: http://localhost\r\n";
        let answer = self.post("/api/change", headers, deed);
        answer.split("\r\n\r\n").nth(1).unwrap().into()
    }

    fn post(&self, path: &str, headers: &str, body: &str) -> String {
        let length = body.len();
        self.send(&format!(
            "POST {path} HTTP/1.1\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
        ))
    }

    /// Asks until the answer has this in it.
    fn wait_for(&self, path: &str, part: &str) -> String {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            let answer = self.get(path);
            if answer.contains(part) {
                return answer;
            }
            assert!(
                std::time::Instant::now() < until,
                "{path}: no {part} in {answer}"
            );
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

/// The files of the page.
fn page_files() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("commands/console/page");
    let files = folder.read_dir().unwrap().map(|file| file.unwrap().path());
    let read = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    files.map(read).collect()
}

#[test]
fn the_page_is_small_and_inserts_no_markup_from_a_server() {
    let files = page_files();
    let size: usize = files.iter().map(|(_, text)| text.len()).sum();
    assert!(size < 70_000, "{size} bytes");
    for (name, text) in &files {
        for way in [
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "eval(",
            "new Function",
            "//cdn",
        ] {
            assert!(!text.contains(way), "{name}: {way}");
        }
        if name.ends_with(".html") {
            assert!(
                !text.contains("style=") && !text.contains(" onclick"),
                "{name}"
            );
            assert_eq!(
                text.matches("<script").count(),
                text.matches("<script type=\"module\" src=\"/").count()
            );
        }
    }
}

#[test]
fn the_files_of_the_page_have_a_strict_content_security_policy() {
    let server = Server::start(&servers()[0], &[]);
    let console = Console::start(&server, &[]);
    for (name, text) in page_files() {
        let path = format!("/{}", name.replace("index.html", ""));
        let answer = console.get(&path);
        assert_eq!(status(&answer), "200", "{path}");
        assert!(
            answer.contains("\r\nContent-Security-Policy: default-src 'none'; script-src 'self';"),
            "{answer}"
        );
        assert!(answer.contains("\r\nX-Content-Type-Options: nosniff\r\n"));
        if name != "index.html" {
            assert!(answer.ends_with(&text), "{path}");
        }
    }
    let metrics = console.get("/metrics");
    assert!(metrics.contains("\nbeanstalk_up 1\n"), "{metrics}");
    for path in [
        "/index.html",
        "/../Cargo.toml",
        "/%2e%2e/x",
        "//",
        "/api",
        "/api/servers/",
    ] {
        assert_eq!(status(&console.get(path)), "404", "{path}");
    }
}

#[test]
fn head_is_answered_like_get_without_a_body() {
    let server = Server::start(&servers()[0], &[]);
    let console = Console::start(&server, &[]);
    console.wait_for("/api/servers", "\"known\":true");
    for (path, expected) in [("/", "200"), ("/style.css", "200"), ("/no", "404")] {
        let head = console.send(&format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert_eq!(status(&head), expected, "{path}");
        let (got, body) = head.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, "", "{path}");
        assert_eq!(console.get(path).split_once("\r\n\r\n").unwrap().0, got);
    }
}

#[test]
fn an_unknown_host_name_is_refused() {
    let server = Server::start(&servers()[0], &[]);
    let console = Console::start(&server, &["--host", "queue.example"]);
    for path in ["/", "/api/servers", "/metrics"] {
        for (headers, expected) in [
            ("Host: localhost:8080\r\n", "200"),
            ("Host: 127.0.0.1\r\n", "200"),
            ("Host: queue.example\r\n", "200"),
            ("Host: evil.example\r\n", "403"),
            ("Host: localhost\r\nHost: evil.example\r\n", "403"),
            ("", "403"),
        ] {
            assert_eq!(
                status(&console.get_with(path, headers)),
                expected,
                "{path} {headers}"
            );
        }
    }
}

#[test]
fn changes_need_allow_changes_and_the_origin_of_the_page() {
    let server = Server::start(&servers()[0], &[]);
    tell(&server, "$ put -q -t mail x");
    let deed = r#"{"do":"delete","server":0,"ids":["1"]}"#;
    let console = Console::start(&server, &["--allow-changes"]);
    for headers in [
        "Host: localhost\r\n",
        "Host: localhost\r\nOrigin: http://evil.example\r\n",
        "Host: localhost\r\nOrigin: null\r\n",
        "Host: localhost\r\nOrigin: http://localhost\r\nOrigin: http://localhost\r\n",
        "Host: evil.example\r\nOrigin: http://evil.example\r\n",
    ] {
        assert_eq!(
            status(&console.post("/api/change", headers, deed)),
            "403",
            "{headers}"
        );
    }
    let looking = Console::start(&server, &[]);
    let refused = looking.change(deed);
    assert!(
        refused.contains("started without --allow-changes"),
        "{refused}"
    );
    // A body is not even waited for, nor one that is too long.
    let head = "Host: localhost\r\nOrigin: http://localhost\r\nContent-Length: 99999999\r\n";
    let answer = console.send(&format!("POST /api/change HTTP/1.1\r\n{head}\r\n"));
    assert_eq!(status(&answer), "413");
    tell(&server, "$ peek 1\nx⊣");
    assert_eq!(console.change(deed), r#"{"said":"deleted job 1"}"#);
}

#[test]
fn every_request_for_data_needs_the_token() {
    let server = Server::start(&servers()[0], &[]);
    tell(&server, "$ put -q -t mail secret");
    let file = server.directory.write("token", b"0123456789abcdef\n");
    let name = file.to_str().unwrap();
    let mode = |mode| std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
    mode(0o640);
    let mut command = server.beanpole();
    let output = command
        .args(["console", "--listen", "127.0.0.1:0", "--token", name])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(4));
    let reason = String::from_utf8(output.stderr).unwrap();
    assert!(reason.contains("others may read"), "{reason}");
    mode(0o600);
    let console = Console::start(&server, &["--token", name, "--allow-changes"]);
    for path in [
        "/api/servers",
        "/api/tubes",
        "/api/job?server=0&id=1",
        "/api/jobs?server=0&tube=mail",
        "/metrics",
    ] {
        assert_eq!(status(&console.get(path)), "401", "{path}");
        let wrong = "Host: localhost\r\nAuthorization: Bearer 0123456789abcdeg\r\n";
        assert_eq!(status(&console.get_with(path, wrong)), "401", "{path}");
        let right = "Host: localhost\r\nAuthorization: Bearer 0123456789abcdef\r\n";
        assert_eq!(status(&console.get_with(path, right)), "200", "{path}");
    }
    let change = console.change(r#"{"do":"delete","server":0,"ids":["1"]}"#);
    assert!(change.contains("the token is missing or wrong"), "{change}");
}

#[test]
fn listening_beyond_the_loopback_creates_a_token() {
    let server = Server::start(&servers()[0], &[]);
    let mut command = server.beanpole();
    command.args(["console", "--listen", "0.0.0.0:0"]);
    let mut running = Running::start(&mut command);
    let line = running.wait_for_line_with("serving http://0.0.0.0:");
    let token = line.trim_end().split("/#token=").nth(1).unwrap();
    assert_eq!(token.len(), 32, "{line}");
}

#[test]
fn a_hundred_silent_or_greedy_clients_delay_no_other() {
    let server = Server::start(&servers()[0], &[]);
    let console = Console::start(&server, &["--allow-changes"]);
    console.wait_for("/api/servers", "\"known\":true");
    let connect = || TcpStream::connect(("127.0.0.1", console.port)).unwrap();
    let mut held = Vec::new();
    for round in 0..100 {
        let mut stream = connect();
        let said = match round % 3 {
            0 => String::new(),
            1 => "GET /api/servers HTTP/1.1\r\nHost: local".into(),
            // This one does not read its answers.
            _ => "GET /style.css HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100),
        };
        let _ = stream.write_all(said.as_bytes());
        held.push(stream);
        let answer = console.get("/api/servers");
        assert_eq!(status(&answer), "200", "after {round}");
    }
    // What is too large is told so.
    let large = format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
        "x".repeat(9000)
    );
    assert_eq!(status(&console.send(&large)), "431");
    tell(&server, "$ put -q -t mail x\n$ reserve -t mail\nx⊣");
}

#[test]
fn each_change_names_the_jobs_and_tubes_that_it_changed() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        let console = Console::start(&server, &["--allow-changes"]);
        for (deed, said) in [
            (
                r#""do":"put","tube":"mail","priority":"7","delay":"0","ttr":"60","body64":"AP88Yj4=""#,
                "put job 1 into mail",
            ),
            (
                r#""do":"put","tube":"mail","priority":"7","delay":"1h","ttr":"1m","body64":"""#,
                "put job 2 into mail",
            ),
            (r#""do":"bury","ids":["1"]"#, "buried job 1"),
            (
                r#""do":"kick","tube":"mail","count":5"#,
                "kicked 1 job of mail",
            ),
            (
                r#""do":"release","id":"1","priority":"3","delay":"10m""#,
                "job 1 is delayed for 600 s",
            ),
            (r#""do":"kick-job","ids":["2"]"#, "kicked job 2"),
            (
                r#""do":"release","id":"1","priority":"3","delay":"0""#,
                "job 1 is ready",
            ),
            (
                r#""do":"move","tube":"mail","to":"post","states":"","count":9"#,
                "moved 2 jobs of mail to post",
            ),
            (
                r#""do":"pause","tube":"post","time":"1h""#,
                "paused post for 3600 s",
            ),
            (
                r#""do":"pause","tube":"post","time":"0""#,
                "ended the pause of post",
            ),
            (r#""do":"delete","ids":["9"]"#, "there is no job 9"),
            (r#""do":"bury","ids":["3","4"]"#, "buried 2 jobs"),
            (
                r#""do":"kick-job","ids":["3","9","4"]"#,
                "kicked 2 of 3 jobs: there is no job 9",
            ),
            (
                r#""do":"clear","tube":"post","states":"ready","count":1"#,
                "deleted 1 job of post",
            ),
            (
                r#""do":"clear","tube":"post","states":"","count":9"#,
                "deleted 1 job of post",
            ),
        ] {
            let answer = console.change(&format!("{{\"server\":0,{deed}}}"));
            assert_eq!(answer, format!("{{\"said\":\"{said}\"}}"), "{deed}");
        }
        for (deed, reason) in [
            ("", "EOF while parsing a value at byte 0"),
            (r#"{"server":9}"#, "there is no such server"),
            (r#"{"server":0,"do":"fly"}"#, "there is no deed 'fly'"),
            (r#"{"server":0,"do":"delete"}"#, "the list 'ids' is missing"),
            (
                r#"{"server":0,"do":"delete","ids":["x"]}"#,
                "ids: 'x' is not the id of a job",
            ),
            (
                r#"{"server":0,"do":"kick","tube":"-","count":1}"#,
                "tube: '-' cannot be the name of a tube",
            ),
            (
                r#"{"server":0,"do":"put","tube":"a","priority":"1","delay":"0","ttr":"1","body64":"!"}"#,
                "the body is not in base64",
            ),
            (
                r#"{"server":0,"do":"move","tube":"a","to":"a","states":"","count":1}"#,
                "both are the same tube",
            ),
        ] {
            let answer = console.change(deed);
            assert!(answer.starts_with(reason), "{deed}: {answer}");
        }
    }
}

#[test]
fn jobs_are_found_by_state_and_body_text_in_pages() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        let bodies = (1..=120)
            .map(|number| format!("body {number} <b>\n"))
            .collect::<String>();
        let file = server.directory.write("bodies", bodies.as_bytes());
        tell(
            &server,
            &format!("$ put -q -t mail -l -f '{}'\n$ bury 5", file.display()),
        );
        let console = Console::start(&server, &[]);
        console.wait_for("/api/servers", "\"known\":true");
        let jobs = |query: &str| {
            let answer = console.get(&format!("/api/jobs?server=0&tube=mail{query}"));
            let ids = answer.matches("{\"id\":\"").count();
            let next = answer
                .split("\"next\":")
                .nth(1)
                .unwrap()
                .split(',')
                .next()
                .unwrap();
            (ids, next.trim_matches('"').to_owned())
        };
        let lists = console
            .get("/api/jobs?server=0&tube=mail")
            .contains("\"listed\":true");
        if lists {
            assert_eq!(jobs(""), (50, "51".into()));
            assert_eq!(jobs("&from=51"), (50, "101".into()));
            assert_eq!(jobs("&from=101").0, 20);
        } else {
            // The next ones of each state and their neighbours.
            assert_eq!(jobs(""), (17, "null".into()));
        }
        assert_eq!(jobs("&state=buried").0, 1);
        assert_eq!(jobs("&text=body+11").0, 11);
        // All that a search finds, for who acts on them.
        let found = console.get("/api/jobs?server=0&tube=mail&text=body+1&ids=1");
        let ids = found.split("\"jobs\":[").nth(1).unwrap();
        let ids = ids.split(']').next().unwrap();
        assert_eq!(ids.split(',').count(), 32, "{found}");
        if lists {
            tell(&server, "$ kick-job 5\n$ bury 7\n$ kick-job 7");
            let first = |sort: &str| {
                let answer = console.get(&format!("/api/jobs?server=0&tube=mail&sort={sort}"));
                let id = answer.split("\"id\":\"").nth(1).unwrap();
                String::from(id.split('"').next().unwrap())
            };
            assert!(["5", "7"].contains(&first("tries").as_str()));
            tell(&server, "$ bury 5");
        }
        let job = console.get("/api/job?server=0&id=5");
        assert!(
            job.contains("\"state\":\"buried\"") && job.contains("\"body64\":\"Ym9keSA1IDxiPg==\""),
            "{job}"
        );
        let why = console.get("/api/why?server=0&tube=mail");
        assert!(
            why.contains("\"Nobody watches it; 119 jobs are ready. 1 job is buried"),
            "{why}"
        );
        for (path, expected) in [
            ("/api/job?server=0&id=999", "404"),
            ("/api/job?server=0&id=x", "400"),
            ("/api/job?server=7&id=1", "404"),
            ("/api/jobs?server=0&tube=-", "400"),
            ("/api/jobs?server=0&tube=nobody", "200"),
            ("/api/tube?server=0&tube=nobody", "404"),
            ("/api/why?server=0&tube=nobody", "404"),
        ] {
            assert_eq!(status(&console.get(path)), expected, "{path}");
        }
    }
}

#[test]
fn a_lost_server_is_reported_and_found_again() {
    for program in servers() {
        let mut server = Server::start(&program, &[]);
        let console = Console::start(&server, &[]);
        console.wait_for("/api/servers", "\"known\":true");
        server.kill();
        console.wait_for("/api/servers", "\"lost\":\"cannot connect");
        assert_eq!(
            status(&console.get("/api/jobs?server=0&tube=default")),
            "502"
        );
        server.restart();
        console.wait_for("/api/servers", "\"lost\":null");
        // The time without a server is a gap.
        console.wait_for("/api/curves?server=0&span=0", "null,[0,0,0,0,");
        console.running.signal("TERM");
        assert_eq!(console.running.wait().0, 0);
    }
}

#[test]
fn the_curves_outlive_a_restart_of_the_console_in_a_file() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q -t mail x");
        let file = server.directory.path().join("curves");
        let options = ["--curves", file.to_str().unwrap()];
        let path = "/api/curves?server=0&tube=mail&span=0";
        let console = Console::start(&server, &options);
        console.wait_for(path, "],[1,0,0,0,");
        console.running.signal("TERM");
        assert_eq!(console.running.wait().0, 0);
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // Nothing is left beside it.
        assert_eq!(server.directory.path().read_dir().unwrap().count(), 1);
        let console = Console::start(&server, &options);
        let curves = console.get(path);
        assert!(curves.contains("\"slots\":[[1,0,0,0,"), "{curves}");
        assert!(curves.contains(",null"), "{curves}");
        console.wait_for("/api/tubes", "\"name\":\"mail\"");
        // Another file is not taken for one, and stays as it is.
        let other = server.directory.write("other", b"something\nelse");
        let mut command = server.beanpole();
        let output = command
            .args(["console", "--listen", "0", "--curves"])
            .arg(&other)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(4));
        assert!(
            String::from_utf8(output.stderr)
                .unwrap()
                .contains(" has no curves: ")
        );
        assert_eq!(std::fs::read(&other).unwrap(), b"something\nelse");
    }
}
