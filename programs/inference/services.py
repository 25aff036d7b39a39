"""What an inference server computes: actions for many clients together, or for each client by a policy of its own.

Letters: E environments of a request, N of a batch.
"""

import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from rainbow_iqn_apex.agents.policy import Acted, ActorOutput, Policy
from rainbow_iqn_apex.memory.chunk import LAST_ACTION, MOST, ChunkSpec, forms
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec, unpack
from rainbow_iqn_apex.memory.rows import Array, Arrays, Rows, StepType, section
from rainbow_iqn_apex.programs.inference.exchange import STACK, Answer, ClientId, Forms, Refusal, Request

if TYPE_CHECKING:
    from torch import Tensor

_REMEMBERED = 1000  # batches, for the report
_MOST_KEPT = 8  # states of a client: its groups of environments, and those of calls under way
_LIVE_S = 1.0  # since its last request, for which a group of environments counts as live
_LOOK_S = 0.1  # between two looks which groups are still live
_SMOOTHING = 0.1  # share of the newest batch in the mean
_AGAIN_S = 0.1  # until weights that were not there are looked for again

PolicyMaker = Callable[[ClientId], Policy]
# Returns the weights of a version, or of a newer one, and which; None: they are not there yet.
Fetch = Callable[[int], "tuple[dict[str, Tensor], int] | None"]


@dataclass(eq=False)
class Client:
    """A client as the server knows it."""

    route: bytes  # by which ZeroMQ knows it
    who: ClientId
    asked: dict[int, float] = field(default_factory=dict)  # when each request came that is not answered, by the call
    told: float = 0.0  # when it was last told to wait
    kept: OrderedDict[int, Arrays] = field(default_factory=OrderedDict)  # states, by the call after which they are

    def keep(self, call: int, state: Arrays) -> None:
        """Keep the state after a call; drop the oldest ones, which the client can send again."""
        self.kept[call] = state
        while len(self.kept) > _MOST_KEPT:
            self.kept.popitem(last=False)


Answered = tuple[Client, Answer | Refusal]


@dataclass(frozen=True)
class Asked:
    """A request for actions whose arrays are what the policy takes."""

    request: Request
    rows: Rows  # [E, ...]
    state: Arrays  # [E, ...]
    places: Array  # [E] int64, among the environments of all actors


class ArraySchema:
    """The arrays that a policy takes and gives, by which requests are checked."""

    def __init__(self, policy: Policy, environment: EnvironmentSpec, places: int) -> None:
        self._environment = environment
        self.places = places
        observation = environment.observation
        rows = Rows(
            np.zeros((1, *observation.shape), observation.dtype),
            np.zeros(1, np.uint8),
            np.zeros(1, np.float32),
            np.ones(1, np.float32),
        )
        output, state = policy.act(rows, {}, None)
        self._row = _single(rows._asdict())
        self.state = _single(state)
        self.answer = _single(answer_arrays(output, state))
        self.answer |= {f"state.{STACK}": form for name, form in self.state.items() if name == STACK}  # if there is one
        window = policy.spec.window
        fields = policy.spec.played_fields(environment)
        played = {name: ((window, *each.shape), each.dtype) for name, each in fields.items() if name != "obs"}
        extras = forms({f"extras.{name}": array for name, array in output.extras.items()})
        self._rows_of_chunk = played | {name: ((window, *shape[1:]), dtype) for name, (shape, dtype) in extras.items()}
        self.environment_bytes = sum(array.nbytes for array in (*rows, *state.values(), *output.extras.values()))

    def asked(self, request: Request, kept: Arrays | None) -> Asked:
        """Return a request as the policy takes it, with the state that was kept; raises Refusal for other arrays."""
        rows = section(request.arrays, "rows.")
        state = section(request.arrays, "state.")
        places = request.arrays.get("places")
        if places is None or places.dtype != np.int64 or places.ndim != 1 or not len(places):
            raise Refusal("a request without places")
        count = len(places)
        if places.min() < 0 or places.max() >= self.places:
            raise Refusal(f"a place beyond the {self.places} environments of the run")
        if forms(rows) != _many(self._row, count) or rows["step_type"].max() > int(StepType.LAST):
            raise Refusal(f"rows are {forms(rows)}, expected {_many(self._row, count)}")
        state = kept if kept is not None else state or self._blank(count)
        if forms(state) != _many(self.state, count):
            raise Refusal(f"the state is {forms(state)}, expected {_many(self.state, count)}")
        if not all(self._is_sane(name, array) for name, array in (rows | state).items()):
            raise Refusal(f"a number that is not finite, or beyond {MOST:g}")
        if LAST_ACTION in state and (error := self._environment.action.error(state[LAST_ACTION])):
            raise Refusal(f"the state has {error}")
        return Asked(request, Rows(**rows), state, places)

    def _blank(self, count: int) -> Arrays:
        """Return the state before the first call: zeros."""
        return {name: np.zeros((count, *shape), dtype) for name, (shape, dtype) in self.state.items()}

    def _is_sane(self, name: str, array: Array) -> bool:
        """Return whether numbers are those of a chunk, so that nothing that is computed of them overflows."""
        parts = unpack(self._environment.observation, array) if name in ("obs", STACK) else [array]
        return all(np.abs(part).max() <= MOST for part in parts if part.dtype.kind == "f" and part.size)  # not so NaN

    def priorities(self, policy: Policy, request: Request) -> Arrays:
        """Return the priorities of a chunk's rows; raises Refusal for other arrays, and for an agent without any."""
        rows = section(request.arrays, "rows.")
        if (found := forms(rows)) != self._rows_of_chunk:
            raise Refusal(f"the rows of a chunk are {found}, expected {self._rows_of_chunk}")
        if (priorities := policy.initial_priorities(rows)) is None:
            raise Refusal("the agent has no priorities")
        return {"priorities": priorities}


def _single(arrays: Arrays) -> Forms:
    return {name: (shape[1:], dtype) for name, (shape, dtype) in forms(arrays).items()}


def _many(single: Forms, count: int) -> Forms:
    return {name: ((count, *shape), dtype) for name, (shape, dtype) in single.items()}


def answer_arrays(output: ActorOutput, state: Arrays) -> Arrays:
    """Return what an answer to "act" holds."""
    # As a row stores them: some agents draw int64, or now the one and now the other.
    actions = output.actions.astype(np.int32) if output.actions.dtype.kind == "i" else output.actions
    arrays = {"actions": actions} | {f"extras.{name}": array for name, array in output.extras.items()}
    return arrays | {f"state.{name}": array for name, array in state.items() if name != STACK}


def act_together(policy: Policy, batch: Sequence[Asked], *, own_places: bool = False) -> list[Acted]:
    """Return each request's output and next state; evaluations are computed apart from those that explore.

    With `own_places` the environments are the policy's own, as in an actor.
    """
    found: dict[int, Acted] = {}
    for evaluates in (False, True):
        part = [(at, asked) for at, asked in enumerate(batch) if (asked.request.step < 0) == evaluates]
        if part:
            step = None if evaluates else max(asked.request.step for _, asked in part)
            answers = _act(policy, [asked for _, asked in part], step, own_places=own_places)
            found |= {at: answer for (at, _), answer in zip(part, answers, strict=True)}
    return [found[at] for at in range(len(batch))]


def _act(policy: Policy, batch: Sequence[Asked], step: int | None, *, own_places: bool) -> list[Acted]:
    rows = Rows(*(np.concatenate(columns) for columns in zip(*(asked.rows for asked in batch), strict=True)))  # [N, ..]
    state = {name: np.concatenate([asked.state[name] for asked in batch]) for name in batch[0].state}  # [N, ...]
    places = None if own_places else np.concatenate([asked.places for asked in batch])  # [N]
    output, after = policy.act(rows, state, step, places)
    stops = [0, *accumulate(len(asked.places) for asked in batch)]
    return [
        (
            ActorOutput(output.actions[part], {n: array[part] for n, array in output.extras.items()}, output.version),
            {name: array[part] for name, array in after.items()},
        )
        for part in map(slice, stops, stops[1:])
    ]


class PerClientPolicies:
    """Serves each client by a policy that `make` returns for it, which computes as one in the actor would.

    So in lockstep the same seed gives the same bytes as with local inference, on the same kind of processor. A batch of
    several actors would depend on who asks when. What a client's policy draws is saved with the actor; its noise
    between two draws is not, so an actor that loses its server in lockstep resumes from its last commit.
    """

    def __init__(self, make: PolicyMaker, spec: ChunkSpec, schema: ArraySchema, fetch: Fetch) -> None:
        self.spec = spec
        self.schema = schema
        self.version = 0
        self.batches: deque[int] = deque(maxlen=_REMEMBERED)  # environments of the newest requests
        self._make = make
        self._fetch = fetch
        self._policies: dict[Client, Policy] = {}  # of clients that have asked
        self._asked: dict[Client, deque[Request]] = defaultdict(deque)
        self._next_work = 0.0  # when to look for weights that were not there, if no request comes before

    def computes_alone(self, _: ClientId) -> bool:
        """Return that no client is computed together with others."""
        return True

    def ask(self, client: Client, request: Request) -> list[Answer]:
        """Take a request behind the client's others, to be answered by `work`; raises Refusal."""
        if request.kind != "act" and request.step < 0:
            raise Refusal(f"a {request.kind} of {request.step}")
        self._asked[client].append(request)
        self._next_work = 0.0
        return []

    def wait_s(self, now: float) -> float:
        """Return 0 for a new request, and a moment if one waits for weights."""
        return max(0.0, self._next_work - now) if any(self._asked.values()) else float("inf")

    def work(self) -> list[Answered]:
        """Answer each client's requests in their order, up to one that is refused or has no weights yet."""
        self._next_work = time.monotonic() + _AGAIN_S
        return [(client, answer) for client, asked in self._asked.items() for answer in self._answers(client, asked)]

    def _answers(self, client: Client, asked: deque[Request]) -> Iterator[Answer | Refusal]:
        try:
            while asked and (answer := self._answer(client, asked[0])) is not None:
                asked.popleft()
                yield answer
        except Refusal as refusal:
            yield refusal

    def leave(self, client: Client) -> None:
        """Drop a client's policy and requests."""
        self._asked.pop(client, None)
        self._policies.pop(client, None)

    def _answer(self, client: Client, request: Request) -> Answer | None:
        if client not in self._policies:
            self._policies[client] = self._make(client.who)
        policy = self._policies[client]
        arrays = Arrays()
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
                arrays = self.schema.priorities(policy, request)
            case "act":
                if request.after and request.after not in client.kept:
                    return Answer(request.call, policy.version, wants_state=True, arrays={})
                asked = self.schema.asked(request, client.kept.get(request.after))
                ((output, state),) = act_together(policy, [asked], own_places=True)
                self.batches.append(len(asked.places))
                client.keep(request.call, state)
                arrays = answer_arrays(output, state)
        if (drawn := policy.random_state()) is not None:
            arrays = arrays | {"random": drawn}
        return Answer(request.call, policy.version, wants_state=False, arrays=arrays)


def _restore(policy: Policy, drawn: Array) -> None:
    try:
        policy.restore_random_state(drawn.copy())  # what was decoded is read-only
    except (RuntimeError, TypeError, ValueError) as error:
        raise Refusal(f"no state of random numbers: {error}") from error


class BatchRule:
    """Dynamic batching policy: decides when a batch begins, without anything to tune.

    Half of the live groups of environments wait, or the first one has waited for as long as a batch takes on average. A
    group whose client has gone, or has not asked for a second, is not waited for. Times are seconds of one clock.
    """

    def __init__(self) -> None:
        self.mean_s = 0.0  # that a batch takes
        self._asked: dict[tuple[Hashable, int], float] = {}  # when each live group has last asked
        self._next_look = 0.0
        self._waiting: list[tuple[Hashable, float]] = []  # the next batch: who has asked, and when, in that order

    def ask(self, client: Hashable, group: int, now: float) -> None:
        """Count a request of a client for a group of its environments."""
        self._asked[client, group] = now
        self._waiting.append((client, now))

    def wait_s(self, now: float) -> float:
        """Return for how many seconds to wait for more requests: 0 to begin, infinite without any request."""
        if not self._waiting:
            return float("inf")
        if now >= self._next_look:
            self._next_look = now + _LOOK_S
            self._asked = {who: at for who, at in self._asked.items() if now - at < _LIVE_S}
        if 2 * len(self._waiting) >= len(self._asked):
            return 0.0
        return max(0.0, self._waiting[0][1] + self.mean_s - now)

    def leave(self, client: Hashable) -> None:
        """Forget a client that has gone, and its requests."""
        self._asked = {who: at for who, at in self._asked.items() if who[0] != client}
        self._waiting = [waiting for waiting in self._waiting if waiting[0] != client]

    def begin(self) -> None:
        """Take all requests for a batch."""
        self._waiting.clear()

    def end(self, seconds: float) -> None:
        """Count a batch that took so long."""
        self.mean_s = seconds if self.mean_s == 0 else self.mean_s + _SMOOTHING * (seconds - self.mean_s)


class BatchedPolicy:
    """Serves actors without lockstep by one policy, which has the newest weights; `places` environments has the run.

    An evaluation actor has a policy of its own, that `make` returns when it first asks. A "load" of an evaluation actor
    takes the weights that the actors' policy has then; the answer names their version. So an episode of an evaluation
    is played with the weights of its beginning, whatever the actors' policy loads meanwhile.
    """

    def __init__(self, policy: Policy, environment: EnvironmentSpec, places: int, make: PolicyMaker) -> None:
        self.spec = policy.spec
        self.schema = ArraySchema(policy, environment, places)
        self.batches: deque[int] = deque(maxlen=_REMEMBERED)  # environments of the newest batches
        self.is_loaded = False  # until then requests wait
        self._policy = policy
        self._rule = BatchRule()
        self._waiting: deque[tuple[Client, Asked]] = deque()
        self._evaluations = PerClientPolicies(make, self.spec, self.schema, self._newest)

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

    def computes_alone(self, who: ClientId) -> bool:
        """Return whether a client has a policy of its own."""
        return who.evaluates

    def ask(self, client: Client, request: Request) -> list[Answer]:
        """Take a request for actions into the next batch; answer at once what needs no batch. Raises Refusal."""
        if client.who.evaluates:
            return self._evaluations.ask(client, request)
        if request.kind == "priorities":
            arrays = self.schema.priorities(self._policy, request)
            return [Answer(request.call, self.version, wants_state=False, arrays=arrays)]
        if request.kind != "act":
            raise Refusal(f"a request to {request.kind}, without lockstep")
        kept = client.kept.get(request.after)
        if request.after and kept is None:
            return [Answer(request.call, self.version, wants_state=True, arrays={})]
        asked = self.schema.asked(request, kept)
        self._waiting.append((client, asked))
        self._rule.ask(client, int(asked.places[0]), time.monotonic())
        return []

    def wait_s(self, now: float) -> float:
        """Return for how many seconds the next requests wait; infinite if there is nothing to do."""
        return min(self._evaluations.wait_s(now), self._batch_wait_s(now))

    def _batch_wait_s(self, now: float) -> float:
        return self._rule.wait_s(now) if self.is_loaded else float("inf")

    def work(self) -> list[Answered]:
        """Compute what waits where it need not wait any longer."""
        now = time.monotonic()
        is_ready = self._batch_wait_s(now) == 0.0
        alone = self._evaluations.work() if self._evaluations.wait_s(now) == 0.0 else []
        return alone + (self._compute_batch() if is_ready else [])

    def _compute_batch(self) -> list[Answered]:
        """Compute a batch of all that waits."""
        begun = time.monotonic()
        batch = list(self._waiting)
        self._waiting.clear()
        self._rule.begin()
        acted = act_together(self._policy, [asked for _, asked in batch])
        self.batches.append(sum(len(asked.places) for _, asked in batch))
        answers: list[Answered] = []
        for (client, asked), (output, state) in zip(batch, acted, strict=True):
            client.keep(asked.request.call, {name: array.copy() for name, array in state.items()})  # not all of a batch
            arrays = answer_arrays(output, state)
            answers.append((client, Answer(asked.request.call, output.version, wants_state=False, arrays=arrays)))
        self._rule.end(time.monotonic() - begun)
        return answers

    def leave(self, client: Client) -> None:
        """Drop a client's state and requests."""
        self._evaluations.leave(client)
        self._rule.leave(client)
        self._waiting = deque(waiting for waiting in self._waiting if waiting[0] is not client)
