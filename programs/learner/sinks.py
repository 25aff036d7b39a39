"""Makes the sinks of the learner's metrics. Those of other projects' packages are imported only where asked for."""

from typing import Any

from args import Args
from memory.broker.connection import Client
from memory.broker.films import FilmStore
from monitoring.overview import OverviewReader
from monitoring.sinks.feeder import Feeder
from monitoring.sinks.films import FilmReader
from monitoring.sinks.guarded import InThread
from monitoring.sinks.history import HistorySink, path_of
from monitoring.sinks.sink import RunInfo, Sink
from programs.sink_options import tensorboard_folder


def make_feeder(args: Args, client: Client, run_id: str, settings: dict[str, Any]) -> Feeder:
    """Make what hands the learner's metrics to all sinks of a run."""
    run = RunInfo(args.name, run_id, args.path_to_results, args.task, settings)
    sinks, films = _make_sinks(args, run), None
    if args.record_evaluations:
        from monitoring.sinks.film_files import FilmFiles, read_shown  # needs OpenCV, which other environments do not

        films = FilmReader(FilmStore(client, run.name, run_id), read_shown(run.folder, run.game).of_run(run_id))
        sinks.append(InThread(FilmFiles(run)))
    return Feeder(sinks, OverviewReader(client, args.name), films)


def _make_sinks(args: Args, run: RunInfo) -> list[Sink]:
    """Make the sink that every run has, and those that the options name."""
    sinks: list[Sink] = [HistorySink(path_of(run.folder, run.game))]
    if args.tensorboard:
        from monitoring.sinks.tensorboard import TensorBoardSink

        sinks.append(TensorBoardSink(tensorboard_folder(run.folder, run.game)))
    if args.metrics_port:
        from monitoring.sinks.prometheus import PrometheusSink

        sinks.append(PrometheusSink(run.name, args.metrics_host, args.metrics_port))
    if args.wandb:
        from monitoring.sinks.wandb import WandbSink

        sinks.append(InThread(WandbSink(run)))
    if args.trackio:
        from monitoring.sinks.trackio import TrackioSink

        sinks.append(InThread(TrackioSink(run)))
    return sinks
