"""Checkpoints: the two newest files `last_model_<game>_<steps>.pth`, from which a run resumes.

There are two: if the newest is torn, only the work since the one before is lost. The log in Redis has to reach back to
what the older checkpoint needs.
"""

from pathlib import Path
from typing import Any

from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.programs import snapshot

FirstMessages = dict[int, int]  # by actor, the number of the first message that a checkpoint needs of the log


class Checkpoints:
    """Reads and writes the checkpoints of a game in a folder; no other process may write there."""

    def __init__(self, folder: Path, game: str) -> None:
        self._folder, self._game = folder, game
        self._newest: Path | None = None  # newest checkpoint that this process has read or written
        self.needs: FirstMessages = {}  # its needs; empty until Saver.resume sets them

    def load(self) -> tuple[Path, dict[str, Any]] | None:
        """Return the newest checkpoint that is whole, None if there is none; print a line for each damaged one.

        Raises UserError if no checkpoint is whole, or if one cannot be opened.
        """
        paths = snapshot.last_models(self._folder, self._game)
        for path in paths:
            try:
                saved = snapshot.load(path, "--path-to-results", self._folder)
            except snapshot.DamagedError as error:
                if path == paths[-1]:
                    raise UserError(
                        f"{error}: no checkpoint is whole; move what is here away to start afresh"
                    ) from error
                print(f"{error}: going on from the checkpoint before it", flush=True)
            else:
                self._newest = path
                return path, saved
        return None

    def save(self, agent: Agent, values: dict[str, Any], needs: FirstMessages) -> FirstMessages:
        """Write a checkpoint, and delete all but this one and the one before it.

        `needs` are those of this checkpoint. Returns the needs of the checkpoint before, up to which the log may be
        trimmed. A checkpoint that is written again at the same step replaces itself: then no file is deleted, and the
        log is not to be trimmed. Raises OSError for a full disk; then the two newest checkpoints stay.
        """
        path = snapshot.last_model(self._folder, self._game, int(values["T_learner"]))
        snapshot.save(path, agent, values)
        older: FirstMessages = {}
        if path != self._newest:
            for other in snapshot.last_models(self._folder, self._game):
                if other not in (path, self._newest):
                    other.unlink()
            older = self.needs
        self._newest, self.needs = path, needs
        return older
