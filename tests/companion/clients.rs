//! The list of connections: `clients`.

use super::support::on_each_server;
use std::process;
use support::session::Scene;
use support::{Client, put};

#[test]
fn clients_lists_producers_workers_and_waiting_clients() {
    let scene = Scene::ours();
    let mut producer = scene.connect();
    producer.exchange("use mail", "USING mail");
    producer.send(put(b"x").repeat(3));
    producer.lines(3);
    let mut worker = scene.connect();
    worker.exchange("watch mail", "WATCHING 2");
    worker.reserve();
    let mut waiting = scene.connect();
    waiting.send("reserve\r\n");
    scene.await_stat("current-waiting", 1);
    // Without the times.
    let cut = "tr -s ' ' | sed 's/ [0-9]*s [0-9]*s//'";
    let session = "
        $ beanpole clients --sort puts -n 1 | CUT
        ID ADDRESS AGE IDLE DOES TUBE WATCHED HELD PUTS RESERVES
        <number> PRODUCER puts mail 1 0 3 0
        $ beanpole clients --sort held -n 1 | CUT | sed 1d
        <number> WORKER works default 2 1 0 1
        $ beanpole clients | CUT | sed 1d
        <number> PRODUCER puts mail 1 0 3 0
        <number> WORKER works default 2 1 0 1
        <number> WAITING waits default 1 0 0 0
        <any>
        # By the tube that they use.
        $ beanpole clients 'ma*' | CUT | sed 1d
        <number> PRODUCER puts mail 1 0 3 0
        $ beanpole clients -t fax
        [1]
        $ beanpole clients mail --json
        {\"id\":<number>,\"address\":\"PRODUCER\",\"age\":<any>,\"producer\":true,\"worker\":false,\"waiting\":false,\"tube\":\"mail\",\"watched\":1,\"held\":0,\"puts\":3,\"reserves\":0}";
    let session = session.replace("CUT", &format!("{cut} | sed 's/^ //'"));
    let session = session
        .replace("PRODUCER", &producer.name())
        .replace("WORKER", &worker.name());
    scene.tell(&session.replace("WAITING", &waiting.name()));
}

#[test]
fn clients_names_the_process_at_the_other_end_of_a_unix_socket() {
    let scene = Scene::start(&support::program("beanpoled"), &["-l", "unix:socket"]);
    let mut client = Client::connect_unix(scene.folder.join("socket"));
    client.exchange("use mail", "USING mail");
    let said = scene.out("beanpole -a unix:socket clients mail");
    let process = format!("unix:pid={},uid=", process::id());
    assert!(said.contains(&process), "{said}");
}

#[test]
fn clients_lists_more_connections_than_one_reply_has() {
    let scene = Scene::ours();
    let mut many: Vec<Client> = (0..250).map(|_| scene.connect()).collect();
    many.iter_mut()
        .for_each(|client| client.exchange("use many", "USING many"));
    for sort in ["", "--sort age"] {
        scene.tell(&format!("$ beanpole clients many {sort} | wc -l\n251"));
    }
}

#[test]
fn a_client_that_is_refused_says_that_the_connections_may_have_run_out() {
    let scene = Scene::start(&support::program("beanpoled"), &["--max-connections", "1"]);
    let _holder = scene.connect();
    scene.tell(
        "
        $ beanpole clients
        ! beanpole clients: 127.0.0.1:PORT: <text>: perhaps it has as many connections as it takes
        [3]
        $ beanpole check
        BEANSTALK CRITICAL: 127.0.0.1:PORT: <text>: perhaps it has as many connections as it takes
        [2]",
    );
}

#[test]
fn clients_closes_connections_by_their_numbers_where_the_server_can() {
    on_each_server(&[], |scene| {
        let mut idle = scene.connect();
        idle.exchange("use mail", "USING mail");
        let session = if scene.out("beanpole clients").is_empty() {
            "
            $ beanpole clients --close 1
            ! beanpole clients: close-connection 1: the server does not know this command (UNKNOWN_COMMAND)
            [4]"
        } else {
            "
            $ id() { beanpole clients mail | tail -n 1 | awk '{print $1}'; }; ID=$(id); beanpole clients --close $ID; id; beanpole clients --close $ID 2>&1 | tr -d $ID
            beanpole clients: there is no connection\u{20}
            $ beanpole clients --close 999999 --close x
            ! beanpole clients: --close: 'x' is not the number of a connection
            ! Try 'beanpole help clients'.
            [2]"
        };
        scene.tell(session);
        if session.contains("ID=") {
            idle.expect_end();
        }
    });
}
