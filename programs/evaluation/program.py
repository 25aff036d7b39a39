"""Evaluates a snapshot: one episode per seed, under the rules of training, with the noise of its network."""

import glob
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import torch

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.checkout import commit
from rainbow_iqn_apex.common.errors import Stopped, UserError
from rainbow_iqn_apex.common.files import folder_to_write, short_path
from rainbow_iqn_apex.common.seeds import derive_seed
from rainbow_iqn_apex.common.text import counted
from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.options.environment_names import option_of
from rainbow_iqn_apex.programs.agent import device_name, select_device
from rainbow_iqn_apex.programs.common import temporary_environment
from rainbow_iqn_apex.programs.evaluation.card import NEW_FILM, check_folder, summary_of, write_card
from rainbow_iqn_apex.programs.evaluation.recording import PLACES, Videos, try_to_record
from rainbow_iqn_apex.programs.evaluation.settings import decisive_settings, load_model, other_rules, trained_steps
from rainbow_iqn_apex.programs.evaluation.workers import (
    EpisodePlayer,
    OwnProcess,
    Processes,
    Task,
    make_players,
    number_of_workers,
)
from rainbow_iqn_apex.saber.results import task
from rainbow_iqn_apex.saber.results.evaluation_log import EvaluatedEpisode, EvaluationLog, EvaluationRecord
from rainbow_iqn_apex.saber.results.run_record import versions

_REDRAWN_S = 1.0  # an episode may last for hours, and the clock shows that the program still runs


def run_evaluation(args: Args, stop: threading.Event) -> list[EvaluatedEpisode]:
    """Evaluate a snapshot over `--evaluation-episodes` seeds: CSV, summary, videos; return the episodes.

    A snapshot of several games plays all of them, or those that `--game` or `--env` names, one after the other.
    After a stop, or the death of a process, the episodes that have ended are kept; the same command plays the others.
    """
    if args.model is None:
        raise UserError("--model: name a snapshot, or the folder whose newest is to play, as in --model results/")
    args, saved = load_model(args)
    assert args.model is not None
    games = [args.entry(number) for number in range(len(args.entries))]
    if len(games) > 1 and args.export is not None:
        raise UserError(
            f"--export: expected one game, {short_path(args.model)} plays {len(games)}: name it with "
            f"{option_of(args.env)}"
        )
    return [
        episode
        for number, game in enumerate(games)
        for episode in _evaluate(game, saved, stop, [] if number else games[1:])
    ]


def _evaluate(args: Args, saved: dict[str, Any], stop: threading.Event, later: list[Args]) -> list[EvaluatedEpisode]:
    """Evaluate a snapshot in one game or environment; refuses first what would be refused in the `later` ones."""
    folder = folder_to_write("--path-to-results", args.path_to_results / "evaluations")
    if args.export is not None:
        check_folder(args.export)
    if args.render:
        with temporary_environment(args, args.seed):
            pass  # fails now if no window can be opened
    device = select_device(args)
    with (
        _open_videos(args) as videos,
        make_players(args, saved, number_of_workers(args, device), stop) as players,
        _open_log(folder / csv_name(args), args, saved, players.player, device) as log,
    ):
        for game in later:
            with _open_log(folder / csv_name(game), game, saved, players.player, device):
                pass  # the files of another evaluation are refused now, and not after hours of this game
        for line in other_rules(args, saved):
            print(line, flush=True)
        if unused := args.not_used():
            print(unused, flush=True)
        there = f"; {len(log.episodes)} of them in {short_path(log.path)}" if log.episodes else ""
        assert args.model is not None
        asked = counted(args.evaluation_episodes, "episode")
        print(f"{short_path(args.model)} plays {args.task}: {asked} on {device}{there}", flush=True)
        try:
            with _make_progress(args.evaluation_episodes, atari=task.Task(args.task, args.env).is_atari) as progress:
                _play(players, args, log, progress, videos)
        finally:
            _report(args, log, players.player.action_repeat)
        if args.record is not None or args.export is not None:
            _keep(players, args, saved, log, videos)
        return log.episodes


def csv_name(args: Args) -> str:
    """Return the name of an evaluation's CSV."""
    assert args.model is not None
    drawn = "_stochastic" if args.get("stochastic") else ""
    return f"{args.task}_{args.model.stem}_seed{args.seed}{drawn}.csv"


def _open_log(
    path: Path, args: Args, saved: dict[str, Any], player: EpisodePlayer, device: torch.device
) -> EvaluationLog:
    assert args.model is not None
    folder = os.path.relpath(args.model.parent.resolve(), path.parent.resolve())  # so that both can be moved together
    record = EvaluationRecord(
        model=str(Path(folder) / args.model.name),
        weights=player.weights_hash,
        seed=args.seed,
        settings=decisive_settings(args, device),
        device=device_name(device),
        versions=versions(args.env),
        commits=[commit()],
        episodes=args.evaluation_episodes,
        trained_steps=trained_steps(args, saved),
        acting=player.acting and player.acting._asdict(),
    )
    try:
        return EvaluationLog(path, record)
    except (OSError, ValueError) as error:
        raise UserError(
            f"--path-to-results: {error}; move it away with its .json, or name another folder or --seed"
        ) from error


def _play(
    players: OwnProcess | Processes, args: Args, log: EvaluationLog, progress: "Bar | Lines", videos: Videos
) -> None:
    known = set()
    for _, record in log.episodes:
        progress.add(record)
        videos.add(record)
        known.add(record.episode)
    is_recorded = videos.folder is not None and not args.render  # no environment draws for both
    tasks = (
        Task(episode, derive_seed(args.seed, 4, episode), videos.path(episode) if is_recorded else None)
        for episode in range(args.evaluation_episodes)
        if episode not in known
    )
    for played, record, speed in players.play(tasks):
        progress.add(record)
        log.add(played.seed, record)
        videos.add(record, speed)


def _report(args: Args, log: EvaluationLog, action_repeat: int) -> None:
    records = [record for _, record in log.episodes]
    if not records:
        print(f"stopped: 0 of {counted(args.evaluation_episodes, 'episode')}; the same command plays them")
        return
    print(summary_of(args, log, action_repeat))
    if len(records) < args.evaluation_episodes:
        print(
            f"stopped: {len(records):,} of {counted(args.evaluation_episodes, 'episode')}; those that still ran are "
            "missing, and long ones more often than short ones; the same command plays the others"
        )
    log.write()
    print(f"episodes: {short_path(log.path)}", flush=True)


@contextmanager
def _open_videos(args: Args) -> Iterator[Videos]:
    """Yield the videos of an evaluation, none where nothing asks for them; deletes those that are not kept."""
    folder = args.record
    missing = ""
    if folder is not None:
        try_to_record(args, "--record", folder_to_write("--record", folder))
    elif args.export is not None:
        try:
            try_to_record(args, "--export", args.export)
            folder = args.export
        except UserError as error:  # the card goes without
            missing = str(error)
    if folder is None:
        yield Videos(None, missing)
        return
    with tempfile.TemporaryDirectory(prefix=".", dir=folder, ignore_cleanup_errors=True) as made:
        yield Videos(Path(made))


def _keep(
    players: OwnProcess | Processes, args: Args, saved: dict[str, Any], log: EvaluationLog, videos: Videos
) -> None:
    """Write the videos of the best, the median and the worst episode, and a model card with the median's video."""
    chosen = videos.choose(log.episodes)
    median = chosen.get("median", chosen["best"])
    if videos.folder is not None:
        _play_again(players, [*chosen.values()] if args.record is not None else [median], videos)
    if args.export is not None:
        if videos.folder is not None:
            shutil.copyfile(videos.path(median.record.episode), args.export / NEW_FILM)
        write_card(args, saved, log, players.player.action_repeat, film=videos.folder is not None)
        with_video = f"with a video of episode {median.record.episode}" * (videos.folder is not None)
        print(
            f"model card: {short_path(args.export)}, {with_video or f'without a video: {videos.missing}'}", flush=True
        )
    if args.record is not None:
        _move(chosen, args.record, log.path.stem, videos)


def _play_again(players: OwnProcess | Processes, wanted: list[EvaluatedEpisode], videos: Videos) -> None:
    """Record episodes that have no video: of an earlier start, of a window, or a median whose video was deleted."""
    records = {record.episode: record for _, record in wanted if record.episode not in videos.speeds}
    if not records:
        return
    print(f"Playing again what was played without a video: episode {', '.join(map(str, records))}", flush=True)
    tasks = (Task(record.episode, seed, videos.path(record.episode)) for seed, record in wanted)
    try:
        for played, record, speed in players.play(each for each in tasks if each.episode in records):
            videos.speeds[played.episode] = speed
            if record != records[played.episode]:  # on a GPU sums may be added in another order
                print(f"  it did not repeat itself: its score was {record.score_saber:.12g}", flush=True)
    except Stopped:
        print("stopped: no video and no model card was written", flush=True)
        raise


def _move(chosen: dict[str, EvaluatedEpisode], folder: Path, stem: str, videos: Videos) -> None:
    """Let a folder have the videos of the chosen episodes instead of earlier ones of this evaluation."""
    for place in PLACES:
        for old in folder.glob(f"{glob.escape(stem)}_{place}_episode*.webm"):
            old.unlink()  # perhaps of fewer episodes
    for place, (_, record) in chosen.items():
        path = folder / f"{stem}_{place}_episode{record.episode}.webm"
        videos.path(record.episode).replace(path)
        speed = videos.speeds[record.episode]
        faster = f", shown {speed} times as fast" if speed > 1 else ""
        print(f"{short_path(path)}: score {record.score_saber:.12g}{faster}", flush=True)


def _make_progress(total: int, *, atari: bool) -> "Bar | Lines":
    """Return a bar on a terminal, else lines, for an evaluation of `total` episodes."""
    return Bar(total) if sys.stdout.isatty() else Lines(atari=atari)


class Lines:
    """One line per episode in the order of their numbers, so that the output is the same however they are played.

    Scores at 30 and at 5 minutes are of Atari alone.
    """

    def __init__(self, *, atari: bool) -> None:
        self._atari = atari
        self._waiting: dict[int, EpisodeRecord] = {}
        self._next = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for episode in sorted(self._waiting):
            self._print(self._waiting.pop(episode))

    def add(self, record: EpisodeRecord) -> None:
        """Print an episode's line as soon as the lines of all episodes before it are printed."""
        self._waiting[record.episode] = record
        while self._next in self._waiting:
            self._print(self._waiting.pop(self._next))
            self._next += 1

    def _print(self, record: EpisodeRecord) -> None:
        marks = (
            f" at 30 minutes {record.score_30min:.12g}, at 5 minutes {record.score_5min:.12g}," if self._atari else ""
        )
        score = f"score {record.score_saber:.12g},{marks}"
        print(f"episode {record.episode}: {score} {record.length} steps, {record.end}", flush=True)


class Bar:
    """A bar in the last line of a terminal: [####....] 12/100 episodes, mean score 345.6, 0:01:23."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._scores: list[float] = []
        self._began = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._redraw, name="progress bar", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        print(flush=True)

    def add(self, record: EpisodeRecord) -> None:
        """Count an episode; the bar grows when it is next drawn."""
        self._scores.append(record.score_saber)

    def _redraw(self) -> None:
        over = False
        while not over:
            over = self._over.wait(_REDRAWN_S)  # drawn once more, with the last episode
            print("\r" + self.text(shutil.get_terminal_size().columns), end="", flush=True)

    def text(self, columns: int) -> str:
        """Return the bar, as wide as a terminal of this width without its last column."""
        done = len(self._scores)
        seconds = int(time.monotonic() - self._began)
        mean = f", mean score {sum(self._scores) / done:,.1f}" if done else ""
        clock = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        words = f" {done}/{self._total} episodes{mean}, {clock}"
        if len(words) >= columns:
            words = f" {done}/{self._total}, {clock}"
        width = min(40, columns - len(words) - 3)
        bar = f"[{'#' * (width * done // self._total):.<{width}}]" if width > 0 else ""
        return f"{bar}{words}"[: columns - 1].ljust(columns - 1)
