"""An actor whose policy computes elsewhere does without torch, which takes memory and seconds of its start."""

from tests.processes import run

LOADED = "\nimport sys\nsys.exit(' '.join({'torch', 'numba'} & set(sys.modules)) or None)"
IMPORTS = "from rainbow_iqn_apex.programs.actor import evaluation, policies, program"
PLAYS = """
import threading
import numpy as np
from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.policy import ActorOutput, Policy
from rainbow_iqn_apex.environments.vector import VectorEnvironment
from rainbow_iqn_apex.memory.broker.actor_client import Saved
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.monitoring.process import ProcessUse
from rainbow_iqn_apex.programs.actor.policies import fetch_weights
from rainbow_iqn_apex.programs.actor.rollout import ResumePoint, Rollout
from rainbow_iqn_apex.programs.evaluation.episode import begin_anew, play_episode
from tests.chain.environment import ChainEnvironment

class Remote(Policy):
    spec = ChunkSpec(1, 0, 5, 1, 5, 5, prioritised=False)
    def act(self, rows, state, step, places=None):
        return ActorOutput(np.zeros(len(rows.reward), np.int64), {}, 7), state
    def load(self, weights, version):
        pass

words = "--env chain --game chain --agent reinforce --history-length 1 --nb-env-per-actor 2 --id-actor 0"
args, policy = options.parse(words.split(), "test", ""), Remote()
rollout = Rollout(args, policy, VectorEnvironment([ChainEnvironment(seed) for seed in range(2)]))
rollout.load(*fetch_weights(None, policy, 3, or_newest=True))
assert any([rollout.play(step, step) for step in range(20)]) and rollout.view(3).actions == ()
rollout.restore(Saved(rollout.snapshot(ResumePoint(0, 20)), 0))
begin_anew(policy, {}, 3, 1)
assert play_episode(policy, ChainEnvironment(1), 0, threading.Event()).length
assert "process/gpu_memory" not in ProcessUse().measure()
"""


def test_an_actor_s_modules_import_neither_torch_nor_numba() -> None:
    # Mutation: import `programs.agent` at the top of `programs/actor/policies.py`.
    assert run("-c", IMPORTS + LOADED) == (0, "", "")
    for place, loaded in (("server", ""), ("local", "torch\n")):
        given = f"args.parse(['--inference', {place!r}], '', '')"
        code, _, errors = run("-c", f"{IMPORTS}\nfrom rainbow_iqn_apex import args\npolicies.load({given}){LOADED}")
        assert (code, errors) == (bool(loaded), loaded), "a policy of its own needs it"


def test_a_policy_that_computes_elsewhere_plays_without_torch() -> None:
    # Mutation: import `weights_packet` before `fetch_weights` has looked for tensors.
    assert run("-c", PLAYS + LOADED) == (0, "", "")
