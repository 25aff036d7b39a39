"""The Atari games that there are, by their names in the Arcade Learning Environment."""

import difflib
import re
from functools import cache

from ale_py import ALEInterface, roms


def games() -> list[str]:
    """All playable games in alphabetical order, in snake_case, such as "ms_pacman"."""
    return list(_games())


@cache
def _games() -> tuple[str, ...]:
    # ale-py also ships combat, joust, maze_craze and warlords; they are for several players, and loading one as a
    # game of one player ends the whole process.
    return tuple(sorted(name for name in roms.get_all_rom_ids() if ALEInterface.isSupportedROM(rom_path(name))))


def rom_path(name: str) -> str:
    """File of the game's program, as shipped with ale-py."""
    return str(roms.get_rom_path(name))


def check_game(name: str) -> str | None:
    """Return what is wrong with this name of a game, with the names that are close to it; None if it is right."""
    if name in _games():
        return None
    snake_case = re.sub(r"(?<=[a-z])(?=[A-Z])|[\s.-]+", "_", name).lower()  # "MsPacman", "ms-pacman", "Ms. Pacman"
    close = difflib.get_close_matches(snake_case, _games(), n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(_games())}"
    return f"unknown game {name!r}; {hint}"
