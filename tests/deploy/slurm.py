"""A real Slurm on the loopback interface: a controller and three virtual nodes, from Debian's packages.

The packages are downloaded and unpacked into a folder; nothing is installed, no munge runs, and jobs run as this user.
"""

import getpass
import os
import platform
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from tests.deadline import wait_until
from tests.processes import ROOT, Processes, clean_environment
from tests.start_script import free_port

PACKAGES = (
    "slurmctld slurmd slurm-client slurm-wlm-basic-plugins libmunge2 libhwloc15 liblua5.1-0 libnuma1 libjson-c5 "
    "libyaml-0-2"
).split()
NODES = ("n1", "n2", "n3")  # both parts of a job that is requeued want a node of their own, and one is drained
KILL_WAIT_S = 30  # Slurm's default: what has not ended so long after SIGTERM is killed
_CONFIGURATION = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
GresTypes=gpu
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1
KillWait={kill_wait}
ReturnToService=2
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
"""


class MissingError(Exception):
    """Slurm's packages cannot be had here; the text tells why."""


def unpack(cache: Path) -> Path:
    """Return the folder with Slurm's programs, downloaded where it is not there yet; raises MissingError."""
    place = cache / "root"
    if not place.exists():
        if not (shutil.which("apt-get") and shutil.which("dpkg")):
            raise MissingError("needs Debian's apt-get and dpkg for Slurm's packages")
        aside = cache / f"unpacking-{os.getpid()}"
        aside.mkdir(parents=True)
        got = subprocess.run(["apt-get", "-qq", "download", *PACKAGES], cwd=aside, capture_output=True, text=True)
        if got.returncode:
            raise MissingError(f"apt-get cannot download Slurm's packages: {got.stderr.splitlines()[-1:]}")
        for package in aside.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, aside / "root"], check=True)
        with suppress(OSError):  # another test session was faster
            (aside / "root").rename(place)
        shutil.rmtree(aside)
    return place


class Cluster:
    """Three nodes of four processors, the first in a partition of its own as well; a context manager.

    That node has a GPU in the controller's books alone.
    """

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        libraries = programs / f"usr/lib/{platform.machine()}-linux-gnu"
        plugins = libraries / "slurm-wlm"
        self._programs = programs / "usr"
        self.environment = clean_environment() | {
            "LD_LIBRARY_PATH": f"{plugins}:{libraries}",
            "PATH": f"{self._programs / 'bin'}:{os.environ['PATH']}",
            "SLURM_CONF": str(folder / "slurm.conf"),
        }
        (folder / "state").mkdir(parents=True)
        lines = [
            _CONFIGURATION.format(
                port=free_port(), user=getpass.getuser(), plugins=plugins, folder=folder, kill_wait=KILL_WAIT_S
            )
        ]
        for node in NODES:
            (folder / node).mkdir()
            lines.append(f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={free_port()} CPUs=4")
        lines += [f"PartitionName=cpu Nodes={','.join(NODES)} Default=YES", f"PartitionName=gpu Nodes={NODES[0]}"]
        (folder / "slurm.conf").write_text("\n".join(lines) + "\n")
        self._processes = Processes()

    def __enter__(self) -> "Cluster":
        try:
            self._start("slurmctld-wlm", "-D")
            self.wait_until(lambda: "UP" in self.run("scontrol", "ping"), "the controller")
            for node in NODES:
                self._start("slurmd-wlm", "-D", "-N", node, "-d", self._programs / "sbin" / "slurmstepd-wlm")
            self.wait_until(lambda: self.run("sinfo", "-h", "-t", "idle", "-o", "%D").split()[:1] == ["3"], "all nodes")
            # In the file this Slurm ignores it. It counts the GPU, and gives no job a device.
            self.run("scontrol", "update", f"NodeName={NODES[0]}", "Gres=gpu:1")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the daemons and all that they have started, which is in sessions of its own."""
        while pids := self._pids():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._processes.close()  # which reaps them

    def _start(self, program: str, *words: object) -> None:
        path = str(self._programs / "sbin" / program)
        self._processes.start(*words, program=path, environment=self.environment, cwd=self.folder, together=True)

    def _pids(self) -> list[int]:
        """List the processes that were started with this cluster's configuration.

        The environment is read as it is: a daemon that renames itself writes zeros there, at which psutil stops.
        """
        mark = f"\0SLURM_CONF={self.environment['SLURM_CONF']}\0".encode()
        return [pid for pid in psutil.pids() if mark in b"\0" + _environment(pid)]

    # --- what a user does ---

    def run(self, *words: object) -> str:
        """Return what a command of Slurm prints, with its errors."""
        command = list(map(str, words))
        done = subprocess.run(
            command, cwd=ROOT, env=self.environment, stdout=-1, stderr=subprocess.STDOUT, text=True, timeout=60
        )
        return done.stdout

    def submit(self, recipe: Path, *options: str, **variables: object) -> str:
        """Submit a recipe as its document shows, with its sizes in variables, and return the number of the job."""
        environment = self.environment | {name: str(value) for name, value in variables.items()}
        done = subprocess.run(
            ["bash", recipe, *options], cwd=ROOT, env=environment, stdout=-1, stderr=-1, text=True, timeout=60
        )
        found = re.fullmatch(r"Submitted batch job (\d+)\n", done.stdout)
        assert found, done.stdout + done.stderr
        return found[1]

    def states(self, job: str) -> set[str]:
        """Ask squeue for the states of a job's parts; none: it has ended."""
        return {line for line in self.run("squeue", "-h", "-o", "%T", "-j", job).split() if line.isupper()}

    def nodes(self, job: str) -> list[str]:
        """Ask squeue for the nodes of a job's parts, the learner's first."""
        lines = self.run("squeue", "-h", "-o", "%i %N", "-j", job).splitlines()
        return [line.split()[1] for line in sorted(lines) if len(line.split()) == 2]

    def start_now(self, job: str) -> None:
        """Let a requeued job start, for which Slurm would wait for a minute or two, and wait until it runs.

        A node takes what is started within the second in which the job left it for a part of what it has revoked. A
        start time in the future would not do: nothing happens then that wakes Slurm's scheduler.
        """
        self.wait_until(lambda: self.states(job) == {"PENDING"}, f"job {job} to be requeued", 60)
        time.sleep(1)
        parts = self.run("squeue", "-h", "-o", "%A", "-j", job).split()
        for part in parts:
            self.run("scontrol", "update", f"JobId={part}", "StartTime=now")
        self.wait_until(lambda: self.states(job) == {"RUNNING"}, f"job {job} to run again", 120)

    def tasks(self, text: str) -> list[psutil.Process]:
        """List Python processes of jobs whose command lines have a text."""
        found = [psutil.Process(pid) for pid in self._pids()]
        return [task for task in found if text in _command(task) and "python" in _command(task).split()[0]]

    def wait_until(self, true: Callable[[], object], what: str, seconds: float = 60) -> None:
        wait_until(true, lambda: f"{what}\n{self.last_words()}", seconds, every=0.3)

    def last_words(self) -> str:
        logs = [*self.folder.glob("*.log"), *self.folder.glob("*/*.log")]
        return "\n".join(f"--- {log.name}:\n{log.read_text(errors='replace')[-1500:]}" for log in logs)


def _environment(pid: int) -> bytes:
    with suppress(OSError, psutil.Error):
        if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def _command(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline()) or "-"
    return "-"
