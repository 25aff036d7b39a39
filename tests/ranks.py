"""A whole system with several learners, as torchrun starts them: each is a process with a number in its environment."""

import sys
from pathlib import Path

from tests.processes import Process, clean_environment
from tests.start_script import free_port
from tests.system import LEARNER, System


class Ranks(System):
    """A run with `learners` learners: the one that leads is LEARNER, the others are `learner 1` and so on.

    Its block begins without them if nobody is to be `started`.
    """

    def __init__(
        self, port: int, name: str, folder: Path, options: list[str], *,
        learners: int = 2, actors: int = 2, started: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(port, name, folder, options, actors=actors)
        self._learners = learners
        self._started = started

    def __enter__(self) -> "Ranks":
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._started:
            self.start_learners()
            for actor in range(self._actors):
                self.start(str(actor))
        return self

    @property
    def learners(self) -> list[Process]:
        """All learners; the first one leads."""
        return [self.processes[name_of(rank)] for rank in range(self._learners)]

    def start_learners(self, *more: str, by_rank: dict[int, list[str]] | None = None) -> list[Process]:
        """Start all learners, each with options of its own behind those of all."""
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo"}
        for rank in range(self._learners):
            own = (by_rank or {}).get(rank, [])
            self.start_learner(rank, meeting, *more, *own)
        return self.learners

    def start_learner(self, rank: int, meeting: dict[str, str], *more: str) -> Process:
        """Start one learner."""
        environment = clean_environment() | meeting | {"RANK": str(rank), "WORLD_SIZE": str(self._learners)}
        words = ["-m", *self._launch, self._change, "launch_learner.py", *self.options, *more]
        output = self.folder / f"{name_of(rank)}.txt"
        self.processes[name_of(rank)] = self._all.start(*words, environment=environment, output=output, together=True)
        return self.processes[name_of(rank)]

    def start_torchrun(self) -> Process:
        """Start all learners by torchrun."""
        program = str(Path(sys.executable).with_name("torchrun"))
        place = ["--master-addr", "127.0.0.1", "--master-port", free_port()]
        words = ["-m", *self._launch, self._change, "launch_learner.py", *self.options]
        return self._all.start(
            "--nproc-per-node", self._learners, *place, *words,
            program=program, environment=clean_environment() | {"GLOO_SOCKET_IFNAME": "lo"},
            output=self.folder / "torchrun.txt", together=True,
        )  # fmt: skip


def name_of(rank: int) -> str:
    """Return the name of a learner's process."""
    return f"{LEARNER} {rank}" if rank else LEARNER
