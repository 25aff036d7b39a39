"""A short version of `python -m tests.fuzz`, and faults that it must find."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.memory import messages, weights_packet, wire
from rainbow_iqn_apex.memory.broker import record as run_record
from rainbow_iqn_apex.programs.actor import rollout as player
from rainbow_iqn_apex.programs.inference import exchange
from rainbow_iqn_apex.programs.inference.services import ArraySchema
from rainbow_iqn_apex.saber.results import training_log
from tests.fuzz.run import fuzz
from tests.fuzz.target import Target
from tests.fuzz.targets import targets

CASES = {
    "wire": 3000, "messages": 3000, "messages, impala": 400, "messages, r2d2": 400, "messages, sac": 400,
    "messages, ppo": 400, "messages, mixture": 400, "evaluation messages": 2000,
    "weights": 800, "actor state": 300, "actor state, gymnasium": 200, "snapshot": 80, "snapshot, mixture": 120,
    "training log": 2000,
    "run record": 600, "Redis values": 600,
    "inference requests": 2000, "inference answers": 2000, "inference greetings": 2000,
}  # fmt: skip
pytestmark = pytest.mark.redis


@pytest.fixture(scope="module")
def every_target(tmp_path_factory: pytest.TempPathFactory, redis_port: int) -> Iterator[dict[str, Target]]:
    yield targets(tmp_path_factory.mktemp("fuzz"), redis_port)


@pytest.mark.parametrize("name", CASES)
def test_hostile_bytes_are_refused_in_good_order(every_target: dict[str, Target], name: str) -> None:
    assert every_target.keys() == CASES.keys()
    outcome = fuzz(every_target[name], CASES[name], seed=17)
    assert outcome.failures == {}
    assert 0 < outcome.accepted < outcome.cases, "the forgeries go deep enough to be taken now and then"


_DECODE, _LOAD = wire.decode, torch.load
FAULTS: dict[str, tuple[str, Any, str, Any]] = {  # the target that finds it; what is replaced, and by what
    "no size limit": ("wire", wire, "decode", lambda data, *_: _DECODE(data)),
    "no chunk check": ("messages", messages, "check_played", lambda *_: None),
    "no episode check": ("messages", messages, "parse_record", lambda *_: EpisodeRecord()),
    "any field": ("messages", messages, "parse", lambda meta, kind: kind(**meta)),
    "no weights check": ("weights", weights_packet, "_check", lambda *_: None),
    "any state": ("actor state", player, "_DAMAGED", (wire.WireError,)),
    "pickles": ("snapshot", torch, "load", lambda path, **more: _LOAD(path, **(more | {"weights_only": False}))),
    "any cell": ("training log", training_log, "parse", lambda cells, kind, **_: kind(**cells)),
    "any settings": ("run record", run_record, "_settings", json.loads),
    "any number in rows": ("inference requests", ArraySchema, "_is_sane", lambda *_: True),
    "any greeting": ("inference greetings", exchange, "parse", lambda meta, kind: kind(**meta)),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(every_target: dict[str, Target], monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    target, owner, name, replacement = FAULTS[fault]
    monkeypatch.setattr(owner, name, replacement)
    assert fuzz(every_target[target], CASES[target], seed=17).failures != {}
