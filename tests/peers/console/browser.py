"""A browser that tests drive: headless Chromium, by the protocol WebDriver.

It needs chromium and chromedriver, and nothing but Python's own library.
"""

import base64
import json
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

# How long to wait for what must come before a test is said to fail.
PATIENCE = 60
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"enter": "\ue007", "escape": "\ue00c", "down": "\ue015", "tab": "\ue004"}


class Browser:
    """A window of a browser with a profile of its own."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.driver = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        for line in self.driver.stdout:
            if "started successfully on port" in line:
                self.base = f"http://127.0.0.1:{line.split()[-1].rstrip('.')}"
                break
        arguments = [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--disable-dev-shm-usage", "--hide-scrollbars", "--window-size=1280,900",
            f"--user-data-dir={self.profile.name}",
        ]
        options = {"args": arguments, "binary": "/usr/bin/chromium"}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        session = self.send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.base += f"/session/{session['sessionId']}"

    def send(self, method, path, body=None):
        data = json.dumps(body).encode() if method == "POST" else None
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.base + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None

    def close(self):
        """Ends the browser and its driver."""
        try:
            self.send("DELETE", "")
        finally:
            self.driver.kill()
            self.driver.wait()
            self.profile.cleanup()

    def open(self, url):
        self.send("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        """What the function with this body returns in the page."""
        return self.send("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def devtools(self, command, **parameters):
        return self.send("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def find(self, selector, text=None):
        """The elements of this selector that are shown, perhaps only those with this text."""
        script = (
            "return [...document.querySelectorAll(arguments[0])].filter((one) => one.checkVisibility()"
            " && (arguments[1] === null || one.textContent.trim() === arguments[1]))"
        )
        return self.run(script, selector, text)

    def wait(self, what, is_there):
        """Waits until this is true, and returns it."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                if found := is_there():
                    return found
            except RuntimeError:
                # The page has changed meanwhile.
                pass
            time.sleep(0.02)
        raise AssertionError(f"{what}: not within {PATIENCE} s; the page says:\n{self.text()}")

    def see(self, selector, text=None):
        """Waits for such an element, and returns the first one."""
        return self.wait(f"{selector} {text or ''}", lambda: self.find(selector, text))[0]

    def read(self, text):
        """Waits until the page says this."""
        self.wait(f"'{text}'", lambda: text in self.text())

    def text(self):
        return self.run("return document.body.innerText")

    def click(self, selector, text=None):
        def try_it():
            found = self.find(selector, text)
            if not found:
                return False
            self.send("POST", f"/element/{found[0][ELEMENT]}/click", {})
            return True

        self.wait(f"{selector} {text or ''}", try_it)

    def type(self, selector, text, clear=True):
        element = self.see(selector)[ELEMENT]
        if clear:
            self.send("POST", f"/element/{element}/clear", {})
        self.send("POST", f"/element/{element}/value", {"text": text})

    def press(self, key):
        """Presses a key wherever the focus is."""
        value = KEYS.get(key, key)
        actions = [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self.send("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def look(self, width=1280, height=900, dark=False):
        """Gives the window a size, and its user a taste."""
        taste = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[taste])
        phone = width < 600
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone
        )

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.send("GET", "/screenshot")))

    def complaints(self):
        """What the browser has complained about since the last time."""
        return self.send("POST", "/se/log", {"type": "browser"})
