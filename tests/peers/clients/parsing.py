"""Reads a server's replies the way programs do that have no package to run here:
parsing.py HOST:PORT

Clients in Go, Java, C#, Erlang, Elixir, PHP and Lua, monitoring agents, exporters and
plugins: how each of them cuts a reply, what it compares and which keys it needs was
read in its sources, of the version beside its name, and is told here in our own words.
The status is 0 if each of them takes from the replies exactly what they say. No other
client may be there meanwhile.
"""

import re
import socket
import sys
from operator import itemgetter

import yaml

HOST, PORT = sys.argv[1].rsplit(":", 1)

# Names that each reader of YAML takes for texts, and others.
TEXTS = ["mails", "2fa-mails", "v1.2", "1/2", "a;b/c.$_(d)+", "null-jobs", "n" * 200]
NAMES = [*TEXTS, "42", "007", "1e3", "null", "true", "No", "2024-01-15", "."]

JOB = "id tube state pri age delay ttr time-left file reserves timeouts releases buries kicks".split()
STATES = ["urgent", "ready", "reserved", "delayed", "buried"]
TUBE = [
    *("name", *(f"current-jobs-{state}" for state in STATES), "total-jobs", "current-using"),
    *("current-watching", "current-waiting", "cmd-delete", "cmd-pause-tube", "pause", "pause-time-left"),
]
COMMANDS = (
    "put peek peek-ready peek-delayed peek-buried reserve reserve-with-timeout delete release use "
    "watch ignore bury kick touch stats stats-job stats-tube list-tubes list-tube-used "
    "list-tubes-watched pause-tube"
).split()
CLIENTS = "current-connections current-producers current-workers current-waiting total-connections".split()
BINLOG = "oldest-index current-index records-migrated records-written max-size".split()
SERVER = [
    *(f"current-jobs-{state}" for state in STATES),
    *(f"cmd-{command}" for command in COMMANDS),
    *("job-timeouts", "total-jobs", "max-job-size", "current-tubes", *CLIENTS, "pid", "version"),
    *("rusage-utime", "rusage-stime", "uptime"),
    *(f"binlog-{what}" for what in BINLOG),
    *("draining", "id", "hostname", "os", "platform"),
]


def ask(*commands):
    """All that comes back, as it comes, until the server closes."""
    with Session() as session:
        session.send(*commands, "quit")
        return session.replies.read()


class Session:
    """A connection that stays open for several commands."""

    def __enter__(self):
        self.socket = socket.create_connection((HOST, int(PORT)))
        self.replies = self.socket.makefile("rb")
        return self

    def __exit__(self, *_):
        self.replies.close()
        self.socket.close()

    def send(self, *commands):
        self.socket.sendall("".join(f"{command}\r\n" for command in commands).encode())

    def say(self, command, lines=1):
        self.send(command)
        return self.read(lines)

    def read(self, lines):
        return b"".join(self.replies.readline() for _ in range(lines))


# How a reply with a document becomes a mapping or a list.


def go(reply):
    """go-beanstalk 52e4a01: the size stands after the last blank, and the two bytes after
    the document are not looked at. A line has a key and a value if `: ` is in it."""
    line, _, rest = reply.partition(b"\r\n")
    word, size = line.decode().rsplit(" ", 1)
    assert word == "OK" and len(rest) == int(size) + 2
    lines = rest[: int(size)].decode().removeprefix("---\n").split("\n")
    if any(line.startswith("- ") for line in lines):
        return [line[2:] for line in lines if line.startswith("- ")]
    return dict(line.split(": ", 1) for line in lines if ": " in line)


def java(reply):
    """JavaBeanstalkClient 3a37c77: takes lines until an empty one, and never the size. A
    line with not exactly one `: ` is lost."""
    word, *lines = re.split("\r\n|\r|\n", reply.decode())
    assert word.split(" ")[0] == "OK" and lines.index("") == len(lines) - 2
    lines = [line for line in lines[:-2] if line != "---"]
    if lines[0].startswith("- "):
        return [line[2:] for line in lines]
    cut = [line.split(": ") for line in lines]
    return {pair[0]: pair[1] for pair in cut if len(pair) == 2}


def csharp(reply):
    """Turbocharged.Beanstalk 2559430: cuts at the first colon, and a key that comes twice
    is an error."""
    line, _, rest = reply.partition(b"\r\n")
    word, size, *_ = line.decode().split(None, 2)
    document, end = rest[: int(size)].decode("ascii"), rest[int(size) :]
    assert word == "OK" and end == b"\r\n"
    lines = [line for line in re.split("\r\n|\r|\n", document) if line.strip() and line != "---"]
    if lines[0].startswith("- "):
        return [line[2:] for line in lines]
    pairs = [line.split(":", 1) for line in lines]
    keys = [key.strip() for key, _ in pairs]
    assert len(set(keys)) == len(keys)
    return {key.strip(): value.strip() for key, value in pairs}


def php(reply):
    """pheanstalk 4.0.2, below Laravel, yii2-queue and yii2-beanstalk (later ones cut the
    same way): the first line is a word and digits; an entry of a list that does not begin
    with `- ` and a line without a colon are errors."""
    line, _, rest = reply.partition(b"\r\n")
    size = int(re.fullmatch(rb"OK (\d+)", line)[1])
    assert rest[size:] == b"\r\n"
    lines = [line for line in rest[:size].decode().split("\n") if line not in ("", "0", "---")]
    if lines[0].startswith("- "):
        assert all(line.startswith("- ") for line in lines)
        return [line[2:] for line in lines]
    found = [re.search(r"(\S+):\s*(.*)", line) for line in lines]
    return {each[1]: each[2] for each in found}


def document(reply):
    """ebeanstalkd bafac58, elixir_talk dd76935, telegraf, netdata: as many bytes as the
    line says and CR LF, and a reader of YAML."""
    line, _, rest = reply.partition(b"\r\n")
    size = int(re.fullmatch(rb"OK (\d+)", line)[1])
    assert rest[size:] == b"\r\n"
    return yaml.safe_load(rest[:size])


CUTTERS = [go, java, csharp, php]


def same(found, expected, about):
    assert found == expected, f"{about}: {found!r} is not {expected!r}"


def names_of_tubes():
    """A name comes back as it was sent, from each reply and for each who cuts."""
    watched = ask(*(f"watch {name}" for name in NAMES), "list-tubes-watched")
    listed = ask(*(f"use {name}" for name in NAMES), *(f"watch {name}" for name in NAMES), "list-tubes")
    for cut in CUTTERS:
        same(cut(watched[watched.index(b"OK ") :]), ["default", *NAMES], cut.__name__)
        tubes = cut(listed[listed.index(b"OK ") :])
        same([tubes.count(name) for name in NAMES], [1] * len(NAMES), cut.__name__)
    read = document(watched[watched.index(b"OK ") :])
    same(read[: len(TEXTS) + 1], ["default", *TEXTS], "readers of YAML")


def jobs_and_tubes():
    """The life of a job as the replies tell it: with beanstalkd's keys and no other, in
    its order, and with the values that they must have."""
    for name in NAMES:
        with Session() as session:
            session.say(f"use {name}")
            session.say(f"watch {name}")
            job = int(session.say("put 7 0 60 5\r\nhello").split()[1])
            session.say(f"reserve-job {job}", 2)
            about_job, about_tube = ask(f"stats-job {job}"), ask(f"stats-tube {name}")
            same(session.say(f"delete {job}"), b"DELETED\r\n", name)
        state = {"id": job, "tube": name, "state": "reserved", "pri": 7, "delay": 0, "ttr": 60, "file": 0}
        state |= {"reserves": 1, "timeouts": 0, "releases": 0, "buries": 0, "kicks": 0}
        counts = {key: 0 for key in TUBE} | {"name": name, "current-jobs-reserved": 1, "total-jobs": 1}
        counts |= {"current-using": 1, "current-watching": 1}
        for reply, keys, expected in [(about_job, JOB, state), (about_tube, TUBE, counts)]:
            for cut in CUTTERS:
                found = cut(reply)
                # elixir_talk compares sets of keys, ebeanstalkd and greenstalk count them:
                # 14 and 14. Lua's tests know the first three in their order.
                same(list(found), keys, cut.__name__)
                same(found | {key: str(value) for key, value in expected.items()}, found, cut.__name__)
                numbers = [found[key] for key in keys if key not in ("tube", "name", "state")]
                assert all(re.fullmatch(r"\d+", number) for number in numbers), numbers
            found = document(reply)
            same(list(found), keys, "readers of YAML")
            if name in TEXTS:
                same(found | expected, found, "readers of YAML")
        # lua-resty-beanstalkd 613062f: the document as it comes, and its tests know how it
        # begins.
        begin = f"---\nid: {job}\ntube: {name}\nstate: reserved\n"
        same(about_job.decode().split("\r\n", 1)[1][: len(begin)], begin, "lua-resty-beanstalkd")
        # pheanstalk 4: the name from a reply goes into a command.
        same(ask(f"use {php(about_job)['tube']}"), f"USING {name}\r\n".encode(), "useTube")


def attempts():
    """yii2-queue, Laravel and the plugins for Nagios look at a job that they have reserved
    or seen: how often, its state, TTR, priority and age."""
    with Session() as session:
        session.say("use attempts")
        session.say("watch attempts")
        # JavaBeanstalkClient: reserve(-1) waits without a limit.
        session.send("reserve-with-timeout -1")
        job = int(ask("use attempts", "put 1023 0 77 1\r\nx").split()[-1])
        same(session.read(2), f"RESERVED {job} 1\r\nx\r\n".encode(), "reserve(-1)")
        for reserves in ["1", "2", "3"]:
            found = php(ask(f"stats-job {job}"))
            found = [found[key] for key in ("state", "ttr", "pri", "reserves")]
            same(found, ["reserved", "77", "1023", reserves], "attempts")
            same(session.say(f"release {job} 1023 0"), b"RELEASED\r\n", "attempts")
            found = php(ask(f"stats-job {job}"))
            same([found[key] for key in ("state", "releases")], ["ready", reserves], "attempts")
            # Nagios::Plugin::Beanstalk 0.04: the age of urgent jobs only, or how many work.
            found = php(ask("stats-tube attempts"))
            same([found[f"current-jobs-{each}"] for each in STATES], ["1", "1", "0", "0", "0"], "urgent")
            session.say("reserve", 2)
        found = php(ask("stats-tube attempts"))
        same([found["current-jobs-reserved"], found["current-waiting"]], ["1", "0"], "workers")
        session.say(f"delete {job}")


def statistics():
    reply = ask("stats")
    texts = ["version", "draining", "id", "hostname", "os", "platform"]
    for cut in CUTTERS:
        found = cut(reply)
        # pheanstalk 5 to 8 wants each of them, and Beanstalk.Net 1.0.4 (C#) no other.
        same(list(found), SERVER, cut.__name__)
        # beanstalkd_exporter of messagebird, bf3768c: each value but three is a float,
        # or it shows 0; of davidtannock, 31557ca, and C#: integers, or nothing is shown.
        for key in found.keys() - texts:
            form = r"\d+\.\d{6}" if key.startswith("rusage-") else r"\d+"
            assert re.fullmatch(form, found[key]), (key, found[key])
        assert re.fullmatch('"[^"]+"', found["version"])
        same(found["draining"], "false", cut.__name__)
        # C# takes each number as one of 32 bits.
        assert all(float(found[key]) < 1 << 31 for key in SERVER if key not in texts)
    # telegraf 0823c31, netdata 1439ba4 and its older one, munin's plugins 4fa3cf7: numbers
    # as a reader of YAML has them.
    found = document(reply)
    for key in SERVER:
        if key not in texts:
            same(type(found[key]), float if key.startswith("rusage-") else int, key)
    same([type(found["version"]), found["draining"]], [str, False], "readers of YAML")
    # check_beanstalkd.pl 0.1: the first place where a key, a colon and digits stand, even
    # within another key.
    for key in SERVER:
        if key not in texts:
            value = re.search(key + ": ([0-9]+)", reply.decode())
            same(value[1], csharp(reply)[key].split(".")[0], key)


def counters():
    """What agents draw as rates counts what was asked, and nothing else."""
    before = document(ask("stats"))
    job = ask("use counted", "put 0 0 60 1\r\nx").split()[-1].decode()
    ask("watch counted", "ignore default", f"peek {job}", f"stats-job {job}", "stats-tube counted", "reserve")
    ask("use counted", "peek-ready", "peek-delayed", "peek-buried", "pause-tube counted 0")
    ask("watch counted", "reserve-with-timeout 0", f"touch {job}", f"bury {job} 0", f"kick-job {job}")
    ask("list-tubes", "list-tube-used", "list-tubes-watched")
    ask("use counted", "kick 1", f"delete {job}", f"release {job} 0 0")
    after = document(ask("stats"))
    counted = [key for key in SERVER if key.startswith("cmd-") or key in ("total-jobs", "job-timeouts")]
    expected = {key: 1 for key in counted} | {"job-timeouts": 0, "cmd-use": 3, "cmd-watch": 2}
    same({key: after[key] - before[key] for key in counted}, expected, "counters")


def consoles():
    """beanstalk_console 3ece4d7 and aurora 8ddad1a: what they ask when someone searches,
    pauses, kicks, deletes or moves jobs in them, and what they find."""

    def job(reply):
        found = re.search(rb"(?:FOUND|RESERVED) (\d+) \d+\r\n(.*)\r\n$", reply, re.S)
        return found and (int(found[1]), found[2].decode())

    def found(cut, tube, state, id):
        """The job, if it is in this tube and state."""
        about = ask(f"stats-job {id}")
        is_here = about.startswith(b"OK ") and itemgetter("tube", "state")(cut(about)) == (tube, state)
        return job(ask(f"peek {id}")) if is_here else None

    def beanstalk_console(tube, text):
        """Looks from the first job of each state on, as far as the counts of jobs and of
        delete go together."""
        for state in ["ready", "delayed", "buried"]:
            counts = php(ask("stats"))
            last = sum(int(counts[key]) for key in ["cmd-delete", *(f"current-jobs-{each}" for each in STATES[1:])])
            first = job(ask(f"use {tube}", f"peek-{state}"))
            for id in range(first[0], last + 1) if first else []:
                if (here := found(php, tube, state, id)) and text in here[1]:
                    yield state, here[1]

    def aurora(tube, text):
        """Looks at all jobs since the server's start, the latest first."""
        for state in ["ready", "delayed", "buried"]:
            for id in range(int(go(ask("stats"))["total-jobs"]), 0, -1):
                if (here := found(go, tube, state, id)) and text in here[1]:
                    yield state, here[1]

    def count(tube):
        about = php(ask(f"stats-tube {tube}"))
        return [int(about[f"current-jobs-{state}"]) for state in ("ready", "delayed", "buried")]

    for search, tube, moved in [(beanstalk_console, "2fa-mails", "moved"), (aurora, "news", "v1.2")]:
        bodies = [("one needle", 0), ("two", 0), ("three needle", 100)]
        jobs = [ask(f"use {tube}", f"put 9 {delay} 60 {len(body)}\r\n{body}") for body, delay in bodies]
        ids = [int(reply.split()[-1]) for reply in jobs]
        same(sorted(search(tube, "needle")), [("delayed", "three needle"), ("ready", "one needle")], "search")
        same(list(search(tube, "absent")), [], "search")
        for seconds in [3600, 0]:
            same(ask(f"pause-tube {tube} {seconds}"), b"PAUSED\r\n", "pause")
            same(php(ask(f"stats-tube {tube}"))["pause"], str(seconds), "pause")
        same(ask(f"kick-job {ids[2]}"), b"KICKED\r\n", "kick")
        same(ask(f"delete {ids[1]}"), b"DELETED\r\n", "delete")
        same(count(tube), [2, 0, 0], "kick and delete")
        # To another tube: put there, then deleted here.
        while next_one := job(ask(f"use {tube}", "peek-ready")):
            id, body = next_one
            ask(f"use {moved}", f"put 1024 0 60 {len(body)}\r\n{body}")
            same(ask(f"delete {id}"), b"DELETED\r\n", "move")
        same(ask(f"stats-tube {tube}"), b"NOT_FOUND\r\n", "an empty tube is gone")
        same(count(moved), [2, 0, 0], "move")
        # To the buried ones.
        with Session() as session:
            session.say(f"watch {moved}")
            session.say("ignore default")
            for _ in range(2):
                id, _ = job(session.say("reserve-with-timeout 1", lines=2))
                same(session.say(f"bury {id} 1024"), b"BURIED\r\n", "bury")
        same(sorted(search(moved, "needle")), [("buried", "one needle"), ("buried", "three needle")], "buried")
        same(ask(f"use {moved}", "kick 1").split()[-2:], [b"KICKED", b"1"], "kick")
        for state in ["ready", "buried"]:
            while next_one := job(ask(f"use {moved}", f"peek-{state}")):
                ask(f"delete {next_one[0]}")
        same(ask(f"stats-tube {moved}"), b"NOT_FOUND\r\n", "delete all")


for story in [names_of_tubes, jobs_and_tubes, attempts, statistics, counters, consoles]:
    story()
print(f"parsing.py: {len(NAMES)} tubes and {len(SERVER)} keys of stats, by {len(CUTTERS)} who cut and readers of YAML")
