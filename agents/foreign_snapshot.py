"""What published weights show: the settings that they fit, and which of Adam's moments belong to which of them.

Names and shapes are those of `agents.networks.duelling`; snapshots of others have them too, in an order of their own.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from rainbow_iqn_apex.agents.networks.duelling import PUBLISHED
from rainbow_iqn_apex.agents.networks.trunks import TRUNKS
from rainbow_iqn_apex.common.option import flag_of

Sizes = dict[str, Any]  # settings by name, and "nb_actions", which is none
_MOMENTS = ("exp_avg", "exp_avg_sq")  # of Adam and its kin
_NOISE = "_epsilon"  # buffers that are drawn anew before they are used: a snapshot may leave them out


def check_weights(weights: dict[str, Any]) -> str:
    """Return why no network can use a state dict; empty if one can."""
    strange = [str(name) for name, value in weights.items() if not (isinstance(name, str) and _is_tensor(value))]
    if strange:
        return f"{_some(strange)} is not a tensor of numbers"
    if broken := [name for name, value in weights.items() if not value.float().isfinite().all()]:
        return f"{_some(broken)} has values that are not finite"
    return ""


def sizes_of(weights: dict[str, Tensor]) -> Sizes:
    """Read the settings from the shapes; raises ValueError if these are not the layers of Rainbow-IQN or Rainbow."""
    quantiles = "iqn_fc.weight" in weights
    outputs, hidden_size = _shape(weights, "fcnoisy_z_v.weight_mu", 2)
    advantages, _ = _shape(weights, "fcnoisy_z_a.weight_mu", 2)
    sizes: Sizes = {
        "agent": "rainbow_iqn" if quantiles else "rainbow",
        "hidden_size": hidden_size,
        "nb_actions": advantages // outputs,
    }
    sizes |= {"quantile_embedding_dim": _shape(weights, "iqn_fc.weight", 2)[1]} if quantiles else {"atoms": outputs}
    if "conv1.weight" in weights:
        _, history_length, *kernel = _shape(weights, "conv1.weight", 4)
        if tuple(kernel) not in (architectures := _architectures()):
            raise ValueError(f"no architecture has a kernel like conv1.weight's, {_times(kernel)}")
        sizes |= {"history_length": history_length, "architecture": architectures[tuple(kernel)]}
    return sizes


def _shape(weights: dict[str, Tensor], name: str, axes: int) -> list[int]:
    if name not in weights:
        raise ValueError(f"{name} is missing")
    shape = list(weights[name].shape)
    if len(shape) != axes or min(shape) < 1:
        raise ValueError(f"{name} is {_times(shape)}")
    return shape


def _architectures() -> dict[tuple[int, ...], str]:
    """Return the architectures by the kernel of their first convolution."""
    first = {name: TRUNKS[name](1)[0] for name in PUBLISHED}
    return {layer.kernel_size: name for name, layer in first.items() if isinstance(layer, nn.Conv2d)}


def misfits(
    weights: dict[str, Tensor], own: dict[str, Tensor], read: Callable[[dict[str, Tensor]], Sizes]
) -> Iterator[str]:
    """Yield why `weights` do not fit a network whose state is `own`: lines that name the setting to change.

    `read` is the agent's way to read its settings from weights, `Agent.sizes_of`.
    """
    try:
        saved, wanted = read(weights), read(own)
    except ValueError as error:
        yield f"--model: the snapshot is not of Rainbow-IQN or Rainbow: {error}"
        return
    lines = differences(saved, wanted)
    yield from lines
    if not lines:  # else the names and shapes that follow from a wrong setting would only hide it
        yield from (f"--model: {text}" for text in _other_names(weights, own) or _other_shapes(weights, own))


def differences(saved: Sizes, wanted: Sizes) -> list[str]:
    """Return a line for each setting that a snapshot has with another value than is `wanted`."""
    return [_line(name, saved[name], wanted[name]) for name in wanted if saved.get(name, wanted[name]) != wanted[name]]


def _line(name: str, saved: Any, wanted: Any) -> str:
    if name == "nb_actions":
        return f"--model: the snapshot chooses among {saved} actions, this environment has {wanted}"
    if name == "history_length":  # the shapes show their product alone
        return f"{flag_of(name)}: the snapshot's weights need {saved} pictures (of colour: times 3), here are {wanted}"
    return f"{flag_of(name)}: the snapshot's weights need {saved}, is {wanted}"


def _other_names(weights: dict[str, Tensor], own: dict[str, Tensor]) -> list[str]:
    missing = sorted(name for name in own.keys() - weights.keys() if not name.endswith(_NOISE))
    extra = sorted(weights.keys() - own.keys())
    texts = [f"the snapshot lacks {_some(missing)}"] if missing else []
    return texts + ([f"the snapshot has {_some(extra)}, which these settings have no place for"] if extra else [])


def _other_shapes(weights: dict[str, Tensor], own: dict[str, Tensor]) -> list[str]:
    texts = [
        f"the snapshot's {name} is {_times(tensor.shape)}, expected {_times(own[name].shape)}"
        for name, tensor in weights.items()
        if tensor.shape != own[name].shape
    ]
    whole = [name for name, value in weights.items() if own[name].is_floating_point() > value.is_floating_point()]
    return texts + ([f"the snapshot's {_some(whole)} is of whole numbers"] if whole else [])


def paired_moments(optimiser: Any, weights: dict[str, Tensor], own: Iterable[str]) -> dict[int, dict[str, Tensor]]:
    """Return a snapshot's state of Adam, for parameters that stand in the order `own`.

    An optimiser knows its parameters by number, in the order of the module that they come from. That order is the one
    of the snapshot's `weights`; networks with the same names may have been built in another.

    Raises:
        ValueError: there is none, or it is not one of such an optimiser for these weights.
    """
    names = [name for name in weights if not name.endswith(_NOISE)]
    try:
        if optimiser["param_groups"] and not optimiser["state"]:
            raise ValueError("its optimiser has made no step yet, as in snapshots that an actor has saved")
        numbers = [number for group in optimiser["param_groups"] for number in group["params"]]
        if len(numbers) != len(names):
            raise ValueError(f"they are of {len(numbers)} weights, and {len(names)} are trained")
        states = {name: optimiser["state"][number] for name, number in zip(names, numbers, strict=True)}
        paired = {i: _moments(name, states[name], weights[name]) for i, name in enumerate(own)}
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"not a state of Adam: {type(error).__name__} {error}") from error
    return paired


def _moments(name: str, state: dict[str, Any], weight: Tensor) -> dict[str, Tensor]:
    moments = {key: state[key] for key in _MOMENTS}
    for key, tensor in moments.items():
        if not _is_tensor(tensor) or tensor.shape != weight.shape or not tensor.float().isfinite().all():
            raise ValueError(f"{key} of {name} does not fit the weights, or is not finite")
    step = float(state["step"])
    if not 0 <= step < math.inf or (moments["exp_avg_sq"].float() < 0).any():
        raise ValueError(f"the step or the second moment of {name} is negative, or not finite")
    return {"step": torch.tensor(step)} | moments


def _is_tensor(value: Any) -> bool:
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        return False
    return not (value.is_complex() or value.is_quantized)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _times(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape)) or "a single number"
