"""Options of VizDoom's environments."""

from dataclasses import dataclass

from rainbow_iqn_apex.common.option import option
from rainbow_iqn_apex.environments.interface import OwnOptions


@dataclass(frozen=True)
class VizdoomOptions(OwnOptions):
    """vizdoom"""

    vizdoom_buttons: str = option(
        "one",
        "what an action is: one button or none (one choice), or any buttons at once (MultiBinary)",
        choices=("one", "any"),
    )
