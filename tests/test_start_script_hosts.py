"""start_learning_atari.sh --hosts: actors over ssh, by a real sshd on loopback, with stand-ins for the launchers."""

import os
import re
import shutil
import signal
import sys
import threading
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.programs.process import StopRequest
from rainbow_iqn_apex.programs.start import hosts, options
from rainbow_iqn_apex.programs.start.hosts import Host
from rainbow_iqn_apex.programs.start.remote_side import FAULT
from tests.cluster import Cluster, started
from tests.conftest import RedisServer
from tests.deadline import wait_until
from tests.processes import ROOT, Processes, clean_environment
from tests.servers import BUNDLED
from tests.sshd import Sshd, needs_sshd, write_hosts
from tests.start_script import Workplace, go_on_with

EXPECTED = "expected HOST ACTORS [folder=PATH] [gpus=LIST]"


def test_a_file_of_hosts(tmp_path: Path) -> None:
    file = tmp_path / "hosts.txt"
    file.write_text(
        "# a host's comment\n\nnode1 4 # another\nme@node2.org\t8  gpus=0,1 folder='my files/a b'\n::1 1 folder=~/x\n"
        "n3 1 folder=/run#3 #4\nn4 1 folder=~\nn5 1 'folder=a #1' # here's one\nn6 1 folder=/run#3\n"
    )
    assert hosts.read(file, "/here") == (
        Host("node1", 4, "/here", ()),
        Host("me@node2.org", 8, "my files/a b", (0, 1)),
        Host("::1", 1, "x", ()),
        Host("n3", 1, "/run#3", ()),
        Host("n4", 1, ".", ()),
        Host("n5", 1, "a #1", ()),
        Host("n6", 1, "/run#3", ()),
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "expected 1 to 1000 hosts, one a line, got 0"),
        ("node1\n", f"line 1: {EXPECTED}; how many actors is 1 to "),
        ("node1 0\n", f"line 1: {EXPECTED}; how many actors is 1 to "),
        ("node1 1\nnode2 9999999\n", f"line 2: {EXPECTED}; how many actors is 1 to "),
        ("-oProxyCommand=x 1\n", f"line 1: {EXPECTED}; '-oProxyCommand=x' is no name of a host"),
        ("a;b 1\n", f"line 1: {EXPECTED}; 'a;b' is no name of a host"),
        ("node1 1 port=3\n", f"line 1: {EXPECTED}, got 'port=3'"),
        ("node1 1 gpus=a\n", "line 1: gpus: expected device numbers separated by commas, got 'a'"),
        ("node1 1 'folder=a\x01b'\n", "line 1: folder: expected a printable path, got "),
        ("node1 1\nnode1 2\n", "line 2: node1 stands in a line before; add its actors there"),
        ("node1 'x\n", "line 1: No closing quotation"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, text: str, line: str) -> None:
    file = tmp_path / "hosts.txt"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        hosts.read(file, "/here")
    assert f"{file}: {line}" in str(caught.value)


def test_all_wrong_lines_and_a_file_that_is_none_are_told(tmp_path: Path) -> None:
    file = tmp_path / "hosts.txt"
    file.write_text("node1 x\nnode2 1\n;;;\n")
    with pytest.raises(UserError) as caught:
        hosts.read(file, "/here")
    assert str(caught.value).count("\n") == 1
    for data in (b"\xff\xfe", b"#" * 100_001, b"a 1\0"):
        file.write_bytes(data)
        with pytest.raises(UserError, match="--hosts: "):
            hosts.read(file, "/here")
    with pytest.raises(UserError, match=r"--hosts: .* cannot be read: No such file"):
        hosts.read(tmp_path / "none", "/here")


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (["--nb-actor", "3"], "--hosts, --nb-actor: hosts.txt has 1 actors; leave --nb-actor out"),
        (["--redis-url", "rediss://127.0.0.1"], "--hosts: actors reach Redis through ssh, where its certificate names"),
        (["--redis-url", "redis://127.0.0.1,127.0.0.2"], "--hosts: actors reach one Redis server through ssh, no cl"),
        (["--redis-url", "redis+sentinel://127.0.0.1/it"], "--hosts: actors reach one Redis server through ssh, no "),
        (["--redis-shards", "2"], "--hosts: actors reach one Redis server through ssh, no cluster and no Sentinels: "),
        *(
            (["--inference", place], "--hosts, --inference: actors elsewhere reach Redis alone through ssh, ")
            for place in ("server", "learner")  # else they would look for a server until the end
        ),
    ],
)
def test_what_does_not_go_with_hosts_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hosts.txt").write_text("node1 1\n")
    with pytest.raises(UserError) as caught:
        options.read(["--hosts", "hosts.txt", *more], {}, lambda: 0)
    assert str(caught.value).startswith(line) and "\n" not in str(caught.value)


HELPED = """#!/bin/sh
sleep 60 <&- >&- & # as the helper of a ProxyCommand may, it lives on and holds ssh's stderr
echo $! > helper
echo "Allocated port 4444 for remote forward to x" >&2
printf '@checkout\\n'
exec cat > /dev/null
"""


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_host_that_was_there_is_waited_for_whatever_is_missing(is_restarted: bool, tmp_path: Path) -> None:
    # Mutations: end with exit code 2 where the folder is mounted a moment later than sshd answers; know of no earlier
    # process for this actor, to which the host was there.
    module = "rainbow_iqn_apex.programs.start.remote_side"
    hello = f"import json; from dataclasses import asdict; from {module} import HELLO; "
    hello += "from rainbow_iqn_apex.common.checkout import present; "
    hello += "print(HELLO.decode() + json.dumps(asdict(present())), flush=True)"
    ssh = tmp_path / "ssh"  # connects, and the host reboots; connects again, without /home; then for the third time
    ssh.write_text(f"""#!/bin/bash
echo x >> {tmp_path}/calls
echo "Allocated port 40000 for remote forward to x" >&2
case $(wc -l < {tmp_path}/calls) in
  1) {sys.executable} -c '{hello}'; exit 255 ;;
  2) echo "{FAULT.decode()}checkout"; exit 2 ;;
  *) touch {tmp_path}/third; exit 255 ;;
esac
""")
    ssh.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    if is_restarted:
        (tmp_path / "calls").write_text("x\n")
        path["RAINBOW_HAS_WORKED"] = "yes"
    words = ["-m", "rainbow_iqn_apex.programs.start.hosts", "node1", "/there", "127.0.0.1:6379", "0"]
    with Processes() as processes:
        actor = processes.start(*words, environment=clean_environment() | path)
        actor.wait_until((tmp_path / "third").exists, "another try")
        actor.terminate()
        assert actor.finish(60) == 1


@pytest.mark.parametrize(
    "reason", ["kex_exchange_identification: Connection closed by remote host", "Permission denied"]
)
def test_a_host_whose_sshd_drops_many_at_once_is_asked_again(
    reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutations: ask once; ask again with a key that was refused, for which some hosts lock a user out.
    is_dropped = "closed" in reason
    (tmp_path / "ssh").write_text(f"""#!/bin/bash
echo x >> {tmp_path}/calls
[[ $(wc -l < {tmp_path}/calls) == 3 ]] && echo "{FAULT.decode()}environment" && exit 2
echo "{reason}" >&2
exit 255
""")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(hosts, "_PAUSE_S", 0.1)
    told = "far: has no environment in there" if is_dropped else "far: Permission denied; `ssh far` must get in"
    with pytest.raises(UserError, match=told):
        hosts.check([Host("far", 1, "there", ())], "127.0.0.1:1", StopRequest())
    assert len((tmp_path / "calls").read_text()) == (6 if is_dropped else 2)


def test_a_helper_that_outlives_its_ssh_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: close the streams of an ssh in another thread than the one that reads them.
    monkeypatch.chdir(tmp_path)
    Path("ssh").write_text(HELPED.replace("@", FAULT.decode()))
    Path("ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(UserError, match="far: has no checkout of this repository in there"):
        hosts.check([Host("far", 1, "there", ())], "127.0.0.1:1", StopRequest())
    helper = psutil.Process(int(Path("helper").read_text()))
    helper.kill()
    wait_until(lambda: "ssh far" not in {thread.name for thread in threading.enumerate()}, "the end of all threads")


@pytest.mark.slow
@needs_sshd
@pytest.mark.usefixtures("sshd")
def test_actors_play_on_other_hosts_and_are_stopped_with_the_run(workplace: Workplace) -> None:
    # Mutations: hand --config on; end the connection before the actor has saved; leave the password out of the order.
    (workplace.folder / "my.yaml").write_text("game: pong\nproba-sticky-actions: 0.125\n")
    given = write_hosts(workplace, f'node1 2 gpus=1,0\nnode2 1 "folder={workplace.folder}" # here, too\n')
    workplace.start(*given, "--config", "my.yaml", "--nb-eval-actors", 1, "--discount", 0.5)
    shared = ["--nb-actor=3", "--preset=paper", "--game=pong", "--proba-sticky-actions=0.125", "--discount=0.5"]
    for number, gpu in ((0, ["--gpu-number=1"]), (1, ["--gpu-number=0"]), (2, [])):
        program, *words = workplace.argv(f"actor{number}")
        assert (program, sorted(words)) == (
            "launch_actor.py", sorted([f"--id-actor={number}", "--nb-eval-actors=1", *gpu, *shared]),
        )  # fmt: skip
        variables = (workplace.folder / f"actor{number}.env").read_text()
        assert re.fullmatch(r"REDIS_URL=redis://127\.0\.0\.1:\d+/0\n", variables)
        assert f":{workplace.port}/" not in variables, "the tunnel has a port of its own"
    assert "--nb-actor" in workplace.argv("learner") and "3" in workplace.argv("learner")
    assert workplace.argv("evaluator0")[:3] == ["launch_actor.py", "--id-eval-actor", "0"]
    workplace.wait_for_line(r"\[actor 1 on node1\] actor1 is here")
    workplace.wait_for_line(r"\[actor 2 on node2\] actor2 is here")
    assert "starting the learner and 3 actor(s) on node1, node2 and 1 evaluation actor(s)" in workplace.output
    workplace.stop(60)
    assert all(workplace.has_saved(name) for name in ("learner", "actor0", "actor1", "actor2", "evaluator0"))
    assert "[actor 2 on node2] actor2 has saved" in workplace.output
    assert "--hosts hosts.txt" in go_on_with(workplace)[0]


@pytest.mark.slow
@needs_sshd
def test_the_password_of_the_server_goes_to_the_actor_and_into_no_command_line(
    workplace: Workplace, sshd: Sshd, tmp_path: Path
) -> None:
    # Mutation: REDIS_URL with the password among the words of the remote actor.
    secret = "p@ss word'\"$(x)"
    sshd.configure("node1", "SetEnv REDIS_CA_CERTS=/there")
    server = RedisServer(tmp_path, more={"requirepass": secret})
    with closing(server):
        server.start()
        workplace.address = []
        workplace.environment["REDIS_URL"] = f"redis://default:{quote(secret, safe='')}@localhost:{server.port}"
        workplace.start(*write_hosts(workplace, "node1 1\n"))
        workplace.argv("actor0")
        variables = (workplace.folder / "actor0.env").read_text().splitlines()
        assert {f"REDIS_PASSWORD={secret}", "REDIS_USERNAME=default"} < {*variables} and len(variables) == 3
        lines = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
        assert not [line for line in lines if secret in line]
        workplace.stop(60)
        assert workplace.has_saved("actor0")


@pytest.mark.parametrize("is_key", [True, False])
def test_a_stop_while_hosts_are_asked_starts_nothing(is_key: bool, workplace: Workplace, tmp_path: Path) -> None:
    # Mutations: wait for all hosts first; blame the host for the key, which its ssh has got, too.
    (ssh := tmp_path / "bin" / "ssh").parent.mkdir()
    ssh.write_text(f"#!/bin/sh\ntouch '{tmp_path}/asked'\nexec sleep 100\n")
    ssh.chmod(0o755)
    workplace.environment["PATH"] = f"{ssh.parent}:{os.environ['PATH']}"
    workplace.start(*write_hosts(workplace, "node1 1\nnode2 1\n"))
    workplace.wait_for((tmp_path / "asked").exists, "ssh to start")
    workplace.press_ctrl_c() if is_key else workplace.send(signal.SIGTERM)
    assert workplace.exit_code(20) == 0
    assert "stopped before anything was started" in workplace.output and "node1" not in workplace.output
    workplace.assert_nothing_left()


@needs_sshd
@pytest.mark.usefixtures("sshd")
def test_hosts_that_cannot_help_are_told_together_and_nothing_starts(workplace: Workplace, tmp_path: Path) -> None:
    # Mutations: check the first host alone; compare no releases.
    other = tmp_path / "other release"
    shutil.copytree(workplace.folder, other, symlinks=True)
    init = other / "rainbow_iqn_apex" / "__init__.py"
    init.write_text(re.sub('__version__ = ".*"', '__version__ = "99.1"', init.read_text()))
    bare = tmp_path / "bare"
    (bare / "rainbow_iqn_apex").mkdir(parents=True)
    lines = f'nosuch.invalid 1\nnode1 1 folder=/nowhere\nnode2 1 "folder={bare}"\nnode3 1 "folder={other}"\n'
    assert workplace.run(*write_hosts(workplace, lines)) == 2
    _, *errors = workplace.output.splitlines()
    assert len(errors) == 4 and all(line.startswith("start_learning_atari.sh: error: --hosts: ") for line in errors)
    assert "nosuch.invalid: ssh: Could not resolve hostname" in errors[0]
    assert "node1: has no checkout of this repository in /nowhere" in errors[1]
    assert f"node2: has no environment in {bare}: run `bash make_environment.sh` there" in errors[2]
    assert f"node3: {other} has release 99.1, commit unknown, and this machine " in errors[3]
    workplace.assert_nothing_left()


@needs_sshd
def test_a_host_without_keys_or_tunnel_is_told(
    workplace: Workplace, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host("node1", 1, str(workplace.folder), ())
    monkeypatch.setenv("PATH", sshd.path)
    (sshd.folder / "known").write_text("")
    with pytest.raises(UserError, match=r"node1: Host key verification failed\.; `ssh node1` must get in without"):
        hosts.check([host], "localhost:1", StopRequest())
    closed = Sshd(tmp_path / "closed", "AllowTcpForwarding no")
    with closing(closed):
        closed.start()
        monkeypatch.setenv("PATH", closed.path)
        with pytest.raises(UserError, match="node1: its sshd lets no tunnel through: set AllowTcpForwarding there"):
            hosts.check([host], "localhost:1", StopRequest())


@pytest.mark.slow
@needs_sshd
@pytest.mark.usefixtures("sshd")
def test_one_address_that_answers_as_a_cluster_is_refused(workplace: Workplace, tmp_path: Path) -> None:
    # Mutation: leave out what check_running has found.
    with started(Cluster(tmp_path / "cluster", BUNDLED, 1, replicas=False)) as cluster:
        workplace.address = ["--redis-url", f"redis://127.0.0.1:{cluster.masters[0].port}"]
        assert workplace.run(*write_hosts(workplace, "node1 1\n")) == 2
        assert "--hosts: actors reach one Redis server through ssh, no cluster" in workplace.output
    workplace.assert_nothing_left()
