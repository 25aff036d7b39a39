"""The Atari games that can be played, by their names in the Arcade Learning Environment."""

import contextlib
import io
import re
from functools import cache

from ale_py import ALEInterface, roms

from rainbow_iqn_apex.common.text import nearest, suggestion

# What the ids of Gymnasium and the old Gym have around a game's name: ALE/Pong-ram-v5, PongNoFrameskip-v4.
_GYMNASIUM_ID = re.compile(r"^ALE/|(-ram)?(NoFrameskip|Deterministic)?(-v[0-9]+)?$", re.IGNORECASE)
# Actions that published agents have chosen among, by game, where the emulator of their time offered fewer than all 18.
PUBLISHED_ACTIONS = {"skiing": (0, 2, 3, 4, 5, 6, 7, 8, 9)}


@cache
def games() -> tuple[str, ...]:
    """Return all playable games in alphabetical order, in snake_case, such as "ms_pacman"."""
    # ale-py also ships combat, joust, maze_craze and warlords, which are for several players. Loading one of them as a
    # game of one player ends the whole process.
    names = sorted(roms.get_all_rom_ids())
    return tuple(name for name in names if not fault_of_rom(name) and ALEInterface.isSupportedROM(rom_path(name)))


def rom_path(name: str) -> str:
    """Return the file of the game's program, shipped with ale-py; raises OSError if it is missing, or another."""
    with contextlib.redirect_stdout(io.StringIO()):  # ale-py prints where it looks, once per game
        return str(roms.get_rom_path(name))


def fault_of_rom(name: str) -> str:
    """Return why the program of one of ale-py's games cannot be played; empty if it can."""
    try:
        rom_path(name)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.strerror else " ".join(str(error).split())
        return f"{what}; reinstall ale-py, or correct ALE_ROMS_DIR if you have set it"
    return ""


def check_game(name: str) -> str | None:
    """Return what is wrong with this name of a game, and which names are close; None if the name is right."""
    if name in games():
        return None
    if name in roms.get_all_rom_ids() and (fault := fault_of_rom(name)):
        return f"the ROM of {name} cannot be used: {fault}"
    hint = suggestion(_meant(name), f"there are {', '.join(games())}")
    return f"unknown game {name!r}; {hint}"


def _meant(name: str) -> list[str]:
    """Return the games that a name in another spelling may mean: "Ms. Pacman", or an id of Gymnasium."""
    stem = _GYMNASIUM_ID.sub("", name)
    letters = re.sub(r"[\W_]", "", stem).lower()
    if same := [game for game in games() if game.replace("_", "") == letters]:
        return same
    snake_case = re.sub(r"(?<=[a-z])(?=[A-Z])|[\s.-]+", "_", stem).lower()
    return nearest(snake_case, games())
