"""Inference without lockstep: what many actors ask is computed together, by the newest weights.

An evaluation actor has a policy of its own. So an episode of an evaluation is played with the weights of its beginning,
whatever the actors' policy loads meanwhile. That policy is made when an evaluation actor first asks, and goes with its
connection.
"""

import time
from collections import deque
from typing import TYPE_CHECKING

from rainbow_iqn_apex.agents.policy import Policy
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.programs.inference.batching import BatchRule
from rainbow_iqn_apex.programs.inference.computing import REMEMBERED, Asked, Forms, act_together, answer_arrays
from rainbow_iqn_apex.programs.inference.hosting import Alone, PolicyMaker
from rainbow_iqn_apex.programs.inference.messages import Answer, Hello, Refusal, Request
from rainbow_iqn_apex.programs.inference.peers import Peer

if TYPE_CHECKING:
    from torch import Tensor


class Together:
    """Serves actors by one policy, and each evaluation actor by a policy that `make` returns for it.

    A "load" of an evaluation actor takes the weights that the actors' policy has then; the answer names their version.
    `places` is how many environments the run has.
    """

    def __init__(self, policy: Policy, environment: EnvironmentSpec, places: int, make: PolicyMaker) -> None:
        self.spec = policy.spec
        self.forms = Forms(policy, environment, places)
        self.batches: deque[int] = deque(maxlen=REMEMBERED)  # environments of the newest batches
        self._policy = policy
        self._rule = BatchRule()
        self._waiting: deque[tuple[Peer, Asked]] = deque()
        self._evaluations = Alone(make, self.spec, self.forms, self._newest)
        self._evaluating: set[Peer] = set()
        self.is_loaded = False  # until then requests wait

    def _newest(self, _: int) -> "tuple[dict[str, Tensor], int] | None":
        return (self.loaded(), self.version) if self.is_loaded else None

    @property
    def version(self) -> int:
        """Version of the weights that compute."""
        return self._policy.version

    def loaded(self) -> "dict[str, Tensor]":
        """Return the present tensors that `load` replaces."""
        return self._policy.loaded()

    def load(self, weights: "dict[str, Tensor]", version: int) -> None:
        """Compute by published weights of this version from now on."""
        self._policy.load(weights, version)
        self.is_loaded = True

    def welcome(self, peer: Peer, hello: Hello) -> bool:
        """Take in a client; return whether it is computed alone."""
        if not hello.evaluates:
            return False
        self._evaluating.add(peer)
        return self._evaluations.welcome(peer, hello)

    def ask(self, peer: Peer, request: Request) -> list[Answer]:
        """Take a request for actions into the next batch; answer at once what needs no batch. Raises Refusal."""
        if peer in self._evaluating:
            return self._evaluations.ask(peer, request)
        if request.kind == "priorities":
            arrays = self.forms.priorities(self._policy, request)
            return [Answer(request.call, self.version, wants_state=False, arrays=arrays)]
        if request.kind != "act":
            raise Refusal(f"a request to {request.kind}, without lockstep")
        kept = peer.kept.get(request.after)
        if request.after and kept is None:
            return [Answer(request.call, self.version, wants_state=True, arrays={})]
        asked = self.forms.asked(request, kept)
        self._waiting.append((peer, asked))
        self._rule.ask(peer, int(asked.places[0]), time.monotonic())
        return []

    def wait_s(self, now: float) -> float:
        """Return for how many seconds the next requests wait; infinite if there is nothing to do."""
        return min(self._evaluations.wait_s(now), self._batch_wait_s(now))

    def _batch_wait_s(self, now: float) -> float:
        return self._rule.wait_s(now) if self.is_loaded else float("inf")

    def work(self) -> list[tuple[Peer, Answer | Refusal]]:
        """Compute what waits where it need not wait any longer."""
        now = time.monotonic()
        is_ready = self._batch_wait_s(now) == 0.0
        alone = self._evaluations.work() if self._evaluations.wait_s(now) == 0.0 else []
        return alone + (self._compute_batch() if is_ready else [])

    def _compute_batch(self) -> list[tuple[Peer, Answer | Refusal]]:
        """Compute a batch of all that waits."""
        begun, batch = time.monotonic(), list(self._waiting)
        self._waiting.clear()
        self._rule.begin()
        acted = act_together(self._policy, [asked for _, asked in batch])
        self.batches.append(sum(len(asked.places) for _, asked in batch))
        answers: list[tuple[Peer, Answer | Refusal]] = []
        for (peer, asked), (output, state) in zip(batch, acted, strict=True):
            peer.keep(asked.request.call, {name: array.copy() for name, array in state.items()})  # not all of the batch
            arrays = answer_arrays(output, state)
            answers.append((peer, Answer(asked.request.call, output.version, wants_state=False, arrays=arrays)))
        self._rule.end(time.monotonic() - begun)
        return answers

    def leave(self, peer: Peer) -> None:
        """Forget a client and its requests."""
        self._evaluating.discard(peer)
        self._evaluations.leave(peer)
        self._rule.leave(peer)
        self._waiting = deque(waiting for waiting in self._waiting if waiting[0] is not peer)
