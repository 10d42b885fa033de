"""Tests the Python client of thirty lines: thirty_lines_test.py HOST:PORT

The server there must have no jobs, and take bodies of 1,000,000 bytes. The
status is 0 if the client works well with it.
"""

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


def what_is_wrong_is_an_error():
    refuses(ValueError, client().ask, "use", "mail\r\ndelete 1")
    refuses(ConnectionError, client().ask, "use", "not a tube")
    refuses(ConnectionError, client().ask, "nonsense")
    refuses(ConnectionError, client().ask, "quit")


every_body_comes_back()
one_waits_until_the_other_puts()
what_is_wrong_is_an_error()
