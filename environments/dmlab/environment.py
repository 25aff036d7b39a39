"""DeepMind Lab: --env dmlab:explore_goal_locations_small.

The settings are those of IMPALA (Espeholt et al. 2018, arXiv 1802.01561): pictures of 72 x 96 pixels in colour, 9
actions, and the instruction as the numbers of its first 16 words beside the picture. The engine is the module
`deepmind_lab`, built from its source or by `dmlab-gym build`; docs/environments.md tells how.

An episode is over when the engine stops. It does not tell time limits from other ends, and shows nothing of either: so
each end counts as "game_over", as in the papers, and the LAST row repeats the picture before it.
"""

import importlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.common.text import one_line
from rainbow_iqn_apex.environments.dmlab.level_cache import LevelCache
from rainbow_iqn_apex.environments.dmlab.levels import check_level, path_of
from rainbow_iqn_apex.environments.dmlab.options import DmlabOptions
from rainbow_iqn_apex.environments.interface import EnvironmentSettings, first_row, next_row
from rainbow_iqn_apex.environments.replayed import ReplayedEnvironment
from rainbow_iqn_apex.environments.words import numbered, text_field
from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec, Field, pack, packed
from rainbow_iqn_apex.memory.rows import Array, Row

_MODULE = "deepmind_lab"
_FRAMES_PER_SECOND = 60
_PICTURE, _WORDS = Field((3, 72, 96), "uint8"), text_field(16)
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
