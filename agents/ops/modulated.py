"""The widest layer of IQN: features modulated by embedded quantile fractions, and what follows (arXiv 1806.06923).

Letters: N quantiles, B batch, D embedding, F features, H hidden units.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rainbow_iqn_apex.agents.ops.shapes import check_shapes


def modulated_hidden(
    cosines: Tensor, embed_weight: Tensor, embed_bias: Tensor, features: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    """Compute relu(W · (relu(E · cos + e) ⊙ features) + b): equation 4's φ, the Hadamard product, and a hidden layer.

    Written by hand because its temporaries [N · B, F] are the largest of an update: as few of them as possible, and
    changed in place.

    Args:
        cosines: [N * B, D], quantile-major: row n · B + b.
        embed_weight: [F, D].
        embed_bias: [F].
        features: [B, F].
        weight: [H, F].
        bias: [H].

    Returns:
        [N * B, H], of the same dtype as all arguments.

    Raises:
        ValueError: the shapes do not fit.
    """
    check_shapes(
        cosines=(cosines, "N*B D"), embed_weight=(embed_weight, "F D"), embed_bias=(embed_bias, "F"),
        features=(features, "B F"), weight=(weight, "H F"), bias=(bias, "H"),
    )  # fmt: skip
    if len(cosines) % len(features):
        raise ValueError(f"{len(cosines)} rows are not whole quantiles of {len(features)} samples")
    tensors = (cosines, embed_weight, embed_bias, features, weight, bias)
    learns = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    hidden: Tensor = _ModulatedHidden.apply(learns, *tensors)  # type: ignore[no-untyped-call]
    return hidden


class _ModulatedHidden(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, learns: bool, cosines: Tensor, embed_weight: Tensor, embed_bias: Tensor, features: Tensor,
        weight: Tensor, bias: Tensor,
    ) -> Tensor:  # fmt: skip
        embedded = torch.addmm(embed_bias, cosines, embed_weight.t()).relu_()  # [N * B, F]
        by_sample = embedded.view(-1, *features.shape)  # [N, B, F]
        if not learns:
            modulated = by_sample.mul_(features).view_as(embedded)
            # The weight stands first: with few rows a CPU is faster so.
            return torch.addmm(bias[:, None], weight, modulated.t()).relu_().t()  # [N * B, H]
        modulated = (by_sample * features).view_as(embedded)  # [N * B, F]
        hidden = torch.addmm(bias, modulated, weight.t()).relu_()  # [N * B, H]
        ctx.save_for_backward(cosines, features, weight, embedded, modulated, hidden)
        return hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        cosines, features, weight, embedded, modulated, hidden = ctx.saved_tensors
        gradient = torch.ops.aten.threshold_backward(gradient, hidden, 0)  # [N * B, H]
        of_weight, of_bias = gradient.t() @ modulated, gradient.sum(0)
        flowing = gradient @ weight  # [N * B, F]
        of_features = torch.mul(flowing, embedded, out=modulated).view(-1, *features.shape).sum(0)
        flowing.view(-1, *features.shape).mul_(features)
        torch.ops.aten.threshold_backward.grad_input(flowing, embedded, 0, grad_input=flowing)
        of_embed_weight, of_embed_bias = flowing.t() @ cosines, flowing.sum(0)
        return None, None, of_embed_weight, of_embed_bias, of_features, of_weight, of_bias
