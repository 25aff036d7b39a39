"""The commit that records and reports name, and code that differs from other code."""

import subprocess
from pathlib import Path

import pytest

from rainbow_iqn_apex.common import checkout


def test_results_of_measurements_are_no_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutations: drop `:!benchmarks/results`, or `:!results`.
    monkeypatch.setattr(checkout, "ROOT", tmp_path)
    assert checkout.commit() == "unknown"
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
    clean = checkout.commit()
    assert len(clean) == 12, "as in every clone: git's own choice depends on how much a clone has"
    assert "+" not in clean
    code.write_text("2")
    assert checkout.commit() == f"{clean}+changes"


@pytest.mark.parametrize(("other", "differs"), [
    (("1.0.0", "aaa"), False),
    (("1.0.0", "bbb"), True),
    (("1.0.0", "unknown"), False),  # installed, so nobody knows
    (("1.0.1", "aaa"), True),
    (("1.0.1", "unknown"), True),
])  # fmt: skip
def test_code_that_is_not_known_to_differ_is_the_same(other: tuple[str, str], differs: bool) -> None:
    here, there = checkout.Code("1.0.0", "aaa"), checkout.Code(*other)
    assert here.differs_from(there) == there.differs_from(here) == differs
