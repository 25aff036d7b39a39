"""What a target of the fuzzer is."""

import random
from collections.abc import Callable
from typing import Any, NamedTuple


class Target(NamedTuple):
    """`read` may raise what `allowed` names and nothing else, `use` of what it gives may raise nothing."""

    share: float  # of all cases
    samples: list[bytes]
    forge: Callable[[random.Random, bytes], bytes]
    read: Callable[[bytes], Any]
    use: Callable[[Any], None]
    allowed: tuple[type[Exception], ...]
    server: tuple[str, int] | None = None  # that `read` may connect to, as after a reply that is not believed
