"""Programs that are told to stop at random moments end soon and in good order, whatever they were doing.

STOPS=120 STOPS_SEED=7 python -m pytest tests/test_stops.py -s      # many more than CI has time for; -s shows the table
"""

import os
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import specs
from tests.small import save_untrained
from tests.stops import LEARNER, SCENES, SETTINGS, Stage, Stop, stop_once
from tests.system import unlogged

STOPS = int(os.environ.get("STOPS", str(len(SCENES))))
SEED = int(os.environ.get("STOPS_SEED", "1"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot to evaluate, beside a log to report."""
    folder = tmp_path_factory.mktemp("model")
    header = "T_actors,T_learner,actor,env,episode,score_5min,score_30min,score_saber,length,end\n"
    lines = [f"{9 * i + 9},{9 * i},0,0,{i},9,9,9,9,game_over\n" for i in range(2000)]
    (folder / "CartPole-v1.csv").write_text(header + "".join(lines))
    return save_untrained(folder / "cart.pth", SETTINGS, specs.CARTPOLE)


@pytest.fixture(scope="module")
def stops() -> Iterator[list[Stop]]:
    """Those of this session; the table of all is printed at its end."""
    stops: list[Stop] = []
    yield stops
    print(f"\n{table(stops)}")


def table(stops: list[Stop]) -> str:
    rows: dict[tuple[str, str], list[Stop]] = defaultdict(list)
    for stop in stops:
        rows[stop.scene, stop.phase].append(stop)
    lines = [f"{'scene':30} {'phase':16} {'tries':>5} {'longest':>8}  exit codes"]
    for (scene, phase), some in sorted(rows.items()):
        longest = max(stop.seconds for stop in some)
        codes = " ".join(map(str, sorted({stop.exit_code for stop in some})))
        lines.append(f"{scene:30} {phase:16} {len(some):5} {longest:6.1f} s  {codes}")
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(STOPS))
def test_a_program_ends_soon_whatever_it_was_doing(number: int, tmp_path: Path, model: Path, stops: list[Stop]) -> None:
    scene, dice = SCENES[number % len(SCENES)], random.Random(1000 * SEED + number)
    with Stage(tmp_path / "stage", model) as stage:
        stop = stop_once(stage, scene, dice)
        stops.append(stop)
        assert "Traceback" not in stop.output and "Exception ignored" not in stop.output, stop.output
        assert stop.exit_code in scene.exit_codes, stop
        if stop.exit_code == 0 and stop.phase == "trains or plays" and scene.stopped == LEARNER:
            assert unlogged(stage.server.port, "*", stage.results) == set()
