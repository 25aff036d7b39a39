"""What is computed beside an update's own pass."""

import multiprocessing
import threading
import weakref
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from benchmarks.workloads import update_work
from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.devices import beside
from rainbow_iqn_apex.agents.networks.trunks import SpectralConv2d
from rainbow_iqn_apex.programs.agent import make_agent
from tests.specs import ATARI

CPU = torch.device("cpu")
_SPECTRAL = " --architecture deep --spectral-norm True"
_SMALL = (
    "--hidden-size 16 --batch-size 4 --precision float32 --learn-start 1 --nb-env-per-actor 1 --multi-step 2".split()
)
_R2D2 = "--agent r2d2 --lstm-size 8 --burn-in 2 --sequence-length 6 --sequence-period 4"


@pytest.fixture(autouse=True)
def _a_core_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rainbow_iqn_apex.agents.devices._cores", lambda: torch.get_num_threads() + 1)


def test_it_runs_at_the_same_time_without_gradient() -> None:
    # Mutations: compute at once; leave the gradient on.
    begun, may_end = threading.Event(), threading.Event()
    weight = torch.ones(2, requires_grad=True)

    def compute() -> torch.Tensor:
        begun.set()
        assert may_end.wait(60)
        return weight * 2

    found = beside(CPU, compute)
    assert begun.wait(60)
    own = weight * 3
    may_end.set()
    assert own.requires_grad and not found().requires_grad and torch.equal(found(), torch.full((2,), 2.0))


def test_its_exception_reaches_the_caller() -> None:
    found = beside(CPU, lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        found()


@pytest.mark.parametrize(("device", "at_once"), [("meta", False), ("cpu", True)])
def test_others_compute_at_once(device: str, at_once: bool) -> None:
    threads = []

    def compute() -> bool:
        threads.append(threading.current_thread())
        return torch.is_grad_enabled()

    found = beside(torch.device(device), compute, at_once=at_once)
    assert threads == [threading.current_thread()]
    assert found() is False and len(threads) == 1


def test_a_pass_in_a_second_stream_keeps_what_it_reads_until_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is a GPU, `test_gpu.py` shows by the results that it does; here its streams only note their order."""
    # Mutation: let go of `compute` where it was called.
    order: list[str] = []
    main, side = (SimpleNamespace(wait_stream=lambda _, name=name: order.append(name)) for name in ("main", "side"))
    monkeypatch.setattr("rainbow_iqn_apex.agents.devices._streams", lambda _: iter([side]))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: main)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    read = torch.ones(2)
    alive = weakref.ref(read)
    found = beside(torch.device("cuda", 0), partial(torch.sum, read))
    del read
    assert order == ["side"] and alive() is not None, "begun behind the caller's work"
    assert found().item() == 2 and order == ["side", "main"]
    del found
    assert alive() is None


def test_no_core_is_taken_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rainbow_iqn_apex.agents.devices._cores", torch.get_num_threads)
    assert beside(CPU, threading.current_thread)() is threading.current_thread()


_DUELLING = [f"--agent {agent}{norm}" for agent in ("rainbow", "rainbow_iqn", "btr") for norm in ("", _SPECTRAL)]


@pytest.mark.parametrize("words", [*_DUELLING, _R2D2])
def test_updates_have_the_bytes_of_one_thread(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for cores in (torch.get_num_threads() + 1, 1):
        monkeypatch.setattr("rainbow_iqn_apex.agents.devices._cores", lambda cores=cores: cores)
        settings = options.parse([*_SMALL, *words.split()], "test", "")
        agent = make_agent(settings, ATARI, CPU, learns=True, seed=1)
        update = update_work(agent, settings, 4)
        for _ in range(3):
            update()
        found.append(agent.model.state_dict())
    torch.testing.assert_close(*found, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_a_thread_of_its_own() -> None:
    # Mutation: without `register_at_fork` the child waits for its parent's thread for ever.
    assert beside(CPU, lambda: 1)() == 1
    child = multiprocessing.get_context("fork").Process(target=lambda: beside(CPU, lambda: 1)())
    child.start()
    child.join(60)
    assert child.exitcode == 0


@pytest.mark.parametrize("words", [f"--agent {agent}{_SPECTRAL}" for agent in ("rainbow", "rainbow_iqn")])
def test_what_a_pass_with_gradient_iterates_is_read_by_no_other_thread(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: compute double Q's choice beside all the same.
    passed = []
    forward = SpectralConv2d.forward

    def watched(layer: SpectralConv2d, x: torch.Tensor) -> torch.Tensor:
        passed.append((layer.weight.requires_grad, threading.current_thread()))
        return forward(layer, x)

    monkeypatch.setattr(SpectralConv2d, "forward", watched)
    settings = options.parse([*_SMALL, *words.split()], "test", "")
    update_work(make_agent(settings, ATARI, CPU, learns=True, seed=1), settings, 4)()
    assert passed and {thread for is_online, thread in passed if is_online} == {threading.current_thread()}
