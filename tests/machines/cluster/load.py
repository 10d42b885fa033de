"""A load that notes what it was promised: each put and each delete that was
acknowledged, which server process has acknowledged it, and when.
"""

import random
import re
import socket
import threading
import time


class Broken(Exception):
    """The connection has failed, or something wrong has come over it."""


class Connection:
    """The connection of a client to the server on the same machine, which is not cut
    when the machine's link is cut, or to another one."""

    def __init__(self, machine, seconds=None, address="127.0.0.1"):
        self.socket = machine.socket()
        self.socket.settimeout(seconds)
        try:
            self.socket.connect((address, 11300))
        except OSError as error:
            self.socket.close()
            raise Broken(str(error)) from error
        self.replies = self.socket.makefile("rb")

    def close(self):
        self.replies.close()
        self.socket.close()

    def ask(self, command):
        self.send(command)
        return self.line()

    def send(self, command):
        try:
            self.socket.sendall(command)
        except OSError as error:
            raise Broken(str(error)) from error

    def line(self):
        try:
            line = self.replies.readline()
        except OSError as error:
            raise Broken(str(error)) from error
        if not line.endswith(b"\r\n"):
            raise Broken("closed")
        return line[:-2].decode()

    def body(self, line):
        length = int(line.split()[-1])
        try:
            body = self.replies.read(length + 2)
        except OSError as error:
            raise Broken(str(error)) from error
        if len(body) != length + 2:
            raise Broken("closed")
        return body[:-2]

    def stats(self, command="stats"):
        line = self.ask(f"{command}\r\n".encode())
        if not line.startswith("OK "):
            raise Broken(line)
        return dict(re.findall(r'^([\w-]+): "?(.*?)"?$', self.body(line).decode(), re.M))


class Ledger:
    """What was promised, and the faults that were found."""

    def __init__(self):
        self.lock = threading.Lock()
        self.bodies = {}
        self.asked_to_delete = set()
        # The jobs whose deletion was acknowledged, and when.
        self.deleted = {}
        # The server processes, in the order of their first acknowledgement.
        self.servers = []
        # When each of them acknowledged for the first and for the last time.
        self.first = {}
        self.last = {}
        self.puts = self.deletes = self.reserves = 0
        self.faults = []

    def acknowledged(self, server, asked, answered):
        """Notes when this server was asked, and when it has answered. The caller
        holds the lock."""
        if server not in self.first:
            self.servers.append(server)
            self.first[server] = answered
        self.last[server] = answered
        later = self.servers[self.servers.index(server) + 1:]
        for other in later:
            if self.first[other] < asked:
                late = asked - self.first[other]
                self.fault(f"{server} acknowledged {late:.1f} s after {other} had begun to")

    def fault(self, what):
        self.faults.append(what)

    def put(self, server, number, body, asked, answered):
        with self.lock:
            self.acknowledged(server, asked, answered)
            self.puts += 1
            if number in self.bodies:
                self.fault(f"id {number} for {body!r} and for {self.bodies[number]!r}")
            self.bodies[number] = body

    def delete(self, server, number, asked, answered):
        with self.lock:
            self.acknowledged(server, asked, answered)
            self.deletes += 1
            self.deleted[number] = answered

    def told(self, server, asked, answered):
        """Notes a reply that tells of jobs and acknowledges nothing. It may come from
        one server only at a time."""
        with self.lock:
            self.reserves += 1
            later = self.servers[self.servers.index(server) + 1:] if server in self.first else []
            for other in later:
                if self.first[other] < asked:
                    late = asked - self.first[other]
                    self.fault(f"{server} tells of jobs {late:.1f} s after {other} had begun to")

    def reserved(self, server, number, asked, answered):
        self.told(server, asked, answered)
        with self.lock:
            if self.deleted.get(number, answered) < asked:
                self.fault(f"job {number} was deleted, and {server} hands it out")

    def compare(self, connection):
        """Looks for each job that was ever promised; how many were looked for."""
        numbers = sorted(number for number, body in self.bodies.items() if body is not None)
        for start in range(0, len(numbers), 100):
            some = numbers[start:start + 100]
            connection.send(b"".join(b"peek %d\r\n" % number for number in some))
            for number in some:
                line = connection.line()
                body = connection.body(line) if line.startswith("FOUND") else None
                self.found(number, body)
        return len(numbers)

    def found(self, number, body):
        if body is None and number in self.asked_to_delete:
            # It need not be looked for again. But no other job may get its id.
            self.bodies[number] = None
        elif body is None:
            self.fault(f"job {number} is lost")
        elif body != self.bodies[number]:
            self.fault(f"job {number} is {body!r}, not {self.bodies[number]!r}")
        elif number in self.deleted:
            self.fault(f"job {number} was deleted and is back")


class Client(threading.Thread):
    """Works at the first server that answers, while it does: one that puts jobs, and
    deletes some of them."""

    # How long a silent server counts as one that answers; None: for ever.
    patience = None

    def __init__(self, machine, ledger, name, addresses=("127.0.0.1",)):
        super().__init__(name=name, daemon=True)
        self.machine = machine
        self.ledger = ledger
        self.addresses = addresses
        self.random = random.Random(name)
        self.mine = []
        self.sequence = 0
        self.may_run = threading.Event()
        self.is_resting = threading.Event()
        self.connection = None

    def run(self):
        while True:
            if not self.may_run.is_set():
                self.is_resting.set()
                self.may_run.wait()
                self.is_resting.clear()
            for address in self.addresses:
                try:
                    self.work(address)
                except Broken:
                    pass
                if self.connection:
                    self.connection.close()
                    self.connection = None
            time.sleep(0.01)

    def work(self, address):
        is_outside = address != "127.0.0.1"
        self.connection = Connection(self.machine, 3 if is_outside else None, address)
        pid = self.connection.stats()["pid"]
        server = f"{address if is_outside else self.machine.address}:{pid}"
        self.begin()
        while self.may_run.is_set():
            self.step(server)

    def begin(self):
        """What comes first on each connection."""

    def step(self, server):
        if self.mine and self.random.random() < 0.4:
            self.delete(server, self.mine.pop(self.random.randrange(len(self.mine))))
        else:
            self.put(server)

    def put(self, server):
        self.sequence += 1
        is_for_workers = self.random.random() < 0.4
        filling = b"." * self.random.randrange(300)
        body = b"%s-%d%s" % (self.name.encode(), self.sequence, filling)
        asked = time.monotonic()
        tube = b"work" if is_for_workers else b"default"
        put = b"use %s\r\nput 0 0 60 %d\r\n%s\r\n" % (tube, len(body), body)
        if self.connection.ask(put) != f"USING {tube.decode()}":
            raise Broken("use")
        line = self.connection.line()
        answered = time.monotonic()
        if not line.startswith("INSERTED "):
            raise Broken(line)
        number = int(line.split()[1])
        self.ledger.put(server, number, body, asked, answered)
        if not is_for_workers:
            self.mine.append(number)

    def delete(self, server, number):
        self.ledger.asked_to_delete.add(number)
        asked = time.monotonic()
        line = self.connection.ask(b"delete %d\r\n" % number)
        answered = time.monotonic()
        if line != "DELETED":
            if line == "NOT_FOUND":
                with self.ledger.lock:
                    self.ledger.fault(f"job {number} is not found when it is to be deleted")
            raise Broken(line)
        self.ledger.delete(server, number, asked, answered)


class Worker(Client):
    """One that reserves jobs, and deletes most of them."""

    def begin(self):
        self.connection.ask(b"watch work\r\n")
        self.connection.ask(b"ignore default\r\n")

    def step(self, server):
        asked = time.monotonic()
        line = self.connection.ask(b"reserve-with-timeout 1\r\n")
        answered = time.monotonic()
        if line == "TIMED_OUT":
            # It may have been asked before another server began.
            return self.ledger.told(server, max(asked, answered - 0.5), answered)
        if not line.startswith("RESERVED "):
            raise Broken(line)
        number = int(line.split()[1])
        self.connection.body(line)
        self.ledger.reserved(server, number, asked, answered)
        if self.random.random() < 0.7:
            self.delete(server, number)
        elif self.connection.ask(b"release %d 0 0\r\n" % number) == "RELEASED":
            # Others come first.
            time.sleep(0.05)
