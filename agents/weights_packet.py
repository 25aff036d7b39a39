"""Weights as they are published: named tensors of float32 or bfloat16 in a packet."""

import numpy as np
import torch
from torch import Tensor

from memory import wire
from memory.wire import Packet

_BITS = "bfloat16."  # before the name of a tensor whose bits are sent, as NumPy knows no such numbers


def pack(weights: dict[str, Tensor], version: int) -> bytes:
    """Encode the weights of a version.

    They are not compressed: zstd took 12 ms to save a fifth of random weights of the paper's network (13.5 MB), and
    9 ms to give it back.
    """
    arrays = {}
    for name, tensor in weights.items():
        if tensor.dtype == torch.bfloat16:
            arrays[_BITS + name] = tensor.cpu().view(torch.int16).numpy().view(np.uint16)
        else:
            arrays[name] = tensor.cpu().numpy()
    return wire.encode(wire.Tag.WEIGHTS, {"version": version}, arrays, compress=False)


def unpack(packet: Packet) -> dict[str, Tensor]:
    """The weights of a packet, in memory of their own."""
    weights = {}
    for name, array in packet.arrays.items():
        if name.startswith(_BITS):
            bits = torch.from_numpy(array.view(np.int16).copy())
            weights[name.removeprefix(_BITS)] = bits.view(torch.bfloat16)
        else:
            weights[name] = torch.from_numpy(array.copy())
    return weights
