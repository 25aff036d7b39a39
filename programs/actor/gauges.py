"""Reads an actor's metrics, by the names of `monitoring.metrics`, from another thread while the actor works."""

from memory.broker.actor_client import ActorClient
from memory.loop_clock import LoopClock, Shares
from memory.messages import Episode, Message
from monitoring.rate import Rate
from monitoring.reporter import Reading

PARTS = ("other", "act", "environment", "pack", "send", "pull", "wait")  # of an actor's clock
_RATE_S = 30.0  # over which the speed is averaged


class ActorGauges:
    """Holds what an actor counts; `read` belongs to another thread than the rest."""

    def __init__(self, link: ActorClient, nb_env: int, clock: LoopClock) -> None:
        self._link = link
        self._nb_env = nb_env
        self._shares = Shares(clock)
        self._speed = Rate(_RATE_S)
        self.steps = 0  # of each environment
        self.episodes = 0
        self.version = -1

    def count(self, messages: list[Message]) -> None:
        """Count one agent step in each environment, and the episodes among its messages."""
        self.steps += 1
        self.episodes += sum(isinstance(message, Episode) for message in messages)

    def read(self) -> Reading:
        """Return all metrics of this moment."""
        made = self.steps * self._nb_env
        values: dict[str, float] = {
            "actor/steps": made,
            "actor/episodes": self.episodes,
            "actor/version": max(0, self.version),
            "actor/unread": max(0, self._link.sequence - self._link.known_read),
        }
        if (speed := self._speed.per_second(made)) is not None:
            values["actor/steps_per_second"] = speed
        return Reading(values | {f"share/{part}": share for part, share in self._shares.read().items()})
