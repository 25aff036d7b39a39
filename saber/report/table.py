"""A table of a report, written as HTML for the page and as LaTeX for a paper."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from textwrap import wrap
from typing import NamedTuple

GAP = "–"
_LONG_WORD = 20  # characters; longer ones, such as paths, may be broken anywhere
_PAGE_ROWS = 48  # of a tabular in LaTeX, which cannot be broken over pages
_LATEX_LINE = 60  # characters of a note that are not broken
_LATEX_TITLE = 12  # characters of a column's title that are not broken
_START = "{}"  # of what follows a "\\\\" in LaTeX, which would take a "[" or "*" there for an option of its own
_LATEX = {char: f"\\{char}" for char in "{}$&#_%"} | {"\\": "\\textbackslash{}"}
_LATEX |= {"^": "\\textasciicircum{}", "~": "\\textasciitilde{}", "<": "\\textless{}", ">": "\\textgreater{}"}
_LATEX |= {"–": "--", "“": "``", "”": "''", "×": "$\\times$"}


_BEGIN_FORMULAS = "=+-@＝＋－＠"
_NUMBER = re.compile(r"[-+]?[0-9][0-9,]*(\.[0-9]+)?(e[-+]?[0-9]+)?( %)?")


def inert(text: str) -> str:
    """Return a text that a spreadsheet takes for text: names from labels and folders may begin as formulas do."""
    first = next((char for char in text if char.isprintable() and not char.isspace()), " ")
    return f"'{text}" if first in _BEGIN_FORMULAS and not _NUMBER.fullmatch(text) else text


def _html(text: str) -> str:
    return escape(inert(text))


class Cell(NamedTuple):
    """Plain text, with a note in smaller letters; `block` puts the note below the text."""

    text: str = GAP
    note: str = ""
    block: bool = False


class Column(NamedTuple):
    """A column's title, and that of neighbouring columns together; plain text."""

    title: str
    group: str = ""


@dataclass(frozen=True)
class Row:
    """Its name and one cell a column; without cells it heads the rows below it."""

    name: str
    cells: Sequence[Cell] = ()
    note: str = ""  # of the name


@dataclass(frozen=True)
class Table:
    """Rows under columns; `name` is the title of the column of row names."""

    name: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    words: bool = False  # cells are words rather than numbers


def to_html(table: Table) -> str:
    """Write the table, which scrolls by itself where the window is narrow, and fits the width of a paper."""
    heads = "".join(f"<tr>{line}</tr>\n" for line in _html_head(table))
    lines = "".join(f"<tr>{_html_row(row, len(table.columns))}</tr>\n" for row in table.rows)
    kind = "words" if table.words else "numbers"
    size = " wide" if len(table.columns) > 8 else ""
    return (
        f'<div class="table {kind}{size}" tabindex="0"><table>\n<thead>\n{heads}</thead>\n<tbody>\n{lines}</tbody>\n'
        "</table></div>"
    )


def _html_head(table: Table) -> list[str]:
    titles = "".join(f'<th scope="col"{_long(column.title)}>{_html(column.title)}</th>' for column in table.columns)
    if not any(column.group for column in table.columns):
        return [f'<th scope="col">{_html(table.name)}</th>{titles}']
    spans = "".join(
        f'<th scope="colgroup" colspan="{span}">{_html(title)}</th>' for title, span in _groups(table.columns)
    )
    return [f'<th scope="col" rowspan="2">{_html(table.name)}</th>{spans}', titles]


def _html_row(row: Row, columns: int) -> str:
    name = _html(row.name) + _html_note(row.note)
    if not row.cells:
        return f'<th scope="rowgroup" colspan="{columns + 1}"{_long(row.name)}><div>{name}</div></th>'
    cells = (
        f"<td{_long(cell.text)}>{_html(cell.text)}{_html_note(cell.note, block=cell.block)}</td>" for cell in row.cells
    )
    return f'<th scope="row"{_long(row.name)}>{name}</th>{"".join(cells)}'


def _long(text: str) -> str:
    return ' class="long"' if max(map(len, text.split()), default=0) > _LONG_WORD else ""


def _html_note(note: str, *, block: bool = False) -> str:
    return f"{'<br>' if block else ' '}<small>{_html(note)}</small>" if note else ""


def _groups(columns: Iterable[Column]) -> list[tuple[str, int]]:
    """Titles over columns, each with the number of columns that it spans."""
    return [(title, len(list(members))) for title, members in groupby(column.group for column in columns)]


def to_latex(table: Table) -> str:
    r"""Write a `tabular`, or a `longtable` if it is longer than a page, to be read by \input."""
    long = len(table.rows) > _PAGE_ROWS
    kind = "longtable" if long else "tabular"
    first = "% Needs \\usepackage{longtable}." if long else "% Needs no package."
    align = ("l" if table.words else "r") * len(table.columns)
    lines = [
        f"{first} Long names may need a smaller font, or \\tabcolsep; names in other scripts than Latin, XeLaTeX.",
        f"{{\\scriptsize\\setlength{{\\tabcolsep}}{{3pt}}\n\\begin{{{kind}}}{{l{align}}}",
        "\\hline",
        *_latex_head(table),
        "\\hline" + "\n\\endhead" * long,
        *(_latex_row(row, len(table.columns)) for row in table.rows),
        "\\hline",
        f"\\end{{{kind}}}}}",
    ]
    return "\n".join(lines) + "\n"


def _latex_head(table: Table) -> list[str]:
    titles = " & ".join([_tex(table.name), *(_latex_title(column.title) for column in table.columns)])
    if not any(column.group for column in table.columns):
        return [f"{titles} \\\\"]
    spans = [f"\\multicolumn{{{span}}}{{c}}{{{_tex(title)}}}" for title, span in _groups(table.columns)]
    return [f"{' & '.join(['', *spans])} \\\\", f"{titles} \\\\"]


def _latex_title(title: str) -> str:
    lines = [_START + _escaped(line) for line in wrap(inert(title), _LATEX_TITLE, break_long_words=False)]
    return "\\shortstack{" + " \\\\ ".join(lines) + "}" if len(lines) > 1 else _tex(title)


def _latex_row(row: Row, columns: int) -> str:
    name = _tex(row.name) + _latex_note(row.note)
    if not row.cells:
        width = "p{0.9\\linewidth}" if len(row.note) > _LATEX_LINE else "l"
        return f"\\multicolumn{{{columns + 1}}}{{{width}}}{{\\textit{{{name}}}}} \\\\"
    return _START + " & ".join([name, *(_tex(cell.text) + _latex_note(cell.note) for cell in row.cells)]) + " \\\\"


def _latex_note(note: str) -> str:
    return f" {{\\tiny {_tex(note)}}}" if note else ""


def _tex(text: str) -> str:
    return _escaped(inert(text))


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(char, char) for char in text if char.isprintable())
