"""The tables of how scores were made: runs, settings, differences of agents, versions, and sources of other scores."""

from collections import Counter
from collections.abc import Mapping

from rainbow_iqn_apex.saber.report.descriptions import format_changes, format_values, value_counts
from rainbow_iqn_apex.saber.report.groups import Group, differences
from rainbow_iqn_apex.saber.report.results import Results
from rainbow_iqn_apex.saber.report.runs import ACTION_REPEAT, Run
from rainbow_iqn_apex.saber.report.settings import format_value
from rainbow_iqn_apex.saber.report.table import GAP, Cell, Column, Row, Table
from rainbow_iqn_apex.saber.results.atari_scores import BASELINES, COLUMNS, format_frames

_EMULATOR = {"ale-py"}  # packages that other environments do not play with


def run_table(results: Results) -> Table:
    """How each run was made."""
    changed = any(run.changed for run in results.runs)
    titles = [*(["agent"] if len(results.agents) > 1 else []), "seed", *(["frames"] if results.atari else [])]
    titles += ["agent steps", "episodes", "commit", *(["changed"] if changed else []), "log"]
    rows = []
    for agent in results.agents:
        for run in agent.group.runs:
            cells = _run_cells(run) | {"agent": agent.name}
            rows.append(Row(run.task.title, [Cell(cells[title]) for title in titles]))
    name = "game" if not results.others else "environment"
    return Table(name, [Column(title) for title in titles], rows, words=True)


def _run_cells(run: Run) -> dict[str, str]:
    starts = run.record.starts if run.record else ()
    assumed = "" if run.record or not run.task.is_atari else f" ({ACTION_REPEAT} frames each assumed)"
    return {
        "seed": str(run.settings.get("seed", "unknown")),
        "frames": f"{run.reached:,}" if run.task.is_atari else GAP,
        "agent steps": f"{run.reached // run.frames_per_step:,}{assumed}",
        "episodes": f"{len(run.frames):,}",
        "commit": ", ".join(dict.fromkeys(start.commit for start in starts)) or "unknown",
        "changed": format_changes(run) or GAP,
        "log": run.name,
    }


def difference_table(results: Results, *, shared: bool) -> Table:
    """The settings in which agents differ: those that all have, or the others below the names of who has them."""
    names = [agent.name for agent in results.agents]
    found: dict[tuple[str, ...], list[Row]] = {}
    for setting, values in differences(results.groups).items():
        having = tuple(name for name, value in zip(names, values, strict=True) if value != GAP)
        found.setdefault(having, []).append(Row(setting, [Cell(value) for value in values]))
    common = found.pop(tuple(names), [])
    others = [
        row
        for having in sorted(found, key=lambda having: [name not in having for name in names])
        for row in (Row(", ".join(having)), *found[having])
    ]
    rows = common if shared else others
    return Table("setting", [Column(agent.name) for agent in results.agents], rows, words=True)


def setting_table(results: Results) -> Table:
    """All settings that take part in the runs, for each agent: with one value, or with how many runs have each."""
    found = [value_counts(agent.group.runs) for agent in results.agents]
    names = sorted({name for counts in found for name in counts})
    rows = [
        Row(
            name,
            [Cell(_values(name, counts, agent.group)) for agent, counts in zip(results.agents, found, strict=True)],
        )
        for name in names
    ]
    columns = [Column(agent.name if len(results.agents) > 1 else "value") for agent in results.agents]
    return Table("setting", columns, rows or [Row("unknown", [Cell()] * len(columns))], words=True)


def _values(name: str, counts: Mapping[str, Counter[str]], group: Group) -> str:
    if name in counts:
        return format_values(counts[name], len(group.runs))
    return format_value(name, group.settings, group.options)


def version_table(results: Results) -> Table:
    """Versions of what the runs were made with, and in how many runs each; ale-py is the emulator."""
    counts: Counter[tuple[str, str]] = Counter()
    for run in results.runs:
        starts = run.record.starts if run.record else ()
        found = {item for start in starts for item in start.versions.items()}
        counts.update(item for item in found if run.task.is_atari or item[0] not in _EMULATOR)
    rows = [
        Row(name, [Cell(text), Cell(f"{count} of {len(results.runs)}")])
        for (name, text), count in sorted(counts.items())
    ]
    return Table("package", [Column("version"), Column("runs")], rows or [Row("unknown", [Cell(), Cell()])])


def source_table() -> Table:
    """Where every number that is not ours is from."""
    rows = [Row(name.replace("_", " "), [Cell(""), Cell(""), Cell(source)]) for name, source in BASELINES.items()]
    rows += [
        Row(about.agent, [Cell(about.protocol), Cell(format_frames(about.frames)), Cell(about.source)])
        for about in COLUMNS.values()
    ]
    return Table("column", [Column("protocol"), Column("frames"), Column("source")], rows, words=True)
