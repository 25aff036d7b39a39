"""What a command line of the start script asks for, and which mistakes it names before anything is started."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rainbow_iqn_apex import args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.broker.access import OPEN, Server
from rainbow_iqn_apex.options.command_line import run_by
from rainbow_iqn_apex.programs import agent
from rainbow_iqn_apex.programs.learner.results_folder import write_settings
from rainbow_iqn_apex.programs.process import StopRequest
from rainbow_iqn_apex.programs.start import options
from rainbow_iqn_apex.programs.start.options import StartOptions, continuation, read
from rainbow_iqn_apex.programs.start.program import Supervisor
from tests.processes import run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a file").touch()
    monkeypatch.chdir(tmp_path)


def nobody_asks() -> int:
    raise AssertionError("PyTorch is asked for a GPU")


def asked(words: str, count_gpus: Callable[[], int] = lambda: 0, **environment: str) -> StartOptions:
    return read(shlex.split(words), environment, count_gpus)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--id-actor 1", "--id-actor: is not for this script, which starts actors 0 to --nb-actor - 1"),
        ("--id-eval-actor 0", "--id-eval-actor: is not for this script, which starts 0 to --nb-eval-actors - 1"),
        ("--id-inference=1", "--id-inference: is not for this script, which starts number 0 with --inference server"),
        ("--gpus '0;1'", "--gpus: expected device numbers separated by commas, got '0;1'"),
        ("--gpus=", "--gpus: expected device numbers separated by commas, got ''"),
        ("--gpus", "--gpus: expected one argument"),
        ("--gpus=0 --gpu-number 1", "--gpus, --gpu-number: give either of them"),
        ("--windows many", "--windows: expected auto, terminal, tmux or none, got 'many'"),
        ("--path-to-results 'a file'", "--path-to-results: expected a folder to write to, got a file"),
        ("--game pong,krull", "--nb-actor: expected at least 2 actors, one for each that --game lists, got 1"),
        ("--redis-url redis://me:secret@here", "--redis-url: must not hold a password"),
    ],
)
def test_a_wrong_option_is_named(words: str, named: str) -> None:
    with pytest.raises(UserError) as error:
        asked(words)
    assert str(error.value).startswith(named)


def test_all_mistakes_in_the_launchers_options_are_told_together() -> None:
    with pytest.raises(UserError) as error:
        asked("--nb-actor five --port-redis 0 --preset")
    assert [line.split(":")[0] for line in str(error.value).splitlines()] == ["--nb-actor", "--preset", "--port-redis"]


def test_the_settings_that_a_learner_saves_start_the_run_again() -> None:
    # Mutation: save the number of an inference server, or compare the hosts with the number of actors of a file.
    write_settings(Path("pong.yaml"), asked("--game pong --nb-actor 2 --disable-cuda").args)
    with Path("pong.yaml").open("a") as file:
        file.write("id_inference: 0\n")  # as an earlier release saved it
    again = asked("--config pong.yaml")
    assert (again.args.game, again.args.nb_actor) == ("pong", 2)
    Path("hosts.txt").write_text("node1 3\n")
    assert asked("--config pong.yaml --hosts hosts.txt --force").args.nb_actor == 3


@pytest.mark.parametrize("preset", ["", " --preset paper"])
@pytest.mark.parametrize(
    ("there", "gpus", "missing", "advice"),
    [(0, "0", 0, "0 in all; leave it out to compute on the CPU"), (2, "1,2", 2, "2 in all; choose from 0 to 1")],
)
def test_a_gpu_that_is_not_there_is_named(there: int, gpus: str, missing: int, advice: str, preset: str) -> None:
    with pytest.raises(UserError) as error:
        asked(f"--gpus {gpus}{preset}", lambda: there)
    assert str(error.value) == f"--gpus: PyTorch finds no CUDA device {missing} here, {advice}"


def test_a_gpu_number_without_a_gpu_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutations: take the CPU instead; judge the number where the GPUs of --gpus, or none, are used.
    line = "--gpu-number: PyTorch finds no CUDA device 3 here, 0 in all; leave it out to compute on the CPU"
    with pytest.raises(UserError, match=f"^{line}$"):
        asked("--gpu-number 3", lambda: 0)
    Path("gpu.yaml").write_text("gpu-number: 3\n")
    with pytest.raises(UserError, match=r"^gpu\.yaml: gpu-number: PyTorch finds no CUDA device 3 here"):
        asked("--config gpu.yaml", lambda: 0)
    asked("--gpu-number 3 --disable-cuda", lambda: 0)
    asked("--config gpu.yaml --gpus 0", lambda: 1)
    monkeypatch.setattr(agent, "count_gpus", lambda: 0)
    with pytest.raises(UserError, match=f"^{line}$"):
        agent.select_device(args.parse(["--gpu-number", "3"], "", ""))
    for words in ([], ["--gpu-number", "3", "--disable-cuda"]):
        assert agent.select_device(args.parse(words, "", ""), 1).type == "cpu"


def test_evaluation_actors_take_the_gpus_after_the_actors() -> None:
    given = asked("--gpus 3,5,7 --nb-actor 3 --nb-eval-actors 2", lambda: 8)
    common = ["--nb-actor", "3", "--nb-eval-actors", "2"]
    assert [given.evaluation_command(i) for i in range(2)] == [
        [*run_by("launch_actor.py"), "--id-eval-actor", str(i), *common, f"--gpu-number={gpu}"]
        for i, gpu in enumerate((5, 7))
    ]


def test_an_inference_server_takes_the_learner_s_gpu() -> None:
    given = asked("--gpus 3,5 --inference server", lambda: 6)
    server = [*run_by("launch_inference.py"), "--id-inference", "0", "--inference", "server", "--gpu-number=3"]
    assert (given.serves, given.inference_command()) == (True, server)
    assert not asked("--inference learner").serves, "the learner starts its own"


def test_actors_elsewhere_may_have_policies_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("node1 2\n")
    assert asked("--hosts hosts --inference local").hosts


def test_the_script_keeps_its_own_options_to_itself() -> None:
    given = asked(
        "--windows none --V-min -1e1 --use-running-redis -p_red 7000 --windows=tmux --preset paper", nobody_asks
    )
    assert given.launcher_options == ("--V-min", "-1e1", "-p_red", "7000", "--preset", "paper")
    assert (given.windows, given.use_running_redis, given.gpus) == ("tmux", True, ())
    assert given.server == Server("localhost", 7000, OPEN)
    assert given.command(-1)[3:] == list(given.launcher_options)


def test_without_a_gpu_the_small_network_is_taken() -> None:
    own = "--hidden-size 64 --memory-capacity 50000 --T-max 60000"  # the last two fit no other preset
    given = asked(own, lambda: 0)
    assert given.preset_chosen == "cpu"
    assert given.launcher_options == (*own.split(), "--preset", "cpu")
    assert asked("--game pong", lambda: 1).launcher_options == ("--game", "pong")


@pytest.mark.parametrize("words", ["--preset paper", "--preset=cpu", "--disable-cuda --gpus 7"])
def test_a_gpu_is_not_looked_for_where_that_changes_nothing(words: str) -> None:
    assert asked(words, nobody_asks).preset_chosen == ""


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("90", 90), ("", 60), ("999999", 999_999)])
def test_the_time_to_stop_in_is_taken(text: str, seconds: int) -> None:
    assert asked("", RAINBOW_STOP_SECONDS=text).stop_seconds == seconds


@pytest.mark.parametrize("text", ["90s", "-1", " ", "08", "1e2", "1000000", "٣"])
def test_a_wrong_time_to_stop_in_is_refused(text: str) -> None:
    with pytest.raises(UserError) as error:
        asked("", RAINBOW_STOP_SECONDS=text)
    assert str(error.value) == f"RAINBOW_STOP_SECONDS: expected whole seconds, got {text!r}"


def test_the_server_of_the_environment_is_found() -> None:
    server = asked("", REDIS_URL="redis://:word@there:7000/2").server
    assert (server.host, server.port, server.access.password) == ("there", 7000, "word")


@pytest.mark.parametrize("once", ["--abandon-other-run", "--abandon-other-run yes", "--abandon-other-run=1"])
def test_a_run_goes_on_by_the_same_command_without_the_permission_for_once(once: str) -> None:
    words = shlex.split(f"--path-to-results 'my results' {once} --game pong")
    kept = ["--path-to-results", "my results", "--game", "pong"]
    assert shlex.split(continuation(["bash", "a copy/start.sh"], words)) == ["bash", "a copy/start.sh", *kept]
    assert continuation(["bash", "train()"], words) == "the same call of train()"


def test_the_help_explains_every_option_of_the_script() -> None:
    text = (ROOT / "programs" / "start" / "help.txt").read_text()
    own = [flag for action in options.parser()._actions for flag in action.option_strings]
    assert len(own) == 4
    assert all(f"\n  {flag} " in text for flag in own)


def test_pytorch_is_not_imported_without_need() -> None:
    look = "import sys, rainbow_iqn_apex.programs.start.program; sys.exit('torch' in sys.modules)"
    assert run("-c", look).code == 0


def test_a_program_is_run_from_any_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_by("launch_actor.py") == [sys.executable, "-m", "rainbow_iqn_apex.launch_actor"]
    monkeypatch.chdir(ROOT)
    assert run_by("launch_actor.py") == [sys.executable, "launch_actor.py"]


@pytest.mark.parametrize(("lines", "goes_on"), [
    ("Stopping: saving what there is|[12:00] Stopped at T = 5, weights x", True),
    ("[12:00] Finished at T = 5, weights x|Stopping: saving what there is", False),
])  # fmt: skip
def test_only_a_learner_that_others_have_stopped_is_started_again(lines: str, goes_on: bool) -> None:
    # Mutation: take the last line alone, which may be of the inference server that a finished learner stops.
    supervisor = Supervisor(asked(""), None, StopRequest())
    for line in lines.split("|"):
        supervisor._note_end(line.encode())
    supervisor.learner.exit_code = 0
    assert supervisor._learner_goes_on() == goes_on


def test_the_learner_s_result_is_kept_for_the_script_s_last_lines() -> None:
    # Mutation: print it among the learner's lines alone, above those of the stop.
    supervisor = Supervisor(asked(""), None, StopRequest())
    assert [supervisor._note_end(line) for line in (b"Result: score 3\n", b"T = 3\n", b"Result: score 4\n")] == [
        True,
        False,
        True,
    ]
    assert supervisor.result == "Result: score 4"
