"""The options of the on-policy family (Andrychowicz et al. 2020, arXiv 2006.05990), and what each member chooses."""

from dataclasses import dataclass
from typing import Any, ClassVar

from rainbow_iqn_apex.agents.sequence_options import RoundOptions, layer_size, stochastic_evaluation
from rainbow_iqn_apex.common.option import option
from rainbow_iqn_apex.options.agent_options import Preset

_PICTURES: dict[str, Any] = {
    "learn_start": 1,
    "memory_capacity": 2048,
    "nb_env_per_actor": 8,
    "max_gradient_norm": 0.5,
    "precision": "float32",  # a ratio of two policies needs more digits than bfloat16 has
}
_VECTORS: dict[str, Any] = {
    "history_length": 1,
    "nb_actor": 1,  # also with the preset
    "nb_env_per_actor": 1,
    "memory_capacity": 4096,
    "length_actor_buffer": 10_000,
    "reward_clip": 10.0,
    "unroll_length": 2048,
    "epochs": 10,
    "minibatches": 32,
    "clip_epsilon": 0.2,
    "entropy_cost": 0.0,
    "lr_on_policy": 3e-4,
    "normalise_observations": True,
    "normalise_rewards": True,
}


@dataclass(frozen=True)
class OnPolicyOptions(RoundOptions):
    """the on-policy family (--agent ppo, vmpo, awr, vpg or vtrace)"""

    RATE_FALLS: ClassVar[bool] = True
    DEFAULTS: ClassVar[dict[str, Any]] = _PICTURES
    VECTORS: ClassVar[dict[str, Any]] = _VECTORS
    CPU: ClassVar[Preset] = {
        "architecture": ("data-efficient", "576 features of a picture in the place of 3136"),
        "hidden_size": (256, "half the width, for pictures"),
        "nb_actor": (2, "both cores play while the learner waits"),
        "nb_env_per_actor": (4, "as many as the paper has, in both together"),
        "learner_threads": (0, "its actors wait while it learns, so all cores are its own"),
    }

    hidden_size: int = layer_size(512, "features of a picture, or of numbers before an LSTM")
    mlp_size: int = layer_size(64, "units of both hidden layers of policy and value, for observations that are numbers")
    lstm_size: int = layer_size(
        0, "units of an LSTM behind the features, which policy and value then share; 0: none", may_be_0=True
    )
    box_policy: str = option(
        "clipped-normal",
        "of actions that are numbers: a normal distribution, clipped or squashed",
        choices=("clipped-normal", "tanh-normal"),
        shared=True,
        policy=True,
    )
    minibatch_split: str = option(
        "rows", "what is shuffled and dealt out to them: single rows, or whole sequences", choices=("rows", "sequences")
    )
    fresh_advantages: bool = option(False, "compute advantages anew in each epoch")
    advantage: str = option("gae", "how advantages are estimated", choices=("gae", "n-step", "vtrace"))
    trace_lambda: float = option(0.95, "decay of the traces of GAE and V-trace", least=0, most=1)
    advantage_steps: int = option(5, "steps of the n-step advantage", above=0, most=10_000)
    rho_threshold: float = option(
        1.0, "V-trace: most that an importance weight counts in targets and in the policy's gradient", above=0
    )
    c_threshold: float = option(1.0, "V-trace: most that an importance weight counts in a trace", above=0)
    normalise_advantages: bool = option(True, "bring an update's advantages to mean 0 and deviation 1")
    kept_advantages: str = option(
        "all", "rows whose advantages the policy learns from", choices=("all", "positive", "better-half")
    )
    policy_loss: str = option(
        "ppo",
        "ppo (clipped ratio), vpg (-log pi A; with V-trace's advantages its loss), awr (weights exp(A / beta)), or "
        "vmpo (softmax weights of the better half)",
        choices=("ppo", "vpg", "awr", "vmpo"),
    )
    clip_epsilon: float = option(0.1, "PPO: ratios beyond 1 +- this earn nothing", above=0, most=0.99)
    clip_form: str = option(
        "symmetric",
        "PPO's lower bound: 1 - epsilon, or logarithmic: 1 / (1 + epsilon)",
        choices=("symmetric", "logarithmic"),
    )
    awr_temperature: float = option(1.0, "AWR's beta", above=0)
    awr_limit: float = option(20.0, "AWR: most that a row weighs", above=0)
    vmpo_epsilon: float = option(0.1, "V-MPO: bound of the temperature's divergence [nats]", above=0)
    value_loss: str = option("squared", "of the values' errors", choices=("squared", "huber"))
    baseline_cost: float = option(0.5, "weight of the value's loss", least=0)
    value_clip: float = option(
        0.0, "values that move further than this from those of the round's beginning earn nothing; 0: off", least=0
    )
    popart: bool = option(False, "learn values of a running mean 0 and deviation 1 (PopArt)", shared=True, policy=True)
    entropy_cost: float = option(0.01, "weight of the policy's entropy, which is raised", least=0)
    target_entropy: float = option(
        0.0,
        "the entropy's weight is learned so that the entropy comes to this [nats]; it begins at --entropy-cost, or 1 "
        "if that is 0; 0: off",
    )
    kl_cost: float = option(0.0, "weight of KL(mu || pi), mu the policy that acted", least=0)
    kl_limit: float = option(0.0, "its weight is learned so that it comes to this at most [nats]; 0: off", least=0)
    reverse_kl_cost: float = option(0.0, "weight of KL(pi || mu)", least=0)
    reverse_kl_limit: float = option(0.0, "its weight is learned so that it comes to this [nats]; 0: off", least=0)
    reference_kl_cost: float = option(0.0, "weight of KL(reference || pi), the reference an older policy", least=0)
    reference_kl_limit: float = option(0.0, "its weight is learned so that it comes to this [nats]; 0: off", least=0)
    reference_period: int = option(100, "rounds after which the reference becomes the present policy", above=0)
    normalise_observations: bool = option(
        False,
        "bring observations that are numbers to mean 0 and deviation 1, as far as the run has seen",
        shared=True,
        policy=True,
    )
    normalise_rewards: bool = option(
        False,
        "divide rewards by the deviation of discounted returns, as far as the run has seen; then they are clipped",
    )
    lr_on_policy: float = option(2.5e-4, "Adam's learning rate, which falls to 0 at T-max", above=0)
    adam_eps_on_policy: float = option(1e-5, "Adam's epsilon", above=0)
    stochastic: bool = stochastic_evaluation()

    def errors(self) -> list[str]:
        """Return what is wrong with the options together."""
        if self.lstm_size and self.minibatch_split == "rows":
            return ["--minibatch-split: an LSTM learns from whole sequences, give sequences"]
        return []

    def size_errors(self, environments: int, batch_size: int) -> list[str]:
        """Return whether a round has too little for its updates."""
        if self.minibatch_split == "rows":
            return super().size_errors(environments, batch_size)
        return self._too_few(environments, "sequences, one of each environment")

    @property
    def uses_reference(self) -> bool:
        """Whether a reference policy takes part."""
        return bool(self.reference_kl_cost or self.reference_kl_limit)


@dataclass(frozen=True)
class PpoOptions(OnPolicyOptions):
    """PPO (--agent ppo; Schulman et al. 2017, arXiv 1707.06347)"""


@dataclass(frozen=True)
class VmpoOptions(OnPolicyOptions):
    """V-MPO (--agent vmpo; Song et al. 2020, arXiv 1909.12238)"""

    _OWN: ClassVar[dict[str, Any]] = {
        "policy_loss": "vmpo",
        "kept_advantages": "better-half",
        "normalise_advantages": False,
        "kl_cost": 1.0,
        "kl_limit": 0.01,
        "entropy_cost": 0.0,
    }
    DEFAULTS: ClassVar[dict[str, Any]] = _PICTURES | _OWN
    VECTORS: ClassVar[dict[str, Any]] = _VECTORS | _OWN


@dataclass(frozen=True)
class AwrOptions(OnPolicyOptions):
    """AWR on fresh rows (--agent awr; Peng et al. 2019, arXiv 1910.00177)"""

    _OWN: ClassVar[dict[str, Any]] = {"policy_loss": "awr"}
    DEFAULTS: ClassVar[dict[str, Any]] = _PICTURES | _OWN
    VECTORS: ClassVar[dict[str, Any]] = _VECTORS | _OWN


@dataclass(frozen=True)
class VpgOptions(OnPolicyOptions):
    """vanilla policy gradient (--agent vpg; Williams 1992, 10.1007/BF00992696; GAE: 1506.02438)"""

    _OWN: ClassVar[dict[str, Any]] = {"policy_loss": "vpg", "epochs": 1}
    DEFAULTS: ClassVar[dict[str, Any]] = _PICTURES | _OWN
    VECTORS: ClassVar[dict[str, Any]] = _VECTORS | _OWN | {"minibatches": 4}


@dataclass(frozen=True)
class VtraceOptions(OnPolicyOptions):
    """V-trace's loss on whole rounds (--agent vtrace; Espeholt et al. 2018, arXiv 1802.01561)"""

    _OWN: ClassVar[dict[str, Any]] = {
        "policy_loss": "vpg",
        "advantage": "vtrace",
        "trace_lambda": 1.0,
        "fresh_advantages": True,
        "normalise_advantages": False,  # with their mean, rows would count again that their ratio has left out
    }
    DEFAULTS: ClassVar[dict[str, Any]] = _PICTURES | _OWN
    VECTORS: ClassVar[dict[str, Any]] = _VECTORS | _OWN
