"""A learner with sinks of other projects: all of them get the run, and none can end it or be left out silently."""

import json
import re
import socket
import sqlite3
import sys
import tomllib
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pytest

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.option import flag_of
from rainbow_iqn_apex.environments import extras as environment_extras
from rainbow_iqn_apex.options.sink_options import PACKAGES, SinkOptions, check_sinks
from tests.chain.changes import SHOWN
from tests.deadline import wait_until
from tests.processes import ROOT, clean_environment, run
from tests.small import FAMILIES
from tests.start_script import free_port, is_listening
from tests.system import LEARNER, System

EXTRAS = ("tensorboard", "prometheus_client", "wandb", "trackio")
OPTIONS = [
    *FAMILIES["reinforce"],
    *"--T-max 10000000 --evaluation-interval 2000 --tensorboard --wandb --trackio --nb-eval-actors 1".split(),
]


def need_extras(*names: str) -> None:
    for name in names or EXTRAS:
        pytest.importorskip(name, reason="an extra: pip install -r requirements-extra.txt")


@pytest.mark.slow
@pytest.mark.redis
def test_a_run_reaches_all_sinks_without_a_network(redis_port: int, run_name: str, tmp_path: Path) -> None:
    need_extras()
    from prometheus_client.parser import text_string_to_metric_families
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

    port, home = free_port(), tmp_path / "home"
    home.mkdir()
    # Nothing of this machine's user counts, and no server is there.
    offline = {"HOME": str(home), "WANDB_MODE": "offline", "TRACKIO_DIR": str(tmp_path / "trackio")}
    options, folder = [*OPTIONS, "--metrics-port", str(port)], tmp_path / "run"
    environment = {LEARNER: offline}
    with System(redis_port, run_name, folder, options, change="naming", environment=environment) as system:
        system.wait_for(LEARNER, "Learner of run")

        def scraped() -> str:
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                return str(answer.read().decode())

        def is_scraped() -> bool:
            return is_listening(port) and "riqx_train_given" in scraped()

        wait_until(is_scraped, system.last_words, 60)
        families = {family.name: family for family in text_string_to_metric_families(scraped())}
        given = {sample.labels["name"]: sample.value for sample in families["riqx_train_given"].samples}
        (labels,) = (sample.labels for sample in families["riqx_train_loss"].samples)
        assert labels == {"run": run_name, "role": "learner", "number": "0"}
        system.wait_for(LEARNER, "Metrics are left out")  # after sixty updates
        values = {tag: float(place) for place, tag in enumerate(SHOWN.values(), 1)}

        def written() -> dict[str, float]:  # every ten seconds, what the updates of the last second have given
            lines = (folder / "chain_metrics.jsonl").read_text().splitlines()
            return {name: value for line in lines for name, value in json.loads(line)["values"].items()}

        def is_written() -> bool:
            return values.items() <= written().items() and written()["train/n_updates"] >= 60

        wait_until(is_written, system.last_words, 60)
        system.learner.terminate()
        assert system.learner.finish(120) == 0, system.last_words()
        printed = system.printed(LEARNER)
    assert "Metrics are not written" not in printed and "Traceback" not in printed
    assert printed.count("Metrics are left out: the agent's updates have more than 60, '") == 1
    (*_, told) = re.findall("Mean .*, loss_of/the_critic_α 1.0000, .*", printed)
    assert "n_updates_2 3.0000" in told and "seldom 0.5000" in told
    assert values.items() <= given.items() and len(given) <= 58, "and two that are in the list"
    runs = EventMultiplexer().AddRunsFromDirectory(str(folder / "chain_tensorboard"))
    assert list(runs.Reload().Runs()) == [run_name]
    events = runs.GetAccumulator(run_name)
    assert {"train/loss", "rollout/ep_rew_mean", "time/fps", *values} <= set(events.Tags()["scalars"])
    assert events.Scalars("time/total_timesteps")[-1].step == events.Scalars("time/total_timesteps")[-1].value > 1000
    (stored,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    assert all(name.encode() in stored.read_bytes() for name in ("train/loss", *values))
    with closing(sqlite3.connect(tmp_path / "trackio" / "rainbow-iqn-apex.db")) as database:
        rows = database.execute("select run_name, max(step) from metrics group by run_name").fetchall()
    assert len(rows) == 1 and rows[0][0].startswith(run_name) and rows[0][1] > 1000


def forget(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a sink's package be missing, as where it is not installed."""
    module, package = PACKAGES[name]
    top = package.partition(">")[0].replace("-", "_")
    for imported in [top, *(other for other in sys.modules if other.startswith(f"{top}."))]:
        monkeypatch.setitem(sys.modules, imported, None)
    monkeypatch.delitem(sys.modules, module, raising=False)


def test_missing_extras_are_named_together(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PACKAGES:
        forget(name, monkeypatch)
    with pytest.raises(UserError) as refused:
        check_sinks(SinkOptions(tensorboard=True, metrics_port=9400, wandb=True, trackio=True))
    for line, (name, (_, package)) in zip(str(refused.value).splitlines(), PACKAGES.items(), strict=True):
        told = rf"{flag_of(name)}: needs an extra that is missing \(.*\); .* -m pip install '{re.escape(package)}'"
        assert re.fullmatch(told, line)
    check_sinks(SinkOptions())


@pytest.mark.slow
def test_the_learner_refuses_before_it_asks_redis() -> None:
    code = """
import runpy, sys
sys.modules["tensorboard"] = None
sys.argv = ["launch_learner.py", "--tensorboard", "--port-redis", "1"]
runpy.run_path("launch_learner.py", run_name="__main__")
"""
    (line,) = run("-c", code).refused()
    assert line.startswith("launch_learner.py: error: --tensorboard: needs an extra that is missing")


def test_the_pins_are_what_the_errors_ask_for() -> None:
    lines = (ROOT / "requirements-extra.txt").read_text().splitlines()
    pins = dict(line.split(";")[0].split("==") for line in lines)
    packages = {package for _, package in PACKAGES.values()}
    packages |= {package for named in environment_extras.PACKAGES.values() for package in named}
    asked = dict(package.split(",")[0].split(">=") for package in packages)
    assert pins.keys() == asked.keys()
    assert all(f"{pins[name]}.".startswith(f"{asked[name]}.") for name in pins)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert packages == {package.split(";")[0] for named in extras.values() for package in named}


def test_a_port_that_is_taken_is_named() -> None:
    need_extras("prometheus_client")
    with (
        socket.create_server(("127.0.0.1", port := free_port())),
        pytest.raises(
            UserError, match=rf"^--metrics-host, --metrics-port: .* got 127.0.0.1:{port} \(Address already in use\)"
        ),
    ):
        check_sinks(SinkOptions(metrics_port=port))
    check_sinks(SinkOptions(metrics_port=port))
    with pytest.raises(UserError, match=r"^--metrics-host, .* got 192.0.2.1:\d+ \("):
        check_sinks(SinkOptions(metrics_port=port, metrics_host="192.0.2.1"))


def test_an_account_is_asked_for_before_the_run(tmp_path: Path) -> None:
    need_extras("wandb")
    variables = {name: value for name, value in clean_environment().items() if not name.startswith("WANDB_")}
    code = "from rainbow_iqn_apex.options import sink_options as s\ns.check_sinks(s.SinkOptions(wandb=True))"
    ended = run("-c", code, environment=variables | {"HOME": str(tmp_path)})
    line = "UserError: --wandb: no account is known on this machine; give `wandb login`, or set WANDB_MODE=offline"
    assert ended.errors.splitlines()[-1].endswith(line)
