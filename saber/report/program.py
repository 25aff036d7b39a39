"""Writes a report, as `saber_report.py` asks: page, JSON, figures as SVG, numbers as CSV, tables as LaTeX."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.files import folder_to_write, write_file
from rainbow_iqn_apex.common.text import encodable
from rainbow_iqn_apex.saber.report import tables
from rainbow_iqn_apex.saber.report.exports import all_exports, contents
from rainbow_iqn_apex.saber.report.figures import curve_figure, normalised_figures
from rainbow_iqn_apex.saber.report.inputs import TABLES, Label, read_inputs
from rainbow_iqn_apex.saber.report.results import Results
from rainbow_iqn_apex.saber.report.sections import extent, render_report
from rainbow_iqn_apex.saber.report.settings import AgentOptions
from rainbow_iqn_apex.saber.report.svg import to_svg
from rainbow_iqn_apex.saber.report.table import to_latex
from rainbow_iqn_apex.saber.report.tables import notes

FIGURES = "saber_figures"
_LONGEST = 80  # bytes of a task in the name of a file, which most file systems limit to 255 bytes
_WIDE = 900  # pixels of a figure
_CURVE = (480, 320)


def write_report(
    paths: Sequence[Path], folder: Path, labels: Sequence[Label] = (), options: AgentOptions | None = None
) -> list[str]:
    """Write the report of these folders and logs into `folder`; returns what to print about it, line by line.

    Without the agents' own `options`, a setting that an agent does not have counts as not recorded.

    Raises UserError for paths that cannot be reported, OSError if the files cannot be written.
    """
    results = Results(read_inputs(paths, labels), options)
    pages = {
        "saber.json": json.dumps(contents(results), indent=1, allow_nan=False) + "\n",
        "saber.html": render_report(results),
    }
    folder_to_write("--output", folder)
    _write(folder, pages)
    _write_all(folder / FIGURES, render_figures(results))
    _write_all(folder / TABLES, render_tables(results))
    lines = [f"note: {line}" for line in notes(results.agents)]
    lines += [f"left out: {line}" for line in results.left_out]
    lines += [f"agent: {agent.name}" for agent in results.agents] if len(results.agents) > 1 else []
    written = [*sorted(pages), f"{FIGURES}/", f"{TABLES}/"]
    lines.append(f"{extent(results)}: {', '.join(f'{folder}/{name}' for name in written)}")
    return [encodable(line) for line in lines]


def render_figures(results: Results) -> dict[str, str]:
    """Every figure as SVG, by the name of its file."""
    texts = {
        f"{name}.svg": to_svg(figure, _WIDE, figure.height or 0) for name, figure in normalised_figures(results).items()
    }
    for number, task in enumerate(results.tasks):
        name = re.sub(r"[^\w.-]", "-", task.key).encode()[:_LONGEST].decode(errors="ignore")
        unique = name if f"curve-{name}.svg" not in texts else f"{name}-{number}"
        texts[f"curve-{unique}.svg"] = to_svg(curve_figure(results, task), *_CURVE)
    return texts


def render_tables(results: Results) -> dict[str, str]:
    """Write numbers as CSV for programs, and tables of scores as LaTeX for papers, by the name of the file."""
    written = {
        "aggregates": tables.aggregate_table(results),
        "games": tables.game_table(results),
        "now": tables.now_table(results),
        "environments": tables.other_table(results),
        "published": tables.reference_table(results),
        "evaluations_atari": tables.evaluation_table(results, atari=True),
        "evaluations": tables.evaluation_table(results, atari=False),
        "differences": tables.difference_table(results, shared=True),
        "differences_of_own_settings": tables.difference_table(results, shared=False),
    }
    latex = {f"{name}.tex": to_latex(table) for name, table in written.items() if table.rows}
    return all_exports(results) | latex


def _write_all(folder: Path, files: dict[str, str]) -> None:
    """Write the files, and remove those of an older report from the folder, which is no one else's."""
    if folder.is_symlink():
        raise UserError(f"--output: {folder} is a link, and old files of a report are deleted there; remove the link")
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        if old.suffix in (".svg", ".csv", ".tex") and old.name not in files:
            old.unlink()
    _write(folder, files)


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        write_file(folder / name, encodable(text).encode())
