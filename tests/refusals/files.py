"""Files that are refused, and left as they are: logs, checkpoints and snapshots."""

import json
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.evaluation.settings import network_args
from rainbow_iqn_apex.programs.learner.checkpointer import parse
from rainbow_iqn_apex.saber.results import evaluation_log
from rainbow_iqn_apex.saber.results.training_log import EVALUATION_HEADER, HEADER, EvaluationScores, TrainingLog
from tests.agents.test_published_snapshots import published, saved
from tests.ground_truth.published_network import snapshot_of
from tests.refusals.reader import Place, Reader, Refused, changed, field, of

# --- logs ---

LINE = b"1200,300,2,1,7,100,150.5,0,345,game_over"


def _log(read: Callable[[Path], object], name: str) -> Callable[[bytes, Place], None]:
    """Return a reader of a CSV that looks whether the file has stayed as it was."""

    def look(content: bytes, place: Place) -> None:
        path = place.file(name, content)
        try:
            read(path)
        finally:
            assert path.read_bytes() == content

    return look


def _logs(header: str, line: bytes, more: list[bytes], other: bytes) -> Refused:
    """Return the refusals of other headers, and of a third line that is no episode."""
    whole = header.encode() + b"\n" + line + b"\n"
    cells = line.split(b",")
    wrong = [b"", b"1,2,3", b"\0\0\0", line + b",1", *more]
    for place, cell in (
        (0, b"-1"),
        (4, b"7.5"),
        (4, b"7.0"),
        (0, b"1e2"),
        (0, b"%d" % 2**62),
        (7, b"x"),
        (7, b"nan"),
        (7, b"-1e15"),
        (7, b"1e16"),
    ):
        wrong.append(b",".join([*cells[:place], cell, *cells[place + 1 :]]))
    wrong += [line.replace(b"game_over", end) for end in (b"game over", b"fin\xe9", b"x" * 65)]
    wrong.append(line.replace(b"150.5", b"150.5".ljust(1000 - len(line) + 5, b"0")) + line)  # two lines in one
    headers = [b"step,score\n1,2\n", b"my notes", b"\n", other]
    return {
        r"\.csv: its lines end in CRLF": [header.encode() + b"\r\n"],
        r"\.csv, line 1: expected the header": headers,
        r"\.csv, line 3: .* is not an episode": [whole + bad + b"\n" + b"1,2" for bad in wrong],
    }  # fmt: skip


SCORES = EVALUATION_HEADER
EPISODES = evaluation_log.HEADER

# --- checkpoints ---

CHECKPOINT = Path("last_model_pong_7.pth")
TABLE = torch.zeros(3, dtype=torch.int64)
REPLAY = {
    "first": 0,
    "ids": torch.zeros(0, 2, dtype=torch.int64),
    "priorities": torch.zeros(0, 64),
    "extra": {"slots": TABLE},
}
RUN: dict[str, Any] = {
    "run_id": "a1", "round": 3, "T_actors": 500, "T_learner": 700, "round_end": 800, "run_name": "pong",
    "settings": json.dumps({"nb_actor": 2, "game": "pong"}), "crews": [[0, 0, 2, 50]], "counted": {0: 17, 1: 0},
    "published": {2: torch.zeros(5, dtype=torch.uint8), 3: torch.ones(6, dtype=torch.uint8)}, "replay": REPLAY,
    "replay_generator": torch.Generator().get_state(), "best_mean": -21.0, "logged": 80, "finished": False,
    "server": "localhost:6379", "saves": 4,
}  # fmt: skip


def _replay(**changes: Any) -> dict[str, Any]:
    return {"replay": REPLAY | changes}


NO_EXTRAS: list[Any] = [None, [], {3: TABLE}, {"slots": [1]}, {str(number): TABLE for number in range(17)}]
NO_TABLES = ({"slots": TABLE[None]}, {"slots": torch.zeros(17)})
DAMAGES = changed(RUN, {
    "no JSON": [{"settings": ""}, {"settings": "{"}],
    r"Expected `object`, got `\w+`\)": [{"settings": "[]"}, {"settings": "3"}],
    "its crews are wrong": [{"crews": [[0, 0, 0, 1]]}, {"crews": [[0, 0]]}],
    "a tensor holds no bytes": [
        {"published": {2: torch.zeros(3)}}, {"replay_generator": torch.zeros(3)},
        {"replay_generator": torch.zeros(2, 2, dtype=torch.uint8)},
    ],
    "its replay has no chunks": [_replay(ids=torch.zeros(2)), _replay(priorities=torch.zeros(2))],
    "its replay has tables that are none": [_replay(extra=extra) for extra in NO_TABLES],
    **dict([
        field("run_id", "", "a b", "x" * 65, 3, None, b"a"), field("round", -1, 1.0, True, None, "3", 2**63),
        field("T_actors", -1, 1.0), field("T_learner", None), field("round_end", "800"),
        field("run_name", [1], 3, None), field("server", 3, None), field("saves", -1, None), field("finished", None, 3),
        field("settings", None, 3), field("crews", None, 3),
        field("counted", None, [], {-1: 0}, {"0": 0}, {0: -1}, {0: 1.0}, {0: 2**63}),
        field("published", None, [], {-1: RUN["replay_generator"]}, {2: b"x"}),
        field("replay", None, {}, {"first": 0}, REPLAY | {"ids": [1]}, REPLAY | {"more": 1}, *(
            REPLAY | {"extra": extra}
            for extra in NO_EXTRAS
        )),
        field("replay_generator", None), field("best_mean", None, "3", True, torch.zeros(())),
        field("logged", None, -1, 2.0),
    ]),
})  # fmt: skip
DAMAGES = {
    rf"^--path-to-results: {CHECKPOINT} cannot be resumed from, it is damaged \(.*{says}": x
    for says, x in DAMAGES.items()
}
OTHERS = f"{CHECKPOINT} cannot be resumed from, only started from: give it as --model"
UNFINISHED: Refused = {OTHERS: [{name: value for name, value in RUN.items() if name != left_out} for left_out in RUN]}

# --- snapshots ---

Write = Callable[[Path], object]


def _run() -> None:
    pytest.fail("code of a snapshot was run")


class _Code:
    def __reduce__(self) -> Any:
        return _run, ()


CODE = {"model_state_dict": {}, "T_actors": _Code()}


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("weights.txt", "conv1")


def _torn(share: float, *, legacy: bool) -> Write:
    def write(path: Path) -> None:
        whole = saved(path, snapshot_of(published("rainbow_iqn")), legacy=legacy).read_bytes()
        path.write_bytes(whole[: int(share * len(whole))])

    return write


def _of(content: Any, *, legacy: bool = False) -> Write:
    return lambda path: saved(path, content, legacy=legacy)


def _quantised(path: Path) -> None:
    with warnings.catch_warnings(action="ignore"):  # torch will have no such tensors one day
        _with("conv3.bias", torch.quantize_per_tensor(torch.zeros(64), 0.1, 0, torch.qint8))(path)


def _with(name: Any, value: Any) -> Write:
    """Return what writes a snapshot with another value for one of its weights."""

    def write(path: Path) -> None:
        content = snapshot_of(published("rainbow_iqn"))
        content["model_state_dict"][name] = value
        saved(path, content)

    return write


def _one_bad(value: float) -> Tensor:
    weight = torch.zeros(64, 64, 3, 3)
    weight[5, 6, 1, 1] = value
    return weight


NO_SNAPSHOTS: Refused = {
    r"cannot be read as a snapshot \(it is of another kind, or torn, or holds more than plain data\)$": [
        lambda path: path.write_text("weights\n"), lambda path: path.write_bytes(bytes(range(256)) * 9), _zip,
        lambda path: path.touch(), lambda path: path.write_bytes(pickle.dumps(CODE)),
        lambda path: torch.save(published("rainbow"), path), _of(CODE), _of(CODE, legacy=True),
        *(_torn(share, legacy=legacy) for share in (1e-5, 0.01, 0.5, 0.9999) for legacy in (False, True)),
    ],
    r"cannot be read as a snapshot \(it is no regular file\)": [lambda path: path.mkdir()],
    r"cannot be read as a snapshot \(No such file": [lambda _: None],
    "is not a snapshot: it holds no model_state_dict": [
        _of([1, 2]), _of(published("rainbow").state_dict()), _of({"model_state_dict": 3})
    ],
    "conv3.weight has values that are not finite": [
        _with("conv3.weight", _one_bad(value)) for value in (torch.nan, -torch.inf)
    ],
    "conv3.bias has values that are not finite": [_with("conv3.bias", torch.full((64,), 1e300, dtype=torch.float64))],
    "conv3.bias is not a tensor": [_with("conv3.bias", [0.0] * 64), _with("conv3.bias", None)],
    "conv3.bias is not a tensor of numbers": [
        _with("conv3.bias", torch.zeros(64).to_sparse()), _with("conv3.bias", torch.zeros(64, dtype=torch.complex64)),
        _quantised,
    ],
    "3 is not a tensor": [_with(3, torch.zeros(2))],
}  # fmt: skip
OTHER_LAYERS: Refused = {
    "conv1.weight is 32x4": [_with("conv1.weight", torch.zeros(32, 4))],
    "no architecture has a kernel like conv1.weight's, 7x7": [_with("conv1.weight", torch.zeros(32, 4, 7, 7))],
    "iqn_fc.weight is 3": [_with("iqn_fc.weight", torch.zeros(3))],
    "fcnoisy_z_v.weight_mu is 0x13": [_with("fcnoisy_z_v.weight_mu", torch.zeros(0, 13))],
    "fcnoisy_z_a.weight_mu is a single number": [_with("fcnoisy_z_a.weight_mu", torch.tensor(1.0))],
}


def _load(write: Write, place: Place) -> Path:
    path = place.folder / "x.pth"
    write(path)
    snapshot.load(path, "--model")
    return path


def _evaluate(write: Write, place: Place) -> None:
    path = _load(write, place)
    network_args(options.parse(["--game", "pong", "--model", str(path)], "test", ""), snapshot.load(path, "--model"))


WHOLE = _of(snapshot_of(published("rainbow_iqn")))
EVALUATED = f"{EPISODES}\n0,1,2,3,4.5,5,stuck\n".encode()
FILES = [
    Reader(
        "training log", _log(TrainingLog, "pong.csv"), f"{HEADER}\n".encode() + LINE + b"\n", ValueError,
        _logs(HEADER, LINE, [], f"{SCORES}\n".encode()),
    ),
    Reader(
        "evaluation actors' log", _log(EvaluationScores, "pong_evaluation.csv"),
        f"{SCORES}\n".encode() + LINE + b",12\n", ValueError,
        _logs(SCORES, LINE + b",12", [LINE + b",-1", LINE + b",%d" % (2 * 10**15)], f"{HEADER}\n".encode()),
    ),
    Reader(
        "evaluation's log", _log(evaluation_log.read_evaluation, "x.csv"), EVALUATED, ValueError,
        {
            r"x\.csv, line 1: expected the header": [b"episode,seed\n", b""],
            r"x\.csv, line 2: .* is not an episode": [
                EVALUATED.replace(b"4.5", b"nan"), EVALUATED.replace(b"4.5,", b""), EVALUATED.replace(b"stuck", b"a b"),
                EVALUATED.replace(b",5,", b",-5,"), EVALUATED.replace(b"4.5", b"1e15"),
                EVALUATED.replace(b"0,1,", b"0,%d," % 2**63),
            ],
        },
    ),
    Reader("checkpoint", of(lambda content: parse(CHECKPOINT, content)), RUN, UserError, DAMAGES | UNFINISHED),
    Reader("snapshot", _load, WHOLE, UserError, {f"^--model: .* {says}": x for says, x in NO_SNAPSHOTS.items()}),
    Reader(
        "snapshot to evaluate", _evaluate, WHOLE, UserError,
        {f"^--model: .*x.pth is not of Rainbow-IQN or Rainbow: {says}$": x for says, x in OTHER_LAYERS.items()},
    ),
]  # fmt: skip
