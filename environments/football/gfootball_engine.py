"""Football by gfootball 2.10: its compiled engine, with the rules of its core environment.

gfootball's own environments need gym, which has moved on, and unpickle the states that they restore. So the engine is
called here, by what `gfootball/env/football_env_core.py`, `scenario_builder.py`, `observation_preprocessing.py` and
`wrappers.py` of gfootball 2.10.2 do. The engine's state holds its random numbers.
"""

import importlib
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

import gfootball_engine
import numpy as np

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.common.seeds import derive_seed
from rainbow_iqn_apex.environments.football.match import CHOICE, ENDS, STEPS_PER_SECOND, draw, spec_of
from rainbow_iqn_apex.environments.football.options import FootballOptions
from rainbow_iqn_apex.environments.interface import EnvironmentSettings, first_row, next_row
from rainbow_iqn_apex.memory.environment_spec import pack
from rainbow_iqn_apex.memory.rows import Array, Arrays, Row

_MOST_Y = 1 / 2.25  # of the engine's coordinates, which lie in -1 to 1 and -1 / 2.25 to 1 / 2.25
_CHECKPOINTS, _CHECKPOINT_REWARD = 10, 0.1
_NORMAL = gfootball_engine.e_GameMode.e_GameMode_Normal
_RUNNING, _DONE = gfootball_engine.GameState.game_running, gfootball_engine.GameState.game_done
_ACTION = gfootball_engine.e_BackendAction
ACTIONS = [  # gfootball's default set, in its order
    getattr(_ACTION, name)
    for name in (
        "idle left top_left top top_right right bottom_right bottom bottom_left long_pass high_pass short_pass shot "
        "sprint release_direction release_sprint sliding dribble release_dribble"
    ).split()
]
_PACKAGE = "gfootball_scenarios"  # what its scenarios are imported as

_idle: list[Any] = []  # engines of environments that were closed: an engine cannot give its memory back


class _Builder:
    """Takes the description of a scenario from the scenario's module."""

    def __init__(self, episode: int) -> None:
        self._config = gfootball_engine.ScenarioConfig.make()
        self._episode = episode
        self._team = gfootball_engine.e_Team.e_Left

    def config(self) -> Any:
        return self._config

    def EpisodeNumber(self) -> int:  # noqa: N802 - the names are gfootball's
        return self._episode

    def SetTeam(self, team: Any) -> None:  # noqa: N802
        self._team = team

    def SetBallPosition(self, x: float, y: float) -> None:  # noqa: N802
        self._config.ball_position[0], self._config.ball_position[1] = x, y

    def AddPlayer(  # noqa: N802
        self, x: float, y: float, role: Any, lazy: bool = False, controllable: bool = True
    ) -> None:
        self._players.append(gfootball_engine.FormationEntry(x, y, role, lazy, controllable))

    @property
    def _players(self) -> Any:
        is_left = self._team == gfootball_engine.e_Team.e_Left
        return self._config.left_team if is_left else self._config.right_team

    def complete(self, seed: int) -> Any:
        """Return the configuration of a match that this seed decides."""
        for team in (gfootball_engine.e_Team.e_Left, gfootball_engine.e_Team.e_Right):
            self.SetTeam(team)
            if not len(self._players):
                self.AddPlayer(-1.0, 0.42, gfootball_engine.e_PlayerRole.e_PlayerRole_GK, lazy=True)
        self._config.left_agents = 1
        self._config.right_agents = 0
        if not self._config.deterministic:
            self._config.game_engine_random_seed = seed
            self._config.reverse_team_processing = bool(seed % 2)
        return self._config


class _Memory(NamedTuple):
    """Keeps what a match needs beside the engine's state."""

    lead: int = 0
    mode: int = -1  # of the game
    owner: int = -1  # the team that had the ball last
    checkpoints: int = 0  # that were reached


class GfootballFootball:
    """A scenario, played by gfootball."""

    action_repeat = 1
    pictures_per_second = STEPS_PER_SECOND

    def __init__(self, scenario: str, settings: EnvironmentSettings, seed: int) -> None:
        assert isinstance(settings.own, FootballOptions)
        self.name = f"football:{scenario}"
        self._scenario = _scenario(scenario)
        self._size = settings.own.size
        self._counts_checkpoints = settings.own.football_rewards != "scoring"
        self.spec = spec_of(self._size)
        self.end = ""
        self.gained = 0.0
        self._seed = seed % 2**63
        self._episode = 0
        self._record = settings.record
        self._engine = _idle.pop() if _idle else _new_engine()
        self._memory = _Memory()
        self._info: Any = None
        self._obs = np.zeros(self.spec.observation.shape, np.uint8)

    def reset(self) -> Row:
        """Begin an episode, with a seed of its own."""
        self._episode += 1
        self._begin()
        self._wait_for_play()
        return first_row(self._obs)

    def _wait_for_play(self) -> None:
        while not self._info.is_in_play:
            self._engine.step()
            self._info = self._engine.get_info()
        self._obs = self._planes()

    def _begin(self) -> None:
        """Set the engine to the beginning of the episode of this number."""
        builder = _Builder(self._episode)
        self._scenario.build_scenario(builder)
        seed = derive_seed(self._seed, self._episode) % 2_000_000_000
        if self._engine.state == gfootball_engine.GameState.game_created:
            self._engine.start_game()
        self._engine.state = _RUNNING
        self._engine.reset(builder.complete(seed), False)
        self._info = self._engine.get_info()
        self._memory = _Memory()
        self.end = ""
        self.gained = 0.0

    @property
    def _goals(self) -> tuple[int, int]:
        return self._info.left_goals, self._info.right_goals

    def step(self, action: int | Array) -> Row:
        """Act for a tenth of a second, or until the ball is in play again."""
        number = CHOICE.number(action)
        if self.end or not self._episode:
            raise ValueError("no episode is running: reset first")
        self._engine.perform_action(self._admitted(ACTIONS[number]), True, 0)
        self._engine.step()
        self._info = self._engine.get_info()
        self._wait_for_play()
        lead = self._goals[0] - self._goals[1]
        self.end = self._ended()
        self.gained = float(lead - self._memory.lead)
        bonus = self._reached() if self._counts_checkpoints else 0.0
        self._remember(lead)
        return next_row(self._obs, self.gained + bonus, self.end)

    def _admitted(self, action: Any) -> Any:
        """Return the action, or what starts a game that has stood still for 20 steps."""
        waited = self._engine.waiting_for_game_count
        if waited < 20:
            return action
        if waited == 20:
            return _ACTION.short_pass
        player = self._info.left_controllers[0].controlled_player
        if self._info.ball_owned_team == 0 and player == self._info.ball_owned_player:
            return _ACTION.right if waited < 30 else _ACTION.left
        return _ACTION.idle

    def _ended(self) -> str:
        """Return why the scenario's rules end the match now; empty if they do not."""
        config = self._engine.config
        memory = self._memory
        info = self._info
        was_normal, is_normal = memory.mode == int(_NORMAL), int(info.game_mode) == int(_NORMAL)
        owners = (memory.owner, info.ball_owned_team)
        if (
            (config.end_episode_on_score and any(self._goals))
            or (config.end_episode_on_out_of_play and was_normal and not is_normal)
            or (config.end_episode_on_possession_change and -1 not in owners and owners[0] != owners[1])
        ):
            return "game_over"
        return "time_limit" if info.step >= config.game_duration else ""

    def _remember(self, lead: int) -> None:
        """Note what the next step compares with."""
        is_normal = int(self._info.game_mode) == int(_NORMAL)
        self._engine.waiting_for_game_count = 0 if is_normal else self._engine.waiting_for_game_count + 1
        owner = self._memory.owner if self._info.ball_owned_team == -1 else self._info.ball_owned_team
        self._memory = self._memory._replace(lead=lead, mode=int(self._info.game_mode), owner=owner)
        if self.end:
            self._engine.state = _DONE

    def _reached(self) -> float:
        """Count the checkpoints that the ball has come to, and return their reward; a goal counts all that are left."""
        before = self._memory.checkpoints
        info = self._info
        found = before
        if self.gained == 1:
            found = _CHECKPOINTS
        elif info.ball_owned_team == 0 and info.ball_owned_player == info.left_controllers[0].controlled_player:
            distance = ((info.ball_position[0] - 1) ** 2 + info.ball_position[1] ** 2) ** 0.5
            while found < _CHECKPOINTS and distance <= 0.99 - 0.8 / (_CHECKPOINTS - 1) * found:
                found += 1
        self._memory = self._memory._replace(checkpoints=found)
        return _CHECKPOINT_REWARD * (found - before)

    def _planes(self) -> Array:
        """Return the planes, packed."""
        planes = np.zeros((4, *self._size), np.bool_)
        info = self._info
        ours = [player.position for player in info.left_team]
        active = info.left_controllers[0].controlled_player
        points = (
            ours,
            [player.position for player in info.right_team],
            [info.ball_position],
            [] if active == -1 else [ours[active]],
        )
        height, width = self._size
        for plane, positions in zip(planes, points, strict=True):
            for position in positions:
                x = int((position[0] + 1) / 2 * width)
                y = int((position[1] + _MOST_Y) / (2 * _MOST_Y) * height)
                plane[max(0, min(height - 1, y)), max(0, min(width - 1, x))] = True
        return pack([planes])

    def pictures(self) -> list[Array]:
        """Return a picture of the pitch from above."""
        return [draw(self._obs, self.spec.observation)] if self._record else []

    def snapshot(self) -> Arrays:
        """Return `episode` [2], seed and number; `engine`, its state; `numbers`, what is kept beside it."""
        arrays: Arrays = {"episode": np.array([self._seed, self._episode], np.int64)}
        if self._episode:
            arrays["engine"] = np.frombuffer(self._engine.get_state(b""), np.uint8).copy()
            arrays["numbers"] = np.array([ENDS.index(self.end), *self._memory], np.int64)
        return arrays

    def restore(self, arrays: Arrays) -> None:
        """Continue where the state was saved; raises RunError for one of another engine."""
        if "actions" in arrays:
            raise RunError(f"{self.name} was saved by another engine; give --football-engine envpool")
        self._seed, self._episode = arrays["episode"].tolist()
        if not self._episode:
            return
        self._begin()  # the engine compares the scenario's settings with those of the state, and ends where they differ
        self._engine.set_state(arrays["engine"].tobytes())
        self._info = self._engine.get_info()
        end, *numbers = arrays["numbers"].tolist()
        self.end = ENDS[end]
        self._memory = _Memory(*numbers)
        self._obs = self._planes()

    def close(self) -> None:
        """Leave the engine to the next environment of this process."""
        if self._engine is not None:
            _idle.append(self._engine)
            self._engine = None


def _scenario(name: str) -> Any:
    """Import a scenario's module, and not the package around it, which needs gym."""
    if _PACKAGE not in sys.modules:
        folder = Path(gfootball_engine.__file__).parents[1] / "gfootball" / "scenarios"
        spec = spec_from_file_location(_PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)])
        assert spec is not None and spec.loader is not None
        sys.modules[_PACKAGE] = package = module_from_spec(spec)
        spec.loader.exec_module(package)
    return importlib.import_module(f"{_PACKAGE}.{name}")


def _new_engine() -> Any:
    engine = gfootball_engine.GameEnv()
    engine.game_config.physics_steps_per_frame = 10
    return engine
