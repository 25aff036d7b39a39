"""The logs in results/runs give the scores that README tells of them."""

import json
from pathlib import Path

from tests.processes import run

ROOT = Path(__file__).resolve().parents[3]


def test_the_scores_that_readme_tells_come_from_the_logs_beside_it(tmp_path: Path) -> None:
    code, _, errors = run("saber_report.py", "results/runs", "--output", tmp_path, seconds=300)
    assert (code, errors) == (0, "")
    report = json.loads((tmp_path / "saber.json").read_text())
    [agent] = report["games"]["crazy_climber"]["agents"].values()
    score = agent["marks"]["10000000"]["saber"]
    evaluations = {
        (each["game"], each["frames"] // 1_000_000): each["means"]["saber"] for each in report["evaluations"]
    }
    told = " ".join((ROOT / "README.md").read_text().split()).replace(" %", "%")
    assert f"{score['mean']:,.0f} points in its last 100 training episodes" in told
    assert f"{score['normalised']['human']:.0%} of the human" in told
    assert f"{score['normalised']['world_record']:.0%} of the world record" in told
    mean, low, high = (evaluations["crazy_climber", 10][name] for name in ("value", "low", "high"))
    assert f"{mean:,.0f} ({low:,.0f} to {high:,.0f}) over 100 episodes" in told
    games = ("breakout", "crazy_climber", "krull", "ms_pacman", "qbert", "road_runner", "seaquest", "space_invaders")
    assert f"| {' | '.join(games)} |" in told
    scores = [f"{evaluations[game, 10]['value']:,.0f}" for game in games]
    assert f"| {' | '.join(scores)} |" in told
