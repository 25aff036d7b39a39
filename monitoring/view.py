"""What an actor sees and thinks at a moment, for people who watch it in the dashboard.

Views travel as JSON. Whoever may write to Redis may have made one, so `decode` checks sizes and ranges.
"""

import base64
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct, to_builtins

from rainbow_iqn_apex.common.schema import Moment, Number, read_record
from rainbow_iqn_apex.common.text import name_error
from rainbow_iqn_apex.memory.environment_spec import Part
from rainbow_iqn_apex.memory.rows import Array

MAX_BYTES = 1 << 19  # of a view
_MAX_SIDE = 256  # pixels of a picture; a larger one is left out
_MAX_NUMBERS = 512  # of an observation that is no picture; the others are left out
_MAX_NAME = 80  # characters of a part's name; the others are left out
_MAX_ACTIONS = 512
_MAX_PLACES = 256
_MAX_CURVES = 1 << 13  # numbers of all actions together; more are left out


class ViewError(ValueError):
    """Bytes that no actor of this project can have published as its view."""


@dataclass(frozen=True)
class View:
    """An observation, and what the agent thinks of it: see `Inspection` of `agents.policy`."""

    at: float  # seconds since 1970
    step: int  # agent steps of this environment
    version: int  # of the weights
    observation: Array  # a picture [H, W] or [C, H, W] uint8, or numbers [n]
    kind: str = ""  # empty: the agent does not show what it thinks
    actions: tuple[float, ...] = ()
    value: float | None = None
    places: tuple[float, ...] = ()
    curves: tuple[tuple[float, ...], ...] = ()  # by action, at the places
    parts: tuple[Part, ...] = ()  # of the observation's numbers, if these have names


class Viewer:
    """Hands views from the thread that acts to the one that reports, each when the latter has asked for one.

    The thread that acts calls `give` again and again; the thread that reports calls `ask` and `take`. A view that
    cannot be made leaves a line, and is the last.
    """

    def __init__(self) -> None:
        self._is_wanted = False
        self._failed = False
        self._view: View | None = None

    def ask(self) -> None:
        """Let the next `give` make a view."""
        self._is_wanted = not self._failed

    def give(self, make: Callable[[], View]) -> None:
        """Make a view if one is wanted; costs next to nothing otherwise."""
        if self._is_wanted:
            self._is_wanted = False
            try:
                self._view = make()
            except Exception as error:  # noqa: BLE001 - the agents' authors write what it calls
                self._failed = True
                why = f"no view can be made ({name_error(error)})"
                print(f"Not to be watched in dashboard.py any more: {why}", flush=True)

    def take(self) -> View | None:
        """Return the view that was made, once; None if there is none."""
        view, self._view = self._view, None
        return view


def encode(view: View) -> bytes:
    """Return a view's bytes; what is too large is left out."""
    content = {"at": view.at, "step": view.step, "version": view.version, **_seen(view), **_thought(view)}
    return json.dumps(content, allow_nan=False).encode()


def _seen(view: View) -> dict[str, Any]:
    obs = view.observation
    if obs.ndim in (2, 3) and obs.dtype == np.uint8:
        frame = _frame_of(obs) if max(obs.shape[-2:]) <= _MAX_SIDE else None
        return {"frame": frame, "numbers": [], "parts": [], "more_numbers": 0}
    sent = obs.ravel()[:_MAX_NUMBERS]
    parts = [
        [part.name[:_MAX_NAME], min(part.stop, len(sent)) - part.start]
        for part in view.parts
        if part.start < min(part.stop, len(sent))
    ]
    return {"frame": None, "numbers": _plain(sent.tolist()), "parts": parts, "more_numbers": obs.size - len(sent)}


def _frame_of(picture: Array) -> dict[str, Any]:
    """Return a picture in grey or in colours, channels last; planes that are no colours are shown as the brightest."""
    height, width = picture.shape[-2:]
    planes = picture.reshape(-1, height, width)  # [C, H, W]
    shown = planes.transpose(1, 2, 0) if len(planes) == 3 else planes.max(0)
    return {"height": height, "width": width, "pixels": base64.b64encode(shown.tobytes()).decode()}


def _thought(view: View) -> dict[str, Any]:
    actions = view.actions
    places = view.places
    curves = view.curves
    more = 0
    if view.kind == "choices":  # each whole, or not at all
        totals = accumulate(places[:_MAX_PLACES])
        places = tuple(count for count, total in zip(places, totals, strict=False) if total <= _MAX_ACTIONS)
        actions = actions[: int(sum(places))]
        more = len(view.places) - len(places)
    elif view.kind == "intervals":
        actions = actions[:_MAX_ACTIONS]
        curves = curves[:_MAX_ACTIONS]
        more = len(view.actions) - len(actions)
    if not 0 < len(actions) <= _MAX_ACTIONS:
        return {"kind": "", "actions": [], "value": None, "places": [], "curves": [], "more_actions": 0}
    fits = len(places) <= _MAX_PLACES and len(places) * len(curves) <= _MAX_CURVES
    return {
        "kind": view.kind,
        "actions": _plain(actions),
        "value": None if view.value is None else _plain([view.value])[0],
        "places": _plain(places) if fits else [],
        "curves": [_plain(curve) for curve in curves] if fits else [],
        "more_actions": more,
    }


def _plain(values: Any) -> list[float]:
    """Return numbers with the digits that a plot shows."""
    return [float(f"{value:.4g}") if math.isfinite(value) else 0.0 for value in values]


class _Frame(Struct, forbid_unknown_fields=True):
    height: Annotated[int, Meta(ge=1, le=_MAX_SIDE)]
    width: Annotated[int, Meta(ge=1, le=_MAX_SIDE)]
    pixels: str

    def __post_init__(self) -> None:
        size = len(base64.b64decode(self.pixels, validate=True))
        if size not in (self.height * self.width, 3 * self.height * self.width):
            raise ValueError("a frame of another size")


@dataclass(frozen=True)
class _Sent:
    """A view as `encode` writes it."""

    at: Moment
    step: Number
    version: Number
    frame: _Frame | None
    numbers: Annotated[list[Number], Meta(max_length=_MAX_NUMBERS)]
    parts: list[tuple[Annotated[str, Meta(max_length=_MAX_NAME)], Number]]  # names, and how many numbers each names
    more_numbers: Number
    kind: Literal["", "quantiles", "atoms", "probabilities", "values", "choices", "intervals"]
    actions: Annotated[list[Number], Meta(max_length=_MAX_ACTIONS)]
    value: Number | None
    places: Annotated[list[Number], Meta(max_length=_MAX_PLACES)]
    curves: list[list[Number]]  # one for each action, or none
    more_actions: Number


def decode(data: bytes) -> dict[str, Any]:
    """Parse a view into plain values for the page; raises ViewError for bytes that are no view."""
    try:
        sent: dict[str, Any] = to_builtins(read_record(data, _Sent, MAX_BYTES))
    except ValueError as error:
        raise ViewError(f"a damaged view ({error})") from error
    return sent
