"""`train`, `evaluate` and `load_policy`, as docs/python.md uses them."""

import re
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

import rainbow_iqn_apex
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.rows import Row
from tests import specs
from tests.documents import write_modules
from tests.processes import ROOT, Processes, clean_environment
from tests.small import CARTPOLE, save_untrained
from tests.start_script import free_port

WITH_PACKAGE = clean_environment() | {"PYTHONPATH": str(ROOT)}


def script(folder: Path, steps: str, port: int) -> str:
    """Write the document's script with another number of steps and a port of its own; return its name."""
    write_modules("docs/python.md", folder)
    text = (folder / "first_steps.py").read_text()
    assert "T_max=20_000" in text
    (folder / "first_steps.py").write_text(text.replace("T_max=20_000", f"T_max={steps}, port_redis={port}"))
    return "first_steps.py"


@pytest.mark.slow
def test_the_script_of_the_document(tmp_path: Path, processes: Processes) -> None:
    name = script(tmp_path, "6e3", free_port())
    out = processes.start(name, cwd=tmp_path, environment=WITH_PACKAGE, fresh=True).end(240).succeeded()
    mean, steps = re.findall(r"(?m)^(?:mean score|steps): (.+)$", out)
    assert float(mean) > 5 and int(steps) > 5

    # The same environment and weights, and the policy's act: batches and single observations choose the same.
    policy = rainbow_iqn_apex.load_policy(tmp_path / "results" / "python")
    rows: list[Row] = [policy.environment(seed=seed).reset() for seed in range(3)]
    batch = np.stack([row.obs for row in rows])
    assert policy.act(batch).tolist() == [int(policy.act(row.obs)) for row in rows]
    for wrong in (batch[:0], batch[0, :2], batch.astype(np.float64), batch[None]):
        with pytest.raises(UserError, match=r"^observations: expected "):
            policy.act(wrong)


@pytest.mark.slow
def test_an_interrupt_saves_and_stops_all(tmp_path: Path, processes: Processes) -> None:
    # Mutation: raise the interrupt at once.
    name = script(tmp_path, "10_000_000", free_port())
    process = processes.start(name, cwd=tmp_path, environment=WITH_PACKAGE, fresh=True)
    log = tmp_path / "results" / "python" / "CartPole-v1.csv"
    process.wait_until(lambda: log.exists() and log.read_text().count("\n") > 20, "episodes")
    process.send(signal.SIGINT)
    code, out, errors = process.end(120)
    assert code != 0 and errors.splitlines()[-1] == "KeyboardInterrupt"
    assert "all is stopped and saved" in out and list(log.parent.glob("last_model_*"))


@pytest.mark.slow
def test_what_the_learner_refuses_is_the_exception(tmp_path: Path) -> None:
    # Mutation: the start script's last line, which tells that it stops the Redis server.
    (tmp_path / "CartPole-v1.csv").write_text(
        "T_actors,T_learner,actor,env,episode,score_5min,score_30min,score_saber,length,end\n9,9,0,0,0,9,9,9,9,game_over\n"
    )
    with pytest.raises(UserError, match=r"^--path-to-results: .*CartPole-v1\.csv has episodes, but no checkpoint"):
        rainbow_iqn_apex.train(
            env="gymnasium:CartPole-v1", agent="reinforce", T_max=2000, path_to_results=tmp_path, port_redis=free_port()
        )


def test_options_of_the_start_script_are_known(tmp_path: Path) -> None:
    # Mutation: judge what goes with the number of actors before the start script has read its file of hosts.
    with pytest.raises(UserError, match=r"^--hosts: .*none\.txt cannot be read: No such file"):
        rainbow_iqn_apex.train(
            game="pong", hosts=tmp_path / "none.txt", synchronize_actors_with_learner=False, path_to_results=tmp_path
        )


def test_wrong_options_are_exceptions() -> None:
    with pytest.raises(UserError) as caught:
        rainbow_iqn_apex.train(learning_start=5, T_max="many")
    first, second = str(caught.value).splitlines()
    assert first.startswith("--learning-start=5: no such option") and second.startswith("--T-max: expected a whole num")


def test_a_policy_leaves_the_caller_s_random_numbers_alone_and_takes_any_array(tmp_path: Path) -> None:
    # Mutations: seed PyTorch for all; hand arrays on as they are: PyTorch takes none with negative strides.
    path = save_untrained(tmp_path / "model.pth", "--agent ppo --mlp-size 8".split() + CARTPOLE, specs.CARTPOLE)
    drawn = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        policy = rainbow_iqn_apex.load_policy(path, disable_cuda=True)
        drawn.append(torch.rand(1).item())
    assert drawn[0] == drawn[2] != drawn[1]
    frozen = np.arange(8, dtype=np.float32).reshape(2, 4)
    frozen.flags.writeable = False
    assert policy.act(frozen[:, ::-1]).tolist() == policy.act(frozen[:, ::-1].copy()).tolist()
    assert policy.act(frozen).shape == (2,)


def test_a_missing_snapshot_is_an_exception(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no snapshot"):
        rainbow_iqn_apex.load_policy(tmp_path)
    with pytest.raises(AttributeError):
        _ = rainbow_iqn_apex.nothing
