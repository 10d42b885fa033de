"""Tests the program of nightly jobs: nightly_test.py HOST:PORT

The server there must have no jobs. If it does not know the words after a put,
there is nothing to test.
"""

import sys

from nightly import TUBE, enqueue, work
from thirty_lines import Queue

HOST, PORT = sys.argv[1].rsplit(":", 1)


def client():
    return Queue(HOST, int(PORT))


def knows_words():
    queue = client()
    queue.socket.sendall(b"put 0 0 60 0 idp:a con:a try:1\r\nxx\r\n")
    replies = [queue.stream.readline(), queue.stream.readline()]
    assert replies[1] == b"UNKNOWN_COMMAND\r\n"
    return replies[0] != b"BAD_FORMAT\r\n"


def each_job_is_done_once():
    assert enqueue(client(), ["ann", "bob"], "monday") == {"ann": "NEW", "bob": "NEW"}
    assert enqueue(client(), ["ann", "bob"], "monday") == {"ann": "READY", "bob": "READY"}
    done = []
    work(client(), done.append, patience=0)
    assert done == [{"customer": name, "day": "monday"} for name in ["ann", "bob"]]
    assert enqueue(client(), ["ann"], "monday") == {"ann": "DELETED"}


def two_jobs_of_a_customer_run_at_a_time():
    for day in ["tuesday", "wednesday", "thursday"]:
        enqueue(client(), ["ann"], day)
    enqueue(client(), ["bob"], "tuesday")
    queue, days = client(), []
    queue.ask("watch", TUBE)
    for _ in range(3):
        days.append(queue.ask("reserve-with-timeout", 0)[1])
    assert [b"ann" in day for day in days] == [True, True, False]
    assert queue.ask("reserve-with-timeout", 0) == (["TIMED_OUT"], None)
    queue.stream.close()
    queue.socket.close()
    work(client(), lambda job: None, patience=1)


def poison_ends():
    enqueue(client(), ["eve"], "friday")
    for _ in range(3):
        try:
            work(client(), lambda job: 1 / 0, patience=1)
        except ZeroDivisionError:
            pass
        else:
            raise AssertionError("no worker has died")
    work(client(), lambda job: 1 / 0, patience=0)
    queue = client()
    queue.ask("use", TUBE)
    word, number, size = queue.ask("peek-buried")[0]
    assert queue.ask("delete", number) == (["DELETED"], None)


if knows_words():
    each_job_is_done_once()
    two_jobs_of_a_customer_run_at_a_time()
    poison_ends()
