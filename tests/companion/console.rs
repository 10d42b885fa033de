//! The console as browsers and attackers meet it: what it answers over HTTP.
//! What its page shows is tried in a browser, by tests/peers/console.

use super::support::{ended, http, http_port, on_each_server, status};
use nix::sys::signal::Signal;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use support::session::Scene;
use support::{Server, source, text_of, until};

/// A console that serves a page.
struct Console {
    running: Server,
    port: u16,
}

impl Console {
    fn start(scene: &Scene, options: &str) -> Console {
        let running = scene.begin(&format!("beanpole console --listen 127.0.0.1:0 {options}"));
        let port = http_port(&running);
        let console = Console { running, port };
        console.wait_for("/", "HTTP/1.1 200 ");
        console
    }

    fn get_with(&self, path: &str, headers: &str) -> String {
        http(self.port, &format!("GET {path} HTTP/1.1\r\n{headers}\r\n"))
    }

    fn get(&self, path: &str) -> String {
        self.get_with(path, "Host: localhost\r\n")
    }

    /// The last line of the answer to a change that our own page asks for, before which is
    /// how far it was: parameters and, after a space, the body of the request.
    fn change(&self, request: &str) -> String {
        let answer = self.post("Host: localhost\r\nOrigin: http://localhost\r\n", request);
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        let (told, done) = body.trim_end().rsplit_once('\n').unwrap_or(("", body));
        let told = told.lines();
        told.for_each(|line| assert!(line.starts_with("{\"done\":"), "{line}"));
        done.into()
    }

    fn post(&self, headers: &str, request: &str) -> String {
        let (parameters, body) = request.split_once(' ').unwrap_or((request, ""));
        let (target, length) = (format!("/api/change?{parameters}"), body.len());
        let head = format!("POST {target} HTTP/1.1\r\n{headers}Content-Length: {length}");
        http(self.port, &format!("{head}\r\n\r\n{body}"))
    }

    /// Asks until the answer has this in it.
    #[track_caller]
    fn wait_for(&self, path: &str, part: &str) -> String {
        until(part, || {
            Some(self.get(path)).filter(|answer| answer.contains(part))
        })
    }

    fn wait_until_it_knows_its_server(&self) {
        self.wait_for("/api/known", "\"known\":true");
    }
}

/// The files of the page.
fn page_files() -> Vec<(String, String)> {
    let folder = "src/companion/commands/console/page";
    let files = fs::read_dir(source(folder)).expect("a folder");
    let found = files.map(|file| file.expect("a file").file_name().into_string());
    let names = found.map(|name| name.expect("letters"));
    names
        .map(|name| (name.clone(), text_of(&format!("{folder}/{name}"))))
        .collect()
}

#[test]
fn the_page_is_small_and_inserts_no_markup_from_a_server() {
    let files = page_files();
    let size: usize = files.iter().map(|(_, text)| text.len()).sum();
    assert!(size < 70_000, "{size} bytes");
    let ways =
        "innerHTML outerHTML insertAdjacent document.write eval( Function( //cdn style= onclick=";
    for (name, text) in &files {
        for way in ways.split(' ') {
            assert!(!text.contains(way), "{name}: {way}");
        }
        let of_our_own = "<script type=\"module\" src=\"main.js";
        assert_eq!(
            text.matches("<script").count(),
            text.matches(of_our_own).count(),
            "{name}"
        );
    }
}

#[test]
fn the_files_of_the_page_have_a_strict_content_security_policy() {
    let scene = Scene::ours();
    let console = Console::start(&scene, "");
    for (name, text) in page_files() {
        let path = format!("/{}", name.replace("index.html", ""));
        let answer = console.get(&path);
        assert_eq!(status(&answer), "200", "{path}");
        for header in [
            "Content-Security-Policy: default-src 'none'; script-src 'self';",
            "X-Content-Type-Options: nosniff\r\n",
        ] {
            assert!(answer.contains(&format!("\r\n{header}")), "{answer}");
        }
        assert!(name == "index.html" || answer.ends_with(&text), "{path}");
    }
    for path in [
        "/index.html",
        "/../Cargo.toml",
        "/%2e%2e/x",
        "//",
        "/api",
        "/api/known/",
    ] {
        assert_eq!(status(&console.get(path)), "404", "{path}");
    }
}

#[test]
fn an_unknown_host_name_is_refused() {
    let scene = Scene::ours();
    let console = Console::start(&scene, "--host queue.example");
    for path in ["/", "/api/known"] {
        for (headers, expected) in [
            ("Host: queue.example\r\n", "200"),
            ("Host: evil.example\r\n", "403"),
            ("Host: localhost\r\nHost: evil.example\r\n", "403"),
        ] {
            let answer = console.get_with(path, headers);
            assert_eq!(status(&answer), expected, "{path} {headers}");
        }
    }
}

#[test]
fn changes_need_allow_changes_and_the_origin_of_the_page() {
    let scene = Scene::ours();
    scene.tell("$ beanpole put -q -t mail x");
    let request = "do=delete 1";
    let console = Console::start(&scene, "--allow-changes");
    for headers in [
        "Host: localhost\r\n",
        "Host: localhost\r\nOrigin: http://evil.example\r\n",
        "Host: localhost\r\nOrigin: null\r\n",
        "Host: localhost\r\nOrigin: http://localhost\r\nOrigin: http://localhost\r\n",
        "Host: evil.example\r\nOrigin: http://evil.example\r\n",
    ] {
        assert_eq!(status(&console.post(headers, request)), "403", "{headers}");
    }
    let refused = Console::start(&scene, "").change(request);
    assert!(
        refused.contains("started without --allow-changes"),
        "{refused}"
    );
    // A body that is too long is not waited for.
    let head = "POST /api/change HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n";
    let answer = http(
        console.port,
        &format!("{head}Content-Length: 99999999\r\n\r\n"),
    );
    assert_eq!(status(&answer), "413");
    scene.tell("$ beanpole peek 1 -l\nx");
    assert_eq!(console.change(request), r#"{"said":"deleted job 1"}"#);
}

#[test]
fn every_request_needs_a_token_and_a_change_the_one_that_is_not_for_reading() {
    let scene = Scene::ours();
    scene.tell(
        "
        $ beanpole put -q -t mail secret
        $ echo 0123456789abcdef > token; chmod 640 token; beanpole console --listen 0 --token token
        ! beanpole console: others may read token: <any>
        [4]
        # An access list of systemd's shows as a right of the group.
        $ echo short > handed; chmod 640 handed; CREDENTIALS_DIRECTORY=. beanpole console --listen 0 --token ./handed
        ! beanpole console: ./handed: a token is <any>
        [4]
        $ echo fedcba9876543210 > readers; chmod 600 token readers",
    );
    let console = Console::start(&scene, "--token token --read-only readers --allow-changes");
    let with = |token: &str| format!("Host: localhost\r\nAuthorization: Bearer {token}\r\n");
    until("the tube", || {
        let known = console.get_with("/api/known", &with("0123456789abcdef"));
        Some(known).filter(|known| known.contains("\"name\":\"mail\""))
    });
    for (headers, of_data, changes, of_change) in [
        ("Host: localhost\r\n", "401", "", "401"),
        (&with("0123456789abcdeg"), "401", "", "401"),
        (&with("fedcba9876543210"), "200", "\"changes\":false", "403"),
        (&with("0123456789abcdef"), "200", "\"changes\":true", "200"),
    ] {
        for path in [
            "/api/why?tube=mail",
            "/api/job?job=1",
            "/api/jobs?tube=mail",
        ] {
            let answer = console.get_with(path, headers);
            assert_eq!(status(&answer), of_data, "{path} {headers}");
        }
        let known = console.get_with("/api/known", headers);
        assert_eq!(status(&known), of_data, "{headers}");
        assert!(known.contains(changes), "{known}");
        let headers = format!("{headers}Origin: http://localhost\r\n");
        let answer = console.post(&headers, "do=delete 1");
        assert_eq!(status(&answer), of_change, "{answer}");
    }
}

#[test]
fn listening_beyond_the_loopback_creates_a_token() {
    let console = Scene::ours().begin("beanpole console --listen 0.0.0.0:0");
    let line = console.log_line("serving http://0.0.0.0:");
    let (_, token) = line.split_once("/#token=").expect("a token");
    assert_eq!(token.len(), 32, "{line}");
}

#[test]
fn a_hundred_silent_or_greedy_clients_delay_no_other() {
    let scene = Scene::ours();
    let console = Console::start(&scene, "--allow-changes");
    let mut held = Vec::new();
    for round in 0..100 {
        let mut stream = TcpStream::connect(("127.0.0.1", console.port)).expect("a server");
        let said = match round % 3 {
            0 => String::new(),
            1 => "GET /api/known HTTP/1.1\r\nHost: local".into(),
            // This one does not read its answers.
            _ => "GET /style.css HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100),
        };
        // It may be cut off.
        let (Ok(()) | Err(_)) = stream.write_all(said.as_bytes());
        held.push(stream);
        assert_eq!(status(&console.get("/api/known")), "200", "after {round}");
    }
    let large = format!("Host: localhost\r\nX: {}\r\n", "x".repeat(9000));
    assert_eq!(status(&console.get_with("/", &large)), "431");
}

#[test]
fn each_change_names_the_jobs_and_tubes_that_it_changed() {
    let changes = r#"
do=put&tube=mail&priority=7&delay=0&ttr=60 <b> é => put job 1 into mail","job":"1
do=put&tube=mail&priority=7&delay=1h&ttr=1m => put job 2 into mail","job":"2
do=bury 1 => buried job 1
do=kick&tube=mail&count=5 => kicked 1 job of mail
do=release&priority=3&delay=10m 1 => released job 1
do=kick-job 2 => kicked job 2
do=release&priority=3&delay=0 1 2 => released 2 jobs
do=move&tube=mail&to=post&state=&count=9 => moved 2 jobs of mail to post
do=pause&tube=post&time=1h => paused post for 3600 s
do=pause&tube=post&time=0 => ended the pause of post
do=delete 9 => there is no job 9
do=bury 3 4 => buried 2 jobs
do=kick-job 3 9 4 => kicked 2 of 3 jobs: there is no job 9
do=kick-job 3 => job 3 is ready: this is no state for it
do=kick-job 3 4 => kicked 0 of 2 jobs: job 3 is ready: this is no state for it
do=edit&job=3&tube=post&priority=9&delay=0&ttr=60 new => put job 5 into post and deleted job 3","job":"5
do=edit&job=4&tube=post&priority=9&delay=1h&ttr=60 new => put job 6 into post and deleted job 4","job":"6
do=clear&tube=post&state=ready&count=1 => deleted 1 job of post
do=clear&tube=post&count=9 => deleted 1 job of post"#;
    on_each_server(&[], |scene| {
        let console = Console::start(&scene, "--allow-changes");
        for (request, said) in changes.lines().filter_map(|line| line.split_once(" => ")) {
            let answer = console.change(request);
            assert_eq!(answer, format!("{{\"said\":\"{said}\"}}"), "{request}");
        }
    });
}

#[test]
fn a_malformed_change_is_refused_with_the_reason() {
    let changes = r#"
 => there is no change ''
do=delete&server=9 1 => there is no server '9'
do=edit&job=9&tube=a => there is no job 9
do=fly => there is no change 'fly'
do=delete x => 'x' is not the id of a job
do=kick&tube=-&count=1 => tube: '-' cannot be the name of a tube
do=clear&tube=a&count=1&state=reserved => 'reserved' is not ready, delayed or buried
do=move&tube=a&to=a&count=1 => both are the same tube"#;
    let scene = Scene::ours();
    let console = Console::start(&scene, "--allow-changes");
    for (request, reason) in changes.lines().filter_map(|line| line.split_once(" => ")) {
        let answer = console.change(request);
        assert!(answer.starts_with(reason), "{request}: {answer}");
    }
}

#[test]
fn jobs_are_found_by_state_and_body_text_in_pages() {
    on_each_server(&[], |scene| {
        scene.tell("$ seq -f 'body %g <b>' 120 | beanpole put -q -t mail -l\n$ beanpole bury 5");
        let console = Console::start(&scene, "");
        console.wait_until_it_knows_its_server();
        let lists = console
            .get("/api/jobs?tube=mail")
            .contains("\"listed\":true");
        // Without a list, only the next jobs of each state and their neighbours are shown.
        let pages: &[_] = if lists {
            &[
                ("", 50, "\"51\""),
                ("&from=51", 50, "\"101\""),
                ("&from=101", 20, ""),
            ]
        } else {
            &[("", 17, "null,")]
        };
        let of_all = [("&state=buried", 1, ""), ("&text=body+11", 11, "")];
        for (query, count, next) in pages.iter().chain(&of_all) {
            let answer = console.get(&format!("/api/jobs?tube=mail{query}"));
            let found = answer.matches("{\"id\":\"").count();
            assert_eq!(found, *count, "{query}: {answer}");
            assert!(
                answer.contains(&format!("\"next\":{next}")),
                "{query}: {answer}"
            );
        }
        // All that a search finds, for who acts on them.
        let found = console.get("/api/jobs?tube=mail&text=body+1&ids=1");
        let (_, ids) = found.split_once("\"jobs\":[").expect("a list");
        let (ids, _) = ids.split_once(']').expect("its end");
        assert_eq!(ids.split(',').count(), 32, "{found}");
        if lists {
            // The most tried one comes first.
            let first = console.get("/api/jobs?tube=mail&sort=tries");
            assert!(first.contains("\"jobs\":[{\"id\":\"5\","), "{first}");
        }
        let job = console.get("/api/job?job=5");
        for part in ["\"state\":\"buried\"", "\"body64\":\"Ym9keSA1IDxiPg==\""] {
            assert!(job.contains(part), "{job}");
        }
        let why = console.get("/api/why?tube=mail");
        assert!(
            why.contains("\"Nobody watches it; 119 jobs are ready. 1 job is buried"),
            "{why}"
        );
        for (path, expected) in [
            ("/api/job?job=999", "404"),
            ("/api/job?job=x", "400"),
            ("/api/job?server=7&job=1", "404"),
            ("/api/jobs?tube=-", "400"),
            ("/api/jobs?tube=nobody", "200"),
            ("/api/why?tube=nobody", "404"),
        ] {
            assert_eq!(status(&console.get(path)), expected, "{path}");
        }
    });
}

#[test]
fn a_lost_server_is_reported_and_found_again() {
    on_each_server(&[], |mut scene| {
        let console = Console::start(&scene, "");
        console.wait_until_it_knows_its_server();
        scene.kill();
        console.wait_for("/api/known", "\"lost\":\"cannot connect");
        assert_eq!(status(&console.get("/api/jobs?tube=default")), "502");
        scene.start_again();
        console.wait_for("/api/known", "\"lost\":null");
        // The time without a server is a gap.
        console.wait_for(
            &format!("/api/known?server={}", scene.address()),
            "null,[0,0,0,0,",
        );
        console.running.signal(Signal::SIGTERM);
        assert_eq!(ended(console.running).0, Some(0));
    });
}
