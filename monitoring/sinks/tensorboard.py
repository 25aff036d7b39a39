"""Event files that TensorBoard shows: `<game>_tensorboard/<run>/` in the results folder.

The x axis counts agent steps. Tags are the metrics' names. A learner that goes on from a checkpoint begins a file of
its own, whose first event lets TensorBoard forget the steps that are played again.
"""

import io
import os
import socket
import time
from pathlib import Path
from typing import BinaryIO

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboard.summary.writer.record_writer import RecordWriter

from rainbow_iqn_apex.monitoring.metrics import PRIORITY_BOUNDS, metric_of
from rainbow_iqn_apex.monitoring.sinks.sink import TAGS, Moment
from rainbow_iqn_apex.monitoring.video import Film, animate


class TensorBoardSink:
    """Appends the events of a moment in one piece."""

    is_live = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: BinaryIO | None = None
        self._described: set[str] = set()  # metrics whose unit and meaning the file has

    def take(self, moment: Moment) -> None:
        """Append the metrics of a moment; raises OSError if that fails, and leaves no torn event."""
        file = self._file = self._file or self._open()
        described = self._described | moment.values.keys() | moment.histograms.keys()
        values = [self._scalar(name, value) for name, value in moment.values.items()]
        values += [self._histogram(name, counts) for name, counts in moment.histograms.items() if any(counts)]
        events = [Event(wall_time=moment.at, step=moment.step, summary=Summary(value=values))]
        if not file.tell():
            events.insert(0, Event(wall_time=moment.at, file_version="brain.Event:2"))
            restart = SessionLog(status=SessionLog.START)
            events.insert(1, Event(wall_time=moment.at, step=moment.step, session_log=restart))
        _append(file, events)
        self._described = described
        for slot, film in moment.kept_films.items():  # last: without a film the metrics are there
            value = Summary.Value(tag=TAGS[slot], image=_image(film))
            _append(file, [Event(wall_time=film.info.at, step=moment.step, summary=Summary(value=[value]))])

    def close(self) -> None:
        """Close the file: all is written."""
        if self._file:
            self._file.close()

    def _open(self) -> BinaryIO:
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        return (self._folder / name).open("xb", buffering=0)

    def _scalar(self, name: str, value: float) -> Summary.Value:
        return Summary.Value(tag=name, simple_value=value, metadata=self._metadata(name))

    def _histogram(self, name: str, counts: list[float]) -> Summary.Value:
        """Return the bins from the first to the last that is not empty; TensorBoard wants finite bounds."""
        bounds = (0.0, *PRIORITY_BOUNDS, 10 * PRIORITY_BOUNDS[-1])
        filled = [index for index, count in enumerate(counts) if count]
        first = filled[0]
        end = filled[-1] + 1
        bins = HistogramProto(
            min=bounds[first],
            max=bounds[end],
            num=sum(counts),
            bucket_limit=bounds[first + 1 : end + 1],
            bucket=counts[first:end],
        )
        return Summary.Value(tag=name, histo=bins, metadata=self._metadata(name))

    def _metadata(self, name: str) -> SummaryMetadata | None:
        return None if name in self._described else SummaryMetadata(summary_description=metric_of(name).help)


def _image(film: Film) -> Summary.Image:
    height, width, colours = film.pictures.shape[1:]
    return Summary.Image(height=height, width=width, colorspace=colours, encoded_image_string=animate(film))


def _append(file: BinaryIO, events: list[Event]) -> None:
    """Append events, all or none; raises OSError."""
    buffer = io.BytesIO()
    for event in events:
        RecordWriter(buffer).write(event.SerializeToString())
    data = buffer.getvalue()
    end = file.tell()
    try:
        while data:  # a disk that becomes full takes a part, and refuses the next
            data = data[file.write(data) :]
    except OSError:
        file.truncate(end)
        file.seek(end)
        raise
