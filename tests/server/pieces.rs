//! How bytes travel: bodies of all sizes come in segments of all sizes, and
//! each reply goes out in one piece.

use support::Server;
use support::{Client, Random, put};

/// Sends bytes in segments of random sizes.
fn send_in_segments(client: &mut Client, mut bytes: &[u8], random: &mut Random) {
    while !bytes.is_empty() {
        let most = [1, 10, 1000, 100_000][random.below(4)];
        let (segment, rest) = bytes.split_at((1 + random.below(most)).min(bytes.len()));
        client.send(segment);
        bytes = rest;
    }
}

#[test]
fn bodies_of_all_sizes_are_returned_unchanged() {
    const LIMIT: usize = 10 << 20;
    let sizes = [
        0, 1, 2, 100, 1023, 1024, 4000, 16382, 16383, 16384, 16385, 16386, 65535, LIMIT,
    ];
    let server = Server::start(["-z", &LIMIT.to_string()]);
    let mut client = server.connect();
    let mut random = Random::new(1);
    for size in sizes {
        let body = random.bytes(size);
        for in_segments in [false, true] {
            let bytes = [&put(&body)[..], b"reserve\r\n"].concat();
            if in_segments {
                send_in_segments(&mut client, &bytes, &mut random)
            } else {
                client.send(&bytes)
            }
            let id = client.inserted();
            let job = client.job();
            assert_eq!(job.id, id);
            assert!(job.body == body, "{size} bytes");
            client.delete(id);
        }
    }
    let too_big = put(&random.bytes(LIMIT + 1));
    send_in_segments(&mut client, &too_big, &mut random);
    client.expect("JOB_TOO_BIG\r\n");
    // A body without its CR LF.
    client.send(format!("put 0 0 60 {LIMIT}\r\n"));
    client.send(random.bytes(LIMIT));
    client.send("xx");
    client.expect("EXPECTED_CRLF\r\n");
    assert_eq!(client.ask("list-tube-used"), "USING default");
}

#[test]
fn commands_sent_in_one_piece_are_answered_in_one_piece() {
    let server = Server::start([]);
    let mut client = server.connect();
    for size in [0, 1, 100, 2047, 2048, 4000, 16384] {
        for _ in 0..20 {
            let id = client.put(vec![b'x'; size]);
            client.send(format!(
                "reserve\r\nnonsense\r\ntouch {id}\r\nlist-tubes\r\npeek {id}\r\ndelete {id}\r\n"
            ));
            let body = "x".repeat(size);
            let expected = format!(
                "RESERVED {id} {size}\r\n{body}\r\nUNKNOWN_COMMAND\r\nTOUCHED\r\n\
                 OK 14\r\n---\n- default\n\r\nFOUND {id} {size}\r\n{body}\r\nDELETED\r\n"
            );
            assert_eq!(client.receive_once(), expected.into_bytes());
        }
    }
}
