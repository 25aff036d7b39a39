"""What an inference server does with requests; its loop, `server.py`, knows of sockets alone."""

from collections import deque
from typing import Protocol

from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.programs.inference.computing import Forms
from rainbow_iqn_apex.programs.inference.messages import Answer, Hello, Refusal, Request
from rainbow_iqn_apex.programs.inference.peers import Peer

REMEMBERED = 1000  # batches, for the report


class Service(Protocol):
    """Computes answers."""

    spec: ChunkSpec
    forms: Forms

    @property
    def batches(self) -> deque[int]:
        """Environments of the newest batches."""

    @property
    def version(self) -> int:
        """Newest version of the weights that compute."""

    def welcome(self, peer: Peer, hello: Hello) -> bool:
        """Take in a client that belongs to the run; return whether it is computed alone."""

    def ask(self, peer: Peer, request: Request) -> list[Answer]:
        """Take a request, which a later `work` answers; return what can be answered at once. Raises Refusal."""

    def wait_s(self, now: float) -> float:
        """Return for how many seconds to wait for more requests before `work`; infinite if there is nothing to do."""

    def work(self) -> list[tuple[Peer, Answer | Refusal]]:
        """Compute what waits; a client whose request was refused is given that instead."""

    def leave(self, peer: Peer) -> None:
        """Forget a client."""
