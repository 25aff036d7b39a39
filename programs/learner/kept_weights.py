"""Snapshots with weights alone, `model_<game>_<steps>.pth`, which are never deleted.

They are for evaluations of a run at SABER's marks, and at even intervals for a learning curve of evaluations.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.environments.scores import MARKS
from rainbow_iqn_apex.programs import snapshot


def points_to_keep(args: Args, action_repeat: int) -> list[int]:
    """Return the agent steps at which weights are kept, upwards; before learning begins there is nothing to keep."""
    marks = {-(-frames // action_repeat) for frames in MARKS}
    even = {args.T_max * i // args.keep_checkpoints for i in range(1, args.keep_checkpoints + 1)}
    return sorted(steps for steps in marks | even if args.learn_start < steps <= args.T_max)


class KeptWeights:
    """Writes a run's snapshots, each when the run passes its point; `done` are the steps of a resumed run.

    The file is named after its point. The weights are those of the update that passed the point, a few steps later; the
    file holds their own counts. A run that resumes from before a point passes the point again, and replaces the file.
    A checkpoint must not be written before `keep` was called for its steps. So a run that resumes from the checkpoint
    has the file of every point that the run does not pass again.
    """

    def __init__(self, folder: Path, game: str, points: Sequence[int], done: int) -> None:
        self.done = done
        self._folder, self._game, self._points = folder, game, points

    def due(self, steps: int) -> list[int]:
        """Return the points up to `steps` that the run has passed since the last call of `keep`."""
        return [point for point in self._points if self.done < point <= steps]

    def keep(self, steps: int, agent: Agent, values: dict[str, Any]) -> None:
        """Write the snapshot of the last point up to `steps`, if the point is new; raises OSError for a full disk."""
        if due := self.due(steps):
            snapshot.save_weights(self._folder / f"model_{self._game}_{due[-1]}.pth", agent, values)
        self.done = steps
