"""The rate limiter: how far playing and learning may run apart.

Two numbers are compared: what the actors have inserted into the log, and what the learner has sampled from it. With
`synchronize` both are counted in rounds of `round_steps` agent steps, at one learner update per `replay_frequency`
agent steps, and each side waits for the other at every round's end:

    the actors play round r with the weights of version r, while
    the learner trains on all rows of rounds before r and then publishes version r + 1.

So the two work at the same time, never more than a round apart (`max_policy_lag` 1), and which rows and which weights
are used when depends on no process's speed. With `max_policy_lag` 0 they take turns: the learner trains in round r
on all rows of the rounds up to r, which were played with the weights that it has then.

Without `synchronize` no process waits, except an actor whose unread experience would overrun the replay or queue, and
is more than a chunk of each of its environments. Each process counts rounds of its own: the learner publishes after
`round_steps` steps of its count, and an actor pulls after as many of its own steps. So an actor's load on Redis does
not grow with the number of actors.

The number of actors may change when a run is resumed. In lockstep the actors that stay then play the rounds that are
under way, and all actors begin together with the next round: what is played and learned depends on these rounds alone.
Without lockstep actors come and go at any time.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from rainbow_iqn_apex.common.schema import Whole, parse

_LEAST_UNREAD = 16  # messages beside a chunk of each environment
MAX_ACTORS = 4096  # of a run: no peer that may write to Redis can make the learner read more logs than these


class Crew(NamedTuple):
    """The actors 0 to `nb_actor` - 1, which play together from `first_round` on, until the next crew does.

    `first_step` counts the agent steps over all actors in the rounds before, `env_steps` those of one environment in
    each round.
    """

    first_round: Whole
    first_step: Whole
    nb_actor: Annotated[int, Meta(ge=1, le=MAX_ACTORS)]
    env_steps: Annotated[int, Meta(ge=1, lt=2**53)]


@dataclass(frozen=True)
class RateLimiter:
    """Decides who may go on; `crews` are in the order of their rounds, the first one's is 0."""

    synchronize: bool
    wanted_steps: int  # agent steps of a round: in lockstep over all actors and at least, else of one process
    nb_env_per_actor: int
    max_unread: int  # messages of one actor that the learner has not read, without lockstep
    crews: tuple[Crew, ...]
    max_policy_lag: int = 1  # rounds by which acting may be ahead of learning, in lockstep: 0 or 1

    @classmethod
    def of(
        cls,
        *,
        synchronize: bool,
        wanted_steps: int,
        nb_env_per_actor: int,
        nb_actor: int,
        max_chunks: int,
        crews: tuple[Crew, ...] = (),
        max_policy_lag: int = 1,
    ) -> "RateLimiter":
        """Limit a run that has had these crews (none: it begins with `nb_actor`) to `max_chunks` unread messages.

        An actor may have sent a chunk of each environment, and some, in any case. They come at the same time, and with
        room for fewer it would play nothing until the learner has told how far it has read.
        """
        most = max(_LEAST_UNREAD + nb_env_per_actor, max_chunks // nb_actor)
        limiter = cls(synchronize, wanted_steps, nb_env_per_actor, most, crews, max_policy_lag)
        return limiter if crews else replace(limiter, crews=(Crew(0, 0, nb_actor, limiter._env_steps(nb_actor)),))

    def _env_steps(self, nb_actor: int) -> int:
        return -(-self.wanted_steps // (self.nb_env_per_actor * (nb_actor if self.synchronize else 1)))

    def may_play(self, round_: int, published: int, unread: int) -> bool:
        """Return whether an actor may play a round, given the newest weights version and its own unread messages."""
        return published >= round_ if self.synchronize else unread <= self.max_unread

    def may_train(self, round_: int, played: int) -> bool:
        """Return whether the learner may train in a round, given the last round that all actors played (-1: none)."""
        return played >= round_ - self.max_policy_lag if self.synchronize else True

    def crew_of(self, round_: int) -> Crew:
        """Return the crew that plays a round."""
        return next(crew for crew in reversed(self.crews) if crew.first_round <= round_)

    def round_steps(self, round_: int) -> int:
        """Count the agent steps that the learner's updates of a round stand for: in lockstep the steps played in it."""
        crew = self.crew_of(round_)
        return crew.nb_actor * self.nb_env_per_actor * crew.env_steps if self.synchronize else self.wanted_steps

    @property
    def most_steps(self) -> int:
        """Count the agent steps of the longest round that crews play, in lockstep."""
        return max(self.round_steps(crew.first_round) for crew in self.crews)

    def steps_before(self, round_: int) -> int:
        """Count the agent steps over all actors in the rounds before this one, in lockstep."""
        crew = self.crew_of(round_)
        return crew.first_step + (round_ - crew.first_round) * self.round_steps(round_)

    def joining_round(self, actor: int) -> int:
        """Return the round from which on an actor is in every crew, in lockstep."""
        absent = [crew.first_round for crew in self.crews if crew.nb_actor <= actor]
        return next(crew.first_round for crew in self.crews if crew.first_round > max(absent, default=-1))

    def change(self, first: int, last: int, nb_actor: int) -> "RateLimiter":
        """Let `nb_actor` actors play after the rounds `first` to `last`; those that play already finish these rounds.

        What leaving actors have played of these rounds is left out, as they may never finish them.
        """
        if self.crews[-1].nb_actor == nb_actor:
            return self
        now = self.crew_of(first)
        before = [crew for crew in self.crews if crew.first_round < first]
        if not self.synchronize:
            return replace(self, crews=(now._replace(nb_actor=nb_actor),))
        staying = Crew(first, self.steps_before(first), min(now.nb_actor, nb_actor), now.env_steps)
        until_then = replace(self, crews=(*before, staying))
        after = Crew(last + 1, until_then.steps_before(last + 1), nb_actor, self._env_steps(nb_actor))
        return replace(self, crews=(*until_then.crews, after))


def check_crews(rows: Any) -> tuple[Crew, ...]:
    """Return crews as they were stored; raises ValueError for anything that no run can have stored."""
    try:
        crews = parse(rows, tuple[Crew, ...])
    except ValueError as error:
        raise ValueError(f"its crews are wrong ({error})") from error
    firsts = [crew.first_round for crew in crews]
    if firsts != sorted(set(firsts)) or firsts[:1] not in ([], [0]):
        raise ValueError("its crews are not in the order of their rounds")
    return crews
