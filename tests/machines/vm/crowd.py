"""A small box with all that it has against it: 64 MB of memory, flash, a clock that starts
in 1970 and jumps, as many clients as the server allows, jobs until it refuses them, and a
power cut."""

import contextlib
import os
import random
import re

import box
import scenes
from flash import ATTACH, UbiMachine, make_volume
from machine import Machine
from scenarios import SCENARIOS, scenario

MEMORY = 64
BATCH = 50
BODY = random.Random(1).randbytes(1000)


def put_all(client):
    """Puts jobs until none is taken, and returns their ids."""
    ids = []
    while True:
        client.send(*[b"put 0 0 60 1000\r\n" + BODY] * BATCH)
        answers = [client.line() for _ in range(BATCH)]
        ids += [int(answer[1]) for answer in answers if answer[0] == b"INSERTED"]
        if all(answer == [b"OUT_OF_MEMORY"] for answer in answers):
            return ids


def drain(client, most):
    """Reserves and deletes up to so many jobs, and returns their ids."""
    done = []
    while len(done) < most:
        client.send(*[b"reserve-with-timeout 0"] * BATCH)
        ids = []
        for _ in range(BATCH):
            answer = client.line()
            if answer[0] == b"RESERVED":
                assert client.body(answer[2]) == BODY
                ids.append(int(answer[1]))
        client.delete(*ids)
        done += ids
        if len(ids) < BATCH:
            return done
    return done


def gather(machine, everyone):
    """As many clients as are allowed. Each gets a reply, and all but the first wait."""
    most = int(re.search("at most ([0-9]+) connections", machine.log())[1])
    clients = [everyone.enter_context(machine.connect()) for _ in range(most)]
    for client in clients:
        assert client.ask(b"watch nothing") == [b"WATCHING", b"2"]
    for client in clients[1:]:
        assert client.ask(b"ignore default") == [b"WATCHING", b"1"]
        client.send(b"reserve")
    return clients


def lowest(machine):
    (line,) = machine.shell("grep MemAvailable /proc/meminfo").splitlines()
    return int(line.split()[1]) >> 10


def flood(machine, mount, *options):
    def start():
        # No clock of the machine says what time it is. (The kernel lets nobody set a time
        # that is shorter than it runs.)
        machine.shell("date -s @1000000")
        machine.shell(mount)
        machine.start("-V", *options)

    start()
    keeps = "-b" in options
    with contextlib.ExitStack() as everyone:
        clients = gather(machine, everyone)
        first, *waiting = clients
        assert first.ask(b"put 0 3600 60 4", b"late")[0] == b"INSERTED"
        late = 1
        ids = set(put_all(first))
        full, left = len(ids), lowest(machine)
        # The time of the network comes, and goes again.
        machine.shell("date -s 2026-11-28")
        ids -= set(drain(first, full // 2))
        machine.shell("date -s @1000300")
        if not keeps:
            ids -= work_off(first, waiting, len(ids))
    if keeps:
        # Now what is synced is all that there is.
        machine.cut_power()
        machine.boot()
        start()
        with contextlib.ExitStack() as everyone:
            first, *waiting = gather(machine, everyone)
            ids -= work_off(first, waiting, len(ids))
            assert first.ask(b"use default") == [b"USING", b"default"]
            assert first.ask(b"peek-delayed") == [b"FOUND", b"%d" % late, b"4"]
    assert not ids, f"{len(ids)} of {full} jobs are lost"
    assert machine.kill("TERM") == 0, machine.log()
    killed = machine.shell("dmesg | grep -c 'Killed process'", may_fail=True)
    assert killed == "0", killed
    print(f"{len(waiting) + 1} clients, {full} jobs, then {left} MB were available", flush=True)


def work_off(first, waiting, count):
    """There is a job for each client that waits, and then all of them work off the rest."""
    first.ask(b"use nothing")
    for client in waiting:
        assert first.put(BODY)
    for client in waiting:
        answer = client.line()
        assert answer[0] == b"RESERVED", answer
        client.body(answer[2])
        client.delete(int(answer[1]))
        client.ask(b"watch default")
    done = set()
    for client in [*waiting, first]:
        done.update(drain(client, count // len(waiting) + BATCH))
    return done


@scenario
def crowd_in_memory(work, program):
    with Machine(work, program, memory=MEMORY) as machine:
        flood(machine, "true")


class InGroup:
    """A server in a control group of version 2, as the scenes of `boxes` want one."""

    PLACE = "/sys/fs/cgroup/box"

    def __init__(self, machine, size):
        self.machine = machine
        machine.shell(f"mkdir {self.PLACE}; echo {size}M >{self.PLACE}/memory.max")
        join = f"""sh -c 'echo $$ >{self.PLACE}/cgroup.procs; exec "$0" "$@"'"""
        self.log = machine.start("-V", env=join)
        assert "the control group" in self.log, self.log

    def said_at_its_start(self):
        return self.log

    def connect(self, receives=None):
        return box.Client(self.machine.port, receives)

    def end(self):
        peak = int(self.machine.shell(f"cat {self.PLACE}/memory.peak")) / (1 << 20)
        assert "oom_kill 0" in self.machine.shell(f"cat {self.PLACE}/memory.events"), peak
        assert self.machine.kill("TERM") == 0, self.machine.log()
        self.machine.shell(f"rmdir {self.PLACE}")
        return peak


def sweep(size):
    """The cells of the table in `boxes/sweep` for groups of version 2, which CI's own machine
    may not have: the sockets' buffers count there. They have less memory than the machine."""

    def play(work, program):
        scenes.MANY = 6000
        with Machine(work, program, memory=size + MEMORY) as machine:
            machine.shell("mount -t cgroup2 none /sys/fs/cgroup")
            machine.shell("echo +memory >/sys/fs/cgroup/cgroup.subtree_control")
            for name, scene in scenes.chosen():
                print(f"group 2 {size} MB: {name}: ", end="", flush=True)
                server = InGroup(machine, size)
                try:
                    play = scenes.Play(server)
                    scene(play)
                    most = len(play.clients) + 1
                    play.verify()
                except (AssertionError, OSError):
                    print(machine.shell("grep -v debug: /tmp/log; dmesg | tail -30"))
                    raise
                print(f"{most} clients, peak {server.end():.1f} MB", flush=True)

    return play


for size in (16, 32, 64, 128):
    SCENARIOS[f"sweep-{size}"] = sweep(size)


@scenario
def crowd_on_jffs2(work, program):
    with Machine(work, program, memory=MEMORY, flash=8) as machine:
        mount = "modprobe jffs2; mount -t jffs2 mtd0 /mnt; mkdir -p /mnt/jobs"
        flood(machine, mount, "-b", "/mnt/jobs", "-f", "0")


@scenario
def crowd_on_ubifs(work, program):
    disk = os.path.join(work, "volume")
    make_volume(disk, 32)
    # The flash is memory, and so comes on top.
    with UbiMachine(work, program, memory=MEMORY + 32, disk=disk) as machine:
        attach = f"attach() {ATTACH % (32 << 10)}; attach; mkdir -p /mnt/jobs"
        flood(machine, attach, "-b", "/mnt/jobs", "-f", "0")
