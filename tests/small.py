"""Small settings for the tests, each with what it is for; of an option that is given twice the later value counts."""

import json
from pathlib import Path

import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.agent import make_agent

# A network and batches that must run and need not learn; pairwise different sizes, as no broadcast can hide then.
TINY = (
    "--hidden-size 8 --num-tau-samples 4 --num-tau-prime-samples 5 --num-quantile-samples 3 --batch-size 6 "
    "--disable-cuda"
).split()
# An environment of which a step takes microseconds, and a random episode some twenty of them.
CARTPOLE = "--env gymnasium:CartPole-v1 --history-length 1".split()
# A whole run that goes on for ever, and has an episode every twenty steps.
ENDLESS = [
    *CARTPOLE,
    *TINY,
    *"--T-max 100000000 --learn-start 400 --memory-capacity 2000 --log-interval 200".split(),
    *"--weight-synchro-frequency 50 --length-actor-buffer 100 --force".split(),
]
# A whole run on the chain, which learns its true return distributions within a minute.
# No discount and no clipping: returns are whole numbers. A small kappa, as Huber's rounding moves quantiles towards
# their neighbours by up to kappa. Beta 1: without the full correction, prioritised sampling prefers rare rewards.
CHAIN = (
    "--env chain --game chain --discount 1 --reward-clip 0 --kappa 0.05 --priority-weight 1 --history-length 2 "
    "--multi-step 2 --hidden-size 64 --num-tau-samples 16 --num-tau-prime-samples 15 --num-quantile-samples 17 "
    "--atoms 9 --V-min -3 --V-max 5 --lr-IQN 1e-3 --lr-Rainbow 1e-3 --batch-size 64 --learn-start 3000 "
    "--memory-capacity 15000 --replay-frequency 2 --target-update 400 --T-max 14000 --log-interval 2000 "
    "--weight-synchro-frequency 100 --disable-cuda"
).split()
# The same run, which trains after a few rounds; in one thread, as its results are compared byte by byte.
SHORT_CHAIN = [*CHAIN, *"--learn-start 600 --log-interval 50 --learner-threads 1".split()]
# Rounds of 20 rows in each environment.
ON_POLICY = "--unroll-length 20 --minibatches 3 --epochs 2 --mlp-size 16 --nb-env-per-actor 1"
# Batches that replay: with what CLEAR, LASER and IMPACT add, prepared ahead; and chosen by features that were recorded.
_MIX = (
    "--replay-mix queue:0.5,uniform:0.25:90,prioritised:0.25:70 --policy-cloning-cost 0.01 --value-cloning-cost 0.005 "
    "--trust-threshold 0.3 --impact-target-period 7 --queue-size 3"
)
_ELITE = (
    "--replay-mix queue:0.5,elite:0.25:80,attentive:0.25:60 --elite-strategy 3 --elite-insertion "
    "--candidates-annealed-over 400 --feature-projection 5 --queue-size 2"
)
# The same for agents that learn from sequences: of these options the last ones count.
FAMILIES = {
    "btr": [
        *SHORT_CHAIN,
        *"--agent btr --layer-norm True --nb-env-per-actor 1 --num-tau-samples 4 --num-quantile-samples 3".split(),
        *"--epsilon-end 0.1 --epsilon-ladder 0.5 --epsilon-decay 900 --epsilon-until 9000 --hidden-size 16".split(),
    ],
    "impala": [*SHORT_CHAIN, *"--agent impala --unroll-length 5 --batch-size 4 --hidden-size 16".split()],
    "impala-lstm": [*SHORT_CHAIN, *"--agent impala --unroll-length 5 --batch-size 3 --lstm-size 7".split()],
    "impala-mix": [*SHORT_CHAIN, *f"--agent impala --unroll-length 5 --batch-size 8 --hidden-size 16 {_MIX}".split()],
    "impala-elite": [*SHORT_CHAIN, *f"--agent impala --unroll-length 5 --batch-size 4 --lstm-size 7 {_ELITE}".split()],
    "reinforce": [*SHORT_CHAIN, *"--agent reinforce --unroll-length 5 --history-length 1".split()],
    "sac": [*SHORT_CHAIN, *"--agent sac --hidden-size 16 --batch-size 12 --lr-SAC 1e-2 --multi-step 2".split()],
    "sac-lstm": [
        *SHORT_CHAIN,
        *"--agent sac --burn-in 3 --sequence-length 8 --sequence-period 4 --batch-size 6 --lstm-size 7".split(),
        *"--hidden-size 16 --replay-frequency 12".split(),
    ],
    "r2d2": [
        *SHORT_CHAIN,
        *"--agent r2d2 --burn-in 3 --sequence-length 8 --sequence-period 4 --batch-size 6 --lstm-size 7".split(),
        *"--samples-per-insert 2 --target-period 50 --exploration-base 0.9".split(),
    ],
    "pqn": [
        *SHORT_CHAIN,
        *"--agent pqn --unroll-length 5 --minibatches 2 --hidden-size 16 --nb-env-per-actor 2".split(),
    ],
    "ppo": [*SHORT_CHAIN, *f"--agent ppo {ON_POLICY} --normalise-observations True".split()],
    "vmpo": [*SHORT_CHAIN, *f"--agent vmpo {ON_POLICY} --popart True --fresh-advantages True".split()],
    "vmpo-lstm": [
        *SHORT_CHAIN,
        *f"--agent vmpo {ON_POLICY} --lstm-size 7 --minibatch-split sequences --minibatches 1".split(),
    ],
}
# The same where actions are numbers; an episode is one of 200 steps that is truncated.
BOXES = {"ppo-box": f"--env gymnasium:Pendulum-v1 --learner-threads 1 --disable-cuda --agent ppo {ON_POLICY}".split()}
# The same with goals that are drawn when a chunk is complete.
GOALS = {
    "sac-hindsight": "--env gymnasium:tests.goals:BitFlip-v0 --learner-threads 1 --disable-cuda --agent sac "
    "--hindsight 0.8 --hidden-size 16 --batch-size 12 --learn-start 900 --replay-frequency 4".split()
}
# Each process goes on at its own speed.
FREE = ["--synchronize-actors-with-learner", "False"]


def save_untrained(path: Path, words: list[str], environment: EnvironmentSpec) -> Path:
    """Save an agent that has learned nothing: the noise and the seeds decide what it does."""
    args = options.parse([*words, "--disable-cuda"], "test", "")
    agent = make_agent(args, environment, torch.device("cpu"), learns=True, seed=3)
    snapshot.save(path, agent, {"T_actors": 0, "T_learner": 0, "settings": json.dumps(args.shared)})
    return path
