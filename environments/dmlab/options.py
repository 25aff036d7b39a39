"""Options of DeepMind Lab, its levels by name, and DMLab-30's scores to compare with.

DMLab-30's human scores and those of random actions, per episode: Espeholt et al. 2018 (IMPALA, arXiv 1802.01561),
as published beside it in dmlab30.py of github.com/deepmind/scalable_agent. Both are of the test level of a pair.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from rainbow_iqn_apex.common.option import option
from rainbow_iqn_apex.common.text import nearest, suggestion
from rainbow_iqn_apex.environments.interface import OwnOptions

ALL = "dmlab30"  # the name that stands for all levels of DMLab-30
_FOLDER = "contributed/dmlab30/"
_PAIRED = ("rooms_collect_good_objects", "rooms_exploit_deferred_effects")  # a level to train on, another to test
# Levels that the engine brings besides; others are named by their path, with a slash in it.
_OTHERS = (
    *("lt_chasm", "lt_hallway_slope", "lt_horseshoe_color", "lt_space_bounce_hard", "seekavoid_arena_01"),
    *(f"nav_maze_{kind}_0{number}" for kind in ("random_goal", "static") for number in (1, 2, 3)),
    "stairway_to_melon",
)


@dataclass(frozen=True)
class DmlabOptions(OwnOptions):
    """options of DeepMind Lab"""

    dmlab_renderer: str = option("software", "what draws: a processor or the GPU", choices=("software", "hardware"))
    dmlab_level_cache: str = option(
        "", "folder that keeps compiled maps for all processes; empty: none", path=True, machine=True
    )
    dmlab_level_cache_gb: float = option(
        20.0, "size of that folder from which on nothing is added [GB]", above=0, machine=True
    )
    dmlab_dataset: str = option(
        "", "folder of the pictures that psychlab levels show (brady_konkle_oliva2008)", path=True, machine=True
    )


class LevelScores(NamedTuple):
    """Scores of a level in its points."""

    random: float
    human: float

    def normalised(self, score: float) -> float:
        """Return (score - random) / (human - random): 0 is the random agent, 1 the human."""
        return (score - self.random) / (self.human - self.random)


SCORES: Mapping[str, LevelScores] = MappingProxyType(
    {
        "rooms_collect_good_objects": LevelScores(0.073, 10),
        "rooms_exploit_deferred_effects": LevelScores(8.501, 85.65),
        "rooms_select_nonmatching_object": LevelScores(0.312, 65.9),
        "rooms_watermaze": LevelScores(4.065, 54),
        "rooms_keys_doors_puzzle": LevelScores(4.135, 53.8),
        "language_select_described_object": LevelScores(-0.07, 389.5),
        "language_select_located_object": LevelScores(1.929, 280.7),
        "language_execute_random_task": LevelScores(-5.913, 254.05),
        "language_answer_quantitative_question": LevelScores(-0.33, 184.5),
        "lasertag_one_opponent_small": LevelScores(-0.224, 12.65),
        "lasertag_three_opponents_small": LevelScores(-0.214, 18.55),
        "lasertag_one_opponent_large": LevelScores(-0.083, 18.6),
        "lasertag_three_opponents_large": LevelScores(-0.102, 31.5),
        "natlab_fixed_large_map": LevelScores(2.173, 36.9),
        "natlab_varying_map_regrowth": LevelScores(2.989, 24.45),
        "natlab_varying_map_randomized": LevelScores(7.346, 42.35),
        "skymaze_irreversible_path_hard": LevelScores(0.1, 100),
        "skymaze_irreversible_path_varied": LevelScores(14.4, 100),
        "psychlab_arbitrary_visuomotor_mapping": LevelScores(0.163, 58.75),
        "psychlab_continuous_recognition": LevelScores(0.224, 58.3),
        "psychlab_sequential_comparison": LevelScores(0.129, 39.5),
        "psychlab_visual_search": LevelScores(0.085, 78.5),
        "explore_object_locations_small": LevelScores(3.575, 74.45),
        "explore_object_locations_large": LevelScores(4.673, 65.65),
        "explore_obstructed_goals_small": LevelScores(6.76, 206),
        "explore_obstructed_goals_large": LevelScores(2.61, 119.5),
        "explore_goal_locations_small": LevelScores(7.66, 267.5),
        "explore_goal_locations_large": LevelScores(3.14, 194.5),
        "explore_object_rewards_few": LevelScores(2.073, 77.7),
        "explore_object_rewards_many": LevelScores(2.438, 106.7),
    }
)
DMLAB30 = tuple(SCORES)


def check_level(name: str) -> None:
    """Raise ValueError for a name that no level has, or that stands for several."""
    if name == ALL:
        raise ValueError(f"{ALL} stands for {len(DMLAB30)} levels; name one of them, as in dmlab:{DMLAB30[0]}")
    if "/" in name or name in _OTHERS or _base(name) in SCORES:
        return
    close = nearest(name, (ALL, *DMLAB30, *_OTHERS))
    hint = suggestion(close, "one of your own is named by its path, with a slash")
    raise ValueError(f"DeepMind Lab has no level {name!r}; {hint}")


def path_of(level: str, is_test: bool) -> str:
    """Return the engine's path of a level, of a pair that to train on or that to test."""
    base = _base(level)
    if base not in SCORES:
        return level
    if base in _PAIRED and level == base:
        level = f"{base}_{'test' if is_test else 'train'}"
    return _FOLDER + level


def scores_of(level: str) -> LevelScores | None:
    """Return the scores to compare with; None for a level that is none of DMLab-30."""
    return SCORES.get(_base(level))


def _base(level: str) -> str:
    """Return a level's name without the ending of a pair's halves."""
    for base in _PAIRED:
        if level in (f"{base}_train", f"{base}_test"):
            return base
    return level
