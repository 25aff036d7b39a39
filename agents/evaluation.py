"""Evaluates a snapshot: one episode per seed, under the rules of training, noise on and no epsilon."""

import os
import threading
import time
from pathlib import Path

from agents import snapshot
from agents.evaluation_progress import Progress, make_progress
from agents.evaluation_settings import network_args, other_rules
from agents.evaluation_workers import Players, Task, make_players, number_of_workers
from agents.programs import open_environment, select_device
from agents.randomness import derive_seed
from args import Args
from memory.errors import UserError
from saber.atari_scores import read_scores
from saber.evaluation_log import EvaluatedEpisode, write_evaluation
from saber.evaluation_summary import format_evaluation
from saber.scores import EpisodeRecord
from saber.video import MAX_SECONDS

_WRITE_INTERVAL_S = 1.0  # of the CSV, which is written whole


class Evaluation:
    """The episodes that have ended so far, and their CSV."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.episodes: list[EvaluatedEpisode] = []
        self._next_write = 0.0

    def add(self, seed: int, record: EpisodeRecord) -> None:
        """Count an episode; it is on the disk within a second, or when `write` is called."""
        self.episodes.append(EvaluatedEpisode(seed, record))
        if time.monotonic() >= self._next_write:
            self.write()
            self._next_write = time.monotonic() + _WRITE_INTERVAL_S

    def write(self) -> None:
        """Bring the CSV up to date; without an episode there is none, and one from before stays."""
        if self.episodes:
            write_evaluation(self.path, self.episodes)


def run_evaluation(args: Args, stop: threading.Event) -> None:
    """Evaluate a snapshot over `--evaluation-episodes` seeds: CSV, summary, videos.

    A stop, or the death of a process, keeps the episodes that have ended by then.
    """
    if args.model is None:
        raise UserError("--model: name the snapshot to evaluate, as in --model results/best_model_pong.pth")
    saved = snapshot.load(args.model, "--model")
    args = network_args(args, saved)
    evaluation = Evaluation(_folder("--path-to-results", args.path_to_results / "evaluations") / csv_name(args))
    if args.record is not None:
        _folder("--record", args.record)
        open_environment(args, args.seed, record=True).close()  # whether pictures can be had is known now
    device = select_device(args)
    with make_players(args, saved, number_of_workers(args, device), stop) as players:
        for line in other_rules(args, saved):
            print(line, flush=True)
        print(f"{args.model} plays {args.task}: {args.evaluation_episodes} episodes on {device}", flush=True)
        try:
            with make_progress(args.evaluation_episodes) as progress:
                _play(players, args, evaluation, progress)
        finally:
            _report(args, evaluation, players.action_repeat)
        if args.record is not None:
            _record(players, evaluation.episodes, args.record, args.task)


def csv_name(args: Args) -> str:
    """Name of the CSV of an evaluation."""
    assert args.model is not None
    return f"{args.task}_{args.model.stem}_seed{args.seed}.csv"


def _folder(option: str, folder: Path) -> Path:
    """Make the folder; raises UserError if nothing can be written there, before hours are spent."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{option}: {folder} cannot be made ({error.strerror})") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"{option}: expected a folder to write in, and nothing can be written to {folder}")
    return folder


def _play(players: Players, args: Args, evaluation: Evaluation, progress: Progress) -> None:
    tasks = (Task(episode, derive_seed(args.seed, 4, episode)) for episode in range(args.evaluation_episodes))
    for task, record in players.play(tasks):
        evaluation.add(task.seed, record)
        progress.add(record)


def _report(args: Args, evaluation: Evaluation, action_repeat: int) -> None:
    evaluation.write()
    records = [record for _, record in sorted(evaluation.episodes, key=lambda episode: episode.record.episode)]
    if not records:
        return
    print(format_evaluation(records, action_repeat, read_scores().get(args.game) if args.env == "atari" else None))
    if len(records) < args.evaluation_episodes:
        print(
            f"stopped: {len(records)} of {args.evaluation_episodes} episodes; those that still ran are missing, and "
            "long ones more often than short ones"
        )
    print(f"episodes: {evaluation.path}", flush=True)


def best_median_worst(episodes: list[EvaluatedEpisode]) -> dict[str, EvaluatedEpisode]:
    """The episodes by the place of their SABER scores, none twice; of an even number the lower one is the median."""
    ordered = sorted(episodes, key=lambda episode: (-episode.record.score_saber, episode.record.episode))
    chosen: dict[str, EvaluatedEpisode] = {}
    for place, index in (("best", 0), ("worst", -1), ("median", len(ordered) // 2)):
        if ordered[index] not in chosen.values():
            chosen[place] = ordered[index]
    return chosen


def _record(players: Players, episodes: list[EvaluatedEpisode], folder: Path, task: str) -> None:
    """Play the chosen episodes again, with the same seeds, and film them."""
    chosen = best_median_worst(episodes)
    print(f"Recording again in {folder}: {', '.join(chosen)}; {MAX_SECONDS // 60} minutes of each at most", flush=True)
    before = {episode.record.episode: episode.record for episode in chosen.values()}
    tasks = [
        Task(record.episode, seed, folder / f"{task}_{place}_episode{record.episode}.webm")
        for place, (seed, record) in chosen.items()
    ]
    for film, record in players.play(tasks):
        print(f"{film.film}: score {record.score_saber:g}", flush=True)
        if record != (first := before[film.episode]):  # on a GPU sums may be added in another order
            print(f"  it did not repeat itself: its score was {first.score_saber:g} before", flush=True)
