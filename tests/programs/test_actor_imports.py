"""An actor does without numba, and without torch if its policy computes elsewhere: they take memory and seconds."""

from tests.processes import run

PLAYS = """
import sys
import threading
import numpy as np
from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.policy import ActorOutput, Policy
from rainbow_iqn_apex.environments.vector import VectorEnvironment
from rainbow_iqn_apex.memory.broker.actor_client import Saved
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.monitoring.report import ProcessUse
from rainbow_iqn_apex.programs.actor import evaluation, player, program
from rainbow_iqn_apex.programs.actor.rollout import ResumePoint, Rollout
from rainbow_iqn_apex.programs.evaluation.episode import begin_anew, play_episode
from tests.chain.environment import ChainEnvironment

class Remote(Policy):
    spec = ChunkSpec(1, 0, 5, 1, 5, 5, prioritised=False)
    def act(self, rows, state, step, places=None):
        return ActorOutput(np.zeros(len(rows.reward), np.int64), {}, 7), state
    def load(self, weights, version):
        pass

words = "--env chain --game chain --agent reinforce --history-length 1 --nb-env-per-actor 2 --inference server"
args, policy = options.parse([*words.split(), "--id-actor", "0"], "test", ""), Remote()
player.load(args)
rollout = Rollout(args, policy, VectorEnvironment([ChainEnvironment(seed) for seed in range(2)]))
rollout.load(*player.fetch_weights(None, policy, 3, or_newest=True))
assert any([rollout.play(step, step) for step in range(20)]) and rollout.view(3).actions == ()
rollout.restore(Saved(rollout.snapshot(ResumePoint(0, 20)), 0))
begin_anew(policy, {}, 3, 1)
assert play_episode(policy, ChainEnvironment(1), 0, threading.Event()).length
assert "process/gpu_memory" not in ProcessUse().measure()
sys.exit(" ".join({"torch", "numba"} & set(sys.modules)) or None)
"""


def test_a_policy_that_computes_elsewhere_plays_without_torch_and_numba() -> None:
    # Mutations: import `programs.agent` at the top of `programs/actor/player.py`; import `weights_packet` before
    # `fetch_weights` has looked for tensors.
    assert run("-c", PLAYS) == (0, "", "")


def test_a_policy_of_its_own_needs_no_numba() -> None:
    # Mutation: import numba's loops at the top of `memory/replay.py`.
    modules = ("launch_actor", "programs.actor.program", "agents.rainbow_iqn", "memory.replay")
    imports = "".join(f"import rainbow_iqn_apex.{module}\n" for module in modules)
    assert run("-c", f"{imports}import sys\nsys.exit('numba' in sys.modules)").code == 0
