"""An environment of a user's whose code fails in an actor: all others name that actor, and the reason."""

from contextlib import closing
from pathlib import Path

import pytest

from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.monitoring.overview import OverviewReader
from tests.failing import FAILING
from tests.small import FAMILIES, FREE
from tests.system import LEARNER, Run

OPTIONS = [
    *FAMILIES["impala"],
    *f"{FAILING} --history-length 1 --T-max 100000 --log-interval 100 --force".split(),
]


def alerts(client: Client, run_name: str) -> tuple[str, ...]:
    with closing(OverviewReader(client, run_name)) as reader:
        overview = reader.read()
    return overview.alerts if overview else ()


@pytest.mark.slow
@pytest.mark.redis
@pytest.mark.parametrize(
    ("place", "mode"),
    [("reset 1", []), ("reset 40", []), ("step 77", FREE), ("constructor 1", FREE)],
)
def test_the_learner_names_the_actor_that_has_failed(
    redis_port: int, client: Client, run_name: str, tmp_path: Path, place: str, mode: list[str]
) -> None:
    # Mutations: report only what fails after the actor has begun to play; forget a failure as the actor leaves.
    failing = {"actor": {"FAILS_IN": place}}
    with Run(redis_port, run_name, tmp_path / "results", [*OPTIONS, *mode], environment=failing) as run:
        learner, actor = run.start(LEARNER), run.start("0")
        assert actor.finish(60) == 1
        assert "Traceback" in actor.errors and "in _may_fail" in actor.errors, "the user sees the own code"
        why = rf"actor 0 has failed (LookupError: no level file\n for {place.split()[0]})"
        assert why in alerts(client, run_name)
        learner.wait_for(f" sec); {why}; actor 0 is not running: python launch_actor.py ")
        assert learner.exit_code is None
        failing["actor"].clear()
        run.start("0").wait_for("Actor 0 plays")
        learner.wait_until(lambda: why not in alerts(client, run_name), "the end of the alert")
        learner.wait_for("] T = ")
