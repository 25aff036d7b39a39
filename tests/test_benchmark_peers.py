"""The comparisons of speed run, and say where; packages to compare with need not be there."""

import json
from pathlib import Path

import pytest

from tests.processes import run


@pytest.mark.slow
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
    code, out, errors = run("-m", "benchmarks", benchmark, *words, seconds=300)
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
