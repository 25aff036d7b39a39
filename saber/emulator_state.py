"""Continues an emulator exactly, in the middle of an episode and in another process.

The next frames depend on more than ALE saves (`cloneState(include_rng=True)`, ale-py 0.12.1). Missing are
1. the action that a sticky frame repeats;
2. whether the game's program had ended its last frame by a vertical sync. If not, the program goes on drawing where it
   was, in a picture that is not saved either: restored elsewhere, the game plays on differently or the process crashes.
   Q*bert and Tetris begin every episode so; 3-D Tic-Tac-Toe does the same whenever it computes its move;
3. the last screen, and the shapes that the video chip draws until the program next sets its registers: restored
   elsewhere, objects collide that should not. That happened to one state in twenty, in a third of the games.

After a reset, though, all emulators of a game are alike but for their random numbers. So `snapshot` saves the state
after the reset together with all actions since, and `restore` plays these actions again. To keep them few in a long
episode, a newer state replaces the state after the reset once the newer state is proven: a second emulator has started
from the newer state, and has arrived where this emulator is.
"""

import struct
from collections.abc import Callable, Iterable

import numpy as np
from ale_py import ALEInterface, ALEState

from rainbow_iqn_apex.memory.rows import Arrays

PERIOD = 4096  # agent steps from one starting state to the next; at most 1.5 s to play again
PROOF = 32  # agent steps; with 4 frames each, all frames repeat an action from before with probability 0.25^128
RETRY = 1024  # agent steps from a failed proof to the next state tried; a proof takes as long as some 60 steps
MAX_SCANLINES = 500  # per frame: 343 at most if a vertical sync ended it, over 650 if the instruction limit did
NOOP = 0


class EmulatorState:
    """Remembers what brings another emulator of the same game to where this emulator is.

        state = EmulatorState(ale, open_twin, action_repeat)
        state.begin()        # after every reset
        state.add(action)    # after every agent step

    `open_twin` opens a second emulator of the same settings; it is called in long episodes only.
    """

    def __init__(self, ale: ALEInterface, open_twin: Callable[[], ALEInterface], action_repeat: int) -> None:
        self._ale = ale
        self._open_twin = open_twin
        self._twin: ALEInterface | None = None
        self._action_repeat = action_repeat
        self.begin()

    def begin(self) -> None:
        """Begin an episode: the emulator has just been reset."""
        self._begin_at(_serialize(self._ale))

    def _begin_at(self, start: bytes) -> None:
        self._start = start
        self._actions = bytearray()  # chosen since `_start`
        self._candidate = b""  # a newer state that is to be proven, if any
        self._candidate_at = 0  # how many actions had been chosen at that state
        self._next = PERIOD  # number of actions at which to propose or prove the next state

    def add(self, action: int) -> None:
        """Remember the action of the agent step that was just played."""
        self._actions.append(action)
        if len(self._actions) < self._next:
            return
        if self._candidate:
            self._prove()
        else:
            self._propose()

    def _propose(self) -> None:
        state = _serialize(self._ale)
        if not _within_frame(state):  # else the next step tries again
            self._candidate, self._candidate_at = state, len(self._actions)
            self._next = self._candidate_at + PROOF

    def _prove(self) -> None:
        self._twin = self._twin or self._open_twin()
        _start_from(self._twin, self._candidate)
        self._play(self._twin, self._actions[self._candidate_at :])
        same_screen = np.array_equal(self._twin.getScreen(), self._ale.getScreen())
        if same_screen and _serialize(self._twin) == _serialize(self._ale):
            self._start = self._candidate
            del self._actions[: self._candidate_at]
            self._next = PERIOD
        else:
            self._next = len(self._actions) + RETRY
        self._candidate = b""

    def _play(self, ale: ALEInterface, actions: Iterable[int]) -> None:
        for action in actions:
            for _ in range(self._action_repeat):
                ale.act(action)
                if ale.game_over():  # a further call would not play, but draw a random number
                    break

    def snapshot(self) -> Arrays:
        """Return the arrays that `restore` needs: `ale` [about 14 000] uint8, `actions` [steps since] uint8."""
        return {"ale": np.frombuffer(self._start, np.uint8), "actions": np.frombuffer(bytes(self._actions), np.uint8)}

    def restore(self, arrays: Arrays) -> None:
        """Bring the emulator, its screen included, to where `snapshot` was called."""
        start = arrays["ale"].tobytes()
        _start_from(self._ale, start)
        self._begin_at(start)
        for action in arrays["actions"].tolist():
            self._play(self._ale, [action])
            self.add(action)


def _start_from(ale: ALEInterface, state: bytes) -> None:
    ale.reset_game()
    if not _within_frame(state):  # else `state` is that after a reset, and this emulator is within the same frame
        while _within_frame(_serialize(ale)):
            ale.act(NOOP)
    ale.restoreState(ALEState(state))


def _serialize(ale: ALEInterface) -> bytes:
    return ale.cloneState(include_rng=True).serialize()


def _within_frame(state: bytes) -> bool:
    """Return whether the last frame was left unended; the scanline is the seventh number of the video chip's part."""
    numbers = state.index(b"\x03\x00\x00\x00TIA") + 7
    scanline: int = struct.unpack_from("<7i", state, numbers)[6]
    return scanline > MAX_SCANLINES
