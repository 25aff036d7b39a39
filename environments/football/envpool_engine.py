"""Football by envpool: a process of its own for each environment, and an episode played again where one is resumed.

envpool's engine has neither a state to save nor a seed for an episode: its seed decides all episodes from the first.
So the engine is made anew, with a seed of its own, after EPISODES of them. To reach one of its episodes, those before
are begun and left. Each engine keeps 50 MB of its process for ever, so it gets a process, which ends with it.
"""

import subprocess
import sys
import weakref
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.common.seeds import derive_seed
from rainbow_iqn_apex.common.signals import STOP_SIGNALS, blocked, describe_end
from rainbow_iqn_apex.environments.football import envpool_child
from rainbow_iqn_apex.environments.football.envpool_child import HEADER, RESET
from rainbow_iqn_apex.environments.football.match import CHOICE, STEPS_PER_SECOND, draw, spec_of
from rainbow_iqn_apex.environments.interface import EnvironmentSettings, first_row, next_row
from rainbow_iqn_apex.environments.replayed import ReplayedEnvironment
from rainbow_iqn_apex.memory.rows import Array, Arrays, Row

EPISODES = 200  # of an engine; a resume begins 100 on average, at 0.05 s to 0.25 s each
_LARGEST = 2**31 - 1  # envpool's seeds are smaller
_PATIENCE_S = 10.0  # for a process that has been asked to end


class _Moment(NamedTuple):
    """A match after a step or reset."""

    obs: Array  # the planes, packed
    lead: int  # our goals less those of the others
    end: str  # "game_over" or "time_limit"; empty: the match goes on


class EnvpoolFootball(ReplayedEnvironment):
    """A scenario, played by envpool."""

    action_repeat = 1
    pictures_per_second = STEPS_PER_SECOND

    def __init__(self, scenario: str, settings: EnvironmentSettings, seed: int) -> None:
        super().__init__(f"football:{scenario}", seed)
        self.spec = spec_of((72, 96))
        self.gained = 0.0
        self._engine = _Engine(scenario, self.spec.observation.nbytes)
        self._record = settings.record
        self._lead = 0

    def begin(self, seed: int) -> Row:  # noqa: ARG002 - an engine's seed is that of several episodes
        """Begin the episode of this number."""
        block, number = divmod(self.episode - 1, EPISODES)
        moment = self._engine.begin(derive_seed(self._seed, block) % _LARGEST, number)
        self._lead = moment.lead
        self.gained = 0.0
        return first_row(moment.obs)

    def play(self, action: int | Array) -> Row:
        """Act for a tenth of a second."""
        moment = self._engine.ask(CHOICE.number(action))
        self.gained = float(moment.lead - self._lead)
        self._lead = moment.lead
        self.end = moment.end
        return next_row(moment.obs, self.gained, moment.end)

    def restore(self, arrays: Arrays) -> None:
        """Play the saved episode again."""
        if "actions" not in arrays:
            raise RunError(f"{self.name} was saved by another engine; give --football-engine gfootball")
        super().restore(arrays)

    def pictures(self) -> list[Array]:
        """Return a picture of the pitch from above."""
        return [draw(self._obs, self.spec.observation)] if self._record else []

    def close(self) -> None:
        """End the engine's process."""
        self._engine.close()


class _Engine:
    """The process that plays, begun when it is needed."""

    def __init__(self, scenario: str, nbytes: int) -> None:
        self._scenario = scenario
        self._reply = HEADER.size + nbytes
        self._process: subprocess.Popen[bytes] | None = None
        self._seed = self._number = -1  # of the running episode

    def begin(self, seed: int, number: int) -> _Moment:
        """Begin an episode of the engine with this seed, counted from 0; leave those before it."""
        if seed != self._seed or number <= self._number:
            self._start(seed)
        while True:
            moment = self.ask(RESET)
            self._number += 1
            if self._number == number:
                return moment

    def ask(self, request: int) -> _Moment:
        """Ask for a step or a reset, and wait for it; raises RunError if the process has ended."""
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(bytes([request]))
            self._process.stdin.flush()
            reply = self._process.stdout.read(self._reply)
        except OSError:
            reply = b""
        if len(reply) < self._reply:
            code = self._process.wait()
            raise RunError(f"envpool's process of football:{self._scenario} {describe_end(code)}; see above")
        left, right, is_over, is_late = HEADER.unpack_from(reply)
        obs = np.frombuffer(reply, np.uint8, offset=HEADER.size).copy()
        return _Moment(obs, left - right, "game_over" if is_over else "time_limit" if is_late else "")

    def _start(self, seed: int) -> None:
        self.close()
        with blocked(*STOP_SIGNALS):  # a terminal and systemd send them to all: it ends when this process does
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(Path(envpool_child.__file__)), self._scenario, str(seed)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        self._finish = weakref.finalize(self, _end, self._process)
        self._seed = seed
        self._number = -1

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._finish()
        self._process = None
        self._seed = -1


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process, which takes the end of its input as the sign."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # of a request that it has not read
                pipe.close()
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
