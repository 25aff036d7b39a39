"""What a fork server imports before it forks the tests' programs, see `tests.forked`: as the launchers do, in order."""

from rainbow_iqn_apex.programs.process import prepare_processor

prepare_processor()

import gymnasium.envs.classic_control.cartpole  # noqa: E402, F401
import torch._dynamo  # noqa: E402, F401 - with the first update

import rainbow_iqn_apex.environments.gymnasium.environment  # noqa: E402
import rainbow_iqn_apex.memory.fast.binary_tree  # noqa: E402
import rainbow_iqn_apex.monitoring.overview  # noqa: E402
import rainbow_iqn_apex.programs.actor.program  # noqa: E402
import rainbow_iqn_apex.programs.agent  # noqa: E402
import rainbow_iqn_apex.programs.evaluation.program  # noqa: E402
import rainbow_iqn_apex.programs.inference.program  # noqa: E402
import rainbow_iqn_apex.programs.learner.program  # noqa: E402
import rainbow_iqn_apex.saber.atari  # noqa: E402, F401
