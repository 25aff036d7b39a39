"""Computes the requests of many clients together, by one policy. Letters: E environments of a request, N of a batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from rainbow_iqn_apex.agents.policy import Acted, ActorOutput, Policy
from rainbow_iqn_apex.memory.chunk import LAST_ACTION, MOST, forms
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec, unpack
from rainbow_iqn_apex.memory.rows import Array, Arrays, Rows, StepType, section
from rainbow_iqn_apex.programs.inference.messages import STACK, Refusal, Request

REMEMBERED = 1000  # batches, for the report


@dataclass(frozen=True)
class Asked:
    """A request for actions whose arrays are what the policy takes."""

    request: Request
    rows: Rows  # [E, ...]
    state: Arrays  # [E, ...]
    places: Array  # [E] int64, among the environments of all actors


class Forms:
    """Holds what a policy takes and gives, and checks by that what a request may hold."""

    def __init__(self, policy: Policy, environment: EnvironmentSpec, places: int) -> None:
        self._environment = environment
        self.places = places
        field = environment.observation
        rows = Rows(
            np.zeros((1, *field.shape), field.dtype), np.zeros(1, np.uint8), np.zeros(1, np.float32),
            np.ones(1, np.float32),
        )  # fmt: skip
        output, state = policy.act(rows, {}, None)
        self._row = _single(rows._asdict())
        self.state = _single(state)
        self.answer = _single(answer_arrays(output, state))
        self.answer |= {f"state.{STACK}": form for name, form in self.state.items() if name == STACK}  # if there is one
        fields = policy.spec.played_fields(environment)
        played = {name: ((policy.spec.window, *f.shape), f.dtype) for name, f in fields.items() if name != "obs"}
        extras = {f"extras.{name}": array for name, array in output.extras.items()}
        self._rows_of_chunk = played | {
            name: ((policy.spec.window, *shape[1:]), dtype) for name, (shape, dtype) in forms(extras).items()
        }
        self.environment_bytes = sum(array.nbytes for array in (*rows, *state.values(), *extras.values()))

    def blank(self, count: int) -> Arrays:
        """Return the state before the first call: zeros."""
        return {name: np.zeros((count, *shape), dtype) for name, (shape, dtype) in self.state.items()}

    def asked(self, request: Request, kept: Arrays | None) -> Asked:
        """Return a request as the policy takes it, with the state that was kept; raises Refusal for other arrays."""
        rows, state = section(request.arrays, "rows."), section(request.arrays, "state.")
        places = request.arrays.get("places")
        if places is None or places.dtype != np.int64 or places.ndim != 1 or not len(places):
            raise Refusal("a request without places")
        count = len(places)
        if places.min() < 0 or places.max() >= self.places:
            raise Refusal(f"a place beyond the {self.places} environments of the run")
        if forms(rows) != _many(self._row, count) or rows["step_type"].max() > int(StepType.LAST):
            raise Refusal(f"rows are {forms(rows)}, expected {_many(self._row, count)}")
        state = kept if kept is not None else state or self.blank(count)
        if forms(state) != _many(self.state, count):
            raise Refusal(f"the state is {forms(state)}, expected {_many(self.state, count)}")
        if not all(self._is_sane(name, array) for name, array in (rows | state).items()):
            raise Refusal(f"a number that is not finite, or beyond {MOST:g}")
        if LAST_ACTION in state and (error := self._environment.action.error(state[LAST_ACTION])):
            raise Refusal(f"the state has {error}")
        return Asked(request, Rows(**rows), state, places)

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


def _single(arrays: Arrays) -> dict[str, tuple[tuple[int, ...], str]]:
    return {name: (shape[1:], dtype) for name, (shape, dtype) in forms(arrays).items()}


def _many(forms_: dict[str, tuple[tuple[int, ...], str]], count: int) -> dict[str, tuple[tuple[int, ...], str]]:
    return {name: ((count, *shape), dtype) for name, (shape, dtype) in forms_.items()}


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
