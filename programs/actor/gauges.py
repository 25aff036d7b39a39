"""Reads an actor's metrics, by the names of `monitoring.metrics`, from another thread while the actor works."""

from collections import deque
from statistics import fmean

from rainbow_iqn_apex.common.loop_clock import LoopClock, Shares
from rainbow_iqn_apex.environments.scores import SCORE_EPISODES
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.record import RunStatus
from rainbow_iqn_apex.memory.messages import Episode, Message
from rainbow_iqn_apex.monitoring.metrics import Rate
from rainbow_iqn_apex.monitoring.report import Reading

PARTS = ("other", "act", "environment", "pack", "send", "pull", "wait")  # of an actor's clock
_RATE_S = 30.0  # over which the speed is averaged
_REMAINING_S = 600.0


class ActorGauges:
    """Holds what an actor counts; `read` belongs to another thread than the rest."""

    def __init__(self, client: ActorClient, nb_env: int, T_max: int, clock: LoopClock) -> None:
        self._client = client
        self._nb_env = nb_env
        self._T_max = T_max
        self._shares = Shares(clock)
        self._speed, self._learned = Rate(_RATE_S), Rate(_REMAINING_S)
        self.steps = 0  # of each environment
        self.episodes = 0
        self.scores: deque[float] = deque(maxlen=SCORE_EPISODES)
        self.record: RunStatus | None = None  # of the run, as this actor has last read it
        self.version = -1

    def count(self, messages: list[Message]) -> None:
        """Count one agent step in each environment, and the episodes among its messages."""
        self.steps += 1
        for message in messages:
            if isinstance(message, Episode):
                self.finish(float(message.record["score_saber"]))

    def finish(self, score: float) -> None:
        """Count an episode of this score."""
        self.episodes += 1
        self.scores.append(score)

    def read(self) -> Reading:
        """Return all metrics of this moment."""
        made = self.steps * self._nb_env
        values: dict[str, float] = {
            "actor/steps": made,
            "actor/episodes": self.episodes,
            "actor/version": max(0, self.version),
            "actor/unread": max(0, self._client.sequence - self._client.known_read),
        }
        if (speed := self._speed.per_second(made)) is not None:
            values["actor/steps_per_second"] = speed
        if scores := list(self.scores):
            values["rollout/ep_rew_mean"] = fmean(scores)
        shares = {f"share/{part}": share for part, share in self._shares.read().items()}
        return Reading(values | self._progress() | shares)

    def _progress(self) -> dict[str, float]:
        """Return how far the run is, as its record has it."""
        if self.record is None:
            return {}
        learned = self.record.t_learner
        values = {
            "time/total_timesteps": self.record.t_actors,
            "time/progress": min(1.0, learned / self._T_max),
            "train/timesteps": learned,
        }
        if learned and (speed := self._learned.per_second(learned)):
            values["time/remaining"] = max(0, self._T_max - learned) / speed
        return values
