//! Whether a server is well, in a line for monitoring: check.

use super::story::{on_each_server, tell};
use super::support::{Server, servers, wait_for};

#[test]
fn check_writes_one_line_with_level_text_and_performance_data() {
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
        BEANSTALK CRITICAL: 127.0.0.1:PORT ready 2, reserved 0, delayed 0, buried 1, workers 0; 127.0.0.1:1 cannot connect to 127.0.0.1:1: Connection refused | '127.0.0.1:PORT ready'=2;;;0 '127.0.0.1:PORT reserved'=0;;;0 '127.0.0.1:PORT delayed'=0;;;0 '127.0.0.1:PORT buried'=1;;;0 '127.0.0.1:PORT workers'=0;;;0
        [2]
        "#,
    );
}

#[test]
fn check_warns_of_a_draining_server() {
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
fn check_limits_the_age_of_the_next_ready_job() {
    for program in servers() {
        let server = Server::start(&program, &[]);
        tell(&server, "$ put -q -t mail a");
        wait_for("the job to be a second old", || {
            let (status, text) = server.run(&["check", "--age-max", "0"]);
            let age = text.strip_prefix("BEANSTALK CRITICAL: age ");
            age.inspect(|age| {
                assert!(age.contains("s (limit 0) | "), "{text}");
                assert_eq!(status, Some(2));
            });
            age.is_some()
        });
        let (status, _) = server.run(&["check", "--age-max", "3600", "-t", "mail"]);
        assert_eq!(status, Some(0));
    }
}
