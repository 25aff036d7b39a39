"""The training log `<game>.csv`: one line per finished training episode of all actors, each written exactly once."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from io import BytesIO
from itertools import takewhile
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from rainbow_iqn_apex.common.files import named_in_errors, read_regular, write_file
from rainbow_iqn_apex.common.schema import parse
from rainbow_iqn_apex.environments.entries import entry_of
from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.saber.results.recent_scores import LOOKED_AT
from rainbow_iqn_apex.saber.results.summary import ScoreCurve

Line = TypeVar("Line")  # a dataclass of numbers and words


def names_of(kind: type[Any]) -> list[str]:
    """Return the columns of a CSV of such lines."""
    return [field.name for field in fields(kind)]


def header_of(kind: type[Any]) -> str:
    """Return the first line of a CSV of such lines, without its newline."""
    return ",".join(names_of(kind))


HEADER = header_of(EpisodeRecord)


class TrainingLog:
    """The episodes of one run: all on disk, and the newest and a curve in memory; the learner is the only writer.

        log = TrainingLog(folder / f"{game}.csv")
        new = log.append(records)      # on disk when the call returns

    A resumed learner reads old experience again, with episodes that the log has already. Episodes of one environment
    are numbered upwards, so `append` ignores episodes that are not newer than the newest logged one.

    After `go_back` the episodes behind some place in the file are no `records`, but stay in the file until they come
    again. Then they are logged with the values and in the order in which they come. The file never loses an episode.
    """

    record_type: ClassVar[type[EpisodeRecord]] = EpisodeRecord

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pending: list[EpisodeRecord] = []  # in the file, and expected again
        content = _read_or_create(path, self.record_type)
        self._begin(_each(content, path, self.record_type), 1)  # first: a foreign file is refused before it is cut
        self.size = _cut_torn_line(path, content)  # bytes of the header and of the lines that are not expected again

    def _begin(self, lines: Iterable[EpisodeRecord], entries: int) -> None:
        self.episodes = 0  # in the log, but for those that are expected again
        self.played = 0  # the most agent steps over all actors after which one of them ended
        self.curves = [ScoreCurve() for _ in range(entries)]
        self._records: list[EpisodeRecord] = []
        self._newest: dict[tuple[int, int], int] = {}  # (actor, env) -> greatest episode number in the log
        self._add(lines)

    def _add(self, records: Iterable[EpisodeRecord]) -> None:
        for record in records:
            key = (record.actor, record.env)
            self._newest[key] = max(record.episode, self._newest.get(key, record.episode))
            self.episodes += 1
            self.played = max(self.played, record.T_actors)
            self.curves[entry_of(record, len(self.curves))].add([record])
            self._records.append(record)
            if len(self._records) >= 2 * LOOKED_AT:
                self._records = self._records[LOOKED_AT:]  # another list, as other threads may be reading this one

    def part(self, entries: int) -> None:
        """Keep a curve for each of so many games or environments that the run plays."""
        if entries != len(self.curves):
            content = read_regular(self.path)[: self.size]
            self._begin(_each(content, self.path, self.record_type), entries)

    def go_back(self, size: int) -> None:
        """Expect again the episodes logged after the file had this `size`; ignore a number that was never its size."""
        content = read_regular(self.path)
        if content[:size].endswith(b"\n"):
            self._begin(_each(content[:size], self.path, self.record_type), len(self.curves))
            header = header_of(self.record_type).encode()
            self._pending = parse_csv(header + b"\n" + content[size:], self.path, self.record_type)
            self.size = min(size, len(content))

    def settle(self, nb_actor: int) -> None:
        """Keep the next expected episodes as they are, if their actors, `nb_actor` and above, have left."""
        settled = list(takewhile(lambda record: record.actor >= nb_actor, self._pending))
        if settled:
            self._pending = self._pending[len(settled) :]
            self.size += len(_format(settled))
            self._add(settled)

    @property
    def records(self) -> Sequence[EpisodeRecord]:
        """Return the newest episodes, at least `LOOKED_AT` if there are as many, in the order of the file."""
        return self._records

    def newest(self, actor: int, env: int) -> int | None:
        """Return the greatest episode number of an environment, None if none of its episodes is logged."""
        return self._newest.get((actor, env))

    def append(self, records: Sequence[EpisodeRecord]) -> list[EpisodeRecord]:
        """Write the episodes that are not logged yet, in order, and return them."""
        newest = dict(self._newest)
        fresh = []
        for record in records:
            key = (record.actor, record.env)
            if key not in newest or record.episode > newest[key]:
                newest[key] = record.episode
                fresh.append(record)
        if fresh:
            self._write(fresh)
            self._add(fresh)
        return fresh

    def _write(self, fresh: list[EpisodeRecord]) -> None:
        data, came = _format(fresh), set(map(_key, fresh))
        pending = [record for record in self._pending if _key(record) not in came]
        if not self._pending:
            _append_bytes(self.path, data)
        else:
            content = read_regular(self.path)
            if not content.startswith(data, self.size):  # after a kill, the file holds the same lines already
                write_file(self.path, content[: self.size] + data + _format(pending))
        self._pending = pending
        self.size += len(data)


def read_records(path: Path, folder: Path | None = None) -> list[EpisodeRecord]:
    """Read a training log without changing it; leave out a last line without its newline, which is being written.

    Raises ValueError for any other file, OSError as `read_regular`.
    """
    return parse_csv(read_regular(path, folder), path, EpisodeRecord)


def _key(record: EpisodeRecord) -> tuple[int, int, int]:
    return record.actor, record.env, record.episode


def _format(records: Sequence[EpisodeRecord]) -> bytes:
    return "".join(map(format_line, records)).encode("ascii")


def format_line(line: Any) -> str:
    """Write a line as a CSV has it; equal ones give equal bytes. Raises ValueError for what could not be read again."""
    cells = [_cell(getattr(line, name)) for name in names_of(type(line))]
    _parse_cells(cells, type(line))
    return ",".join(cells) + "\n"


def _cell(value: Any) -> str:
    """Whole scores look like integers; a NumPy scalar would print as np.float64(...)."""
    return value if isinstance(value, str) else str(int(value) if float(value).is_integer() else float(value))


def _read_or_create(path: Path, record_type: type[EpisodeRecord]) -> bytes:
    try:
        content = read_regular(path)
    except FileNotFoundError:
        content = b""
    header = header_of(record_type).encode()
    if header.startswith(content):  # new, empty, or torn within the header
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, header + b"\n")
        return header + b"\n"
    return content


def _cut_torn_line(path: Path, content: bytes) -> int:
    """Cut off a last line without its end, which a process killed during a write has left; return the file's size."""
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with named_in_errors(path), path.open("r+b") as file:
            file.truncate(whole)
            os.fsync(file.fileno())
    return whole


def parse_csv(content: bytes, path: Path, kind: type[Line]) -> list[Line]:
    """Return the lines of a CSV of episodes; raises ValueError with one that is no episode."""
    return list(_each(content, path, kind))


def _each(content: bytes, path: Path, kind: type[Line]) -> Iterator[Line]:
    """Return the lines one by one, as a file may have millions; leave out what follows the last newline."""
    lines = BytesIO(content)
    first = lines.readline().removesuffix(b"\n")
    if first.endswith(b"\r"):
        raise ValueError(f"{path}: its lines end in CRLF, as some editors write them; convert it to LF")
    if first != (header := header_of(kind)).encode():
        raise ValueError(f"{path}, line 1: expected the header {header!r}, found {first[:200]!r}")
    for number, whole in enumerate(lines, start=2):
        if not whole.endswith(b"\n"):
            return
        line = whole[:-1]
        try:
            yield _parse_cells(line.decode("ascii").split(","), kind)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {line[:200]!r} is not an episode ({error})") from error


def _parse_cells(cells: list[str], kind: type[Line]) -> Line:
    if len(cells) != len(names := names_of(kind)):
        raise ValueError(f"{len(cells)} values instead of {len(names)}")
    line = parse(dict(zip(names, cells, strict=True)), kind, strict=False)
    for name, cell in zip(names, cells, strict=True):
        if isinstance(count := getattr(line, name), int) and cell != str(count):  # 7.0, 1e2
            raise ValueError(f"{name} is not written as a whole number")
    return line


def _append_bytes(path: Path, data: bytes) -> None:
    """Append all of `data` and wait for the disk, or raise and leave the file as it was."""
    with (
        named_in_errors(path),
        path.open("r+b", buffering=0) as file,  # not "a": a file moved away must not come back without its header
    ):
        size = file.seek(0, os.SEEK_END)
        try:
            if file.write(data) != len(data):
                raise OSError(f"{path}: could not write {len(data)} bytes (disk full?)")
            os.fsync(file.fileno())
        except BaseException:
            file.truncate(size)
            raise
