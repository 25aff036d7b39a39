"""The options of IMPALA, and of actor-critics that also learn from replayed sequences."""

from dataclasses import dataclass
from typing import Any, ClassVar

from rainbow_iqn_apex.agents.sequence_options import SequenceOptions, layer_size, stochastic_evaluation
from rainbow_iqn_apex.common.option import option
from rainbow_iqn_apex.memory.mixture.spec import (
    ATTENTIVE,
    DISTANCES,
    ELITE,
    QUEUE,
    Sampling,
    TableSpec,
    counts,
    parse_mix,
)
from rainbow_iqn_apex.options.agent_options import Preset

_MIXING = frozenset({"queue_size", "replay_device"})  # batches prepared ahead, and tables that may be on the GPU
_ELITE = frozenset({"elite_strategy", "elite_insertion"})
_IMPACT = frozenset({"impact_clip", "impact_rho"})
_MEASURING = frozenset(
    {"feature_distance", "feature_norm", "feature_projection", "candidates", "candidates_annealed_over"}
)


@dataclass(frozen=True)
class MixtureOptions(SequenceOptions):
    """mixed replay"""

    replay_mix: str = option(
        "",
        "tables that a batch is put together from, as table:share:capacity [sequences] with commas between: "
        "queue:0.5,uniform:0.5:10000, say; of queue (without capacity), uniform, prioritised, attentive, elite "
        "[default: the queue alone]",
        shared=True,
        listed=True,
    )
    policy_cloning_cost: float = option(
        0.0, "weight of KL(mu, pi) at replayed rows, mu the policy that acted (CLEAR: 0.01)", least=0
    )
    value_cloning_cost: float = option(
        0.0,
        "weight of the squared change of values since replayed rows were played (CLEAR: 0.005)",
        least=0,
        shared=True,
    )
    trust_threshold: float = option(
        0.0, "rows with KL(pi, mu) of so much or more are left out, and cut the traces (LASER: 0.3); 0: off", least=0
    )
    impact_target_period: int = option(
        0, "updates between copies to IMPACT's target network, which corrects in the place of pi; 0: none", least=0
    )
    impact_clip: float = option(0.4, "IMPACT: the policy's ratio counts up to 1 +- this", above=0, most=0.99)
    impact_rho: float = option(2.0, "IMPACT: most that mu / target counts", above=0)
    elite_strategy: int = option(
        1,
        "elite table: 1 nearest candidates, 2 nearest of equal parts; 3 and 4 the same, the least often sampled first",
        least=1,
        most=4,
    )
    elite_insertion: bool = option(
        False, "a full elite table overwrites the farthest of 20 sequences, not its oldest", flag=True, shared=True
    )
    feature_distance: str = option(
        "p-norm", "between feature vectors: p-norm, cosine or kl (of their softmax)", choices=DISTANCES
    )
    feature_norm: float = option(2.0, "p of the p-norm", least=1, most=1000)
    feature_projection: int = option(
        0,
        "numbers that a fixed random projection makes of a feature vector; 0: all are kept",
        least=0,
        most=10_000,
        shared=True,
    )
    candidates: float = option(
        6.0, "attentive, elite: sequences considered for each that is sampled, at first", least=1, most=1000
    )
    candidates_annealed_over: int = option(
        100_000, "updates over which the candidates fall to 1, which samples uniformly", above=0
    )

    @property
    def mix(self) -> tuple[TableSpec, ...]:
        """Return the tables of a batch; none without a mixture. Raises ValueError for a wrong text."""
        return parse_mix(self.replay_mix) if self.replay_mix else ()

    @property
    def sampling(self) -> Sampling:
        """Return how attentive and elite tables choose."""
        return Sampling(
            self.elite_strategy,
            self.feature_distance,
            self.feature_norm,
            self.candidates,
            self.candidates_annealed_over,
            self.elite_insertion,
        )

    @property
    def records_features(self) -> bool:
        """Whether actors send feature vectors: elite tables compare them with those of the present network."""
        return any(table.table == ELITE for table in self.mix)

    @property
    def unused(self) -> frozenset[str]:
        """Return the options that have no use with these tables, or without IMPACT's target network."""
        tables = {table.table for table in self.mix}
        unused = self.UNUSED if tables else self.UNUSED | _MIXING
        unused = unused if tables & {ATTENTIVE, ELITE} else unused | _MEASURING
        unused = unused if self.impact_target_period else unused | _IMPACT
        return unused if ELITE in tables else unused | _ELITE

    def errors(self) -> list[str]:
        """Return what is wrong with the options together, one line each."""
        try:
            mix = self.mix
        except ValueError as error:
            return [f"--replay-mix: {error}"]
        costs = {"--policy-cloning-cost": self.policy_cloning_cost, "--value-cloning-cost": self.value_cloning_cost}
        if any(part.table != QUEUE for part in mix):
            return []
        reason = "nothing is replayed without --replay-mix and a table beside the queue"
        return [f"{name}: {reason}" for name, cost in costs.items() if cost]

    def size_errors(self, environments: int, batch_size: int) -> list[str]:  # noqa: ARG002 - no round is divided
        """Return what is wrong with the mixture of a batch, one line each."""
        if self.errors() or not self.mix:
            return []
        try:
            counts(self.mix, batch_size)
        except ValueError as error:
            return [f"--replay-mix: {error}"]
        return []


@dataclass(frozen=True)
class ImpalaOptions(MixtureOptions):
    """IMPALA (--agent impala)"""

    DEFAULTS: ClassVar[dict[str, Any]] = {
        "learn_start": 1,
        "memory_capacity": 1280,  # two updates' rows wait, without lockstep
        "max_gradient_norm": 40 / 640,  # of a mean over 32 x 20 rows; published for their sum
        "weight_synchro_frequency": 640,
    }

    VECTORS: ClassVar[dict[str, Any]] = {"nb_actor": 1, "entropy_cost": 0.01}  # as without the preset
    CPU: ClassVar[Preset] = {
        "nb_actor": (2, "one filled its core and left half of the learner's idle; two play in 32 environments"),
        "architecture": ("data-efficient", "576 features in the place of 3136"),
        "hidden_size": (256, "half the width"),
        "memory_capacity": (1280, "two updates' rows wait, without lockstep"),
        "weight_synchro_frequency": (640, "agent steps of an update"),
        "nb_env_per_actor": (16, "one forward pass for all costs little more than one for one"),
        "batch_size": (8, "four updates of 160 rows a round, in the place of one of 640"),
        "lr_IMPALA": (2e-3, "a short run; kung_fu_master rose faster with 1.5e-3 than with 7e-4, krull with 3e-3"),
        "entropy_cost": (0.003, "with 0.01 qbert rose less, with 0.001 crazy_climber; TorchBeast takes 6e-4"),
        "rms_eps_IMPALA": (1e-5, "A2C's: gradients of means are divided by their own size"),
        "max_gradient_norm": (0.5, "A2C's"),
        "log_interval": (25_000, "agent steps; some ten seconds"),
    }
    UNUSED: ClassVar[frozenset[str]] = frozenset(
        {"learn_start", "replay_frequency", "priority_weight", "final_priority_weight"}
    )
    RATE_FALLS: ClassVar[bool] = True
    WAITS_FOR_ROWS: ClassVar[bool] = True  # in its queue

    hidden_size: int = layer_size(512, "features of an observation (the paper's deep network: 256)")
    lstm_size: int = layer_size(0, "units of an LSTM behind them (the paper: 256); 0: none", may_be_0=True)
    unroll_length: int = option(20, "rows of a sequence (DMLab, with LSTM: 100)", above=0, most=10_000, shared=True)
    loss_reduction: str = option(
        "mean",
        "of the losses over an update's rows: each term's sum divided by the number of all rows (mean), or the paper's "
        "sum, to which --rms-eps-IMPALA 0.01 and --max-gradient-norm 40 belong",
        choices=("mean", "sum"),
    )
    baseline_cost: float = option(0.5, "weight of half the squared error of the values", least=0)
    entropy_cost: float = option(0.01, "weight of the policy's entropy, which is raised", least=0)
    target_entropy: float = option(
        0.0,
        "the entropy's weight is learned so that the entropy comes to this [nats]; it begins at --entropy-cost, or 1 "
        "if that is 0; 0: off",
        least=0,
    )
    kl_cost: float = option(0.0, "weight of the divergence of the policy from the one that acted", least=0)
    trace_lambda: float = option(1.0, "decay of V-trace's traces", least=0, most=1)
    rho_threshold: float = option(1.0, "most that an importance weight counts in a value's target", above=0)
    c_threshold: float = option(1.0, "most that an importance weight counts in a trace", above=0)
    advantage_threshold: float = option(1.0, "most that an importance weight counts in the policy's gradient", above=0)
    reward_transform: str = option(
        "clip",
        "of rewards for learning: clip (to --reward-clip), or soft-asymmetric: 5 tanh(r / 5), 0.3 of it below 0",
        choices=("clip", "soft-asymmetric"),
        shared=True,
        policy=True,
    )
    lr_IMPALA: float = option(6e-4, "RMSProp's learning rate, which falls to 0 at T-max", above=0)
    rms_eps_IMPALA: float = option(0.01 / 640, "RMSProp's epsilon; published as 0.01 for a sum over 640 rows", above=0)
    rms_decay_IMPALA: float = option(0.99, "RMSProp's decay", least=0, most=0.9999)
    stochastic: bool = stochastic_evaluation()

    @property
    def unused(self) -> frozenset[str]:
        """Return the options that have no use with these tables, nor a clip beside another transform of rewards."""
        return super().unused | (frozenset() if self.reward_transform == "clip" else {"reward_clip"})
