"""Options of mixed replay do at their bounds what their help says, and are refused where they would do nothing."""

import dataclasses

import pytest
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.impala.options import ImpalaOptions, MixtureOptions
from rainbow_iqn_apex.agents.ops.losses import clipped_surrogate
from rainbow_iqn_apex.common.errors import UserError

ELITE = "queue:0.5,elite:0.5:90"


def parsed(*words: str) -> ImpalaOptions:
    own = options.parse(["--agent", "impala", *words], "test", "").own
    assert isinstance(own, ImpalaOptions)
    return own


def test_a_clipped_ratio_never_has_the_logarithm_of_0() -> None:
    # Mutation: a ratio that may be clipped to 0.
    (field,) = (each for each in dataclasses.fields(MixtureOptions) if each.name == "impact_clip")
    one = torch.ones(1, 1)
    assert clipped_surrogate(one, one, one > 0, field.metadata["bounds"].most).isfinite().all()


def test_cloning_is_refused_where_nothing_is_replayed() -> None:
    for mix in ("", "queue:1"):
        with pytest.raises(UserError, match="policy-cloning-cost: nothing is replayed"):
            parsed("--replay-mix", mix, "--policy-cloning-cost", "0.01")
    assert parsed("--replay-mix", ELITE, "--policy-cloning-cost", "0.01")


def test_a_projection_is_of_use_wherever_features_are_compared() -> None:
    for table, used in (("uniform", False), ("attentive", True), ("elite", True)):
        own = parsed("--replay-mix", f"queue:0.5,{table}:0.5:90", "--feature-projection", "5")
        assert ("feature_projection" not in own.unused) == used, table
