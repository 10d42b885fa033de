//! Putting, looking at, taking and settling jobs.

use super::support::BEANPOLE;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Command;

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
