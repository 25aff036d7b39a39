"""Weights as they are published: named tensors of float32 or bfloat16 in a packet."""

import numpy as np
import torch
from torch import Tensor, nn

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.wire import Packet

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


def most_bytes(model: nn.Module) -> int:
    """Return the most bytes that this network's weights can have."""
    return sum(4 * parameter.numel() for parameter in model.parameters())


def weights_for(model: nn.Module, packet: Packet) -> dict[str, Tensor]:
    """Return the weights of a packet for this network; raises RunError if any is missing, too many or not finite."""
    try:
        weights = unpack(packet)
        _check(weights, model)
    except ValueError as error:
        raise RunError(f"the learner's weights in Redis cannot be used: {error}") from error
    return weights


def _check(weights: dict[str, Tensor], model: nn.Module) -> None:
    wanted = {name: parameter.shape for name, parameter in model.named_parameters()}
    if weights.keys() != wanted.keys():
        strange = sorted(weights.keys() ^ wanted.keys())
        raise ValueError(f"{strange[0]!r} is missing or too many, of {len(wanted)} parameters")
    for name, tensor in weights.items():
        if tensor.shape != wanted[name] or tensor.dtype not in (torch.float32, torch.bfloat16):
            raise ValueError(f"{name} is {tensor.dtype} {list(tensor.shape)}, needed is {list(wanted[name])}")
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
