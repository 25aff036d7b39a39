"""Spectral normalisation of convolutions (Miyato et al. 2018, arXiv 1802.05957): weights of largest singular value 1.

Letters: O output channels, I input channels times the kernel's pixels.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

# A random u has σ near three quarters of the largest value, and a target network keeps its first one for long.
# PyTorch's own spectral_norm begins with as many steps.
_FIRST_STEPS = 15


class SpectralConv2d(nn.Conv2d):
    """A convolution of 3x3 whose weight, as a matrix [O, I], is divided by an estimate σ of its largest singular value.

    σ = u · W v. Only a forward pass that gradients will follow makes a step of the power iteration, v = Wᵀu / |Wᵀu|
    and then u = W v / |W v|; u and v count as constants in the gradient. They are buffers, which are published with the
    weights, and copied to the target network.
    """

    left: Tensor  # u [O]
    right: Tensor  # v [I]

    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels, 3, padding=1)
        matrix = self.weight.detach().flatten(1)
        self.register_buffer("left", functional.normalize(torch.randn(len(matrix)), dim=0))
        self.register_buffer("right", torch.zeros(matrix.shape[1]))
        for _ in range(_FIRST_STEPS):
            self._iterate()

    def forward(self, x: Tensor) -> Tensor:
        """Return the convolution with the divided weight."""
        if torch.is_grad_enabled() and self.weight.requires_grad:
            self._iterate()
        # Copies: the next step of the iteration changes what the backward pass still needs.
        with torch.autocast(x.device.type, enabled=False):
            sigma = self.left.clone() @ (self.weight.flatten(1).float() @ self.right.clone())  # []
            weight = self.weight.float() / sigma
        convolved: Tensor = self._conv_forward(x, weight.to(x.dtype), self.bias)
        return convolved

    @torch.no_grad()
    def _iterate(self) -> None:
        matrix = self.weight.flatten(1)
        with torch.autocast(matrix.device.type, enabled=False):
            self.right.copy_(functional.normalize(matrix.t() @ self.left, dim=0))
            self.left.copy_(functional.normalize(matrix @ self.right, dim=0))
