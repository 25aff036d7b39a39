"""Weights as they are published: named tensors in a packet, parameters and buffers."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.wire import Packet

_NUMBERS = (torch.float32, torch.bfloat16)
_BITS = "bfloat16."  # before the name of a tensor whose bits are sent, as NumPy has no such dtype


def pack(weights: dict[str, Tensor], version: int) -> bytes:
    """Encode the weights of a version.

    Weights are not compressed: for random weights of the paper's network (13.5 MB), zstd saved a fifth, and took 12 ms
    to compress and 9 ms to decompress.
    """
    arrays = {}
    for name, tensor in weights.items():
        if tensor.dtype == torch.bfloat16:
            arrays[_BITS + name] = tensor.cpu().view(torch.int16).numpy().view(np.uint16)
        else:
            arrays[name] = tensor.cpu().numpy()
    return wire.encode(wire.Tag.WEIGHTS, {"version": version}, arrays, compress=False)


def most_bytes(wanted: Mapping[str, Tensor]) -> int:
    """Return the most bytes that weights in the place of these can have."""
    return sum(max(4, tensor.element_size()) * tensor.numel() for tensor in wanted.values())


def weights_for(wanted: Mapping[str, Tensor], packet: Packet) -> dict[str, Tensor]:
    """Return the weights of a packet in the place of these; raises RunError if any is missing, too many or not finite.

    Numbers of float32 and bfloat16 may take each other's place.
    """
    try:
        weights = unpack(packet)
        _check(weights, wanted)
    except ValueError as error:
        raise RunError(f"the learner's weights in Redis cannot be used: {error}") from error
    return weights


def _check(weights: dict[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    if weights.keys() != wanted.keys():
        strange = sorted(weights.keys() ^ wanted.keys())
        raise ValueError(f"{strange[0]!r} is missing or too many, of {len(wanted)} tensors")
    for name, tensor in weights.items():
        own = wanted[name]
        allowed = _NUMBERS if own.dtype in _NUMBERS else (own.dtype,)
        if tensor.shape != own.shape or tensor.dtype not in allowed:
            raise ValueError(f"{name} is {tensor.dtype} {list(tensor.shape)}, needed is {own.dtype} {list(own.shape)}")
        if not torch.isfinite(tensor.sum(dtype=torch.float32)) and not torch.isfinite(tensor).all():
            raise ValueError(f"{name} has values that are not finite")


def unpack(packet: Packet) -> dict[str, Tensor]:
    """Return the weights of a packet, in memory of their own; raises ValueError for an array that is no weights."""
    weights = {}
    for name, array in packet.arrays.items():
        if name.startswith(_BITS):
            if array.dtype != np.uint16:
                raise ValueError(f"{name} is {array.dtype}, needed are the bits of bfloat16 as uint16")
            bits = torch.from_numpy(array.view(np.int16).copy())
            weights[name.removeprefix(_BITS)] = bits.view(torch.bfloat16)
        else:
            weights[name] = torch.from_numpy(array.copy())
    return weights
