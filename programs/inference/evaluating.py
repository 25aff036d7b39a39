"""Inference without lockstep for actors and evaluation actors: an evaluation actor has a policy of its own.

So an episode of an evaluation is played with the weights of its beginning, whatever the actors' policy loads meanwhile.
The policy is made when an evaluation actor first asks, and goes with its connection.
"""

import time
from typing import TYPE_CHECKING

from rainbow_iqn_apex.agents.policy import Policy
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.programs.inference.hosting import Alone, PolicyMaker
from rainbow_iqn_apex.programs.inference.messages import Answer, Hello, Refusal, Request
from rainbow_iqn_apex.programs.inference.peers import Peer
from rainbow_iqn_apex.programs.inference.together import Together

if TYPE_CHECKING:
    from torch import Tensor


class TogetherButEvaluations(Together):
    """Serves actors together, and each evaluation actor by a policy that `make` returns for it.

    A "load" of an evaluation actor takes the weights that the actors' policy has then; the answer names their version.
    """

    def __init__(self, policy: Policy, environment: EnvironmentSpec, places: int, make: PolicyMaker) -> None:
        super().__init__(policy, environment, places)
        self._evaluations = Alone(make, self.spec, self.forms, self._newest)
        self._evaluating: set[Peer] = set()

    def _newest(self, _: int) -> "tuple[dict[str, Tensor], int] | None":
        return (self.loaded(), self.version) if self.is_loaded else None

    def welcome(self, peer: Peer, hello: Hello) -> bool:
        """Take in a client; return whether it is computed alone."""
        if not hello.evaluates:
            return super().welcome(peer, hello)
        self._evaluating.add(peer)
        return self._evaluations.welcome(peer, hello)

    def ask(self, peer: Peer, request: Request) -> list[Answer]:
        """Take a request to the policy that the client has, or shares."""
        return self._evaluations.ask(peer, request) if peer in self._evaluating else super().ask(peer, request)

    def wait_s(self, now: float) -> float:
        """Return for how long to wait for more requests."""
        return min(self._evaluations.wait_s(now), super().wait_s(now))

    def work(self) -> list[tuple[Peer, Answer | Refusal]]:
        """Compute what waits where it need not wait any longer."""
        now = time.monotonic()
        is_ready = super().wait_s(now) == 0.0
        alone = self._evaluations.work() if self._evaluations.wait_s(now) == 0.0 else []
        return alone + (super().work() if is_ready else [])

    def leave(self, peer: Peer) -> None:
        """Forget a client."""
        if peer in self._evaluating:
            self._evaluating.remove(peer)
            self._evaluations.leave(peer)
        else:
            super().leave(peer)
