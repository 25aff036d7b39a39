"""Lockstep on a server: each client has a policy of its own there, which computes as one in the actor would.

So the same seed gives the same bytes as with local inference, on the same kind of processor. A batch of several actors
would depend on who asks when. What a client's policy draws is saved with the actor; its noise between two draws is not,
so an actor that loses its server in lockstep goes on from its last commit.
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rainbow_iqn_apex.agents.policy import Policy
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.rows import Array, Arrays
from rainbow_iqn_apex.programs.inference.computing import REMEMBERED, Forms, act_together, answer_arrays
from rainbow_iqn_apex.programs.inference.messages import Answer, Hello, Refusal, Request
from rainbow_iqn_apex.programs.inference.peers import Peer

if TYPE_CHECKING:
    from torch import Tensor

PolicyMaker = Callable[[Hello], Policy]
# Returns the weights of a version, or of a newer one, and which; None: they are not there yet.
Fetch = Callable[[int], "tuple[dict[str, Tensor], int] | None"]

_AGAIN_S = 0.1  # until weights that were not there are looked for again


class Alone:
    """Serves each client by a policy that `make` returns for it."""

    def __init__(self, make: PolicyMaker, spec: ChunkSpec, forms: Forms, fetch: Fetch) -> None:
        self.spec = spec
        self.forms = forms
        self.version = 0
        self.batches: deque[int] = deque(maxlen=REMEMBERED)  # environments of the newest requests
        self._make = make
        self._fetch = fetch
        self._hellos: dict[Peer, Hello] = {}
        self._policies: dict[Peer, Policy] = {}  # of clients that have asked
        self._asked: dict[Peer, deque[Request]] = defaultdict(deque)
        self._next_work = 0.0  # when to look for weights that were not there, if no request comes before

    def welcome(self, peer: Peer, hello: Hello) -> bool:
        """Return that the client is computed alone; its policy is made at its first request."""
        self._hellos[peer] = hello
        return True

    def ask(self, peer: Peer, request: Request) -> list[Answer]:
        """Take a request behind the client's others, to be answered by `work`; raises Refusal."""
        if request.kind != "act" and request.step < 0:
            raise Refusal(f"a {request.kind} of {request.step}")
        self._asked[peer].append(request)
        self._next_work = 0.0
        return []

    def wait_s(self, now: float) -> float:
        """Return 0 for a new request, and a moment if one waits for weights."""
        return max(0.0, self._next_work - now) if any(self._asked.values()) else float("inf")

    def work(self) -> list[tuple[Peer, Answer | Refusal]]:
        """Answer each client's requests in their order, up to one that is refused or has no weights yet."""
        self._next_work = time.monotonic() + _AGAIN_S
        return [(peer, answer) for peer, asked in self._asked.items() for answer in self._answers(peer, asked)]

    def _answers(self, peer: Peer, asked: deque[Request]) -> Iterator[Answer | Refusal]:
        try:
            while asked and (answer := self._answer(peer, asked[0])) is not None:
                asked.popleft()
                yield answer
        except Refusal as refusal:
            yield refusal

    def leave(self, peer: Peer) -> None:
        """Drop the client's policy."""
        for each in (self._hellos, self._asked, self._policies):
            each.pop(peer, None)

    def _answer(self, peer: Peer, request: Request) -> Answer | None:
        if peer not in self._policies:
            self._policies[peer] = self._make(self._hellos[peer])
        policy, arrays = self._policies[peer], Arrays()
        match request.kind:
            case "load":
                if (found := self._fetch(request.step)) is None:
                    return None
                policy.load(*found)
                self.version = max(self.version, policy.version)
            case "reseed" if (drawn := request.arrays.get("random")) is not None:
                _restore(policy, drawn)
            case "reseed":
                policy.reseed(request.step)
            case "priorities":
                arrays = self.forms.priorities(policy, request)
            case "act":
                if request.after and request.after not in peer.kept:
                    return Answer(request.call, policy.version, wants_state=True, arrays={})
                asked = self.forms.asked(request, peer.kept.get(request.after))
                ((output, state),) = act_together(policy, [asked], own_places=True)
                self.batches.append(len(asked.places))
                peer.keep(request.call, state)
                arrays = answer_arrays(output, state)
        if (drawn := policy.random_state()) is not None:
            arrays = arrays | {"random": drawn}
        return Answer(request.call, policy.version, wants_state=False, arrays=arrays)


def _restore(policy: Policy, drawn: Array) -> None:
    try:
        policy.restore_random_state(drawn.copy())  # what was decoded is read-only
    except (RuntimeError, TypeError, ValueError) as error:
        raise Refusal(f"no state of random numbers: {error}") from error
