"""Inference without lockstep for actors and evaluation actors: an evaluation actor has a policy of its own.

So an episode of an evaluation is played with the weights of its beginning, whatever the actors' policy loads meanwhile.
The policy is made when an evaluation actor first asks, and goes with its connection.
"""

import time
from collections import deque
from typing import TYPE_CHECKING

from rainbow_iqn_apex.programs.inference.hosting import Alone, PolicyMaker
from rainbow_iqn_apex.programs.inference.messages import Answer, Hello, Refusal, Request
from rainbow_iqn_apex.programs.inference.peers import Peer
from rainbow_iqn_apex.programs.inference.together import Together

if TYPE_CHECKING:
    from torch import Tensor


class TogetherButEvaluations:
    """Serves actors together, and each evaluation actor by a policy that `make` returns for it.

    A "load" of an evaluation actor takes the weights that the actors' policy has then; the answer names their version.
    """

    def __init__(self, together: Together, make: PolicyMaker) -> None:
        self.spec = together.spec
        self.forms = together.forms
        self._together = together
        self._evaluations = Alone(make, together.spec, together.forms, self._newest)
        self._services: dict[Peer, Together | Alone] = {}

    @property
    def version(self) -> int:
        """Version of the weights that compute for actors."""
        return self._together.version

    @property
    def batches(self) -> deque[int]:
        """Environments of the newest batches of actors."""
        return self._together.batches

    def loaded(self) -> "dict[str, Tensor]":
        """Return the present tensors that `load` replaces."""
        return self._together.loaded()

    def load(self, weights: "dict[str, Tensor]", version: int) -> None:
        """Compute for actors by published weights of this version from now on."""
        self._together.load(weights, version)

    def _newest(self, _: int) -> "tuple[dict[str, Tensor], int] | None":
        return (self.loaded(), self.version) if self._together.is_loaded else None

    def welcome(self, peer: Peer, hello: Hello) -> bool:
        """Take in a client; return whether it is computed alone."""
        self._services[peer] = self._evaluations if hello.evaluates else self._together
        return self._services[peer].welcome(peer, hello)

    def ask(self, peer: Peer, request: Request) -> list[Answer]:
        """Take a request to the client's service."""
        return self._services[peer].ask(peer, request)

    def wait_s(self, now: float) -> float:
        """Return for how long to wait for more requests."""
        return min(service.wait_s(now) for service in (self._evaluations, self._together))

    def work(self) -> list[tuple[Peer, Answer | Refusal]]:
        """Compute what waits where it need not wait any longer."""
        now = time.monotonic()
        ready = [service for service in (self._evaluations, self._together) if service.wait_s(now) == 0.0]
        return [answer for service in ready for answer in service.work()]

    def leave(self, peer: Peer) -> None:
        """Forget a client."""
        if (service := self._services.pop(peer, None)) is not None:
            service.leave(peer)
