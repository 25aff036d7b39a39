"""The training log `<game>.csv`: one line per finished training episode of all actors, each written exactly once."""

import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from io import BytesIO
from itertools import count, takewhile
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, TypeVar

from rainbow_iqn_apex.common.files import (
    named_in_errors,
    open_regular,
    read_regular,
    replace_file,
    short_path,
    write_file,
)
from rainbow_iqn_apex.common.schema import parse
from rainbow_iqn_apex.environments.registry import entry_of
from rainbow_iqn_apex.environments.scores import SCORE_EPISODES, EpisodeRecord, VersionedRecord
from rainbow_iqn_apex.saber.results.summary import ScoreCurve

_KEPT = 10_000  # newest episodes in memory, over all games; a learner may log millions
_KEPT_OF_EACH = 1000  # of a run of many games
_LONGEST_LINE = 1000  # bytes
_BLOCK = 1 << 20  # bytes
Line = TypeVar("Line")  # a dataclass of numbers and words


def names_of(kind: type[Any]) -> list[str]:
    """Return the columns of a CSV of such lines."""
    return [field.name for field in fields(kind)]


def header_of(kind: type[Any]) -> str:
    """Return the first line of a CSV of such lines, without its newline."""
    return ",".join(names_of(kind))


HEADER = header_of(EpisodeRecord)
EVALUATION_HEADER = header_of(VersionedRecord)  # of the log `<game>_evaluation.csv`


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
        self._create()
        self._begin(1, sys.maxsize)  # first: a foreign file is refused before it is cut
        self.size = _cut_torn_line(path)  # bytes of the header and of the lines that are not expected again

    def _create(self) -> None:
        header = f"{header_of(self.record_type)}\n".encode()
        found = b""
        with suppress(FileNotFoundError), named_in_errors(self.path), self._open() as file:
            found = file.read(len(header))
        if found != header and header.startswith(found):  # new, empty, or torn within the header
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_file(self.path, header)

    def _open(self) -> BinaryIO:
        return open_regular(self.path, self.path.parent)

    def _begin(self, entries: int, size: int) -> None:
        """Count the episodes in the first `size` bytes of the file."""
        self.episodes = 0  # in the log, but for those that are expected again
        self.played = 0  # the most agent steps over all actors after which one of them ended
        self.curves = [ScoreCurve() for _ in range(entries)]
        kept = max(_KEPT // entries, _KEPT_OF_EACH)
        self.recent = [deque[EpisodeRecord](maxlen=kept) for _ in range(entries)]  # the newest of each entry
        self.records = deque[EpisodeRecord](maxlen=2 * SCORE_EPISODES)  # the newest of all
        self._newest: dict[tuple[int, int], int] = {}  # (actor, env) -> greatest episode number in the log
        with named_in_errors(self.path), self._open() as file:
            self._add(_each(file, self.path, self.record_type, end=size))

    def _add(self, records: Iterable[EpisodeRecord]) -> None:
        for record in records:
            key = (record.actor, record.env)
            self._newest[key] = max(record.episode, self._newest.get(key, record.episode))
            self.episodes += 1
            self.played = max(self.played, record.T_actors)
            entry = entry_of(record, len(self.curves))
            self.curves[entry].add([record])
            self.recent[entry].append(record)
            self.records.append(record)

    def part(self, entries: int) -> None:
        """Keep the newest episodes and a curve of each of so many games or environments that the run plays."""
        if entries != len(self.curves):
            self._begin(entries, self.size)

    def go_back(self, size: int) -> None:
        """Expect again the episodes logged after the file had this `size`; ignore a number that was never its size."""
        with named_in_errors(self.path), self._open() as file:
            size = min(size, file.seek(0, os.SEEK_END))
            file.seek(max(0, size - 1))
            if size > 0 and file.read(1) == b"\n":
                file.seek(0)
                self._pending = list(_each(file, self.path, self.record_type, begin=size))
                self._begin(len(self.curves), size)
                self.size = size

    def settle(self, nb_actor: int) -> None:
        """Keep the next expected episodes as they are, if their actors, `nb_actor` and above, have left."""
        settled = list(takewhile(lambda record: record.actor >= nb_actor, self._pending))
        if settled:
            self._pending = self._pending[len(settled) :]
            self.size += len(_format(settled))
            self._add(settled)

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
        data = _format(fresh)
        came = set(map(_key, fresh))
        pending = [record for record in self._pending if _key(record) not in came]
        if not self._pending:
            _append_bytes(self.path, data)
        else:
            with named_in_errors(self.path), self._open() as old:
                old.seek(self.size)
                if old.read(len(data)) != data:  # after a kill, the file holds the same lines already
                    old.seek(0)
                    with replace_file(self.path) as new:
                        for start in range(0, self.size, _BLOCK):
                            new.write(old.read(min(_BLOCK, self.size - start)))
                        new.write(data + _format(pending))
        self._pending = pending
        self.size += len(data)


def read_records(path: Path, folder: Path | None = None) -> list[EpisodeRecord]:
    """Read a training log without changing it; leave out a last line without its newline, which is being written.

    Raises ValueError for any other file, OSError as `read_regular`.
    """
    return parse_csv(read_regular(path, folder or path.parent), path, EpisodeRecord)


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


def _cut_torn_line(path: Path) -> int:
    """Cut off a last line without its end, which a process killed during a write has left; return the file's size."""
    with named_in_errors(path), path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _LONGEST_LINE))
        if torn := len(file.read().rpartition(b"\n")[2]):
            file.truncate(size - torn)
            os.fsync(file.fileno())
    return size - torn


def parse_csv(content: bytes, path: Path, kind: type[Line]) -> list[Line]:
    """Return the lines of a CSV of episodes; raises ValueError with one that is no episode."""
    return list(_each(BytesIO(content), path, kind))


def _each(file: BinaryIO, path: Path, kind: type[Line], begin: int = 0, end: int = sys.maxsize) -> Iterator[Line]:
    """Return the lines between two places one by one, as there may be millions; leave out a last one without newline.

    The file is at its header.
    """
    first = file.readline(_LONGEST_LINE).removesuffix(b"\n")
    if first.endswith(b"\r"):
        raise ValueError(f"{short_path(path)}: its lines end in CRLF, as some editors write them; convert it to LF")
    if first != (header := header_of(kind)).encode():
        raise ValueError(f"{short_path(path)}, line 1: expected the header {header!r}, found {first[:200]!r}")
    place = file.seek(max(begin, len(first) + 1))
    for number in count(2):
        whole = file.readline(_LONGEST_LINE) if place < end else b""
        place += len(whole)
        if (line := whole.removesuffix(b"\n")) == whole and len(whole) < _LONGEST_LINE:
            return
        try:
            if line == whole:
                raise ValueError(f"more than {_LONGEST_LINE} bytes")
            yield _parse_cells(line.decode("ascii").split(","), kind)
        except ValueError as error:
            where = f"{short_path(path)}, line {number}"
            raise ValueError(f"{where}: {line[:200]!r} is not an episode ({error})") from error


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
                raise OSError(f"{short_path(path)}: could not write {len(data)} bytes (disk full?)")
            os.fsync(file.fileno())
        except BaseException:
            file.truncate(size)
            raise


class EvaluationScores(TrainingLog):
    """The episodes of a run's evaluation actors in `<game>_evaluation.csv`, kept as `TrainingLog` keeps its own."""

    record_type = VersionedRecord

    def counts(self) -> dict[int, int]:
        """Return, by evaluation actor, one more than the number of its newest episode."""
        return {actor: newest + 1 for (actor, _), newest in self._newest.items()}
