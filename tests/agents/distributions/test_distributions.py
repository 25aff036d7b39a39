"""Distributions of policies against those of torch.distributions, and by what they draw."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch import distributions as reference

from rainbow_iqn_apex.agents.distributions import (
    Categorical,
    Categoricals,
    ClippedNormal,
    Distribution,
    Normal,
    PolicySpec,
    TanhNormal,
)
from rainbow_iqn_apex.memory.environment_spec import Box, Discrete, MultiDiscrete

T, B, COUNT, COUNTS, SIZE = 3, 5, 4, (2, 6, 3), 7
FALSE_ALARM = 1e-6  # chance that a test of frequencies fails under another seed though all is right

SPECS = {
    "discrete": PolicySpec(Discrete(COUNT)),
    "multi-discrete": PolicySpec(MultiDiscrete(COUNTS)),
    "tanh-normal": PolicySpec(Box(SIZE), "tanh-normal"),
    "clipped-normal": PolicySpec(Box(SIZE), "clipped-normal"),
}
of_every_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)


def parameters_of(spec: PolicySpec, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(T, B, spec.nb_parameters))).to(dtype)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def twin(spec: PolicySpec, parameters: Tensor) -> Any:
    """Return torch's distribution of raw samples; a list of such for several choices."""
    match spec.action:
        case Discrete():
            return reference.Categorical(logits=parameters)
        case MultiDiscrete(counts):
            return [reference.Categorical(logits=part) for part in torch.split(parameters, list(counts), -1)]
        case Box(size):
            return reference.Independent(reference.Normal(parameters[..., :size], parameters[..., size:].exp()), 1)


# --- every distribution ---


@of_every_spec
@pytest.mark.parametrize("leading", [(), (B,), (T, B), (2, T, B)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shapes_dtypes_and_actions_that_the_environment_takes(
    spec: PolicySpec, leading: tuple[int, ...], dtype: torch.dtype
) -> None:
    pi = spec.distribution(torch.zeros(*leading, spec.nb_parameters, dtype=dtype))
    mu = spec.distribution(torch.ones(*leading, spec.nb_parameters, dtype=dtype))
    for raw in (pi.sample(generator()), pi.mode()):
        assert raw.shape == (*leading, *spec.action.field.shape)
        action = pi.to_action(raw).numpy()
        assert action.shape == raw.shape and action.dtype == spec.action.field.dtype
        assert not spec.action.error(action)
        assert pi.log_prob(raw).shape == leading and pi.log_prob(raw).dtype == dtype
    assert pi.entropy(generator()).shape == pi.kl(mu).shape == leading


@of_every_spec
def test_a_log_probability_does_not_ask_which_integers_hold_an_action(spec: PolicySpec) -> None:
    pi = spec.distribution(parameters_of(spec, 1, torch.float32))
    raw = pi.sample(generator())
    stored = raw.to(getattr(torch, spec.action.field.dtype))
    assert torch.equal(pi.log_prob(raw), pi.log_prob(stored))


@of_every_spec
def test_the_generator_alone_decides_what_is_drawn(spec: PolicySpec) -> None:
    pi = spec.distribution(parameters_of(spec, 2))
    drawn, entropy = pi.sample(generator(3)), pi.entropy(generator(3))
    torch.manual_seed(1)
    assert torch.equal(drawn, pi.sample(generator(3)))
    assert torch.equal(entropy, pi.entropy(generator(3)))
    one = generator(3)
    assert torch.equal(pi.sample(one), drawn) and not torch.equal(pi.sample(one), drawn)
    assert not drawn.requires_grad


@of_every_spec
def test_the_ratio_of_a_policy_to_itself_is_exactly_1(spec: PolicySpec) -> None:
    parameters = parameters_of(spec, 4, torch.float32)
    pi, mu = spec.distribution(parameters.clone().requires_grad_()), spec.distribution(parameters)
    raw = mu.sample(generator())
    assert (pi.log_prob(raw) - mu.log_prob(raw)).count_nonzero() == 0
    assert pi.kl(mu).abs().max() < 1e-6


@of_every_spec
def test_wrong_parameters_are_refused(spec: PolicySpec) -> None:
    P = spec.nb_parameters
    for wrong in (torch.zeros(B, P + 1), torch.zeros(B, P, dtype=torch.bfloat16), torch.zeros(B, 1), torch.zeros(())):
        with pytest.raises(ValueError, match="parameters"):
            spec.distribution(wrong)


# --- the closed forms of torch.distributions ---


def check_closed_forms(found: Callable[[Tensor], Distribution], spec: PolicySpec) -> None:
    """Compare log-probability, entropy and KL of raw samples; not TanhNormal's, whose reference is below."""
    p, q = parameters_of(spec, 5), parameters_of(spec, 6)
    pi, mu, raw = found(p), found(q), found(p).sample(generator())
    theirs, others = twin(spec, p), twin(spec, q)
    if isinstance(theirs, list):
        log_prob = sum(one.log_prob(raw[..., k]) for k, one in enumerate(theirs))
        entropy = sum(one.entropy() for one in theirs)
        kl = sum(reference.kl_divergence(one, other) for one, other in zip(theirs, others, strict=True))
    else:
        log_prob, entropy, kl = theirs.log_prob(raw), theirs.entropy(), reference.kl_divergence(theirs, others)
    ours = (pi.log_prob(raw), pi.entropy(generator()), pi.kl(mu))
    torch.testing.assert_close(ours, (log_prob, entropy, kl), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["discrete", "multi-discrete", "clipped-normal"])
def test_the_closed_forms_are_those_of_torch(name: str) -> None:
    check_closed_forms(SPECS[name].distribution, SPECS[name])


class DivergenceTheWrongWayRound(ClippedNormal):
    def kl(self, other: Normal) -> Tensor:
        return ClippedNormal.kl(other, self)


class ProbabilityOfTheClippedAction(ClippedNormal):
    def log_prob(self, raw: Tensor) -> Tensor:
        return super().log_prob(self.to_action(raw).to(raw.dtype))


@pytest.mark.parametrize("mutant", [DivergenceTheWrongWayRound, ProbabilityOfTheClippedAction])
def test_the_check_notices(mutant: type[Normal]) -> None:
    with pytest.raises(AssertionError):
        check_closed_forms(lambda parameters: mutant(parameters, SIZE), SPECS["clipped-normal"])


def test_the_check_notices_choices_that_are_cut_one_place_too_far() -> None:
    with pytest.raises(AssertionError):
        check_closed_forms(lambda parameters: Categoricals(parameters.roll(-1, -1), COUNTS), SPECS["multi-discrete"])


@pytest.mark.parametrize("name", ["tanh-normal", "clipped-normal"])
def test_the_mode_is_the_mean_before_it_is_squashed(name: str) -> None:
    parameters = parameters_of(SPECS[name], 7)
    assert torch.equal(SPECS[name].distribution(parameters).mode(), parameters[..., :SIZE])


def test_the_mode_of_a_choice_is_the_likeliest() -> None:
    parameters = parameters_of(SPECS["multi-discrete"], 7)
    first, second, third = torch.split(parameters, list(COUNTS), -1)
    wanted = torch.stack((first.argmax(-1), second.argmax(-1), third.argmax(-1)), -1)
    assert torch.equal(Categoricals(parameters, COUNTS).mode(), wanted)


# --- tanh ---


def squashed(parameters: Tensor) -> Any:
    return reference.TransformedDistribution(
        reference.Normal(parameters[..., :SIZE], parameters[..., SIZE:].exp()), reference.TanhTransform()
    )


def check_density(found: type[Normal]) -> None:
    """Compare the density of tanh's actions with that of torch, which inverts tanh, where this can be inverted."""
    p = parameters_of(SPECS["tanh-normal"], 8) - 1  # far from the edges
    pi = found(p, SIZE)
    raw = pi.sample(generator())
    log_prob = squashed(p).log_prob(raw.tanh()).sum(-1)
    torch.testing.assert_close(pi.log_prob(raw), log_prob, rtol=1e-8, atol=1e-8)


def test_the_density_behind_tanh_is_that_of_torch() -> None:
    check_density(TanhNormal)
    with pytest.raises(AssertionError):
        check_density(ClippedNormal)  # Mutation: the derivative of tanh left out


def test_the_estimated_entropy_is_right_on_average() -> None:
    N = 100_000
    parameters = torch.tensor([0.4, -0.3], dtype=torch.float64)
    pi = TanhNormal(parameters, 1)
    action = torch.linspace(-1, 1, 200_001, dtype=torch.float64)[1:-1]  # [N]
    log_prob = pi.log_prob(action.atanh().unsqueeze(1))
    wanted = -float((log_prob.exp() * log_prob).sum()) * 1e-5
    drawn = TanhNormal(parameters.expand(N, 2), 1).entropy(generator())  # [N]
    bound = stats.norm.isf(FALSE_ALARM / 2) * float(drawn.std()) / math.sqrt(N)
    assert bound < 0.02
    assert float(drawn.mean()) == pytest.approx(wanted, abs=bound)
    assert float(drawn.mean()) != pytest.approx(float(ClippedNormal(parameters, 1).entropy()), abs=bound)


def test_an_entropy_that_must_be_estimated_asks_for_a_generator() -> None:
    with pytest.raises(ValueError, match="generator"):
        TanhNormal(torch.zeros(B, 2), 1).entropy()


def test_a_bijection_leaves_the_divergence_as_it_is() -> None:
    p, q = parameters_of(SPECS["tanh-normal"], 9), parameters_of(SPECS["tanh-normal"], 10)
    clipped = ClippedNormal(p, SIZE).kl(ClippedNormal(q, SIZE))
    assert torch.equal(TanhNormal(p, SIZE).kl(TanhNormal(q, SIZE)), clipped)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_everything_is_finite_at_the_edges(dtype: torch.dtype) -> None:
    x = torch.linspace(-40, 40, 161, dtype=dtype).unsqueeze(1).requires_grad_()  # [N, 1]
    parameters = torch.zeros(161, 2, dtype=dtype, requires_grad=True)
    log_prob = TanhNormal(parameters, 1).log_prob(x)  # [N]
    assert log_prob.isfinite().all()
    log_prob.sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None and parameters.grad is not None
    assert x.grad.isfinite().all() and parameters.grad.isfinite().all()
    torch.testing.assert_close(x.grad, (-x + 2 * x.tanh()).detach(), rtol=1e-5, atol=1e-5)
    # Mutation: log(1 - tanh²) as it is written
    assert not (1 - x.tanh().square()).log().isfinite().all()


# --- what is drawn ---


def test_choices_are_drawn_as_often_as_they_are_likely_and_independently() -> None:
    """Each as the one choice of a `Categorical`."""
    N = 100_000
    logits = torch.tensor([0.5, -0.5, 1.0, 0.0, -1.0])
    drawn = Categoricals(logits.expand(N, 5), (2, 3)).sample(generator())
    counts = np.bincount(drawn[:, 0] * 3 + drawn[:, 1], minlength=6)
    expected = torch.outer(logits[:2].double().softmax(0), logits[2:].double().softmax(0)).flatten().numpy() * N
    assert stats.chisquare(counts, expected).pvalue > FALSE_ALARM
    assert stats.chisquare(counts, np.roll(expected, 1)).pvalue < FALSE_ALARM


def test_normal_samples_have_their_mean_and_spread() -> None:
    N = 20_000
    drawn = ClippedNormal(torch.tensor([0.5, -2.0, 0.3, -1.0]).expand(N, 4), 2).sample(generator())
    for k, (mean, log_std) in enumerate(((0.5, 0.3), (-2.0, -1.0))):
        result = stats.kstest(drawn[:, k].double().numpy(), stats.norm(mean, math.exp(log_std)).cdf)
        assert result.pvalue > FALSE_ALARM
    assert stats.kstest(drawn[:, 0].double().numpy(), stats.norm(0.5, 1.0).cdf).pvalue < FALSE_ALARM


def test_actions_are_squashed_or_clipped() -> None:
    raw = torch.tensor([[-9.0, -0.5, 3.0]])
    assert TanhNormal(torch.zeros(1, 6), 3).to_action(raw).tolist() == raw.tanh().tolist()
    assert ClippedNormal(torch.zeros(1, 6), 3).to_action(raw).tolist() == [[-1.0, -0.5, 1.0]]


# --- gradients ---


@of_every_spec
def test_gradients_are_those_of_finite_differences(spec: PolicySpec) -> None:
    parameters = parameters_of(spec, 11).requires_grad_()
    raw = spec.distribution(parameters_of(spec, 12)).sample(generator())
    mu = spec.distribution(parameters_of(spec, 13))

    def outputs(p: Tensor) -> tuple[Tensor, ...]:
        pi = spec.distribution(p)
        return pi.log_prob(raw), pi.entropy(generator(14)), pi.kl(mu), mu.kl(pi)

    assert torch.autograd.gradcheck(outputs, (parameters,), fast_mode=True)


def test_a_reparametrised_sample_moves_with_its_parameters() -> None:
    parameters = parameters_of(SPECS["tanh-normal"], 15).requires_grad_()

    def outputs(p: Tensor) -> tuple[Tensor, ...]:
        pi = TanhNormal(p, SIZE)
        raw = pi.rsample(generator(16))
        return raw, pi.log_prob(raw)

    assert torch.autograd.gradcheck(outputs, (parameters,), fast_mode=True)
    assert torch.equal(TanhNormal(parameters, SIZE).sample(generator(16)), outputs(parameters)[0])


def test_unlikely_choices_leave_no_nan() -> None:
    logits = torch.tensor([[0.0, -1e4, -1e30, 50.0]], requires_grad=True)
    pi, mu = Categorical(logits, COUNT), Categorical(torch.zeros(1, COUNT), COUNT)
    total = pi.entropy() + pi.kl(mu) + pi.log_prob(torch.tensor([3]))
    total.sum().backward()  # type: ignore[no-untyped-call]
    assert total.isfinite().all() and logits.grad is not None and logits.grad.isfinite().all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@of_every_spec
def test_a_gpu_draws_with_its_own_generator(spec: PolicySpec) -> None:
    pi = spec.distribution(parameters_of(spec, 17, torch.float32).cuda())
    drawn = [pi.sample(torch.Generator("cuda").manual_seed(1)) for _ in range(2)]
    assert drawn[0].is_cuda and torch.equal(drawn[0], drawn[1])
    on_cpu = spec.distribution(parameters_of(spec, 17, torch.float32))
    torch.testing.assert_close(pi.log_prob(drawn[0]).cpu(), on_cpu.log_prob(drawn[0].cpu()), rtol=1e-4, atol=1e-4)
