"""Weights & Biases: a run of project `rainbow-iqn-apex`. With WANDB_MODE=offline it stays in the results folder."""

import os

import wandb

from rainbow_iqn_apex.monitoring.sinks.sink import TAGS, Moment, RunInfo
from rainbow_iqn_apex.monitoring.video import temporary_video

PROJECT = "rainbow-iqn-apex"
_AXIS = "time/total_timesteps"
_BEGIN_S, _END_S = 20.0, 15.0  # for the server to answer, and for the rest to be sent


class WandbSink:
    """Logs each moment; a resumed run goes on under its id."""

    is_live = False

    def __init__(self, run: RunInfo) -> None:
        self._info = run
        self._run: wandb.Run | None = None
        self._begun = False

    def take(self, moment: Moment) -> None:
        """Log the metrics of a moment; the package sends them from a process of its own."""
        if not self._begun:
            self._begun = True  # also if it fails: each attempt would leave a folder
            self._run = self._begin()
        if self._run:
            self._run.log({_AXIS: moment.step} | moment.values)
            for slot, film in moment.kept_films.items():
                with temporary_video(film) as path:
                    self._run.log({_AXIS: moment.step, TAGS[slot]: wandb.Video(path, film.info.caption, format="webm")})

    def close(self) -> None:
        """Send what is left."""
        if self._run:
            self._run.finish()

    def _begin(self) -> wandb.Run:
        info = self._info
        settings = wandb.Settings(console="off", disable_git=True, init_timeout=_BEGIN_S, finish_timeout=_END_S)
        settings.max_end_of_run_history_metrics = settings.max_end_of_run_summary_metrics = 0  # which would be printed
        run = wandb.init(
            project=PROJECT,
            name=info.name,
            id=info.run_id,
            resume="allow",
            config=info.settings,
            dir=info.folder,
            settings=settings,
        )
        run.define_metric("*", step_metric=_AXIS)
        return run


def prepare() -> bool:
    """Return whether a key for the server is known, or none is needed; let runs stay here if the server is away."""
    try:
        return bool(wandb.setup().settings.mode != "online" or wandb.login(prompt=False))
    except wandb.errors.CommError as error:
        print(
            f"Weights & Biases is not reached ({' '.join(str(error).split())}): the run stays in the results folder, "
            "and `wandb sync` sends it later",
            flush=True,
        )
        os.environ["WANDB_MODE"] = "offline"
        wandb.teardown()  # it has read that variable
        return True
