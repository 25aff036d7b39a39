"""The logs in benchmarks/runs give the scores that README tells of them."""

import json
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from tests.processes import run

ROOT = Path(__file__).resolve().parents[3]
GAMES = ("breakout", "crazy_climber", "krull", "ms_pacman", "qbert", "road_runner", "seaquest", "space_invaders")


@pytest.mark.parametrize("folder", ["munchausen", "double_q"])
def test_the_scores_that_readme_tells_come_from_the_logs_beside_it(folder: str, tmp_path: Path) -> None:
    code, _, errors = run("saber_report.py", f"benchmarks/runs/{folder}", "--output", tmp_path, seconds=300)
    assert (code, errors) == (0, "")
    report = json.loads((tmp_path / "saber.json").read_text())
    evaluations = {
        (Path(each["file"]).parts[-4], each["game"]): each["means"]["saber"]
        for each in sorted(report["evaluations"], key=itemgetter("frames"), reverse=True)
        if each["frames"] >= 10_000_000  # and of several the first
    }
    told = " ".join((ROOT / "README.md").read_text().split()).replace(" %", "%")
    assert f"| {' | '.join(GAMES)} |" in told
    for seed in ("456", "789"):
        scores = [f"{evaluations[seed, game]['value']:,.0f}" for game in GAMES]
        assert f"| {' | '.join(scores)} |" in told
    if folder == "munchausen":
        check_page(report, evaluations["456", "crazy_climber"], told)


def check_page(report: dict[str, Any], evaluation: dict[str, float], told: str) -> None:
    """What is said of crazy_climber on the page that is shown."""
    [agent] = report["games"]["crazy_climber"]["agents"].values()
    score = agent["marks"]["10000000"]["saber"]
    assert f"{score['mean']:,.0f} points in its last 100 training episodes" in told
    assert f"{score['normalised']['human']:.0%} of the human" in told
    assert f"{score['normalised']['world_record']:.0%} of the world record" in told
    mean, low, high = (evaluation[name] for name in ("value", "low", "high"))
    assert f"{mean:,.0f} ({low:,.0f} to {high:,.0f}) over 100 episodes" in told
