"""The processes of a run by their leases: whether any runs, and lines about those that are waited for."""

import re
from collections.abc import Callable

from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.registered import every_actor
from rainbow_iqn_apex.memory.broker.transport import Keys
from rainbow_iqn_apex.memory.broker.upkeep import keys_from

LEARNER = -1  # in the place of an actor's number
_MOST_NAMED = 8
_LEASE = re.compile(rb"(/\d+(\.\d+)?)?}:(learner|rank:\d+|[^:]+:((evaluation|inference):)?actor:\d+)")  # after a name


def is_at_work(client: Client, name: str) -> bool:
    """Return whether any process of a run of this name runs; a killed one does until its lease has run out."""
    beginning = Keys(name, "").run.removesuffix("}")
    return any(_LEASE.fullmatch(key[len(beginning.encode()) :]) for key in keys_from(client, beginning))


def plain_command(process: int) -> str:
    """Return the command that starts a process with all settings at their defaults."""
    return "python launch_learner.py" if process == LEARNER else f"python launch_actor.py --id-actor {process}"


def no_failure(_keys: Keys, _actor: int) -> str:
    """Return nothing: it is not known why an actor has ended."""
    return ""


class ExpectedActors:
    """Finds the processes of a run by their leases.

    `command` returns the command that starts an actor or LEARNER, `failure` why an actor has ended, or nothing. Only
    actors that the process that waits `owns` are looked for.
    """

    def __init__(
        self, client: Client, keys: Keys, actors: int, command: Callable[[int], str] = plain_command,
        failure: Callable[[Keys, int], str] = no_failure, owns: Callable[[int], bool] = every_actor,
    ) -> None:  # fmt: skip
        self._client = client
        self._keys = keys
        self._actors = [*filter(owns, range(actors))]
        self._command = command
        self._failure = failure

    def absent(self) -> str:
        """Return the end of a line about waiting: who is not running, and the command to copy; empty if all run.

        A killed process counts as running for as long as its lease lasts.
        """
        if not self._client.exists(self._keys.learner_lease):
            return f"; the learner is not running: {self._command(LEARNER)}"
        return self.absent_actors()

    def absent_actors(self) -> str:
        """Return the same of the actors alone, for the learner: Redis may come back without the learner's own lease."""
        absent = [actor for actor in self._actors if not self._client.exists(self._keys.actor_lease(actor))]
        if not absent:
            return ""
        command = self._command(absent[0])
        whys = ((actor, self._failure(self._keys, actor)) for actor in absent[:_MOST_NAMED])
        failed = next((f"; actor {actor} has {why}" for actor, why in whys if why), "")
        if len(absent) == 1:
            return f"{failed}; actor {absent[0]} is not running: {command}"
        named = ", ".join(map(str, absent[:_MOST_NAMED])) + (" ..." if len(absent) > _MOST_NAMED else "")
        todo = f"each to be started with its --id-actor: {command}"
        return f"{failed}; {len(absent)} actors are not running ({named}), {todo}"
