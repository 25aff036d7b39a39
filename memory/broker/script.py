"""Runs a script on the server, which may lose all scripts at any moment, as it keeps none when it is restarted."""

from collections.abc import Sequence
from typing import Any

from rainbow_iqn_apex.memory.broker.connection import Argument, Client, NoScriptError

_TRIES = 3


class Script:
    """A script of ours, loaded when the server does not hold it; `durable` is as in `Client.durable`."""

    def __init__(self, client: Client, text: str, *, durable: bool = False) -> None:
        self.client = client
        self._text = text
        self._durable = durable
        self._run = client.register_script(text)

    def __call__(self, keys: Sequence[str | bytes], values: Sequence[Argument] = ()) -> Any:
        """Run the script, also where the server is restarted between its loading and its run.

        At last its text is sent: a node to which a slot moves is asked before it is loaded with scripts.
        """
        server = self.client.of(keys[0])
        server = server.durable() if self._durable else server
        for _ in range(_TRIES):
            try:
                return self._run(keys, values, server)
            except NoScriptError:
                continue
        return server.eval(self._text, len(keys), *keys, *values)
