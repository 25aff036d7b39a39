"""Are an actor's initial priorities those that the learner would give, and what do they cost?

    python -m benchmarks.initial_priorities --game road_runner [--model SNAPSHOT] [--steps 2000] [--output x.json]

An actor computes the priorities of fresh rows from what its network said when it acted, without another forward pass.
Real rows are played by the real actor's parts and put into a real replay; the learner, with the same weights in both
its networks, then computes the loss of every one of them several times. Both sides draw noise and quantile fractions,
so even two evaluations by the learner do not agree: their rank correlation is the most that an initial priority can
reach against one evaluation.
"""

import argparse
import dataclasses
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.environment_info import machine
from benchmarks.rank_correlation import spearman
from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.q_learning.agent import QLearningAgent
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.seeds import derive_seed
from rainbow_iqn_apex.environments.vector import VectorEnvironment
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.options import command_line
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.actor.rollout import Rollout
from rainbow_iqn_apex.programs.common import make_agent, open_environment, select_device
from rainbow_iqn_apex.programs.evaluation.settings import load_model
from rainbow_iqn_apex.saber.results.run_record import commit

PROGRAM = "python -m benchmarks.initial_priorities"
_CHUNKS = 16  # in replay at a time: a batch of all their rows is half a gigabyte


class Own(NamedTuple):
    """The options of this benchmark; all others are those of the programs."""

    steps: int
    draws: int
    random_actions: bool
    output: Path | None


class Played(NamedTuple):
    """Rows that an actor has made, and the seconds that it took."""

    chunks: list[Chunk]
    act: Array  # [steps]
    environment: Array  # [steps]
    priorities: Array  # [chunks]


class Rows(NamedTuple):
    """All learnable rows."""

    initial: Array  # [rows] priorities of the actor
    learner: Array  # [draws, rows] priorities of the learner
    rewarded: Array  # [rows] bool: the n-step return is not zero


# --- playing ---


class _Clock:
    """Times the calls of a function: on a CPU in time of the processor, which other programs do not lengthen."""

    def __init__(self, function: Callable[..., Any], device: torch.device) -> None:
        self._function = function
        self._now = time.process_time if device.type == "cpu" else time.perf_counter
        self.seconds: list[float] = []

    def __call__(self, *values: Any) -> Any:
        start = self._now()
        result = self._function(*values)
        self.seconds.append(self._now() - start)
        return result


def play(args: Args, agent: QLearningAgent, environment: VectorEnvironment, own: Own) -> Played:
    """Play as an actor does: it loads weights at times, which ends the noise of before."""
    weights = {name: value.detach().clone() for name, value in agent.network.named_parameters()}
    device = next(iter(weights.values())).device
    act, step = _Clock(agent.act, device), _Clock(environment.step, device)
    priorities = _Clock(agent.initial_priorities, device)
    agent.act, agent.initial_priorities = act, priorities  # type: ignore[assignment, method-assign]
    environment.step = step  # type: ignore[assignment, method-assign]
    player = Rollout(args, agent, environment)
    chunks: list[Chunk] = []
    for number in range(own.steps):
        if number % args.weight_synchro_frequency == 0:
            player.load(weights, number)
        before = len(act.seconds)
        T = 0 if own.random_actions else args.learn_start
        messages = player.play(T, T)
        act.seconds[before:] = [sum(act.seconds[before:])]  # a truncated episode asks the network twice
        chunks += [message for message in messages if isinstance(message, Chunk)]
    return Played(chunks, np.array(act.seconds), np.array(step.seconds), np.array(priorities.seconds))


# --- learning ---


def evaluate(args: Args, agent: QLearningAgent, environment: EnvironmentSpec, chunks: list[Chunk], draws: int) -> Rows:
    """The learner's priorities of all learnable rows of the chunks."""
    parts = []
    for start in range(0, len(chunks), _CHUNKS):
        some = chunks[start : start + _CHUNKS]
        batch, initial = every_row(agent, environment, some)
        pieces = [_columns(batch, i, i + args.batch_size) for i in range(0, len(initial), args.batch_size)]
        learner = [np.concatenate([_priorities(agent, piece) for piece in pieces]) for _ in range(draws)]
        rewarded = np.concatenate([agent.transitions(piece).return_.numpy() != 0 for piece in pieces])
        parts.append(Rows(initial, np.stack(learner), rewarded))
        print(f"  {start + len(some)} of {len(chunks)} chunks evaluated", file=sys.stderr, flush=True)
    return Rows(*(np.concatenate(column, axis=-1) for column in zip(*parts, strict=True)))


def every_row(agent: QLearningAgent, environment: EnvironmentSpec, chunks: list[Chunk]) -> tuple[Batch, Array]:
    """Every learnable row of the chunks once, as replay gives them, and their initial priorities."""
    spec = agent.spec
    generator = torch.Generator().manual_seed(0)
    replay = Replay(spec, environment, len(chunks) * spec.period, generator, torch.device("cpu"))
    for number, chunk in enumerate(chunks):
        # With equal priorities, each of as many strata as there are rows is one row.
        equal = spec.learnable(chunk.rows["step_type"]).astype(np.float32)
        replay.add(ChunkId(0, number), dataclasses.replace(chunk, priorities=equal))
    batch = replay.sample(replay.size, progress=0.0)
    assert batch.indices is not None
    indices = batch.indices.numpy()
    if len(np.unique(indices)) != replay.size:
        raise RuntimeError("a row was drawn twice")
    return batch, np.concatenate([chunk.priorities for chunk in chunks])[indices]


def _columns(batch: Batch, start: int, end: int) -> Batch:
    return batch._replace(rows={name: rows[:, start:end] for name, rows in batch.rows.items()})


@torch.no_grad()
def _priorities(agent: QLearningAgent, batch: Batch) -> Array:
    device = next(agent.network.parameters()).device
    losses, _ = agent.losses(agent.transitions(batch.to(device)))
    priorities: Array = (losses**agent.priority_exponent).cpu().numpy()
    return priorities


# --- numbers ---


def correlations(rows: Rows) -> dict[str, dict[str, float]]:
    """Mean rank correlations over the draws, for all rows and for those with and without a reward in their return."""
    groups = {
        "all rows": np.ones(len(rows.initial), bool),
        "return not 0": rows.rewarded,
        "return 0": ~rows.rewarded,
    }
    return {name: _correlations(rows.initial[group], rows.learner[:, group]) for name, group in groups.items()}


def _correlations(initial: Array, learner: Array) -> dict[str, float]:
    draws = range(len(learner))
    others = [np.delete(learner, i, axis=0).mean(0) for i in draws]
    return {
        "rows": len(initial),
        "initial, one draw": statistics.fmean(spearman(initial, draw) for draw in learner),
        "ceiling, one draw": statistics.fmean(spearman(a, b) for a, b in itertools.combinations(learner, 2)),
        "initial, mean": spearman(initial, learner.mean(0)),
        "ceiling, mean": statistics.fmean(spearman(learner[i], others[i]) for i in draws),
    }


def cost(played: Played, stride: int) -> dict[str, dict[str, float]]:
    """Quartiles of milliseconds per agent step, and of the share that the priorities add to it in percent."""
    steps = len(played.act) // stride * stride
    act = played.act[:steps].reshape(-1, stride).mean(1)  # means of as many steps as a chunk has
    environment = played.environment[:steps].reshape(-1, stride).mean(1)
    count = min(len(act), len(played.priorities))
    act, environment, priorities = act[:count], environment[:count], played.priorities[:count] / stride
    return {
        "act [ms/step]": _quartiles(act * 1e3),
        "environment [ms/step]": _quartiles(environment * 1e3),
        "initial priorities [ms/step]": _quartiles(priorities * 1e3),
        "priorities / act [%]": _quartiles(100 * priorities / act),
        "priorities / (act + environment) [%]": _quartiles(100 * priorities / (act + environment)),
    }


def _quartiles(values: Array) -> dict[str, float]:
    low, median, high = np.percentile(values, [25, 50, 75])
    return {"median": float(median), "quartile 1": float(low), "quartile 3": float(high)}


# --- the program ---


def _parse(argv: list[str] | None) -> tuple[Own, Args]:
    parser = argparse.ArgumentParser(PROGRAM, description=__doc__, allow_abbrev=False, add_help=False)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--random-actions", action="store_true")
    parser.add_argument("--output", type=Path)
    own, rest = parser.parse_known_args(argv)
    description = (
        "Compare an actor's initial priorities with the learner's. Besides the options below: --steps [2000], --draws "
        "evaluations by the learner [4], --random-actions as before learn-start, --output FILE for JSON."
    )
    args = options.parse(rest, PROGRAM, description)
    if own.draws < 2:
        raise UserError("--draws: two evaluations at least are needed, or there is nothing to compare with")
    return Own(**vars(own)), dataclasses.replace(args, id_actor=0, nb_env_per_actor=1)


def _agents(args: Args, saved: dict[str, Any] | None, environment: EnvironmentSpec) -> Iterator[QLearningAgent]:
    """An actor's agent and a learner's, with the same weights and other random numbers."""
    device = select_device(args)
    for learns in (False, True):
        agent = make_agent(args, environment, device, learns=learns, seed=derive_seed(args.seed, 9))
        if saved:
            snapshot.restore_weights(agent, saved)
        if not isinstance(agent, QLearningAgent):
            raise UserError(f"--agent: {args.agent} has no losses to compare with")
        yield agent


def _show(result: dict[str, Any]) -> None:
    columns = ("rows", "initial, one draw", "ceiling, one draw", "initial, mean", "ceiling, mean")
    print(f"\nRank correlation of initial priorities with the learner's ({result['draws']} draws)\n")
    print(f"{'':<14}" + "".join(f"{name:>19}" for name in columns))
    for name, line in result["correlations"].items():
        print(f"{name:<14}" + f"{line['rows']:>19}" + "".join(f"{line[column]:>19.3f}" for column in columns[1:]))
    print(f"\n{'Cost':<38}{'median':>12}{'quartiles':>22}")
    for name, line in result["cost"].items():
        spread = f"{line['quartile 1']:.3f} to {line['quartile 3']:.3f}"
        print(f"{name:<38}{line['median']:>12.3f}{spread:>22}")


def main(argv: list[str] | None = None) -> None:
    """Measure, print a table, and write the numbers as JSON if asked to."""
    own, args = _parse(argv)
    args, saved = load_model(args) if args.model else (args, None)
    environment = open_environment(args, derive_seed(args.seed, 1, 0, 0))
    actor, learner = _agents(args, saved, environment.spec)
    if len(range(actor.spec.window, own.steps, actor.spec.period)) < 1:
        raise UserError(f"--steps: {own.steps} do not fill a chunk of {actor.spec.window} rows")
    generator = torch.Generator(select_device(args)).manual_seed(args.seed)
    learner.parts["generator"].load_state_dict({"state": generator.get_state()})
    torch.set_num_threads(1)  # as in an actor
    print(f"{args.agent} plays {own.steps} steps of {args.task}", file=sys.stderr, flush=True)
    played = play(args, actor, VectorEnvironment([environment]), own)
    rows = evaluate(args, learner, environment.spec, played.chunks, own.draws)
    result = {
        "machine": machine(),
        "commit": commit(),
        "task": args.task,
        "model": args.model.name if args.model else "",
        "settings": args.shared,
        "steps": own.steps,
        "draws": own.draws,
        "random_actions": own.random_actions,
        "correlations": correlations(rows),
        "cost": cost(played, actor.spec.period),
    }
    _show(result)
    if own.output:
        plain = json.loads(json.dumps(result), parse_constant=lambda _: None)  # NaN is not JSON
        own.output.write_text(json.dumps(plain, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        command_line.fail(PROGRAM, error)
