"""Works with a server as users of pystalk do: pystalk_test.py HOST:PORT

The server must have no jobs, and take bodies of 1,000,000 bytes. The status is
0 if all is as pystalk and its users expect it.
"""

import sys

from pystalk import BeanstalkClient, BeanstalkError, ProductionPool

HOST, PORT = sys.argv[1].rsplit(":", 1)
URI = f"beanstalk://{HOST}:{PORT}"
PATIENCE = 30  # seconds until a server that does not answer is given up


def client(**options):
    return BeanstalkClient(HOST, int(PORT), socket_timeout=PATIENCE, **options)


def refuses(message, function, *arguments, **options):
    """The server must refuse this with this message."""
    try:
        result = function(*arguments, **options)
    except BeanstalkError as error:
        assert error.message == message, error
        return
    raise AssertionError(f"no {message}, but {result!r}")


def a_job_lives():
    queue = client(auto_decode=True)
    assert queue.ping()
    status, number = queue.put_job("hällo")
    assert status == b"INSERTED"
    job = queue.reserve_job(0)
    assert (job.job_id, job.job_data) == (number, "hällo")
    assert queue.stats_job(job)["state"] == "reserved"
    queue.delete_job(job)
    refuses("NOT_FOUND", queue.delete_job, job)
    refuses("NOT_FOUND", queue.stats_job, job)
    refuses("TIMED_OUT", queue.reserve_job, 0)
    refuses("TIMED_OUT", queue.reserve_job, 1)
    queue.close()


def tubes_and_watch_lists():
    queue = client()
    queue.watchlist = ["mail", "images"]
    with queue.using("mail") as mail:
        mail.put_job(b"a letter")
        mail.put_job(b"an urgent letter", pri=1)
    queue.put_job_into("images", b"a picture")
    queue.put_job(b"not for us")
    assert sorted(queue.list_tubes()) == ["default", "images", "mail"]
    assert queue.stats_tube("mail")["current-jobs-urgent"] == 1
    jobs = list(queue.reserve_iter())
    assert [job.job_data for job in jobs] == [b"an urgent letter", b"a letter", b"a picture"]
    for job in jobs:
        queue.delete_job(job)
    # After it has connected again, the client uses and watches the same tubes.
    queue.close()
    refuses("TIMED_OUT", queue.reserve_job, 0)
    queue.watchlist = ["default"]
    queue.delete_job(queue.reserve_job(0))
    queue.close()


def trouble_with_jobs():
    queue = client()
    queue.use("trouble")
    queue.watch("trouble")
    for _ in range(3):
        queue.put_job(b"x", pri=5)
    first, second, third = queue.reserve_iter()
    assert queue.bury_job(first) == b"BURIED"
    assert queue.bury_job(second) == b"BURIED"
    assert queue.release_job(third, delay=100) == b"RELEASED"
    assert queue.peek_buried() == first
    assert queue.peek_delayed() == third
    assert queue.stats_job(third)["delay"] == 100
    assert queue.kick_jobs(1) == (b"KICKED", 1)
    assert queue.peek_ready() == first
    queue.kick_job(second)
    queue.kick_job(third)
    refuses("NOT_FOUND", queue.kick_job, third)
    for job in queue.reserve_iter():
        queue.delete_job(job)
    stats = queue.stats_tube("trouble")
    assert stats["cmd-delete"] == stats["total-jobs"] == 3
    queue.close()


def time_passes():
    queue = client()
    queue.put_job(b"x", delay=1)
    job = queue.reserve_job(10)
    queue.release_job(job, delay=1000)
    refuses("NOT_FOUND", queue.peek_ready)
    queue.kick_job(job)
    queue.pause_tube("default", 1000)
    refuses("TIMED_OUT", queue.reserve_job, 0)
    queue.unpause_tube("default")
    job = queue.reserve_job(10)
    assert queue.stats_job(job)["reserves"] == 2
    queue.delete_job(job)
    queue.put_job(b"y", ttr=2)
    job = queue.reserve_job(0)
    # The client waits for another job while it holds this one, and gets
    # DEADLINE_SOON.
    refuses("DEADLINE_SOON", queue.reserve_job, 10)
    queue.delete_job(job)
    queue.close()


def bodies():
    queue = client()
    everything = bytes(range(256))
    for body in [b"", b"\r\n", everything, everything * 300, bytes(1_000_000)]:
        queue.put_job(body)
        job = queue.reserve_job(0)
        assert job.job_data == body
        queue.delete_job(job)
    refuses("JOB_TOO_BIG", queue.put_job, bytes(1_000_001))
    refuses("BAD_FORMAT", queue.use, "not a tube")
    queue.close()


def a_pool_of_producers():
    pool = ProductionPool.from_uris([URI, URI], socket_timeout=PATIENCE)
    pool.use("pool")
    for number in range(10):
        pool.put_job(str(number))
    queue = client(auto_decode=True)
    queue.watch("pool")
    jobs = list(queue.reserve_iter())
    assert [job.job_data for job in jobs] == [str(number) for number in range(10)]
    for job in jobs:
        queue.delete_job(job)
    queue.close()


def statistics():
    queue = client()
    stats = queue.stats()
    for state in ["urgent", "ready", "reserved", "delayed", "buried"]:
        assert stats[f"current-jobs-{state}"] == 0
    assert stats["max-job-size"] == 1_000_000
    assert stats["draining"] is False
    assert isinstance(stats["version"], str)
    queue.close()


for story in [
    a_job_lives,
    tubes_and_watch_lists,
    trouble_with_jobs,
    time_passes,
    bodies,
    a_pool_of_producers,
    statistics,
]:
    story()
