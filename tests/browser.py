"""A real browser for the tests: Chromium without a window, driven over a pipe by its DevTools protocol.

with Browser() as browser:
    browser.open(path, width=400, height=900, dark=True)
    browser.value("document.title")
    assert browser.errors == []
"""

import json
import os
import select
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.deadline import Deadline, wait_until
from tests.processes import Processes

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_SKIPS = PROGRAM is None and not os.environ.get("TESTS_NEED_BROWSER")  # where CI installs one, its lack is a failure
needs_browser = pytest.mark.skipif(_SKIPS, reason="needs Chromium: apt-get install chromium")

_TIMEOUT_S = 120.0


class Browser:
    """Opens one page at a time; a context manager."""

    def __init__(self) -> None:
        assert PROGRAM, "there is no Chromium: apt-get install chromium"
        self._processes = Processes()
        self._folder = tempfile.mkdtemp()
        pipes = [Path(self._folder, name) for name in ("in", "out")]
        for pipe in pipes:
            os.mkfifo(pipe)
        # The protocol's pipes are descriptors 3 and 4 of the browser; the shell puts them there.
        script = f'exec "$@" 3<{pipes[0]} 4>{pipes[1]}'
        options = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --remote-debugging-pipe"
        words = ["-c", script, "browser", PROGRAM, *options.split(), f"--user-data-dir={self._folder}"]
        environment = {**os.environ, "DBUS_SESSION_BUS_ADDRESS": "disabled:"}
        self._process = self._processes.start(*words, program="bash", environment=environment)
        self._out = os.open(pipes[0], os.O_WRONLY)
        self._in = os.open(pipes[1], os.O_RDONLY)
        self._rest = b""
        self._number = 0
        self._target: str | None = None
        self._session: str | None = None
        self.errors: list[str] = []  # of the page: exceptions, console errors and warnings, failed loads

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._out)  # the browser ends with its pipe
        with suppress(AssertionError):
            self._process.finish(20)
        self._processes.close()
        os.close(self._in)
        shutil.rmtree(self._folder, ignore_errors=True)

    def open(
        self, page: Path | str, width: int = 1280, height: int = 900, *, dark: bool = False, first: str = ""
    ) -> None:
        """Load a file or an address in a window of this size [CSS pixels], up to its end; run the script `first`."""
        self._session = None
        if self._target:
            self.call("Target.closeTarget", targetId=self._target)
        self._target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        self.errors.clear()
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height}
        self.call("Emulation.setDeviceMetricsOverride", **size, deviceScaleFactor=1, mobile=width < 700)
        if first:
            self.call("Page.addScriptToEvaluateOnNewDocument", source=first)
        self.call("Page.navigate", url=page.resolve().as_uri() if isinstance(page, Path) else page)
        self.wait_for("location.href !== 'about:blank' && document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """What a JavaScript expression, or the promise that it is, comes to, as JSON."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        wait_until(lambda: self.value(condition), lambda: f"{condition}; {self.errors}", _TIMEOUT_S, every=0.1)

    def call(self, method: str, **parameters: Any) -> Any:
        """One call of the protocol; errors of the page that are told meanwhile are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._number:
            self._note(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _receive(self) -> dict[str, Any]:
        deadline = Deadline(_TIMEOUT_S, "an answer of the browser")
        while b"\0" not in self._rest:
            if select.select([self._in], [], [], 0.2)[0]:
                data = os.read(self._in, 1 << 20)
                assert data, "the browser has ended"
                self._rest += data
            deadline.check()
        message, self._rest = self._rest.split(b"\0", 1)
        found: dict[str, Any] = json.loads(message)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("sessionId") != self._session:
            return
        told = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(told["exceptionDetails"]))
        elif event["method"] == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.errors.append(json.dumps(told["args"]))
        elif event["method"] == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.errors.append(told["entry"]["text"])
        elif event["method"] == "Network.requestWillBeSent" and told["request"]["url"].startswith("http"):
            self.errors.append(f"asks the network for {told['request']['url']}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all pages of a file: to start it takes a second of a processor."""
    with Browser() as browser:
        yield browser
