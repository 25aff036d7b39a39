"""Inference without lockstep: what many clients ask is computed together, by the newest weights."""

import time
from collections import deque
from typing import TYPE_CHECKING

from rainbow_iqn_apex.agents.policy import Policy
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.programs.inference.batching import BatchRule
from rainbow_iqn_apex.programs.inference.computing import REMEMBERED, Asked, Forms, act_together, answer_arrays
from rainbow_iqn_apex.programs.inference.messages import Answer, Hello, Refusal, Request
from rainbow_iqn_apex.programs.inference.peers import Peer

if TYPE_CHECKING:
    from torch import Tensor


class Together:
    """Serves by one policy; `places` is how many environments the run has, and `rule` when a batch begins."""

    def __init__(
        self, policy: Policy, environment: EnvironmentSpec, places: int, rule: BatchRule | None = None
    ) -> None:
        self.spec = policy.spec
        self.forms = Forms(policy, environment, places)
        self.batches: deque[int] = deque(maxlen=REMEMBERED)  # environments of the newest batches
        self._policy = policy
        self._rule = rule or BatchRule()
        self._waiting: deque[tuple[Peer, Asked]] = deque()
        self.is_loaded = False  # until then requests wait

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

    def welcome(self, peer: Peer, hello: Hello) -> bool:  # noqa: ARG002 - all clients are alike
        """Return that clients are computed together."""
        return False

    def ask(self, peer: Peer, request: Request) -> list[Answer]:
        """Take a request for actions into the next batch; answer at once what needs no batch. Raises Refusal."""
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
        """Return for how many seconds the next batch waits; infinite if there is nothing to do."""
        return self._rule.wait_s(now) if self.is_loaded else float("inf")

    def work(self) -> list[tuple[Peer, Answer | Refusal]]:
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
        self._rule.leave(peer)
        self._waiting = deque(waiting for waiting in self._waiting if waiting[0] is not peer)
