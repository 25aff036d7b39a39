"""What actors see and think, as long as a browser asks for it: an actor makes no view without a listener."""

import threading
import time
from typing import Any

from rainbow_iqn_apex.common.text import name_error, one_line
from rainbow_iqn_apex.memory.broker.connection import BrokerError
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.reports import ViewListener
from rainbow_iqn_apex.monitoring.view import MAX_BYTES, ViewError, decode
from rainbow_iqn_apex.programs.dashboard.watcher import Watcher

_WATCHED_S = 5.0  # after a browser's last question
_MOST_WATCHED = 8  # actors at a time
_AGAIN_S = 1.0  # after a connection has failed

# What the Atari console's 18 actions are called; other environments' actions have numbers alone.
_ATARI = (
    "no-op", "fire", "up", "right", "left", "down", "up right", "up left", "down right", "down left", "up fire",
    "right fire", "left fire", "down fire", "up right fire", "up left fire", "down right fire", "down left fire",
)  # fmt: skip


class Views:
    """Listens in a thread of its own; a context manager, within that of the watcher."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._left = threading.Event()
        self._asked: dict[str, float] = {}  # by channel, when a browser last asked for it, by the monotonic clock
        self._newest: dict[str, dict[str, Any]] = {}  # by channel
        self._problem = ""
        self._listener: ViewListener | None = None
        self._thread = threading.Thread(target=self._keep, name="views", daemon=True)

    def __enter__(self) -> "Views":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._thread.join()

    def ask(self, actor: int, *, evaluation: bool) -> dict[str, Any]:
        """Return the newest view of an actor, or evaluation actor, and let it make more."""
        overview = self._watcher.last.overview
        if overview is None:
            return {"problem": "there is no run"}
        record = overview.record
        channel = Keys(overview.name, record.run_id, evaluation, record.shards).view(actor)
        watched = [other for other, at in self._asked.copy().items() if time.monotonic() - at < _WATCHED_S]
        if channel not in watched and len(watched) >= _MOST_WATCHED:
            return {"problem": f"{len(watched)} actors are watched already"}
        self._asked[channel] = time.monotonic()
        view = self._newest.get(channel)
        if view is None or self._problem:
            return {"problem": self._problem}
        is_atari = str(overview.setting("env") or "atari") == "atari" and len(view["actions"]) == len(_ATARI)
        names = _ATARI if is_atari else [str(number) for number in range(len(view["actions"]))]
        return {"problem": "", "view": view | {"names": names}}

    def _keep(self) -> None:
        while not self._left.is_set():
            try:
                self._problem = self._listen()
            except BrokerError as error:
                self._miss(f"no views come from Redis ({one_line(error)})")
            except Exception as error:  # noqa: BLE001 - whatever a peer has sent may cost views, and no thread
                self._miss(f"the dashboard cannot read the views ({name_error(error)})")
        self._hang_up()

    def _miss(self, why: str) -> None:
        self._problem = why
        self._hang_up()
        self._left.wait(_AGAIN_S)

    def _listen(self) -> str:
        """Listen for a moment to the actors that are watched; return what is wrong with what came."""
        client, now = self._watcher.client, time.monotonic()
        self._asked = {channel: at for channel, at in self._asked.copy().items() if now - at < _WATCHED_S}
        if not self._asked or client is None:
            self._hang_up()
            self._left.wait(0.2)
            return ""
        channels = set(self._asked)
        self._newest = {channel: view for channel, view in self._newest.items() if channel in channels}
        if self._listener is None:
            self._listener = ViewListener(client)
        self._listener.listen(channels)
        problem = ""
        for channel, data in self._listener.next(MAX_BYTES + 1).items():
            try:
                self._newest[channel] = decode(data)
            except ViewError as error:
                self._newest.pop(channel, None)
                problem = str(error)
        return problem

    def _hang_up(self) -> None:
        if self._listener:
            self._listener.close()
            self._listener = None
        self._newest = {}
