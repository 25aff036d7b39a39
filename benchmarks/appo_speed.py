"""Measures how fast Sample Factory's APPO trains on Atari; runs in an environment of its own, prints frames a second.

    .venv-appo/bin/python benchmarks/appo_speed.py --workers 2 --game space_invaders --seconds 60 --warm-up 20

This file imports nothing of the project. APPO has PPO's loss in a learner beside workers that play, as IMPALA's does;
with its V-trace the learner of version 2.1.1 ends in its own summaries, so it has GAE. Network, unroll and batch are
those of our IMPALA: DQN's with 512 features, 20 steps, 32 sequences, each learned from once. All 18 actions and sticky
actions in the emulator, as under SABER's rules; no no-ops, and no end at the loss of a life.
"""

import argparse
import logging
import tempfile
import time
from typing import Any

import gymnasium
from ale_py.env import AtariEnv
from gymnasium.wrappers import AtariPreprocessing, FrameStack, TransformReward
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.envs.env_wrappers import NumpyObsWrapper
from sample_factory.train import make_runner
from sample_factory.utils.utils import log

ENVIRONMENTS = 32
UNROLL = 20
SEQUENCES = 32
FRAMES = 4
_SETTINGS = (
    f"--rollout {UNROLL} --batch_size {UNROLL * SEQUENCES} --recurrence 1 --use_rnn False --with_vtrace False "
    "--num_epochs 1 --num_batches_per_epoch 1 --encoder_conv_architecture convnet_atari --encoder_conv_mlp_layers 512 "
    "--nonlinearity relu --obs_scale 255 --normalize_input False --normalize_returns False --value_loss_coeff 0.5 "
    "--exploration_loss_coeff 0.01 --learning_rate 6e-4 --device cpu --async_rl True --serial_mode False "
    "--batched_sampling False --decorrelate_experience_max_seconds 0 --save_every_sec 100000 --seed 1"
)


def environment(game: str, *_: Any, **__: Any) -> gymnasium.Env[Any, Any]:
    """Make a game with gymnasium's preprocessing, and a stack of four frames."""
    played = AtariEnv(game, frameskip=1, repeat_action_probability=0.25, full_action_space=True)
    stacked = FrameStack(AtariPreprocessing(played, noop_max=0), 4)
    clipped = TransformReward(stacked, lambda reward: max(-1.0, min(1.0, float(reward))))
    made: gymnasium.Env[Any, Any] = NumpyObsWrapper(clipped)
    return made


class Watch(AlgoObserver):  # type: ignore[misc]
    """Keeps when how many agent steps had been learned from, and ends the training so many seconds after the first."""

    def __init__(self, seconds: float) -> None:
        self.seen: list[tuple[float, int]] = []
        self._seconds = seconds

    def on_training_step(self, runner: Runner, _: int) -> None:
        """Note what the learner has told last."""
        self.seen.append((time.monotonic(), runner.total_env_steps_since_resume or 0))
        if self.seen[-1][0] > self.seen[0][0] + self._seconds:
            runner.cfg.train_for_env_steps = 0  # --train_for_seconds counts seconds of earlier runs alone


def frames_per_second(workers: int, game: str, warm_up_s: float, seconds: float) -> float:
    """Train for so long, and return the frames a second that were learned from after the warm-up."""
    register_env(game, environment)
    with tempfile.TemporaryDirectory(prefix="appo_") as folder:
        words = f"--env {game} --algo APPO --experiment speed --train_dir {folder} --num_workers {workers} "
        words += f"--num_envs_per_worker {ENVIRONMENTS // workers} --worker_num_splits 2 {_SETTINGS}"
        parser, _ = parse_sf_args(argv=words.split())
        _, runner = make_runner(parse_full_cfg(parser, words.split()))
        watch = Watch(warm_up_s + seconds)
        runner.register_observer(watch)
        runner.init()
        runner.run()
    begun = watch.seen[0][0] + warm_up_s
    first, *_, last = [seen for seen in watch.seen if seen[0] >= begun]
    return FRAMES * (last[1] - first[1]) / (last[0] - first[0])


def main() -> None:
    """Read the command line, train and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--game", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--warm-up", type=float, required=True)
    args = parser.parse_args()
    log.setLevel(logging.ERROR)
    print(frames_per_second(args.workers, args.game, args.warm_up, args.seconds))


if __name__ == "__main__":
    main()
