"""The commit that records and reports name."""

import subprocess
from pathlib import Path

import pytest

from rainbow_iqn_apex.saber.results import run_record


def test_results_of_measurements_are_no_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutations: drop `:!benchmarks/results`, or `:!results`.
    monkeypatch.setattr(run_record, "ROOT", tmp_path)
    assert run_record.commit() == "unknown"
    code = tmp_path / "args.py"
    written = [code, tmp_path / "benchmarks" / "results" / "speed.json", tmp_path / "results" / "runs" / "pong.csv"]
    for path in written:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
    person = ["-c", "user.name=one", "-c", "user.email=one@example.com"]
    for words in (["init", "--quiet"], ["add", "."], [*person, "commit", "--quiet", "--message", "all"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (tmp_path / "untracked.py").write_text("1")
    for path in written[1:]:
        path.write_text("2")
    clean = run_record.commit()
    assert len(clean) >= 7
    assert "+" not in clean
    code.write_text("2")
    assert run_record.commit() == f"{clean}+changes"
