"""What a start script and the side of it on another host send each other, over ssh's standard streams."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

HELLO = b"rainbow-iqn-apex remote "  # begins the first line from there, after what a login may print
FAULT = b"rainbow-iqn-apex fault "  # in its place: what is missing there
STOP = b"stop\n"
BEAT = b"\n"
BEAT_S = 5.0
SILENT_S = 20.0  # without a beat, after which the other side counts as gone
MOST_BYTES = 1_000_000  # of an order
_Text = Annotated[str, Meta(max_length=10_000)]


@dataclass(frozen=True)
class Order:
    """Orders the other side to run an actor; secrets are in the environment alone."""

    words: Annotated[list[_Text], Meta(max_length=1000)]  # options of launch_actor.py
    environment: dict[_Text, _Text]
