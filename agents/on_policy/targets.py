"""Which advantages and values the on-policy family learns, by its options. Letters: T rows of a sequence, B batch."""

from torch import Tensor

from rainbow_iqn_apex.agents.on_policy.options import OnPolicyOptions
from rainbow_iqn_apex.agents.ops.gae import gae
from rainbow_iqn_apex.agents.ops.n_step import n_step_targets
from rainbow_iqn_apex.agents.ops.traces import Targets
from rainbow_iqn_apex.agents.ops.vtrace import Thresholds, vtrace


def estimate(
    options: OnPolicyOptions, log_ratio: Tensor, value: Tensor, reward: Tensor, discount: Tensor, step_type: Tensor,
    gamma: float,
) -> Targets:  # fmt: skip
    """Estimate a round's targets; arguments as of `agents.ops.vtrace.vtrace`.

    V-trace's advantages have the importance weight for the policy gradient alone: PPO's loss has a ratio of its own,
    and V-MPO and AWR weigh rows by how good they were.
    """
    arrived = (value, reward, discount, step_type, gamma)
    if options.advantage == "gae":
        return gae(*arrived, options.trace_lambda)
    if options.advantage == "n-step":
        return n_step_targets(*arrived, options.advantage_steps)
    rho = options.rho_threshold
    of_policy = rho if options.policy_loss == "vpg" else None
    thresholds = Thresholds(rho, options.c_threshold, of_policy, options.trace_lambda)
    return vtrace(log_ratio, *arrived, thresholds)
