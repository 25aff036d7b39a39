"""deploy/docker: what can be known without an engine. No test and nobody else has built this image."""

import fnmatch
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from rainbow_iqn_apex.common.errors import UserError
from tests.deploy.recipes import DEPLOY, check_command
from tests.deploy.test_kubernetes import base, pods, words_of
from tests.processes import ROOT
from tests.test_documented_commands import Workplace, place

__all__ = ["place"]  # a fixture
DOCKER = DEPLOY / "docker"
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
# Of compose's specification, those that the file uses.
SERVICE_KEYS = {
    "image", "build", "user", "environment", "env_file", "restart", "cap_drop", "security_opt", "depends_on", "command",
    "volumes", "ports", "healthcheck", "stop_grace_period",
}  # fmt: skip


class Instruction(NamedTuple):
    """A line of a Dockerfile, joined with those that continue it."""

    name: str
    text: str


def instructions() -> list[Instruction]:
    lines = [line for line in (DOCKER / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines)).splitlines()
    return [Instruction(*line.split(maxsplit=1)) for line in joined]


def texts(name: str) -> list[str]:
    return [instruction.text for instruction in instructions() if instruction.name == name]


def test_the_image_is_made_of_what_is_there_and_runs_as_nobody_special() -> None:
    names = [instruction.name for instruction in instructions()]
    assert names[0] == "FROM" and names[-2:] == ["USER", "CMD"]
    assert set(names) <= {"FROM", "ARG", "RUN", "WORKDIR", "COPY", "USER", "CMD"}
    assert texts("USER") == ["1000"] and "--uid 1000" in " ".join(texts("RUN"))
    for copied in texts("COPY"):
        *sources, _ = copied.split()
        assert all((ROOT / source).exists() for source in sources)
    assert words_in(texts("CMD")[0])[1] == "launch_learner.py"


def words_in(text: str) -> list[str]:
    return [str(word) for word in yaml.safe_load(text)]


def test_each_command_of_the_image_is_one_of_a_shell() -> None:
    for command in texts("RUN"):
        assert subprocess.run(["sh", "-n", "-c", command], capture_output=True).returncode == 0, command
    (extras,) = re.findall(r"\$\((grep -E .*?)\)$", texts("RUN")[-1])
    found = subprocess.check_output(shlex.split(extras), cwd=ROOT, text=True).split()
    assert [line.split("==")[0] for line in found] == ["prometheus-client"]
    (torch,) = re.findall(r"torch=\$\((.*?)\)", " ".join(texts("RUN")))
    assert subprocess.check_output(shlex.split(torch), cwd=ROOT, text=True).startswith("torch==")


def is_left_out(path: str) -> bool:
    """Whether the image lacks a file: the last pattern that fits it, or a folder above it, decides."""
    left_out = False
    for line in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        parts = [Path(path), *Path(path).parents]
        if line and not line.startswith("#") and any(fnmatch.fnmatch(str(part), pattern) for part in parts):
            left_out = not line.startswith("!")
    return left_out


def test_the_image_has_what_its_commands_name_and_no_secrets() -> None:
    words = [word for _, pod in pods(base()) for container in pod["containers"] for word in words_of(container)]
    words += [word for service in SERVICES.values() for word in shlex.split(service["command"])]
    named = {word for word in words if re.match(r"deploy/|\w+\.(py|conf)$", word)}
    assert {"launch_actor.py", "deploy/kubernetes/until_finished.sh", "deploy/docker/run.yaml"} <= named
    assert [word for word in [*named, "results/README.md", "agents/registry.py"] if is_left_out(word)] == []
    assert all(map(is_left_out, ["access/learner.env", "results/model.pth", ".git/config", ".venv/bin/python"]))


@pytest.mark.redis
@pytest.mark.parametrize("name", SERVICES)
def test_programs_take_the_commands_of_compose(name: str, place: Workplace) -> None:
    words = shlex.split(SERVICES[name]["command"])
    check_command(words, place, DOCKER / "run.yaml")
    with pytest.raises((UserError, AssertionError, SystemExit)):
        check_command([*words, "--nb-actors", "3"], place, DOCKER / "run.yaml")  # Mutation


def test_compose_starts_as_many_actors_as_its_settings_name() -> None:
    settings = yaml.safe_load((DOCKER / "run.yaml").read_text())
    numbers = [re.findall(r"--id-actor (\d+)", service["command"]) for service in SERVICES.values()]
    assert [int(found[0]) for found in numbers if found] == list(range(settings["nb-actor"]))
    files = {service["env_file"] for service in SERVICES.values() if "env_file" in service}
    assert files == {f"../../access/{user}.env" for user in ("learner", "actor", "viewer")}
    for name, service in SERVICES.items():
        assert service.keys() <= SERVICE_KEYS, name
        assert service["depends_on"].keys() <= {"redis"} and service["user"] == "${RAINBOW_UID:-1000}"
        assert (DOCKER / service["build"]["context"]).resolve() == ROOT
        assert (ROOT / service["build"]["dockerfile"]).exists()
