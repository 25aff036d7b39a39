"""The options of inference on a server."""

from dataclasses import dataclass

from rainbow_iqn_apex.common.option import option
from rainbow_iqn_apex.memory.limiter import MAX_ACTORS


@dataclass(frozen=True)
class InferenceOptions:
    """inference"""

    inference: str = option(
        "local",
        "where an actor's actions are computed: local (in the actor), server (by launch_inference.py, so that actors "
        "load no torch), or learner (as server, and the learner starts one itself); the run's name and settings stay",
        choices=("local", "server", "learner"),
    )
    id_inference: int = option(0, "number of this inference server, from 0", least=0, most=MAX_ACTORS - 1)
    inference_host: str = option(
        "", "name or address by which other machines reach this inference server; empty: it serves its machine alone"
    )
    inference_port: int = option(0, "port of this inference server; 0: any that is free", least=0, most=65535)
