"""The convolutions and matrix products of a network with a `Core`, and nothing around them: what it could do at best.

Each layer gets numbers of its own, in the layout and precision that suits it. Letters: T rows, B batch, H units.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.harness import Work

_Calls = list[Callable[[], object]]


def product_work(network: nn.Module, rows: int, batch: int, precision: torch.dtype, *, backward: bool) -> Work:
    """Return the products of T rows of B frames, of the way back, too, if wanted; the torso's have the precision."""
    torso, calls = network.get_submodule("core.torso"), _Calls()
    for index, (layer, shape) in enumerate(_convolutions(torso.get_submodule("body"))):
        calls += _convolution(layer, (rows * batch, *shape), precision, backward, first=index == 0)
    for name, layer in network.named_modules():
        if isinstance(layer, nn.Linear):
            number = precision if name == "core.torso.dense" else torch.float32
            calls += _product(rows * batch, layer.in_features, layer.out_features, number, backward)
        elif isinstance(layer, nn.LSTM):
            calls += _product(rows * batch, layer.input_size, 4 * layer.hidden_size, torch.float32, backward)
            calls += _recurrent_product(rows, batch, layer.hidden_size, backward)
    return partial(_run, calls)


@torch.inference_mode()
def _run(calls: _Calls) -> None:
    for call in calls:
        call()


def _convolutions(body: nn.Module) -> list[tuple[nn.Conv2d, tuple[int, ...]]]:
    """Return each convolution, and the shape of a frame that it gets."""
    body = copy.deepcopy(body).float()  # an actor's has two precisions
    found: list[tuple[nn.Conv2d, tuple[int, ...]]] = []

    def note(layer: nn.Module, inputs: tuple[Tensor, ...], _output: Tensor) -> None:
        assert isinstance(layer, nn.Conv2d)
        found.append((layer, tuple(inputs[0].shape[1:])))

    convolutions = [layer for layer in body.modules() if isinstance(layer, nn.Conv2d)]
    hooks = [layer.register_forward_hook(note) for layer in convolutions]
    with torch.no_grad():
        body(torch.zeros(1, convolutions[0].in_channels, 84, 84))
    for hook in hooks:
        hook.remove()
    return found


def _convolution(
    layer: nn.Conv2d, shape: tuple[int, ...], precision: torch.dtype, backward: bool, first: bool
) -> _Calls:
    def random(*sizes: int) -> Tensor:
        return torch.randn(sizes).to(precision, memory_format=torch.channels_last)

    x, weight = random(*shape), random(*layer.weight.shape)
    stride, padding = list(layer.stride), [int(size) for size in layer.padding]
    forward = partial(functional.conv2d, x, weight, None, stride, padding)
    if not backward:
        return [forward]
    way_back: Any = torch.ops.aten.convolution_backward
    given = random(*forward().shape)
    wanted = [not first, True, False]  # the gradient of frames is of no use
    return [forward, partial(way_back, given, x, weight, None, stride, padding, [1, 1], False, [0, 0], 1, wanted)]


def _recurrent_product(rows: int, batch: int, units: int, backward: bool) -> _Calls:
    """Return a product for each row, and one for it on the way back; the weights' gradient is one product for all."""
    steps = _product(batch, units, 4 * units, torch.float32, backward)
    if not backward:
        return rows * steps
    forward, _, back = steps
    _, of_weights, _ = _product(rows * batch, units, 4 * units, torch.float32, backward)
    return [*rows * [forward, back], of_weights]


def _product(rows: int, inner: int, columns: int, precision: torch.dtype, backward: bool) -> _Calls:
    x, weight, given = (
        torch.randn(shape).to(precision) for shape in ((rows, inner), (inner, columns), (rows, columns))
    )
    forward = partial(torch.mm, x, weight)
    return [forward, partial(torch.mm, x.t(), given), partial(torch.mm, given, weight.t())] if backward else [forward]
