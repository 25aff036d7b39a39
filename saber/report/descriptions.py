"""What a reader must know of the settings of an agent's runs: what they share, and what changed or is unknown."""

from collections import Counter
from collections.abc import Sequence

from rainbow_iqn_apex.common.text import counted
from rainbow_iqn_apex.saber.report.groups import Group
from rainbow_iqn_apex.saber.report.runs import Run
from rainbow_iqn_apex.saber.report.settings import TOGETHER, applicable, is_atari

_OF_AGENT = {"architecture": "network", "hidden_size": "hidden units", "multi_step": "steps per return"}
_OF_IMAGES = {"architecture"}  # no record has whether another environment has images
_IN_RUN_TABLE = {"seed", "game"}  # of each run: what it is the run of


def describe_agent(group: Group) -> str:
    """Describe the agent, which is the same in all runs of the group with a record."""
    settings = group.settings
    if "agent" not in settings:
        return "Which agent it was is not recorded."
    parts = [str(settings["agent"])]
    known = settings.keys() - (set() if is_atari(settings) else _OF_IMAGES)
    parts += [f"{settings[name]} {what}" for name, what in _OF_AGENT.items() if name in known]
    parts += [f"{settings[TOGETHER]} in one run, whose frames are those of all"] if TOGETHER in settings else []
    parts += ["begun from weights of another run"] if settings.get("model", "none") != "none" else []
    return f"{', '.join(parts)}."


def value_counts(runs: Sequence[Run]) -> dict[str, Counter[str]]:
    """How many runs have each value of a setting at their newest start, by the setting's name."""
    counts: dict[str, Counter[str]] = {}
    for run in runs:
        for name, value in applicable(run.settings).items():
            if name not in _IN_RUN_TABLE:
                counts.setdefault(name, Counter())[str(value)] += 1
    return dict(sorted(counts.items()))


def format_values(counts: Counter[str], runs: int) -> str:
    """Write a setting's values: alone if all runs have it, else each with the number of runs that have it."""
    if len(counts) == 1 and counts.total() == runs:
        return next(iter(counts))
    missing = Counter({"not recorded": runs - counts.total()})
    texts = [f"{value} ({count} of {runs} runs)" for value, count in [*counts.most_common(), *(+missing).items()]]
    return ", ".join(texts)


def notes(groups: Sequence[Group]) -> list[str]:
    """Lines about settings that are not the same, or not known, in all runs of an agent and at all times."""
    return [
        f"{group.name}: {line}" if len(groups) > 1 else line for group in groups for line in _notes_of_runs(group.runs)
    ]


def _notes_of_runs(runs: Sequence[Run]) -> list[str]:
    known = [run for run in runs if run.record]
    lines = []
    if unknown := len(runs) - len(known):
        lines.append(f"no record of {unknown} of {counted(len(runs), 'run')}: how they were made is not known")
    names = {name for run in known for name in run.comparable}
    if partly := sorted(name for name in names if any(name not in run.comparable for run in known)):
        lines.append(f"only some of the runs with a record say what these settings were: {', '.join(partly)}")
    if changed := [run for run in runs if run.changed]:
        names = {name for run in changed for name in run.changed}
        lines.append(
            f"settings that changed when a run was resumed, in {len(changed)} of {counted(len(runs), 'run')}: "
            f"{', '.join(sorted(names))}"
        )
    return lines


def format_changes(run: Run) -> str:
    """Write what changed within a run, as in "lr 1.0, then 0.5"."""
    return "; ".join(f"{name} {', then '.join(map(str, values))}" for name, values in run.changed.items())
