"""Shape checks on entry: a swapped axis must raise, not broadcast."""

from collections.abc import Iterable
from functools import cache

from torch import Tensor

Size = int | tuple[int, ...]


def check_shapes(**named: tuple[Tensor, str]) -> None:
    """Check that tensors agree on the sizes they name alike.

    Each argument is a tensor and its axes, as in `quantiles=(quantiles, "N B"), targets=(targets, "M B")`. A letter
    stands for one size, the same wherever it appears; a closing `...` stands for all axes that remain.

    Raises:
        ValueError: a tensor has the wrong number of axes, or a letter stands for two sizes. Names all the shapes.
    """
    sizes: dict[str, Size] = {}
    if not all(_fits(tensor.shape, axes, sizes) for tensor, axes in named.values()):
        raise ValueError("shapes do not fit: " + ", ".join(_describe(n, t, a) for n, (t, a) in named.items()))


def _fits(shape: tuple[int, ...], axes: str, sizes: dict[str, Size]) -> bool:
    """Return whether a shape has these axes, of the sizes that are known; adds those that are new."""
    letters, is_open = _letters(axes)
    if len(shape) != len(letters) and (len(shape) < len(letters) or not is_open):
        return False
    for axis, size in zip(letters, shape, strict=False):
        if sizes.setdefault(axis, size) != size:
            return False
    return not is_open or sizes.setdefault("...", rest := tuple(shape[len(letters) :])) == rest


@cache
def _letters(axes: str) -> tuple[list[str], bool]:
    """Return the letters of axes, and whether others may follow."""
    letters = axes.split()
    return (letters[:-1], True) if letters[-1] == "..." else (letters, False)


def _describe(name: str, tensor: Tensor, axes: str) -> str:
    return f"{name} {tuple(tensor.shape)} for [{axes.replace(' ', ', ')}]"


def shape_text(shape: Iterable[int]) -> str:
    """Write a shape as in messages: "32x4x8x8"."""
    return "x".join(map(str, shape)) or "a single number"
