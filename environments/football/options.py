"""The options of football, and the names of its scenarios."""

from dataclasses import dataclass

from rainbow_iqn_apex.common.option import option
from rainbow_iqn_apex.environments.interface import OwnOptions

SCENARIOS = tuple(  # of both engines
    (
        "11_vs_11_competition 11_vs_11_easy_stochastic 11_vs_11_hard_stochastic 11_vs_11_kaggle 11_vs_11_stochastic "
        "1_vs_1_easy 5_vs_5 academy_3_vs_1_with_keeper academy_corner academy_counterattack_easy "
        "academy_counterattack_hard academy_empty_goal academy_empty_goal_close academy_pass_and_shoot_with_keeper "
        "academy_run_pass_and_shoot_with_keeper academy_run_to_score academy_run_to_score_with_keeper "
        "academy_single_goal_versus_lazy"
    ).split()
)


@dataclass(frozen=True)
class FootballOptions(OwnOptions):
    """football"""

    football_engine: str = option(
        "envpool",
        "what plays: envpool (a package), or gfootball (the exact engine, built by make_environment.sh --football)",
        choices=("envpool", "gfootball"),
    )
    football_planes: str = option(
        "72x96",
        "height and width of the four planes, in pixels; envpool has 72x96 alone",
        choices=("72x96", "90x120", "108x144"),
    )
    football_rewards: str = option(
        "scoring",
        "what is learned from: scoring (goals), or scoring,checkpoints (and 0.1 for each tenth of the way there; "
        "gfootball alone); the score counts goals",
        choices=("scoring", "scoring,checkpoints"),
    )

    def errors(self) -> list[str]:
        """Return what is wrong with the options together, one line each."""
        if self.football_engine != "envpool":
            return []
        own = {"planes": self.football_planes, "rewards": self.football_rewards}
        return [
            f"--football-{name}: envpool has {has} alone; --football-engine gfootball has {own[name]}"
            for name, has in (("planes", "72x96"), ("rewards", "scoring"))
            if own[name] != has
        ]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the planes [pixels]."""
        height, _, width = self.football_planes.partition("x")
        return int(height), int(width)
