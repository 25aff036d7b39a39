"""What the settings of a report's runs have in common, and what a reader must know of where they differ."""

from collections import Counter
from collections.abc import Sequence

from saber.report.runs import Run

_OF_AGENT = {"architecture": "network", "hidden_size": "hidden units", "multi_step": "steps per return"}
_IN_RUN_TABLE = {"seed", "game"}  # of each run: what it is the run of


def describe_agent(runs: Sequence[Run]) -> str:
    """What has learned, which is the same in all runs with a record."""
    run = next((run for run in runs if "rainbow_only" in run.settings), None)
    if run is None:
        return "Which agent it was is not recorded."
    settings = run.settings
    parts = ["Rainbow" if settings["rainbow_only"] else "Rainbow-IQN"]
    parts += [f"{settings[name]} {what}" for name, what in _OF_AGENT.items() if name in settings]
    parts += ["begun from weights of another run"] if run.begun_from is not None else []
    return f"{', '.join(parts)}."


def value_counts(runs: Sequence[Run]) -> dict[str, Counter[str]]:
    """How many runs have each value of a setting at their newest start, by the setting's name."""
    counts: dict[str, Counter[str]] = {}
    for run in runs:
        for name in run.settings.keys() - _IN_RUN_TABLE:
            counts.setdefault(name, Counter())[str(run.settings[name])] += 1
    return dict(sorted(counts.items()))


def format_values(counts: Counter[str], runs: int) -> str:
    """Write a setting's values: alone if all runs have it, else each with the number of runs that have it."""
    if len(counts) == 1 and counts.total() == runs:
        return next(iter(counts))
    missing = Counter({"not recorded": runs - counts.total()})
    texts = [f"{value} ({count} of {runs} runs)" for value, count in [*counts.most_common(), *(+missing).items()]]
    return ", ".join(texts)


def notes(runs: Sequence[Run]) -> list[str]:
    """Lines about settings that are not the same, or not known, in all runs and at all times."""
    known = [run for run in runs if run.record]
    lines = []
    if unknown := len(runs) - len(known):
        lines.append(f"{unknown} of {_counted(runs)} have no record: how they were made is not known")
    partly = [name for name, counts in value_counts(known).items() if counts.total() < len(known)]
    if partly:
        lines.append(f"only some of the runs with a record say what these settings were: {', '.join(partly)}")
    if changed := [run for run in runs if run.changed]:
        names = sorted({name for run in changed for name in run.changed})
        lines.append(
            f"settings that changed when a run was resumed, in {len(changed)} of {_counted(runs)}: {', '.join(names)}"
        )
    return lines


def format_changes(run: Run) -> str:
    """Write what changed within a run, as in "lr 1.0, then 0.5"."""
    return "; ".join(f"{name} {', then '.join(map(str, values))}" for name, values in run.changed.items())


def _counted(runs: Sequence[Run]) -> str:
    return f"{len(runs)} run{'s' * (len(runs) > 1)}"
