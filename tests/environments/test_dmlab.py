"""DeepMind Lab on a stand-in for its engine, which checks each call: levels, settings, actions, words and the cache."""

import errno
import re
import shutil
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.common.errors import RunError, Stopped
from rainbow_iqn_apex.environments.dmlab import environment as dmlab
from rainbow_iqn_apex.environments.dmlab.environment import LevelCache
from rainbow_iqn_apex.environments.dmlab.options import DMLAB30, DmlabOptions, path_of, scores_of
from rainbow_iqn_apex.environments.interface import Environment, EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from rainbow_iqn_apex.environments.words import numbered, text_field
from rainbow_iqn_apex.memory.environment_spec import unpack
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.common import open_environment
from rainbow_iqn_apex.programs.evaluation.workers import EpisodePlayer, Task
from tests.environments.episodes import play_out

pytestmark = pytest.mark.usefixtures("labyrinths")
SMALL = "explore_goal_locations_small"


def make(level: str = SMALL, seed: int = 1, own: DmlabOptions | None = None, **settings: Any) -> Environment:
    return make_environment(EnvironmentSettings(env=f"dmlab:{level}", own=own or DmlabOptions(), **settings), seed)


def engines() -> Any:
    """All engines that were started, the newest last."""
    return sys.modules["deepmind_lab"].Lab.made


@pytest.mark.parametrize(
    ("there", "says"),
    [("", "no module deepmind_lab; docs/environments.md tells how to build it"), ("dmlab_gym", "dmlab-gym build")],
)
def test_a_missing_engine_is_one_line(there: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dmlab, "find_spec", lambda name: name == there or None)
    with pytest.raises(ValueError, match=re.escape(says)):
        make()


def test_a_level_that_the_engine_does_not_load_is_one_line() -> None:
    with pytest.raises(RunError, match=r"^DeepMind Lab cannot start missing/level: Invalid level flag"):
        make("missing/level").reset()


def test_dmlab30_has_thirty_levels_with_scores() -> None:
    with pytest.raises(ValueError, match="dmlab30 stands for 30 levels; name one of them, as in dmlab:rooms_collect"):
        make("dmlab30")
    assert len(DMLAB30) == 30
    for level in DMLAB30:
        scores = scores_of(level)
        assert scores is not None and (scores.normalised(scores.random), scores.normalised(scores.human)) == (0, 1)
    assert scores_of("rooms_collect_good_objects_test") == scores_of("rooms_collect_good_objects")
    assert scores_of("lt_chasm") is None


@pytest.mark.parametrize(
    ("level", "train", "test"),
    [
        (SMALL, f"contributed/dmlab30/{SMALL}", f"contributed/dmlab30/{SMALL}"),
        ("lt_chasm", "lt_chasm", "lt_chasm"),
        ("mine/own", "mine/own", "mine/own"),
        *(
            (name, f"contributed/dmlab30/{train}", f"contributed/dmlab30/{test}")
            for base in ("rooms_collect_good_objects", "rooms_exploit_deferred_effects")
            for name, train, test in (
                (base, f"{base}_train", f"{base}_test"),
                (f"{base}_train", f"{base}_train", f"{base}_train"),
                (f"{base}_test", f"{base}_test", f"{base}_test"),
            )
        ),
    ],
)
def test_a_level_to_train_on_and_one_to_test(level: str, train: str, test: str) -> None:
    assert (path_of(level, is_test=False), path_of(level, is_test=True)) == (train, test)


def test_the_engine_gets_the_papers_settings_and_starts_with_the_first_episode() -> None:
    # Mutation: let evaluations play the levels and the seeds that are trained on.
    environment, evaluation = make(), make("rooms_collect_good_objects", evaluation=True)
    assert "deepmind_lab" not in sys.modules
    environment.reset()
    evaluation.reset()
    training, held_out = engines()
    plain = {"width": "96", "height": "72", "fps": "60", "logLevel": "WARN"}
    assert (training.level, training.config) == (f"contributed/dmlab30/{SMALL}", plain)
    assert held_out.level == "contributed/dmlab30/rooms_collect_good_objects_test"
    assert held_out.config == plain | {"allowHoldOutLevels": "true", "mixerSeed": "1611489005"}
    environment.close()
    assert not training.is_open and held_out.is_open


def test_an_action_lasts_four_frames_and_the_last_one_as_long_as_there_are() -> None:
    environment = make(action_repeat=4)
    rows = play_out(environment, lambda rows: len(rows) % 9)
    (engine,) = engines()
    assert 4 * (len(rows) - 2) < engine.frames <= 4 * (len(rows) - 1)
    assert (environment.end, rows[-1].discount) == ("game_over", 0)
    assert np.array_equal(rows[-1].obs, rows[-2].obs)
    assert sum(row.reward for row in rows) > 1, "rewards of all frames are added up"


def test_the_instruction_stands_beside_the_picture() -> None:
    environment = make("language_select_described_object")
    row = environment.reset()
    picture, words = unpack(environment.spec.observation, row.obs)
    assert picture.shape == (3, 72, 96) and picture.dtype == np.uint8
    assert np.array_equal(picture, engines()[0].observations()["RGB_INTERLEAVED"].transpose(2, 0, 1))
    assert np.array_equal(words, numbered("Go to the red hat", text_field(16)))
    assert not unpack(environment.spec.observation, make().reset().obs)[1].any()


def test_films_are_what_the_network_sees_and_windows_are_none() -> None:
    environment = make(record=True)
    row = environment.reset()
    (picture,) = environment.pictures()
    assert np.array_equal(picture.transpose(2, 0, 1), unpack(environment.spec.observation, row.obs)[0])
    with pytest.raises(RuntimeError, match="cannot render"):
        make(render=True)


def test_evaluations_play_what_is_held_out() -> None:
    # Mutation: open an evaluation's environment as a training's.
    words = "--env dmlab:rooms_collect_good_objects --agent impala --preset cpu --hidden-size 8 --disable-cuda"
    args = options.parse(words.split(), "test", "")
    spec = open_environment(args, 0).spec
    weights = make_agent(args, spec, torch.device("cpu"), learns=True, seed=0).model.state_dict()
    stop = threading.Event()
    stop.set()  # once the episode has begun
    with pytest.raises(Stopped):
        EpisodePlayer(args, weights, stop).play(Task(0, seed=1))
    (engine,) = engines()
    assert engine.level.endswith("rooms_collect_good_objects_test") and engine.config["allowHoldOutLevels"] == "true"


# --- compiled maps ---


def test_maps_are_compiled_once_for_all(tmp_path: Path) -> None:
    # Mutation: give the engine no cache.
    own = DmlabOptions(dmlab_level_cache=str(tmp_path / "maps"))
    for seed in range(2):
        environment = make(seed=seed, own=own)
        for _ in range(12):  # of three maps
            environment.reset()
    assert sorted(sys.modules["deepmind_lab"].Lab.compiled) == [f"contributed/dmlab30/{SMALL}.{n}" for n in range(3)]
    assert len([path for path in tmp_path.rglob("*.pk3") if path.is_file()]) == 3
    assert not [*tmp_path.rglob(".new-*")]


def cached(folder: Path, most: float = 1e6) -> LevelCache:
    return LevelCache(folder / "maps", most)


def engine_file(folder: Path, content: bytes) -> str:
    path = folder / "engine.pk3"
    path.write_bytes(content)
    return str(path)


def test_a_map_is_written_once(tmp_path: Path) -> None:
    # Mutation: replace the file.
    cached(tmp_path).write("level", engine_file(tmp_path, b"first"))
    cached(tmp_path).write("level", engine_file(tmp_path, b"second"))
    target = tmp_path / "fetched"
    assert cached(tmp_path).fetch("level", str(target)) and target.read_bytes() == b"first"
    assert not cached(tmp_path).fetch("another", str(target)) and target.read_bytes() == b"first"


def test_a_full_folder_takes_no_more_and_loses_nothing(tmp_path: Path) -> None:
    # Mutation: count what this process has written alone.
    cached(tmp_path).write("others", engine_file(tmp_path, b"x" * 600))
    cache = cached(tmp_path, most=1000)
    cache.write("large", engine_file(tmp_path, b"x" * 600))
    cache.write("small", engine_file(tmp_path, b"x" * 300))
    cache.write("second", engine_file(tmp_path, b"x" * 300))
    found = [cache.fetch(key, str(tmp_path / "fetched")) for key in ("others", "large", "small", "second")]
    assert found == [True, False, True, False]


def test_a_full_folder_is_counted_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: count it for each map until one is written.
    counts: list[str] = []
    rglob = Path.rglob

    def count(folder: Path, pattern: str) -> Iterable[Path]:
        counts.append(pattern)
        return rglob(folder, pattern)

    monkeypatch.setattr(Path, "rglob", count)
    cache = cached(tmp_path, most=1)
    for number in range(70):
        cache.write(str(number), engine_file(tmp_path, b"map"))
    assert len(counts) == 2


def test_a_full_disk_stops_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutations: leave the half of a map under its name; end the run.
    def fill(_: Path, target: Path) -> NoReturn:
        target.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    cache = cached(tmp_path)
    cache.write("first", engine_file(tmp_path, b"first"))
    with monkeypatch.context() as full:
        full.setattr(shutil, "copyfile", fill)
        cache.write("second", engine_file(tmp_path, b"second"))
    cache.write("third", engine_file(tmp_path, b"third"))
    found = [cache.fetch(key, str(tmp_path / "fetched")) for key in ("first", "second", "third")]
    assert found == [True, False, False]
    assert len([path for path in (tmp_path / "maps").rglob("*") if path.is_file()]) == 1


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"^--dmlab-level-cache: .*file"):
        make(own=DmlabOptions(dmlab_level_cache=str(tmp_path / "file")))
