"""What a learner writes next to its checkpoints: logs of episodes, their plot, the run's record and its settings."""

import re
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from rainbow_iqn_apex.args import GROUPS, Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.files import folder_to_write, lock_file, short_path, write_file
from rainbow_iqn_apex.common.option import flag_of
from rainbow_iqn_apex.common.schema import parse_record
from rainbow_iqn_apex.environments.scores import SCORE_EPISODES, EpisodeRecord, VersionedRecord
from rainbow_iqn_apex.memory.broker.log import ThrottledCounter
from rainbow_iqn_apex.memory.messages import Episode
from rainbow_iqn_apex.options.command_line import heading
from rainbow_iqn_apex.options.config_file import CONFIG, read
from rainbow_iqn_apex.saber.results.reward_plot import render_reward_plot
from rainbow_iqn_apex.saber.results.run_record import RunRecord, Start, read_record, write_record
from rainbow_iqn_apex.saber.results.summary import ScoreCurve
from rainbow_iqn_apex.saber.results.task import Task, mean_over
from rainbow_iqn_apex.saber.results.training_log import EvaluationScores, TrainingLog

_PLOT_INTERVAL_S = 30.0  # a plot is a page of 5 MB: not at every log line of a fast learner
# No option can hold a password, but REDIS_URL can: a server is saved only where an option names it. A run that resumes
# needs no snapshot to begin from, and an evaluation with the file must not evaluate that one.
_OF_A_PROCESS = {CONFIG, "id_actor", "id_eval_actor", "id_inference", "abandon_other_run", "model"}
_IN_ANOTHER = {"rainbow_only"}  # `agent` has it, too
_SERVER = {"host_redis", "port_redis", "redis_url"}


class ResultsFolder:
    """Everything in the results folder, which one learner of a game writes at a time; a context manager.

    Raises UserError for an unwritable folder, one that another learner writes in, or a foreign CSV.
    """

    def __init__(self, folder: Path, game: str, action_repeat: int) -> None:
        self.folder = folder
        self.game = game
        self.action_repeat = action_repeat
        self._plotted: dict[str, int] = {}  # episodes in the plot of each game
        self._next_plot = 0.0
        self._record: RunRecord | None = None  # until the run begins
        self._known: EpisodeRecord | None = None  # newest episode that was left out
        self._left_out = ThrottledCounter(self._known_line)
        try:
            folder_to_write("--path-to-results", folder)
            self._lock = lock_file(folder / f".{game}.lock")
            self._remove_torn_files()
            self.log = TrainingLog(folder / f"{game}.csv")
            path = self._evaluation_path
            self._evaluations = EvaluationScores(path) if path.exists() else None  # made with the first episode
        except BlockingIOError as error:
            raise UserError(
                f"--path-to-results: a learner of another run is writing {game} in {short_path(folder)}"
            ) from error
        except (OSError, ValueError) as error:
            raise UserError(f"--path-to-results: {error}") from error

    @property
    def logs(self) -> list[TrainingLog]:
        """The logs that there are: of training, and of evaluation actors."""
        return [self.log, *([self._evaluations] if self._evaluations else [])]

    @property
    def _evaluation_path(self) -> Path:
        return self.folder / f"{self.game}_evaluation.csv"

    def _remove_torn_files(self) -> None:
        """Delete the unfinished files, as large as a snapshot, that a learner killed during a write has left."""
        game = re.escape(self.game)
        logs = rf"{game}(_evaluation)?\.csv|{game}(_films)?\.(json|yaml)|{game}_(best|newest)_evaluation\.webm"
        whole = rf"((last_)?model_{game}_\d+\.pth|best_model_{game}\.pth|Reward_{game}(_[\w.-]+)?\.html|{logs})"
        for path in self.folder.iterdir():
            if re.fullmatch(rf"\.{whole}\.[0-9a-f]+\.(tmp|webm)", path.name):
                path.unlink()

    def __enter__(self) -> "ResultsFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self._left_out.report(now=True)
        self._lock.close()

    def begin(self, start: Start, *, afresh: bool) -> None:
        """Write the run's record, or add this start to the record there is; raises UserError for a foreign record."""
        path = self._record_path
        try:
            known = None if afresh else read_record(path)
        except (OSError, ValueError) as error:
            raise UserError(f"--path-to-results: {error}: move it away") from error
        self._record = known.started(start) if known else RunRecord(self.game, self.action_repeat, 0, (start,))
        write_record(path, self._record)
        for log in self.logs:
            log.part(len(self.tasks))

    @property
    def _record_path(self) -> Path:
        return self.folder / f"{self.game}.json"

    @property
    def settings_path(self) -> Path:
        """The configuration file that repeats the run's settings."""
        return self.folder / f"{self.game}.yaml"

    def add_episodes(self, episodes: list[Episode], t_learner: int) -> None:
        """Log finished episodes; leave out, count and report those that the log has already."""
        if episodes:
            records = [training_record(episode, t_learner) for episode in episodes]
            logged = set(map(id, self.log.append(records)))
            known = [record for record in records if id(record) not in logged]
            self._known = known[-1] if known else self._known
            self._left_out.more(len(known))

    def add_evaluations(self, records: Sequence[VersionedRecord]) -> None:
        """Log finished episodes of evaluation actors, and leave out those that the log has already."""
        if records:
            if not self._evaluations:
                self._evaluations = EvaluationScores(self._evaluation_path)
                self._evaluations.part(len(self.tasks))
            self._evaluations.append(records)

    def evaluations_logged(self) -> dict[int, int]:
        """Return, by evaluation actor, the number of episodes that its log counts, lost ones among them."""
        return self._evaluations.counts() if self._evaluations else {}

    def _known_line(self, new: int, count: int) -> str:
        assert self._known
        known = self._known
        reached = self.log.newest(known.actor, known.env)
        return (
            f"Left out {new} episodes that the training log has already, {count} so far; the newest is episode "
            f"{known.episode} of actor {known.actor}, environment {known.env}, where the log has come to {reached}"
        )

    def mean_score(self, t_learner: int) -> float | None:
        """Return the mean score of the 100 newest episodes logged before this step; None while there are fewer.

        Of several games it is the mean over the games, each with its 100 newest: human-normalised if all can be.

        A killed learner has logged more than its checkpoint holds: a resumed run finds episodes of later steps logged.
        """
        earlier = (
            (it.score_saber for it in reversed(played) if it.T_learner < t_learner) for played in self.log.recent
        )
        newest = [list(islice(scores, SCORE_EPISODES)) for scores in earlier]
        if min(map(len, newest)) < SCORE_EPISODES:
            return None
        means = map(fmean, newest)
        return mean_over(list(zip(self.tasks, means, strict=True)))

    def plot(self, *, now: bool = False) -> None:
        """Bring the plot up to date, but not too often unless `now`."""
        if not now and time.monotonic() < self._next_plot:
            return
        count = len(self.tasks)
        evaluations = self._evaluations.curves if self._evaluations else [ScoreCurve() for _ in range(count)]
        for task, played, evaluated in zip(self.tasks, self.log.curves, evaluations, strict=True):
            name = self.game if count == 1 else f"{self.game}_{task.name}"
            episodes = played.episodes + evaluated.episodes
            if self._plotted.get(name, -1 if now else 0) != episodes:
                path = self.folder / f"Reward_{name}.html"
                write_file(path, render_reward_plot(played, evaluated, task, self.action_repeat).encode())
                self._plotted[name] = episodes
        self._next_plot = time.monotonic() + count * _PLOT_INTERVAL_S

    @property
    def tasks(self) -> Sequence[Task]:
        """Return the tasks that the run plays, one or several."""
        return self._record.tasks if self._record else (Task(self.game),)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint holds of the training log."""
        return {"logged": self.log.size}

    def load_state_dict(self, logged: int, checkpoint: Path, *, again: bool) -> None:
        """Continue a training log that had `logged` bytes at a checkpoint, and log what came after `again` or not."""
        log = self.log
        if log.size < logged:
            print(
                f"{short_path(log.path)} has lost episodes: it has {log.size} bytes, and had {logged} when "
                f"{short_path(checkpoint)} was saved; the run goes on without these scores, so stop it first to "
                "put the file back",
                flush=True,
            )
        if again:
            log.go_back(logged)

    def record_progress(self, steps: int) -> None:
        """Write down how far the run got. The log alone does not show that: a run may end within an episode."""
        if self._record:
            self._record = replace(self._record, reached=steps)
            write_record(self._record_path, self._record)


def training_record(episode: Episode, t_learner: int) -> EpisodeRecord:
    """Return the training log's record of an actor's message; raises ValueError for a message that gives none."""
    return parse_record(episode.record | {"T_learner": t_learner}, EpisodeRecord)


def write_settings(path: Path, args: Args) -> None:
    """Replace the configuration file at `path`, which repeats the run by `--config`; raises OSError."""
    saved = saved_settings(args)
    lines = [f"# The settings of the run at the last start of its learner: --config {path.name} repeats them."]
    if args.model:
        lines.append(
            f"# To begin afresh, it needs --model {short_path(args.model)!r} besides, which is not among them."
        )
    for group in _groups(args):
        if values := {f.name: saved[f.name] for f in fields(group) if f.name in saved}:
            text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=10_000)
            lines += ["", f"# {heading(group)}", text.rstrip("\n")]
    write_file(path, "\n".join([*lines, ""]).encode())


def saved_settings(args: Args) -> dict[str, Any]:
    """Return what belongs to the run, and not to one of its processes, and has an effect: texts, numbers, booleans."""
    left_out = _OF_A_PROCESS | _IN_ANOTHER | ((_SERVER | args.own.unused) - args.given)
    names = [f.name for group in _groups(args) for f in fields(group) if f.name not in left_out]
    return {name: _plain(value) for name in names if (value := args.get(name)) is not None}


def describe_changes(path: Path, args: Args) -> str:
    """Return one line with the settings that differ from those in the file at `path`; "" if there are none.

    A run that resumes may differ in what its processes do not share, and a preset may have changed since. A file that
    is not there, or is damaged, has no settings.
    """
    before = read(_groups(args), [flag_of(CONFIG), str(path)]).values
    changed = [
        f"{flag_of(name)} (was {_plain(before[name])!r}, is {value!r})"
        for name, value in saved_settings(args).items()
        if name in before and str(_plain(before[name])) != str(value)
    ]
    return f"Changed since the run's last start: {', '.join(changed)}" if changed else ""


def _plain(value: Any) -> Any:
    return short_path(value) if isinstance(value, Path) else value


def _groups(args: Args) -> tuple[type, ...]:
    return *GROUPS, type(args.own), type(args.environment)
