"""The tables of scores: over games, game by game, now, published, and of evaluations."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from rainbow_iqn_apex.common.text import counted
from rainbow_iqn_apex.environments.scores import MARKS
from rainbow_iqn_apex.saber.report.aggregates import Aggregate, Estimate
from rainbow_iqn_apex.saber.report.inputs import LIMITS, Run
from rainbow_iqn_apex.saber.report.results import WHOLE, Agent, Game, Results, differences
from rainbow_iqn_apex.saber.report.settings import ACTION_REPEAT, TOGETHER, applicable, format_value, is_atari
from rainbow_iqn_apex.saber.report.table import GAP, Cell, Column, Row, Table
from rainbow_iqn_apex.saber.results.task import BASELINES, COLUMNS, REFERENCES, Task, format_frames, format_points

_OF_AGENT = {"architecture": "network", "hidden_size": "hidden units", "multi_step": "steps per return"}
_OF_IMAGES = {"architecture"}  # no record has whether another environment has images
_EMULATOR = {"ale-py"}  # packages that other environments do not play with
_ORDER = tuple(reversed(LIMITS))  # what matters most is seen first
_PARTS = ("median", "mean", "IQM", "above", "games")
_IN_RUN_TABLE = {"seed", "game"}  # of each run: what it is the run of


def describe_agent(agent: Agent) -> str:
    """Describe the agent, which is the same in all of its runs with a record."""
    settings = agent.settings
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


def notes(agents: Sequence[Agent]) -> list[str]:
    """Lines about settings that are not the same, or not known, in all runs of an agent and at all times."""
    several = len(agents) > 1
    return [f"{agent.name}: {line}" if several else line for agent in agents for line in _notes_of_runs(agent.runs)]


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


def aggregate_table(results: Results) -> Table:
    """Our normalised scores over the games in common, the latest mark first; below, published agents on these games."""
    rows: list[Row] = []
    for mark in results.marks:
        rows.append(Row(f"{format_frames(mark)} frames", note=describe_games(results, mark, next(iter(REFERENCES)))))
        for limit in _ORDER:
            for agent in results.compared(mark):
                found = [results.aggregates[agent.name, mark, limit, reference] for reference in REFERENCES]
                name = results.protocols.limit_name(limit) + f", {agent.name}" * (len(results.agents) > 1)
                made = [run for run in agent.runs if run.task.is_atari]
                having = sum(len(game.scores(mark, WHOLE)) for task, game in agent.games.items() if task.is_atari)
                note = f"{having} of {len(made)} runs" if having < len(made) else ""
                rows += [Row(name, _aggregate_cells(found), note)] if any(found) else []
    columns = [Column(part, f"100 % = {label}") for label in REFERENCES.values() for part in _PARTS]
    return Table("", columns, [*rows, *_published_rows(results)])


def _published_rows(results: Results) -> list[Row]:
    if results.mark is None:
        return []
    rows = []
    for column, about in COLUMNS.items():
        found = [results.published_aggregates[results.mark, column, reference] for reference in REFERENCES]
        if any(found):
            rows.append(Row(about.label, _aggregate_cells(found)))
    heading = Row(
        "published", note=f"on the games counted at {format_frames(results.mark)} frames, as far as they have them"
    )
    return [heading, *rows] if rows else []


def describe_games(results: Results, mark: int, reference: str) -> str:
    """Say over which games agents are compared at a mark by a reference, and which are left out of the comparison."""
    common = results.common(mark, reference)
    games = counted(len(common), "game")
    agents = results.compared(mark)
    if len(agents) == 1:
        return games if len(results.agents) == 1 else f"{games}, {agents[0].name} alone"
    others = {task for agent in agents for task in agent.normalised(mark, WHOLE, reference)} - set(common)
    left_out = f"; not all have {', '.join(task.title for task in sorted(others))}" if others else ""
    all_of_them = "both agents" if len(agents) == 2 else f"all {len(agents)} agents"
    return f"over the {games} that {all_of_them} here have a score of{left_out}"


def _aggregate_cells(found: Iterable[Aggregate | None]) -> list[Cell]:
    cells = []
    for one in found:
        if one is None:
            cells += [Cell()] * len(_PARTS)
        else:
            estimates = (one.median, one.mean, one.iqm)
            cells += [_estimate(part, lambda share: f"{100 * share:,.1f}", " %") for part in estimates]
            cells += [Cell(str(one.above)), Cell(str(one.games))]
    return cells


def _estimate(estimate: Estimate, write: Callable[[float], str], unit: str = "") -> Cell:
    low, high = estimate.low, estimate.high
    interval = "" if low is None or high is None else f"[{write(low)}, {write(high)}]"
    return Cell(write(estimate.value) + unit, interval, block=True)


def game_table(results: Results) -> Table:
    """Scores of the emulator's games at the marks, the latest first, with a gap where no run of an agent has one."""
    columns = []
    for mark in results.marks:
        group = f"{format_frames(mark)} frames"
        columns += [Column(results.protocols.limit_name(limit), group) for limit in _ORDER]
        columns += [Column(f"% {label}", group) for label in REFERENCES.values()] if mark == results.mark else []
    return Table("game", columns, _rows_of_games(results, results.atari, lambda game: _mark_cells(results, game)))


def _rows_of_games(results: Results, tasks: Sequence[Task], cells: Callable[[Game], list[Cell]]) -> list[Row]:
    """A row for each game; of several agents each one that has played the game has a row below the game's name."""
    rows = []
    for task in tasks:
        found = [(agent, cells(game)) for agent in results.agents if (game := agent.games.get(task))]
        kept = [(agent, row) for agent, row in found if row]
        if len(results.agents) == 1:
            rows += [Row(task.title, row) for _, row in kept]
        elif kept:
            rows += [Row(task.title), *(Row(agent.name, row) for agent, row in kept)]
    return rows


def _mark_cells(results: Results, game: Game) -> list[Cell]:
    cells = []
    for mark in results.marks:
        having = len(game.scores(mark, WHOLE))
        note = f"{having} of {len(game.runs)}" if 0 < having < len(game.runs) else ""
        cells += [_points(game.mean(mark, limit), note) for limit in _ORDER]
        if mark == results.mark:
            shares = [game.normalised(mark, WHOLE, reference) for reference in REFERENCES]
            cells += [_percent(None if share is None else float(share.mean())) for share in shares]
    return cells


def now_table(results: Results) -> Table:
    """Scores of runs that have none at a mark, with the frames that they have made."""
    columns = [Column(results.protocols.limit_name(limit), "now") for limit in _ORDER]
    columns += [Column(f"% {label}", "now") for label in REFERENCES.values()]
    columns += [Column(title, "now") for title in ("frames", "episodes", "runs")]
    return Table("game", columns, _rows_of_games(results, results.atari, _now_cells))


def _now_cells(game: Game) -> list[Cell]:
    if not game.now:
        return []
    means = {limit: game.now_mean(limit) for limit in LIMITS}
    table = game.task.scores
    shares = [table.normalised(means[WHOLE], reference) if table else None for reference in REFERENCES]
    return [*(_points(means[limit]) for limit in _ORDER), *map(_percent, shares), *_now_counts(game)]


def _now_counts(game: Game) -> list[Cell]:
    counts = ([now.frames for now in game.now], [now.episodes for now in game.now])
    return [*(Cell(_span(one)) for one in counts), Cell(str(len(game.now)))]


def _span(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def other_table(results: Results) -> Table:
    """Scores of environments that are no games of the emulator: of whole episodes, at the marks and now."""
    games = [agent.games[task] for task in results.others for agent in results.agents if task in agent.games]
    marks = [mark for mark in reversed(MARKS) if any(game.mean(mark, WHOLE) is not None for game in games)]
    short = any(game.now for game in games)
    columns = [Column("score", f"{format_frames(mark)} steps") for mark in marks]
    columns += [Column(title, "now") for title in ("score", "agent steps", "episodes", "runs")] if short else []
    has_humans = any(game.human_share is not None for game in games)
    columns = [Column("% human", "newest"), *columns] if has_humans else columns

    def cells(game: Game) -> list[Cell]:
        found = [_percent(game.human_share)] * has_humans + [_points(game.mean(mark, WHOLE)) for mark in marks]
        now = [_points(game.now_mean(WHOLE)), *_now_counts(game)] if game.now else [Cell()] * 4
        return found + now * short

    return Table("environment", columns, _rows_of_games(results, results.others, cells))


def reference_table(results: Results) -> Table:
    """The random agent's, the human's, the record's and all published scores of our games, in points."""
    columns = [Column(name.replace("_", " ")) for name in BASELINES]
    columns += [Column(about.label, "published") for about in COLUMNS.values()]
    rows = []
    for task in results.atari:
        if table := task.scores:
            cells = [_points(value) for value in (table.random, table.human, table.world_record)]
            rows.append(Row(task.title, [*cells, *(_points(table.published.get(column)) for column in COLUMNS)]))
    return Table("game", columns, rows)


def evaluation_table(results: Results, *, atari: bool) -> Table:
    """Means of evaluated snapshots, in points; `atari` selects those of the emulator's games, or the others."""
    limits = _ORDER if atari else (WHOLE,)
    names = {"saber": "whole episodes", "30min": "30 min", "5min": "5 min"}
    titles = [*(f"mean, {names[limit]}" for limit in limits), "episodes", "frames" if atari else "agent steps"]
    titles += ["snapshot", "agent", "rules", "seed", "file"]
    rows = []
    for one in results.evaluations:
        if one.task.is_atari == atari:
            means = [_estimate(one.estimates[limit], format_points) for limit in limits]
            asked = f"{len(one.scores):,}" + f" of {one.record.episodes:,}" * (len(one.scores) < one.record.episodes)
            frames = "not recorded" if one.frames is None else f"{one.frames:,}"
            words = [one.snapshot, results.agent_of(one) or GAP, one.protocol, str(one.record.seed), one.name]
            rows.append(Row(one.task.title, [*means, *map(Cell, (asked, frames, *words))]))
    return Table("game" if atari else "environment", [Column(title) for title in titles], rows, words=True)


def _points(score: float | None, note: str = "") -> Cell:
    return Cell() if score is None else Cell(format_points(score), note)


def _percent(share: float | None) -> Cell:
    return Cell() if share is None else Cell(f"{100 * share:,.{1 if abs(share) >= 0.01 else 2}f}")


def run_table(results: Results) -> Table:
    """How each run was made."""
    changed = any(run.changed for run in results.runs)
    titles = [*(["agent"] if len(results.agents) > 1 else []), "seed", *(["frames"] if results.atari else [])]
    titles += ["agent steps", "episodes", "commit", *(["changed"] if changed else []), "log"]
    rows = []
    for agent in results.agents:
        for run in agent.runs:
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
    for setting, values in differences(results.agents).items():
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
    found = [(agent, value_counts(agent.runs)) for agent in results.agents]
    rows = [
        Row(
            name,
            [
                Cell(
                    format_values(counts[name], len(agent.runs))
                    if name in counts
                    else format_value(name, agent.settings, agent.options)
                )
                for agent, counts in found
            ],
        )
        for name in sorted({name for _, counts in found for name in counts})
    ]
    columns = [Column(agent.name if len(results.agents) > 1 else "value") for agent in results.agents]
    return Table("setting", columns, rows or [Row("unknown", [Cell()] * len(columns))], words=True)


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
