"""A learner that does not lead: it makes the same updates as the one that does, and adds its part to checkpoints."""

from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.memory.broker.stream_reader import Decoder
from rainbow_iqn_apex.memory.buffer import Buffer
from rainbow_iqn_apex.programs.learner.rounds import Rounds
from rainbow_iqn_apex.programs.learner.run import Run
from rainbow_iqn_apex.programs.learner.saved_run import SavedRun
from rainbow_iqn_apex.programs.learner.shared_checkpoint import SharedCheckpoint


class Follower(Rounds):
    """Takes in the experience of its own actors, and writes nothing."""

    def __init__(self, run: Run, agent: Agent, buffer: Buffer, decode: Decoder, batch_size: int | None) -> None:
        super().__init__(run, agent, buffer, decode, batch_size)
        self._shared = SharedCheckpoint(run, agent, buffer, self._ingest)
        self._saved_at = 0  # chunks inserted when the last checkpoint was written

    def resume(self, saved: SavedRun) -> None:
        """Take up this learner's part of a checkpoint."""
        is_renewed = saved.progress.run_id != self._progress.run_id
        self._saves_first = not self._shared.resume(saved) or is_renewed
        self._shared.oldest()
        self._saved_at = self._buffer.inserted

    def _begin(self) -> None:
        self._announce()
        if self._saves_first:
            self._save()

    def _announce(self, status: str = "running") -> None:
        del status
        self._client.lease.check()
        self._team.exchange(self._ingest.received, dict[int, int])

    def _publish(self) -> None:
        self._announce()
        turned_over = self._buffer.inserted - self._saved_at >= self._buffer.turnover
        if self._team.total(int(turned_over))[0]:
            self._save()

    def _evaluate(self) -> None:
        self._save()

    def _save(self) -> None:
        self._check_metrics()
        self._shared.gather()
        self._saved_at = self._buffer.inserted

    def _leave(self, status: str) -> None:
        self._save()
        self._announce(status)
        self._agree(ready=True)  # after the learner that leads has written that no actor can commit any more
        self._ingest.take_rest()
        self._ingest.episodes.share()
        if status == "finished":
            self._save()
