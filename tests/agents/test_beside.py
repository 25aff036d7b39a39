"""What is computed beside an update's own pass."""

import multiprocessing
import os
import threading

import pytest
import torch

from rainbow_iqn_apex.agents.beside import beside

CPU = torch.device("cpu")


@pytest.mark.skipif(os.cpu_count() == 1, reason="a single core computes one after the other")
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


def test_other_devices_compute_at_once() -> None:
    threads = []
    found = beside(torch.device("meta"), lambda: threads.append(threading.current_thread()))
    assert threads == [threading.current_thread()]
    assert found() is None and len(threads) == 1


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_a_thread_of_its_own() -> None:
    # Mutation: without `register_at_fork` the child waits for its parent's thread for ever.
    assert beside(CPU, lambda: 1)() == 1
    child = multiprocessing.get_context("fork").Process(target=lambda: beside(CPU, lambda: 1)())
    child.start()
    child.join(60)
    assert child.exitcode == 0
