"""The rate limiter: how far playing and learning may run apart.

Two numbers are compared: what the actors have inserted into the log, and what the learner has sampled from it. With
`synchronize` both are counted in rounds of `round_steps` agent steps, at one learner update per `replay_frequency`
agent steps, and each side waits for the other at every round's end:

    the actors play round r with the weights of version r, while
    the learner trains on all rows of rounds before r and then publishes version r + 1.

So the two work at the same time, never more than a round apart, and which rows and which weights are used when does not
depend on anybody's speed. Without it nobody waits, except an actor whose unread experience would overrun the replay,
and a round is of one process alone: the learner publishes after `round_steps` steps of its own count, and an actor
pulls after as many of its own, so that what an actor asks of Redis does not grow with the number of actors.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class RateLimiter:
    """Decides who may go on."""

    synchronize: bool
    env_steps: int  # agent steps of one environment in a round of its actor
    round_steps: int  # agent steps that a round of the learner's updates stands for
    nb_env: int  # environments over all actors
    max_unread: int  # messages of one actor that the learner has not read, without synchronisation

    @classmethod
    def of(cls, *, synchronize: bool, round_steps: int, nb_env: int, nb_actor: int, max_chunks: int) -> "RateLimiter":
        """Rounds of at least `round_steps` agent steps in all that share them; at most `max_chunks` unread in all."""
        env_steps = -(-round_steps // (nb_env if synchronize else nb_env // nb_actor))
        exact = env_steps * nb_env if synchronize else round_steps
        return cls(synchronize, env_steps, exact, nb_env, max(16, max_chunks // nb_actor))

    def may_play(self, round_: int, published: int, unread: int) -> bool:
        """Whether an actor may play a round, given the newest weights version and its own unread messages."""
        return published >= round_ if self.synchronize else unread <= self.max_unread

    def may_train(self, round_: int, played: int) -> bool:
        """Whether the learner may train in a round, given the last round that all actors have played (-1: none)."""
        return played >= round_ - 1 if self.synchronize else True
