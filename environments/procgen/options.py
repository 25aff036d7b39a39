"""Options of Procgen: which levels are played."""

from dataclasses import dataclass

from rainbow_iqn_apex.common.option import option
from rainbow_iqn_apex.environments.interface import OwnOptions

LAST_LEVEL = 2**31 - 1
MODES = ("easy", "hard", "extreme", "memory", "exploration")


@dataclass(frozen=True)
class ProcgenOptions(OwnOptions):
    """options of Procgen"""

    procgen_mode: str = option(
        "hard", "levels: easy learn in less time; the others are not in every game", choices=MODES
    )
    procgen_num_levels: int = option(
        0, "levels to play, 0: all 2^31; the paper trains on 200", least=0, most=LAST_LEVEL
    )
    procgen_start_level: int = option(0, "first of the levels to play", least=0, most=LAST_LEVEL)

    def errors(self) -> list[str]:
        """Return what is wrong with the options together, one line each."""
        errors = []
        if self.procgen_num_levels and self.procgen_start_level + self.procgen_num_levels > LAST_LEVEL:
            errors.append(
                f"--procgen-start-level: {self.procgen_start_level} and --procgen-num-levels {self.procgen_num_levels} "
                f"reach beyond the last level, {LAST_LEVEL}"
            )
        if self.procgen_mode == "exploration" and (self.procgen_num_levels or self.procgen_start_level):
            errors.append("--procgen-mode: exploration plays a single level; leave out which levels to play")
        return errors
