"""Makes the sinks of the learner's metrics. Those of other projects' packages are imported only where asked for."""

from typing import Any

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.films import FilmStore
from rainbow_iqn_apex.memory.broker.learner_client import begun_as
from rainbow_iqn_apex.monitoring.overview import OverviewReader
from rainbow_iqn_apex.monitoring.sinks.feeder import Feeder
from rainbow_iqn_apex.monitoring.sinks.films import FilmReader
from rainbow_iqn_apex.monitoring.sinks.guarded import InThread
from rainbow_iqn_apex.monitoring.sinks.history import HistorySink, path_of
from rainbow_iqn_apex.monitoring.sinks.sink import RunInfo, Sink
from rainbow_iqn_apex.options.sink_options import event_folder


def make_feeder(args: Args, client: Client, run_id: str, settings: dict[str, Any]) -> Feeder:
    """Make what hands the learner's metrics to all sinks of a run."""
    run = RunInfo(args.name, begun_as(run_id), args.path_to_results, args.task, settings)
    sinks, films = _make_sinks(args, run), None
    if args.record_evaluations:
        from rainbow_iqn_apex.monitoring.sinks.film_files import (  # needs OpenCV, which other environments do not
            FilmFiles,
            read_shown,
        )

        films = FilmReader(FilmStore(client, run.name, run_id), read_shown(run.folder, run.game).of_run(run.run_id))
        sinks.append(InThread(FilmFiles(run)))
    return Feeder(sinks, OverviewReader(client.aside(), args.name), films)


def _make_sinks(args: Args, run: RunInfo) -> list[Sink]:
    """Make the sink that every run has, and those that the options name."""
    sinks: list[Sink] = [HistorySink(path_of(run.folder, run.game))]
    if args.tensorboard:
        from rainbow_iqn_apex.monitoring.sinks.tensorboard import TensorBoardSink

        sinks.append(TensorBoardSink(event_folder(run.folder, run.game, run.name)))
    if args.metrics_port:
        from rainbow_iqn_apex.monitoring.sinks.prometheus import PrometheusSink

        sinks.append(PrometheusSink(run.name, args.metrics_host, args.metrics_port))
    if args.wandb:
        from rainbow_iqn_apex.monitoring.sinks.wandb import WandbSink

        sinks.append(InThread(WandbSink(run)))
    if args.trackio:
        from rainbow_iqn_apex.monitoring.sinks.trackio import TrackioSink

        sinks.append(InThread(TrackioSink(run)))
    return sinks
