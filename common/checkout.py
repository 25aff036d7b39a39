"""Which code runs: the release, and the commit of the checkout."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from rainbow_iqn_apex import __version__

ROOT = Path(__file__).resolve().parents[1]
_UNKNOWN = "unknown"
_Name = Annotated[str, Meta(pattern=r"\A[!-~]{1,100}\Z")]


@dataclass(frozen=True)
class Code:
    """Code that runs somewhere, as its processes tell others."""

    release: _Name
    commit: _Name  # without the mark of changed files; "unknown" outside of a checkout

    def differs_from(self, other: "Code") -> bool:
        """Return whether the two are known to differ."""
        commits = {self.commit, other.commit}
        return self.release != other.release or (len(commits) > 1 and _UNKNOWN not in commits)

    def __str__(self) -> str:
        return f"release {self.release}, commit {self.commit}"


def present() -> Code:
    """Return what runs here, as long as nobody changes the checkout: a process asks when it starts."""
    return Code(__version__, _hash())


def commit() -> str:
    """Return the checkout's short hash, with "+changes" if tracked files differ; "unknown" outside of a checkout.

    Results do not count: one that is written over changes nothing that the next measurement runs.
    """
    changes = _git("diff", "HEAD", "--name-only", "--", ".", ":!benchmarks/results", ":!results")
    return _hash() + ("+changes" if changes else "")


def _hash() -> str:
    return _git("describe", "--always", "--exclude=*", "--abbrev=12") or _UNKNOWN  # by no tag; clones shorten it unlike


def _git(*words: str) -> str:
    """Return what git says; empty if it fails: a missing hash must not cost the measurements."""
    around = os.environ | {"GIT_CEILING_DIRECTORIES": str(ROOT.parent)}  # installed, it may lie in another's checkout
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, env=around, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
