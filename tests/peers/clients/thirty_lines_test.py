"""Tests the Python client of thirty lines: thirty_lines_test.py HOST:PORT

The server there must have no jobs, and take bodies of 1,000,000 bytes. The
status is 0 if the client works well with it.
"""

import socket
import sys
import threading

from thirty_lines import Queue

HOST, PORT = sys.argv[1].rsplit(":", 1)


def client():
    return Queue(HOST, int(PORT))


def refuses(error, function, *arguments, **options):
    """The client must refuse this with this error."""
    try:
        result = function(*arguments, **options)
    except error:
        return
    raise AssertionError(f"no {error.__name__}, but {result!r}")


def every_body_comes_back():
    queue = client()
    everything = bytes(range(256))
    for body in [b"", b"\r\n", everything, everything * 300, bytes(1_000_000)]:
        (word, number), chunk = queue.ask("put", 0, 0, 60, body=body)
        assert (word, chunk) == ("INSERTED", None)
        assert queue.ask("reserve") == (["RESERVED", number, str(len(body))], body)
        assert queue.ask("delete", number) == (["DELETED"], None)
    assert queue.ask("put", 0, 0, 60, body=bytes(1_000_001)) == (["JOB_TOO_BIG"], None)
    assert queue.ask("reserve-with-timeout", 0) == (["TIMED_OUT"], None)


def one_waits_until_the_other_puts():
    worker, producer = client(), client()
    answers = []
    assert worker.ask("watch", "mail") == (["WATCHING", "2"], None)
    thread = threading.Thread(target=lambda: answers.append(worker.ask("reserve")))
    thread.start()
    while b"current-waiting: 1" not in producer.ask("stats-tube", "mail")[1]:
        pass
    assert producer.ask("use", "mail") == (["USING", "mail"], None)
    (_, number), _ = producer.ask("put", 0, 0, 60, body=b"hello")
    thread.join()
    assert answers == [(["RESERVED", number, "5"], b"hello")]
    assert worker.ask("bury", number, 0) == (["BURIED"], None)
    assert producer.ask("kick-job", number) == (["KICKED"], None)
    assert producer.ask("delete", number) == (["DELETED"], None)
    assert producer.ask("list-tubes")[1] == b"---\n- default\n- mail\n"


def after_an_error_the_job_is_free_at_once():
    worker, other = client(), client()
    (_, number), _ = other.ask("put", 0, 0, 60, body=b"hello")
    assert worker.ask("reserve") == (["RESERVED", number, "5"], b"hello")
    refuses(ConnectionError, worker.ask, "put", "soon", 0, 60, body=b"hello")
    # The server sees the end of the connection, and the worker is still there.
    assert other.ask("reserve-with-timeout", 5) == (["RESERVED", number, "5"], b"hello")
    assert other.ask("delete", number) == (["DELETED"], None)
    # The reply to the body, which was read as a command, is taken for nothing.
    refuses((OSError, ValueError), worker.ask, "list-tube-used")


def what_is_wrong_is_an_error():
    refuses(ValueError, client().ask, "use", "mail\r\ndelete 1")
    refuses(ConnectionError, client().ask, "use", "not a tube")
    refuses(ConnectionError, client().ask, "nonsense")
    refuses(ConnectionError, client().ask, "quit")


def after_what_is_no_reply_it_is_closed():
    """Something answers that is no queue. It sees that the client has left."""
    listener = socket.create_server(("127.0.0.1", 0))
    for reply in [b"\r\n", b"\xff\r\n", b"OK\r\n", b"OK -9\r\n", b"FOUND 1 x\r\n", b"OK %d\r\n" % 10**20]:
        queue = Queue(*listener.getsockname())
        other, _ = listener.accept()
        other.settimeout(10)
        other.sendall(reply)
        refuses(Exception, queue.ask, "stats")
        assert other.recv(100) == b"stats\r\n" and other.recv(100) == b"", reply
        refuses((OSError, ValueError), queue.ask, "stats")
        other.close()
    listener.close()


every_body_comes_back()
one_waits_until_the_other_puts()
after_an_error_the_job_is_free_at_once()
what_is_wrong_is_an_error()
after_what_is_no_reply_it_is_closed()
