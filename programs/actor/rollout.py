"""The playing part of an actor: one policy in several environments, whose rows become messages for the learner."""

import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import Struct

from rainbow_iqn_apex.agents.policy import Acted, ActorOutput, AskingPolicy, Inspection, Policy
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.common.loop_clock import LoopClock
from rainbow_iqn_apex.common.plugins import kept_settings
from rainbow_iqn_apex.common.schema import Count, parse
from rainbow_iqn_apex.common.seeds import derive_seed
from rainbow_iqn_apex.common.text import counted, name_error
from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.environments.vector import Vector
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.assembler import Assembler
from rainbow_iqn_apex.memory.broker.actor_client import Saved
from rainbow_iqn_apex.memory.chunk import Chunk, check_played, forms
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec, Field, unpack
from rainbow_iqn_apex.memory.hindsight import ACHIEVED, Hindsight
from rainbow_iqn_apex.memory.messages import Episode, Message
from rainbow_iqn_apex.memory.rows import Array, Arrays, Row, Rows, section
from rainbow_iqn_apex.monitoring.view import View

if TYPE_CHECKING:
    from torch import Tensor

_ENVIRONMENT_BYTES = 1 << 24  # of one environment's state: 14 KB of an emulator, or an episode's actions
# Errors that arrays of wrong names, sizes or dtypes cause, wherever they are first used; WireError is a ValueError.
_DAMAGED = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RuntimeError)


_DRAWN = "part.generator.state"  # where the random numbers of the policy are
PARTS = ("act", "environment", "pack")  # of a clock


class _Counts(Struct):
    """Hold what a saved state has beside its arrays."""

    step: Count
    first_episode: Count
    round: Count
    round_step: Count


class ResumePoint(NamedTuple):
    """Where an actor is in a run: in which round, after how many agent steps of an environment in it."""

    round: int
    step: int


class _Group:
    """Environments that act together; an actor that asks for actions has two groups, and steps one meanwhile."""

    def __init__(self, envs: range, places: Array | None, rows: Rows) -> None:
        self.envs = envs
        self.places = places  # as `Policy.act` takes them
        self.rows = rows  # to act on next, [E, ...]
        self.state: Arrays = {}  # of the policy before these rows, [E, ...]
        self.call: int | None = None  # that has asked for the actions already


class Rollout:
    """Plays several environments with one policy and turns what happens into messages.

    `step` counts the agent steps of each environment. Episodes are numbered from `first_episode` on. An actor without
    saved state begins above every number that it may have used before, so no new episode has the number of an old one.
    """

    def __init__(self, args: Args, policy: Policy, environments: Vector, clock: LoopClock | None = None) -> None:
        self.policy = policy
        self._clock = clock or LoopClock(*PARTS)
        self.step = 0
        self.first_episode = 0
        self._args = args
        self._environments = environments
        self._goals = Goals(args, policy, environments) if policy.spec.hindsight else None
        self._assemblers = [
            Assembler(policy.spec, env, policy.initial_priorities) for env in range(args.nb_env_per_actor)
        ]
        self._fields = policy.spec.row_fields(environments.spec)
        self._asking = policy if isinstance(policy, AskingPolicy) else None
        with kept_settings(folder=False):  # what an environment imports or sets in its first reset
            rows = environments.reset()
        self._groups = self._grouped(rows)

    def _grouped(self, rows: Rows) -> list[_Group]:
        count = self._args.nb_env_per_actor
        first = max(0, self._args.id_actor) * self._args.nb_env_per_actor
        is_parted = self._asking and self._asking.groups > 1 < count and self._environments.is_divisible
        stops = [0, count // 2, count] if is_parted else [0, count]
        groups = []
        for envs in map(range, stops, stops[1:]):
            places = first + np.arange(envs.start, envs.stop) if self._asking else None
            groups.append(_Group(envs, places, Rows(*(array[envs.start : envs.stop] for array in rows))))
        return groups

    def load(self, weights: "dict[str, Tensor]", version: int) -> None:
        """Act with these weights from now on."""
        self.policy.load(weights, version)
        for assembler in self._assemblers:
            assembler.version = version

    def play(self, T: int, after: int) -> list[Message]:
        """Make one agent step in each environment.

        `T` and `after` count agent steps over all actors before and after it; an episode's number counts its last step.
        """
        messages = [message for group in self._groups for message in self._play(group, T, after)]
        self.step += 1
        return messages

    def _play(self, group: _Group, T: int, after: int) -> list[Message]:
        before = group.state
        with self._clock.part("act"):
            output, group.state = self._act(group, T)
        with self._clock.part("pack"):
            chunks = [self._add(env, group.rows.row(at), output, before, at) for at, env in enumerate(group.envs)]
        with self._clock.part("environment"):
            made = self._environments.step(output.actions, group.envs)
        with self._clock.part("pack"):
            cut_off = self._at_cuts(group, made.ended)
            for env, row in made.ended.items():
                kept = output if cut_off is None or row.discount == 0 else cut_off
                chunks.append(self._add(env, row, kept, group.state, env - group.envs.start))
        group.rows = made.rows
        if self._asking and self._asking.groups > 1:
            with self._clock.part("act"):
                group.call = self._asking.ask(group.rows, group.state, after, group.places)
        episodes = [Episode(self._record(after, record)) for record in made.episodes]
        return [*(chunk for chunk in chunks if chunk), *episodes]

    def _act(self, group: _Group, T: int) -> Acted:
        if self._asking is None or group.call is None:
            return self.policy.act(group.rows, group.state, T, group.places)
        call = group.call
        group.call = None
        return self._asking.take(call)

    def view(self, version: int) -> View:
        """Return what is seen in environment 0, and thought of it by weights of this version; changes nothing."""
        spec = self._environments.spec
        return make_view(self.policy, spec, self._groups[0].rows, self._groups[0].state, self.step, version)

    def finish_round(self) -> list[Message]:
        """Return the chunks under way of an agent that takes turns with its actors: it learns from all of the round."""
        if self._args.own.MAX_POLICY_LAG:
            return []
        found = (
            self._completed(self._assemblers[env].finish(group.rows.row(at)))
            for group in self._groups
            for at, env in enumerate(group.envs)
        )
        return [chunk for chunk in found if chunk]

    def _add(self, env: int, row: Row, output: ActorOutput, before: Arrays, at: int) -> Chunk | None:
        """Give a row to an environment's assembler, with the recurrent state before the row: zero at the first row.

        The environment is number `at` of its group, whose the output and the state are.
        """
        extras = {name: array[at] for name, array in output.extras.items()}
        fields = self.policy.spec.state
        state = {name: before[name][at] if before else np.zeros(field.shape, field.dtype) for name, field in fields}
        self._assemblers[env].version = output.version
        return self._completed(self._assemblers[env].add(row, output.actions[at], extras, state))

    def _completed(self, chunk: Chunk | None) -> Chunk | None:
        """Return a chunk with its goals of hindsight; raises RunError for one that the learner would leave out."""
        if chunk is None:
            return None
        if self._goals is not None:
            chunk = replace(chunk, rows=chunk.rows | self._goals.draw(chunk.rows, chunk.env, self.step))
        try:
            check_played(chunk, self.policy.spec, self._fields, self._environments.spec.action)
        except ValueError as error:
            raise RunError(
                f"what environment and agent give cannot be learned from: {error}; mend the one that it is of, "
                "--env or --agent (docs/environments.md, docs/agents.md)"
            ) from error
        return chunk

    def _record(self, T: int, record: EpisodeRecord) -> dict[str, int | float | str]:
        number = self.first_episode + record.episode
        return asdict(record) | {"actor": self._args.id_actor, "T_actors": T, "episode": number}

    def _at_cuts(self, group: _Group, ended: dict[int, Row]) -> ActorOutput | None:
        """Return the output at the LAST rows of truncated episodes, from which returns are bootstrapped; None: no cut.

        After a true end no return is bootstrapped, so any output will do there.
        """
        cut = {env: row for env, row in ended.items() if row.discount}
        if not cut:
            return None
        rows = Rows(*(array.copy() for array in group.rows))
        for env, row in cut.items():
            for array, value in zip(rows, row, strict=True):
                array[env - group.envs.start] = value
        return self.policy.act(rows, group.state, None, group.places)[0]

    def snapshot(self, point: ResumePoint) -> bytes:
        """Encode everything that another process needs to go on after this moment, which is at `point`."""
        states = [group.state for group in self._groups]
        arrays = {f"agent.{name}": np.concatenate([state[name] for state in states]) for name in states[0]}
        arrays |= {f"envs.{name}": array for name, array in self._environments.snapshot().items()}
        for env, assembler in enumerate(self._assemblers):
            arrays |= {f"rows{env}.{name}": array for name, array in assembler.snapshot().items()}
        if (drawn := self.policy.random_state()) is not None:
            arrays[_DRAWN] = drawn
        meta = {"round": point.round, "round_step": point.step, "step": self.step, "first_episode": self.first_episode}
        return wire.encode(wire.Tag.STATE, meta, arrays)

    def restore(self, saved: Saved) -> ResumePoint:
        """Go on where a snapshot was taken; returns that point. Raises RunError for a state of other settings."""
        try:
            return self._restore(saved)
        except _DAMAGED as error:
            raise RunError(
                f"the saved state of actor {self._args.id_actor} in Redis cannot be used: {name_error(error)}; delete "
                "the field `state` of its key with redis-cli (docs/access.md, as administrator), and it begins anew "
                "after its last message; or mend `restore`, if that is of an environment of yours"
            ) from error

    def _restore(self, saved: Saved) -> ResumePoint:
        packet = wire.decode(saved.state, self._most_bytes(), wire.MAX_STATE_HEADER_BYTES)
        counts = parse(packet.meta, _Counts)
        arrays = {name: array.copy() for name, array in packet.arrays.items()}  # decoded ones are read-only
        own = section(arrays, "agent.")
        restored = self._environments.restore(section(arrays, "envs."))
        for group, after in zip(self._groups, self._grouped(restored.rows), strict=True):
            part = slice(group.envs.start, group.envs.stop)
            after.state = {name: array[part] for name, array in own.items()}
            output, state = self.policy.act(group.rows, {}, None, group.places)
            begun = forms(group.rows._asdict())
            if forms(after.rows._asdict()) != begun or (own and forms(after.state) != forms(state)):
                raise ValueError("its rows are of another kind")
            group.rows = after.rows
            group.state = after.state
            group.call = None
        fields = self.policy.spec.played_fields(self._environments.spec)
        fields |= {f"extras.{name}": Field(array.shape[1:], array.dtype.name) for name, array in output.extras.items()}
        for env, assembler in enumerate(self._assemblers):
            assembler.restore(section(arrays, f"rows{env}."), fields)
        if _DRAWN in arrays and self.policy.random_state() is not None:
            self.policy.restore_random_state(arrays[_DRAWN])
        self.step = counts.step
        self.first_episode = counts.first_episode
        self._report(restored.lost)
        return ResumePoint(counts.round, counts.round_step)

    def _report(self, lost: tuple[str, ...]) -> None:
        """Print that episodes end as cut off, with the reason of the first."""
        if not lost:
            return
        promise = "; lockstep no longer promises the same bytes for this run"
        print(
            f"Actor {self._args.id_actor} cuts off {counted(len(lost), 'episode')}, as truncated and without a score: "
            f"{lost[0]}{promise * self._args.synchronize_actors_with_learner}",
            flush=True,
        )

    def _most_bytes(self) -> int:
        """Return the most bytes of a state: the rows of a window, and some megabytes for the environment."""
        row = self._environments.spec.observation.nbytes
        return self._environments.count * (4 * self.policy.spec.window * row + _ENVIRONMENT_BYTES)


class Goals:
    """Gives the rows of chunks goals that were reached later, for an agent whose chunks have some.

    What is drawn depends on the actor, the environment and its step alone. So an actor that goes on from a saved state
    draws the same again, and has nothing of this to save.
    """

    def __init__(self, args: Args, policy: Policy, environments: Vector) -> None:
        """Find how the environments judge goals; raises UserError if they cannot."""
        judges = [judge for judge in environments.judges if judge]
        if len(judges) < environments.count:
            raise UserError("--hindsight: the environment has no compute_reward for its goals; leave the option out")
        self._spec = policy.spec
        achieved = environments.spec.part(ACHIEVED)
        self._hindsight = [Hindsight(achieved, policy.spec.hindsight, judge) for judge in judges]
        self._seed = derive_seed(args.seed, 6, args.id_actor)

    def draw(self, rows: Arrays, env: int, step: int) -> Arrays:
        """Return goals, rewards and discounts for a chunk that an environment completes at a step of its actor."""
        rng = np.random.default_rng([self._seed, env, step])
        first = self._spec.prefix
        return self._hindsight[env](rows, first, first + self._spec.length, rng)


def inspect(policy: Policy, rows: Rows, state: Arrays) -> tuple[Array, Inspection | None]:
    """Return the observation of environment 0 and what the agent thinks of it; changes nothing.

    `rows` and `state` are what the agent is about to act on.
    """
    first = Rows(*(array[:1].copy() for array in rows))
    before = {name: array[:1].copy() for name, array in state.items()}
    drawn = policy.random_state()
    try:
        return first.obs[0], policy.inspect(first, before)
    finally:
        if drawn is not None:
            policy.restore_random_state(drawn)


def make_view(policy: Policy, spec: EnvironmentSpec, rows: Rows, state: Arrays, step: int, version: int) -> View:
    """Return a view of environment 0, after `step` of its agent steps, with weights of this version.

    Of observations of several kinds the first is shown: a picture if there is one.
    """
    observation, thought = inspect(policy, rows, state)
    kinds = unpack(spec.observation, observation)
    seen = View(time.time(), step, version, _shown(kinds[0]), parts=spec.parts if kinds[0].ndim == 1 else ())
    if thought is None:
        return seen
    curves = () if thought.curves is None else tuple(map(tuple, thought.curves.tolist()))
    places = () if thought.places is None else tuple(thought.places.tolist())
    actions = tuple(thought.actions.tolist())
    return replace(seen, kind=thought.kind, actions=actions, value=thought.value, places=places, curves=curves)


def _shown(kind: Array) -> Array:
    """Return planes of bits as pictures of black and white, and all else as it is."""
    return kind.astype(np.uint8) * 255 if kind.dtype == np.bool_ else kind
