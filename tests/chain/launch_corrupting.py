"""As `launch`, but an actor whose messages arrive damaged now and then, whatever they say; its own state is whole."""

import random
import runpy
import sys

import tests.chain.environment  # noqa: F401 - adds it
from rainbow_iqn_apex.memory.broker import actor_client
from rainbow_iqn_apex.memory.messages import Message, encode_message

_random = random.Random(1)


def _encode(message: Message) -> bytes:
    data = encode_message(message)
    return data if _random.random() > 0.15 else data[: len(data) // 2]


if __name__ == "__main__":
    actor_client.encode_message = _encode  # type: ignore[attr-defined]
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
