"""Read the options of the start script: its own, and those that it hands on to the learner and to every actor."""

import argparse
import dataclasses
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rainbow_iqn_apex import args
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.files import folder_to_write
from rainbow_iqn_apex.common.option import flag_of
from rainbow_iqn_apex.memory.broker.access import Server, find_server
from rainbow_iqn_apex.memory.broker.leases import LEARNER
from rainbow_iqn_apex.options import command_line, config_file
from rainbow_iqn_apex.options.command_line import Parser, devices, path
from rainbow_iqn_apex.options.environment_names import check_actors
from rainbow_iqn_apex.options.sink_options import check_sinks
from rainbow_iqn_apex.programs.machine import check_device, preset_for
from rainbow_iqn_apex.programs.start import hosts
from rainbow_iqn_apex.programs.start.hosts import Host

PROGRAM = command_line.name_of("start_learning_atari.sh")
WINDOWS = ("auto", "terminal", "tmux", "none")
_STOP_SECONDS = "RAINBOW_STOP_SECONDS"
_ONCE = "--abandon-other-run"
_OF_THIS_MACHINE = {  # options that actors elsewhere are not given
    *("id_actor", "id_eval_actor", "host_redis", "port_redis", "redis_url", "config", "model"),
    *("path_to_results", "gpu_number", "render", "abandon_other_run"),
}
_OTHERS = {  # options that this script gives itself
    "id_actor": "--id-actor: is not for this script, which starts actors 0 to --nb-actor - 1",
    "id_eval_actor": "--id-eval-actor: is not for this script, which starts 0 to --nb-eval-actors - 1",
    "id_inference": "--id-inference: is not for this script, which starts number 0 with --inference server",
}


@dataclass(frozen=True)
class StartOptions:
    """Hold the wishes of a command line and the environment."""

    args: Args  # of the learner
    launcher_options: tuple[str, ...]  # as the learner and the actors get them
    server: Server
    preset_chosen: str = ""  # the preset that was chosen for want of a GPU
    gpus: tuple[int, ...] = ()
    windows: str = "auto"
    use_running_redis: bool = False
    stop_seconds: int = 60
    hosts: tuple[Host, ...] = ()  # where the actors play; none: here

    def command(self, id_actor: int) -> list[str]:
        """Return the command of an actor, or of the LEARNER; both take the GPUs in turn, the learner the first."""
        if id_actor == LEARNER:
            return self._with_options("launch_learner.py", [], 0)
        if self.hosts:
            return self._remote_command(id_actor)
        return self._with_options("launch_actor.py", ["--id-actor", str(id_actor)], id_actor - LEARNER)

    @property
    def serves(self) -> bool:
        """Whether an inference server belongs to the run that is not the learner's own."""
        return self.args.inference == "server"

    def inference_command(self) -> list[str]:
        """Return the command of the inference server; it takes the learner's GPU."""
        return self._with_options("launch_inference.py", ["--id-inference", "0"], 0)

    def actor_name(self, id_actor: int) -> str:
        """Return what the start script calls an actor."""
        return f"actor {id_actor}" + (f" on {self._place_of(id_actor)[0].name}" if self.hosts else "")

    def _place_of(self, id_actor: int) -> tuple[Host, int]:
        """Return the host of an actor, and the actor's turn among those there."""
        for host in self.hosts:
            if id_actor < host.actors:
                return host, id_actor
            id_actor -= host.actors
        raise AssertionError("more actors than the hosts have")

    def _remote_command(self, id_actor: int) -> list[str]:
        """Return the command that stands for an actor elsewhere, where files and addresses from here mean nothing."""
        host, turn = self._place_of(id_actor)
        names = [f.name for part in self.args.parts for f in dataclasses.fields(part) if f.name in self.args.given]
        given = {name: self.args.get(name) for name in names if name not in _OF_THIS_MACHINE}
        given |= {"id_actor": id_actor} | ({"gpu_number": host.gpus[turn % len(host.gpus)]} if host.gpus else {})
        words = [f"{flag_of(name)}={value}" for name, value in given.items()]
        module = [sys.executable, "-m", "rainbow_iqn_apex.programs.start.hosts"]
        return [*module, host.name, host.folder, self.redis, str(self.server.access.db), *words]

    @property
    def redis(self) -> str:
        """Host and port of the Redis server, as ssh takes them."""
        host = f"[{self.server.host}]" if ":" in self.server.host else self.server.host
        return f"{host}:{self.server.port}"

    def evaluation_command(self, id_eval_actor: int) -> list[str]:
        """Return the command of an evaluation actor; these take the GPUs after the actors."""
        turn = self.args.nb_actor - LEARNER + id_eval_actor
        return self._with_options("launch_actor.py", ["--id-eval-actor", str(id_eval_actor)], turn)

    def _with_options(self, program: str, which: list[str], turn: int) -> list[str]:
        gpu = [f"--gpu-number={self.gpus[turn % len(self.gpus)]}"] if self.gpus else []
        return [*command_line.run_by(program), *which, *self.launcher_options, *gpu]


def read(words: Sequence[str], environment: Mapping[str, str], count_gpus: Callable[[], int]) -> StartOptions:
    """Read a command line; raises UserError, also for a results folder that cannot be written.

    `count_gpus` takes seconds, so it is called only where its answer matters.
    """
    stop_seconds = _stop_seconds(environment)
    own, rest = parser().parse_known_args(list(words))
    if own.windows not in WINDOWS:
        raise UserError(f"--windows: expected {', '.join(WINDOWS[:-1])} or {WINDOWS[-1]}, got {own.windows!r}")
    given, keys, errors = args.read(rest)
    for name, line in _OTHERS.items():
        if name in given and not (name == "id_inference" and name in keys):  # files of an earlier release have it
            raise UserError(config_file.name_source(line, given.get(config_file.CONFIG), keys))
    if own.gpus and "gpu_number" in given.keys() - keys.keys():  # --gpus goes before a file
        raise UserError("--gpus, --gpu-number: give either of them")
    playing = _read_hosts(own.hosts, {name: given[name] for name in given.keys() - keys.keys()}, rest)
    if not given.get("disable_cuda"):
        for gpu in own.gpus:
            check_device("--gpus", gpu, count_gpus())
    preset = "" if errors else preset_for(given, count_gpus)
    rest += ["--preset", preset] if preset else []
    parsed = args.parse(rest, PROGRAM, "")
    server = find_server(parsed.host_redis, parsed.port_redis, parsed.redis_url, environment)
    try:
        check_actors(parsed.env, parsed.game, parsed.nb_actor)
        check_sinks(parsed)
        if parsed.gpu_number and not (parsed.disable_cuda or own.gpus):
            check_device("--gpu-number", parsed.gpu_number, count_gpus())
        folder_to_write("--path-to-results", parsed.path_to_results)
    except UserError as error:
        raise UserError(parsed.name_source(str(error))) from error
    if playing:
        _check_tunnel(server, parsed)
    return StartOptions(
        parsed, tuple(rest), server, preset, own.gpus, own.windows, own.use_running_redis, stop_seconds, playing
    )


def _check_tunnel(server: Server, parsed: Args) -> None:
    """Raise UserError for a server that a tunnel of one port cannot lead to, and for inference servers."""
    if server.others or server.service or parsed.redis_shards > 1:
        raise UserError(hosts.ONE_SERVER)
    if server.access.tls:
        raise UserError(
            f"{hosts.OPTION}: actors reach Redis through ssh, where its certificate names no host: use redis://"
        )
    if parsed.inference != "local":
        raise UserError(
            "--hosts, --inference: actors elsewhere reach Redis alone through ssh, and no inference server: "
            "leave --inference out, or start them by hand (docs/inference.md)"
        )


def _read_hosts(path: Path | None, given: Mapping[str, Any], rest: list[str]) -> tuple[Host, ...]:
    """Return the hosts of a file, none without one; add their number of actors to the options that are handed on."""
    if path is None:
        return ()
    found = hosts.read(path, str(Path.cwd()))
    actors = sum(host.actors for host in found)
    if given.get("nb_actor", actors) != actors:
        raise UserError(f"{hosts.OPTION}, --nb-actor: {path} has {actors} actors; leave --nb-actor out")
    rest += ["--nb-actor", str(actors)]
    return found


def continuation(script: Sequence[str], words: Sequence[str]) -> str:
    """Return the command that goes on with a run, to be copied into a shell; a call in Python by its name."""
    if script[-1].endswith("()"):
        return f"the same call of {script[-1]}"
    return shlex.join([*script, *lasting(words)])


def lasting(words: Sequence[str]) -> list[str]:
    """Return words without the option that is meant for one start: later the other run may be this one's successor."""
    return [
        word
        for before, word in zip(["", *words], words, strict=False)
        if word.partition("=")[0] != _ONCE and not (before == _ONCE and not word.startswith("-"))
    ]


def parser() -> argparse.ArgumentParser:
    """Return the parser of this script's own options, which help.txt explains."""
    parser = Parser(prog=PROGRAM, add_help=False, allow_abbrev=False)
    parser.add_argument("--gpus", type=devices, default=())
    parser.add_argument("--hosts", type=path)
    parser.add_argument("--windows", default="auto")
    parser.add_argument("--use-running-redis", action="store_true")
    return parser


def _stop_seconds(environment: Mapping[str, str]) -> int:
    text = environment.get(_STOP_SECONDS) or "60"
    if not re.fullmatch("0|[1-9][0-9]{0,5}", text):
        raise UserError(f"{_STOP_SECONDS}: expected whole seconds, got {text!r}")
    return int(text)
