"""deploy/kubernetes: what can be known without a cluster. No test and nobody else has run these manifests on one."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rainbow_iqn_apex.common.errors import UserError
from tests import stops
from tests.conftest import RedisServer
from tests.deploy.recipes import KUBERNETES, check_command
from tests.memory.test_redis_users import make_users
from tests.processes import ROOT, Process, Processes, clean_environment
from tests.small import CARTPOLE, TINY
from tests.test_documented_commands import Workplace, place

__all__ = ["place"]  # a fixture
Manifest = dict[str, Any]
OVERLAYS = [path.parent for path in sorted(KUBERNETES.glob("overlays/*/kustomization.yaml"))]
FOLDERS = [KUBERNETES / "base", *OVERLAYS]
CLUSTER = KUBERNETES / "overlays" / "cluster"
USERS = ("learner", "actor", "viewer", "admin")


def base() -> list[Manifest]:
    """The manifests of the base as they are written."""
    listed = yaml.safe_load((KUBERNETES / "base" / "kustomization.yaml").read_text())["resources"]
    return [found for name in listed for found in yaml.safe_load_all((KUBERNETES / "base" / name).read_text())]


def written() -> list[Manifest]:
    """The manifests of the base and those that the cluster's overlay adds."""
    return [*base(), *yaml.safe_load_all((CLUSTER / "keeper.yaml").read_text())]


def rendered(folder: Path) -> list[Manifest]:
    """What kubectl makes of a folder; skips the test where there is no kubectl, or one older than `patches`."""
    if not (kubectl := shutil.which("kubectl")):
        pytest.skip("needs kubectl (Debian's kubernetes-client), which is not installed")
    version = json.loads(subprocess.check_output([kubectl, "version", "--client", "-o", "json"]))
    if int(re.sub(r"\D", "", version["clientVersion"]["minor"])) < 22:
        pytest.skip(f"needs kubectl 1.22 or newer, here is {version['clientVersion']['gitVersion']}")
    done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")  # no warning of anything that is deprecated
    return list(yaml.safe_load_all(done.stdout))


def pods(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    for manifest in manifests:
        if "template" in manifest.get("spec", {}):
            yield manifest["metadata"]["name"], manifest["spec"]["template"]["spec"]


def container_of(manifests: list[Manifest], name: str) -> Manifest:
    (container,) = dict(pods(manifests))[name]["containers"]
    return dict(container)


def words_of(container: Manifest) -> list[str]:
    """A container's command with its variables filled in, an actor's number, too."""
    values = {variable["name"]: variable.get("value", "") for variable in container.get("env", [])}
    values["JOB_COMPLETION_INDEX"] = "1"  # Kubernetes sets it in each pod of an Indexed Job
    words = [*container["command"], *container.get("args", [])]
    return [re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], word) for word in words]


@pytest.mark.redis
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("name", ["redis", "learner", "actors", "dashboard"])
def test_programs_take_the_commands_of_the_manifests(name: str, folder: Path, place: Workplace) -> None:
    container = container_of(base(), name)
    check_command(words_of(container), place, folder / "run.yaml")
    if "exec" in (probe := container.get("readinessProbe", {})):
        check_command(probe["exec"]["command"], place, folder / "run.yaml")
        run = next(variable["value"] for variable in container["env"] if variable["name"] == "RUN")
        assert run in probe["exec"]["command"]  # there it cannot be a variable
    wrong = {**container, "args": [*container.get("args", []), "--nb-actors", "3"]}  # Mutation
    with pytest.raises((UserError, AssertionError, SystemExit)):
        check_command(words_of(wrong), place, folder / "run.yaml")


def test_whatever_a_pod_needs_is_there() -> None:
    manifests = written()
    script = (KUBERNETES / "make_secrets.sh").read_text()
    secrets = set(re.findall(r"(?m)^ *secret (redis-\w+)", script)) | {f"redis-{user}" for user in USERS}
    assert f"for user in {' '.join(USERS)};" in script
    files = set(re.findall(r"--from-file=access/(\S+)", script))
    claims = {each["metadata"]["name"] for each in manifests if each["kind"] == "PersistentVolumeClaim"}
    services = {each["metadata"]["name"]: each["spec"] for each in manifests if each["kind"] == "Service"}
    maps = {"settings"}
    named: set[str] = set()
    for name, pod in pods(manifests):
        (container,) = pod["containers"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]} | ({"data": {}} if name == "redis" else {})
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()
        named |= {volume["secret"]["secretName"] for volume in volumes.values() if "secret" in volume}
        named |= {source["secretRef"]["name"] for source in container.get("envFrom", [])}
        keys = [each["valueFrom"]["secretKeyRef"] for each in container.get("env", []) if "valueFrom" in each]
        assert all(key["key"] == "REDIS_PASSWORD" for key in keys)  # a line of each user's file
        named |= {key["name"] for key in keys}
        assert {each["configMap"]["name"] for each in volumes.values() if "configMap" in each} <= maps
        wanted = {
            each["persistentVolumeClaim"]["claimName"] for each in volumes.values() if "persistentVolumeClaim" in each
        }
        assert wanted <= claims
        access = [word.removeprefix("/access/") for word in words_of(container) if word.startswith("/access/")]
        assert set(access) <= files
        assert container["image"] == "rainbow-iqn-apex"
    assert named == secrets
    assert services["redis"]["ports"][0]["port"] == 6379 and services["redis"]["selector"] == {"app": "redis"}


def test_pods_run_as_nobody_special_and_have_the_time_to_save() -> None:
    grace = {}
    for name, pod in pods(written()):
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 1000, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        (container,) = pod["containers"]
        expected = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert container["securityContext"] == expected, name
        assert {"requests", "limits"} <= container["resources"].keys(), name
        grace[name] = pod.get("terminationGracePeriodSeconds", 30)
    assert grace["learner"] >= 2 * stops.END_S and grace["redis"] > grace["learner"]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_folder_gives_as_many_pods_as_actors(folder: Path) -> None:
    manifests = rendered(folder)
    jobs = {each["metadata"]["name"]: each["spec"] for each in manifests if each["kind"] == "Job"}
    settings = yaml.safe_load((folder / "run.yaml").read_text())
    assert jobs["actors"]["completions"] == jobs["actors"]["parallelism"] == settings["nb-actor"]
    (config,) = (each for each in manifests if each["kind"] == "ConfigMap")
    assert yaml.safe_load(config["data"]["run.yaml"]) == settings
    command = container_of(manifests, "redis")["args"]
    limit = container_of(manifests, "redis")["resources"]["limits"]["memory"]
    assert int(command[1].removesuffix("gb")) < int(limit.removesuffix("Gi"))
    if "redis-shards" in settings:  # a master for each shard, a replica for each master
        (servers,) = (each["spec"]["replicas"] for each in manifests if each["kind"] == "StatefulSet")
        assert servers == 2 * settings["redis-shards"]
        names = [f"redis-{number}.redis" for number in range(servers)]
        assert container_of(manifests, "redis-keeper")["args"] == names
        assert all(f"DNS:{name}" in (KUBERNETES / "make_secrets.sh").read_text() for name in names)
    is_gpu = container_of(manifests, "learner")["image"].endswith(":gpu")
    assert is_gpu == ("nvidia.com/gpu" in container_of(manifests, "learner")["resources"]["limits"])


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_manifests_fit_their_schemas(folder: Path) -> None:
    reason = "needs kubernetes-validate of requirements-dev.txt, which is not installed"
    validate = pytest.importorskip("kubernetes_validate", reason=reason)
    for manifest in rendered(folder):
        validate.validate(manifest, "1.37", strict=True)
        wrong = {**manifest, "specs": {}}  # Mutation
        with pytest.raises(validate.ValidationError):
            validate.validate(wrong, "1.37", strict=True)


def make_secrets(folder: Path) -> str:
    """Run make_secrets.sh for a folder, which has access/ then, and return what it prints."""
    for program in ("kubectl", "openssl"):
        if not shutil.which(program):
            pytest.skip(f"needs {program}, which is not installed")
    if not (folder / "programs").exists():
        (folder / "programs").symlink_to(ROOT / "programs")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    words = ["bash", str(KUBERNETES / "make_secrets.sh")]
    done = subprocess.run(words, cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_script_prints_all_secrets(tmp_path: Path) -> None:
    first, second = make_secrets(tmp_path), make_secrets(tmp_path)
    assert first == second  # the same passwords the second time
    secrets = {each["metadata"]["name"]: each["data"] for each in yaml.safe_load_all(first) if each}
    assert secrets.keys() == {"redis-server", "redis-ca", *(f"redis-{user}" for user in USERS)}
    files = {"users.acl", "server.crt", "server.key", "ca.crt", "replication.conf"}
    assert secrets["redis-server"].keys() == files
    assert secrets["redis-admin"].keys() == {"REDISCLI_AUTH"}
    assert all(secrets[f"redis-{user}"].keys() == {"REDIS_USERNAME", "REDIS_PASSWORD"} for user in USERS[:-1])


@pytest.mark.slow
def test_a_job_is_done_when_its_run_has_finished_and_not_before(tmp_path: Path) -> None:
    # Mutations: until_finished.sh that asks for no record: an actor that is told to stop ends with 0, as if done; that
    # does not wait for Redis: a learner whose Redis comes later ends with 2, which fails its Job for good; that
    # does not tell a learner of a run that is there.
    users = make_users(tmp_path / "access", "--redis-7")
    server = RedisServer(tmp_path, append_only=True, more={"aclfile": tmp_path / "access" / "users.acl"})
    settings = [*CARTPOLE, *TINY, *"--learn-start 400 --log-interval 200 --T-max 2000 --nb-actor 1".split()]
    settings += ["--memory-capacity", "20000", "--weight-synchro-frequency", "100"]

    def pod(name: str, user: str) -> Process:
        container = container_of(base(), name)
        words = [str(tmp_path) if word == "/results" else word for word in words_of({**container, "env": [RUN]})]
        number = words.index("--config")
        words = [*words[:number], *words[number + 2 :], *settings]
        words = ["0" if before == "--id-actor" else word for before, word in zip(["", *words], words, strict=False)]
        variables = {
            **users[user],
            "VIEWER_PASSWORD": users["viewer"]["REDIS_PASSWORD"],
            "REDIS_URL": f"redis://localhost:{server.port}",
            "RUN": RUN["value"],
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        program = str(shutil.which(words[0]))
        return processes.start(*words[1:], program=program, environment=clean_environment() | variables, together=True)

    try:
        with Processes() as processes:
            learner, actor = pod("learner", "learner"), pod("actors", "actor")
            learner.wait_for("run_status.py: error: ", seconds=120)
            server.start()
            learner.wait_for("] T = ", times=2, seconds=120)
            for stopped in (actor, learner):  # as where a node is drained: Kubernetes replaces what has ended with 75
                stopped.terminate()
                assert stopped.finish(60) == 75, processes.last_words()
            learner, actor = pod("learner", "learner"), pod("actors", "actor")
            assert learner.finish(200) == 0, processes.last_words()
            assert actor.finish(60) == 0, processes.last_words()
            assert "Finished at T = " in learner.output
            denied = pod("learner", "actor")  # as what is missing for a while, which ends no Job of a run that is there
            assert denied.finish(60) == 1 and "REDIS_USERNAME" in denied.output, processes.last_words()
    finally:
        server.close()


RUN = {"name": "RUN", "value": "pole"}
