"""What a person does with the page of the console: page_test.py SERVER BEANPOLE
[PICTURES]

Each function tells of one thing; all use the same server, console and browser.
"""

import http.server
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import scenes
from browser import Browser

SERVER, BEANPOLE = sys.argv[1:3]
AXE = pathlib.Path(os.environ["AXE"])
PICTURES = sys.argv[3] if len(sys.argv) > 3 else None
MARKUP = b'</pre><script>document.title = "taken"</script><img src=x onerror="document.title=\'taken\'">'
BINARY = bytes(range(256)) + b"\r\n"


class Running:
    """A server, or a console that watches it."""

    def __init__(self, *command, environment=None):
        self.command = command
        self.environment = environment
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True, env=self.environment)

    def end(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        status = self.process.wait(timeout=10)
        self.process.stderr.close()
        return status


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


PORT = free_port()
NAME = f"127.0.0.1:{PORT}"


def beanpole(*arguments, body=b""):
    ran = subprocess.run([BEANPOLE, "-a", NAME, *arguments], input=body, capture_output=True)
    assert ran.returncode == 0, (arguments, ran)
    return ran.stdout


def wait_for_server(port=PORT):
    until = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.05)


def start_console():
    console = Running(BEANPOLE, "console", "-a", NAME, "--listen", "127.0.0.1:0", "--allow-changes")
    url = re.search(r"http://\S+", console.process.stderr.readline()).group()
    return console, url


def tube_url(url, tube, wanted=""):
    return f"{url}?server=127.0.0.1%3A{PORT}&tube={tube}{wanted}"


def job_url(url, job):
    return f"{url}?server=127.0.0.1%3A{PORT}&job={job}"


def picture(browser, name, height=900):
    """Takes pictures for the eyes of a person, if they are wanted."""
    if PICTURES:
        for kind, look in {"light": {}, "dark": {"dark": True}, "phone": {"width": 390}}.items():
            browser.look(height=height, **look)
            # The page draws its curves anew for its new width.
            time.sleep(2.5)
            browser.picture(pathlib.Path(PICTURES, f"{name}-{kind}.png"))
        browser.look()


def has_no_barrier(browser):
    """Nothing is wider than the screen, and axe-core finds nothing, in both themes."""
    for width in [320, 390, 800, 1400]:
        browser.look(width=width)
        inside = f"return [...document.querySelectorAll('html, .scroll')].every((one) => one.scrollWidth <= Math.min({width}, one.clientWidth + 1))"
        browser.wait(f"all of the page within {width} pixels", lambda: browser.run(inside))
    browser.run(AXE.read_text())
    for width, dark in [(390, False), (1280, True)]:
        browser.look(width=width, dark=dark)
        found = browser.run("return axe.run().then(({violations}) => violations.map(({id, nodes}) => [id, nodes.map(({html, any}) => [html, any[0]?.message])]))")
        assert not found, (width, dark, found)
    browser.look()


def a_long_name_hides_no_figure(browser, url):
    """Neither in the table nor in the page of the tube."""
    name = "n" * 174
    beanpole("put", "-q", "-t", name, "long " * 99)
    beanpole("put", "-q", "-t", "billing.invoices.eu-west-1.production.retry-later", *["x"] * 1234)
    browser.open(url)
    browser.see("tbody a", name)
    has_no_barrier(browser)
    picture(browser, "names")
    browser.open(tube_url(url, name))
    browser.see("tbody a")
    has_no_barrier(browser)


def a_phone_sorts_and_ticks(browser, url):
    beanpole("put", "-q", "-t", "phone", "x", "y", "z")
    browser.look(width=390, height=844)
    browser.open(url)
    browser.click("th a", "Ready")
    browser.see("th[aria-sort=descending]", "Ready")
    browser.open(tube_url(url, "phone"))
    browser.see("tbody a")
    browser.click("th a", "Age")
    browser.see("th[aria-sort=descending]", "Age")
    browser.click("#all")
    browser.read("3 ticked:")
    browser.look()


def an_empty_server(browser, url):
    browser.open(url)
    browser.see("tbody a", "default")
    browser.read("live")
    picture(browser, "empty")


def the_table_with_trouble_first(browser, url):
    beanpole("put", "-q", "-t", "quiet", "-d", "1h", "x")
    beanpole("put", "-q", "-t", "unwatched", "x")
    browser.open(url)
    first = lambda: browser.run("return document.querySelector('#tubes tbody a').textContent")
    browser.wait("trouble first", lambda: first() == "unwatched")
    browser.see("tbody .badge.grave", "nobody watches")
    # By the head of a column, from both ends.
    browser.click("th a", "Tube")
    browser.wait("names in their order", lambda: first() == "default")
    browser.click("th a", "Tube")
    browser.wait("names the other way round", lambda: first() == "unwatched")
    browser.click("th a", "Delayed")
    browser.wait("most delayed jobs first", lambda: first() == "quiet")
    assert browser.find("th[aria-sort=descending]", "Delayed")
    # The address says so, for others.
    address = browser.run("return location.href")
    browser.open("about:blank")
    browser.open(address)
    browser.wait("the same order", lambda: browser.find("th[aria-sort=descending]", "Delayed") and first() == "quiet")
    browser.read("live, 1 tube has trouble")
    has_no_barrier(browser)


def a_tube_among_five_thousand(browser, url):
    with socket.create_connection(("127.0.0.1", PORT)) as client:
        lines = b"".join(b"watch many-%04d\r\n" % number for number in range(5000))
        client.sendall(lines)
        replies = client.makefile("rb")
        for _ in range(5000):
            replies.readline()
        browser.open(url)
        browser.wait("5,000 tubes", lambda: re.search(r"5,0[01]\d", browser.text()))
        browser.press("/")
        browser.run(
            "window.took = null; const start = performance.now(); new MutationObserver((_, observer) => {"
            " const rows = document.querySelectorAll('#tubes tbody a');"
            " if (rows.length === 1 && rows[0].textContent === 'many-4321') {"
            " window.took = performance.now() - start; observer.disconnect(); }"
            "}).observe(document.querySelector('#tubes tbody'), {childList: true, subtree: true});"
        )
        browser.type("input[type=search]", "4321", clear=False)
        took = browser.wait("the tube that was looked for", lambda: browser.run("return window.took"))
        print(f"a tube among 5,000 is found {took:.0f} ms after the first key")
        assert took < 1000, took
        browser.type("input[type=search]", "many-??99", clear=True)
        browser.read("50 of 5,0")
        # The keyboard alone opens the first one.
        browser.press("enter")
        browser.see("h1", "many-0099")


def the_curve_rises(browser, url):
    browser.open(tube_url(url, "rising"))
    browser.read("There is no such tube")
    beanpole("put", "-q", "-t", "rising", "x")
    scale = "return document.querySelector('.plot span').textContent"
    # The heights of the points: the origin of a drawing is at its top.
    points = "return document.querySelector('path.c0').getAttribute('d').match(/ [\\d.]+h/g).map(parseFloat)"
    browser.wait("a curve", lambda: browser.run(scale) == "1" and browser.run(points))
    # A point shows the most jobs of its two seconds, so the others come after these.
    browser.wait("its second point", lambda: len(browser.run(points)) > 1)
    for _ in range(10):
        beanpole("put", "-q", "-t", "rising", *["x"] * 20)
    browser.wait("a scale for 201 jobs", lambda: browser.run(scale) == "500")
    browser.wait("a curve that rises", lambda: (lambda y: y[-1] < y[0] - 10)(browser.run(points)))
    # beanstalkd counts neither the reservations nor the timeouts of a tube.
    legend = "return [...document.querySelectorAll('figcaption span')].map((one) => one.textContent.split(' ').at(-1))"
    dashes = [] if SERVER.endswith("beanpoled") else [5, 7]
    assert [at for at, text in enumerate(browser.run(legend)) if text == "–"] == dashes
    times = browser.run("return [...document.querySelectorAll('.times span')].map((one) => one.textContent)")
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d", one) for one in times), times
    browser.click("#curves a", "1 day")
    browser.see("#curves a[aria-current=true]", "1 day")
    has_no_barrier(browser)
    picture(browser, "tube", 1200)
    browser.open(f"{url}?server=127.0.0.1%3A{PORT}")
    browser.see("#clients a", "Hide")
    has_no_barrier(browser)
    browser.click("#clients a", "Who puts")
    browser.read("ADDRESS" if SERVER.endswith("beanpoled") else "does not list its connections")
    has_no_barrier(browser)


def jobs_of_all_kinds(browser, url):
    binary = beanpole("put", "-t", "kinds", "-f", "-", body=BINARY).decode().strip()
    markup = beanpole("put", "-t", "kinds", "-f", "-", body=MARKUP).decode().strip()
    text = b'{"big":12345678901234567890,"list":[1,{}],"x":"<b>"}'
    json = beanpole("put", "-t", "kinds", "-f", "-", body=text).decode().strip()
    body = lambda: browser.run("return document.querySelector('[open] pre').textContent")
    browser.open(tube_url(url, "kinds"))
    browser.click("tbody a", binary)
    browser.wait("hexadecimal numbers", lambda: body().startswith("000000  00 01 02 03"))
    assert "0000f0  f0 f1" in body() and "000100  0d 0a" in body()
    browser.open(tube_url(url, "kinds"))
    browser.see("tbody td", MARKUP.decode())
    browser.click("tbody a", markup)
    browser.wait("markup as text", lambda: body() == MARKUP.decode())
    assert not browser.find("main script") and not browser.find("main img")
    assert "taken" not in browser.run("return document.title")
    # A link that was pasted.
    browser.open("about:blank")
    browser.open(job_url(url, json))
    expected = '{\n  "big": 12345678901234567890,\n  "list": [\n    1,\n    {}\n  ],\n  "x": "<b>"\n}'
    browser.wait("JSON with indentation", lambda: body() == expected)
    browser.click("summary", "Text")
    browser.wait("the same as text", lambda: body() == text.decode())
    has_no_barrier(browser)
    # The forms are as they were, some refreshes later.
    names = browser.run("return [...document.querySelectorAll('.forms summary')].map((one) => one.textContent)")
    assert names == ["JSON", "Text", "Hex"], names
    picture(browser, "job")
    # Found by text in its body, and by state.
    browser.open(tube_url(url, "kinds"))
    browser.see("tbody a", json)
    browser.type("input[type=search]", "onerror")
    browser.press("enter")
    ids = "return [...document.querySelectorAll('tbody a')].map((one) => one.textContent)"
    if browser.run("return document.body.innerText").find("lists no jobs") < 0:
        browser.wait("one job", lambda: browser.run(ids) == [markup])
    browser.open(tube_url(url, "kinds"))
    browser.click("#jobs .tabs a", "Buried")
    browser.read("No job is buried.")


def bodies_that_hang_a_careless_reader(browser, url):
    """Each is shown with its buttons, whatever it makes of a decoder."""
    for body in [b'a:1e300:{s:1:"X";s:-8:"', b"[" * 20000, b"[" * 40000 + b"]" * 20000, b'{"a":' * 9000, b"a:1:{i:0;" * 7000, b'["' + b"\\" * 60000]:
        job = beanpole("put", "-t", "hostile", "-f", "-", body=body).decode().strip()
        browser.open(job_url(url, job))
        browser.wait("the body", lambda: browser.run("return document.querySelector('[open] pre')?.textContent.length") == len(body))
        browser.see("#job button", "Delete")
    # A hundred thousand bodies, changed at random.
    fuzz = pathlib.Path(__file__).with_name("fuzz.js").read_text()
    for seed in range(20):
        assert browser.run(fuzz, seed, 5000) == 5000


def a_search_can_be_left_shared_and_acted_upon(browser, url):
    for number in range(9):
        beanpole("put", "-q", "-t", "found", f"{'odd' if number % 2 else 'even'} {number}")
    ids = lambda: browser.run("return [...document.querySelectorAll('tbody a')].map((one) => one.textContent)")
    browser.open(tube_url(url, "found"))
    browser.wait("all jobs", lambda: len(ids()) == 9)
    browser.type("input[type=search]", "odd")
    browser.press("enter")
    browser.wait("the search", lambda: len(ids()) == 4)
    # A job is opened, and left again.
    browser.click("tbody a")
    browser.see("h1", "Job " + browser.run("return new URLSearchParams(location.search).get('job')"))
    browser.send("POST", "/back", {})
    browser.wait("the search again", lambda: len(ids()) == 4)
    # Somebody else opens the same address, with an order.
    browser.open("about:blank")
    browser.open(tube_url(url, "found", "&text=odd&sort=age"))
    browser.wait("the same search", lambda: len(ids()) == 4 and browser.find("th[aria-sort=descending]", "Age"))
    assert browser.run("return document.querySelector('#jobs [type=search]').value") == "odd"
    # What was done to its jobs is seen.
    browser.run("document.querySelector('tbody input').click()")
    browser.click("#many button", "Delete")
    browser.click("dialog button", "Delete")
    browser.read("deleted job ")
    browser.wait("one job less, and none ticked", lambda: len(ids()) == 3 and not browser.find("tbody :checked"))
    browser.click("#many button", "Delete")
    browser.click("dialog button", "Delete")
    browser.read("No job here has this in its body.")


def changes_of_many_jobs(browser, url):
    for number in range(12):
        beanpole("put", "-q", "-t", "many", f"{'odd' if number % 2 else 'even'} {number}")
    browser.open(tube_url(url, "many"))
    browser.wait("twelve jobs", lambda: len(browser.run("return [...document.querySelectorAll('tbody tr')]")) == 12)
    browser.run("document.querySelectorAll('tbody input')[0].click(); document.querySelectorAll('tbody input')[1].click()")
    browser.read("2 ticked:")
    has_no_barrier(browser)
    picture(browser, "many", 1100)
    browser.click("#many button", "Bury")
    browser.click("dialog button", "Bury")
    browser.read("buried 2 jobs")
    # Most tries first.
    browser.click("th a", "Tries")
    browser.wait("the order", lambda: browser.find("th[aria-sort=descending]", "Tries"))
    # A search, and what it has found.
    browser.type("input[type=search]", "odd")
    browser.press("enter")
    browser.read("All that have this in their bodies:")
    browser.wait("the search in the address", lambda: "text=odd" in browser.run("return location.href"))
    browser.click("#many button", "Delete")
    browser.read("Delete 6 jobs with “odd” in the body?")
    browser.click("dialog button", "Delete")
    browser.read("deleted 6 jobs")
    assert beanpole("stats", "many").count(b"\n") and b"odd" not in beanpole("ls", "many")


def markup_in_links(browser, url):
    """Anybody can make a link: the names in it are text, too."""
    names = ["%3Cimg%20src%3Dx%3E", "%3Cscript%3E", "%3Cb%3E", "%"]
    for link in [f"?server={NAME}&{what}={name}" for what in ["tube", "job"] for name in names] + [f"?server={name}" for name in names]:
        browser.open("about:blank")
        browser.open(url + link)
        browser.wait("an answer", lambda: len(browser.run("return document.querySelector('main').innerText")) > 5)
        assert not browser.find("main script, main b, main img, #path img, #path b")


def an_edited_job_takes_the_place_of_the_old_one(browser, url):
    job = beanpole("put", "-t", "again", "-p", "7", "-d", "1h", "-r", "99", "-f", "-", body='{"wrong": "é<b>"}'.encode()).decode().strip()
    browser.open(job_url(url, job))
    browser.click("button", "Edit")
    assert browser.run("return document.querySelector('[name=priority]').value") == "7"
    browser.type("textarea", '{"right": "é<b>"}\nand more')
    has_no_barrier(browser)
    picture(browser, "edit")
    browser.click("dialog button", "Replace")
    browser.wait("the new job", lambda: browser.run("return new URLSearchParams(location.search).get('job')") != job)
    new = browser.run("return new URLSearchParams(location.search).get('job')")
    # What is left of its delay is kept.
    assert re.search(rb'"current-jobs-delayed": ?1\b', beanpole("stats", "again", "--json"))
    assert beanpole("peek", new).decode() == '{"right": "é<b>"}\nand more'
    facts = beanpole("stats", "job", new).decode()
    assert re.search(r"pri +7\n", facts) and re.search(r"ttr +99\n", facts), facts
    # The page of a job that is gone has its name for a head, and nothing else.
    browser.open(job_url(url, job))
    browser.read(f"There is no job {job}")
    assert not browser.find(".badge"), "a state that nobody knows"
    assert browser.find("h1", f"Job {job}") and not browser.find("#job dl, #job button"), browser.text()
    has_no_barrier(browser)
    # A body that is no text is left to another editor.
    job = beanpole("put", "-t", "again", "-f", "-", body=BINARY).decode().strip()
    browser.open(job_url(url, job))
    browser.see("h1", f"Job {job}")
    browser.click("button", "Edit")
    browser.read("“beanpole edit” can edit it")
    assert beanpole("peek", job) == BINARY


def changes_of_a_job(browser, url):
    job = beanpole("put", "-t", "changes", "x").decode().strip()
    browser.open(job_url(url, job))
    for button, said, state in [("Bury", f"buried job {job}", "buried"), ("Kick", f"kicked job {job}", "ready")]:
        browser.click("button", button)
        browser.read(said)
        browser.see(".badge", state)
    browser.click("button", "Release")
    browser.type("[name=delay]", "1h")
    browser.click("dialog button", "Release")
    browser.read(f"released job {job}")
    browser.see(".badge", "delayed")
    # Delete asks, and does nothing if one thinks better of it.
    browser.click("main button", "Delete")
    browser.press("enter")
    browser.wait("the question to go", lambda: not browser.find("dialog"))
    assert beanpole("peek", job) == b"x"
    browser.click("main button", "Delete")
    browser.click("dialog button", "Delete")
    browser.read(f"deleted job {job}")
    browser.read(f"There is no job {job}")


def clear_after_the_question(browser, url):
    beanpole("put", "-q", "-t", "heap", *["x"] * 30)
    browser.open(tube_url(url, "heap"))
    browser.click("button", "Pause")
    browser.click("dialog button", "Pause")
    browser.read("paused heap for 600 s")
    browser.see("button", "Resume")
    browser.click("button", "Move")
    browser.type("[name=to]", "other-heap")
    browser.click("dialog button", "Move")
    browser.read("moved 30 jobs of heap to other-heap")
    browser.open(tube_url(url, "other-heap"))
    browser.see("tbody a")
    browser.wait("the number of jobs", lambda: browser.find("dd", "30"))
    browser.click("button", "Clear")
    browser.wait("the question", lambda: browser.run("return document.querySelector('select').textContent").endswith("30 ready"))
    picture(browser, "clear")
    browser.click("dialog button", "Delete")
    browser.read("deleted 30 jobs of other-heap")
    browser.read("There are no jobs.")


def a_long_change_shows_its_progress_and_can_be_stopped(browser, url):
    beanpole("put", "-q", "-l", "-t", "long", body=b"x\n" * 100000)
    browser.open(tube_url(url, "long"))
    browser.see("tbody a")
    # The change is to the jobs that the page has counted.
    browser.wait("the number of jobs", lambda: browser.find("dd", "100,000"))
    browser.click("button", "Move")
    browser.type("[name=to]", "elsewhere")
    browser.click("dialog button", "Move")
    browser.wait("its progress", lambda: re.search(r"[1-9][0-9,]* jobs so far", browser.text()))
    # Who leaves the page is asked first.
    asks = "const leaves = new Event('beforeunload', {cancelable: true}); window.dispatchEvent(leaves); return leaves.defaultPrevented"
    assert browser.run(asks)
    browser.click("dialog button", "Stop")
    browser.read("Stopped: ")
    assert not browser.run(asks)
    moved = lambda: int(re.search(rb"current-jobs-ready +(\d+)", beanpole("stats", "elsewhere")).group(1))
    # What it had in hand is done, and nothing more.
    at_rest = browser.wait("its end", lambda: (lambda one: time.sleep(0.5) or one == moved() and one)(moved()))
    assert 0 < at_rest < 100000, at_rest
    for tube in ["long", "elsewhere"]:
        beanpole("delete", "-y", "-t", tube)


def connections_are_closed(browser, url):
    if not SERVER.endswith("beanpoled"):
        return
    client = socket.create_connection(("127.0.0.1", PORT))
    name = "%s:%d" % client.getsockname()
    client.sendall(b"use leaks\r\n")
    assert client.recv(99) == b"USING leaks\r\n"
    browser.open(f"{url}?server={NAME}&clients=id")
    browser.read(name)
    has_no_barrier(browser)
    number = browser.run("return [...document.querySelectorAll('.rows > *')].find((row) => row.textContent.includes(arguments[0])).querySelector('button').value", name)
    browser.run("document.querySelector(`.rows button[value='${arguments[0]}']`).click()", number)
    browser.read(f"Close connection {number}?")
    browser.click("dialog button", "Close")
    browser.read(f"closed connection {number}")
    assert client.recv(99) == b""
    browser.wait("it to go", lambda: name not in browser.text())


def nothing_renews_and_no_key_acts_for_those_who_want_it(browser, url):
    browser.open(url)
    browser.read("live")
    browser.click("#settings summary")
    browser.click("#settings input[name=renews]")
    browser.click("#settings input[name=slash]")
    browser.read("at ")
    has_no_barrier(browser)
    beanpole("put", "-q", "-t", "unseen", "x")
    browser.run("window.asked = 0; const ask = window.fetch; window.fetch = (...all) => { window.asked += 1; return ask(...all); }")
    time.sleep(2.5)
    assert browser.run("return window.asked") == 0 and "unseen" not in browser.text()
    browser.press("/")
    assert browser.run("return document.activeElement.type") != "search"
    # The browser keeps that.
    browser.open(url)
    browser.see("tbody a", "unseen")
    assert not browser.find("#settings :checked")
    browser.run("localStorage.clear()")


def only_trouble(browser, url):
    beanpole("put", "-q", "-t", "troubled", "x")
    browser.open(url)
    browser.see("tbody a", "default")
    browser.click("#tubes .tabs a", "Only trouble")
    browser.wait("no tube without trouble", lambda: browser.find("tbody a", "troubled") and not browser.find("tbody a", "default"))
    browser.click("#tubes .tabs a", "All")
    browser.see("tbody a", "default")


def a_browser_of_2024(browser, url):
    """Without what came later, all works."""
    later = "delete Uint8Array.fromBase64; delete Uint8Array.fromHex; delete Uint8Array.prototype.toHex; delete AbortSignal.any"
    script = browser.devtools("Page.addScriptToEvaluateOnNewDocument", source=later)
    job = beanpole("put", "-t", "older", "-f", "-", body=BINARY).decode().strip()
    browser.open(job_url(url, job))
    browser.wait("its bytes", lambda: browser.run("return document.querySelector('[open] pre').textContent").startswith("000000  00 01 02 03"))
    job = beanpole("put", "-t", "older", "text").decode().strip()
    browser.open(job_url(url, job))
    browser.click("button", "Edit")
    browser.click("dialog button", "Replace")
    browser.see("h1", f"Job {int(job) + 1}")
    assert beanpole("peek", str(int(job) + 1)) == b"text"
    browser.devtools("Page.removeScriptToEvaluateOnNewDocument", **script)


def below_a_path_of_a_proxy(browser, url):
    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = urllib.request.Request(url.rstrip("/") + self.path.removeprefix("/queue"), body or None, dict(self.headers), method=self.command)
            with urllib.request.urlopen(request) as answer:
                self.wfile.write(b"HTTP/1.0 200 OK\r\n" + bytes(answer.headers) + answer.read())

        do_POST = do_GET

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever).start()
        try:
            below = f"http://127.0.0.1:{proxy.server_port}/queue/"
            browser.open(below)
            browser.see("tbody a", "default")
            browser.open(tube_url(below, "default"))
            browser.click("button", "Put a job")
            browser.click("dialog button", "Put")
            browser.read(" into default")
            browser.click(".brand")
            browser.see("tbody a", "default")
            assert browser.run("return location.href") == below
            browser.open("about:blank")
        finally:
            proxy.shutdown()


def ten_servers(browser):
    """Trouble can be read in each width, and the border of a server says how it is."""
    servers = [(free_port(), f"server-{number}") for number in range(10)]
    running = [Running(SERVER, "-l", "127.0.0.1", "-p", str(port)) for port, _ in servers[:8]]
    hung = socket.create_server(("127.0.0.1", servers[8][0]))
    names = pathlib.Path(browser.profile.name, "servers")
    colours = {0: "green", 8: "green"}
    names.write_text("".join(f"{name} {port} {colours.get(at, '')}\n" for at, (port, name) in enumerate(servers)))
    console = None
    try:
        for port, _ in servers[:8]:
            wait_for_server(port)
            subprocess.run([BEANPOLE, "-a", str(port), "put", "-q", "-t", "a.tube.with-some-name", "x"], check=True)
        for count in [1, 10]:
            own = [word for _, name in servers[:count] for word in ["-a", name]]
            environment = {**os.environ, "BEANPOLE_SERVERS": str(names)}
            console = Running(BEANPOLE, "--timeout", "1", "console", *own, "--listen", "127.0.0.1:0", environment=environment)
            url = re.search(r"http://\S+", console.process.stderr.readline()).group()
            browser.open(url)
            browser.wait("trouble everywhere", lambda: len(browser.find("tbody .badge", "nobody watches")) == min(count, 8))
            has_no_barrier(browser)
            for width in [320, 390, 641, 800, 1000, 1400]:
                browser.look(width=width)
                cut = "return [...document.querySelectorAll('tbody th span')].filter((one) => one.checkVisibility() && (one.getBoundingClientRect().right > one.parentElement.getBoundingClientRect().right + 1 || one.getBoundingClientRect().width < 20)).length"
                browser.wait(f"whole words at {width}", lambda: browser.run(cut) == 0)
            browser.look()
            if count == 10:
                bad = lambda: browser.run("return [...document.querySelectorAll('.servers > li')].map((one) => getComputedStyle(one).borderTopColor === getComputedStyle(one.querySelector('.alarm')).color)")
                browser.wait("two in red", lambda: bad() == [False] * 8 + [True] * 2)
                picture(browser, "ten", 1400)
            browser.open("about:blank")
            console.end()
            console = None
    finally:
        hung.close()
        for one in [*running, *filter(None, [console])]:
            one.process.kill()


def the_server_goes_and_comes_back(browser, url, server):
    browser.open(url)
    browser.read("live")
    server.end()
    browser.read(f"{NAME} does not answer")
    browser.see("[role=alert]")
    has_no_barrier(browser)
    picture(browser, "lost")
    # Neither that there is no tube nor that something could be done.
    for tube in ["default", "unknown"]:
        browser.open(tube_url(url, tube))
        browser.read(f"No answer from {NAME}: cannot connect")
        assert "no such tube" not in browser.text() and not browser.find("button"), browser.text()
    browser.open(url)
    server.start()
    wait_for_server()
    browser.wait("the server again", lambda: "live" in browser.text() and not browser.find("[role=alert]"))
    browser.open(f"{url}?server={NAME}")
    browser.wait("a gap in the curve", lambda: browser.run("return document.querySelector('.gap').getAttribute('d')"))


def the_console_goes_and_comes_back(browser, url, console):
    browser.open(url)
    browser.read("live")
    assert console.end(signal.SIGTERM) == 0
    browser.read("console is gone, trying again")
    port = url.rsplit(":", 1)[1].strip("/")
    console.command = [*console.command[:5], port, "--allow-changes"]
    console.start()
    browser.read("live")
    browser.open(tube_url(url, "default"))
    browser.click("button", "Put a job")
    browser.click("dialog button", "Put")
    browser.read(" into default")


def a_console_with_a_token(browser):
    file = pathlib.Path(browser.profile.name, "token")
    file.write_text("a-token-for-the-test\n")
    file.chmod(0o600)
    console = Running(BEANPOLE, "console", "-a", NAME, "--listen", "127.0.0.1:0", "--token", str(file))
    try:
        url = re.search(r"http://\S+", console.process.stderr.readline()).group()
        browser.open(url)
        browser.read("This console asks for a token")
        for token in ["a wrong one", "a-token-for-the-test"]:
            assert not browser.find("tbody a")
            browser.type("input[type=password]", token)
            browser.press("enter")
        browser.see("tbody a", "default")
        # As it is printed if the console has made the token itself.
        browser.run("sessionStorage.clear()")
        browser.open("about:blank")
        browser.open(f"{url}#token=a-token-for-the-test")
        browser.see("tbody a", "default")
        assert "token" not in browser.run("return location.href")
        # A page without its console would complain.
        browser.open("about:blank")
    finally:
        console.end()


def main():
    server = Running(SERVER, "-l", "127.0.0.1", "-p", str(PORT))
    wait_for_server()
    console, url = start_console()
    browser = Browser()
    browser.look()
    try:
        for story in [
            an_empty_server,
            the_table_with_trouble_first,
            the_curve_rises,
            jobs_of_all_kinds,
            bodies_that_hang_a_careless_reader,
            a_search_can_be_left_shared_and_acted_upon,
            changes_of_many_jobs,
            a_long_name_hides_no_figure,
            a_phone_sorts_and_ticks,
            markup_in_links,
            an_edited_job_takes_the_place_of_the_old_one,
            changes_of_a_job,
            clear_after_the_question,
            a_long_change_shows_its_progress_and_can_be_stopped,
            connections_are_closed,
            nothing_renews_and_no_key_acts_for_those_who_want_it,
            only_trouble,
            a_browser_of_2024,
            below_a_path_of_a_proxy,
            a_tube_among_five_thousand,
        ]:
            if os.environ.get("STORY", "") not in story.__name__:
                continue
            story(browser, url)
            print(f"{story.__name__.replace('_', ' ')}: as it should be")
        if PICTURES:
            browser.open(url)
            browser.see("tbody a")
            picture(browser, "table", 1100)
        a_console_with_a_token(browser)
        ten_servers(browser)
        if SERVER.endswith("beanpoled"):
            scenes.play((SERVER, BEANPOLE), free_port, browser)
        # The browser complains of what the policy forbids, and of errors. That a job was asked
        # for that does not exist is none, nor that a busy machine had many questions at once.
        told = [one["message"] for one in browser.complaints()]
        wrong = [one for one in told if not re.search("the server responded with a status of (40|503)", one)]
        assert not wrong, wrong
        the_server_goes_and_comes_back(browser, url, server)
        the_console_goes_and_comes_back(browser, url, console)
        print("the server and the console go and come back: as it should be")
    finally:
        browser.close()
        console.process.kill()
        server.process.kill()


main()
