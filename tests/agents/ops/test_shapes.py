import re
from collections.abc import Callable

import pytest
import torch

from rainbow_iqn_apex.agents import ops
from rainbow_iqn_apex.agents.distributions import kl_divergence
from rainbow_iqn_apex.agents.impala.losses import policy_cloning, trusted_rows, value_cloning
from rainbow_iqn_apex.agents.ops import losses
from rainbow_iqn_apex.agents.ops.frames import push_frame, stack_at
from rainbow_iqn_apex.agents.ops.losses import ValueClip, value_loss
from rainbow_iqn_apex.agents.ops.masks import masked_mean
from rainbow_iqn_apex.agents.ops.n_step import n_step
from rainbow_iqn_apex.agents.ops.shapes import check_shapes
from rainbow_iqn_apex.agents.rainbow.agent import cross_entropy, project
from rainbow_iqn_apex.agents.rainbow_iqn.agent import quantile_huber_loss
from rainbow_iqn_apex.memory.rows import StepType


def test_kinds_are_those_of_the_rows() -> None:
    assert {step_type.name: step_type.value for step_type in StepType} == {
        name: getattr(ops, name) for name in StepType.__members__
    }


def test_letters_stand_for_one_size() -> None:
    a, b = torch.zeros(3, 5, 7), torch.zeros(5, 7)
    check_shapes(a=(a, "A B C"), b=(b, "B C"))
    check_shapes(a=(a, "A ..."), b=(b, "..."))
    check_shapes(a=(a, "A B C ..."), b=(torch.zeros(3), "A ..."))
    for axes in (
        {"a": "A B C", "b": "A B"},
        {"a": "A B", "b": "B C"},
        {"a": "A B ...", "b": "..."},
        {"a": "A B C D ..."},
    ):
        with pytest.raises(ValueError, match=r"a \(3, 5, 7\)"):
            check_shapes(**{name: ({"a": a, "b": b}[name], letters) for name, letters in axes.items()})


def floats(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


def kinds(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("call", "shapes"),
    [
        (
            lambda: push_frame(floats(10, 4, 3), floats(10, 2), torch.zeros(10, dtype=torch.bool)),
            ["(10, 4, 3)", "(10, 2)"],
        ),
        (lambda: push_frame(floats(10, 4, 3), floats(10, 3), torch.zeros(1, dtype=torch.bool)), ["(10, 4, 3)", "(1,)"]),
        (lambda: stack_at(floats(7, 10, 3), kinds(7, 9), torch.zeros(10).long(), 4), ["(7, 10, 3)", "(7, 9)"]),
        (lambda: stack_at(floats(7, 10, 3), kinds(7, 10), torch.zeros(7).long(), 4), ["(7, 10, 3)", "(7,)"]),
        (lambda: n_step(floats(4, 10), floats(4, 1), kinds(4, 10), 0.9), ["(4, 10)", "(4, 1)"]),
        (lambda: n_step(floats(4, 10), floats(4, 10), kinds(3, 10), 0.9), ["(4, 10)", "(3, 10)"]),
        (lambda: n_step(floats(1, 10), floats(1, 10), kinds(1, 10), 0.9), ["(1, 10)"]),
        (lambda: quantile_huber_loss(floats(5, 10), floats(5, 1), floats(7, 10), 1), ["(5, 10)", "(5, 1)"]),
        (lambda: quantile_huber_loss(floats(10, 5), floats(10, 5), floats(10, 7), 1), ["(10, 5)", "(10, 7)"]),
        (lambda: project(floats(9), floats(10, 8), floats(10), floats(10)), ["(9,)", "(10, 8)"]),
        (lambda: project(floats(9), floats(10, 9), floats(10, 1), floats(10)), ["(10, 9)", "(10, 1)"]),
        (lambda: project(floats(1), floats(10, 1), floats(10), floats(10)), ["(1,)"]),
        (lambda: cross_entropy(floats(10, 9), floats(9)), ["(10, 9)", "(9,)"]),
        (lambda: policy_cloning(floats(7, 3, 5), floats(7, 3, 1), floats(7, 3)), ["(7, 3, 5)", "(7, 3, 1)"]),
        (lambda: policy_cloning(floats(7, 3, 5), floats(7, 3, 5), floats(1, 3)), ["(7, 3, 5)", "(1, 3)"]),
        (lambda: value_cloning(floats(7, 3), floats(7, 1), floats(7, 3)), ["(7, 3)", "(7, 1)"]),
        (lambda: value_cloning(floats(7, 3), floats(7, 3), floats(7, 1)), ["(7, 3)", "(7, 1)"]),
        (lambda: trusted_rows(floats(7, 3, 5), floats(1, 3, 5), 0.3), ["(7, 3, 5)", "(1, 3, 5)"]),
        (lambda: kl_divergence(floats(7, 3, 5), floats(7, 1, 5)), ["(7, 3, 5)", "(7, 1, 5)"]),
        (lambda: masked_mean(floats(7, 5), floats(7, 1)), ["(7, 5)", "(7, 1)"]),
        (lambda: losses.vpg_loss(floats(7, 5), floats(7, 1), floats(7, 5)), ["(7, 5)", "(7, 1)"]),
        (lambda: losses.ppo_loss(floats(7, 5), floats(7, 1), floats(7, 5), 0.2), ["(7, 5)", "(7, 1)"]),
        (lambda: losses.impact_log_ratio(floats(7, 5), floats(7, 1), floats(7, 5), 2), ["(7, 5)", "(7, 1)"]),
        (lambda: losses.clipped_surrogate(floats(7, 5), floats(7, 1), floats(7, 5), 0.2), ["(7, 5)", "(7, 1)"]),
        (lambda: losses.awr_loss(floats(7, 5), floats(7, 1), floats(7, 5), 1, 20), ["(7, 5)", "(7, 1)"]),
        (lambda: losses.vmpo_losses(floats(7, 5), floats(7, 1), floats(7, 5), floats(), 0.1), ["(7, 5)", "(7, 1)"]),
        (lambda: value_loss(floats(7, 5), floats(7, 1), floats(7, 5)), ["(7, 5)", "(7, 1)"]),
        (
            lambda: value_loss(floats(7, 5), floats(7, 5), kinds(7, 5) > 0, None, ValueClip(floats(7, 1), 0.3)),
            ["(7, 5)", "(7, 1)"],
        ),
    ],
)
def test_wrong_shapes_are_refused(call: Callable[[], object], shapes: list[str]) -> None:
    with pytest.raises(ValueError, match=re.escape(shapes[0])) as caught:
        call()
    assert all(shape in str(caught.value) for shape in shapes)
