"""Six scenes of trouble. In each of them `why`, `check`, `metrics`, `top` and the page
of the console name the cause within two seconds, and no other trouble."""

import contextlib
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request

SOON = 2


class Client:
    """A connection that speaks the protocol."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.replies = self.socket.makefile("rb")

    def ask(self, *lines):
        """Sends lines, and returns the last line of as many replies."""
        self.socket.sendall(b"".join(line + b"\r\n" for line in lines))
        return [self.replies.readline() for line in lines if not line.startswith(b"put ")][-1]

    def put(self, body, ttr=60):
        return self.ask(b"put 9 0 %d %d" % (ttr, len(body)), body)

    def reserve(self):
        self.ask(b"reserve")
        self.replies.readline()

    def close(self):
        self.replies.close()
        self.socket.close()


class Scene:
    """A server, and what the tools say of it."""

    def __init__(self, programs, port, options, browser):
        self.beanpole, self.port, self.browser = programs[1], port, browser
        self.server = subprocess.Popen([programs[0], "-l", "127.0.0.1", "-p", str(port), *options], stderr=subprocess.PIPE, text=True)

    def client(self, *lines):
        until = time.monotonic() + 60
        while True:
            try:
                client = Client(self.port)
                break
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.02)
        if lines:
            client.ask(*lines)
        return client

    def says(self, command, *parts, lines=None):
        """What a tool says has these parts, and it says so soon."""
        begun = time.monotonic()
        wide = {**os.environ, "COLUMNS": "150"}
        words = [self.beanpole, "-a", str(self.port), *command.split()]
        ran = subprocess.run(words, capture_output=True, text=True, env=wide)
        took = time.monotonic() - begun
        # Every metric has the server as a label.
        said = re.sub(r'\{server="[^"]*"\}|,server="[^"]*"', "", ran.stdout + ran.stderr)
        assert took < SOON, (command, took)
        for part in parts:
            assert part in said, (command, part, said)
        assert lines is None or said.count("\n") == lines, (command, said)
        return said

    def shows(self, text, badges, known=rb'"known":true|"lost":"', ):
        """The page says this, and its tubes have these badges, soon after the console
        knows of it from its samples, which come each second."""
        console = subprocess.Popen([self.beanpole, "-a", str(self.port), "console", "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
        try:
            url = re.search(r"http://\S+", console.stderr.readline()).group()
            until = time.monotonic() + 60
            while not re.search(known, urllib.request.urlopen(f"{url}api/known").read()):
                assert time.monotonic() < until
                time.sleep(0.02)
            self.browser.open("about:blank")
            begun = time.monotonic()
            self.browser.open(url)
            self.browser.read(text)
            took = time.monotonic() - begun
            assert took < SOON, took
            shown = self.browser.run("return [...document.querySelectorAll('tbody .badge:not([hidden])')].map((one) => one.textContent)")
            assert len(shown) == len(badges) and all(map(re.fullmatch, badges, shown)), shown
            # A page without its console would complain.
            self.browser.open("about:blank")
        finally:
            console.kill()
            console.wait()

    def end(self):
        self.server.kill()
        self.server.wait()


def full_memory(scene):
    producer = scene.client(b"use mail")
    scene.watcher = scene.client(b"watch mail")
    while producer.put(b"x" * 1000) != b"OUT_OF_MEMORY\r\n":
        pass
    refuses(scene, "memory")


def full_disk(scene):
    producer = scene.client(b"use mail")
    scene.watcher = scene.client(b"watch mail")
    while producer.put(b"x" * 9999) != b"OUT_OF_MEMORY\r\n":
        pass
    refuses(scene, "disk")


def refuses(scene, what):
    reason = f"its {what} is full"
    told = scene.says("why", f"The server takes no new jobs: {reason}. It has refused 1 put.")
    assert told.count("\n") == 1, told
    scene.says("check", f"CRITICAL: takes no new jobs: {reason}", lines=1)
    others = {"memory", "disk", "draining"} - {what}
    zeros = [f'beanstalk_put_refusal{{reason="{other}"}} 0\n' for other in others]
    scene.says("metrics", f'beanstalk_put_refusal{{reason="{what}"}} 1\n', "beanstalk_puts_refused_total 1\n", *zeros)
    scene.says("top -i 100ms", f"TAKES NO JOBS: {reason}")
    scene.shows(f"takes no new jobs: {reason}", [])


def poison_job(scene):
    scene.watcher = scene.client(b"watch mail")
    scene.client(b"use mail").put(b"poison")
    for tries in range(1, 5):
        worker = scene.client(b"watch mail")
        worker.reserve()
        worker.close()
        wait = scene.client(b"use mail")
        while wait.ask(b"peek-ready") == b"NOT_FOUND\r\n":
            time.sleep(0.01)
        wait.close()
    scene.says("why", "mail: Job 1 was reserved 4 times, and each time the worker was lost", "ls mail --tries 3", lines=1)
    scene.says("check --limit tries=3", "CRITICAL: tries 4 of job 1 (limit 3) |", lines=1)
    scene.says("metrics --age", 'beanstalk_tube_failing_job_tries{tube="mail"} 4\n')
    scene.says("top -i 100ms", "\nmail !job")
    scene.shows("job 1 fails at each of 4 tries", ["job 1 fails at each of 4 tries"])


def eternal_timeouts(scene):
    scene.watcher = scene.client(b"watch mail")
    producer = scene.client(b"use mail")
    worker = scene.client(b"watch mail")
    for _ in range(4):
        producer.put(b"slow", ttr=1)
        worker.reserve()
    time.sleep(1.2)
    scene.says("why", "mail: ", "4 of 4 reservations timed out.", lines=1)
    worker.reserve()
    time.sleep(1.2)
    scene.says("metrics", 'beanstalk_tube_timeouts_total{tube="mail"} 5\n')
    scene.says("top -i 100ms", "\nmail !time")
    scene.shows("5 timeouts", ["5 timeouts"])


def runaway_producer(scene):
    scene.watcher = scene.client(b"watch mail")
    runaway = scene.client(b"use mail")
    name = "%s:%d" % runaway.socket.getsockname()
    is_over = threading.Event()

    def run():
        while not is_over.wait(0.005):
            runaway.socket.sendall(b"put 9 0 60 1\r\nx\r\n" * 50)
            for _ in range(50):
                runaway.replies.readline()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        looks = scene.client(b"use mail")
        while looks.ask(b"peek 2000") == b"NOT_FOUND\r\n":
            time.sleep(0.01)
        scene.says("why", "mail: ", "It grows by ", f"; most of them come from {name}.", lines=1)
        scene.says("check -t mail --limit ready=1000", "CRITICAL: ready ", " (limit 1000) |", lines=1)
        told = scene.says("metrics")
        assert int(re.search(r'tube_current_jobs{tube="mail",state="ready"} (\d+)', told).group(1)) >= 1000
        scene.says("top -i 200ms", "\nmail !grows", "/s")
        scene.shows("grows by", [r"grows by \d+/s"], rb"grows by")
    finally:
        is_over.set()
        thread.join()


def damaged_binlog(scene):
    assert scene.server.wait(timeout=60) == 10
    said = scene.server.stderr.read()
    assert re.search(r"segment\.1 is damaged at offset \d+: .*`beanpole binlog repair /\S+ NEW`", said), said
    gone = f"cannot connect to 127.0.0.1:{scene.port}"
    scene.says("why", gone, lines=1)
    scene.says("check", f"BEANSTALK CRITICAL: {gone}", lines=1)
    scene.says("metrics", "beanstalk_up 0\n", gone)
    scene.says("top -i 100ms", "cannot connect")
    scene.shows("does not answer", [])


@contextlib.contextmanager
def small_disk():
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", directory], check=True)
        try:
            yield directory
        finally:
            subprocess.run(["umount", "-l", directory], check=True)


@contextlib.contextmanager
def damage(programs, port):
    """A directory in which a byte of the first of several files is another one."""
    with tempfile.TemporaryDirectory() as directory:
        scene = Scene(programs, port, ["-b", directory, "-s", "4096"], None)
        client = scene.client()
        for _ in range(60):
            client.put(b"x" * 200)
        client.close()
        scene.server.terminate()
        scene.server.wait()
        first = pathlib.Path(directory, "segment.1")
        content = bytearray(first.read_bytes())
        content[1000] ^= 1
        first.write_bytes(content)
        yield directory


def play(programs, free_port, browser):
    """Plays the scenes; what needs root is left out without it."""
    for act in [full_memory, full_disk, poison_job, eternal_timeouts, runaway_producer, damaged_binlog]:
        with contextlib.ExitStack() as stack:
            port, options = free_port(), []
            if act is full_memory:
                options = ["--max-memory", "1M"]
            elif act is full_disk:
                if os.geteuid() != 0:
                    print("a full disk: left out, since it needs root")
                    continue
                options = ["-b", stack.enter_context(small_disk()), "-s", "65536"]
            elif act is damaged_binlog:
                options = ["-b", stack.enter_context(damage(programs, port)), "-s", "4096"]
            scene = Scene(programs, port, options, browser)
            stack.callback(scene.end)
            act(scene)
            print(f"{act.__name__.replace('_', ' ')}: named by every tool, and nothing else")
