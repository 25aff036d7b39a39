"""What PyTorch, NumPy and zstandard alone take for the works of `gate`.

These never change. Each uses processor, caches and memory in about the proportions of the work that it is compared
with: a busy machine then slows both down alike, and their ratio stays.
"""

import zlib
from collections.abc import Sequence

import numpy as np
import torch
import zstandard
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.harness import Work
from benchmarks.works import product_dtype
from rainbow_iqn_apex.memory.chunk import Chunk
from rainbow_iqn_apex.memory.replay import Replay

_ACTIONS = 18


def compress(chunks: Sequence[Chunk]) -> Work:
    """Return a work that packs the arrays of each chunk, which are in one piece."""
    payloads = _payloads(chunks)
    return lambda: [(zstandard.ZstdCompressor(level=1).compress(payload), zlib.crc32(payload)) for payload in payloads]


def decompress(chunks: Sequence[Chunk]) -> Work:
    """Return a work that unpacks what `compress` has packed."""
    packed = [zstandard.ZstdCompressor(level=1).compress(payload) for payload in _payloads(chunks)]
    return lambda: [zstandard.ZstdDecompressor().decompress(frame) for frame in packed]


def _payloads(chunks: Sequence[Chunk]) -> list[bytes]:
    return [b"".join(array.tobytes() for array in chunk.rows.values()) for chunk in chunks]


def uniform_sample(replay: Replay, batch_size: int) -> Work:
    """Return a work that copies the windows of rows drawn without priorities."""
    window = torch.arange(replay.spec.sample_window)[:, None]  # [T, 1]
    columns = list(replay.ring.rows.values())
    last = len(columns[0]) - replay.spec.sample_window

    def work() -> list[Tensor]:
        index = (torch.randint(last, (batch_size,), generator=replay.generator) + window).flatten()  # [T * B]
        return [column.index_select(0, index) for column in columns]

    return work


def act() -> Work:
    """Return four steps of a network as wide as the paper's, with 32 rows in its hidden layer and one draw of noise."""
    dtype = product_dtype()
    trunk = nn.Sequential(
        nn.Conv2d(4, 32, 8, 4, 1), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU()
    ).to(dtype)
    mu, sigma = torch.randn(2, 1024, 3136)  # each [outputs, inputs]
    embed, last = torch.randn(3136, 64).to(dtype), torch.randn(_ACTIONS, 1024)
    frames, cosines = torch.randint(256, (1, 4, 84, 84), dtype=torch.uint8), torch.randn(32, 64).to(dtype)

    @torch.inference_mode()
    def work() -> Tensor:
        rows, columns = torch.randn(1024, 1), torch.randn(3136)
        weight = torch.cat([torch.addcmul(m, s * columns, r).to(dtype) for m, s, r in _pieces(mu, sigma, rows)])
        for _ in range(4):
            features = trunk(frames.to(dtype)).flatten(1) * (cosines @ embed.t()).relu()  # [32, 3136]
            values = functional.linear((weight @ features.t()).relu().t().float(), last)  # [32, A]
        return values

    return work


def _pieces(*tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """Split all tensors into rows that stay in a cache together."""
    return list(zip(*(torch.split(tensor, 83) for tensor in tensors), strict=True))


def update(batch_size: int, quantiles: int) -> Work:
    """Return a step of Adam on the cpu preset's network without layer norm, and two passes for its targets."""
    dtype = product_dtype()
    trunk = nn.Sequential(nn.Conv2d(4, 32, 5, 5), nn.ReLU(), nn.Conv2d(32, 64, 5, 5), nn.ReLU(), nn.Flatten())
    head = nn.Sequential(nn.Linear(576, 512), nn.ReLU(), nn.Linear(512, _ACTIONS))
    networks = nn.Sequential(trunk, head).to(dtype)
    adam = torch.optim.Adam(networks.parameters(), fused=True)
    frames = torch.from_numpy(np.random.default_rng(0).integers(256, size=(batch_size, 4, 84, 84), dtype=np.uint8))

    def forward() -> Tensor:
        features = trunk(frames.to(dtype))  # [B, F]
        by_quantile = (features * torch.rand(quantiles, 1, 1).to(dtype)).flatten(0, 1)  # [N * B, F]
        values: Tensor = head(by_quantile).float()  # [N * B, A]
        return values

    def work() -> None:
        with torch.no_grad():
            target = forward() + forward()
        adam.zero_grad()
        (forward() - target).square().mean().backward()  # type: ignore[no-untyped-call]
        adam.step()

    return work
