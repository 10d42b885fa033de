"""Reads what beanpole writes for other programs: outputs_test.py HOST:PORT
BEANPOLE

Python's json reads the JSON, PyYAML the YAML, and the parser of
prometheus_client the metrics, from a file and by HTTP. The status is 0 if all
of them read the same values.
"""

import base64
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import yaml
from prometheus_client.parser import text_string_to_metric_families

ADDRESS, BEANPOLE = sys.argv[1:]
TUBES = ["true", "null", "1e3", "0x10", "2026-11-22", ";no", "a/b;c.$_(d)"]
BODIES = [b"text", "é😀\u2028".encode(), b'"\\/\x00\x1f\x7f\r\n\t', b"\xff\xfe", b"", b"yes", b"- a: {b"]


def beanpole(*arguments, address=ADDRESS, status=0, body=b""):
    ran = subprocess.run([BEANPOLE, "-a", address, *arguments], input=body, capture_output=True)
    assert ran.returncode == status, (arguments, ran)
    return ran.stdout.decode()


def statistics():
    """Numbers are numbers, and texts are texts."""
    job = beanpole("put", "-t", TUBES[0], "-d", "1h", "x").strip()
    for about in [["job", job], TUBES[:1]]:
        known = json.loads(beanpole("stats", *about, "--json"))
        assert known.get("tube", known.get("name")) == TUBES[0]
    known = json.loads(beanpole("stats", "--json"))
    assert isinstance(known["version"], str) and isinstance(known["id"], str)
    both = beanpole("-a", "127.0.0.1:1", "stats", "--json", status=3)
    assert json.loads(both)[ADDRESS]["total-jobs"] == known["total-jobs"]
    beanpole("delete", job)


def names_of_tubes():
    for tube in TUBES:
        beanpole("put", "-q", "-t", tube, "x")
    known = json.loads(beanpole("tubes", "--json"))
    assert {tube["name"] for tube in known} >= {"default", *TUBES}


def listed_jobs():
    """ls shows the same as the answer to list-jobs, which only beanpoled gives."""
    host, port = ADDRESS.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as server:
        server.sendall(b"list-jobs 0 1000\r\nquit\r\n")
        head, document = server.makefile("rb").read().split(b"\r\n", 1)
    if head == b"UNKNOWN_COMMAND":
        return
    # Names are bare, and YAML would take 42 for a number: here all is text.
    read = yaml.load(document, Loader=yaml.BaseLoader)
    known = [json.loads(job) for job in beanpole("ls", "--json").splitlines()]
    assert {job["tube"] for job in known} >= set(TUBES)
    for job, listed in zip(known, read["jobs"], strict=True):
        changing = ("age", "time-left", "body", "body64")
        same = {key: str(job[key]) for key in job if key not in changing}
        assert listed.items() >= same.items(), (listed, same)
    assert read["next"] == "0"


def bodies():
    for body in BODIES:
        beanpole("put", "-q", "-t", "bodies", body=body)
    lines = beanpole("reserve", "-t", "bodies", "--all", "--json").splitlines()
    dumped = beanpole("dump", "bodies").splitlines()[1:-1]
    for jobs in (lines, dumped):
        jobs = [json.loads(job) for job in jobs]
        found = [
            base64.b64decode(job["body64"], validate=True)
            if "body64" in job
            else job["body"].encode()
            for job in jobs
        ]
        assert found == BODIES, found


def value(text, name, **labels):
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert all(family.documentation for family in families.values())
    assert all(name.startswith("beanstalk_") for name in families)
    family = families[name.removesuffix("_total")]
    assert family.type == ("counter" if name.endswith("_total") else "gauge")
    values = [
        sample.value
        for sample in family.samples
        if sample.name == name and sample.labels.pop("server") and sample.labels == labels
    ]
    return values[0] if values else None


def metrics():
    with tempfile.TemporaryDirectory() as place:
        file = pathlib.Path(place, "beanstalk.prom")
        beanpole("metrics", "--age", "-o", str(file))
        written = file.read_text()
        assert [entry.name for entry in pathlib.Path(place).iterdir()] == [file.name]
        for text in (written, beanpole("metrics", "--age")):
            assert value(text, "beanstalk_up") == 1
            assert value(text, "beanstalk_jobs_total") >= len(TUBES) + len(BODIES)
            for tube in TUBES:
                assert value(text, "beanstalk_tube_current_jobs", tube=tube, state="ready") == 1
                assert value(text, "beanstalk_tube_first_ready_age_seconds", tube=tube) >= 0
        # If there is no server, the metrics say only that.
        beanpole("metrics", "-o", str(file), address="127.0.0.1:1", status=3)
        text = file.read_text()
        assert value(text, "beanstalk_up") == 0
        assert len(list(text_string_to_metric_families(text))) == 1
    text = beanpole("metrics", "-t", "true", "-t", "nobody")
    assert value(text, "beanstalk_tube_current_jobs", tube="true", state="ready") == 1
    assert value(text, "beanstalk_tube_current_jobs", tube="null", state="ready") is None


def scrapes():
    served = subprocess.Popen(
        [BEANPOLE, "-a", ADDRESS, "metrics", "--listen", "127.0.0.1:0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        url = re.fullmatch(r"serving (http://127\.0\.0\.1:\d+)/metrics\n", served.stderr.readline())[1]
        for _ in range(2):
            with urllib.request.urlopen(url + "/metrics") as reply:
                assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
                assert value(reply.read().decode(), "beanstalk_up") == 1
        for request, status in [(url + "/", 404), (urllib.request.Request(url + "/metrics", b"x"), 405)]:
            try:
                urllib.request.urlopen(request)
                raise AssertionError(f"{request} is answered")
            except urllib.error.HTTPError as error:
                assert error.code == status, error
    finally:
        served.kill()
        served.wait()


for story in [statistics, names_of_tubes, listed_jobs, bodies, metrics, scrapes]:
    story()
