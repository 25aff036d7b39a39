"""The actor: plays, cuts its rows into chunks, appends them to its log, and pulls weights."""

import threading
from dataclasses import asdict

import numpy as np
import torch

from agents.interface import Agent, Decision, Part
from agents.programs import IntervalLog, make_limiter, observation_of, open_environment, select_device
from agents.registry import derive_seed, make_agent
from args import Args
from memory import wire
from memory.actor_link import ActorLink, RunOver, Saved, wait_for_run
from memory.assembler import Assembler
from memory.chunk import Chunk
from memory.errors import Stopped, UserError
from memory.limiter import RateLimiter
from memory.messages import Episode, Joined, Message, RoundEnd
from memory.rows import Arrays, Row, section
from memory.transport import Patience, connect
from saber.scores import EpisodeRecord
from saber.vector import VectorEnvironment


class Player:
    """Plays several environments with one agent and turns what happens into messages.

    `step` counts the agent steps of each environment. Episodes are numbered from `first_episode` on: an actor that lost
    its state begins above all numbers it can have used before, so that none of its episodes is taken for a known one.
    """

    def __init__(self, args: Args, agent: Agent, environments: VectorEnvironment) -> None:
        self.agent = agent
        self.step = 0
        self.first_episode = 0
        self._args = args
        self._environments = environments
        self._assemblers = [
            Assembler(agent.spec, env, agent.initial_priorities) for env in range(args.nb_env_per_actor)
        ]
        self._state: Arrays = {}
        self._rows = environments.reset()

    def load(self, weights: dict[str, torch.Tensor], version: int) -> None:
        """Act with these weights from now on."""
        self.agent.load(weights)
        for assembler in self._assemblers:
            assembler.version = version

    def play(self, T: int) -> list[Message]:
        """One agent step in each environment; `T` counts agent steps over all actors."""
        decision, self._state = self.agent.act(self._rows, self._state, T)
        chunks = [self._add(env, self._rows.row(env), decision) for env in range(len(self._assemblers))]
        after = self._environments.step(decision.actions)
        chunks += [self._add(env, row, self._at_end(env, row, decision)) for env, row in after.ended.items()]
        self._rows = after.rows
        self.step += 1
        episodes = [Episode(self._record(T, record)) for record in after.episodes]
        return [*(chunk for chunk in chunks if chunk), *episodes]

    def _add(self, env: int, row: Row, decision: Decision) -> Chunk | None:
        out = {name: array[env] for name, array in decision.out.items()}
        return self._assemblers[env].add(row, int(decision.actions[env]), out)

    def _record(self, T: int, record: EpisodeRecord) -> dict[str, int | float | str]:
        number = self.first_episode + record.episode
        return asdict(record) | {"actor": self._args.id_actor, "T_actors": T, "episode": number}

    def _at_end(self, env: int, row: Row, decision: Decision) -> Decision:
        """What to keep with a LAST row: after a truncation its value is bootstrapped from, so the network is asked."""
        if row.discount == 0:
            return Decision(
                np.zeros_like(decision.actions),
                decision.values,
                {name: np.zeros_like(array) for name, array in decision.out.items()},
            )
        rows = self._rows._replace(**{name: array.copy() for name, array in self._rows._asdict().items()})
        for array, value in zip(rows, row, strict=True):
            array[env] = value
        return self.agent.act(rows, self._state, None)[0]

    def snapshot(self, round_: int) -> bytes:
        """Everything needed to go on after this moment in another process."""
        arrays = {f"agent.{name}": array for name, array in self._state.items()}
        arrays |= {f"envs.{name}": array for name, array in self._environments.snapshot().items()}
        for env, assembler in enumerate(self._assemblers):
            arrays |= {f"rows{env}.{name}": array for name, array in assembler.snapshot().items()}
        for name, part in self._drawing().items():
            arrays |= {f"part.{name}.{key}": tensor.cpu().numpy() for key, tensor in part.state_dict().items()}
        meta = {"round": round_, "step": self.step, "first_episode": self.first_episode}
        return wire.encode(wire.Tag.STATE, meta, arrays)

    def restore(self, saved: Saved) -> int:
        """Go on where a snapshot was taken; returns its round."""
        packet = wire.decode(saved.state)
        arrays = {name: array.copy() for name, array in packet.arrays.items()}  # decoded ones are read-only
        self._state = section(arrays, "agent.")
        self._rows = self._environments.restore(section(arrays, "envs."))
        for env, assembler in enumerate(self._assemblers):
            assembler.restore(section(arrays, f"rows{env}."))
        for name, part in self._drawing().items():
            state = section(arrays, f"part.{name}.")
            part.load_state_dict({key: torch.from_numpy(array) for key, array in state.items()})
        self.step = int(packet.meta["step"])
        self.first_episode = int(packet.meta["first_episode"])
        return int(packet.meta["round"])

    def _drawing(self) -> dict[str, Part]:
        """The agent's parts that change while it acts; the model comes from the learner."""
        return {name: part for name, part in self.agent.parts.items() if name != "model"}


class Actor:
    """Plays round after round, as far as the rate limiter allows."""

    def __init__(
        self, args: Args, link: ActorLink, player: Player, limiter: RateLimiter, stop: threading.Event
    ) -> None:
        self._args = args
        self._link = link
        self._player = player
        self._limiter = limiter
        self._stop = stop
        self._version = -1
        self._round = 0
        self._unsent: list[Message] = []

    def run(self) -> None:
        """Play until the run is over (RunOver) or the process shall stop (Stopped)."""
        saved = self._link.saved()
        if saved:
            self._round = self._player.restore(saved)
            print(f"Actor {self._args.id_actor} goes on after {self._player.step} of its steps", flush=True)
        else:
            self._round = self._first_round() if self._limiter.synchronize else 0
            self._player.step = self._round * self._limiter.env_steps
            self._player.first_episode = self._link.record().t_actors  # at least one step an episode
            self._unsent = [Joined(self._round)]
        log = IntervalLog(
            f"actor {self._args.id_actor}", self._args.log_interval, self._args.T_max, self._total_steps(0)
        )
        while True:
            self._pull()
            self._play_round(log)

    def _first_round(self) -> int:
        """Round 0, which the learner waits for before it publishes version 2; where that is past, the present one."""
        newest = self._link.wait_for_version(0)
        return newest if newest > 1 else 0

    def _total_steps(self, t_actors: int) -> int:
        """Agent steps over all actors: exact in lockstep, else what the learner has counted so far."""
        step = self._player.step
        return (
            step * self._limiter.nb_env
            if self._limiter.synchronize
            else max(t_actors, step * self._args.nb_env_per_actor)
        )

    def _pull(self, *, again: bool = False) -> None:
        """Wait until the next round may be played, and load its weights."""
        patience = Patience("the learner to read this actor's experience")
        newest = self._link.wait_for_version(self._round if self._limiter.synchronize else 0)
        while not self._limiter.may_play(self._round, newest, self._link.unread()):
            self._link.pause(patience)
            self._stop.wait(0.05)
            newest = self._link.newest_version()
        wanted = self._round if self._limiter.synchronize else newest
        if wanted == self._version and not again:
            return
        packet = self._link.weights(wanted)
        self._version = int(packet.meta["version"])
        weights = {name: torch.from_numpy(array.copy()) for name, array in packet.arrays.items()}
        self._player.load(weights, self._version)

    def _play_round(self, log: IntervalLog) -> None:
        t_actors = self._link.record().t_actors
        end = (self._round + 1) * self._limiter.env_steps if self._limiter.synchronize else None
        steps = range(end - self._player.step if end is not None else self._limiter.env_steps)
        unsent_limit = self._args.length_actor_buffer - self._player.agent.spec.window
        for i in steps:
            T = self._total_steps(t_actors)
            self._unsent += self._player.play(T)
            log.passes(self._total_steps(t_actors))
            if self._stop.is_set():
                break
            if (i + 1) % unsent_limit == 0:
                self._commit()
                self._pull(again=True)  # a successor that goes on from here has to load weights, too
        if self._limiter.synchronize:
            # What was not committed will be played again, and exactly so, by this actor's successor.
            if self._stop.is_set():
                raise Stopped
            self._unsent.append(RoundEnd(self._round))
        self._round += 1
        self._commit()
        if self._stop.is_set():
            raise Stopped

    def _commit(self) -> None:
        if self._unsent:
            self._link.commit(self._unsent, self._player.snapshot(self._round))
            self._unsent = []


def run_actor(args: Args, stop: threading.Event) -> None:
    """Play for the run of these settings until it is over or this process shall stop."""
    if args.id_actor < 0:
        raise UserError(f"--id-actor: an actor needs its own number, 0 to {args.nb_actor - 1}")
    torch.set_num_threads(1)  # several actors share a machine, and small batches gain nothing from more
    client = connect(args.host_redis, args.port_redis)
    run = wait_for_run(client, args.name, args.shared, stop)
    device = select_device(args)
    seeds = [derive_seed(args.seed, 1, args.id_actor, env) for env in range(args.nb_env_per_actor)]
    environments = [open_environment(args, seed) for seed in seeds]
    seed = derive_seed(args.seed, 2, args.id_actor)
    agent = make_agent(
        args, observation_of(environments[0]), environments[0].nb_actions, device, learns=False, seed=seed
    )
    if args.length_actor_buffer <= agent.spec.window:
        raise UserError(f"--length-actor-buffer: must exceed the {agent.spec.window} rows of a chunk")
    limiter = make_limiter(args, agent)
    with ActorLink(client, args.name, run.run_id, args.id_actor, stop) as link:
        player = Player(args, agent, VectorEnvironment(environments))
        print(f"Actor {args.id_actor} plays {args.game} on {device}", flush=True)
        try:
            Actor(args, link, player, limiter, stop).run()
        except RunOver as over:
            print(f"The learner has {over}: actor {args.id_actor} leaves", flush=True)
