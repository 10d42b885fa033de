//! Putting, looking at, taking and settling jobs.

use super::story::{on_each_server, tell};
use super::support::{BEANPOLE, Server, servers};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Command;

#[test]
fn put_makes_jobs_of_operands_files_and_input_and_prints_their_ids() {
    on_each_server(
        r#"
        $ put hello ''
        1
        2
        $ put < 'from stdin\n'
        3
        $ put --lines < 'a\r\nb\n\nc'
        4
        5
        6
        7
        $ put -0 -f - < 'x\ny\0z'
        8
        9
        $ put -q quiet
        $ peek --null 1 2 3 4 5 6 7 8 9 10
        hello\x00\x00from stdin
        \x00a\r\x00b\x00\x00c\x00x
        y\x00z\x00quiet\x00⊣
        "#,
    );
}

#[test]
fn put_sets_tube_priority_delay_and_time_to_run() {
    on_each_server(
        r#"
        $ put -t mail -p 7 -d 100 -r 9 x
        1
        $ peek -t mail --delayed --json
        {"id":1,"tube":"mail","state":"delayed","pri":7,"age":N,"delay":100,"ttr":9,"time-left":N,"file":0,"reserves":0,"timeouts":0,"releases":0,"buries":0,"kicks":0,"body":"x"}
        $ put
        2
        $ peek 2 --json
        {"id":2,"tube":"default","state":"ready","pri":1024,"age":N,"delay":0,"ttr":60,"time-left":N,"file":0,"reserves":0,"timeouts":0,"releases":0,"buries":0,"kicks":0,"body":""}
        "#,
    );
}

#[test]
fn put_says_which_body_was_refused_and_goes_on_with_the_others() {
    let big = "x".repeat(70_000);
    let story = r#"
        $ put --lines < 'a\nLARGE\nb\n'
        1
        2
        ! beanpole put: stdin 2: the body is larger than the server takes (JOB_TOO_BIG)
        [1]
        "#;
    on_each_server(&story.replace("LARGE", &big));
}

#[test]
fn bodies_are_exact_whatever_their_bytes() {
    on_each_server(
        r#"
        $ put '\xff\xc3\r\n'
        1
        $ put < '\xff\0\r\n\xc3'
        2
        $ peek 1
        \xff\xc3\r
        $ peek 2
        \xff\x00\r
        \xc3⊣
        $ reserve --all --lines --delete
        \xff\xc3\r

        \xff\x00\r
        \xc3
        $ put < '\xff\0'
        3
        $ reserve --json
        {"id":3,"tube":"default","state":"reserved","pri":1024,"age":N,"delay":0,"ttr":60,"time-left":N,"file":0,"reserves":1,"timeouts":0,"releases":0,"buries":0,"kicks":0,"body64":"/wA="}
        "#,
    );
}

#[test]
fn peek_shows_the_next_jobs_of_a_tube_in_each_state() {
    on_each_server(
        r#"
        $ put -t other a b
        1
        2
        $ put -t x c d e
        3
        4
        5
        $ put -t x -d 1000 later
        6
        $ put -t other f
        7
        $ put -t x g
        8
        $ bury 4
        $ peek -t x -n 10 -l
        c
        e
        g
        $ peek -t x -n 2 -l --ready
        c
        e
        $ peek -t x --buried -l
        d
        $ peek -t x --delayed -n 3 -l
        later
        $ peek -t x --delayed --buried
        ! beanpole peek: the argument '--delayed' cannot be used with '--buried'
        ! Try 'beanpole help peek'.
        [2]
        $ peek -t nobody
        ! beanpole peek: there is no tube 'nobody'
        [1]
        $ peek 8 99 -l
        g
        ! beanpole peek: there is no job 99
        [1]
        "#,
    );
}

#[test]
fn jobs_are_deleted_kicked_buried_and_released_by_their_ids() {
    on_each_server(
        r#"
        $ put a b c
        1
        2
        3
        $ delete 1 7 1
        ! beanpole delete: there is no job 7
        ! beanpole delete: there is no job 1
        [1]
        $ bury 2 3 -p 6
        $ kick-job 3
        $ kick-job 3
        ! beanpole kick-job: job 3 is ready: this is no state for it
        [1]
        $ release 2 -p 8 -d 5000
        $ tubes
        TUBE        READY  RESERVED   DELAYED    BURIED      PUTS     USING  WATCHING   WAITING     PAUSE
        default         1         0         1         0         3         0         0         0         0
        $ peek --delayed
        b⊣
        $ bury 99
        ! beanpole bury: there is no job 99
        [1]
        $ delete two
        ! beanpole delete: 'two' is not the id of a job; a tube is named by -t two
        ! Try 'beanpole help delete'.
        [2]
        $ delete
        ! beanpole delete: which job? give its id
        ! Try 'beanpole help delete'.
        [2]
        "#,
    );
}

#[test]
fn kick_takes_buried_jobs_first_and_all_of_one_kind() {
    on_each_server(
        r#"
        $ put -d 1000 a b
        1
        2
        $ put c d e
        3
        4
        5
        $ bury 3 4 5
        $ kick
        1
        $ kick --all
        2
        $ kick --all
        2
        $ kick 5
        0
        [1]
        $ kick -t nobody
        ! beanpole kick: there is no tube 'nobody'
        [1]
        "#,
    );
}

#[test]
fn times_and_sizes_have_units() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(
            &server,
            r#"
        $ put -q -d 5m --ttr 2h later
        $ stats job 1
        id         1
        tube       default
        state      delayed
        pri        1024
        age        N
        delay      300
        ttr        7200
        time-left  N
        file       0
        reserves   0
        timeouts   0
        releases   0
        buries     0
        kicks      0
        $ pause default 1h30m
        $ work --all --backoff 1m --backoff-max 1d --grace 2s -- true
        $ reserve -w 0s
        [1]
        $ put -d 1.5 late
        ! beanpole put: --delay: '1.5' is not whole seconds
        ! Try 'beanpole help put'.
        [2]
        $ pause default soon
        ! beanpole pause: 'soon' is no time: give seconds, or 500ms, 30s, 5m, 2h, 1d, 1w
        ! Try 'beanpole help pause'.
        [2]
        $ check --timeout 2d
        ! beanpole check: --timeout: '2d' is not a time from 0.01 seconds to a day
        ! Try 'beanpole help check'.
        [3]
        "#,
        );
        let stats = server.said(&["stats", "default"]);
        assert!(stats.contains("pause                  5400\n"), "{stats}");
    }
}

#[test]
fn delayed_jobs_are_kicked_although_others_are_buried() {
    on_each_server(
        r#"
        $ put -q -t mail buried
        $ bury 1
        $ put -q -t mail -d 1h a b c d
        $ kick-job -t mail --state delayed -n 2 --yes
        2
        $ kick-job -t mail --state delayed --yes
        2
        $ kick-job -t mail --state delayed --yes
        0
        $ reserve -t mail --all --delete -l
        a
        b
        c
        d
        $ kick -t mail
        1
        "#,
    );
}

#[test]
fn many_tubes_are_paused_and_resumed_at_once() {
    on_each_server(
        r#"
        $ put -q -t mail letter
        $ put -q -t images picture
        $ pause --all 1h
        $ reserve -t mail -t images --all
        [1]
        $ resume mail
        $ reserve -t mail -t images --all -l
        letter
        $ pause --all 0
        $ reserve -t mail -t images --all -l
        letter
        picture
        $ pause mail images 1h
        $ reserve -t mail -t images --all
        [1]
        $ resume nobody images
        ! beanpole pause: there is no tube 'nobody'
        [1]
        $ reserve -t mail -t images --all -l
        picture
        $ resume
        ! beanpole pause: which tubes? name them, or give --all
        ! Try 'beanpole help pause'.
        [2]
        $ pause --all mail 1h
        ! beanpole pause: which tubes? name them, or give --all
        ! Try 'beanpole help pause'.
        [2]
        "#,
    );
}

#[test]
fn put_says_how_far_it_came_when_the_server_is_lost() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "use default");
        stream.write_all(b"USING default\r\n").unwrap();
        // Three times `put`, and its body.
        assert_eq!(lines.take(6).count(), 6);
        stream.write_all(b"INSERTED 8\r\nINSERTED 9\r\n").unwrap();
    });
    let mut command = Command::new(BEANPOLE);
    command.args(["-a", &address.to_string(), "put", "a", "b", "c"]);
    let output = command.output().unwrap();
    server.join().unwrap();
    assert_eq!(output.stdout, b"8\n9\n");
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        format!(
            "beanpole put: {address}: the server closed the connection\n\
             the first 2 bodies were answered; the next 1 may be jobs, too\n"
        )
    );
    assert_eq!(output.status.code(), Some(3));
}
