"""The hand-written layers against what autograd makes of their formulas."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import relu

from rainbow_iqn_apex.agents.networks import duelling
from rainbow_iqn_apex.agents.networks.duelling import NoisyWeight, effective_weight, modulated_hidden

N, B, D, F, H = 3, 4, 5, 7, 6
ARGUMENTS = ((N * B, D), (F, D), (F,), (B, F), (H, F), (H,))


def plain(
    cosines: Tensor, embed_weight: Tensor, embed_bias: Tensor, features: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    embedded = relu(cosines @ embed_weight.T + embed_bias).view(-1, *features.shape)  # [N, B, F]
    return relu((embedded * features).flatten(0, 1) @ weight.T + bias)  # [N * B, H]


def arguments(seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ARGUMENTS]
    tensors[3] = relu(tensors[3])  # features come out of one
    return [tensors[0], *(tensor.requires_grad_() for tensor in tensors[1:])]


def check_modulated(seed: int) -> None:
    ours, theirs = arguments(seed), arguments(seed)
    hidden, wanted = modulated_hidden(*ours), plain(*theirs)
    torch.testing.assert_close(hidden, wanted)
    upstream = torch.randn(H, N * B, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).T
    hidden.backward(upstream)  # type: ignore[no-untyped-call]
    wanted.backward(upstream)  # type: ignore[no-untyped-call]
    for mine, other in zip(ours[1:], theirs[1:], strict=True):
        torch.testing.assert_close(mine.grad, other.grad)


def test_a_modulated_layer_equals_its_formula() -> None:
    for seed in range(20):
        check_modulated(seed)


@pytest.mark.parametrize("wrong", ["sum over samples", "no relu of the embedding"])
def test_the_comparison_sees(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backward = duelling._ModulatedHidden.backward

    def mutated(ctx: object, gradient: Tensor) -> tuple[Tensor | None, ...]:
        gradients: Any = backward(ctx, gradient)
        nothing, none, embed_weight, embed_bias, features, *rest = gradients
        if wrong == "sum over samples":
            return nothing, none, embed_weight, embed_bias, features.flip(0), *rest
        return nothing, none, embed_weight, embed_bias + 1e-3, features, *rest

    monkeypatch.setattr(duelling._ModulatedHidden, "backward", staticmethod(mutated))
    with pytest.raises(AssertionError):
        check_modulated(0)


def test_without_gradients_it_gives_the_same() -> None:
    given = arguments(1)
    learning = modulated_hidden(*given).detach()
    with torch.no_grad():
        torch.testing.assert_close(modulated_hidden(*given), learning)
    with torch.inference_mode():
        torch.testing.assert_close(modulated_hidden(*given), learning)


@pytest.mark.parametrize("argument", range(len(ARGUMENTS)))
def test_shapes_that_do_not_fit_are_refused(argument: int) -> None:
    given = [tensor.detach() for tensor in arguments(0)]
    given[argument] = torch.cat([given[argument], given[argument][:1]])
    with pytest.raises(ValueError, match=r"do not fit|not whole quantiles"):
        modulated_hidden(*given)


def noisy_layers() -> list[NoisyWeight]:
    generator = torch.Generator().manual_seed(0)
    layers = []
    for outputs in (70, 3):  # one of them longer than what is written at once
        shapes = ((outputs, F), (outputs, F), (outputs,), (F,))
        mu, sigma, noise_out, noise_in = (
            torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes
        )
        layers.append(NoisyWeight(mu.requires_grad_(), sigma.requires_grad_(), noise_out, noise_in))
    return layers


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_effective_weights_equal_the_formula(dtype: torch.dtype) -> None:
    ours, theirs = noisy_layers(), noisy_layers()
    stacked = effective_weight(ours, dtype)
    wanted = torch.cat([mu + sigma * torch.outer(out, into) for mu, sigma, out, into in theirs])
    assert torch.equal(stacked, wanted.to(dtype)) or dtype == torch.float64
    torch.testing.assert_close(stacked, wanted.to(dtype))
    upstream = torch.randn(stacked.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    stacked.backward(upstream)  # type: ignore[no-untyped-call]
    wanted.backward(upstream.double())  # type: ignore[no-untyped-call]
    for mine, other in zip(ours, theirs, strict=True):
        for name in ("mu", "sigma"):
            gradient, expected = getattr(mine, name).grad, getattr(other, name).grad
            assert gradient.dtype == torch.float64
            torch.testing.assert_close(gradient, expected)
