"""Writes numbers of things for sentences."""


def counted(number: int, noun: str) -> str:
    """Write a number with its noun, as in "1 run" and "2,400 runs"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
