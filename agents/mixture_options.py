"""The options of actor-critics that also learn from replayed sequences."""

from dataclasses import dataclass

from rainbow_iqn_apex.agents.sequence_options import SequenceOptions
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
        0.0, "weight of the squared change of values since replayed rows were played (CLEAR: 0.005)", least=0,
        shared=True,
    )  # fmt: skip
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
        0, "numbers that a fixed random projection makes of a feature vector; 0: all are kept", least=0, most=10_000,
        shared=True,
    )  # fmt: skip
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
            self.elite_strategy, self.feature_distance, self.feature_norm, self.candidates,
            self.candidates_annealed_over, self.elite_insertion,
        )  # fmt: skip

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
