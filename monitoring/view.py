"""What an actor sees and thinks at a moment, for people who watch it in the dashboard.

Views travel as JSON. Whoever may publish in Redis may have made one, so `decode` checks sizes and ranges.
"""

import base64
import binascii
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from memory.rows import Array
from monitoring.bounded import moment, number, read_object

MAX_BYTES = 1 << 18  # of a view
_MAX_SIDE = 256  # pixels of a frame; a larger one is left out
_MAX_NUMBERS = 64  # of an observation that is no frame; the others are left out
_MAX_ACTIONS, _MAX_PLACES = 512, 256
_MAX_CURVES = 1 << 13  # numbers of all actions together; more are left out
_KINDS = ("", "quantiles", "atoms", "probabilities", "values")
_FIELDS = {"at", "step", "version", "frame", "numbers", "kind", "actions", "value", "places", "curves"}


class ViewError(ValueError):
    """Bytes that no actor of this project can have published as its view."""


@dataclass(frozen=True)
class View:
    """An observation, and what the agent thinks of it: see `Inspection` of `agents.interface`."""

    at: float  # seconds since 1970
    step: int  # agent steps of this environment
    version: int  # of the weights
    observation: Array  # a grey frame [H, W] uint8, or numbers [n]
    kind: str = ""  # empty: the agent does not tell what it thinks
    actions: tuple[float, ...] = ()
    value: float | None = None
    places: tuple[float, ...] = ()
    curves: tuple[tuple[float, ...], ...] = ()  # by action, at the places


def encode(view: View) -> bytes:
    """Return a view's bytes; what is too large is left out."""
    obs = view.observation
    is_frame = obs.ndim == 2 and obs.dtype == np.uint8
    content: dict[str, Any] = {
        "at": view.at,
        "step": view.step,
        "version": view.version,
        "frame": _gray(obs) if is_frame and max(obs.shape) <= _MAX_SIDE else None,
        "numbers": [] if is_frame else _plain(obs.ravel()[:_MAX_NUMBERS].tolist()),
    }
    if 0 < len(view.actions) <= _MAX_ACTIONS:
        has_curves = len(view.places) <= _MAX_PLACES and len(view.places) * len(view.curves) <= _MAX_CURVES
        content |= {
            "kind": view.kind,
            "actions": _plain(view.actions),
            "value": _plain([view.value])[0] if view.value is not None else None,
            "places": _plain(view.places) if has_curves else [],
            "curves": [_plain(curve) for curve in view.curves] if has_curves else [],
        }
    else:
        content |= {"kind": "", "actions": [], "value": None, "places": [], "curves": []}
    return json.dumps(content, allow_nan=False).encode()


def _gray(frame: Array) -> dict[str, Any]:
    height, width = frame.shape
    return {"height": height, "width": width, "gray": base64.b64encode(frame.tobytes()).decode()}


def _plain(values: Any) -> list[float]:
    """Return numbers with the digits that a plot shows."""
    return [float(f"{value:.4g}") if math.isfinite(value) else 0.0 for value in values]


def decode(data: bytes) -> dict[str, Any]:
    """Parse a view into plain values for the page; raises ViewError for anything that `encode` cannot have made."""
    try:
        return _view(read_object(data, MAX_BYTES, _FIELDS))
    except ValueError as error:
        raise ViewError(f"a view {error}") from error


def _view(content: dict[str, Any]) -> dict[str, Any]:
    if content["kind"] not in _KINDS:
        raise ValueError("has an unknown kind")
    actions, places = _numbers(content["actions"], _MAX_ACTIONS), _numbers(content["places"], _MAX_PLACES)
    curves = content["curves"]
    if not isinstance(curves, list) or len(curves) not in (0, len(actions)):
        raise ValueError("has no curve for each action")
    return {
        "at": moment(content["at"]),
        "step": number(content["step"]),
        "version": number(content["version"]),
        "frame": _frame(content["frame"]),
        "numbers": _numbers(content["numbers"], _MAX_NUMBERS),
        "kind": content["kind"],
        "actions": actions,
        "value": None if content["value"] is None else number(content["value"]),
        "places": places,
        "curves": [_numbers(curve, len(places), least=len(places)) for curve in curves],
    }


def _frame(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict) or value.keys() != {"height", "width", "gray"}:
        raise ValueError("has a frame that is none")
    sides = (value["height"], value["width"])
    if not all(type(side) is int and 0 < side <= _MAX_SIDE for side in sides):
        raise ValueError("has a frame of another size")
    try:
        gray = base64.b64decode(value["gray"], validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise ValueError("has a frame that is no base64") from error
    if len(gray) != sides[0] * sides[1]:
        raise ValueError("has a frame of another size")
    return value


def _numbers(value: Any, most: int, least: int = 0) -> list[float]:
    if not isinstance(value, list) or not least <= len(value) <= most:
        raise ValueError("has other numbers than this release writes")
    return [number(one) for one in value]
