"""DeepMind Lab: --env dmlab:explore_goal_locations_small.

The settings are those of IMPALA (Espeholt et al. 2018, arXiv 1802.01561): pictures of 72 x 96 pixels in colour, 9
actions, and the instruction as the numbers of its first 16 words beside the picture. The engine is the module
`deepmind_lab`, built from its source or by `dmlab-gym build`; docs/environments.md tells how.

An episode is over when the engine stops. It does not tell time limits from other ends, and shows nothing of either: so
each end counts as "game_over", as in the papers, and the LAST row repeats the picture before it.
"""

import importlib
import os
import shutil
import tempfile
from contextlib import suppress
from errno import EDQUOT, ENOSPC
from hashlib import md5
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.common.text import one_line
from rainbow_iqn_apex.environments.dmlab.options import DmlabOptions, check_level, path_of
from rainbow_iqn_apex.environments.interface import EnvironmentSettings, first_row, next_row
from rainbow_iqn_apex.environments.replayed import ReplayedEnvironment
from rainbow_iqn_apex.environments.words import numbered, text_field
from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec, Field, pack, packed
from rainbow_iqn_apex.memory.rows import Array, Row

_MODULE = "deepmind_lab"
_FRAMES_PER_SECOND = 60
_PICTURE = Field((3, 72, 96), "uint8")
_WORDS = text_field(16)
_NAMES = ("RGB_INTERLEAVED", "INSTR")  # of the engine's observations
_TEST_SEED = 0x600D5EED  # mixed into those of levels that are held out, as the engine's documents ask for
_ACTIONS = np.array(
    [  # look right and down, strafe right, move forward, fire, jump, crouch
        [0, 0, 0, 1, 0, 0, 0],  # forward
        [0, 0, 0, -1, 0, 0, 0],  # backward
        [0, 0, -1, 0, 0, 0, 0],  # strafe left
        [0, 0, 1, 0, 0, 0, 0],  # strafe right
        [-20, 0, 0, 0, 0, 0, 0],  # look left
        [20, 0, 0, 0, 0, 0, 0],  # look right
        [-20, 0, 0, 1, 0, 0, 0],  # forward and look left
        [20, 0, 0, 1, 0, 0, 0],  # forward and look right
        [0, 0, 0, 0, 1, 0, 0],  # fire
    ],
    np.intc,
)
_CHOICE = Discrete(len(_ACTIONS))
_RECOUNT = 64  # maps that are compiled between two counts of the folder, to which others add, too
_LARGEST = 256 * 2**20  # bytes of a map that is taken for one


class DmlabEnvironment(ReplayedEnvironment):
    """One level. Its state cannot be saved: restoring plays the episode again, without a network.

    The engine, which takes seconds to start, starts with the first episode.
    """

    spec = EnvironmentSpec(packed(_PICTURE, _WORDS), _CHOICE)

    def __init__(self, settings: EnvironmentSettings, seed: int) -> None:
        super().__init__(settings.env.partition(":")[2], seed)
        assert isinstance(settings.own, DmlabOptions)
        check_level(self.name)
        if settings.render:
            raise RuntimeError("cannot render: DeepMind Lab is drawn into memory; films can be recorded")
        _need_engine()
        self.action_repeat = settings.action_repeat
        self.pictures_per_second = _FRAMES_PER_SECOND / settings.action_repeat
        self._record = settings.record
        self._own = settings.own
        self._path = path_of(self.name, settings.evaluation)
        self._is_test = settings.evaluation
        folder = settings.own.dmlab_level_cache
        self._cache = LevelCache(Path(folder), settings.own.dmlab_level_cache_gb * 2**30) if folder else None
        self._lab: Any = None
        self._picture = np.zeros((72, 96, 3), np.uint8)

    def begin(self, seed: int) -> Row:
        """Begin the episode that a seed decides; the engine draws from the number of the episode, too."""
        if self._lab is None:
            self._lab = self._start()
        self._lab.reset(episode=self.episode, seed=seed)
        return first_row(self._seen())

    def play(self, action: int | Array) -> Row:
        """Act for `action_repeat` frames, or until the episode is over."""
        reward = float(self._lab.step(_ACTIONS[_CHOICE.number(action)], num_steps=self.action_repeat))
        self.end = "" if self._lab.is_running() else "game_over"
        return next_row(self._obs.copy() if self.end else self._seen(), reward, self.end)

    def _start(self) -> Any:
        """Start the engine; raises RunError, in one line, if it cannot."""
        config = {"width": "96", "height": "72", "fps": str(_FRAMES_PER_SECOND), "logLevel": "WARN"}
        if self._is_test:
            config |= {"allowHoldOutLevels": "true", "mixerSeed": str(_TEST_SEED)}
        if self._own.dmlab_dataset:
            config["datasetPath"] = self._own.dmlab_dataset
        cache = {"level_cache": self._cache} if self._cache else {}
        module = importlib.import_module(_MODULE)
        try:
            return module.Lab(self._path, list(_NAMES), config=config, renderer=self._own.dmlab_renderer, **cache)
        except (RuntimeError, ValueError, TypeError) as error:
            raise RunError(f"DeepMind Lab cannot start {self._path}: {one_line(error)}") from error

    def _seen(self) -> Array:
        found = self._lab.observations()
        self._picture = found[_NAMES[0]]  # [72, 96, 3]
        text = found[_NAMES[1]]
        return pack((self._picture.transpose(2, 0, 1), numbered(str(text), _WORDS)))

    def pictures(self) -> list[Array]:
        """Return what the last step led to, as the network sees it."""
        return [np.array(self._picture, np.uint8)] if self._record else []

    def close(self) -> None:
        """Stop the engine."""
        if self._lab is not None:
            self._lab.close()
            self._lab = None


def _need_engine() -> None:
    """Raise ValueError, in one line, if there is no engine."""
    if find_spec(_MODULE):
        return
    if find_spec("dmlab_gym"):
        raise ValueError("DeepMind Lab is not built yet; dmlab_gym builds it with: dmlab-gym build")
    raise ValueError(f"DeepMind Lab cannot be played: no module {_MODULE}; docs/environments.md tells how to build it")


class LevelCache:
    """Compiled maps in a folder, each under the MD5 of its key: the engine takes seconds to compile one.

    The engine calls `fetch` before it compiles a map, and `write` when it has. Processes of all machines may share the
    folder. A map is written once, under another name until it is whole, and none is ever removed: one that is being
    read stays. From a certain size on, or once the disk is full, nothing is added.
    """

    def __init__(self, folder: Path, most_bytes: float) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._bytes = self._asked = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"--dmlab-level-cache: {one_line(error)}") from error

    def fetch(self, key: str, pk3_path: str) -> bool:
        """Copy the map of a key to the engine's file; returns whether there is one."""
        try:
            shutil.copyfile(self._path(key), pk3_path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise RunError(f"--dmlab-level-cache: cannot read a map: {one_line(error)}") from error
        return True

    def write(self, key: str, pk3_path: str) -> None:
        """Keep the map of a key that the engine has compiled into a file, if there is room and none is there yet."""
        path = self._path(key)
        source = Path(pk3_path)
        size = source.stat().st_size
        if path.exists() or size > _LARGEST or self._used() + size > self._most_bytes:
            return
        try:
            path.parent.mkdir(exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, prefix=".new-", delete=False) as file:
                new = Path(file.name)
            try:
                shutil.copyfile(source, new)
                new.chmod(0o644)
                os.link(new, path)  # which, unlike a replacement, leaves a map that has come meanwhile
            finally:
                new.unlink()
        except FileExistsError:
            return
        except OSError as error:
            if error.errno not in (ENOSPC, EDQUOT):
                raise RunError(f"--dmlab-level-cache: cannot keep a map: {one_line(error)}") from error
            self._most_bytes = 0
            return
        self._bytes += size

    def _used(self) -> int:
        if self._asked % _RECOUNT == 0:
            self._bytes = 0
            for path in self._folder.rglob("*"):
                with suppress(FileNotFoundError):  # half-written maps of others come and go
                    self._bytes += path.stat().st_size if path.is_file() else 0
        self._asked += 1
        return self._bytes

    def _path(self, key: str) -> Path:
        name = md5(key.encode(), usedforsecurity=False).hexdigest()
        return self._folder / name[:2] / f"{name[2:]}.pk3"
