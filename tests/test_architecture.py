"""What may import what, how long things may be, and that bytes from outside never run code."""

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path

import pytest

from rainbow_iqn_apex.agents.registry import AGENTS

ROOT = Path(__file__).parent.parent
# What each folder may import beside itself: imports point down.
BELOW = {
    "common": frozenset[str](),
    "memory": frozenset({"common"}),
    "environments": frozenset({"common", "memory"}),
    "saber": frozenset({"common", "environments", "memory"}),
    "monitoring": frozenset({"common", "memory", "saber"}),
    "options": frozenset({"common", "environments", "memory", "monitoring", "saber"}),
    "agents": frozenset({"common", "memory", "options"}),
    "args": frozenset({"agents", "common", "environments", "memory", "options"}),
}
FOLDERS = (*(BELOW.keys() - {"args"}), "programs", "benchmarks", "tests")
LAUNCHERS = {path.stem for path in ROOT.glob("*.py")} - {"args"}
MAX_FILE, MAX_FUNCTION = 600, 60  # lines
PACKAGE = "rainbow_iqn_apex"  # what every module is imported from
OWN = {*FOLDERS, "args", *LAUNCHERS}
QUICK = {"args", "agents.registry", "programs.launch"}
START = "programs.start."
NOT_OF_THE_START = ("programs.actor", "programs.agent", "programs.common", "programs.learner")
_OF_THE_REGISTRY = ("AGENTS", "agent_names", "find_agent")
TRAINERS = {f"programs.learner.{name}" for name in ("trainers", "update_scheduler")}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources() -> dict[str, str]:
    """Text of every Python file of the project by its path."""
    paths = [*ROOT.glob("*.py"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in sorted(paths)}


SOURCES = sources()
PROGRAM = {path: text for path, text in SOURCES.items() if not path.startswith("tests/")}


def module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@lru_cache(maxsize=1)
def nodes_of(text: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text)))


@cache
def imports(path: str, text: str) -> set[str]:
    """Dotted names of everything imported, wherever it stands; `from a import b` gives a and a.b."""
    names: set[str] = set()
    for node in nodes_of(text):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = module_of(path).split(".")
            base = package[: len(package) - node.level + path.endswith("__init__.py")] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names |= {module} | {f"{module}.{alias.name}".lstrip(".") for alias in node.names}
    return {name.removeprefix(f"{PACKAGE}.") for name in names - {PACKAGE}}


def agent_modules(registry: str) -> set[str]:
    """The packages of single agents: those of the modules that the registry names in strings."""
    return set(re.findall(rf'"{PACKAGE}\.(agents\.\w+)\.agent"', registry))


def import_errors(path: str, text: str, agents: set[str]) -> Iterator[str]:
    """Every import of a file that points the wrong way."""
    module = module_of(path)
    folder = module.split(".")[0]
    is_broker, is_pure = module.startswith("memory.broker"), module.startswith("agents.ops")
    is_start = f"{module}.".startswith(START)
    for name in sorted(imports(path, text)):
        top = name.split(".")[0]
        forbidden = {
            "a launcher is imported": top in LAUNCHERS,
            "the program imports its tests or benchmarks": top in {"tests", "benchmarks"}
            and folder not in {"tests", "benchmarks"},
            f"{folder} imports what is not below it": folder in BELOW and top in OWN - BELOW[folder] - {folder},
            "an actor imports the learner": module.startswith("programs.actor") and name.startswith("programs.learner"),
            "an actor needs a Policy": module.startswith("programs.actor")
            and name in {"agents.interface.Agent", "agents.interface.Learnable"},
            "a trainer needs a Learnable": module in TRAINERS
            and name in {"agents.interface.Agent", "agents.policy.Policy"},
            "a trainer asks buffers by their protocol": module in TRAINERS
            and name.startswith(("memory.replay", "memory.queue", "memory.mixture")),
            "networks know no agent": module.startswith("agents.networks")
            and name.startswith(("agents.interface", "agents.policy")),
            "only programs know of the broker": name.startswith("memory.broker")
            and not (is_broker or folder in {"monitoring", "options", "programs", "benchmarks", "tests"}),
            "args knows the options of agents alone": folder == "args"
            and top == "agents"
            and name not in {"agents", "agents.registry", *(f"agents.registry.{found}" for found in _OF_THE_REGISTRY)}
            and ".options" not in name,
            "agents.ops imports torch and agents.ops only": is_pure
            and not (top == "torch" or name.startswith("agents.ops") or name == "agents" or _standard(top)),
            "an agent imports another": _package(module) in agents and _package(name) in agents - {_package(module)},
            "what a command line needs imports torch": top == "torch"
            and (folder == "options" or (".options" in module and folder != "tests") or module in QUICK),
            "the start script knows learner and actors by their commands": is_start
            and (top == "agents" or name.startswith(NOT_OF_THE_START)),
            "nobody knows of the start script": f"{name}.".startswith(START) and not is_start and folder != "tests",
            "memory/broker alone imports redis, and not all of it": top == "redis" and module not in REDIS,
            "saber/report/svg.py alone imports matplotlib": top == "matplotlib" and module != "saber.report.svg",
            "only memory/broker/leases.py imports redlock": top == "redlock" and module != "memory.broker.leases",
        }
        yield from (f"{path}: {name}: {rule}" for rule, broken in forbidden.items() if broken)


def _package(module: str) -> str:
    return ".".join(module.split(".")[:2])


def _standard(top: str) -> bool:
    return top in sys.stdlib_module_names and top not in OWN


def size_errors(path: str, text: str) -> Iterator[str]:
    if (lines := text.count("\n")) > MAX_FILE:
        yield f"{path}: {lines} lines"
    for node in nodes_of(text):
        if isinstance(node, Function) and node.end_lineno and node.end_lineno - node.lineno + 1 > MAX_FUNCTION:
            yield f"{path}: {node.name}: {node.end_lineno - node.lineno + 1} lines"


REDIS = {f"memory.broker.{name}" for name in ("connection", "keys", "topology")}
UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__"}


def unsafe(path: str, text: str) -> Iterator[str]:
    """Everything with which bytes from outside could run code."""
    tops = {name.split(".")[0] for name in imports(path, text)}
    yield from (f"{path}: imports {name}" for name in sorted(tops & UNSAFE_MODULES))
    for node in nodes_of(text):
        if isinstance(node, ast.Call):
            given = {word.arg: word.value for word in node.keywords}
            called = ast.unparse(node.func)
            plain = {"torch.load": "weights_only"}.get(called)
            if called.startswith("yaml.") and not _is_safe_yaml(called, given.get("Loader")):
                yield f"{path}:{node.lineno}: {called}: allowed are compose with SafeLoader, safe_load and safe_dump"
            if called.removeprefix("builtins.") in UNSAFE_CALLS:
                yield f"{path}:{node.lineno}: {called}"
            if plain and not _is_true(given.get(plain)):
                yield f"{path}:{node.lineno}: {called} without {plain}=True"
            if any(not _is_false(given[word]) for word in ("allow_pickle", "shell") if word in given):
                yield f"{path}:{node.lineno}: {called} with allow_pickle or shell"
            if called.endswith((".read_pickle", ".to_pickle", "multiprocessing.connection.Client")):
                yield f"{path}:{node.lineno}: {called}"
        elif isinstance(node, ast.ImportFrom) and node.module == "yaml":
            yield f"{path}:{node.lineno}: a part of yaml under another name"
        elif isinstance(node, ast.ImportFrom) and node.module == "torch" and "load" in {a.name for a in node.names}:
            yield f"{path}:{node.lineno}: load of torch under another name"


def _is_safe_yaml(called: str, loader: ast.expr | None) -> bool:
    if called == "yaml.compose":  # makes no objects
        return loader is not None and ast.unparse(loader) == "yaml.SafeLoader"
    return called in {"yaml.safe_dump", "yaml.safe_load"}


def _is_true(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is True


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def test_there_is_something_to_look_at() -> None:
    expected = {"args.py", "memory/wire.py", "programs/learner/learner.py", "agents/ops/n_step.py", "saber/atari.py"}
    assert expected <= SOURCES.keys()
    folders = {entry.module.removeprefix(f"{PACKAGE}.").removesuffix(".agent") for entry in AGENTS.values()}
    assert agent_modules(SOURCES["agents/registry.py"]) == folders
    assert {f"agents.{name}" for name in ("rainbow_iqn", "r2d2", "on_policy")} <= folders


def test_imports_point_one_way_files_are_short_and_nothing_runs_code_from_outside() -> None:
    agents, errors = agent_modules(SOURCES["agents/registry.py"]), []
    for path, text in SOURCES.items():  # file by file: each is read once
        of_others = ("redis", "a launcher") if path.startswith("tests/") else ()  # tests start servers, and launchers
        errors += [error for error in import_errors(path, text, agents) if not any(rule in error for rule in of_others)]
        errors += [*size_errors(path, text), *(unsafe(path, text) if path in PROGRAM else ())]
    assert errors == []


def circles(sources: dict[str, str]) -> list[list[str]]:
    """Return the groups of modules that import one another, wherever in a file that stands."""
    modules = {module_of(path): path for path in sources}
    graph = {module: imports(path, sources[path]) & modules.keys() - {module} for module, path in modules.items()}
    reached: dict[str, set[str]] = {}
    for module in graph:
        found, waiting = set[str](), list(graph[module])
        while waiting:
            if (other := waiting.pop()) not in found:
                found.add(other)
                waiting += graph[other]
        reached[module] = found
    return [[a, b] for a in sorted(reached) for b in sorted(reached[a]) if a < b and a in reached[b]]


def test_no_modules_import_each_other() -> None:
    assert circles(PROGRAM) == []


def test_a_circle_is_noticed() -> None:
    pair = {"memory/a.py": "def f():\n    from memory.b import g", "memory/b.py": "from memory.a import f"}
    assert circles(pair) == [["memory.a", "memory.b"]]
    assert circles(pair | {"memory/b.py": "import json"}) == []


# --- what the checks must notice ---


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("memory/x.py", "from memory.broker.keys import Keys"),
        ("memory/x.py", "def f():\n    import agents"),
        ("memory/x.py", "from args import Args"),
        ("memory/x.py", "from redis.retry import Retry"),
        ("memory/broker/scripts.py", "from redlock import Redlock"),
        ("memory/broker/leases.py", "import redis"),
        ("memory/x.py", "from .. import agents"),
        ("saber/x.py", "import agents.ops.n_step"),
        ("benchmarks/x.py", "from matplotlib.figure import Figure"),
        ("common/x.py", "from memory.rows import Row"),
        ("environments/x.py", "from saber.games import games"),
        ("options/x.py", "from agents.interface import Agent"),
        ("monitoring/x.py", "from agents.interface import Agent"),
        ("programs/actor/x.py", "from programs.learner import budget"),
        ("programs/actor/x.py", "from agents.interface import Agent"),
        ("programs/actor/x.py", "from agents.interface import Learnable, Update"),
        ("programs/learner/trainers.py", "from agents.interface import Agent"),
        ("programs/learner/trainers.py", "from agents.policy import Policy"),
        ("programs/learner/update_scheduler.py", "from memory.queue import Queue"),
        ("agents/networks/x.py", "from agents.interface import Agent"),
        ("agents/x.py", "from launch_learner import run"),
        ("agents/x.py", "import test_multiple_seed"),
        ("agents/x.py", "from tests.conftest import RedisServer"),
        ("agents/ops/x.py", "import numpy as np"),
        ("agents/ops/x.py", "from agents.networks.duelling import Heads"),
        ("agents/ops/x.py", "from ..networks import Heads"),
        ("agents/rainbow/agent.py", "from agents.rainbow_iqn.agent import RainbowIqn"),
        ("agents/rainbow_iqn/agent.py", "from agents.rainbow import agent"),
        ("agents/rainbow/agent.py", "from args import Args"),
        ("agents/rainbow/options.py", "import torch"),
        ("programs/launch.py", "from torch import Tensor"),
        ("agents/rainbow_iqn/agent.py", "from ..rainbow.agent import Rainbow"),
        ("args.py", "from agents.interface import Agent"),
        ("args.py", "from agents.registry import make_agent"),
        ("programs/start/x.py", "from programs.common import run_program"),
        ("programs/start/x.py", "import agents"),
        ("programs/common.py", "from programs.start.screen import say"),
    ],
)
def test_a_wrong_import_is_noticed(path: str, text: str) -> None:
    assert list(import_errors(path, text, {"agents.rainbow", "agents.rainbow_iqn"})) != []


def test_one_place_alone_computes_gradients_and_uses_them() -> None:
    found = {path for path, text in PROGRAM.items() if re.search(r"\.backward\(|zero_grad\(|autograd\.grad\(", text)}
    assert found == {"agents/optimisation.py"}


def test_length_is_noticed() -> None:
    body = "    x = 1\n" * MAX_FUNCTION
    assert len(list(size_errors("x.py", "def f():\n" + body))) == 1
    assert len(list(size_errors("x.py", "class A:\n    async def f():\n" + body.replace("    ", "        ")))) == 1
    assert list(size_errors("x.py", "def f():\n" + body[: -len("    x = 1\n")])) == []
    assert len(list(size_errors("x.py", "x = 1\n" * (MAX_FILE + 1)))) == 1
    assert list(size_errors("x.py", "x = 1\n" * MAX_FILE)) == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "def f():\n    from pickle import loads",
        "yaml.load(text, Loader=loader)",
        "yaml.unsafe_load(text)",
        "yaml.compose(text, Loader=yaml.Loader)",
        "from yaml import load",
        "eval('1')",
        "import builtins\nbuiltins.exec('1')",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "torch.load(path, weights_only=flag)",
        "from torch import load",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
        "pandas.read_pickle(path)",
        "subprocess.run(text, shell=True)",
    ],
)
def test_a_way_to_run_code_is_noticed(text: str) -> None:
    assert len(list(unsafe("x.py", text))) == 1


def test_the_package_is_made_of_links() -> None:
    # Mutation: a tool that replaces files, such as `perl -pi`, over all of `git ls-files`: two copies of args.py.
    copies = [path.name for path in (ROOT / PACKAGE).iterdir() if not path.is_symlink()]
    assert set(copies) <= {"__init__.py", "__main__.py", "__pycache__"}


@pytest.mark.parametrize("folder", sorted({*BELOW, "programs"}))
def test_a_folder_is_imported_as_a_part_of_the_package_alone(folder: str) -> None:
    # Mutation: without the check, this loads a second copy of every class.
    with pytest.raises(ImportError, match=f"^import {PACKAGE}.{folder}: .*$"):
        importlib.import_module(folder)
