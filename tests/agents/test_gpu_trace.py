"""What a GPU would be asked to do in an update, traced on the meta device, which has shapes and no numbers.

Recorded in a CUDA graph is all that `GraphTrainer` does for an agent with replay: draw, update, write priorities back.
There nothing may wait for the GPU, nor in IMPALA's update. Other agents' updates may, as they are not recorded. A
tensor of the host among a GPU's is a mistake in all of them, and so are weights without gradient.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import adam, optimizer
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.interface import Agent, EnvironmentSlot, Setup, Update
from rainbow_iqn_apex.agents.registry import AGENTS
from rainbow_iqn_apex.common.loop_clock import LoopClock
from rainbow_iqn_apex.memory import ring
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.environment_spec import Box, Discrete, EnvironmentSpec, Field, Part
from rainbow_iqn_apex.memory.hindsight import ACHIEVED, DESIRED
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.learner.trainers import PARTS, GraphRecorder, GraphTrainer, Turn, Work
from tests.specs import CARTPOLE

META, CPU = torch.device("meta"), torch.device("cpu")
PICTURES = EnvironmentSpec(Field((3, 60, 52), "uint8"), Discrete(5))
NUMBERS = EnvironmentSpec(Field((6,), "float32"), Box(2))
GOALS = NUMBERS._replace(parts=(Part(ACHIEVED, 0, 3), Part(DESIRED, 3, 6)))
_SMALL = "--hidden-size 9 --batch-size 8 --history-length 3"
_QUANTILES = f"{_SMALL} --num-tau-samples 4 --num-tau-prime-samples 5 --num-quantile-samples 7"
_SEQUENCES = f"{_SMALL} --burn-in 2 --sequence-length 4 --sequence-period 2"
_ROUNDS = "--unroll-length 7 --batch-size 4 --mlp-size 9 --minibatches 2 --epochs 2 --history-length 2"
_MIX = (
    "--replay-mix queue:0.5,elite:0.25:30,prioritised:0.25:20 --policy-cloning-cost 0.2 --value-cloning-cost 0.3 "
    "--trust-threshold 0.5 --impact-target-period 2"
)
RECORDED = {
    "rainbow_iqn": (PICTURES, f"{_QUANTILES} --max-gradient-norm 10"),
    "rainbow_iqn data-efficient": (PICTURES, f"{_QUANTILES} --architecture data-efficient"),
    "rainbow_iqn, its rate falls": (PICTURES, f"{_QUANTILES} --rate-decay True"),
    "rainbow_iqn, numbers": (CARTPOLE, _QUANTILES),
    "rainbow": (PICTURES, f"{_SMALL} --atoms 11"),
    "btr": (PICTURES, _QUANTILES),
    "btr, fast": (PICTURES, f"{_QUANTILES} --preset fast"),
    "r2d2": (PICTURES, f"{_SEQUENCES} --lstm-size 8 --multi-step 3"),
    "r2d2 without burn-in": (CARTPOLE, f"{_SEQUENCES} --lstm-size 8 --burn-in 0 --rescaling False"),
    "r2d2 deep": (PICTURES, f"{_SEQUENCES} --lstm-size 8 --architecture deep"),
    "sac": (PICTURES, f"{_SMALL} --multi-step 3"),
    "sac, numbers": (NUMBERS, f"{_SMALL} --max-gradient-norm 1"),
    "sac, goals": (GOALS, "--hidden-size 9 --batch-size 8 --history-length 1 --hindsight 0.8"),
    "sac with LSTM": (PICTURES, f"{_SEQUENCES} --lstm-size 8"),
}
OTHERS = {
    "impala": (PICTURES, f"{_SMALL} --unroll-length 7"),
    "impala with LSTM": (PICTURES, f"{_SMALL} --unroll-length 7 --lstm-size 8 --target-entropy 0.5"),
    "impala mixture": (PICTURES, f"{_SMALL} --unroll-length 7 --lstm-size 8 {_MIX}"),
    "pqn": (PICTURES, f"{_SMALL} --unroll-length 7 --minibatches 2"),
    "ppo": (NUMBERS, _ROUNDS),
    "ppo with PopArt": (PICTURES, f"{_ROUNDS} --hidden-size 9 --popart True"),
    "vmpo with LSTM": (PICTURES, f"{_ROUNDS} --hidden-size 9 --lstm-size 8 --minibatch-split sequences"),
    "awr": (NUMBERS, _ROUNDS),
    "vpg": (CARTPOLE, _ROUNDS),
    "vtrace": (CARTPOLE, _ROUNDS),
    "reinforce": (CARTPOLE, "--hidden-size 9 --unroll-length 7 --batch-size 4"),
}


# What makes the host wait for a GPU, or gives tensors whose sizes depend on values.
WAITING = {
    "_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "bincount", "_unique2", "unique_dim",
    "unique_consecutive",
}  # fmt: skip
_WITHOUT_META_KERNEL = torch.ops.aten._fused_adam_.tensor_lr  # changes weights, and no shape


def tensors_in(values: Any) -> list[Tensor]:
    """Return the tensors of nested containers, in order."""
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


class OfMeta(torch.Generator):
    """A generator that draws for the meta device; PyTorch has none, and needs none there."""

    device = META


class Autocast(TorchFunctionMode):
    """Does for the meta device what `torch.autocast` does for a GPU, with the operations that an encoder has."""

    def __init__(self, device: str, dtype: torch.dtype = torch.float32, enabled: bool = True) -> None:
        super().__init__()
        assert device == "meta" or not enabled
        self._dtype, self._enabled = dtype, enabled

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._enabled and func in (torch.conv2d, functional.conv2d, functional.linear):
            args = [value.to(self._dtype) if isinstance(value, Tensor) else value for value in args]
        return func(*args, **(kwargs or {}))


class Trace(TorchDispatchMode):
    """Fails at each operation that would wait for a GPU, or that has a tensor of the host.

    Where an update is not recorded, both are allowed, but no operation on tensors of two devices. A mask then counts
    as all true, and a number that is looked at as 0, as in a copy on the host.
    """

    def __init__(self, *, recorded: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorded = recorded
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        self.operations += 1
        given = tensors_in((args, kwargs))
        masks = [mask for mask in args[1] if mask is not None and mask.dtype == torch.bool] if name == "index" else []
        if name in WAITING or masks:
            assert not self._recorded, f"{func} looks at values"
            if not given[0].is_cpu:
                return self._as_if_true(name, args)
        if name == "_to_copy" and not self._recorded and kwargs.get("device") == CPU:
            return torch.zeros_like(args[0], device=CPU, dtype=kwargs.get("dtype"))
        result = None if func is _WITHOUT_META_KERNEL else func(*args, **kwargs)
        if self._recorded:
            assert not any(tensor.is_cpu for tensor in given + tensors_in(result)), f"{func} has a tensor of the host"
        elif name not in ("copy_", "_to_copy"):  # a number of the host goes with all devices
            devices = {tensor.device for tensor in given if tensor.dim() or not tensor.is_cpu}
            assert len(devices) < 2, f"{func} has tensors of two devices"
        return result

    def _as_if_true(self, name: str, args: Any) -> Any:
        if name == "_local_scalar_dense":
            return args[0].dtype == torch.bool
        if name == "nonzero":
            return args[0].new_empty((args[0].numel(), args[0].dim()), dtype=torch.int64)
        (mask,) = args[1]
        return args[0].new_empty((mask.numel(), *args[0].shape[mask.dim() :]))


@pytest.fixture(autouse=True)
def meta_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let optimisers and `torch.autocast` take the meta device for a GPU."""
    monkeypatch.setattr(torch, "autocast", Autocast)

    def adding(names: Any) -> Any:
        return lambda *given: [*names(*given), "meta"]

    for module in (optimizer, adam):
        for name in ("_get_capturable_supported_devices", "_get_fused_kernels_supported_devices"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, adding(getattr(module, name)))


def agent_in(case: str) -> str:
    """Return the agent that a case is of."""
    return case.replace(",", "").split()[0]


def made(case: str, precision: str) -> tuple[Agent, EnvironmentSpec]:
    """Make an agent of a case on the meta device."""
    environment, settings = (RECORDED | OTHERS)[case]
    agent = agent_in(case)
    words = f"--agent {agent} --precision {precision} --learn-start 60 --memory-capacity 400 {settings}"
    args = options.parse(words.split(), "test", "")
    with Trace(recorded=False):
        return AGENTS[agent].load()(
            Setup(args, args.own, environment, OfMeta(), True, EnvironmentSlot(0, 1))
        ), environment


class Traced(GraphRecorder):
    """Traces what a recorder of a GPU would record."""

    def __init__(self) -> None:
        self.operations = 0

    def warm_up(self, work: Work) -> Update:
        with Trace(recorded=True) as trace:
            results = work()
        self.operations = trace.operations
        return results

    def record(self, work: Work) -> Work:
        raise AssertionError(work)


def trace(case: str, precision: str, change: Callable[[Any], None] = lambda _: None) -> int:
    """Trace two updates, the second with an optimiser that has its state; returns the operations of the second."""
    agent, environment = made(case, precision)
    change(agent)
    if agent.buffer == "replay":
        replay = Replay(agent.spec, environment, 400, agent.generator, META)
        recorder = Traced()
        trainer = GraphTrainer(agent, replay, 8, META, LoopClock(*PARTS), recorder)
        trainer([Turn(0.3, 4), Turn(0.4, 8)])
        count = recorder.operations
    else:
        batch = batch_of(agent, environment)
        for _ in range(2):
            with Trace(recorded=False) as watched:
                agent.update(batch, 0.5)
        if agent_in(case) == "impala":
            with Trace(recorded=True):
                agent.update(batch, torch.tensor(0.5, device=META))
        count = watched.operations
    for name, weight in learned(agent):
        assert weight.grad is not None, f"{name} has no gradient"
    return count


def batch_of(agent: Agent, environment: EnvironmentSpec) -> Batch:
    fields = agent.spec.row_fields(environment)
    rows = {name: ring._zeros(agent.spec.sample_window * 4, field, META) for name, field in fields.items()}
    rows = {name: part.view(agent.spec.sample_window, 4, *part.shape[1:]) for name, part in rows.items()}
    state = {name: ring._zeros(4, field, META) for name, field in agent.spec.state}
    replayed = torch.zeros(4, dtype=torch.bool, device=META) if agent.buffer == "mixture" else None
    return Batch(rows, state, replayed=replayed)


def learned(agent: Agent) -> Iterator[tuple[str, Tensor]]:
    """All weights of the agent that its optimiser changes."""
    for name, part in agent.parts.items():
        if isinstance(part, nn.Module):
            yield from ((f"{name}.{key}", weight) for key, weight in part.named_parameters() if weight.requires_grad)


@pytest.mark.parametrize("precision", ["bfloat16", pytest.param("float32", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", RECORDED | OTHERS)
def test_an_update_stays_on_its_device_and_reaches_all_weights(case: str, precision: str) -> None:
    assert trace(case, precision) > 30


def test_every_agent_is_traced() -> None:
    assert {agent_in(case) for case in RECORDED | OTHERS} == AGENTS.keys()


@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter")
@pytest.mark.parametrize("case", {agent_in(case): case for case in RECORDED | OTHERS}.values())
def test_a_snapshot_goes_from_the_host_to_the_device(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A learner resumes, another begins with `--model`, and an evaluation plays: all read the file on the host."""
    environment, settings = (RECORDED | OTHERS)[case]
    args = options.parse(["--agent", agent_in(case), *settings.split()], "test", "")
    trained = make_agent(args, environment, CPU, learns=True, seed=3)
    take_step(trained)
    snapshot.save(tmp_path / "x.pth", trained, {})
    content = snapshot.load(tmp_path / "x.pth", "--model")
    for begin in (snapshot.restore, snapshot.restore_weights):
        agent, _ = made(case, "float32")
        with Trace(recorded=False):
            begin(agent, content)
            take_step(agent)
    assert capsys.readouterr().out.endswith("goes on with the snapshot's moments\n")


def take_step(agent: Any) -> None:
    """Let the agent's optimiser make a step, after which it has its moments."""
    optimiser = agent.parts["optimiser"]
    for group in optimiser.param_groups:
        for weight in group["params"]:
            weight.grad = torch.ones_like(weight)
    optimiser.take_step()


def _with(mistake: Callable[[Update, Batch], Any]) -> Callable[[Any], None]:
    """Let an agent's update end with a mistake."""

    def change(agent: Any) -> None:
        right = agent.update

        def update(batch: Batch, progress: Any) -> Update:
            made = right(batch, progress)
            mistake(made, batch)
            return Update(*made)

        agent.update = update

    return change


def _detach_losses(agent: Any) -> None:
    losses = agent.losses
    agent.losses = lambda *begun: [part.detach() for part in losses(*begun)]


def _detach_hidden(agent: Any) -> None:
    duel = agent.network.duel
    agent.network.duel = lambda hidden, weights: duel(hidden.detach(), weights)


LOOKS, HOST = "looks at values", "has a tensor of the host"
MISTAKES: dict[str, tuple[Callable[[Any], None], str]] = {
    "item": (_with(lambda made, _: made.metrics["loss"].item()), LOOKS),
    "float": (_with(lambda made, _: float(made.metrics["loss"])), LOOKS),
    "if": (_with(lambda made, _: bool(made.metrics["loss"] > 0)), LOOKS),
    "mask": (_with(lambda _, batch: batch.reward[batch.reward > 0]), LOOKS),
    "nonzero": (_with(lambda _, batch: batch.reward.nonzero()), LOOKS),
    "unique": (_with(lambda _, batch: torch.unique(batch.action)), LOOKS),
    "a list": (_with(lambda _, batch: batch.reward[0, :2] * torch.tensor([0.5, 2.0])), HOST),
    "a number": (_with(lambda _, batch: batch.reward * torch.tensor(0.5)), HOST),
    "made elsewhere": (_with(lambda *_: torch.zeros(3)), HOST),
    "a copy": (_with(lambda _, batch: batch.reward.cpu()), "no data|tensor of the host"),
    "detached losses": (_detach_losses, "does not require grad"),
    "detached layer": (_detach_hidden, "has no gradient"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_trace_sees_a_mistake(mistake: str) -> None:
    change, message = MISTAKES[mistake]
    with pytest.raises((AssertionError, RuntimeError, ValueError), match=message):
        trace("rainbow_iqn", "float32", change)


def test_the_trace_sees_two_devices_where_nothing_is_recorded() -> None:
    with pytest.raises((AssertionError, RuntimeError), match=r"two devices|expected device"):
        trace("impala", "float32", _with(lambda _, batch: batch.reward[0, :2] @ torch.tensor([0.5, 2.0])))
