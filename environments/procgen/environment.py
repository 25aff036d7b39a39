"""Procgen: sixteen games whose levels are drawn (Cobbe et al. 2020, arXiv 1912.01588): --env procgen:coinrun.

Pictures are [3, 64, 64] uint8 in colour, and there are 15 actions, as in the paper: nothing is repeated, sticky or
resized. The engine shows no picture of an episode's end but the next level's first one, so the LAST row repeats the
picture before it, which nothing is learned from. An episode that reaches the game's limit of steps (500 to 6000) ends
as "time_limit", with its own last picture.

The engine is the library of the package procgen2, by its interface in C (libenv.h of gym3, version 1). The package's
own Python code is not imported: it needs the old gym and NumPy 1. The library needs neither.
"""

import ctypes
import os
import struct
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from rainbow_iqn_apex.common.text import nearest, suggestion
from rainbow_iqn_apex.environments.extras import need
from rainbow_iqn_apex.environments.interface import EnvironmentSettings, first_row, next_row
from rainbow_iqn_apex.environments.procgen.options import ProcgenOptions
from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec, Field
from rainbow_iqn_apex.memory.rows import Array, Arrays, Row

SIZE = 64  # pixels
DRAWN = 512  # pixels of the pictures for people
NB_ACTIONS = 15
RESET = -1  # as action: begin the next level
_MOST_BYTES = 2**20  # of a state
_NO_LIMIT = 2**31 - 1
_VERSION, _STATES = 1, 0  # of the library's interface, and of its states
_HEADER = struct.Struct("<17i")  # of a state, behind version and name: the game's options
_BYTES, _INT32 = 1, 2
_SPACE_OF_INFOS = 3
_Handle = ctypes.c_void_p
GAMES = tuple(
    "bigfish bossfight caveflyer chaser climber coinrun dodgeball fruitbot heist jumper leaper maze miner ninja "
    "plunder starpilot".split()
)
# What the engine plays of each mode; it ends the process at any other game.
_MODES = MappingProxyType({"easy": 0, "hard": 1, "extreme": 2, "memory": 10})
_GAMES_OF_MODE = {
    "extreme": ("chaser", "dodgeball", "leaper", "starpilot"),
    "memory": ("caveflyer", "dodgeball", "heist", "jumper", "maze", "miner"),
}
_EXPLORATION = {  # the level of each game that is hard to explore, from the package's env.py
    "coinrun": 1949448038,
    "caveflyer": 1259048185,
    "leaper": 1318677581,
    "jumper": 1434825276,
    "maze": 158988835,
    "heist": 876640971,
    "climber": 1561126160,
    "ninja": 1123500215,
}
ENDS = ("", "game_over", "time_limit")
_CHOICE = Discrete(NB_ACTIONS)


class _Option(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * 128),
        ("dtype", ctypes.c_int),
        ("count", ctypes.c_int),
        ("data", ctypes.c_void_p),
    )


class _Options(ctypes.Structure):
    _fields_ = (("items", ctypes.POINTER(_Option)), ("count", ctypes.c_int))


class _Buffers(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in ("ob", "rew", "first", "info", "ac"))


class _TensorType(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * 128),
        ("scalar_type", ctypes.c_int),
        ("dtype", ctypes.c_int),
        ("shape", ctypes.c_int * 16),
        ("ndim", ctypes.c_int),
        ("low", ctypes.c_int),
        ("high", ctypes.c_int),
    )


def _folder() -> Path:
    spec = find_spec("procgen")
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0], "data")


@cache
def _library() -> Any:
    """Load the library; raises ValueError if there is none for this system, or one of another interface."""
    path = _folder() / "prebuilt" / "libenv.so"
    try:
        # With its own symbols first: it brings libraries that others bring, too.
        library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL | getattr(os, "RTLD_DEEPBIND", 0))
    except OSError as error:
        raise ValueError(f"the engine of procgen2 cannot be loaded: {error}") from error
    if (version := library.libenv_version()) != _VERSION:
        raise ValueError(
            f"the engine of procgen2 has interface {version}, expected {_VERSION}; install procgen2 0.10.7"
        )
    library.libenv_make.restype = _Handle
    library.libenv_make.argtypes = [ctypes.c_int, _Options]
    library.libenv_get_tensortypes.argtypes = [_Handle, ctypes.c_int, ctypes.c_void_p]
    library.libenv_set_buffers.argtypes = [_Handle, ctypes.POINTER(_Buffers)]
    for name in ("libenv_observe", "libenv_act", "libenv_close"):
        getattr(library, name).argtypes = [_Handle]
    library.get_state.argtypes = library.set_state.argtypes = [_Handle, ctypes.c_int, ctypes.c_char_p, ctypes.c_int]
    return library


class Shown(NamedTuple):
    """Holds what the engine shows after an action."""

    picture: Array  # [64, 64, 3] uint8, a new array; of the next level where one has begun
    reward: float  # of the action
    begun: bool  # a level has begun: the last one is over


class Engine:
    """One game. It begins its next level by itself when one is over, and then shows that level's first picture."""

    def __init__(self, game: str, seed: int, levels: Mapping[str, int], draw: bool) -> None:
        self._library = _library()
        self._game = game.encode()
        # A bool is a byte for the engine, all other numbers are 32 bits.
        options: dict[str, Any] = {
            "env_name": self._game,
            "rand_seed": seed % 2**31,
            "num_actions": NB_ACTIONS,
            "num_threads": 0,  # it plays in the thread that calls it
            "debug_mode": 0,
            "resource_root": f"{_folder() / 'assets'}{os.sep}".encode(),
            "render_human": draw,
            "use_sequential_levels": False,
            "center_agent": True,
            "use_backgrounds": True,
            **dict.fromkeys(
                ("use_generated_assets", "use_monochrome_assets", "restrict_themes", "paint_vel_info"), False
            ),
            **levels,
        }
        native, _values = _native(options)  # the values have to live until the engine has read them
        self._handle = _Handle(self._library.libenv_make(1, native))
        self._picture = np.zeros((SIZE, SIZE, 3), np.uint8)
        self._drawn = np.zeros((DRAWN, DRAWN, 3), np.uint8)
        self._reward = np.zeros(1, np.float32)
        self._begun = np.zeros(1, np.uint8)
        self._action = np.zeros(1, np.int32)
        self._unread = np.zeros(1, np.int32)
        self._buffers = self._connect()
        self._library.libenv_observe(self._handle)
        self.steps_limit = self._take_limit()

    def _connect(self) -> tuple[Any, ...]:
        """Tell the engine where to write; returns what has to live as long as the engine does."""
        count = self._library.libenv_get_tensortypes(self._handle, _SPACE_OF_INFOS, None)
        infos = (_TensorType * count)()
        self._library.libenv_get_tensortypes(self._handle, _SPACE_OF_INFOS, infos)
        info = _pointers(*(self._drawn if one.name == b"rgb" else self._unread for one in infos))
        ob, ac = _pointers(self._picture), _pointers(self._action)
        places = [ctypes.addressof(ob), self._reward.ctypes.data, self._begun.ctypes.data]
        buffers = _Buffers(*places, ctypes.addressof(info), ctypes.addressof(ac))
        self._library.libenv_set_buffers(self._handle, ctypes.byref(buffers))
        return buffers, ob, info, ac

    def _take_limit(self) -> int:
        """Return the game's limit of steps, and take it away: the engine would tell such an end as it tells a death."""
        state = bytearray(self.state())
        (version,) = struct.unpack_from("<i", state)
        if version != _STATES:
            raise ValueError(
                f"the engine of procgen2 has states {version}, expected {_STATES}; install procgen2 0.10.7"
            )
        place = self._header_end
        for _ in range(2):  # two generators: a flag, a length and a text
            (length,) = struct.unpack_from("<i", state, place + 4)
            place += 8 + length
        place += 16  # the last reward, two flags, the action
        (limit,) = struct.unpack_from("<i", state, place)
        struct.pack_into("<i", state, place, _NO_LIMIT)
        self.go_on_from(bytes(state))
        return int(limit)

    @property
    def _header_end(self) -> int:
        return 8 + len(self._game) + _HEADER.size

    def show(self) -> Shown:
        """Return what the engine shows now."""
        return Shown(self._picture.copy(), float(self._reward[0]), bool(self._begun[0]))

    def act(self, action: int) -> Shown:
        """Play an action, or `RESET`."""
        self._action[0] = action
        self._library.libenv_act(self._handle)
        self._library.libenv_observe(self._handle)
        return self.show()

    def drawn(self) -> Array:
        """Return the picture for people [512, 512, 3], a new array."""
        return self._drawn.copy()

    def state(self) -> bytes:
        """Return the whole state, with that of its random numbers."""
        state = ctypes.create_string_buffer(_MOST_BYTES)
        length = self._library.get_state(self._handle, 0, state, _MOST_BYTES)
        return state.raw[:length]

    def go_on_from(self, state: bytes) -> None:
        """Continue from a state; raises ValueError for one of another game or of other options.

        The library would end the process then.
        """
        own = self.state()
        if len(state) > _MOST_BYTES or state[: self._header_end] != own[: self._header_end]:
            raise ValueError(f"a state that is none of {self._game.decode()} with these options")
        self._library.set_state(self._handle, 0, state, len(state))
        self._library.libenv_observe(self._handle)

    def close(self) -> None:
        """Give the engine's memory back."""
        if self._handle:
            self._library.libenv_close(self._handle)
            self._handle = _Handle()


def _native(options: Mapping[str, Any]) -> tuple[_Options, list[Any]]:
    """Return options as the library takes them, and the values that they point to."""
    items = (_Option * len(options))()
    values = []
    for item, (name, value) in zip(items, options.items(), strict=True):
        if isinstance(value, bytes):
            data: Any = ctypes.create_string_buffer(value)
        else:
            data = ctypes.c_uint8(value) if isinstance(value, bool) else ctypes.c_int32(value)
        item.name = name.encode()
        item.count = len(value) if isinstance(value, bytes) else 1
        item.dtype = _BYTES if isinstance(value, bytes | bool) else _INT32
        item.data = ctypes.addressof(data)
        values.append(data)
    return _Options(items, len(options)), values


def _pointers(*arrays: Array) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


class ProcgenEnvironment:
    """One game of Procgen. The engine saves its whole state, so an episode goes on at once and exactly."""

    spec = EnvironmentSpec(Field((3, SIZE, SIZE), "uint8"), _CHOICE)
    action_repeat = 1
    pictures_per_second = 15.0

    def __init__(self, settings: EnvironmentSettings, seed: int) -> None:
        game = settings.env.partition(":")[2]
        assert isinstance(settings.own, ProcgenOptions)
        levels = _levels(game, settings.own)
        need("procgen", f"procgen:{game}")
        if settings.render:
            raise RuntimeError("cannot render: Procgen has no window; films can be recorded")
        self.end = ""
        self._record = settings.record
        self._engine = Engine(game, seed, levels, settings.record)
        self._shown = self._engine.show()
        self._steps = 0  # of this episode
        self._is_fresh = True  # the engine shows the first picture of a level that no episode has begun on

    def reset(self) -> Row:
        """Begin an episode on the next level that is drawn."""
        self._shown = self._engine.show() if self._is_fresh else self._engine.act(RESET)
        self._steps = 0
        self.end = ""
        self._is_fresh = False
        return first_row(_seen(self._shown))

    def step(self, action: int | Array) -> Row:
        """Act once."""
        action = _CHOICE.number(action)
        if self.end or self._is_fresh:
            raise ValueError("no episode is running: reset first")
        before, self._shown = self._shown, self._engine.act(action)
        self._steps += 1
        if self._shown.begun:
            self.end = "game_over"
            self._is_fresh = True
        elif self._steps >= self._engine.steps_limit:
            self.end = "time_limit"
        return next_row(_seen(before if self._is_fresh else self._shown), self._shown.reward, self.end)

    def pictures(self) -> list[Array]:
        """Return the picture for people, of 512 x 512 pixels, that the last step led to."""
        return [self._engine.drawn()] if self._record else []

    def snapshot(self) -> Arrays:
        """Return `state` [n] uint8, the engine's, and `counters` [3] int64."""
        counters = [self._steps, ENDS.index(self.end), self._is_fresh]
        return {"state": np.frombuffer(self._engine.state(), np.uint8), "counters": np.array(counters, np.int64)}

    def restore(self, arrays: Arrays) -> None:
        """Continue exactly where `snapshot` saved a state of the same game and options."""
        self._engine.go_on_from(arrays["state"].tobytes())
        self._shown = self._engine.show()
        self._steps, end, is_fresh = arrays["counters"].tolist()
        self.end = ENDS[end]
        self._is_fresh = bool(is_fresh)

    def close(self) -> None:
        """Give the engine's memory back."""
        self._engine.close()


def _seen(shown: Shown) -> Array:
    return np.ascontiguousarray(shown.picture.transpose(2, 0, 1))  # [3, 64, 64]


def check_name(game: str) -> None:
    """Raise ValueError for a name that no game has."""
    if game not in GAMES:
        hint = suggestion(nearest(game, GAMES, 2), f"there are {', '.join(GAMES)}")
        raise ValueError(f"procgen knows no game {game!r}; {hint}")


def _levels(game: str, options: ProcgenOptions) -> dict[str, int]:
    """Return which levels the engine is to draw; raises ValueError for a name or a mode that it does not know."""
    check_name(game)
    mode = options.procgen_mode
    having = _EXPLORATION if mode == "exploration" else _GAMES_OF_MODE.get(mode, GAMES)
    if game not in having:
        raise ValueError(f"--procgen-mode: {game} has no levels of mode {mode}, which {', '.join(having)} have")
    if mode == "exploration":
        return {"num_levels": 1, "start_level": _EXPLORATION[game], "distribution_mode": _MODES["hard"]}
    return {
        "num_levels": options.procgen_num_levels,
        "start_level": options.procgen_start_level,
        "distribution_mode": _MODES[mode],
    }
