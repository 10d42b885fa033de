"""What clients do to a server in a small box, by name: each takes a `Play`, the same in every
kind of box. As many clients come as the server allows by itself. Nothing they do may end
it; afterwards a fresh client is served, and each job that was acknowledged is there.
"""

import os
import re
import socket
import struct
import time

from box import put

BATCH = 50
LONG_NAME = b"n" * 190
# So that the memory is full to the last bytes: the smallest come last.
SIZES = [60_000, 9000, 2000, 40]
# How many short commands a client sends. (In an emulated machine they are fewer: there, and
# over its network, all of them would take many minutes.)
MANY = 30_000
SCENES = {}


class Play:
    """A server that has just started, its clients, and the jobs that it has acknowledged."""

    def __init__(self, server):
        self.server = server
        said = server.said_at_its_start()
        self.most, self.room = (int(number) for number in re.findall("at most ([0-9]+)", said))
        self.clients, self.jobs = [], {}
        self.owner = server.connect()

    def crowd(self):
        """As many clients as may come; each has had a reply. They come with small buffers, so
        that it is the server which holds what they do not read."""
        while len(self.clients) + 1 < self.most:
            self.clients.append(self.newcomer(receives=2048))
        return self.clients

    def newcomer(self, receives=None):
        """A client that has had a reply. Those who have left may still be leaving."""
        for _ in range(3000):
            try:
                client = self.server.connect(receives)
                assert client.ask(b"list-tube-used") == [b"USING", b"default"]
                return client
            except (AssertionError, ConnectionError) as error:
                refused = error
                time.sleep(0.01)
        raise refused

    def say(self, text):
        """Everybody sends this, as far as it is taken, and reads nothing."""
        for number, client in enumerate(self.crowd()):
            client.socket.setblocking(False)
            try:
                client.socket.send(text(number) if callable(text) else text)
            except BlockingIOError:
                pass
        self.settle()

    def settle(self):
        """Waits until nothing changes any more."""
        before, now = None, self.seen()
        while before != now:
            time.sleep(0.1)
            before, now = now, self.seen()

    def seen(self):
        assert self.owner.ask(b"list-server-stats")[0] == b"OK"
        keys = rb"^(?:memory-used|cmd-(?!stats).*|current-.*): ([0-9]+)$"
        return re.findall(keys, self.owner.body, re.M)

    def leave(self):
        """All but the owner go at once, whatever is still on its way to the server."""
        for client in self.clients:
            at_once = struct.pack("ii", 1, 0)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
            client.close()
        self.clients = []

    def put(self, size, options=b""):
        """A batch of jobs. Returns whether one of them was taken."""
        self.owner.send(put(size, options) * BATCH)
        replies = [self.owner.reply() for _ in range(BATCH)]
        assert all(words[0] in (b"INSERTED", b"OUT_OF_MEMORY") for words in replies), replies
        taken = [int(words[1]) for words in replies if words[0] == b"INSERTED"]
        self.jobs.update(dict.fromkeys(taken, size))
        return bool(taken)

    def fill(self, sizes=SIZES):
        """Puts jobs until none is taken any more."""
        for size in sizes:
            while self.put(size):
                pass

    def verify(self):
        """A fresh client finds all jobs that were acknowledged, and can work them off."""
        self.leave()
        fresh, left = self.newcomer(), sorted(self.jobs)
        for some in (left[at : at + BATCH] for at in range(0, len(left), BATCH)):
            fresh.send(b"".join(b"peek %d\r\ndelete %d\r\n" % (job, job) for job in some))
            for job in some:
                words = fresh.reply()
                assert words == [b"FOUND", b"%d" % job, b"%d" % self.jobs[job]], (job, words)
                assert fresh.reply() == [b"DELETED"]
        fresh.send(put(40))
        job = fresh.reply()
        assert job[0] == b"INSERTED", job
        assert fresh.ask(b"reserve-job " + job[1])[0] == b"RESERVED"
        assert fresh.ask(b"delete " + job[1]) == [b"DELETED"]
        fresh.close()


def chosen():
    """All scenes, or those whose names have one of the words of SCENES."""
    words = os.environ.get("SCENES", "").split(",")
    return [(name, play) for name, play in SCENES.items() if any(word in name for word in words)]


def scene(name):
    def add(function):
        SCENES[name] = function
        return function

    return add


def unread(command):
    """While there is room, then when all is full, and then once more when jobs have made room."""

    def play(box):
        box.say(command)
        box.fill()
        box.leave()
        box.say(command)
        box.fill()

    return play


@scene("lists of all tubes, unread")
def long_lists(box):
    # Tubes with a job, up to two thirds of the memory.
    for number in range(box.room // 1700 * 2 // 3):
        box.owner.send(b"use %s%06d\r\n" % (LONG_NAME, number) + put(0))
        assert box.owner.reply()[0] == b"USING"
        box.jobs[int(box.owner.reply()[1])] = 0
    unread(b"list-tubes\r\n" * 30)(box)


@scene("short lists of all tubes, unread")
def short_lists(box):
    # Some 60 kB.
    for number in range(300):
        box.owner.ask(b"watch %s%06d" % (LONG_NAME, number))
    unread(b"list-tubes\r\n" * 30)(box)


@scene("lists of watched tubes, unread")
def watch_lists(box):
    # All the tubes exist, so a client may watch a hundred of them even when all is full.
    watch = b"".join(b"watch %s%06d\r\n" % (LONG_NAME, number) for number in range(100))
    box.owner.send(watch)
    for _ in range(100):
        assert box.owner.reply()[0] == b"WATCHING"
    for client in box.crowd():
        client.send(watch)
        for _ in range(100):
            assert client.reply()[0] == b"WATCHING"
    unread(b"list-tubes-watched\r\n" * 30)(box)
    box.leave()
    for client in box.crowd():
        client.send(watch)
        for _ in range(100):
            assert client.reply()[0] == b"WATCHING"


@scene("watch lists as long as they may be")
def long_watch_lists(box):
    for client in box.crowd():
        client.socket.setblocking(False)
        for part in range(3):
            names = range(100 * part, 100 * part + 100)
            try:
                client.socket.send(b"".join(b"watch %s%06d\r\n" % (LONG_NAME, n) for n in names))
            except BlockingIOError:
                pass
    box.settle()
    box.fill()


def of_many_jobs(command):
    def play(box):
        while len(box.jobs) < 2000 and box.put(40):
            pass
        unread(command)(box)

    return play


SCENES["lists of jobs, unread"] = of_many_jobs(b"list-jobs 0 1000\r\n" * 30)


@scene("lists of jobs with options, unread")
def long_jobs(box):
    box.owner.ask(b"use %s" % LONG_NAME)
    for number in range(1000):
        key = b"k" * 56 + b"%d" % number
        box.owner.send(put(1, b" idp:%s con:%s" % (key, key)))
        words = box.owner.reply()
        if words[0] != b"INSERTED":
            break
        box.jobs[int(words[1])] = 1
    unread(b"list-jobs 0 1000\r\n" * 30)(box)


@scene("lists of connections, unread")
def connections(box):
    for client in box.crowd():
        client.ask(b"use " + LONG_NAME)
    unread(b"list-connections 0 100\r\n" * 30)(box)


@scene("lists of statistics of tubes, unread")
def tube_stats(box):
    for number in range(100):
        box.owner.ask(b"watch %s%06d" % (LONG_NAME, number))
    unread(b"list-tube-stats 0 100\r\n" * 30)(box)


SCENES["statistics, unread"] = unread(b"stats\r\n" * 300)


@scene("statistics of a job and a tube, unread")
def small_stats(box):
    box.put(40)
    unread(b"stats-job 1\r\nstats-tube default\r\n" * 200)(box)


def peeks(size):
    def play(box):
        box.put(size)
        unread(b"peek 1\r\n" * 120)(box)

    return play


SCENES["peeks of 60 kB, unread"] = peeks(60_000)
SCENES["peeks of 2 kB, unread"] = peeks(2000)


@scene("small replies, unread")
def small_replies(box):
    unread(b"peek-ready\r\n" * MANY)(box)


@scene("names of tubes, unread")
def names(box):
    unread(b"use %s\r\n" % LONG_NAME + b"list-tube-used\r\n" * MANY)(box)


@scene("pipelines behind a reserve")
def pipelines(box):
    box.owner.ask(b"use another")
    unread(b"reserve\r\n" + b"peek 1\r\n" * MANY)(box)


@scene("half-sent bodies")
def half_bodies(box):
    def half(number):
        size = [65_000, 16_000, 300, 30_000][number % 4]
        return b"put 0 0 60 %d\r\n" % size + b"x" * (size - 1)

    unread(half)(box)


@scene("half-sent commands")
def half_commands(box):
    unread(lambda number: b"y" * [5000, 600, 100_000, 40][number % 4])(box)


@scene("more comers than slots")
def comers(box):
    box.crowd()
    for _ in range(3):
        late = []
        for _ in range(box.most):
            try:
                late.append(box.server.connect())
            except OSError:
                pass
        for client in late:
            client.socket.setblocking(False)
            try:
                client.send(b"stats\r\n")
            except OSError:
                pass
        box.settle()
        for client in late:
            client.close()
    box.fill()


@scene("keys of deleted jobs")
def keys(box):
    number = refused = 0
    while refused < BATCH:
        names = [b"k%d-%s" % (number + more, b"n" * 50) for more in range(BATCH)]
        number += BATCH
        box.owner.send(b"".join(put(0, b" idp:%s:31536000" % name) for name in names))
        replies = [box.owner.reply() for _ in names]
        ids = [words[1] for words in replies if words[0] == b"INSERTED"]
        refused = BATCH - len(ids)
        box.owner.send(b"".join(b"delete %s\r\n" % job for job in ids))
        assert all(box.owner.reply() == [b"DELETED"] for _ in ids)
    box.crowd()
    box.fill()
    taken = sum(size + 200 for size in box.jobs.values())
    assert taken > box.room / 2, f"keys of deleted jobs leave {taken} of {box.room} bytes to jobs"


@scene("all jobs change when all is full")
def changes(box):
    box.crowd()
    box.fill([1000, 0])
    left = sorted(box.jobs)
    for change in (b"release %d 5 0", b"bury %d 7", b"release %d 9 3600"):
        for some in (left[at : at + BATCH] for at in range(0, len(left), BATCH)):
            box.owner.send(b"".join(b"reserve-job %d\r\n%b\r\n" % (job, change % job) for job in some))
            for _ in some:
                assert box.owner.reply()[0] == b"RESERVED"
                assert box.owner.reply()[0] in (b"RELEASED", b"BURIED")


def worked_off(*sizes):
    """All but one wait; there are as many jobs as fit; then all of them work."""

    def play(box):
        for client in box.crowd():
            client.send(b"watch nothing\r\nignore default\r\nreserve\r\n")
            assert [client.reply()[0], client.reply()[0]] == [b"WATCHING"] * 2
        box.fill(sizes)
        count = len(box.jobs)

        def drain(client, most):
            # Deletes of what a client has not reserved yet could not be sent along.
            while most > 0:
                client.send(b"reserve-with-timeout 0\r\n" * BATCH)
                replies = [client.reply() for _ in range(BATCH)]
                ids = [int(words[1]) for words in replies if words[0] == b"RESERVED"]
                client.send(b"".join(b"delete %d\r\n" % job for job in ids))
                for job in ids:
                    assert client.reply() == [b"DELETED"]
                    del box.jobs[job]
                most -= BATCH if ids else most

        # There is room again for a job for each that waits, and then they help.
        drain(box.owner, count // 2)
        box.owner.ask(b"use nothing")
        for client in box.clients:
            box.owner.send(put(0))
            assert box.owner.reply()[0] == b"INSERTED"
        for client in box.clients:
            job = client.reply()
            assert job[0] == b"RESERVED", job
            assert client.ask(b"delete " + job[1]) == [b"DELETED"]
            client.ask(b"watch default")
        for client in box.clients:
            drain(client, len(box.jobs) // len(box.clients) + BATCH)
        drain(box.owner, 1 << 40)
        assert not box.jobs, f"{len(box.jobs)} jobs are lost"

    return play


SCENES["jobs of 1000 bytes, worked off"] = worked_off(1000)
SCENES["jobs of 0 bytes, worked off"] = worked_off(0)
SCENES["jobs of all sizes, worked off"] = worked_off(60_000, 10, 3000, 200, 40, 20_000, 700)
