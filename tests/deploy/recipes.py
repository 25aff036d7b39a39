"""What the tests of the recipes share: commands of containers as their programs would read them."""

import re
from collections.abc import Sequence
from pathlib import Path

from tests.processes import ROOT
from tests.test_documented_commands import RULES, Workplace

DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
SUPERVISOR = ("bash", "deploy/kubernetes/until_finished.sh")


def check_command(words: Sequence[str], place: Workplace, settings: Path) -> None:
    """Raise what the program of a command would answer to it; `settings` stands for the file that it names."""
    assert all((ROOT / word).exists() for word in words if re.match(r"deploy/|\w+\.(py|conf)$", word)), words
    words = words[len(SUPERVISOR) :] if tuple(words[: len(SUPERVISOR)]) == SUPERVISOR else words
    words = [str(settings) if Path(word).name == settings.name else word for word in words]
    text = " ".join(words)
    rule = next(rule for pattern, rule in RULES if re.match(pattern, text))
    assert callable(rule), text
    rule(tuple(words), place)
