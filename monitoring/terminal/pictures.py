"""Pictures of a process, and of a whole run, for terminals of 40 columns and more."""

import time
from collections.abc import Callable

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rainbow_iqn_apex.monitoring import formats
from rainbow_iqn_apex.monitoring.overview import Overview
from rainbow_iqn_apex.monitoring.report import Report, title_of
from rainbow_iqn_apex.monitoring.view_model import (
    COLUMNS,
    Settings,
    alert_lines,
    first_score,
    first_update,
    known_scores,
    lines_of,
    score,
    serving_lines,
    waiting_lines,
)

_SMALL = 0.005  # share of the time that is not worth a line
_PART_WIDTH = 10  # of a part's bar, in characters
_AROUND = 18  # lines of a run's picture beside its processes
_STYLES = {"missing": "red", "silent": "red", "left": "dim", "starting": "yellow", "waiting": "yellow"}  # others: green
_NARROW = 60  # columns of a terminal, below which nothing stands side by side
_SHOWN = COLUMNS[:-1]  # what processes wait for stands below their table
_NUMBERS = ("rate", "version", "lag", "unread", "memory", "seen", "pid")
_FACTS: dict[str, tuple[tuple[str, str, formats.Writer], ...]] = {  # metrics, and how each is written
    "speed": (
        ("time/steps_per_second", "{} steps/s", formats.rate),
        ("actor/steps_per_second", "{} steps/s", formats.rate),
        ("time/fps", "{} frames/s", formats.rate),
    ),
    "buffer": (("buffer/fill", "{} full", formats.share), ("buffer/rows", "{} rows", formats.number)),
    "learning": (
        ("train/updates_per_second", "{} updates/s", formats.rate),
        ("train/loss", "loss {}", "{:.3g}".format),
    ),
    "weights": (("train/version", "version {}", formats.number), ("actor/version", "version {}", formats.number)),
    "unread": (("redis/unread", "messages: {}", formats.number), ("actor/unread", "messages: {}", formats.number)),
    "memory": (
        ("process/memory", "{}", formats.size),
        ("process/gpu_memory", "GPU {}", formats.size),
        ("redis/used_memory", "Redis {}", formats.size),
    ),
}
_LEFT_OUT = ("host", "pid", "memory", "version", "seen", "unread", "lag", "rate")  # in this order, for want of room


class _ByWidth:
    """Draws what a function makes for the columns that there are, and for those of the whole terminal."""

    def __init__(self, draw: Callable[[int, int], RenderableType]) -> None:
        self._draw = draw

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._draw(options.max_width, options.size.width)


def _either(wide: RenderableType, narrow: RenderableType) -> RenderableType:
    return _ByWidth(lambda _, terminal: narrow if terminal < _NARROW else wide)


def process_picture(report: Report, run: str, settings: Settings) -> RenderableType:
    """Return the picture of a learner or actor of a run with these settings."""
    return _panel(_body(report, settings), f"{title_of(report.role, report.number)} of run {run}")


def run_picture(overview: Overview, height: int) -> RenderableType:
    """Return the picture of a run, for a terminal of so many lines."""
    learner = overview.learner.report
    parts: list[RenderableType] = [Text(line, style="bold red") for line in alert_lines(overview)]
    if learner:
        actors = sum(process.role == "actor" for process in overview.processes)
        settings = overview.record.settings | {"nb_actor": max(1, actors)}
        parts = [_body(learner, settings, *parts, in_lockstep=overview.learner.state == "lockstep"), Text("")]
    parts.append(processes_table(overview, max(3, height - _AROUND)))
    return _panel(Group(*parts), f"run {overview.name}: {overview.status}")


def _body(report: Report, settings: Settings, *between: RenderableType, in_lockstep: bool = False) -> RenderableType:
    """Return the bar, what stands below it, and the facts beside the time, or above it on a narrow terminal."""
    facts = _facts(report, settings, in_lockstep=in_lockstep)
    time_tree = _time_tree(report)
    grid = Table.grid(padding=(0, 3), expand=True)
    grid.add_column(ratio=1)
    grid.add_column()
    grid.add_row(facts, time_tree)
    T_max = settings.get("T_max")
    bar = _bar(report, T_max if type(T_max) is int else 0)
    return Group(bar, *between, Text(""), _either(grid, Group(facts, Text(""), time_tree)))


def _table(rows: list[list[Text]], room: int) -> Table:
    """Return a table with the columns that there is room for; the least needed ones are left out first."""
    columns = dict(zip(_SHOWN, zip(*rows, strict=True), strict=False))
    widths = {name: max(len(name), *map(len, cells)) for name, cells in columns.items()}
    for name in _LEFT_OUT:
        if sum(widths.values()) + len(widths) - 1 > room:
            del widths[name]
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for name, width in widths.items():
        table.add_column(name, justify="right" if name in _NUMBERS else "left", no_wrap=True, min_width=width)
    for row in zip(*(columns[name] for name in widths), strict=True):
        table.add_row(*row)
    return table


def processes_table(overview: Overview, most: int) -> RenderableType:
    """Return a table of the first `most` processes of a run, those that need a look first if there are more."""
    lines = lines_of(overview)
    by_need = sorted(range(len(lines)), key=lambda place: lines[place].state not in ("missing", "silent"))
    shown = [lines[place] for place in sorted(by_need[:most])]
    rows = []
    for line in shown:
        texts = [Text(text) for text in line.cells()[:-1]]
        texts[1].stylize(_STYLES.get(line.state, "green"))
        rows.append(texts)
    more = [Text(line) for line in serving_lines(overview)]
    more += [Text(line, style="yellow") for line in waiting_lines(overview)]
    if hidden := len(lines) - len(shown):
        more.insert(0, Text(f"and {hidden} more: run_status.py shows all", style="dim"))
    return Group(_ByWidth(lambda room, _: _table(rows, room)), *more)


def _panel(content: RenderableType, title: str) -> RenderableType:
    return Panel(content, title=Text(title, style="bold"), title_align="left", border_style="blue", padding=(0, 1))


def _bar(report: Report, T_max: int) -> RenderableType:
    """Return the bar to T-max, with how far it is and how long it will take."""
    progress = min(1.0, max(0.0, report.values.get("time/progress", 0.0)))
    steps = report.values.get("train/timesteps", progress * T_max)
    left = report.values.get("time/remaining")
    parts = [formats.share(progress, 1), f"T = {formats.number(steps)} of {formats.number(T_max)}"]
    parts.append("no speed yet" if left is None else f"{formats.duration(left)} left")
    bar = ProgressBar(total=1.0, completed=progress)
    row = Table.grid(padding=(0, 2, 0, 0), expand=True)
    row.add_column(ratio=1)
    row.add_row(bar, *map(Text, parts))
    stacked = Table.grid(expand=True)
    stacked.add_row(bar)
    stacked.add_row(Text("  ".join(parts)))
    return _either(row, stacked)


def _facts(report: Report, settings: Settings, *, in_lockstep: bool) -> RenderableType:
    values = report.values
    facts = {"score": _score(report, settings), "known": known_scores(settings)}
    for fact, metrics in _FACTS.items():
        texts = (text.format(written(values[name])) for name, text, written in metrics if name in values)
        is_replay = fact == "buffer" and "buffer/priorities" in report.histograms
        facts["replay" if is_replay else fact] = ", ".join(texts)
    if not values.get("train/timesteps", 1):
        facts["learning"] = first_update(settings)
    facts["waits for"] = "its turn, in lockstep" if in_lockstep else report.waits_for or "nothing"
    if report.events:
        newest = report.events[-1]
        facts["newest"] = f"{newest.text}, {formats.duration(time.time() - newest.at)} ago"
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, min_width=max(map(len, facts)))
    grid.add_column()
    for name, text in facts.items():
        if text:
            alarming = name == "newest" and report.events[-1].is_alarm
            grid.add_row(Text(name, style="dim"), Text(text, style="red" if alarming else ""))
    return grid


def _score(report: Report, settings: Settings) -> str:
    values = report.values
    episodes = values.get("rollout/episodes", values.get("actor/episodes", 0))
    if (mean := values.get("rollout/ep_rew_mean")) is None:
        return f"no episode yet; the first score comes {first_score(settings)}"
    trend = score(mean, values.get("rollout/ep_rew_before"), arrow=True)
    text = f"{trend}, mean of {formats.number(min(100.0, max(1.0, episodes)))} episodes"
    evaluated = values.get("eval/mean_reward")
    return text if evaluated is None else f"{text}, evaluated {formats.number(evaluated, 2)}"


def _time_tree(report: Report) -> RenderableType:
    """Return what the process spends its time with, the largest part first."""
    parts = {name.removeprefix("share/"): part for name, part in report.values.items() if name.startswith("share/")}
    shown = sorted((part, name) for name, part in parts.items() if part >= _SMALL)[::-1]
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True, min_width=2 + max((len(name) for _, name in shown), default=0))
    grid.add_column(width=_PART_WIDTH)
    grid.add_column(justify="right", no_wrap=True, min_width=5)
    if shown:
        grid.add_row(Text("time", style="dim"))
    for row, (part, name) in enumerate(shown, 1):
        guide = "└ " if row == len(shown) else "├ "
        bar = ProgressBar(total=1.0, completed=min(1.0, part), width=_PART_WIDTH)
        grid.add_row(Text(guide + name.replace("_", " ")), bar, Text(formats.share(part)))
    return grid
