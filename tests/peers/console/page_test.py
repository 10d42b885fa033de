"""What a person does with the page of the console: page_test.py SERVER BEANPOLE
[PICTURES]

Each function tells of one thing; all use the same server, console and browser.
"""

import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import scenes
from browser import Browser

SERVER, BEANPOLE = sys.argv[1:3]
PICTURES = sys.argv[3] if len(sys.argv) > 3 else None
MARKUP = b'</pre><script>document.title = "taken"</script><img src=x onerror="document.title=\'taken\'">'
BINARY = bytes(range(256)) + b"\r\n"


class Running:
    """A server, or a console that watches it."""

    def __init__(self, *command):
        self.command = command
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True)

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


def wait_for_server():
    until = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", PORT)).close()
            return
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.05)


def start_console():
    console = Running(BEANPOLE, "console", "-a", NAME, "--listen", "127.0.0.1:0", "--allow-changes")
    url = re.search(r"http://\S+", console.process.stderr.readline()).group()
    return console, url


def tube_url(url, tube):
    return f"{url}#/127.0.0.1%3A{PORT}/tube/{tube}"


def job_url(url, job):
    return f"{url}#/127.0.0.1%3A{PORT}/job/{job}"


def picture(browser, name, height=900):
    """Takes pictures for the eyes of a person, if they are wanted."""
    if PICTURES:
        for kind, look in {"light": {}, "dark": {"dark": True}, "phone": {"width": 390}}.items():
            browser.look(height=height, **look)
            # The page draws its curves anew for its new width.
            time.sleep(2.5)
            browser.picture(pathlib.Path(PICTURES, f"{name}-{kind}.png"))
        browser.look()


def fits_a_phone(browser):
    """Nothing is wider than the screen."""
    browser.look(width=390, height=844)
    wait = "return document.documentElement.scrollWidth <= 390"
    browser.wait("a page as wide as a phone", lambda: browser.run(wait))
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
    first = lambda: browser.run("return document.querySelector('tbody a').textContent")
    browser.wait("trouble first", lambda: first() == "unwatched")
    browser.see("tbody .badge.grave", "nobody watches")
    # By the head of a column, from both ends.
    browser.click("th button", "Tube")
    browser.wait("names in their order", lambda: first() == "default")
    browser.click("th button", "Tube")
    browser.wait("names the other way round", lambda: first() == "unwatched")
    browser.click("th button", "Delayed")
    browser.wait("most delayed jobs first", lambda: first() == "quiet")
    assert browser.find("th[aria-sort=descending]", "Delayed")
    # The address says so, for others.
    address = browser.run("return location.href")
    browser.open("about:blank")
    browser.open(address)
    browser.wait("the same order", lambda: browser.find("th[aria-sort=descending]", "Delayed") and first() == "quiet")
    browser.read("live, 1 tube has trouble")
    fits_a_phone(browser)


def a_tube_among_five_thousand(browser, url):
    with socket.create_connection(("127.0.0.1", PORT)) as client:
        lines = b"".join(b"watch many-%04d\r\n" % number for number in range(5000))
        client.sendall(lines)
        replies = client.makefile("rb")
        for _ in range(5000):
            replies.readline()
        browser.open(url)
        browser.wait("5,000 tubes", lambda: re.search(r"5,00\d", browser.text()))
        browser.press("/")
        browser.run(
            "window.took = null; const start = performance.now(); new MutationObserver((_, observer) => {"
            " const rows = document.querySelectorAll('tbody a');"
            " if (rows.length === 1 && rows[0].textContent === 'many-4321') {"
            " window.took = performance.now() - start; observer.disconnect(); }"
            "}).observe(document.querySelector('tbody'), {childList: true, subtree: true});"
        )
        browser.type("input[type=search]", "4321", clear=False)
        took = browser.wait("the tube that was looked for", lambda: browser.run("return window.took"))
        print(f"a tube among 5,000 is found {took:.0f} ms after the first key")
        assert took < 1000, took
        browser.type("input[type=search]", "many-??99", clear=True)
        browser.read("50 of 5,00")
        # The keyboard alone opens the first one.
        browser.press("enter")
        browser.see("h1", "many-0099")


def the_curve_rises(browser, url):
    browser.open(tube_url(url, "rising"))
    browser.read("There is no such tube")
    beanpole("put", "-q", "-t", "rising", "x")
    scale = "return document.querySelectorAll('figure text')[2].textContent"
    # The heights of the points: the origin of a drawing is at its top.
    points = "return document.querySelector('polyline.c0').getAttribute('points').split(' ').map((point) => +point.split(',')[1])"
    browser.wait("a curve", lambda: browser.find("polyline.c0") and browser.run(scale) == "1")
    # A point shows the most jobs of its two seconds, so the others come after these. A
    # single one is drawn as two.
    browser.wait("its second point", lambda: len(browser.run(points)) > 2)
    for _ in range(10):
        beanpole("put", "-q", "-t", "rising", *["x"] * 20)
    browser.wait("a scale for 201 jobs", lambda: browser.run(scale) == "500")
    browser.wait("a curve that rises", lambda: (lambda y: len(y) > 1 and y[-1] < y[0] - 10)(browser.run(points)))
    times = browser.run("return [...document.querySelectorAll('figure text')].map((one) => one.textContent)")
    assert any(re.fullmatch(r"\d\d:\d\d:\d\d", one) for one in times), times
    browser.click("button", "1 day")
    browser.wait("a curve of a day", lambda: browser.run("return document.querySelectorAll('figure text').length") > 6)
    fits_a_phone(browser)
    picture(browser, "tube", 1200)


def jobs_of_all_kinds(browser, url):
    binary = beanpole("put", "-t", "kinds", "-f", "-", body=BINARY).decode().strip()
    markup = beanpole("put", "-t", "kinds", "-f", "-", body=MARKUP).decode().strip()
    text = b'{"big":12345678901234567890,"list":[1,{}],"x":"<b>"}'
    json = beanpole("put", "-t", "kinds", "-f", "-", body=text).decode().strip()
    body = lambda: browser.run("return document.querySelector('.body').textContent")
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
    browser.click("button", "Text")
    browser.wait("the same as text", lambda: body() == text.decode())
    fits_a_phone(browser)
    picture(browser, "job")
    # Found by text in its body, and by state.
    browser.open(tube_url(url, "kinds"))
    browser.see("tbody a", json)
    browser.type("input[type=search]", "onerror")
    browser.press("enter")
    ids = "return [...document.querySelectorAll('tbody a')].map((one) => one.textContent)"
    if browser.run("return document.body.innerText").find("lists no jobs") < 0:
        browser.wait("one job", lambda: browser.run(ids) == [markup])
    browser.open("about:blank")
    browser.open(tube_url(url, "kinds"))
    browser.click("button", "Buried")
    browser.read("No job is buried.")


def bodies_that_were_packed(browser, url):
    """What PHP has serialised is JSON, and base64 is text, beside the body itself."""
    body = lambda: browser.run("return document.querySelector('.body').textContent")
    php = 'a:2:{s:2:"id";i:7;i:0;O:4:"Mail":1:{s:2:"to";s:3:"é!";}}'.encode()
    job = beanpole("put", "-t", "packed", "-f", "-", body=php).decode().strip()
    browser.open(job_url(url, job))
    browser.wait("PHP as JSON", lambda: body() == '{\n  "id": 7,\n  "0": {\n    "to": "é!"\n  }\n}')
    browser.click("button", "Text")
    browser.wait("the same as text", lambda: body() == php.decode())
    job = beanpole("put", "-t", "packed", "eyJhIjogWzFdfQ==").decode().strip()
    browser.open(job_url(url, job))
    browser.wait("the body itself", lambda: body() == "eyJhIjogWzFdfQ==")
    browser.click("button", "Base64")
    browser.wait("what was packed", lambda: body() == '{\n  "a": [\n    1\n  ]\n}')


def changes_of_many_jobs(browser, url):
    for number in range(12):
        beanpole("put", "-q", "-t", "many", f"{'odd' if number % 2 else 'even'} {number}")
    browser.open(tube_url(url, "many"))
    browser.wait("twelve jobs", lambda: len(browser.run("return [...document.querySelectorAll('tbody tr')]")) == 12)
    browser.run("document.querySelectorAll('tbody input')[0].click(); document.querySelectorAll('tbody input')[1].click()")
    browser.read("2 ticked:")
    picture(browser, "many", 1100)
    browser.click(".bar button", "Bury")
    browser.click("dialog button", "Bury")
    browser.read("buried 2 jobs")
    # Most tries first.
    browser.click("th button", "Tries")
    browser.wait("the order", lambda: browser.find("th[aria-sort=descending]", "Tries"))
    # A search, and what it has found.
    browser.open("about:blank")
    browser.open(tube_url(url, "many"))
    browser.see("tbody a")
    browser.type("input[type=search]", "odd")
    browser.press("enter")
    browser.read("All that have this in their bodies:")
    browser.wait("the search in the address", lambda: "text=odd" in browser.run("return location.href"))
    # To clear means no more than what is shown.
    browser.click(".actions button", "Clear")
    browser.read("Delete 6 jobs that have “odd” in their bodies?")
    browser.click("dialog button", "Delete")
    browser.read("deleted 6 jobs")
    assert beanpole("stats", "many").count(b"\n") and b"odd" not in beanpole("ls", "many")


def markup_in_links(browser, url):
    """Anybody can make a link: the names in it are text, too."""
    for link in ["#/%3Cimg%20src%3Dx%3E/tube/x", f"#/127.0.0.1%3A{PORT}/tube/%3Cscript%3E", f"#/127.0.0.1%3A{PORT}/job/%3Cb%3E", "#/%"]:
        browser.open("about:blank")
        browser.open(url + link)
        browser.wait("the state", lambda: browser.find("#state"))
        browser.wait("an answer", lambda: len(browser.run("return document.querySelector('main').innerText")) > 5)
        assert not browser.find("main script, main b, main img, #path img, #path b")


def edit_and_put_again(browser, url):
    job = beanpole("put", "-t", "again", "-p", "7", "-r", "99", "-f", "-", body='{"wrong": "é<b>"}'.encode()).decode().strip()
    browser.open(job_url(url, job))
    browser.click("button", "Edit and put again")
    assert browser.run("return document.querySelector('[name=priority]').value") == "7"
    browser.type("textarea", '{"right": "é<b>"}\nand more')
    picture(browser, "put")
    browser.click("dialog button", "Put")
    browser.read(" into again")
    new = re.search(r"put job (\d+) into again", browser.text()).group(1)
    assert beanpole("peek", new).decode() == '{"right": "é<b>"}\nand more'
    facts = beanpole("stats", "job", new).decode()
    assert re.search(r"pri +7\n", facts) and re.search(r"ttr +99\n", facts), facts
    # A body that is no text is edited as numbers, and comes out as it was.
    job = beanpole("put", "-t", "again", "-f", "-", body=BINARY).decode().strip()
    browser.open(job_url(url, job))
    browser.see("h1", f"Job {job}")
    browser.click("button", "Edit and put again")
    browser.click("dialog button", "Put")
    new = str(int(job) + 1)
    browser.read(f"put job {new} into again")
    assert beanpole("peek", new) == BINARY


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
    browser.read(f"job {job} is delayed for 3600 s")
    browser.see(".badge", "delayed")
    # Delete asks, and does nothing if one thinks better of it.
    browser.click("main button", "Delete")
    browser.press("enter")
    browser.wait("the question to go", lambda: not browser.find("dialog"))
    assert beanpole("peek", job) == b"x"
    browser.click("main button", "Delete")
    browser.click("dialog button", "Delete")
    browser.read(f"deleted job {job}")
    browser.read("There is no such job")


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
    browser.read("30 ready")
    picture(browser, "clear")
    browser.click("dialog button", "Delete")
    browser.read("deleted 30 jobs of other-heap")
    browser.read("There are no jobs.")
    assert b"heap" not in beanpole("ls") if SERVER.endswith("beanpoled") else True


def the_server_goes_and_comes_back(browser, url, server):
    browser.open(url)
    browser.read("live")
    server.end()
    browser.read(f"{NAME} does not answer")
    browser.see("[role=alert]")
    picture(browser, "lost")
    server.start()
    wait_for_server()
    browser.wait("the server again", lambda: "live" in browser.text() and not browser.find("[role=alert]"))
    browser.open(f"{url}#/127.0.0.1%3A{PORT}")
    browser.wait("a gap in the curve", lambda: browser.find("rect.gap"))


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
            bodies_that_were_packed,
            changes_of_many_jobs,
            markup_in_links,
            edit_and_put_again,
            changes_of_a_job,
            clear_after_the_question,
            a_tube_among_five_thousand,
        ]:
            story(browser, url)
            print(f"{story.__name__.replace('_', ' ')}: as it should be")
        if PICTURES:
            browser.open(url)
            browser.see("tbody a")
            picture(browser, "table", 1100)
        a_console_with_a_token(browser)
        if SERVER.endswith("beanpoled"):
            scenes.play((SERVER, BEANPOLE), free_port, browser)
        # The browser complains of what the policy forbids, and of errors. That
        # a job was asked for that does not exist is none.
        wrong = [one["message"] for one in browser.complaints() if "the server responded with a status of 40" not in one["message"]]
        assert not wrong, wrong
        the_server_goes_and_comes_back(browser, url, server)
        the_console_goes_and_comes_back(browser, url, console)
        print("the server and the console go and come back: as it should be")
    finally:
        browser.close()
        console.process.kill()
        server.process.kill()


main()
