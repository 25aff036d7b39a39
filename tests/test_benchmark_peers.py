"""The comparisons of speed run, and say where; packages to compare with need not be there."""

import json
from pathlib import Path

import pytest

from benchmarks.mixture import CANDIDATES, MIXES
from rainbow_iqn_apex.args import parse
from rainbow_iqn_apex.memory.mixture.elite import nb_candidates
from tests.processes import run


@pytest.mark.parametrize(
    ("benchmark", "firsts"),
    [
        ("replay", {"copying": "copy of 116 MB", "sample 32": "gather alone", "sample 512": "gather alone"}),
        ("environment", {"space_invaders": "raw ale.act", "processes": "ours, one process"}),
    ],
)
def test_a_quick_comparison_prints_tables_and_writes_them(
    benchmark: str, firsts: dict[str, str], tmp_path: Path
) -> None:
    words = ["--quick", "--repeats", "2", "--json", tmp_path / "found.json"]
    code, out, errors = run("-m", f"benchmarks.{benchmark}", *words, seconds=300)
    assert code == 0, errors
    assert any(line.startswith("| ours |") for line in out.splitlines())
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["machine"]["cores"] > 0 and found["commit"]
    comparisons = {comparison["name"]: comparison for comparison in found["comparisons"]}
    assert comparisons.keys() >= firsts.keys()
    for name, comparison in comparisons.items():
        assert f"| {name} | rate" in out
        first, *others = comparison["rates"]
        assert first["name"] == firsts.get(name, "ours, sample") and first["ratios"] == [1.0, 1.0]
        for rate in others:
            assert rate["ratios"] == pytest.approx([a / b for a, b in zip(rate["rates"], first["rates"], strict=True)])
        assert comparison["wanted"].keys() <= {rate["name"] for rate in others}


@pytest.mark.slow
def test_agents_are_compared_with_their_own_products(tmp_path: Path) -> None:
    words = ["--quick", "--repeats", "2", "--json", tmp_path / "found.json"]
    code, out, errors = run("-m", "benchmarks.families", *words, seconds=600)
    assert code == 0, errors
    assert "through the queue: " in out
    comparisons = {found["name"]: found for found in json.loads((tmp_path / "found.json").read_text())["comparisons"]}
    for environments in (1, 8, 16):
        alone = comparisons[f"act for {environments}, r2d2"]["rates"]
        together = {rate["name"]: rate for rate in comparisons[f"act for {environments}"]["rates"]}
        assert [rate["name"] for rate in alone] == ["products of r2d2", "r2d2"]
        assert together["r2d2"]["rates"] == alone[1]["rates"]
        for rate, first in ((alone[1], alone[0]), (together["r2d2"], together["impala"])):
            assert rate["ratios"] == pytest.approx([a / b for a, b in zip(rate["rates"], first["rates"], strict=True)])
    assert sum(name.startswith("update with ") for name in comparisons) == 6
    assert comparisons["sample 64 x 128 rows"]["wanted"] == {"ours, all fields": 0.8}


@pytest.mark.parametrize("updates", [0, 1, 1_000_000])
def test_candidates_of_the_mixtures_do_not_become_fewer(updates: int) -> None:
    words = f"--agent impala {MIXES['queue and elite 1']}".format(capacity=500).split()
    own = parse(words, "mixture", "").own.sampling  # type: ignore[attr-defined]
    found = [nb_candidates(n, own.candidates, updates, own.annealed_over, 500) for n in (4, 16)]
    assert found == [4 * CANDIDATES, 16 * CANDIDATES]


@pytest.mark.slow
def test_mixtures_are_compared_with_the_queue_and_by_their_parts(tmp_path: Path) -> None:
    words = ["--quick", "--repeats", "2", "--json", tmp_path / "found.json"]
    code, out, errors = run("-m", "benchmarks.mixture", *words, seconds=600)
    assert code == 0, errors
    assert "distances of 24 x 3 x 8: difference in float64 " in out and " µs" in out
    comparisons = {found["name"]: found for found in json.loads((tmp_path / "found.json").read_text())["comparisons"]}
    updates, ahead, paper, distances, drawn = comparisons.values()
    names = [rate["name"] for rate in updates["rates"]]
    assert names == [*MIXES, "queue alone, 4 sequences", "queue alone, 8 sequences"]
    assert [rate["name"] for rate in ahead["rates"]][:2] == ["queue and uniform", "queue and uniform, 4 ahead"]
    assert paper["rates"][-1]["name"] == "queue alone, 32 sequences"
    assert [rate["name"] for rate in distances["rates"]][1:] == ["p-norm", "cosine", "kl"]
    assert drawn["name"] == "draw 4 of 60 sequences"
    for found in (updates, ahead, paper):
        first, *others = found["rates"]
        assert first["name"] == "queue and uniform" and first["ratios"] == [1.0, 1.0]
        for rate in others:
            assert rate["ratios"] == pytest.approx([a / b for a, b in zip(rate["rates"], first["rates"], strict=True)])
