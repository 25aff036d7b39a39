"""A short version of `python -m tests.fuzz`, and faults that it must find."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.memory import messages, weights_packet, wire
from rainbow_iqn_apex.memory.broker import run_status as run_record
from rainbow_iqn_apex.programs.actor import rollout as player
from rainbow_iqn_apex.programs.inference import messages as inference_messages
from rainbow_iqn_apex.programs.inference.computing import Forms
from rainbow_iqn_apex.programs.inference.peers import Peer
from rainbow_iqn_apex.programs.learner import decoder
from rainbow_iqn_apex.saber.results.episode_fields import EpisodeField
from tests.fuzz.run import fuzz
from tests.fuzz.target import Target
from tests.fuzz.targets import targets

CASES = {
    "wire": 3000, "messages": 3000, "messages, impala": 400, "messages, r2d2": 400, "messages, sac": 400,
    "messages, ppo": 400, "messages, mixture": 400, "evaluation messages": 2000,
    "weights": 800, "actor state": 300, "actor state, gymnasium": 200, "snapshot": 80, "snapshot, mixture": 120,
    "training log": 2000,
    "run record": 600, "Redis values": 600,
    "inference requests": 2000, "inference answers": 2000, "inference greetings": 2000, "inference streams": 600,
}  # fmt: skip
Fault = Callable[[pytest.MonkeyPatch], None]
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


def without_a_size_limit(patch: pytest.MonkeyPatch) -> None:
    decode = wire.decode
    patch.setattr(wire, "decode", lambda data, *_: decode(data))


def without_a_chunk_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decoder, "check_played", lambda *_: None)


def without_an_episode_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decoder, "training_record", lambda *_: EpisodeRecord())


def without_a_weights_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(weights_packet, "_check", lambda *_: None)


def with_any_state(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(player, "_DAMAGED", (wire.WireError,))


def with_any_field(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(messages, "parse", lambda meta, kind: kind(**meta))


def with_pickles(patch: pytest.MonkeyPatch) -> None:
    load = torch.load
    patch.setattr(torch, "load", lambda path, **more: load(path, **(more | {"weights_only": False})))


def with_any_number(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EpisodeField, "parse", lambda self, text: self.type(text))


def with_any_settings(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(run_record, "_settings", json.loads)


def with_any_number_in_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Forms, "_is_sane", lambda *_: True)


def with_any_greeting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(inference_messages, "parse", lambda meta, kind: kind(**meta))


def without_a_length(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Peer, "_longest", 1 << 32)


FAULTS: dict[Fault, str] = {
    without_a_size_limit: "wire",
    without_a_chunk_check: "messages",
    without_an_episode_check: "messages",
    with_any_field: "messages",
    without_a_weights_check: "weights",
    with_any_state: "actor state",
    with_pickles: "snapshot",
    with_any_number: "training log",
    with_any_settings: "run record",
    with_any_number_in_rows: "inference requests",
    with_any_greeting: "inference greetings",
    without_a_length: "inference streams",
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_found(every_target: dict[str, Target], monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    fault(monkeypatch)
    assert fuzz(every_target[FAULTS[fault]], CASES[FAULTS[fault]], seed=17).failures != {}
