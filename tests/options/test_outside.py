"""Agents and environments of other packages: the documents' own examples, in the present folder."""

import os
import re
import signal
import sys
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from rainbow_iqn_apex import args
from rainbow_iqn_apex.agents.registry import AGENTS
from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.common.files import short_path
from rainbow_iqn_apex.environments.registry import find_environment
from rainbow_iqn_apex.memory.rows import StepType
from rainbow_iqn_apex.programs.actor.evaluation import run_evaluation_actor
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.common import look_at_entries, open_environment, open_vector, temporary_environment
from rainbow_iqn_apex.programs.evaluation import workers
from rainbow_iqn_apex.programs.evaluation.recording import try_to_record
from tests.documents import write_modules
from tests.processes import ROOT, Processes, run

AGENT, ENVIRONMENT = "linear_agent:LinearAgent", "corridor:make"
_NO_AGENT = f"--agent: expected {', '.join(AGENTS)} or package.module:Class, got "


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for document in ("docs/agents.md", "docs/environments.md"):
        write_modules(document, tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_agent_brings_its_options_and_defaults() -> None:
    parsed = args.parse(["--agent", AGENT, "--env", ENVIRONMENT, "--learning-rate", "0.5"], "test", "")
    assert (parsed.get("learning_rate"), parsed.learn_start, parsed.task) == (0.5, 1, "corridor-make")
    assert parsed.settings["learning_rate"] == 0.5
    assert args.parse(["--agent", AGENT], "test", "").replace(agent="rainbow").get("hidden_size") == 512


def test_a_file_names_an_agent_and_its_options(folder: Path) -> None:
    (folder / "mine.yaml").write_text(f"agent: {AGENT}\nlearning-rate: 0.25\n")
    assert args.parse(["--config", "mine.yaml"], "test", "").get("learning_rate") == 0.25


def test_help_has_its_options(folder: Path) -> None:
    code, out, _ = run(str(ROOT / "launch_learner.py"), "--agent", AGENT, "--help", cwd=folder)
    assert code == 0 and "linear agent:" in out and "--learning-rate FLOAT" in out and "--num-tau-samples" not in out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--agent nobody", "--agent: expected rainbow_iqn, rainbow, btr, impala,"),
        ("--agent nobody:Agent", f"{_NO_AGENT}'nobody:Agent' (module 'nobody' is neither installed nor in "),
        ("--agent linear_agent:Nothing", "--agent: linear_agent:Nothing cannot be imported: AttributeError: "),
        ("--env corridor:make,hall:make", "--env: corridor:hall:make: a list names its module once: module:one,other"),
        ("--agent linear_agent:option", "--agent: expected a class with options_type"),
        ("--agent linear_agent:LinearAgent --rainbow-only 1 --learning-rate 0.1", "--rainbow-only: True contradicts"),
        ("--agent slip:LinearAgent", "--agent: slip:LinearAgent sets an option history, which does not exist"),
        ("--agent set:LinearAgent", "--agent: set:LinearAgent: expected DEFAULTS to be a dict of values by option"),
        ("--agent pair:LinearAgent", "--agent: pair:LinearAgent: expected CPU to hold a pair for each option: "),
        ("--agent text:LinearAgent", "--agent: text:LinearAgent: expected UNUSED to be a set of options"),
        ("--agent broken:Agent", "--agent: broken:Agent cannot be imported: ZeroDivisionError: "),
        ("--agent broken:Agent --learn-start x", "--learn-start: expected a whole number"),
        ("--agent gone:Agent", "--agent: gone:Agent cannot be imported: SystemExit: 0"),
        ("--env corridor:nothing", "--env: corridor:nothing cannot be imported: AttributeError: "),
        ("--env corridor:ENDS", "--env: corridor:ENDS is no function that makes an environment"),
        ("--env corridor:make --corridor-length 1", "--corridor-length: must lie in 2 to 1000, is 1"),
        ("--corridor-length 3", "--corridor-length: "),
        ("--env clash:make", "--env: clash:make has an option --hidden-size, which --agent rainbow_iqn has, too"),
        ("--env broken:make", "--env: broken:make cannot be imported: ZeroDivisionError: "),
        ("--env gymnasium:broken:X-v0", "--env: cannot import 'broken': ZeroDivisionError: division by zero"),
        ("--env gymnasium:gone:X-v0", "--env: cannot import 'gone': SystemExit: 0"),
        (
            "--env nobody:make",
            "--env: there is no environment 'nobody:make' (module 'nobody' is neither installed nor in /",
        ),
    ],
)
def test_what_is_refused_in_one_line(words: str, error: str, folder: Path) -> None:
    # Mutation: let errors of the imported module pass.
    (folder / "broken.py").write_text("1 / 0\n")
    (folder / "gone.py").write_text("import sys\nsys.exit(0)\n")
    own = (folder / "linear_agent.py").read_text()
    tables = {"set": "DEFAULTS = {1}", "pair": "CPU = {'discount': 0.9}", "text": "UNUSED = 'discount'"}
    for name, table in tables.items():
        (folder / f"{name}.py").write_text(own.replace("    learning_rate:", f"    {table}\n    learning_rate:"))
    (folder / "slip.py").write_text((folder / "linear_agent.py").read_text().replace("history_length", "history"))
    (folder / "clash.py").write_text((folder / "corridor.py").read_text().replace("corridor_length", "hidden_size"))
    with pytest.raises(UserError) as caught:
        args.parse(words.split(), "test", "")
    lines = str(caught.value).splitlines()
    assert [line for line in lines if line.startswith(error)] and len(lines) == 1 + ("learn-start" in words)


@pytest.mark.parametrize(
    ("env", "error"),
    [
        ("collections:Counter", "--env: collections:Counter does not take settings and a seed: "),
        ("collections:OrderedDict", "--env: collections:OrderedDict does not take settings and a seed: "),
        ("thing:Thing", "--env: thing:Thing makes no environment but a Thing, which has no spec"),
        ("lacking:make", "--env: lacking:make has no restore, close; see environments/interface.py"),
        ("halves:make", "--env: halves:make has observations of float16; choose from uint8, uint16, int32, "),
    ],
)
def test_what_makes_no_environment_is_refused_in_one_line(env: str, error: str, folder: Path) -> None:
    # Mutation: return what is made as it is.
    (folder / "thing.py").write_text("class Thing:\n    spec = None\n    def __init__(self, settings, seed): ...\n")
    corridor = (folder / "corridor.py").read_text()
    (folder / "lacking.py").write_text(
        corridor.replace("def restore", "def restore_").replace("def close", "def close_")
    )
    (folder / "halves.py").write_text(corridor.replace('"float32")', '"float16")'))
    with pytest.raises(UserError) as caught:
        open_environment(args.parse(["--env", env], "test", ""), 7)
    assert str(caught.value).startswith(error) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "instead", "error"),
    [
        ("self.spec = ", "spec = ", "sets no spec, a ChunkSpec, in its constructor"),
        ("self.parts = ", "parts = ", "sets no parts, a dict, in its constructor"),
        ('"model": ', '"net": ', "has no parts['model'] that is a Network (agents/networks/network.py)"),
        ("LinearAgent(Agent)", "LinearAgent", "is not derived from Agent (agents/interface.py)"),
        ('"generator": ', '"numbers": ', "has no parts['generator'], so a resumed run would draw other numbers"),
        ('buffer = "queue"', 'buffer = "Queue"', "has the buffer 'Queue'; choose from replay, queue, mixture"),
        (
            "ChunkSpec(1, 0, 32, 1, 32, 32,",
            'ChunkSpec(1, 4, 32, 1, 32, 32, state=(("memory", None),),',
            "has a state and burn-in, but MAX_POLICY_LAG 0 ends chunks with rounds",
        ),
    ],
)
def test_an_agent_that_is_not_whole_is_refused_in_one_line(
    text: str, instead: str, error: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: return what is made as it is.
    monkeypatch.delitem(sys.modules, "unfinished", raising=False)
    (folder / "unfinished.py").write_text((folder / "linear_agent.py").read_text().replace(text, instead))
    parsed = args.parse(["--agent", "unfinished:LinearAgent", "--env", ENVIRONMENT], "test", "")
    spec = open_environment(parsed, 7).spec
    with pytest.raises(UserError) as caught:
        make_agent(parsed, spec, torch.device("cpu"), learns=True, seed=1)
    assert str(caught.value) == f"--agent: unfinished:LinearAgent {error}"


FAULTS = [
    ('option(6, "places of the corridor", least=2, most=1000)', "6"),
    ("corridor_length: int", "corridor_length: int | None"),
    ("option(6,", "option(6.0,"),
    ("@dataclass(frozen=True)\n", ""),
]


@pytest.mark.parametrize("number", range(len(FAULTS)))
def test_an_option_that_is_none_is_refused_in_one_line(number: int, folder: Path) -> None:
    # Mutation: no `fault_of`: KeyError: 'short', or the option is not there.
    text, instead = FAULTS[number]
    (folder / f"faulty{number}.py").write_text((folder / "corridor.py").read_text().replace(text, instead))
    with pytest.raises(
        UserError, match=rf"^--env: faulty{number}:make: corridor_length .*(`common\.option|@dataclass)"
    ):
        find_environment(f"faulty{number}:make")


def test_a_mistake_in_an_environments_own_code_keeps_its_traceback(folder: Path) -> None:
    (folder / "wrong.py").write_text("def make(settings, seed):\n    return len(seed)\n")
    with pytest.raises(TypeError, match="has no len"):
        open_environment(args.parse(["--env", "wrong:make", "--agent", "rainbow_iqn"], "test", ""), 7)
    (folder / "away.py").write_text("def make(settings, seed):\n    raise RuntimeError('no simulator')\n")
    parsed = args.parse(["--env", "away:make", "--agent", "rainbow_iqn"], "test", "")
    with pytest.raises(RuntimeError, match=r"^no simulator$"):
        open_environment(parsed, 7)
    with pytest.raises(UserError, match=r"^--record: no simulator$"):
        open_environment(parsed, 7, recorded_by="--record")


@pytest.mark.parametrize(
    ("module", "text", "instead", "told"),
    [
        ("blank", "", "", "draws no pictures"),
        ("unseen", "def pictures", "def pictures_", "draws no pictures"),
        ("timeless", "return []", "return [0]\n", "has no pictures_per_second; see environments/interface.py"),
    ],
)
def test_an_environment_that_draws_nothing_cannot_be_filmed(
    module: str, text: str, instead: str, told: str, folder: Path
) -> None:
    # Mutation: take for granted that it has what films need.
    own = (folder / "corridor.py").read_text().replace(text, instead).replace("pictures_per_second", "rate")
    (folder / f"{module}.py").write_text(own)
    parsed = args.parse(["--env", f"{module}:make"], "test", "")
    with pytest.raises(UserError, match=rf"^--record-evaluations: {module}:make {told}$"):
        try_to_record(parsed, "--record-evaluations", folder)
    filmed = args.parse(["--env", f"{module}:make", "--id-eval-actor", "0", "--record-evaluations"], "test", "")
    with pytest.raises(UserError, match=told):
        run_evaluation_actor(filmed, threading.Event())


def test_an_evaluation_names_the_line_that_leaves_it(folder: Path) -> None:
    # Mutation: let SystemExit through, which would end the process.
    leaving = (folder / "corridor.py").read_text().replace("return self.row(StepType.MID", "exit(); return self.row(0")
    (folder / "leaving.py").write_text(leaving)
    parsed = args.parse(["--env", "leaving:make", "--agent", AGENT, "--disable-cuda"], "test", "")
    agent = make_agent(parsed, open_environment(parsed, 7).spec, torch.device("cpu"), learns=True, seed=1)
    player = workers.EpisodePlayer(parsed, agent.model.state_dict(), threading.Event())
    failure = workers._play(player, workers.Task(0, 1))
    assert isinstance(failure, RunError) and re.match(r".*leaving\.py, line \d+, has called sys\.exit", str(failure))


def test_an_environment_brings_its_options(folder: Path) -> None:
    parsed = args.parse(["--env", ENVIRONMENT, "--corridor-length", "9"], "test", "")
    assert parsed.get("corridor_length") == parsed.settings["corridor_length"] == parsed.shared["corridor_length"] == 9
    assert open_environment(parsed, 7).spec.observation.shape == (9,)
    assert parsed.replace(corridor_length=4).get("corridor_length") == 4
    assert parsed.replace(env="atari").get("corridor_length") is None
    (folder / "mine.yaml").write_text(f"env: {ENVIRONMENT}\ncorridor-length: 5\n")
    assert args.parse(["--config", "mine.yaml"], "test", "").get("corridor_length") == 5
    code, out, _ = run(str(ROOT / "launch_learner.py"), "--env", ENVIRONMENT, "--help", cwd=folder)
    assert code == 0 and "corridor:" in out and "--corridor-length INT" in out


MOVING = """
import os, signal
from pathlib import Path
import numpy as np
import torch
from corridor import Corridor

HOME = Path(__file__).parent / "elsewhere"


def change(when):
    HOME.joinpath(when).mkdir(parents=True, exist_ok=True)
    os.chdir(HOME / when)
    os.umask(0o377)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    np.seterr(all="raise")
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)


class Moving(Corridor):
    def __init__(self, settings, seed):
        super().__init__(settings, seed)
        change("constructor")

    def reset(self):
        change("reset")
        return super().reset()

    def step(self, action):
        os.chdir(HOME / "constructor")
        return super().step(action)


change("import")
make = Moving
"""


def test_an_environment_that_changes_its_process_changes_no_path(folder: Path) -> None:
    # Mutations: leave a path as it was given; leave out any of the blocks of `kept_settings`.
    (folder / "moving.py").write_text(MOVING)
    before = signal.getsignal(signal.SIGTERM), np.geterr(), torch.get_default_dtype()
    words = "--env moving:make --agent ppo --path-to-results mine --model . --record films --export card".split()
    parsed = args.parse(words, "test", "")  # an agent with presets for vectors: the environment is opened to see
    named = (parsed.path_to_results, parsed.model, parsed.record, parsed.export)
    assert named == (folder / "mine", folder, folder / "films", folder / "card")
    assert args.Args().path_to_results == folder / "results"
    with temporary_environment(parsed, 1) as environment:
        environment.reset()
    assert Path.cwd() == folder, "only what plays on may stay elsewhere"
    look_at_entries(parsed)
    assert Path.cwd() == folder
    with closing(open_vector(parsed, [1], 0)):
        assert Path.cwd() == folder / "elsewhere" / "constructor"
    assert (signal.getsignal(signal.SIGTERM), np.geterr(), torch.get_default_dtype()) == before
    assert torch.is_grad_enabled()
    assert short_path(parsed.path_to_results) == str(folder / "mine")
    os.chdir(folder)
    assert short_path(parsed.path_to_results) == "mine"
    (folder / "new").touch()
    assert (folder / "new").stat().st_mode & 0o400, "the mask of permissions is ours"


@pytest.mark.redis
@pytest.mark.slow
def test_results_stay_where_they_belong_whatever_an_environment_does(
    folder: Path, redis_port: int, run_name: str
) -> None:
    (folder / "moving.py").write_text(MOVING)
    words = (
        f"--env moving:make --agent ppo --nb-env-per-actor 2 --unroll-length 20 --minibatches 2 --mlp-size 8 "
        f"--log-interval 200 --learner-threads 1 --disable-cuda --port-redis {redis_port} --run-name {run_name} "
        "--path-to-results mine --evaluation-interval 200"
    ).split()

    with Processes() as processes:
        for T in ("400", "800"):
            began = [
                processes.start(str(ROOT / program), *words, "--T-max", T, *more, cwd=folder)
                for program, *more in (("launch_learner.py",), ("launch_actor.py", "--id-actor", "0"))
            ]
            assert [one.finish(200) for one in began] == [0, 0], processes.last_words()
        assert "Resuming from" in began[0].output
        scored = processes.start(
            str(ROOT / "test_multiple_seed.py"), *"--model mine --env moving:make --evaluation-episodes 3".split(),
            *"--evaluation-workers 1 --disable-cuda --path-to-results mine".split(), cwd=folder,
        )  # fmt: skip
        assert scored.finish(200) == 0, processes.last_words()
    assert len(list((folder / "mine" / "evaluations").glob("*.csv"))) == 1
    assert not [path for path in (folder / "elsewhere").rglob("*") if not path.is_dir()]


def test_a_state_of_the_corridor_goes_on_exactly() -> None:
    settings = args.parse(["--env", ENVIRONMENT], "test", "")
    one, other = open_environment(settings, 7), open_environment(settings, 8)
    row = one.reset()
    for step in range(60):
        row = one.reset() if row.step_type == StepType.LAST else one.step(step % 3 != 0)
        other.restore(one.snapshot())
        assert (other.snapshot()["numbers"] == one.snapshot()["numbers"]).all()
