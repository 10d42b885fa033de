"""The HTML edition of the manuals has no barrier that axe-core finds: manual_test.py
DIRECTORY. It is looked at as on a phone and as on a desk, in the light and in the dark."""

import os
import pathlib
import sys

from browser import Browser

AXE = pathlib.Path(os.environ["AXE"]).read_text()
LOOKS = [{"width": 320}, {"width": 1280}, {"width": 1280, "dark": True}]
FIND = "return axe.run().then(({violations}) => violations.map(({id, nodes}) => [id, nodes.map(({html, any}) => [html, any[0]?.message])]))"

browser, pages = Browser(), sorted(pathlib.Path(sys.argv[1]).resolve().rglob("*.html"))
try:
    assert pages
    for page in pages:
        for look in LOOKS:
            browser.look(**look)
            browser.open(page.as_uri())
            browser.run(AXE)
            found = browser.run(FIND)
            assert not found, (page, look, found)
    print(f"{len(pages)} pages of the manual: no barrier")
finally:
    browser.close()
