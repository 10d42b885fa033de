"""Works with a server as users of greenstalk do: greenstalk_test.py HOST:PORT

The server must be a fresh one that takes bodies of 1,000,000 bytes. The status
is 0 if all is as greenstalk and its users expect it.
"""

import socket
import sys
import threading
import time

import greenstalk

HOST, PORT = sys.argv[1].rsplit(":", 1)
ADDRESS = (HOST, int(PORT))
DOWN = 10  # seconds until a server that does not answer is given up


def client(**options):
    return greenstalk.Client(socket.create_connection(ADDRESS, timeout=30), **options)


def refuses(error, function, *arguments, **options):
    """The server must refuse this with this error."""
    try:
        result = function(*arguments, **options)
    except error:
        return
    raise AssertionError(f"no {error.__name__}, but {result!r}")


def await_server():
    deadline = time.monotonic() + DOWN
    while True:
        try:
            return client().close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def a_job_lives():
    with client() as queue:
        first = queue.put("hello")
        assert queue.put("wörld") == first + 1
        job = queue.reserve()
        assert (job.id, job.body) == (first, "hello")
        queue.touch(job)
        queue.delete(job)
        refuses(greenstalk.NotFoundError, queue.delete, job)
        job = queue.reserve(timeout=0)
        assert job.body == "wörld"
        queue.delete(job)
        refuses(greenstalk.TimedOutError, queue.reserve, timeout=0)
        refuses(greenstalk.TimedOutError, queue.reserve, timeout=1)


def tubes_and_watch_lists():
    with client(use="mail", watch=["mail", "images"]) as queue:
        assert queue.using() == "mail"
        assert sorted(queue.watching()) == ["images", "mail"]
        assert queue.watch("mail") == 2
        queue.put("to the default tube?")
        queue.use("images")
        queue.put("a picture", priority=1)
        assert sorted(queue.tubes()) == ["default", "images", "mail"]
        with client() as other:
            refuses(greenstalk.TimedOutError, other.reserve, timeout=0)
        for body in ["a picture", "to the default tube?"]:
            job = queue.reserve(timeout=0)
            assert job.body == body
            queue.delete(job)
        assert queue.ignore("images") == 1
        refuses(greenstalk.NotIgnoredError, queue.ignore, "mail")
        stats = queue.stats_tube("mail")
        assert stats["name"] == "mail"
        assert stats["total-jobs"] == stats["cmd-delete"] == stats["current-watching"] == 1
    with client() as queue:
        refuses(greenstalk.NotFoundError, queue.stats_tube, "mail")


def priorities_and_delays():
    with client(use="order", watch="order") as queue:
        queue.put("late", delay=1)
        latest = queue.put("latest", delay=1000)
        for priority in [5, 0, 2**32 - 1, 5]:
            queue.put(str(priority), priority=priority)
        assert queue.peek_ready().body == "0"
        jobs = [queue.reserve(timeout=DOWN) for _ in range(5)]
        bodies = [job.body for job in jobs if job.body != "late"]
        assert bodies == ["0", "5", "5", str(2**32 - 1)]
        assert queue.stats_tube("order")["current-jobs-reserved"] == 5
        assert queue.peek_delayed().id == latest
        for job in jobs + [latest]:
            queue.delete(job)


def trouble_with_jobs():
    with client(use="trouble", watch="trouble") as queue:
        queue.put("x")
        job = queue.reserve()
        queue.release(job, priority=7)
        job = queue.reserve_job(job.id)
        queue.bury(job, priority=8)
        assert queue.peek_buried().id == job.id
        assert queue.kick(10) == 1
        job = queue.reserve()
        queue.release(job, delay=1000)
        queue.kick_job(job)
        stats = queue.stats_job(job)
        assert set(stats) >= set(greenstalk.StatsJob.__annotations__)
        assert (stats["tube"], stats["state"]) == ("trouble", "ready")
        names = ["pri", "delay", "reserves", "timeouts", "releases", "buries", "kicks"]
        assert [stats[name] for name in names] == [2**16, 1000, 3, 0, 2, 1, 2]
        queue.delete(job.id)
        refuses(greenstalk.NotFoundError, queue.peek, job.id)


def workers_that_fail():
    with client(use="failure", watch="failure") as queue:
        queue.put("x", ttr=2)
        job = queue.reserve()
        # The client waits for another job while it holds this one, and gets
        # DEADLINE_SOON.
        refuses(greenstalk.DeadlineSoonError, queue.reserve)
        # The client ignores that, and loses the job. beanstalkd often does not
        # notice this before the client sends something.
        while queue.stats_job(job)["state"] == "reserved":
            time.sleep(0.01)
        with client(watch="failure") as other:
            job = other.reserve(timeout=0)
            assert other.stats_job(job)["timeouts"] == 1
            refuses(greenstalk.NotFoundError, queue.touch, job)
        # The other client has gone, and its job is ready again.
        job = queue.reserve(timeout=DOWN)
        assert queue.stats_job(job)["reserves"] == 3
        queue.delete(job)


def pauses():
    with client(use="pause", watch="pause") as queue:
        queue.put("x")
        queue.pause_tube("pause", 1000)
        assert queue.stats_tube("pause")["pause"] == 1000
        refuses(greenstalk.TimedOutError, queue.reserve, timeout=0)
        queue.pause_tube("pause", 1)
        queue.delete(queue.reserve(timeout=DOWN))
        refuses(greenstalk.NotFoundError, queue.pause_tube, "none", 1)


def bodies():
    with client(encoding=None) as queue:
        everything = bytes(range(256))
        for body in [b"", b"\r\n", everything, everything * 300, bytes(1_000_000)]:
            queue.put(body)
            job = queue.reserve(timeout=0)
            assert job.body == body
            queue.delete(job)
        refuses(greenstalk.JobTooBigError, queue.put, bytes(1_000_001))
        assert queue.using() == "default"


def workers():
    """Two producers and three workers, each with a connection of its own."""
    done = []

    def produce(name):
        with client(use="work") as queue:
            for number in range(200):
                queue.put(f"{name} {number}")

    def work():
        with client(watch="work") as queue:
            while True:
                job = queue.reserve()
                queue.delete(job)
                if job.body == "enough":
                    return
                done.append(job.body)

    producers = [threading.Thread(target=produce, args=[name]) for name in "ab"]
    all_workers = [threading.Thread(target=work) for _ in range(3)]
    for thread in producers + all_workers:
        thread.daemon = True
        thread.start()
    for thread in producers:
        thread.join()
    with client(use="work") as queue:
        for _ in all_workers:
            queue.put("enough", priority=2**32 - 1)
    for thread in all_workers:
        thread.join()
    assert sorted(done) == sorted(f"{name} {number}" for name in "ab" for number in range(200))


def statistics():
    with client() as queue:
        stats = queue.stats()
        assert set(stats) >= set(greenstalk.Stats.__annotations__)
        for state in ["urgent", "ready", "reserved", "delayed", "buried"]:
            assert stats[f"current-jobs-{state}"] == 0
        assert stats["max-job-size"] == 1_000_000
        assert stats["draining"] == "false"
        tube = queue.stats_tube("default")
        assert set(tube) >= set(greenstalk.StatsTube.__annotations__)


await_server()
for story in [
    a_job_lives,
    tubes_and_watch_lists,
    priorities_and_delays,
    trouble_with_jobs,
    workers_that_fail,
    pauses,
    bodies,
    workers,
    statistics,
]:
    story()
