"""A small box for the scripts of this directory: a control group with little memory,
and a server in it. Needs root."""

import os
import random
import re
import resource
import socket
import subprocess
import time


class Group:
    """A control group, of the version that the machine has; without a size it has no limit.
    In version 2 the sockets' buffers are memory like any other. A group of version 1 can count
    them beside the rest, so `counts_sockets` makes its peak at least that of version 2."""

    def __init__(self, memory=None, counts_sockets=False):
        first = "/sys/fs/cgroup/memory"
        self.is_first = os.path.exists(f"{first}/memory.limit_in_bytes")
        top = first if self.is_first else "/sys/fs/cgroup"
        if not self.is_first:
            with open(f"{top}/cgroup.subtree_control", "w") as file:
                file.write("+memory")
        self.place = f"{top}/beanpole-box-{os.getpid()}-{time.monotonic_ns()}"
        os.mkdir(self.place)
        self.counts_sockets = counts_sockets and self.is_first
        if self.counts_sockets:
            self.write("memory.kmem.tcp.limit_in_bytes", 1 << 40)
        if memory:
            self.write("memory.limit_in_bytes" if self.is_first else "memory.max", memory)

    def write(self, name, value):
        with open(f"{self.place}/{name}", "w") as file:
            file.write(str(value))

    def read(self, name):
        with open(f"{self.place}/{name}") as file:
            return file.read()

    def used(self):
        """What the group pays for now, in bytes: the kernel's memory for it, too."""
        return int(self.read("memory.usage_in_bytes" if self.is_first else "memory.current"))

    def peak(self):
        peak = int(self.read("memory.max_usage_in_bytes" if self.is_first else "memory.peak"))
        sockets = "memory.kmem.tcp.max_usage_in_bytes"
        return peak + (int(self.read(sockets)) if self.counts_sockets else 0)

    def kills(self):
        events = self.read("memory.oom_control" if self.is_first else "memory.events")
        return int(re.search("^oom_kill ([0-9]+)", events, re.M)[1])

    def close(self):
        os.rmdir(self.place)


class Client:
    """A client, by a number of a port or the path of a Unix socket, perhaps with a buffer of
    this many bytes for what it receives. A reply that does not come in a minute is an error."""

    def __init__(self, place, receives=None):
        is_port = isinstance(place, int)
        self.socket = socket.socket(socket.AF_INET if is_port else socket.AF_UNIX)
        if receives:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
        # With a time limit, Python does not wait in the queue of a Unix socket.
        self.socket.connect(("127.0.0.1", place) if is_port else place)
        self.socket.settimeout(60)
        self.replies = self.socket.makefile("rb")

    def send(self, data):
        self.socket.sendall(data)

    def reply(self):
        line = self.replies.readline()
        assert line, "the server is gone"
        words = line.split()
        if words[0] in (b"FOUND", b"OK", b"RESERVED"):
            self.body = self.replies.read(int(words[-1]) + 2)[:-2]
        return words

    def ask(self, command):
        self.send(command + b"\r\n")
        return self.reply()

    def close(self):
        self.replies.close()
        self.socket.close()


class Server:
    """A server that runs in a group, perhaps with a limit of its own: of which resource, and
    how many bytes."""

    def __init__(self, words, place, group=None, limit=None):
        def become_small():
            if group:
                group.write("cgroup.procs", os.getpid())
            if limit:
                resource.setrlimit(limit[0], (limit[1], limit[1]))

        self.place = place
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, preexec_fn=become_small)
        os.set_blocking(self.process.stderr.fileno(), False)
        self.log = ""
        for _ in range(30_000):
            try:
                self.connect().ask(b"list-tube-used")
                return
            except (OSError, AssertionError):
                assert self.process.poll() is None, self.said()
                time.sleep(0.001)
        raise AssertionError(f"it does not listen: {self.said()}")

    def connect(self, receives=None):
        return Client(self.place, receives)

    def said(self):
        self.log += (self.process.stderr.read() or b"").decode()
        return self.log

    def said_at_its_start(self):
        """The log until it listens. A thread writes it, perhaps after the first reply."""
        while "listening on" not in self.said():
            time.sleep(0.001)
        return self.log

    def status(self, name):
        """A number of bytes in /proc/PID/status."""
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(name)) * 1024

    def end(self, with_signal):
        self.process.send_signal(with_signal)
        return self.process.wait()


def free_port():
    """A port that the system gives no client: one that came too early would be connected
    with itself."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as free:
            try:
                free.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


def put(size, options=b""):
    return b"put 0 0 60 %d%s\r\n%s\r\n" % (size, options, b"x" * size)
