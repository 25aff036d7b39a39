"""The plot in a real browser, while the file is replaced."""

import functools
import http.server
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rainbow_iqn_apex.saber.results.task import Task
from tests.browser import Browser, needs_browser
from tests.saber.results.records import page_of, stream

pytestmark = [needs_browser, pytest.mark.slow]


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def address_of(path: Path, scheme: str) -> Iterator[str]:
    """Where a browser finds the file: on the disk, or at a server."""
    if scheme == "file":
        yield path.as_uri()
        return
    handler = functools.partial(Silent, directory=path.parent)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/{path.name}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("scheme", ["file", "http"])
def test_an_open_page_brings_itself_up_to_date(scheme: str, tmp_path: Path) -> None:
    # Mutations: `fetch` in the place of the frame, which a page of file:// may not use; no `uirevision`; no
    # `setInterval`; no `frame.remove()` at the beginning, so that frames pile up; the query of the address dropped.
    path, records = tmp_path / "Reward_pong.html", stream(400)
    path.write_text(page_of(records[:200], Task("pong")))
    with address_of(path, scheme) as url, Browser() as browser:
        browser.open(f"{url}?token=7#top", first="asked = []; setInterval = (call, ms) => asked.push([call.name, ms])")
        browser.wait_for("document.getElementById('plot').data")
        marks = "document.getElementById('plot').data.find(trace => trace.name === 'mean').x.length"
        assert browser.value("asked") == [["look", 30000]]
        assert browser.value(marks) == 200
        assert "of 200 training episodes" in browser.value("summary.textContent")
        browser.value("Plotly.relayout('plot', {'xaxis.range': [5, 500000]}).then(() => true)")
        browser.value("look()")
        address = browser.value("document.querySelector('iframe').src")
        assert re.fullmatch(rf"{re.escape(url)}\?token=7&newest=\d+", address)
        browser.wait_for("frame === null")
        assert browser.value(marks) == 200, "nothing is new"
        path.write_text(page_of(records, Task("pong")))
        browser.value("look()")
        browser.wait_for("frame === null")
        assert browser.value(marks) == 400
        assert "of 400 training episodes" in browser.value("summary.textContent")
        assert browser.value("document.getElementById('plot').layout.xaxis.range") == [5, 500000], "the zoom is kept"
        assert browser.value("document.querySelectorAll('iframe').length") == 0
        path.unlink()
        for _ in range(3):
            browser.value("look()")
            browser.value("new Promise(after => setTimeout(after, 300))")
        assert browser.value(marks) == 400, "a file that has gone changes nothing"
        assert browser.value("document.querySelectorAll('iframe').length") == 1
        path.write_text(page_of(records[:300], Task("pong")))
        browser.value("look()")
        browser.wait_for("frame === null")
        assert browser.value(marks) == 300, "it is back"
        assert browser.value("document.querySelectorAll('iframe').length") == 0
        expected = ("Failed to load", "404", "asks the network")  # the file that has gone, and the server of its own
        assert [error for error in browser.errors if not any(text in error for text in expected)] == []
