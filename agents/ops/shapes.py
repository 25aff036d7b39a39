"""Shape checks on entry: a swapped axis must raise, not broadcast."""

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
    for tensor, axes in named.values():
        found = _read(tuple(tensor.shape), axes.split())
        if found is None or any(sizes.setdefault(axis, size) != size for axis, size in found):
            raise ValueError("shapes do not fit: " + ", ".join(_describe(n, t, a) for n, (t, a) in named.items()))


def _read(shape: tuple[int, ...], axes: list[str]) -> list[tuple[str, Size]] | None:
    """Pair each axis with its size; None if their numbers differ."""
    if axes[-1] == "...":
        letters = axes[:-1]
        rest: list[tuple[str, Size]] = [("...", shape[len(letters) :])]
    else:
        letters, rest = axes, []
    if len(shape) < len(letters) or (not rest and len(shape) > len(letters)):
        return None
    return [*zip(letters, shape, strict=False), *rest]


def _describe(name: str, tensor: Tensor, axes: str) -> str:
    return f"{name} {tuple(tensor.shape)} for [{axes.replace(' ', ', ')}]"
