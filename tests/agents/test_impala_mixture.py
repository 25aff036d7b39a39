"""What replayed rows add to IMPALA's loss, against slow transcriptions, and what its actors record for them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rainbow_iqn_apex.agents.impala import losses
from rainbow_iqn_apex.agents.impala.losses import Computed
from rainbow_iqn_apex.agents.ops import LAST
from rainbow_iqn_apex.memory.batch import Batch
from tests.agents.sequences import ACTIONS, agent_of, play
from tests.agents.test_impala import arrays
from tests.agents.test_sequences import in_order
from tests.ground_truth.gae import Rows
from tests.ground_truth.impala import loss_terms
from tests.ground_truth.vtrace import vtrace

CLEAR = "--policy-cloning-cost 0.2 --value-cloning-cost 0.3"
MIX = "--replay-mix queue:0.5,uniform:0.5:30"
GAMMA, BASELINE, ENTROPY = 0.9, 0.7, 0.03
COSTS = f"--discount {GAMMA} --baseline-cost {BASELINE} --entropy-cost {ENTROPY}"
IMPACT = (0.2, 1.5)  # clip, rho
WEIGHTS = {"policy": 1.0, "value": BASELINE, "entropy": -ENTROPY, "cloning": 0.2, "values": 0.3}
SHARES = (0.25, 0.5, 0.75)  # of a batch's sequences that are replayed


def mixed_batch(agent: Any, share: float = 0.25) -> Batch:
    """A batch whose last sequences count as replayed."""
    batch = in_order(play(agent, 200).chunks)
    B = batch.step_type.shape[1]
    return batch._replace(replayed=torch.arange(B) >= round(B * (1 - share)))


def far_off(agent: Any) -> None:
    """Let the network, and its target, become other ones than that which acted, and than each other."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for network in filter(None, (agent.network, agent._target)):
            for weight in network.parameters():
                weight += 0.4 * torch.randn(weight.shape, generator=generator)


@pytest.mark.parametrize("impact", [False, True])
@pytest.mark.parametrize("trusts", [False, True])
@pytest.mark.parametrize("share", SHARES)
def test_the_loss_is_the_sum_of_its_terms(share: float, trusts: bool, impact: bool) -> None:
    # Mutations: in the tests below.
    check_loss(share, trusts=trusts, impact=impact)


def check_loss(share: float = 0.25, *, trusts: bool, impact: bool) -> None:
    """Compare the loss with the slow one; if it `trusts`, half of the rows are within the trust region."""
    more = f"--impact-target-period 3 --impact-clip {IMPACT[0]} --impact-rho {IMPACT[1]}" if impact else ""
    agent = agent_of("impala", *f"{MIX} {CLEAR} {COSTS}".split(), *more.split())
    batch = mixed_batch(agent, share)
    far_off(agent)
    at = arrays(agent, batch)
    threshold = float(np.median((at["pi"] * np.log(at["pi"] / at["mu"])).sum(2))) if trusts else 0.0
    terms = loss_terms(at, GAMMA, threshold=threshold, impact=IMPACT if impact else None)
    wanted = sum(weight * terms[name] for name, weight in WEIGHTS.items())
    with torch.no_grad():
        now = agent.network(*agent.learning_inputs(batch))
    log_target = torch.tensor(at["target"]).float().log() if impact else None
    computed = Computed(now.log_policy[:-1], now.value, log_target)
    found = {}
    for reduction in ("mean", "sum"):
        options = replace(agent._options, trust_threshold=threshold, loss_reduction=reduction)
        found[reduction] = float(losses.Losses(options, GAMMA)(agent._played(batch), computed, ENTROPY).total)
    assert found["mean"] == pytest.approx(wanted, rel=1e-4, abs=1e-5)
    rows = int((at["step_type"][:-1] != LAST).sum())
    assert found["sum"] == pytest.approx(rows * wanted, rel=1e-4, abs=1e-3), "terms weigh as in the paper's sums"


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("term", ["cloning", "trusted"])
def test_the_check_of_the_loss_notices_a_mean_over_a_term_s_own_rows(
    term: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    reduce = losses._reduce

    def mutant(x: torch.Tensor, kept: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        is_cloned = not kept[:, : round(kept.shape[1] * (1 - share))].any()  # no row of a fresh sequence is kept
        return reduce(x, kept, kept.sum().clamp(min=1) if is_cloned == (term == "cloning") else rows)

    monkeypatch.setattr(losses, "_reduce", mutant)
    with pytest.raises(AssertionError):
        check_loss(share, trusts=term == "trusted", impact=False)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("policy_cloning", lambda real: lambda pi, mu, kept: real(mu, pi, kept)),
        ("value_cloning", lambda real: lambda value, recorded, kept: real(value, recorded, torch.ones_like(kept))),
        ("trusted_rows", lambda real: lambda pi, mu, threshold: real(mu, pi, threshold)),
        ("impact_log_ratio", lambda real: lambda pi, _, mu, rho: real(pi, mu, mu, rho)),
        ("impact_log_ratio", lambda real: lambda pi, target, mu, rho: real(pi, mu, target, rho)),
        ("impact_log_ratio", lambda real: lambda pi, target, mu, _: real(pi, target, mu, 1e9)),
    ],
)
def test_the_check_of_the_loss_notices(name: str, change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, name, change(getattr(losses, name)))
    if name == "value_cloning":  # and the sum takes what stands there
        reduce = losses._reduce
        monkeypatch.setattr(losses, "_reduce", lambda x, kept, rows: reduce(x, torch.ones_like(kept), rows))
    with pytest.raises(AssertionError):
        check_loss(trusts=True, impact=True)


def test_only_what_the_loss_and_the_tables_need_is_recorded() -> None:
    def recorded(*words: str) -> dict[str, tuple[int, ...]]:
        agent = agent_of("impala", *words, learns=False)
        chunk = play(agent, 40).chunks[0]
        assert {f"extras.{name}" for name, _ in agent.spec.extras} == {n for n in chunk.rows if n.startswith("extras")}
        return {name: field.shape for name, field in agent.spec.extras}

    alone = {"log_policy": (ACTIONS,)}
    assert recorded() == alone == recorded(*MIX.split())
    assert recorded(*f"{MIX} {CLEAR}".split()) == alone | {"value": ()}
    assert recorded("--replay-mix", "queue:0.5,attentive:0.5:30") == alone, "it compares present features"
    elite = ("--replay-mix", "queue:0.5,elite:0.5:30")
    assert recorded(*elite) == alone | {"features": (9,)}
    assert recorded(*elite, "--lstm-size", "6") == alone | {"features": (6,)}
    assert recorded(*elite, "--feature-projection", "4") == alone | {"features": (4,)}


@pytest.mark.parametrize("more", ["", "--lstm-size 6", "--lstm-size 6 --feature-projection 4"])
def test_measured_features_are_those_that_were_recorded_until_the_network_changes(more: str) -> None:
    # Mutations: a measurement that begins a row earlier, or leaves out the projection.
    agent = agent_of("impala", "--replay-mix", "queue:0.5,elite:0.5:30", *more.split())
    batch = in_order(play(agent, 200).chunks[2:])  # before these there is padding, at which nobody acted
    recorded = batch.rows["extras.features"][agent.spec.stack - 1 :]
    torch.testing.assert_close(agent.measure(batch.rows, batch.state), recorded, rtol=1e-5, atol=1e-6)
    with agent.held():
        agent.update(batch, 0.0)
        torch.testing.assert_close(agent.measure(batch.rows, batch.state), recorded, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(agent.measure(batch.rows, batch.state), recorded, atol=1e-4)


def test_priorities_are_those_of_the_errors_of_the_values() -> None:
    agent = agent_of("impala", "--replay-mix", "queue:0.5,prioritised:0.5:30", *COSTS.split())
    batch = in_order(play(agent, 200).chunks)
    at = arrays(agent, batch)
    found = agent.update(batch, 0.0).priorities
    for b in range(batch.step_type.shape[1]):
        taken = at["action"][:, b].astype(int)
        ratio = (at["pi"] / at["mu"])[np.arange(len(taken)), b, taken]
        targets, _ = vtrace(Rows(*(at[name][:, b] for name in Rows._fields)), ratio, GAMMA, 1.0, 1.0, 1.0, 1.0)
        errors = np.abs(targets - at["value"][:-1, b])[at["step_type"][:-1, b] != LAST]
        wanted = (0.9 * errors.max() + 0.1 * errors.mean()) ** 0.9
        assert float(found[b]) == pytest.approx(wanted, rel=1e-3)
    assert agent_of("impala", *MIX.split()).update(batch, 0.0).priorities is None
