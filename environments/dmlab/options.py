"""Options of DeepMind Lab: what draws, and where large files are."""

from dataclasses import dataclass

from rainbow_iqn_apex.common.option import option
from rainbow_iqn_apex.environments.interface import OwnOptions


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
