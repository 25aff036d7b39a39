"""Cuts the rows of one environment into chunks, each with its own prefix and bootstrap rows, across episode ends."""

from collections.abc import Callable

import numpy as np

from rainbow_iqn_apex.memory.chunk import Chunk, ChunkSpec, forms
from rainbow_iqn_apex.memory.environment_spec import Field
from rainbow_iqn_apex.memory.rows import Array, Arrays, Row, StepType, section

Priorities = Callable[[Arrays], Array | None]  # a chunk's rows, "extras.*" among them -> [samples] float32

_TRAVELLING = frozenset({"obs", "step_type", "reward", "discount", "action"})


class Assembler:
    """Gathers rows in order and returns a chunk whenever one is complete.

    `priorities` computes a chunk's initial priorities from its rows, among them everything that the agent put into
    `extras`; of these only the arrays named in the spec travel on. Samples of nothing but LAST rows get priority 0.
    """

    def __init__(self, spec: ChunkSpec, env: int, priorities: Priorities) -> None:
        self.spec = spec
        self.env = env
        self._priorities = priorities
        self._rows: list[Arrays] = []  # the window of the next chunk, as far as it is known
        self._states: list[Arrays] = []  # before the rows for which `_begins_stack` holds, oldest first
        self._padding = spec.prefix  # rows of that window before the first row of all
        self.version = 0  # of the weights that chose the newest action

    def add(self, row: Row, action: int | Array, extras: Arrays, state: Arrays) -> Chunk | None:
        """Take the next row of the environment; returns a chunk if it completes one.

        Args:
            row: the environment at this moment.
            action: chosen at the row; on LAST, any value of an action's shape and dtype.
            extras: outputs of the network at the row, [...] each.
            state: the recurrent state before the row, [...] each, of the names that the spec gives.
        """
        if self._begins_stack(self._padding + len(self._rows)):
            self._states.append({name: np.asarray(state[name]) for name, _ in self.spec.state})
        self._rows.append(
            {
                "obs": row.obs,
                "step_type": np.array(row.step_type, np.uint8),
                "reward": np.array(row.reward, np.float32),
                "discount": np.array(row.discount, np.float32),
                "action": _stored(action),
            }
            | {f"extras.{name}": array for name, array in extras.items()}
        )
        if len(self._rows) + self._padding < self.spec.window:
            return None
        chunk = self._chunk()
        self._move_on()
        return chunk

    def finish(self, row: Row) -> Chunk | None:
        """Complete the chunk under way before an action is chosen at `row`, which is added later; None: it is empty.

        For chunks that are sent at a round's end. `row` stands in the chunk as a LAST row, like the observation at
        which an episode was cut off: nothing is learned from it, and returns are bootstrapped from it. LAST rows fill
        the rest. The next chunk begins with `row`, so a spec with a recurrent state has no burn-in.
        """
        spec = self.spec
        kept = len(self._rows) + self._padding
        if kept <= spec.prefix:
            return None
        blank = {name: np.zeros_like(array) for name, array in self._rows[-1].items()}
        last = np.array(StepType.LAST, np.uint8)
        numbers = {"reward": np.array(row.reward, np.float32), "discount": np.array(row.discount, np.float32)}
        begun = list(self._rows)
        self._rows += [blank | {"obs": row.obs, "step_type": last} | numbers]
        self._rows += [blank | {"step_type": last}] * (spec.window - kept - 1)
        chunk = self._chunk()
        self._rows = begun[max(0, len(begun) - spec.prefix) :]
        self._states = []
        self._padding = spec.prefix - len(self._rows)
        return chunk

    def _chunk(self) -> Chunk:
        spec = self.spec
        rows = _stacked(self._rows)
        if self._padding:
            rows = {name: _pad(name, array, self._padding) for name, array in rows.items()}
        learnable = spec.learnable(rows["step_type"])
        priorities = self._priorities(rows) if spec.prioritised else None
        if priorities is not None:
            priorities = np.where(learnable, priorities, 0).astype(np.float32)
        travelling = _TRAVELLING | {f"extras.{name}" for name, _ in spec.extras}
        return Chunk(
            env=self.env,
            version=self.version,
            rows={name: array for name, array in rows.items() if name in travelling},
            state=self._states[0] if self._knows_state else {n: np.zeros(f.shape, f.dtype) for n, f in spec.state},
            priorities=priorities,
        )

    def _move_on(self) -> None:
        period = self.spec.period
        if self._knows_state:
            del self._states[0]
        dropped = max(0, period - self._padding)
        self._padding = max(0, self._padding - period)
        del self._rows[:dropped]

    def _begins_stack(self, place: int) -> bool:
        """Return whether a row of the window ends the first full stack of this window, or of a later one."""
        later, rest = divmod(place - self.spec.stack + 1, self.spec.period)
        return bool(self.spec.state) and later >= 0 and not rest

    @property
    def _knows_state(self) -> bool:
        """False while the window's first full stack ends in the padding: the state before it is zero."""
        return bool(self.spec.state) and self._padding < self.spec.stack

    def snapshot(self) -> Arrays:
        """Return everything that another assembler needs to go on: the rows of the unfinished window."""
        counters = np.array([self._padding, len(self._rows)], np.int64)
        states = {f"state.{name}": array for name, array in _stacked(self._states).items()}
        return {"counters": counters} | _stacked(self._rows) | states

    def restore(self, arrays: Arrays, fields: dict[str, Field] | None = None) -> None:
        """Go on where `snapshot` was taken; raises ValueError for rows that are not of these `fields`, if given."""
        padding, count = (int(value) for value in arrays["counters"])
        states = section(arrays, "state.")
        rows = {name: array for name, array in arrays.items() if name != "counters" and name[:6] != "state."}
        if not (0 <= padding <= self.spec.prefix and 0 <= count < self.spec.window - padding):
            raise ValueError(f"a window of {count} rows and {padding} before them")
        known = sum(self._begins_stack(place) for place in range(padding, padding + count))
        wanted = {name: ((count, *field.shape), field.dtype) for name, field in (fields or {}).items()}
        of_states = {name: ((known, *field.shape), field.dtype) for name, field in self.spec.state}
        if (count and wanted and forms(rows) != wanted) or ((known or states) and forms(states) != of_states):
            raise ValueError("the rows of an unfinished window are of another kind")
        self._padding = padding
        self._rows = [{name: array[i] for name, array in rows.items()} for i in range(count)]
        self._states = [{name: np.asarray(array[i]) for name, array in states.items()} for i in range(known)]


def _stacked(rows: list[Arrays]) -> Arrays:
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]} if rows else {}


def _stored(action: int | Array) -> Array:
    array = np.asarray(action)
    return array.astype(np.float32 if array.dtype.kind == "f" else np.int32)


def _pad(name: str, array: Array, count: int) -> Array:
    # Padding counts as LAST: never learned from, and the FIRST row that follows keeps frame stacks away from it.
    value = StepType.LAST if name == "step_type" else 0
    return np.concatenate([np.full((count, *array.shape[1:]), value, array.dtype), array])
